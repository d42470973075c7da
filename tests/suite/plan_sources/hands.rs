//! People's hands, git and other tools in the plan file while the program works on it, on the process runtime.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::web::{Daemon, Running, wait_for};

fn project() -> Project {
    Project::at("unix:///nonexistent/docker.sock".to_owned())
}

/// Writes a plan of these tasks for local processes.
fn write(project: &Project, tasks: Value) {
    project.plan_with(json!({ "runtime": "process" }), tasks);
}

/// A task that notes that it runs, then does the rest.
fn task(id: &str, rest: &str) -> Value {
    json!({ "id": id, "command": ["sh", "-c", format!("echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> /ran/log; {rest}")] })
}

/// One that ends when it is let go.
fn slow(id: &str) -> Value {
    task(id, &format!("while [ ! -e /ran/go-{id} ]; do sleep 0.02; done"))
}

fn after(mut task: Value, dependencies: &[&str]) -> Value {
    task["dependencies"] = json!(dependencies);
    task
}

fn go(project: &Project, id: &str) {
    fs::write(project.ran().join(format!("go-{id}")), "").expect("written");
}

fn daemon(project: &Project) -> Running {
    Running(project.start(&["run"]))
}

/// An edit as tools make it: read, change, write aside, rename.
fn edit(project: &Project, change: impl FnOnce(&mut Value)) {
    let mut plan = project.plan_now();
    change(&mut plan);
    replace(project, &serde_json::to_string_pretty(&plan).expect("plain data"));
}

fn replace(project: &Project, text: &str) {
    let temp = project.repo().join("theirs.tmp");
    fs::write(&temp, text).and_then(|()| fs::rename(&temp, project.plan_path())).expect("replaced");
}

fn block<'p>(plan: &'p mut Value, id: &str) -> &'p mut Value {
    plan["tasks"].as_array_mut().expect("a list").iter_mut().find(|task| task["id"] == id).expect("there")
}

fn ask(project: &Project, id: &str, status: &str) {
    edit(project, |plan| block(plan, id)["status"] = json!(status));
}

fn until(project: &Project, id: &str, stands: &str) {
    project.wait_until(&format!("{id} is {stands}"), |project| is(project, id, stands));
}

/// Whether the file says so; not, where somebody has put another one there.
fn is(project: &Project, id: &str, stands: &str) -> bool {
    let plan = fs::read(project.plan_path()).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(plan) = plan else { return false };
    let task = plan["tasks"].as_array().and_then(|tasks| tasks.iter().find(|task| task["id"] == id)).cloned();
    task.is_some_and(|task| {
        format!("{}/{}", task["status"].as_str().unwrap_or("-"), task["reason"].as_str().unwrap_or("-")) == stands
    })
}

fn view(project: &Project) -> Value {
    serde_json::from_str(&project.run(&["status", "-o", "json"]).expect(0).stdout).expect("JSON")
}

const DONE: &str = "completed/Succeeded";
const RUNS: &str = "running/Started";

#[test]
fn a_persons_pending_and_cancelled_are_honoured() {
    let project = project();
    write(
        &project,
        json!([
            task("done", ""),
            task("bad", "exit 3"),
            slow("long"),
            after(task("next", ""), &["long"]),
            slow("other")
        ]),
    );
    let _daemon = daemon(&project);
    until(&project, "long", RUNS);
    until(&project, "done", DONE);
    until(&project, "bad", "failed/NonZeroExit");
    ask(&project, "done", "pending");
    project.wait_until("it ran again", |project| project.ran_log().contains(&"done 2".to_owned()));
    ask(&project, "bad", "pending");
    project.wait_until("it ran again", |project| project.ran_log().contains(&"bad 2".to_owned()));
    // What waits is never launched, what it blocked is told, and taking it back lets both go on.
    ask(&project, "next", "cancelled");
    until(&project, "next", "cancelled/CancelledByRequest");
    ask(&project, "long", "cancelled");
    until(&project, "long", "cancelled/CancelledByRequest");
    let attempt = project.task("long");
    assert_eq!((&attempt["attempt"], attempt["exit_code"].is_i64()), (&json!(1), true), "{attempt}");
    ask(&project, "next", "pending");
    until(&project, "next", "blocked/DependencyFailed");
    go(&project, "long");
    ask(&project, "long", "pending");
    until(&project, "next", DONE);
    // A word that is no request is written over.
    ask(&project, "other", "completed");
    until(&project, "other", RUNS);
    ask(&project, "other", "pending");
    until(&project, "other", RUNS);
    go(&project, "other");
    until(&project, "other", DONE);
    assert_eq!(project.ran_log(), ["bad 1", "bad 2", "done 1", "done 2", "long 1", "long 2", "next 1", "other 1"]);
}

