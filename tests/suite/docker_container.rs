//! What a container of ours is given and denied, seen from within and from outside on a real engine.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use futures::TryStreamExt;
use orchestrate::act::{HEAD, Secrets, TAIL, capture_log};
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, ContainerState, InstanceId};
use orchestrate::runtime::docker::{DockerRuntime, DockerSettings};
use orchestrate::runtime::{Bind, CreateRequest, ErrorKind, LogOptions, Runtime};
use orchestrate::spec::{Resources, TaskId};
use serde_json::json;

use crate::support::engine::{self, IMAGE, USER_IMAGE};

struct Sandbox {
    runtime: DockerRuntime,
    host: String,
    instance: InstanceId,
}

impl Sandbox {
    fn new() -> Option<Self> {
        let (runtime, host) = engine::engine()?;
        let unique = std::fs::read_to_string("/proc/sys/kernel/random/uuid").expect("a kernel's uuid");
        Some(Self { runtime, host, instance: InstanceId(unique.trim().replace('-', "")[..12].into()) })
    }

    fn request(&self, task: &str, shell: &str) -> CreateRequest {
        let key = AttemptKey { task: TaskId::new(task).expect("valid"), attempt: 1 };
        CreateRequest {
            name: names::container(&self.instance, &key),
            labels: names::labels(&self.instance, "plan", &key, "digest", "base"),
            key,
            image: Some(IMAGE.to_owned()),
            command: Some(["sh", "-c", shell].map(str::to_owned).to_vec()),
            env: BTreeMap::new(),
            mounts: Vec::new(),
            workdir: "/project".to_owned(),
            user: Some("1000:1000".to_owned()),
            network: "none".to_owned(),
            resources: Resources::default(),
        }
    }

    /// Runs it to its end; its exit code and all that it wrote.
    async fn run(&self, request: &CreateRequest) -> (i64, String) {
        let id = self.runtime.create(request).await.expect("created");
        self.runtime.start(&id).await.expect("started");
        let code = self.ended(&id).await;
        (code, self.log(&id).await)
    }

    async fn ended(&self, id: &str) -> i64 {
        for _ in 0..1000 {
            let detail = self.runtime.inspect(&self.instance, id).await.expect("answered").expect("there");
            if detail.container.state == ContainerState::Exited {
                return detail.exit_code;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{id} did not end");
    }

    /// Followed from a start on, the log of this engine at times lacks what was written last; read after the end it is
    /// whole.
    async fn log(&self, id: &str) -> String {
        let chunks: Vec<_> = self.runtime.logs(id, LogOptions::default()).try_collect().await.expect("a log");
        let log: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
        String::from_utf8(log).expect("text")
    }

    /// Fails with all that was written unless it exits with 0.
    async fn holds(&self, request: &CreateRequest) -> String {
        let (code, log) = self.run(request).await;
        assert_eq!(code, 0, "{log}");
        log
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let filter = format!("label={}={}", names::label::INSTANCE, self.instance);
        let listed = engine::docker(&self.host, &["ps", "-aq", "--filter", &filter]).stdout;
        for id in String::from_utf8_lossy(&listed).split_whitespace() {
            engine::docker(&self.host, &["rm", "-f", id]);
        }
    }
}

#[tokio::test]
async fn nothing_is_gained_and_home_and_tmp_are_usable() {
    let Some(sandbox) = Sandbox::new() else { return };
    let shell = r#"set -ex
        grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status
        grep -q '^CapBnd:[[:space:]]*0*$' /proc/self/status
        grep -q '^NoNewPrivs:[[:space:]]*1$' /proc/self/status
        grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status
        [ "$(ulimit -c)" = 0 ]
        [ "$(id -u):$(id -g)" = 1000:1000 ]
        [ "$HOME" = /home/orchestrate ] && [ "$(pwd)" = /project ]
        for place in /tmp "$HOME"; do
            printf '#!/bin/sh\necho ran\n' >"$place/tool"
            chmod +x "$place/tool"
            [ "$("$place/tool")" = ran ]
        done
        [ "$(stat -c %a "$HOME")" = 1777 ]
        ! touch /etc/x 2>/dev/null
        # The first process is an init that reaps.
        ! tr '\0' ' ' </proc/1/cmdline | grep -q '^sh '
    "#;
    sandbox.holds(&sandbox.request("a", shell)).await;
}

#[tokio::test]
async fn the_images_own_user_can_use_its_home() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut request = sandbox.request("a", "touch $HOME/x /tmp/x && stat -c %a $HOME && id -u");
    request.user = None;
    assert_eq!(sandbox.holds(&request).await, "1777\n0\n");
    let mut request = sandbox.request("b", "touch $HOME/x /tmp/x && id -u");
    (request.user, request.image) = (None, Some(USER_IMAGE.to_owned()));
    assert_eq!(sandbox.holds(&request).await, "1000\n");
    let image = sandbox.runtime.image(USER_IMAGE).await.expect("answered").expect("there");
    assert_eq!(image.user, "1000:1000");
}

#[tokio::test]
async fn limits_are_those_that_were_asked_for() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut request = sandbox.request("a", "df -k /dev/shm | tail -n 1 | awk '{print $2}'");
    request.resources = Resources { cpus: 0.5, memory: 100 << 20, pids: 33, shm: Some(32 << 20) };
    assert_eq!(sandbox.holds(&request).await, "32768\n");
    let inspected = engine::docker(&sandbox.host, &["inspect", "-f", "{{json .HostConfig}}", &request.name]).stdout;
    let config: serde_json::Value = serde_json::from_slice(&inspected).expect("JSON");
    for (field, expected) in [
        ("NanoCpus", json!(500_000_000)),
        ("Memory", json!(100 << 20)),
        ("PidsLimit", json!(33)),
        ("RestartPolicy", json!({"Name": "no", "MaximumRetryCount": 0})),
        ("AutoRemove", json!(false)),
        ("LogConfig", json!({"Type": "json-file", "Config": {"max-file": "3", "max-size": "10m"}})),
        ("CapDrop", json!(["ALL"])),
        ("CapAdd", json!(null)),
        ("SecurityOpt", json!(["no-new-privileges"])),
        ("Privileged", json!(false)),
        ("Binds", json!(null)),
        ("Init", json!(true)),
    ] {
        assert_eq!(config[field], expected, "{field}");
    }
}

