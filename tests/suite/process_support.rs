//! A process runtime over a folder of its own, and the same thing seen from outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, ContainerDetail, ContainerState, InstanceId};
use orchestrate::runtime::process::{Avoid, ProcessRuntime, ProcessSettings};
use orchestrate::runtime::{Bind, CreateRequest, LogOptions, Runtime, RuntimeError, RuntimeEvent};
use orchestrate::spec::{Resources, TaskId};

pub(crate) struct World {
    pub(crate) runtime: ProcessRuntime,
    pub(crate) instance: InstanceId,
    /// Holds the state dir and a worktree.
    dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn avoiding(avoid: Avoid) -> Self {
        Self::with(|settings| settings.avoid = avoid)
    }

    pub(crate) fn with(change: impl FnOnce(&mut ProcessSettings)) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir(dir.path().join("tree")).expect("created");
        let mut settings = settings(&dir.path().join("state/process"));
        change(&mut settings);
        let runtime = ProcessRuntime::new(settings).expect("a runtime");
        Self { runtime, instance: InstanceId("0123abcd".into()), dir }
    }

    /// What a process that comes after us has.
    pub(crate) fn successor(&self) -> ProcessRuntime {
        ProcessRuntime::new(settings(&self.root())).expect("a runtime")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("state/process")
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn folder(&self, id: &str) -> PathBuf {
        self.root().join(id.split_once('.').map_or(id, |(_, name)| name))
    }

    /// The worktree is at its place, as in every real request.
    pub(crate) fn request(&self, task: &str, shell: &str) -> CreateRequest {
        let key = AttemptKey { task: TaskId::new(task).expect("valid"), attempt: 1 };
        CreateRequest {
            name: names::container(&self.instance, &key),
            labels: names::labels(&self.instance, "plan", &key, "digest", "base"),
            key,
            image: None,
            command: Some(["sh", "-c", shell].map(str::to_owned).to_vec()),
            env: BTreeMap::new(),
            mounts: vec![Bind { source: self.tree(), target: "/project".to_owned(), read_only: false }],
            workdir: "/project".to_owned(),
            user: None,
            network: "bridge".to_owned(),
            resources: Resources::default(),
        }
    }

    pub(crate) async fn create(&self, task: &str, shell: &str) -> String {
        self.runtime.create(&self.request(task, shell)).await.expect("created")
    }

    pub(crate) async fn launch(&self, task: &str, shell: &str) -> String {
        let id = self.create(task, shell).await;
        self.runtime.start(&id).await.expect("started");
        id
    }

    pub(crate) async fn inspect(&self, id: &str) -> ContainerDetail {
        self.runtime.inspect(&self.instance, id).await.expect("answered").expect("there")
    }

    pub(crate) async fn state(&self, id: &str) -> ContainerState {
        self.inspect(id).await.container.state
    }

    /// Waits for its end; its log ends with it.
    pub(crate) async fn ended(&self, id: &str) -> ContainerDetail {
        let log = self.runtime.logs(id, LogOptions { follow: true, ..LogOptions::default() });
        within(log.try_for_each(|_| async { Ok(()) })).await.expect("followed");
        let detail = self.inspect(id).await;
        assert_eq!(detail.container.state, ContainerState::Exited);
        detail
    }

    pub(crate) async fn output(&self, id: &str) -> String {
        let chunks: Vec<_> = within(self.runtime.logs(id, LogOptions::default()).try_collect()).await.expect("a log");
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk: orchestrate::runtime::LogChunk| chunk.bytes).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs a command to its end; its code and its output.
    pub(crate) async fn run(&self, request: &CreateRequest) -> (i64, String) {
        let id = self.runtime.create(request).await.expect("created");
        self.runtime.start(&id).await.expect("started");
        (self.ended(&id).await.exit_code, self.output(&id).await)
    }

    /// Waits until it has written something, and so set its trap.
    pub(crate) async fn written(&self, id: &str) {
        let mut log = self.runtime.logs(id, LogOptions { follow: true, ..LogOptions::default() });
        within(log.next()).await.expect("output").expect("readable");
    }

    pub(crate) async fn subscribe(&self) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        let mut events = self.runtime.events(&self.instance);
        assert_eq!(next(&mut events).await, RuntimeEvent::Subscribed);
        events
    }

    /// A fact that the supervisor wrote.
    pub(crate) fn fact(&self, id: &str, file: &str) -> serde_json::Value {
        let text = std::fs::read(self.folder(id).join(file)).expect("read");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The supervisor of one that may not have started.
    pub(crate) fn holder(&self, id: &str) -> rustix::process::Pid {
        holder(&self.folder(id)).expect("a supervisor")
    }

    pub(crate) fn supervisor(&self, id: &str) -> rustix::process::Pid {
        let pid = self.fact(id, "started.json")["supervisor"]["pid"].as_i64().expect("a pid");
        rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        end_supervisors(&self.root());
    }
}

/// Ends what a test has left: each supervisor by itself.
pub(crate) fn end_supervisors(root: &Path) {
    for (_, pid) in supervisors(root) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
    }
}

/// The living supervisors under a root, each with its attempt's folder.
pub(crate) fn supervisors(root: &Path) -> Vec<(PathBuf, rustix::process::Pid)> {
    let lives = |folder: PathBuf| {
        let free = std::fs::File::open(folder.join("lock")).is_ok_and(|lock| lock.try_lock_shared().is_ok());
        holder(&folder).filter(|_| !free).map(|pid| (folder, pid))
    };
    std::fs::read_dir(root).into_iter().flatten().flatten().filter_map(|entry| lives(entry.path())).collect()
}

fn holder(folder: &Path) -> Option<rustix::process::Pid> {
    let text = std::fs::read_to_string(folder.join("lock")).ok()?;
    rustix::process::Pid::from_raw(text.trim().parse().ok()?)
}

pub(crate) fn settings(root: &Path) -> ProcessSettings {
    let path = [("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned())];
    ProcessSettings {
        executable: env!("CARGO_BIN_EXE_orchestrate").into(),
        env: ProcessSettings::passed(path),
        ..ProcessSettings::new(root)
    }
}

/// What hangs fails its test.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("in time")
}

pub(crate) async fn next(events: &mut BoxStream<'static, Result<RuntimeEvent, RuntimeError>>) -> RuntimeEvent {
    within(events.next()).await.expect("goes on").expect("an event")
}

/// Waits until something holds that nothing tells about.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    within(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// The command lines of living processes that hold a text, but for ours.
pub(crate) fn command_lines(text: &str) -> Vec<String> {
    let line = |pid: &std::ffi::OsStr| {
        let line = std::fs::read(std::path::Path::new("/proc").join(pid).join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    };
    let entries = std::fs::read_dir("/proc").expect("listed").flatten();
    entries.filter_map(|entry| line(&entry.file_name())).filter(|line| line.contains(text)).collect()
}