#[test]
fn git_rolls_the_file_back_and_nothing_else() {
    let project = project();
    write(&project, json!([task("done", ""), slow("long"), after(task("next", ""), &["long"])]));
    project.git(&["add", ".agent-tasks.json"]);
    project.git(&["commit", "-q", "-m", "the plan"]);
    let _daemon = daemon(&project);
    until(&project, "long", RUNS);
    until(&project, "done", DONE);
    let stands = |project: &Project| {
        until(project, "done", DONE);
        until(project, "long", RUNS);
        until(project, "next", "pending/WaitingForDependencies");
        assert!(project.plan_now()["plan_id"].is_string());
    };
    stash(&project);
    stands(&project);
    // What was stashed is an older copy, and what stands there is in git's way.
    project.git(&["checkout", "-q", "--", ".agent-tasks.json"]);
    let popped = project.try_git(&["stash", "pop"]);
    stands(&project);
    if popped.code == 0 {
        stash(&project);
        stands(&project);
    }
    project.git(&["checkout", "-q", "--", ".agent-tasks.json"]);
    stands(&project);
    // A branch that knows no plan file: git takes it away, and brings the old one back.
    project.git(&["checkout", "-q", "-f", "-b", "bare", "HEAD~1"]);
    assert_eq!(view_of_missing(&project), 3);
    project.git(&["checkout", "-q", "-f", "main"]);
    stands(&project);
    go(&project, "long");
    until(&project, "next", DONE);
    assert_eq!(project.ran_log(), ["done 1", "long 1", "next 1"]);
}

/// git gives up where the file changes under its hands.
fn stash(project: &Project) {
    wait_for("a stash", || (project.try_git(&["stash"]).code == 0).then_some(()));
}

/// What `status` ends with where the file is away.
fn view_of_missing(project: &Project) -> i32 {
    project.run(&["status"]).code
}

#[test]
fn an_older_copy_and_deleted_status_are_repaired() {
    let project = project();
    write(&project, json!([task("a", ""), task("b", "exit 1"), slow("c")]));
    let original = fs::read_to_string(project.plan_path()).expect("there");
    let _daemon = daemon(&project);
    until(&project, "c", RUNS);
    until(&project, "a", DONE);
    until(&project, "b", "failed/NonZeroExit");
    let older = fs::read_to_string(project.plan_path()).expect("there");
    ask(&project, "a", "pending");
    project.wait_until("a ran again", |project| project.task("a")["attempt"] == 2 && is(project, "a", DONE));
    ask(&project, "b", "pending");
    project.wait_until("b ran again", |project| {
        project.task("b")["attempt"] == 2 && is(project, "b", "failed/NonZeroExit")
    });
    // In the copy `b` failed as attempt 1, and in one that was edited it is `pending` as attempt 1: no request.
    for copy in
        [older.clone(), older.replace("\"failed\"", "\"pending\""), older.replace("\"completed\"", "\"cancelled\"")]
    {
        replace(&project, &copy);
        for id in ["a", "b"] {
            project.wait_until("it is repaired", |project| {
                serde_json::from_slice::<Value>(&fs::read(project.plan_path()).expect("there")).is_ok()
                    && project.task(id)["attempt"] == 2
            });
        }
        until(&project, "a", DONE);
        until(&project, "b", "failed/NonZeroExit");
        until(&project, "c", RUNS);
    }
    for field in ["status", "attempt", "reason", "head_commit"] {
        edit(&project, |plan| drop(block(plan, "a").as_object_mut().expect("an object").remove(field)));
        project.wait_until(field, |project| !project.task("a")[field].is_null());
    }
    until(&project, "a", DONE);
    // As it was before all: without an id it is the plan that is worked on, as long as something runs.
    replace(&project, &original);
    until(&project, "a", DONE);
    until(&project, "c", RUNS);
    go(&project, "c");
    until(&project, "c", DONE);
    assert_eq!(project.ran_log(), ["a 1", "a 2", "b 1", "b 2", "c 1"]);
}

