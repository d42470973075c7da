//! What engines, networks, disks and people do to a plan that runs, from outside and on a real engine: each attempt starts
//! once, no result is lost, and `status` and `events` tell what happened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::engine::{self, OwnEngine};
use crate::support::project::{Project, committing, noting};
use crate::support::proxy::{Fault, Proxy};

/// A task that waits for a file in `/ran`.
fn until(file: &str, rest: &str) -> Value {
    noting(&format!("until [ -e /ran/{file} ]; do sleep 0.05; done; {rest}"))
}

fn let_go(project: &Project, file: &str) {
    fs::write(project.ran().join(file), "").expect("writes");
}

/// The whole of `status` as a person sees it, and of `events`.
#[track_caller]
fn told(project: &Project) -> String {
    let status = project.run(&["status", "-o", "wide"]).expect(0);
    let events = project.run(&["events"]).expect(0);
    format!("{}\n{}\n{}", status.stdout, status.stderr, events.stdout)
}

#[track_caller]
fn assert_told(project: &Project, words: &[&str]) {
    let told = told(project);
    for word in words {
        assert!(told.contains(word), "nothing says `{word}`:\n{told}");
    }
}

fn is_running(project: &Project, count: usize) -> bool {
    project.containers().iter().filter(|container| container.ends_with(" running")).count() == count
}

