//! What befalls a verification, from outside and on a real engine: it is another container of the same attempt, is run once,
//! and speaks of the result only where it came to an end of its own.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::engine::OwnEngine;
use crate::support::project::{Project, committing};

/// A task whose verification notes that it runs and waits for a file.
fn verified(id: &str, rest: &str) -> Value {
    let verify = format!("echo verify $ORCHESTRATE_ATTEMPT >> /ran/log; {rest}");
    json!({ "id": id, "command": committing("echo $ORCHESTRATE_ATTEMPT > attempt;"), "verify": ["sh", "-c", verify] })
}

const WAIT: &str = "until [ -e /ran/go ]; do sleep 0.05; done";

#[track_caller]
fn events(project: &Project, task: &str) -> String {
    project.run(&["events", task]).expect(0).stdout
}

#[test]
fn killed_while_verifying_again_and_again_it_is_verified_once_and_decided_by_that() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        verified("a", WAIT),
        { "id": "b", "dependencies": ["a"], "command": committing("") },
    ]));
    let mut random = fastrand::Rng::with_seed(5);
    // First while it is worked on, whatever that may be at the time, then while it is verified.
    for round in 0..12 {
        let mut child = project.start(&["run", "--until-done"]);
        if round == 6 {
            project.wait_until("it is verified", |p| p.containers().contains(&"a-1-verify running".to_owned()));
        }
        #[expect(clippy::disallowed_methods, reason = "the kill comes at a random time")]
        std::thread::sleep(Duration::from_millis(random.u64(50..700)));
        child.kill().expect("kills");
        child.wait().expect("waits");
    }
    let table = project.run(&["status"]).expect(0).stdout;
    assert!(table.contains("`verify` runs over the result"), "{table}");
    fs::write(project.ran().join("go"), "").expect("writes");
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1", "b 1", "verify 1"]);
    assert_eq!(project.containers(), ["a-1 exited", "a-1-verify exited", "b-1 exited"]);
    let told = events(&project, "a");
    assert_eq!(told.matches("  verifying").count(), 1, "{told}");
    assert!(told.contains("Succeeded") && told.contains("verified"), "{told}");
}

#[test]
fn a_verification_that_a_person_kills_or_removes_is_no_success_and_the_work_stays() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([verified("killed", WAIT), verified("removed", WAIT)]));
    let mut child = project.start(&["run", "--until-done"]);
    let both = ["killed-1 exited", "killed-1-verify running", "removed-1 exited", "removed-1-verify running"];
    project.wait_until("both are verified", |p| p.containers() == both && p.ran_log().len() == 4);
    let name = |task: &str| format!("orch-{}-{task}-1-verify", project.instance());
    let _killed = project.docker(&["kill", &name("killed")]).expect(0);
    let _removed = project.docker(&["rm", "-f", &name("removed")]).expect(0);
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.ran_log(), ["killed 1", "removed 1", "verify 1", "verify 1"]);
    for task in ["killed", "removed"] {
        assert_eq!(project.stands(task), "failed/VerifyFailed");
        assert_eq!(project.git(&["show", &format!("agent/{task}:{task}.txt")]), task, "the agent's work is kept");
        assert!(events(&project, task).contains("VerifyFailed: the agent exited with 0, and `verify`"));
    }
    assert!(project.task("killed")["message"].as_str().expect("a sentence").contains("137"));
}

#[test]
fn a_verification_that_the_engine_stops_is_interrupted_and_uses_no_retry() {
    let Some(engine) = OwnEngine::start("verify-halted") else { return };
    let project = Project::at(engine.host.clone());
    // It exits with 0 when told to end, which would be a success.
    project.plan(json!([verified("a", &format!("trap 'exit 0' TERM; touch /ran/ready-$ORCHESTRATE_ATTEMPT; {WAIT}"))]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it is verified", |p| p.ran().join("ready-1").exists());
    engine.halt();
    engine.start_again(&[]);
    project.wait_until("the next attempt is verified", |p| p.ran().join("ready-2").exists());
    fs::write(project.ran().join("go"), "").expect("writes");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["a 1", "a 2", "verify 1", "verify 2"]);
    assert_eq!(project.stands("a"), "completed/Succeeded");
    let told = events(&project, "a");
    assert!(told.contains("Interrupted: the engine or the host stopped `verify`"), "{told}");
    assert!(told.contains("the next attempt follows"), "{told}");
}
