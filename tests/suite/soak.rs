//! Thousands of short tasks through one `run`: what it holds at the end is what it held at the start. Long, so only where
//! `ORCHESTRATE_TEST_SOAK` says how many attempts.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::daemon::Site;
use crate::support::engine::variable;

/// Tasks of the plan; they are run again and again, so that only what is kept without need can grow.
const TASKS: usize = 50;

/// Anonymous memory in KiB, descriptors, and children that ended and were not waited for.
fn held(pid: u32) -> (u64, usize, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("there");
    let memory = line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("ours").count();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("ours");
    let children = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let is_zombie = |pid: &&u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    (memory, descriptors, children.iter().filter(is_zombie).count())
}

#[test]
fn thousands_of_attempts_leave_no_memory_descriptors_or_zombies() {
    let Some(attempts) = variable("ORCHESTRATE_TEST_SOAK").and_then(|count| count.parse::<usize>().ok()) else {
        return;
    };
    let tasks: Vec<Value> = (0..TASKS).map(|n| json!({ "id": format!("t{n}"), "command": ["true"] })).collect();
    let site = Site::new(json!({ "max_concurrent": 8 }), json!(tasks));
    let mut child =
        site.project.command(&["run", "-q"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let rounds = attempts.div_ceil(TASKS).max(3);
    let ids: Vec<String> = (0..TASKS).map(|n| format!("t{n}")).collect();
    let retry: Vec<&str> = ["retry", "-q"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let mut marks = Vec::new();
    for round in 1..=rounds {
        site.project.wait_until(&format!("round {round} is over"), |project| {
            let tasks = project.plan_now()["tasks"].as_array().cloned().unwrap_or_default();
            tasks.iter().all(|task| task["attempt"] == json!(round) && task["status"] == "completed")
        });
        // The first rounds fill what is kept on purpose: caches, stacks of threads, the allocator's own.
        if round == 1 || round == rounds.div_ceil(4) || round == rounds {
            marks.push((round * TASKS, held(child.id())));
        }
        if round < rounds {
            let _ran = site.project.run(&retry).expect(0);
        }
    }
    #[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
    for (ended, (memory, descriptors, zombies)) in &marks {
        println!("{ended} attempts: {memory} KiB anonymous, {descriptors} descriptors, {zombies} zombies");
    }
    let (warm, last) = (marks[1].1, marks[2].1);
    assert!(last.1 <= warm.1 + 4, "descriptors grow: {marks:?}");
    assert_eq!(last.2, 0, "zombies: {marks:?}");
    assert!(last.0 <= warm.0 + warm.0 / 2 + 8 * 1024, "memory grows: {marks:?}");
    kill_process(Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("not zero"), Signal::TERM)
        .expect("sends");
    drop(child.wait());
}
