//! Signals to a reconciler whose engine does not answer: the first asks for the end, the second ends it at once.

use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::project::Project;

/// A project at an engine that takes connections and says nothing, and the run that waits for it.
fn waiting() -> (Project, UnixListener, Child) {
    let folder = tempfile::tempdir().expect("temp dir").keep();
    let socket = folder.join("sock");
    let listener = UnixListener::bind(&socket).expect("binds");
    let project = Project::at(format!("unix://{}", socket.display()));
    project.plan(json!([{ "id": "a", "command": ["true"] }]));
    let child = project.start(&["run"]);
    let (_stream, _from) = listener.accept().expect("it asks");
    (project, listener, child)
}

#[track_caller]
fn ended_by(child: &mut Child, within: Duration) -> (Option<i32>, Option<i32>) {
    #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waits") {
            return (status.code(), status.signal());
        }
        assert!(started.elapsed() < within, "it does not end");
        #[expect(clippy::disallowed_methods, reason = "a real process takes real time")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_signal_ends_a_run_in_time_though_the_engine_is_silent() {
    let (project, _listener, mut child) = waiting();
    kill_process(Pid::from_child(&child), Signal::TERM).expect("sends");
    // 5 s are promised; a busy machine gets more.
    let (code, signal) = ended_by(&mut child, Duration::from_secs(20));
    assert!(code != Some(0), "{code:?} {signal:?}");
    assert!(!project.stands("a").starts_with("running"), "nothing was begun");
}

#[test]
fn a_second_signal_ends_it_at_once_and_the_file_is_whole() {
    let (project, listener, mut child) = waiting();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("sends");
    // Where the first was enough already there is nobody to send a second to.
    let _gone = kill_process(pid, Signal::TERM);
    let (_code, signal) = ended_by(&mut child, Duration::from_secs(10));
    assert_eq!(signal, Some(Signal::TERM.as_raw()), "the parent sees what ended it");
    assert_eq!(project.task("a")["command"], json!(["true"]), "the file is whole");
    // What it held is free again: the next one gets as far as to ask the engine.
    listener.set_nonblocking(true).expect("sets");
    while listener.accept().is_ok() {}
    let mut next = project.start(&["run"]);
    project.wait_until("the next one asks", |_| listener.accept().is_ok());
    next.kill().expect("kills");
    next.wait().expect("waits");
}
