//! `run` as a service and as a step of a CI: signals, service manager, files that change, calls for people. On the process
//! runtime, so that no engine is needed; the program itself, as it is started by others.

use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::project::{PROGRAM, Project};
use crate::support::web::PATIENCE;

/// A repository whose attempts are processes, with its program started over it.
pub(crate) struct Site {
    pub(crate) project: Project,
}

impl Site {
    pub(crate) fn new(top: Value, tasks: Value) -> Self {
        let site = Self { project: Project::at("unix:///nowhere".to_owned()) };
        site.plan(top, tasks);
        site
    }

    #[expect(clippy::needless_pass_by_value, reason = "calls read better with the value itself")]
    pub(crate) fn plan(&self, top: Value, tasks: Value) {
        let mut plan = json!({ "runtime": "process", "max_concurrent": 4, "defaults": { "agent": "shell" } });
        for (name, value) in top.as_object().expect("an object") {
            plan[name] = value.clone();
        }
        plan["tasks"] = tasks;
        // As an editor does it: beside, then in its place.
        let beside = self.project.repo().join(".plan.tmp");
        fs::write(&beside, serde_json::to_string_pretty(&plan).expect("plain data")).expect("writes");
        fs::rename(beside, self.project.plan_path()).expect("renames");
    }

    /// Changes the plan file as it stands, keeping what the program wrote.
    fn edit(&self, edit: impl Fn(&mut Value)) {
        let mut plan = self.project.plan_now();
        edit(&mut plan);
        self.project.write_plan(&plan);
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.spawn(self.project.command(arguments))
    }

    fn spawn(&self, mut command: Command) -> Child {
        let log = fs::File::create(self.log()).expect("creates");
        command.stdout(Stdio::null()).stderr(log).spawn().expect("starts")
    }

    fn log(&self) -> PathBuf {
        self.project.ran().join("stderr")
    }

    fn told(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn wait_for(&self, id: &str, stands: &str) {
        self.project.wait_until(&format!("{id} is {stands}"), |project| project.stands(id).starts_with(stands));
    }
}

pub(crate) fn sh(script: &str) -> Value {
    json!(["sh", "-c", script])
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("not zero");
    kill_process(pid, signal).expect("sends");
}

/// Waits for its end; gives how long that took.
#[track_caller]
fn ended(child: &mut Child) -> (ExitStatus, Duration) {
    #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
    let started = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("asks") {
            return (status, started.elapsed());
        }
        if started.elapsed() > PATIENCE {
            drop(child.kill());
            panic!("it does not end");
        }
        pause(20);
    }
}

fn pause(milliseconds: u64) {
    #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
    std::thread::sleep(Duration::from_millis(milliseconds));
}

#[test]
fn each_signal_that_stops_leaves_tasks_running_and_the_next_start_takes_them_up() {
    for (stop, number) in [(Signal::TERM, 15), (Signal::INT, 2)] {
        let tasks: Vec<Value> = (0..12)
            .map(|n| json!({ "id": format!("t{n}"), "command": sh("echo once >> ran; git add ran; git commit -qm ran; sleep 2") }))
            .collect();
        let site = Site::new(json!({}), json!(tasks));
        let mut child = site.start(&["run"]);
        // Some are being made, some run, some wait.
        site.project.wait_until("one is launched", |_| site.told().contains("running"));
        signal(&child, stop);
        let (status, took) = ended(&mut child);
        assert_eq!(status.signal(), Some(number), "{}", site.told());
        // Five seconds, and as much again for a machine that is busy with other tests.
        assert!(took < Duration::from_secs(10), "{took:?}");
        assert!(site.told().contains("stopping: nothing more is launched"), "{}", site.told());
        let _ran = site.project.run(&["run", "--until-done"]).expect(0);
        for n in 0..12 {
            let task = site.project.task(&format!("t{n}"));
            assert_eq!((&task["status"], &task["attempt"]), (&json!("completed"), &json!(1)), "{task}");
            let ran = site.project.git(&["show", &format!("agent/t{n}:ran")]);
            assert_eq!(ran, "once", "t{n} ran twice");
        }
    }
}

#[test]
fn a_second_signal_ends_it_at_once_and_the_file_is_whole() {
    let site = Site::new(json!({}), json!([{ "id": "a", "command": sh("sleep 3") }]));
    let mut child = site.start(&["run"]);
    site.wait_for("a", "running");
    signal(&child, Signal::TERM);
    // It may be gone already: then there is nothing to hasten.
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("not zero");
    kill_process(pid, Signal::TERM).ok();
    let (status, took) = ended(&mut child);
    assert_eq!(status.signal(), Some(15));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(site.project.plan_now()["tasks"][0]["id"], "a");
    let _ran = site.project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(site.project.task("a")["attempt"], 1);
}

