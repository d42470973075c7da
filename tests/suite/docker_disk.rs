//! A disk that is full or read-only and a process without descriptors, from outside and on a real engine: nothing is lost,
//! what stands in the way is told, and everything goes on by itself when it is gone.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use serde_json::json;

use crate::support::project::{Project, committing, noting};

/// Takes all that is left of the repository's disk.
fn fill(project: &Project) {
    let mut file = File::create(project.repo().join("filler")).expect("makes");
    for size in [65_536, 4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
}

fn free(project: &Project) {
    fs::remove_file(project.repo().join("filler")).expect("removes");
}

#[track_caller]
fn status(project: &Project) -> String {
    let ran = project.run(&["status", "-o", "wide"]);
    format!("{}{}", ran.stdout, ran.stderr)
}

/// Nothing but the plan file, the repository and what the test made.
fn left_in_root(project: &Project) -> Vec<String> {
    let entries = fs::read_dir(project.repo()).expect("lists");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_disk_that_fills_while_tasks_run_loses_nothing_and_stops_nothing_for_good() {
    let Some(project) = Project::on_small_disk(4) else { return };
    let waiting = "until [ -e /ran/go ]; do sleep 0.05; done;";
    project.plan(json!([
        { "id": "a", "command": noting(&format!("{waiting} head -c 200000 /dev/urandom > /tmp/big; wc -c /tmp/big")) },
        { "id": "b", "dependencies": ["a"], "command": committing("") },
    ]));
    let log = project.ran().join("told");
    let mut command = project.command(&["run", "--until-done"]);
    let (out, err) = (File::create(&log).expect("makes"), File::options().append(true).open(&log).expect("opens"));
    let mut child = command.stdout(out).stderr(err).spawn().expect("starts");
    project.wait_until("it runs", |p| p.containers() == ["a-1 running"] && p.task("a")["status"] == "running");
    fill(&project);
    let before = fs::read(project.plan_path()).expect("reads");
    fs::write(project.ran().join("go"), "").expect("writes");
    project.wait_until("the agent is done", |p| p.containers() == ["a-1 exited"]);
    project.wait_until("it is told that the disk is full", |_| {
        fs::read_to_string(&log).expect("reads").contains("No space left on device")
    });
    assert_eq!(fs::read(project.plan_path()).expect("reads"), before, "the old file is whole");
    free(&project);
    assert_eq!(child.wait().expect("waits").code(), Some(0), "{}", status(&project));
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
    assert_eq!(project.stands("b"), "completed/Succeeded");
    let left = left_in_root(&project);
    assert!(!left.iter().any(|name| name.contains("tmp")), "temporary files are removed: {left:?}");
    assert_eq!(project.git(&["fsck", "--strict"]), "");
}

#[test]
fn a_disk_that_is_full_from_the_start_is_told_and_changes_nothing() {
    let Some(project) = Project::on_small_disk(4) else { return };
    project.plan(json!([{ "id": "a", "command": committing("") }]));
    let before = fs::read(project.plan_path()).expect("reads");
    fill(&project);
    let ran = project.run(&["once"]);
    let words = format!("{}{}", ran.stdout, ran.stderr).to_lowercase();
    assert!(words.contains("space") || words.contains("disk"), "{words}");
    assert_eq!(fs::read(project.plan_path()).expect("reads"), before);
    assert_eq!(project.ran_log(), [""; 0]);
    free(&project);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1"]);
}

#[test]
fn a_repository_that_cannot_be_written_is_told_and_can_still_be_read() {
    let Some(project) = Project::on_small_disk(4) else { return };
    project.plan(json!([{ "id": "a", "command": committing("") }, { "id": "b", "command": committing("") }]));
    let remount = |how: &str| {
        let mut command = Command::new("mount");
        command.args(["-o", &format!("remount,{how}")]).arg(project.repo());
        assert!(command.status().expect("mount runs").success());
    };
    remount("ro");
    let ran = project.run(&["once"]).expect(4);
    assert!(ran.stderr.to_lowercase().contains("read-only"), "{}", ran.stderr);
    let _status = project.run(&["status"]).expect(0);
    let _valid = project.run(&["validate"]).expect(0);
    remount("rw");
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
}

/// Each pass is a process that may open only so many files, sockets included.
#[test]
fn without_descriptors_nothing_is_concluded_and_the_work_goes_on_later() {
    let Some(project) = Project::on_small_disk(16) else { return };
    project.plan(json!([
        { "id": "a", "command": committing("sleep 0.5;") },
        { "id": "b", "dependencies": ["a"], "command": committing("") },
    ]));
    let mut codes = Vec::new();
    for limit in 3..48 {
        let program = project.command(&["once"]);
        let shell = format!("ulimit -n {limit}; exec {} once", program.get_program().display());
        let mut command = Command::new("sh");
        command.args(["-c", &shell]).current_dir(project.repo()).env_clear();
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        codes.push(command.output().expect("runs").status.code());
        let plan = project.plan_now();
        for task in plan["tasks"].as_array().expect("a list") {
            assert!(task["status"] != "failed", "with {limit} descriptors: {plan:#}");
        }
    }
    assert!(codes.iter().any(|code| *code != Some(0)), "the limits were not low enough: {codes:?}");
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
    assert_eq!(project.containers(), ["a-1 exited", "b-1 exited"]);
    assert_eq!(project.git(&["fsck", "--strict"]), "");
}