#[test]
fn tasks_come_go_and_change_while_they_run() {
    let project = project();
    write(&project, json!([slow("a"), slow("b"), slow("c"), after(task("d", ""), &["a"])]));
    let _daemon = daemon(&project);
    for id in ["a", "b", "c"] {
        until(&project, id, RUNS);
    }
    // Added, reordered, edited.
    edit(&project, |plan| {
        let tasks = plan["tasks"].as_array_mut().expect("a list");
        tasks.reverse();
        tasks.insert(0, task("e", ""));
        block(plan, "a")["title"] = json!("still the same work");
        block(plan, "b")["prompt"] = json!("something else");
    });
    until(&project, "e", DONE);
    until(&project, "d", "pending/WaitingForDependencies");
    let shown = view(&project);
    let of = |id: &str| shown["tasks"].as_array().expect("a list").iter().find(|task| task["id"] == id).expect("there");
    assert_eq!(
        (&of("a")["spec_changed"], &of("b")["spec_changed"], &of("c")["spec_changed"]),
        (&json!(false), &json!(true), &json!(false))
    );
    let order: Vec<&str> =
        shown["tasks"].as_array().expect("a list").iter().filter_map(|task| task["id"].as_str()).collect();
    assert_eq!(order, ["e", "d", "c", "b", "a"]);
    // `c` is taken out, `b` gets another name: both are orphans that go on, the new name starts anew.
    edit(&project, |plan| {
        plan["tasks"].as_array_mut().expect("a list").retain(|task| task["id"] != "c");
        let renamed = block(plan, "b");
        *renamed = slow("b2");
    });
    until(&project, "b2", RUNS);
    let shown = view(&project);
    let mut orphans: Vec<&str> =
        shown["orphans"].as_array().expect("a list").iter().filter_map(|orphan| orphan["task"].as_str()).collect();
    orphans.sort_unstable();
    assert_eq!(orphans, ["b", "c"], "{shown:#}");
    // What an orphan gives is kept: named again, it stands with its result.
    for id in ["a", "b", "b2", "c"] {
        go(&project, id);
    }
    until(&project, "b2", DONE);
    until(&project, "d", DONE);
    wait_for("the orphans have ended", || {
        view(&project)["orphans"].as_array().expect("a list").is_empty().then_some(())
    });
    edit(&project, |plan| plan["tasks"].as_array_mut().expect("a list").push(slow("c")));
    until(&project, "c", DONE);
    assert_eq!(project.ran_log(), ["a 1", "b 1", "b2 1", "c 1", "d 1", "e 1"]);
}

#[test]
fn a_new_plan_with_some_old_ids_keeps_what_is_asked_unchanged() {
    let project = project();
    write(&project, json!([task("same", ""), task("other", ""), task("gone", "")]));
    drop(project.run(&["run", "--until-done", "-q"]).expect(0));
    let first = project.plan_now()["plan_id"].clone();
    let mut off = task("off", "");
    off["status"] = json!("cancelled");
    write(&project, json!([task("same", ""), task("other", "true"), after(task("new", ""), &["same"]), off]));
    drop(project.run(&["run", "--until-done", "-q"]).expect(1));
    assert_ne!(project.plan_now()["plan_id"], first);
    assert_eq!(project.ran_log(), ["gone 1", "new 1", "other 1", "other 2", "same 1"]);
    assert_eq!(
        (project.task("same")["attempt"].clone(), project.task("other")["attempt"].clone()),
        (json!(1), json!(2))
    );
    assert_eq!(project.stands("off"), "cancelled/CancelledByRequest");
    drop(project.run(&["run", "--until-done", "-q"]).expect(1));
    assert_eq!(project.ran_log().len(), 5);
}

#[test]
fn conflict_markers_keep_their_bytes_and_stop_nothing_that_runs() {
    let project = project();
    write(&project, json!([slow("a"), after(task("b", ""), &["a"])]));
    let daemon = Daemon::start(&project, &[]);
    until(&project, "a", RUNS);
    let good = fs::read_to_string(project.plan_path()).expect("there");
    let broken = good.replacen("\"max_concurrent\": 4", "<<<<<<< HEAD\n4\n=======\n5\n>>>>>>> other", 1);
    assert_ne!(good, broken);
    replace(&project, &broken);
    wait_for("the fault", || (daemon.get("/readyz").status == 503).then_some(()));
    go(&project, "a");
    wait_for("a has ended", || {
        let status: Value = serde_json::from_str(&daemon.get("/api/v1/status").body).expect("JSON");
        (status["tasks"][0]["status"] == "completed").then_some(())
    });
    assert_eq!(fs::read_to_string(project.plan_path()).expect("there"), broken);
    let told = project.run(&["status"]).expect(3);
    assert!(told.stderr.contains("E0005") || told.stderr.contains("conflict"), "{}", told.stderr);
    replace(&project, &good);
    until(&project, "b", DONE);
    assert_eq!(project.ran_log(), ["a 1", "b 1"]);
}
