//! Reconcilers and supervisors are killed at random times: no attempt runs twice, no result is lost, and a supervisor's
//! death is never taken for a task's end.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::process_main_job::{Machine, committing};
use crate::process_support::supervisors;
use crate::support::engine;

const TASKS: usize = 30;

fn kills(name: &str, few: u32) -> u32 {
    engine::variable(name).map_or(few, |n| n.parse().expect("a number"))
}

fn plan(machine: &Machine, random: &mut fastrand::Rng) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|i| {
            let mut on: Vec<String> =
                (0..i.min(random.usize(..3))).map(|_| format!("t{}", random.usize(..i))).collect();
            on.sort();
            on.dedup();
            json!({ "id": format!("t{i}"), "dependencies": on,
                    "command": committing(&format!("sleep 0.{};", random.usize(..5))) })
        })
        .collect();
    machine.plan(json!(tasks));
}

/// Every attempt that ended, as the journal has it: `t0 1`, and why.
fn ends(machine: &Machine) -> Vec<(String, String)> {
    let journal = fs::read_to_string(machine.project.repo().join(".git/orchestrate/journal")).expect("reads");
    let records = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line.split_once(' ')?.1).ok());
    let ended = records.filter(|record| record["type"] == "ended");
    ended
        .map(|record| {
            let key = &record["key"];
            let name = format!("{} {}", key["task"].as_str().expect("a task"), key["attempt"]);
            (name, record["end"]["reason"].as_str().expect("a reason").to_owned())
        })
        .collect()
}

/// What must hold whatever was killed.
fn nothing_ran_twice_and_nothing_is_lost(machine: &Machine, note: &str) {
    let project = &machine.project;
    let ran = project.ran_log();
    let once: BTreeSet<_> = ran.iter().cloned().collect();
    assert_eq!(ran.len(), once.len(), "{note}: an attempt ran twice: {ran:?}");
    for i in 0..TASKS {
        let id = format!("t{i}");
        assert_eq!(project.stands(&id), "completed/Succeeded", "{note}");
        assert_eq!(project.git(&["show", &format!("agent/{id}:{id}.txt")]), id, "{note}");
    }
    let ends = ends(machine);
    let names: BTreeSet<_> = ends.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), ends.len(), "{note}: a result was recorded twice");
    assert!(once.is_subset(&names), "{note}: what ran has its result");
    // The same in the words of the attempts' own folders.
    for (name, reason) in &ends {
        let folder = format!("orch-{}-{}", project.instance(), name.replace(' ', "-"));
        let Ok(exit) = fs::read(machine.root().join(folder).join("exit.json")) else {
            assert_eq!(reason, "ContainerLost", "{note}: {name} never started");
            continue;
        };
        let exit: Value = serde_json::from_slice(&exit).expect("JSON");
        let expected = if exit["lost"].is_null() { "Succeeded" } else { "Interrupted" };
        assert_eq!(reason, expected, "{note}: {name} {exit}");
    }
    assert_eq!(project.git(&["fsck", "--strict", "--no-dangling"]), "", "{note}");
    assert!(supervisors(&machine.root()).is_empty(), "{note}");
}

fn pause(random: &mut fastrand::Rng) {
    #[expect(clippy::disallowed_methods, reason = "the kill comes at a random time")]
    std::thread::sleep(Duration::from_millis(random.u64(20..700)));
}

#[test]
fn killed_reconcilers_run_nothing_twice_and_lose_nothing() {
    let kills = kills("ORCHESTRATE_TEST_KILLS", 8);
    let (mut killed, mut plans) = (0, 0);
    while killed < kills || plans == 0 {
        let machine = Machine::new();
        let mut random = fastrand::Rng::with_seed(11 + plans);
        plan(&machine, &mut random);
        plans += 1;
        loop {
            let mut child = machine.start();
            pause(&mut random);
            if child.try_wait().expect("asks").is_some() {
                break;
            }
            if killed >= kills {
                child.wait().expect("waits");
                break;
            }
            child.kill().expect("kills");
            child.wait().expect("waits");
            killed += 1;
        }
        let _ran = machine.run(&["run", "--until-done"]).expect(0);
        nothing_ran_twice_and_nothing_is_lost(&machine, &format!("plan {plans}, {killed} kills"));
        // Nobody killed a supervisor, so there is one attempt for each task.
        assert_eq!(machine.project.ran_log().len(), TASKS);
    }
}

#[test]
fn killed_supervisors_are_told_apart_from_ends() {
    let kills = kills("ORCHESTRATE_TEST_KILLS", 8);
    let (mut killed, mut plans) = (0, 0);
    while killed < kills || plans == 0 {
        let machine = Machine::new();
        let mut random = fastrand::Rng::with_seed(77 + plans);
        plan(&machine, &mut random);
        plans += 1;
        let mut child = machine.start();
        loop {
            pause(&mut random);
            if child.try_wait().expect("asks").is_some() {
                break;
            }
            let lives = supervisors(&machine.root());
            if killed < kills && !lives.is_empty() {
                let (_, pid) = &lives[random.usize(..lives.len())];
                killed += u32::from(kill_process(*pid, Signal::KILL).is_ok());
            }
            // Now and then both at once.
            if killed < kills && random.u8(..8) == 0 {
                child.kill().expect("kills");
                child.wait().expect("waits");
                child = machine.start();
            }
        }
        child.wait().expect("waits");
        // A task that was interrupted three times in a row has failed and says so; a person tries it again.
        for _ in 0..10 {
            let failed = machine.run(&["status", "--status", "failed", "-o", "name"]).expect(0).stdout;
            if failed.trim().is_empty() {
                break;
            }
            for id in failed.split_whitespace() {
                let stands = machine.project.stands(id);
                assert!(["failed/Interrupted", "failed/ContainerLost"].contains(&&*stands), "{id} {stands}");
                let _asked = machine.run(&["retry", id]).expect(0);
            }
            let _ran = machine.run(&["run", "--until-done"]);
        }
        let _ran = machine.run(&["run", "--until-done"]).expect(0);
        nothing_ran_twice_and_nothing_is_lost(&machine, &format!("plan {plans}, {killed} kills"));
    }
}