#[test]
fn an_engine_that_never_answers_does_not_keep_it_from_ending() {
    let site = Site::new(
        json!({ "runtime": "docker", "defaults": { "agent": "shell", "image": "i" } }),
        json!([{ "id": "a", "command": ["true"] }]),
    );
    let socket = site.project.ran().join("engine.sock");
    // Takes connections by its backlog and answers none.
    let _engine = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
    let mut command = site.project.command(&["run"]);
    command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    let mut child = site.spawn(command);
    pause(1_500);
    signal(&child, Signal::TERM);
    let (status, took) = ended(&mut child);
    assert_eq!(status.signal(), Some(15), "{}", site.told());
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_reader_of_its_words_that_goes_away_does_not_stop_it() {
    let site = Site::new(
        json!({}),
        json!([{ "id": "a", "command": sh("sleep 2") }, { "id": "b", "dependencies": ["a"], "command": ["true"] }]),
    );
    let mut command = site.project.command(&["run", "--until-done"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    site.wait_for("a", "running");
    drop(child.stderr.take());
    let (status, _) = ended(&mut child);
    assert_eq!(status.code(), Some(0), "{status:?}");
    assert_eq!(site.project.stands("b"), "completed/Succeeded");
}

/// What a service manager would be told.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("binds");
        socket.set_read_timeout(Some(PATIENCE)).expect("sets");
        Self { socket }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let read = self.socket.recv(&mut bytes).expect("told in time");
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }

    /// Waits until a message has this line; gives that message.
    fn until(&self, line: &str) -> String {
        loop {
            let message = self.next();
            if message.lines().any(|one| one == line) {
                return message;
            }
        }
    }
}

#[test]
fn a_service_manager_is_told_of_readiness_beats_reloads_and_the_end() {
    let site = Site::new(json!({}), json!([{ "id": "a", "command": sh("sleep 60") }]));
    let path = site.project.ran().join("notify");
    let manager = Manager::at(&path);
    let mut command = site.project.command(&["run", "--log-format", "json"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "3000000");
    let mut child = site.spawn(command);
    manager.until("READY=1");
    manager.until("STATUS=0 of 1 tasks completed, 1 running");
    // A quiet loop makes a pass each 15 s; within 3 s there have to be several.
    #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
    let began = std::time::Instant::now();
    for _ in 0..4 {
        manager.until("WATCHDOG=1");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    signal(&child, Signal::HUP);
    let reloading = manager.until("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.until("READY=1");
    assert!(child.try_wait().expect("asks").is_none(), "no terminal went away: it goes on");
    signal(&child, Signal::TERM);
    manager.until("STOPPING=1");
    let (status, _) = ended(&mut child);
    assert_eq!(status.signal(), Some(15));
    for line in site.told().lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["at"].is_string() && line["level"].is_string(), "{line}");
    }
    // Its attempt goes on beside: it has to be stopped by hand.
    site.edit(|plan| plan["tasks"][0]["status"] = json!("cancelled"));
    let _ran = site.project.run(&["run", "--until-done"]).expect(1);
}

#[test]
fn a_plan_that_is_edited_while_it_runs_is_followed() {
    let site = Site::new(
        json!({ "max_concurrent": 1 }),
        json!([{ "id": "a", "command": sh("until [ -e go ]; do sleep 0.1; done") }, { "id": "b", "command": sh("sleep 1") }]),
    );
    let mut child = site.start(&["run"]);
    site.wait_for("a", "running");
    site.wait_for("b", "pending/WaitingForSlot");
    // Raised: what waited starts. Lowered again: nothing is killed.
    site.edit(|plan| plan["max_concurrent"] = json!(2));
    site.wait_for("b", "completed");
    site.edit(|plan| plan["max_concurrent"] = json!(1));
    // Added: it is taken up, and waits.
    site.edit(|plan| {
        let tasks = plan["tasks"].as_array_mut().expect("a list");
        tasks.push(json!({ "id": "c", "command": ["true"] }));
    });
    site.wait_for("c", "pending/WaitingForSlot");
    assert_eq!(site.project.stands("a").split('/').next(), Some("running"));
    // Suspended: a freed slot is not taken. Resumed: it is.
    let _ran = site.project.run(&["suspend"]).expect(0);
    site.wait_for("c", "pending/Suspended");
    fs::write(site.project.repo().join(".worktrees/a/go"), "").expect("writes");
    site.wait_for("a", "completed");
    assert_eq!(site.project.stands("c"), "pending/Suspended");
    let _ran = site.project.run(&["resume"]).expect(0);
    site.wait_for("c", "completed");
    signal(&child, Signal::TERM);
    assert_eq!(ended(&mut child).0.signal(), Some(15));
}

#[test]
fn a_ci_gets_a_report_annotations_a_summary_and_words_in_a_long_wait() {
    let site = Site::new(
        json!({}),
        json!([
            { "id": "good", "command": sh("sleep 3") },
            { "id": "bad", "command": sh("echo '::error::not mine'; echo so it goes; exit 3") },
            { "id": "behind", "dependencies": ["bad"], "command": ["true"] },
        ]),
    );
    let summary = site.project.ran().join("summary.md");
    let junit = site.project.ran().join("junit.xml");
    let metrics = site.project.ran().join("o.prom");
    fs::write(&summary, "of another step\n").expect("writes");
    let (junit_path, metrics_path) = (junit.to_str().expect("text"), metrics.to_str().expect("text"));
    let mut command = site.project.command(&[
        "run",
        "--until-done",
        "--timeout",
        "5m",
        "-o",
        "github",
        "--heartbeat",
        "1s",
        "--junit",
        junit_path,
        "--metrics-file",
        metrics_path,
    ]);
    command.env("GITHUB_STEP_SUMMARY", &summary).env("CI", "true");
    let ran: crate::support::project::Ran = command.output().expect("runs").into();
    let ran = ran.expect(1);
    let xml = fs::read_to_string(junit).expect("written");
    assert!(xml.contains(r#"tests="3" skipped="1" failures="1" errors="0""#), "{xml}");
    assert!(xml.contains("so it goes"), "{xml}");
    let text = fs::read_to_string(summary).expect("written");
    assert!(text.starts_with("of another step\n### repo\n") && text.contains("| bad | failed |"), "{text}");
    assert!(ran.stdout.contains("\n::error title=bad%3A failed::exited with code 3"), "{}", ran.stdout);
    assert!(ran.stdout.contains("::group::bad: "), "{}", ran.stdout);
    let fence = ran.stdout.lines().find_map(|line| line.strip_prefix("::stop-commands::")).expect("fenced").to_owned();
    let (before, after) = ran.stdout.split_once("::error::not mine").expect("shown");
    assert!(before.contains(&format!("::stop-commands::{fence}")) && after.contains(&format!("::{fence}::")));
    assert!(ran.stderr.contains("still waiting: 3 tasks: 1 running"), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\u{1b}'), "no terminal, no colour: {}", ran.stderr);
    let metrics = fs::read_to_string(metrics).expect("written");
    assert!(metrics.contains(r#"orchestrate_tasks{project="repo",status="failed"} 1"#), "{metrics}");
}

#[test]
fn people_are_called_for_what_happens_and_a_call_that_fails_is_in_nobodys_way() {
    let site = Site::new(
        json!({}),
        json!([{ "id": "a", "command": ["true"] }, { "id": "b", "dependencies": ["a"], "command": sh("exit 4") }]),
    );
    let calls = site.project.ran().join("calls");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}/in?x=1", listener.local_addr().expect("bound"));
    let posts = std::thread::spawn(move || {
        let mut bodies = Vec::new();
        for stream in listener.incoming().take(3) {
            let mut stream = stream.expect("a call");
            let mut bytes = Vec::new();
            let mut piece = [0; 4096];
            while !String::from_utf8_lossy(&bytes).contains("\"summary\"") || !bytes.ends_with(b"}") {
                let read = std::io::Read::read(&mut stream, &mut piece).expect("reads");
                bytes.extend_from_slice(&piece[..read]);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n").expect("answers");
            bodies.push(String::from_utf8(bytes).expect("text"));
        }
        bodies
    });
    let script = format!("'tee -a {0}; echo >> {0}'", calls.display());
    let _ran = site
        .project
        .run(&["run", "--until-done", "--notify", &format!("sh -c {script}"), "--notify-url", &url])
        .expect(1);
    let told = fs::read_to_string(&calls).expect("called");
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<_> = told.iter().map(|one| (one["event"].as_str(), one["task"]["id"].as_str())).collect();
    assert_eq!(kinds, [(Some("finished"), Some("a")), (Some("failed"), Some("b")), (Some("all_resolved"), None)]);
    assert_eq!(told[1]["task"]["exit_code"], 4);
    let posts = posts.join().expect("all came");
    assert!(posts[0].starts_with("POST /in?x=1 HTTP/1.1\r\n") && posts[1].contains("\"failed\""), "{posts:?}");

    // One that hangs: the work goes on beside, and the end waits for it no longer than it may.
    let site = Site::new(
        json!({}),
        json!([{ "id": "a", "command": ["true"] }, { "id": "b", "dependencies": ["a"], "command": ["true"] }]),
    );
    let mut child = site.start(&["run", "--notify", "sleep 600"]);
    site.wait_for("b", "completed");
    signal(&child, Signal::TERM);
    let (status, took) = ended(&mut child);
    assert_eq!(status.signal(), Some(15));
    assert!(took < Duration::from_secs(10), "{took:?}");
    // One that cannot be run is told, and is no failure of the plan.
    let site = Site::new(json!({}), json!([{ "id": "a", "command": ["true"] }]));
    let ran = site.project.run(&["run", "--until-done", "--notify", "/no/such/program"]).expect(0);
    assert!(ran.stderr.contains("--notify failed 3 times: cannot run `/no/such/program`"), "{}", ran.stderr);
}

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let unit = fs::read_to_string(deploy("systemd/orchestrate@.service")).expect("there");
    for line in ["Type=notify", "WatchdogSec=60", "Restart=on-failure", "NoNewPrivileges=true", "KillMode=process"] {
        assert!(unit.lines().any(|one| one == line), "{line}");
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("orchestrate@.service");
    // It is looked for where programs are installed; here it is where it was built.
    fs::write(&path, unit.replace("ExecStart=orchestrate ", &format!("ExecStart={PROGRAM} "))).expect("writes");
    let verify = |path: &Path| Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output();
    let Ok(verified) = verify(&path) else {
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("SKIPPED: no systemd-analyze here");
        }
        return;
    };
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", String::from_utf8_lossy(&verified.stderr));
    // That it would say so.
    fs::write(&path, unit.replace("ExecStart=orchestrate ", "ExecStart=/no/such/program ")).expect("writes");
    assert!(!verify(&path).expect("runs").status.success());
}

/// The shell lines of a job in YAML: blocks under `run: |`, or the items of a list under `script:` and `after_script:`.
fn shell_lines(yaml: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside: Option<usize> = None;
    for line in yaml.lines() {
        let indent = line.len() - line.trim_start().len();
        if inside.is_some_and(|at| indent <= at) {
            inside = None;
        }
        if inside.is_some() {
            lines.push(line.trim_start().trim_start_matches("- ").to_owned());
        } else if ["run: |", "script:", "after_script:"].contains(&line.trim_start()) {
            inside = Some(indent);
        }
    }
    lines
}

#[test]
fn the_examples_for_ci_do_what_they_say() {
    for (example, count) in [("ci/github.yml", 3), ("ci/gitlab-ci.yml", 3)] {
        let lines = shell_lines(&fs::read_to_string(deploy(example)).expect("there"));
        assert_eq!(lines.len(), count, "{example}: {lines:?}");
        let site = Site::new(
            json!({}),
            json!([
                { "id": "good", "command": sh("echo good > good.txt; git add -A; git commit -qm good") },
                { "id": "next", "dependencies": ["good"], "command": ["true"] },
            ]),
        );
        let remote = site.project.ran().join("remote.git");
        site.project.git(&["init", "-q", "--bare", remote.to_str().expect("text")]);
        site.project.git(&["remote", "add", "origin", remote.to_str().expect("text")]);
        let folder = Path::new(PROGRAM).parent().expect("a folder");
        let mut command = site.project.command(&[]);
        let vars: Vec<_> =
            command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
        command = Command::new("sh");
        command.args(["-e", "-c", &lines.join("\n")]).current_dir(site.project.repo()).env_clear().envs(vars);
        command
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()))
            .env("PUSH_URL", &remote)
            .env("CI", "true");
        command.env("GITHUB_STEP_SUMMARY", site.project.ran().join("summary"));
        let ran: crate::support::project::Ran = command.stdin(Stdio::null()).output().expect("runs").into();
        let _ran = ran.expect(0);
        let pushed = site.project.git(&["--git-dir", remote.to_str().expect("text"), "branch", "--list", "agent/*"]);
        assert!(pushed.contains("agent/good"), "{example}: {pushed}");
        let xml = fs::read_to_string(site.project.repo().join("junit.xml")).expect("written");
        assert!(xml.contains(r#"tests="2" skipped="0" failures="0" errors="0""#), "{example}: {xml}");
        assert!(site.project.repo().join("orchestrate.prom").is_file());
    }
}

#[test]
fn the_skill_names_commands_and_codes_that_there_are() {
    let skill = fs::read_to_string(deploy("claude/skills/orchestrate/SKILL.md")).expect("there");
    assert!(skill.starts_with("---\nname: orchestrate\ndescription: "), "front matter as the chat command wants it");
    let mut seen = 0;
    for call in skill.split('`').filter(|piece| piece.starts_with("orchestrate ")) {
        let word = call.split_whitespace().nth(1).expect("a word");
        let help = Command::new(PROGRAM).args([word, "--help"]).output().expect("runs");
        assert!(help.status.success(), "`{call}`: no such command");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        for flag in call.split_whitespace().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "`{call}`: no flag {flag}");
        }
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}
