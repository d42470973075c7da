//! Git in real containers, as a launch makes them: what works there, and what a hostile agent gains. The lists are those
//! of [`crate::git_isolated`].

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Output};
use std::time::Duration;

use futures::TryStreamExt;
use orchestrate::git::GitBind;
use orchestrate::observe::{AttemptKey, ContainerState, InstanceId, names};
use orchestrate::runtime::docker::DockerRuntime;
use orchestrate::runtime::{Bind, CreateRequest, LogOptions, Runtime};
use orchestrate::spec::{Resources, TaskId};

use crate::git_isolated::{OPERATIONS, attacked, attacks, works_for_the_agent};
use crate::support::engine::{self, IMAGE};

/// Runs scripts in containers of ours.
pub(crate) struct Cage {
    host: String,
    instance: InstanceId,
}

impl Cage {
    fn new() -> Option<Self> {
        let (_, host) = engine::engine()?;
        let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a kernel's uuid");
        Some(Self { host, instance: InstanceId(unique.trim().replace('-', "")[..12].into()) })
    }

    /// Runs one to its end in a container of its own.
    pub(crate) fn run(&self, script: &str, binds: &[GitBind], env: BTreeMap<String, String>, workdir: &Path) -> Output {
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let key = AttemptKey { task: TaskId::new("a").expect("valid"), attempt: 1 };
        let request = CreateRequest {
            name: names::container(&self.instance, &key),
            labels: names::labels(&self.instance, "plan", &key, "digest", "base"),
            key,
            image: Some(IMAGE.to_owned()),
            command: Some(["sh", "-c", script].map(str::to_owned).to_vec()),
            env,
            mounts: binds
                .iter()
                .map(|bind| Bind { source: bind.source.clone(), target: text(&bind.target), read_only: bind.read_only })
                .collect(),
            workdir: text(workdir),
            user: Some("0:0".to_owned()),
            network: "none".to_owned(),
            resources: Resources::default(),
        };
        // Its callers are in the middle of a runtime of theirs.
        std::thread::scope(|scope| {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(self.to_its_end(&request))
            };
            scope.spawn(run).join().expect("it ran")
        })
    }

    async fn to_its_end(&self, request: &CreateRequest) -> Output {
        let (docker, _): (DockerRuntime, _) = engine::engine().expect("it was there");
        let id = docker.create(request).await.expect("created");
        docker.start(&id).await.expect("started");
        let code = tokio::time::timeout(Duration::from_mins(3), async {
            loop {
                let detail = docker.inspect(&self.instance, &id).await.expect("answered").expect("there");
                if detail.container.state == ContainerState::Exited {
                    return detail.exit_code;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let code = code.await.expect("it ends");
        let chunks: Vec<_> = docker.logs(&id, LogOptions::default()).try_collect().await.expect("a log");
        docker.remove(&id).await.expect("removed");
        let stdout = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
        let code = i32::try_from(code).expect("a code");
        Output { status: ExitStatus::from_raw(code << 8), stdout, stderr: Vec::new() }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        let filter = format!("label={}={}", names::label::INSTANCE, self.instance);
        let listed = engine::docker(&self.host, &["ps", "-aq", "--filter", &filter]).stdout;
        for id in String::from_utf8_lossy(&listed).split_whitespace() {
            engine::docker(&self.host, &["rm", "-f", id]);
        }
    }
}

/// Past the capture of passing tests' output: the counts are what one wants to see.
fn tell(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

#[tokio::test]
async fn all_of_git_works_in_a_container() {
    let Some(cage) = Cage::new() else { return };
    let worked = works_for_the_agent(Some(cage)).await;
    tell(&format!("git in a container: {worked} of {} operations", OPERATIONS.len()));
    assert_eq!(worked, OPERATIONS.len());
}

#[rstest::rstest]
#[tokio::test]
async fn nothing_that_an_agent_writes_in_a_container_reaches_the_host(#[values(0, 1)] part: usize) {
    let (mut wrong, mut tried, mut succeeded) = (Vec::new(), 0, 0);
    for (name, script, fate) in attacks().into_iter().skip(part).step_by(2) {
        let Some(cage) = Cage::new() else { return };
        let found = attacked(name, &script, &fate, Some(cage)).await;
        tried += 1;
        succeeded += usize::from(!found.is_empty());
        wrong.extend(found);
    }
    tell(&format!("git in a container, part {part}: {succeeded} of {tried} attacks succeeded"));
    assert!(tried >= 20 && wrong.is_empty(), "{}", wrong.join("\n"));
}