#[test]
fn an_engine_killed_while_tasks_run_is_waited_for_and_their_codes_stand() {
    let Some(engine) = OwnEngine::start("faults-killed") else { return };
    let project = Project::at(engine.host.clone());
    project.plan(json!([
        { "id": "five", "command": until("go", "exit 5") },
        { "id": "well", "command": until("well", "echo x > x.txt; git add -A; git commit -q -m x") },
        { "id": "next", "dependencies": ["well"], "command": committing("") },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("both run", |p| is_running(p, 2));
    engine.kill();
    let_go(&project, "go");
    let _away = project.run(&["once"]).expect(5);
    project.wait_until("it is told that the engine is away", |p| {
        let status = p.run(&["status"]);
        format!("{}{}", status.stdout, status.stderr).contains("does not answer")
    });
    assert_eq!(project.task("five")["status"], "running", "nothing is concluded from silence");
    engine.start_again(&["--live-restore"]);
    let_go(&project, "well");
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.stands("five"), "failed/NonZeroExit");
    assert_eq!(project.task("five")["exit_code"], 5);
    assert_eq!(project.stands("next"), "completed/Succeeded");
    assert_eq!(project.ran_log(), ["five 1", "next 1", "well 1"]);
    assert_told(&project, &["exited with code 5"]);
}

#[test]
fn an_engine_that_halts_interrupts_its_tasks_which_begin_again_and_use_no_retry() {
    let Some(engine) = OwnEngine::start("faults-halted") else { return };
    let project = Project::at(engine.host.clone());
    let polite = "trap 'exit 0' TERM; touch /ran/ready-$ORCHESTRATE_ATTEMPT; \
                  until [ -e /ran/go ]; do sleep 0.05; done; echo x > x.txt; git add -A; git commit -q -m x";
    project.plan(json!([{ "id": "polite", "command": noting(polite) }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| p.ran().join("ready-1").exists());
    engine.halt();
    engine.start_again(&[]);
    project.wait_until("it runs again", |p| p.ran().join("ready-2").exists());
    let_go(&project, "go");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["polite 1", "polite 2"]);
    assert_eq!(project.task("polite")["attempt"], 2);
    assert_told(&project, &["Interrupted", "the engine or the host stopped it (exit code 0)"]);
}

#[test]
fn a_third_interruption_in_a_row_fails_the_task_whether_the_engine_halts_or_the_power_fails() {
    let Some(engine) = OwnEngine::start("faults-thrice") else { return };
    let project = Project::at(engine.host.clone());
    let works = "trap 'exit 0' TERM; touch /ran/ready-$ORCHESTRATE_ATTEMPT; while :; do sleep 0.05; done";
    project.plan(json!([
        { "id": "works", "retries": 5, "command": noting(works) },
        { "id": "next", "dependencies": ["works"], "command": committing("") },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| p.ran().join("ready-1").exists());
    engine.halt();
    engine.start_again(&[]);
    for attempt in [2, 3] {
        project.wait_until("it runs again", |p| p.ran().join(format!("ready-{attempt}")).exists());
        engine.cut_power();
        engine.start_again(&[]);
    }
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.stands("works"), "failed/Interrupted");
    assert_eq!(project.task("works")["exit_code"], 255, "no engine saw its end");
    assert_eq!(project.stands("next"), "blocked/DependencyFailed");
    assert_eq!(project.ran_log(), ["works 1", "works 2", "works 3"]);
    assert_told(&project, &["Interrupted", "the engine or the host stopped it (exit code 255)", "orchestrate retry"]);
}

#[test]
fn an_engine_that_lets_containers_outlive_it_interrupts_nothing() {
    let Some(engine) = OwnEngine::start("faults-live") else { return };
    engine.halt();
    engine.start_again(&["--live-restore"]);
    let project = Project::at(engine.host.clone());
    project.plan(json!([{ "id": "a", "command": until("go", "exit 0") }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| is_running(p, 1));
    engine.halt();
    engine.start_again(&["--live-restore"]);
    let_go(&project, "go");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["a 1"]);
}

/// Answers are lost, cut off, doubled and late, and the engine says that it is broken: one request of five.
#[test]
fn answers_that_are_lost_cut_doubled_or_late_start_nothing_twice() {
    let Some((_, host)) = engine::engine() else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let socket = folder.path().join("sock");
    let random = Mutex::new(fastrand::Rng::with_seed(11));
    let choose = move |line: &str| {
        let mut random = random.lock().expect("no panic");
        let is_change = line.starts_with("POST");
        // What reads may be late, too, but a person would not wait for a test that is late often.
        if random.u32(..5) != 0 || line.contains("/events") || line.contains("_ping") {
            return None;
        }
        Some(match random.u32(..10) {
            0..3 => Fault::AnswerLost,
            3..5 => Fault::AnswerCut,
            5..7 => Fault::ServerError,
            7..9 if is_change => Fault::Twice,
            9 if !is_change => Fault::Late(Duration::from_secs(12)),
            _ => Fault::Late(Duration::from_millis(700)),
        })
    };
    let proxy = Proxy::start(&socket, Path::new(host.trim_start_matches("unix://")), choose);
    let project = Project::at(format!("unix://{}", socket.display()));
    let tasks: Vec<Value> = (0..12)
        .map(|i| {
            let on: Vec<String> = (i % 3..i).step_by(3).rev().take(1).map(|on| format!("t{on}")).collect();
            // Longer than what comes twice takes to come again: an engine runs what has ended again when told to start it.
            json!({ "id": format!("t{i}"), "dependencies": on, "command": committing("sleep 1;") })
        })
        .collect();
    project.plan(json!(tasks));
    let _ran = project.run(&["run", "--until-done", "--timeout", "20m"]).expect(0);
    let mut expected: Vec<String> = (0..12).map(|i| format!("t{i} 1")).collect();
    expected.sort();
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for (fault, _) in proxy.done() {
        *kinds.entry(format!("{fault:?}")).or_default() += 1;
    }
    #[expect(clippy::print_stdout, reason = "how much was tried is told")]
    {
        println!("{} requests, {kinds:?}", proxy.requests());
    }
    assert_eq!(project.ran_log(), expected, "{kinds:?}");
    assert!(kinds.len() >= 4, "too few kinds of faults happened: {kinds:?}");
    proxy.calm();
    assert_eq!(project.containers().len(), 12, "no second container of any attempt");
    assert_eq!(project.git(&["fsck", "--strict"]), "");
}

#[test]
fn a_prune_right_after_the_end_costs_no_second_run() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "a", "command": until("go", "echo a > a.txt; git add -A; git commit -q -m a") },
        { "id": "b", "command": until("stay", "exit 0") },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("both run", |p| is_running(p, 2));
    let_go(&project, "go");
    // Only what is ours: the engine is shared with other tests.
    let filter = format!("label=dev.orchestrate.instance={}", project.instance());
    project.wait_until("it is pruned", |p| {
        let _pruned = p.docker(&["container", "prune", "-f", "--filter", &filter]).expect(0);
        p.containers() == ["b-1 running"]
    });
    project.wait_until("its end is seen", |p| p.task("a")["status"] != "running");
    let_go(&project, "stay");
    let code = child.wait().expect("waits").code();
    // The prune may come before or after its result was taken in; the work is there in both cases.
    match &*project.stands("a") {
        "completed/Succeeded" => assert_eq!(code, Some(0)),
        "failed/ContainerLost" => {
            assert_eq!(code, Some(1));
            assert_told(&project, &["its container is gone"]);
        }
        other => panic!("{other}"),
    }
    assert_eq!(project.stands("b"), "completed/Succeeded");
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
}

#[test]
fn a_container_that_a_person_renames_stays_ours_whatever_else_happens() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "a", "command": until("go", "exit 0"), "verify": ["sh", "-c", "until [ -e /ran/verify ]; do sleep 0.05; done"] },
        { "id": "b", "dependencies": ["a"], "command": committing("") },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| is_running(p, 1));
    let name = format!("orch-{}-a-1", project.instance());
    let mine = format!("mine-{}", std::process::id());
    let _renamed = project.docker(&["rename", &name, &mine]).expect(0);
    child.kill().expect("kills");
    child.wait().expect("waits");
    let mut child = project.start(&["run", "--until-done"]);
    let_go(&project, "go");
    let verify = format!("{name}-verify");
    project.wait_until("it is verified", |p| p.containers().iter().any(|c| c == "a-1-verify running"));
    let _renamed = project.docker(&["rename", &verify, &format!("{mine}-too")]).expect(0);
    child.kill().expect("kills");
    child.wait().expect("waits");
    let mut child = project.start(&["run", "--until-done"]);
    let_go(&project, "verify");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
    assert_eq!(project.containers().len(), 3);
}