#[tokio::test]
async fn more_cores_than_there_are_is_no_error() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut request = sandbox.request("a", "true");
    request.resources.cpus = 4096.0;
    sandbox.holds(&request).await;
}

#[tokio::test]
async fn mounts_with_any_text_in_their_path() {
    let Some(sandbox) = Sandbox::new() else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let source = folder.path().join("a b:c,d\"é");
    std::fs::create_dir(&source).expect("created");
    std::os::unix::fs::chown(&source, Some(1000), Some(1000)).expect("chowned");
    let read_only = folder.path().join("prompt");
    std::fs::write(&read_only, "do it").expect("written");
    let mut request = sandbox.request("a", "echo done >file && cat /run/prompt && ! echo x 2>/dev/null >/run/prompt");
    request.mounts = vec![
        Bind { source: source.clone(), target: "/project".to_owned(), read_only: false },
        Bind { source: read_only, target: "/run/prompt".to_owned(), read_only: true },
    ];
    assert_eq!(sandbox.holds(&request).await, "do it");
    let file = source.join("file");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "done\n");
    let metadata = std::fs::metadata(&file).expect("there");
    assert_eq!((metadata.uid(), metadata.gid()), (1000, 1000));
}

#[tokio::test]
async fn a_bridge_has_an_address_and_none_has_none() {
    let Some(sandbox) = Sandbox::new() else { return };
    let addresses = "ip -4 -o addr | grep -vc ' lo '";
    let mut request = sandbox.request("a", addresses);
    request.network = "bridge".to_owned();
    assert_eq!(sandbox.run(&request).await, (0, "1\n".to_owned()));
    assert_eq!(sandbox.run(&sandbox.request("b", addresses)).await, (1, "0\n".to_owned()));
}

#[tokio::test]
async fn a_child_that_memory_killed_leaves_the_code_of_its_parent() {
    let Some(sandbox) = Sandbox::new() else { return };
    let mut request = sandbox.request("a", "tail /dev/zero; exit 0");
    request.resources.memory = 32 << 20;
    let (code, _) = sandbox.run(&request).await;
    let detail = sandbox.runtime.inspect(&sandbox.instance, &request.name).await.expect("answered").expect("there");
    assert_eq!((code, detail.oom_killed), (0, true));
}

#[tokio::test]
async fn a_mount_that_vanishes_before_the_start_is_told_by_the_answer_alone() {
    let Some(sandbox) = Sandbox::new() else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let mut request = sandbox.request("a", "true");
    request.mounts = vec![Bind { source: folder.path().to_owned(), target: "/x".to_owned(), read_only: false }];
    let id = sandbox.runtime.create(&request).await.expect("created");
    drop(folder);
    let error = sandbox.runtime.start(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::StartRefused, "{error}");
    let detail = sandbox.runtime.inspect(&sandbox.instance, &id).await.expect("answered").expect("there");
    assert_eq!((detail.container.state, detail.exit_code, detail.error.as_str()), (ContainerState::Created, 0, ""));
}

