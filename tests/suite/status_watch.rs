//! `status --watch`: beside a `run`, in a pipe, as JSON, on a terminal, and how it ends.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::project::{PROGRAM, Project, Ran};

/// A project without an engine, whose tasks take a moment.
fn project() -> Project {
    let project = Project::at("unix:///no/engine.sock".to_owned());
    project.write_plan(&json!({
        "runtime": "process",
        "tasks": [
            { "id": "api", "agent": "shell", "command": ["sleep", "3"] },
            { "id": "web", "agent": "shell", "command": ["true"], "dependencies": ["api"] },
        ],
    }));
    project
}

fn watch(project: &Project, arguments: &[&str]) -> Child {
    let mut command = project.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

fn work_off(project: &Project) {
    drop(project.run(&["--allow-unconfined", "run", "--until-done", "--timeout", "200s"]).expect(0));
}

#[test]
fn in_a_pipe_each_change_is_a_line_and_it_ends_when_all_is_over() {
    let project = project();
    let watching = watch(&project, &["status", "--watch", "--exit-status"]);
    work_off(&project);
    let ran = Ran::from(watching.wait_with_output().expect("ends")).expect(0);
    for wanted in ["api: running", "api: completed", "web: completed"] {
        let (id, status) = wanted.split_once(": ").expect("two words");
        let told = ran.stdout.lines().any(|line| line.contains(id) && line.contains(status));
        assert!(told, "{wanted}:\n{}\n{}", ran.stdout, ran.stderr);
    }
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
    // All is over: it says so and ends at once.
    drop(project.run(&["status", "--watch", "-o", "json"]).expect(0));
}

#[test]
fn as_json_each_change_is_one_document_a_line() {
    let project = project();
    let watching = watch(&project, &["status", "--watch", "-o", "json", "api"]);
    work_off(&project);
    let ran = Ran::from(watching.wait_with_output().expect("ends")).expect(0);
    let documents: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect();
    assert!(documents.len() >= 3, "{}", ran.stdout);
    assert!(documents.iter().all(|view| view["tasks"].as_array().is_some_and(|tasks| tasks.len() == 1)));
    let stood: Vec<&str> = documents.iter().filter_map(|view| view["tasks"][0]["status"].as_str()).collect();
    assert!(stood.contains(&"running") && stood.last() == Some(&"completed"), "{stood:?}");
    for pair in documents.windows(2) {
        let still = |view: &Value| {
            let mut view = view.clone();
            view["at"] = Value::Null;
            view["tasks"][0]["seconds"] = Value::Null;
            view
        };
        assert_ne!(still(&pair[0]), still(&pair[1]), "said twice");
    }
}

#[test]
fn a_signal_ends_it_by_its_own_effect_and_a_broken_file_does_not() {
    let project = project();
    let watching = watch(&project, &["status", "--watch", "-o", "json"]);
    let plan = std::fs::read_to_string(project.plan_path()).expect("read");
    // Long enough that it has looked once; what it says of the fault shows that it had.
    pause(3);
    std::fs::write(project.plan_path(), "{\"tasks\": [,]}").expect("written");
    pause(8);
    std::fs::write(project.plan_path(), plan).expect("written");
    pause(3);
    let pid = rustix::process::Pid::from_child(&watching);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it still runs");
    let output = watching.wait_with_output().expect("ends");
    assert_eq!(output.status.signal(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("it is looked at again"), "{stderr}");
    assert!(!output.stdout.is_empty());
    let refused = project.run(&["status", "--watch", "-o", "name"]).expect(2);
    assert!(refused.stderr.contains("do not go together"), "{}", refused.stderr);
}

#[test]
fn on_a_terminal_the_table_is_repainted_and_the_last_one_stays() {
    let project = project();
    let line = format!("stty rows 30 cols 90; {PROGRAM} status --watch; echo code $?");
    let plain = project.command(&[]);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(project.repo()).env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.expect("set"));
    }
    let mut command =
        command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    let input = command.stdin.take();
    work_off(&project);
    let ran = Ran::from(command.wait_with_output().expect("ends"));
    drop(input);
    assert!(ran.stdout.contains("\u{1b}[K") && ran.stdout.contains('F'), "{:?}", ran.stdout);
    assert!(ran.stdout.contains("code 0"), "{:?}", ran.stdout);
    let last = ran.stdout.rsplit("\u{1b}[J").next().unwrap_or_default();
    assert!(last.contains("api") && last.contains("2 tasks: 2 completed"), "{last:?}");
    assert!(!ran.stdout.contains("\u{1b}[2J"), "the whole screen is never blank");
}

#[expect(clippy::disallowed_methods, reason = "another process takes real time")]
fn pause(seconds: u64) {
    std::thread::sleep(std::time::Duration::from_secs(seconds));
}