#[test]
fn a_container_of_our_name_that_is_not_ours_is_left_alone() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "command": committing("") }, { "id": "z", "command": committing("") }]));
    // The clone's id is made at the first pass; nothing is launched while suspended.
    let mut plan = project.plan_now();
    plan["suspend"] = true.into();
    project.write_plan(&plan);
    let _made = project.run(&["once"]).expect(0);
    let name = format!("orch-{}-a-1", project.instance());
    let _foreign = project.docker(&["create", "--name", &name, engine::IMAGE, "true"]).expect(0);
    let mut plan = project.plan_now();
    plan["suspend"] = false.into();
    project.write_plan(&plan);
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("a"), "blocked/NameConflict");
    assert_eq!(project.stands("z"), "completed/Succeeded");
    let state = project.docker(&["inspect", "-f", "{{.State.Status}}", &name]).expect(0).stdout;
    assert_eq!(state.trim(), "created", "it is untouched");
    assert_told(&project, &["NameConflict", &name]);
    let _gone = project.docker(&["rm", &name]).expect(0);
    let _again = project.run(&["retry", "a"]).expect(0);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
}

#[test]
fn what_a_person_stops_or_starts_by_hand_is_taken_as_it_is() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "stopped", "command": noting("trap 'exit 9' TERM; touch /ran/ready; while :; do sleep 0.05; done") },
        { "id": "done", "command": committing("") },
        { "id": "stay", "command": until("go", "exit 0") },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("one is done", |p| p.stands("done") == "completed/Succeeded" && p.ran().join("ready").exists());
    let name = |task: &str| format!("orch-{}-{task}-1", project.instance());
    let head = project.task("done")["head_commit"].clone();
    let _started = project.docker(&["start", &name("done")]).expect(0);
    let _stopped = project.docker(&["stop", &name("stopped")]).expect(0);
    project.wait_until("the stop is seen", |p| p.stands("stopped") == "failed/NonZeroExit");
    assert_eq!(project.task("stopped")["exit_code"], 9);
    let_go(&project, "go");
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.stands("done"), "completed/Succeeded");
    assert_eq!(project.task("done")["head_commit"], head, "what a person's start did changes no result");
}

#[test]
fn two_clones_with_the_same_ids_meet_nowhere() {
    let Some(one) = Project::on_engine() else { return };
    let other = Project::on_engine().expect("as before");
    for project in [&one, &other] {
        project.plan(json!([
            { "id": "a", "command": committing("sleep 0.3;") },
            { "id": "b", "dependencies": ["a"], "command": committing("") },
        ]));
    }
    let mut children = [one.start(&["run", "--until-done"]), other.start(&["run", "--until-done"])];
    for child in &mut children {
        assert_eq!(child.wait().expect("waits").code(), Some(0));
    }
    for project in [&one, &other] {
        assert_eq!(project.ran_log(), ["a 1", "b 1"]);
        assert_eq!(project.containers(), ["a-1 exited", "b-1 exited"]);
    }
}

#[test]
fn a_copy_of_a_repository_with_its_state_is_refused_while_the_original_is_there() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "command": committing("") }]));
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let copy = elsewhere.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(project.repo()).arg(&copy).status().expect("cp runs");
    assert!(copied.success());
    let before = fs::read(copy.join(".git/orchestrate/journal")).expect("copied");
    let refused = project.run(&["-C", copy.to_str().expect("UTF-8"), "once"]).expect(4);
    assert!(refused.stderr.contains("is a copy of") && refused.stderr.contains("remove"), "{}", refused.stderr);
    assert_eq!(fs::read(copy.join(".git/orchestrate/journal")).expect("there"), before);
    let _reading_is_free = project.run(&["-C", copy.to_str().expect("UTF-8"), "status"]).expect(0);
    let _ran = project.run(&["once"]).expect(0);
    fs::remove_dir_all(copy.join(".git/orchestrate")).expect("removed");
    let _ran = project.run(&["-C", copy.to_str().expect("UTF-8"), "once"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1"]);
}
