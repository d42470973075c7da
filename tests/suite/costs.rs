//! What is stable of the costs: requests, records and writes, never time. See `specs/performance.md`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use serde_json::json;

use crate::process_main_job::{Machine, noting};
use crate::support::web::Daemon;

const TASKS: usize = 12;

/// Requests to the runtime so far, by kind.
fn requests(daemon: &Daemon) -> BTreeMap<String, u64> {
    let text = daemon.get("/metrics").body;
    let line = |line: &str| {
        let rest = line.strip_prefix("orchestrate_runtime_request_duration_seconds_count{")?;
        let (_, operation) = rest.split_once("operation=\"")?;
        let count = line.rsplit(' ').next()?.parse().ok()?;
        Some((operation.split_once('"')?.0.to_owned(), count))
    };
    text.lines().filter_map(line).collect()
}

/// A field of `/proc/PID/io`.
fn io(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).expect("read");
    let field = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
    text.lines().find_map(field).expect("a count")
}

#[test]
fn a_task_costs_so_many_requests_and_records_and_rest_costs_none() {
    let machine = Machine::new();
    let project = &machine.project;
    let tasks: Vec<_> = (0..TASKS).map(|i| json!({ "id": format!("t{i}"), "command": noting("") })).collect();
    machine.plan(json!(tasks));
    let daemon = Daemon::start(project, &[]);
    project.wait_until("all are done", |project| {
        (0..TASKS).all(|i| project.task(&format!("t{i}"))["status"] == "completed")
    });

    let spent = requests(&daemon);
    let count = |operation: &str| spent.get(operation).copied().unwrap_or(0);
    let tasks = TASKS as u64;
    for operation in ["create", "start", "inspect"] {
        assert_eq!(count(operation), tasks, "{operation}: {spent:?}");
    }
    assert_eq!(count("image") + count("stop") + count("remove"), 0, "{spent:?}");
    // A log counts with its first piece.
    assert!(count("logs") <= tasks, "{spent:?}");
    assert!(count("list") <= 3 && count("events") <= 1, "{spent:?}");

    let journal = project.repo().join(".git/orchestrate/journal");
    let text = fs::read_to_string(&journal).expect("reads");
    let of_task = |i: usize| text.lines().filter(|line| line.contains(&format!("\"task\":\"t{i}\""))).count();
    // Intent, prepared, created, start intent, started, ended.
    assert!((0..TASKS).all(|i| of_task(i) == 6), "{text}");

    // The last write of the plan file is due a moment after the last end.
    let pid = daemon.process.0.id();
    let stamp = || {
        let meta = fs::metadata(project.plan_path()).expect("there");
        (meta.ino(), meta.ctime(), meta.ctime_nsec(), fs::metadata(&journal).expect("there").len())
    };
    let rest = |seconds: u64| {
        #[expect(clippy::disallowed_methods, reason = "rest takes time")]
        std::thread::sleep(Duration::from_secs(seconds));
    };
    // And the list that follows a subscription, since an engine's lists lag behind its events.
    rest(4);
    let before = (stamp(), io(pid, "write_bytes"), requests(&daemon));
    rest(3);
    let after = (stamp(), io(pid, "write_bytes"), requests(&daemon));
    assert_eq!(before, after, "rest costs no write and no request");
}
