//! `doctor` as a person runs it, and launches that wait for disk space, on a real engine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::engine::skip;
use crate::support::project::{Project, Ran, committing, noting};

fn checks(ran: &Ran) -> Vec<Value> {
    let doctor: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(doctor["format"], 1);
    doctor["checks"].as_array().expect("a list").clone()
}

/// The checks of a kind, as `status what`.
fn of(checks: &[Value], kind: &str) -> Vec<String> {
    let of_kind = checks.iter().filter(|check| check["check"] == kind);
    of_kind
        .map(|check| format!("{} {}", check["status"].as_str().unwrap_or(""), check["what"].as_str().unwrap_or("")))
        .collect()
}

#[test]
fn a_plan_that_can_run_has_nothing_in_its_way() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "command": noting("") }]));
    let ran = project.run(&["doctor", "-o", "json"]).expect(0);
    let checks = checks(&ran);
    assert!(of(&checks, "engine")[0].starts_with("ok Docker ") && of(&checks, "engine")[0].contains(project.host()));
    assert!(of(&checks, "image")[0].starts_with("ok orchestrate-test:latest is there (shell: a)"), "{checks:#?}");
    assert!(of(&checks, "command")[0].ends_with(" has sh"), "{checks:#?}");
    for kind in ["limits", "git", "ownership", "disk", "lock", "plan", "live-restore"] {
        assert!(!of(&checks, kind).is_empty(), "{kind}: {checks:#?}");
    }
    assert!(of(&checks, "limits")[0].contains("memory") && of(&checks, "limits")[0].contains("pids"));
    assert!(checks.iter().all(|check| check["status"] == "ok" || check["mend"].is_string()), "{checks:#?}");
    // The container that was looked into is gone, and nothing of ours was made.
    let left = project.docker(&["ps", "-aq", "--filter", "label=dev.orchestrate.look"]).expect(0);
    assert_eq!(left.stdout.trim(), "");
    assert!(!project.repo().join(".git/orchestrate/journal").exists());
    let text = project.run(&["doctor"]).expect(0).stdout;
    assert!(text.contains("nothing stops a launch") && text.lines().all(|line| !line.contains('\u{1b}')), "{text}");
}

#[test]
fn what_stops_a_launch_is_told_with_its_mend_and_the_exit_code() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "good", "command": noting("") },
        { "id": "agent", "agent": "claude", "prompt": "work", "image": "orchestrate/claude:none" },
        { "id": "program", "command": ["no-such-program"] },
        { "id": "token", "command": noting(""), "secrets": [{ "env": "NO_SUCH_TOKEN" }] },
    ]));
    let ran = project.run(&["doctor", "-o", "json"]).expect(4);
    let checks = checks(&ran);
    let failed: Vec<&Value> = checks.iter().filter(|check| check["status"] == "fail").collect();
    let find = |kind: &str| failed.iter().find(|check| check["check"] == kind).unwrap_or_else(|| panic!("{checks:#?}"));
    assert!(find("image")["what"].as_str().expect("text").starts_with("orchestrate/claude:none is missing; agent"));
    let mend = find("image")["mend"].as_str().expect("text");
    assert!(mend.contains("docker build -t orchestrate/claude:none deploy/agents/claude"), "{mend}");
    assert!(find("command")["what"].as_str().expect("text").contains("no-such-program, which program would run"));
    let secrets = failed.iter().filter(|check| check["check"] == "secret").map(|check| check["what"].to_string());
    assert!(secrets.into_iter().any(|what| what.contains("NO_SUCH_TOKEN")), "{checks:#?}");
    // And so it is: what is told is what a launch meets.
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("good"), "completed/Succeeded");
    assert_eq!(project.stands("token"), "blocked/SecretMissing");
    assert_eq!(project.stands("program"), "failed/StartError");
}

#[test]
fn an_image_that_is_missing_names_the_command_that_makes_it() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "image": "orchestrate/codex:none", "command": noting("") }]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("a"), "blocked/ImageMissing");
    let message = project.task("a")["message"].as_str().expect("a sentence").to_owned();
    assert!(message.contains("docker build -t orchestrate/codex:none deploy/agents/codex"), "{message}");
}

#[test]
fn without_an_engine_that_is_told_first() {
    let project = Project::at("unix:///nowhere/engine.sock".to_owned());
    project.plan(json!([{ "id": "a", "command": noting("") }]));
    let ran = project.run(&["doctor", "-o", "json"]).expect(4);
    let checks = checks(&ran);
    assert_eq!(checks[0]["check"], "engine");
    assert_eq!(checks[0]["status"], "fail");
    assert!(checks[0]["mend"].as_str().expect("text").contains("DOCKER_HOST"), "{checks:#?}");
    assert!(of(&checks, "image").is_empty(), "what could not be asked is not judged");
}