#[tokio::test]
async fn git_works_for_any_user() {
    let Some(sandbox) = Sandbox::new() else { return };
    let shell = r"set -e
        cd /tmp && git init -q -b main r && cd r
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        echo 1 >base && git add . && git commit -qm base
        for branch in x y z; do
            git checkout -q -b $branch main && echo $branch >$branch && git add . && git commit -qm $branch
        done
        git checkout -q main && git merge -q x y z >/dev/null
        git log -1 --format=%P | wc -w
    ";
    let mut request = sandbox.request("a", shell);
    request.user = Some("54321:54321".to_owned());
    assert_eq!(sandbox.holds(&request).await.trim(), "3");
}

#[tokio::test]
async fn an_endless_line_is_captured_within_bounds() {
    let Some(sandbox) = Sandbox::new() else { return };
    let shell = "printf begin; head -c 12000000 /dev/zero | tr '\\0' x; printf hunter2hunter2end";
    let request = sandbox.request("a", shell);
    let id = sandbox.runtime.create(&request).await.expect("created");
    sandbox.runtime.start(&id).await.expect("started");
    sandbox.ended(&id).await;
    let secrets = Secrets::new([&b"hunter2hunter2"[..]]);
    let result = capture_log(sandbox.runtime.logs(&id, LogOptions::default()), &secrets).await;
    assert_eq!(result.failed, None);
    let captured = result.captured;
    // As many as there were, but for the mask, which is shorter by eleven.
    assert_eq!((captured.total, captured.truncated), (5 + 12_000_000 + 14 + 3 - 11, true));
    assert!(captured.bytes.starts_with(b"beginxxx") && captured.bytes.ends_with(b"xxx***end"));
    assert!(captured.bytes.len() < HEAD + TAIL + 100);
}

#[tokio::test]
async fn control_characters_are_kept_as_they_are() {
    let Some(sandbox) = Sandbox::new() else { return };
    let request = sandbox.request("a", "printf 'a\\000\\033[31m\\r\\303\\251'");
    let id = sandbox.runtime.create(&request).await.expect("created");
    sandbox.runtime.start(&id).await.expect("started");
    sandbox.ended(&id).await;
    let result = capture_log(sandbox.runtime.logs(&id, LogOptions::default()), &Secrets::new([])).await;
    assert_eq!(result.captured.bytes, b"a\0\x1b[31m\r\xc3\xa9");
}

#[tokio::test]
async fn a_log_without_a_reader_is_unsupported() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = format!("orch-{}-none-1", sandbox.instance);
    let label = format!("{}={}", names::label::INSTANCE, sandbox.instance);
    let run = ["run", "--log-driver", "none", "--name", &name, "--label", &label, IMAGE, "true"];
    assert!(engine::docker(&sandbox.host, &run).status.success());
    let log: Result<Vec<_>, _> = sandbox.runtime.logs(&name, LogOptions::default()).try_collect().await;
    assert_eq!(log.expect_err("no reader").kind, ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_terminals_log_has_no_frames() {
    let Some(sandbox) = Sandbox::new() else { return };
    let name = format!("orch-{}-tty-1", sandbox.instance);
    let label = format!("{}={}", names::label::INSTANCE, sandbox.instance);
    // The first byte is one that begins a frame.
    let run = ["run", "-t", "--name", &name, "--label", &label, IMAGE, "printf", "\\001\\000\\000\\000x"];
    assert!(engine::docker(&sandbox.host, &run).status.success());
    assert_eq!(sandbox.log(&name).await, "\x01\0\0\0x");
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_unreachable() {
    let folder = tempfile::tempdir().expect("temp dir");
    let host = format!("unix://{}/sock", folder.path().display());
    let settings = DockerSettings { host: Some(host), ..DockerSettings::default() };
    let runtime = DockerRuntime::connect(&settings).expect("an endpoint");
    let instance = InstanceId("i".into());
    assert_eq!(runtime.probe().await.expect_err("away").kind, ErrorKind::Unreachable);
    assert_eq!(runtime.list(&instance).await.expect_err("away").kind, ErrorKind::Unreachable);
    let events: Result<Vec<_>, _> = runtime.events(&instance).try_collect().await;
    assert_eq!(events.expect_err("away").kind, ErrorKind::Unreachable);
    // A socket that nobody listens on any more.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("sock")).expect("bound"));
    let error = runtime.list(&instance).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
}