#[test]
fn without_a_container_its_confinement_is_told() {
    let project = Project::at("unix:///nowhere/engine.sock".to_owned());
    project
        .plan(json!([{ "id": "a", "command": ["sh", "-c", "true"] }, { "id": "b", "command": ["no-such-program"] }]));
    let ran = project.run(&["--runtime", "process", "doctor", "-o", "json"]).expect(4);
    let checks = checks(&ran);
    assert!(of(&checks, "confinement")[0].contains("(no container)"), "{checks:#?}");
    assert_eq!(of(&checks, "command").len(), 2);
    assert!(of(&checks, "command").iter().any(|what| what == "ok this machine has sh"), "{checks:#?}");
    assert!(of(&checks, "runc").is_empty());
}

#[test]
fn who_reconciles_now_is_named() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "command": noting("while [ ! -e /ran/go ]; do sleep 0.1; done") }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| p.containers() == ["a-1 running"]);
    let ran = project.run(&["doctor", "-o", "json"]).expect(0);
    assert!(of(&checks(&ran), "lock")[0].contains(&format!("process {}", child.id())), "{}", ran.stdout);
    fs::write(project.ran().join("go"), "").expect("writes");
    child.wait().expect("waits");
}

/// A small file system over the worktrees' folder.
struct Small(PathBuf);

impl Small {
    /// `None` where we may not mount one.
    fn over(project: &Project) -> Option<Self> {
        let path = project.repo().join(".worktrees");
        fs::create_dir_all(&path).expect("makes");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs"]).arg(&path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        skip("no file system can be mounted here");
        None
    }

    fn fill(&self) {
        fs::write(self.0.join("filler"), vec![0u8; 14 << 20]).expect("fits");
    }

    fn clear(&self) {
        fs::remove_file(self.0.join("filler")).expect("there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

#[test]
fn a_launch_waits_while_the_disk_is_low_and_goes_on_by_itself() {
    let Some(project) = Project::on_engine() else { return };
    let Some(small) = Small::over(&project) else { return };
    small.fill();
    project.plan_with(
        json!({ "max_concurrent": 1 }),
        json!([{ "id": "a", "command": committing("") }, { "id": "b", "dependencies": ["a"], "command": committing("") }]),
    );
    let _ran = project.run(&["once", "--disk-floor", "8MiB"]).expect(0);
    assert_eq!(project.stands("a"), "pending/DiskLow");
    assert_eq!(project.stands("b"), "pending/WaitingForDependencies");
    assert!(project.task("a")["message"].as_str().expect("a sentence").contains("less than 8 MiB is free at "));
    assert!(project.containers().is_empty() && !project.repo().join(".worktrees/a").exists());
    let ran = project.run(&["doctor", "--disk-floor", "8MiB", "-o", "json"]).expect(4);
    assert!(of(&checks(&ran), "disk")[0].starts_with("fail worktrees"), "{}", ran.stdout);
    let metrics = project.repo().join("metrics.prom");
    let path = metrics.to_str().expect("UTF-8");
    let _ran = project.run(&["once", "--disk-floor", "8MiB", "--metrics-file", path]).expect(0);
    let text = fs::read_to_string(&metrics).expect("written");
    assert!(text.contains("reason=\"DiskLow\"} 1"), "{text}");
    fs::remove_file(&metrics).expect("there");
    // Whoever waits for the end learns that it does not come.
    let ran = project.run(&["run", "--until-done", "--stall-timeout", "2s", "--disk-floor", "8MiB"]).expect(4);
    assert!(ran.stderr.contains("less than 8 MiB is free at"), "{}", ran.stderr);
    let mut child = project.start(&["run", "--until-done", "--disk-floor", "8MiB"]);
    project.wait_until("it waits", |p| p.stands("a") == "pending/DiskLow");
    small.clear();
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
}

#[test]
fn a_floor_of_nothing_launches_all_the_same() {
    let Some(project) = Project::on_engine() else { return };
    let Some(small) = Small::over(&project) else { return };
    small.fill();
    project.plan(json!([{ "id": "a", "command": committing("") }]));
    let _ran = project.run(&["run", "--until-done", "--disk-floor", "0"]).expect(0);
}
