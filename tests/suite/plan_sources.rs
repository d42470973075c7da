//! The plan file and the YAML spec over it, followed by the program itself on the process runtime.

mod hammer;
mod hands;
mod hostile;
mod syscalls;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::web::{Daemon, Running, wait_for};

/// A repository whose tasks are local processes that note that they run.
struct Repo(Project);

impl std::ops::Deref for Repo {
    type Target = Project;

    fn deref(&self) -> &Project {
        &self.0
    }
}

impl Repo {
    fn new() -> Self {
        Self(Project::at("unix:///nonexistent/docker.sock".to_owned()))
    }

    fn spec_path(&self) -> PathBuf {
        self.repo().join("agent-tasks.yaml")
    }

    /// Writes a spec of these tasks as its users should: whole.
    fn spec(&self, tasks: &str) {
        self.spec_with("", tasks);
    }

    fn spec_with(&self, top: &str, tasks: &str) {
        let ran = self.ran();
        let text = format!(
            "# by hand\nruntime: process\nmax_concurrent: 4\n{top}defaults:\n  agent: shell\n  mounts:\n  - source: {}\n    \
             target: /ran\n    read_only: false\ntasks:\n{tasks}",
            ran.display()
        );
        let temp = self.repo().join("next.yaml");
        fs::write(&temp, text).and_then(|()| fs::rename(&temp, self.spec_path())).expect("written");
    }

    /// Lets tasks that wait for it go on.
    fn go(&self, id: &str) {
        fs::write(self.ran().join(format!("go-{id}")), "").expect("written");
    }

    fn runs_in_background(&self, arguments: &[&str]) -> Running {
        Running(self.start(arguments))
    }
}

fn ids(repo: &Project) -> Vec<String> {
    let plan = repo.plan_now();
    let tasks = plan["tasks"].as_array().expect("a list").iter();
    tasks.map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
}

/// Whether the plan file, which may not be there yet, says so.
fn runs(repo: &Project, id: &str) -> bool {
    repo.plan_path().exists() && ids(repo).contains(&id.to_owned()) && repo.stands(id) == "running/Started"
}

/// A task that notes that it runs.
fn quick(id: &str, more: &str) -> String {
    format!("- id: {id}\n  command: [sh, -c, 'echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> /ran/log']\n{more}")
}

/// A task that notes that it runs and ends when it is let go.
fn slow(id: &str, more: &str) -> String {
    let wait = format!("while [ ! -e /ran/go-{id} ]; do sleep 0.02; done");
    format!(
        "- id: {id}\n  command: [sh, -c, 'echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> /ran/log; {wait}']\n{more}"
    )
}

#[test]
fn a_plan_file_is_made_from_the_spec_and_keeps_the_status() {
    let repo = Repo::new();
    repo.spec(&(quick("a", "") + &quick("b", "  dependencies: [a]\n")));
    let looked = repo.run(&["plan"]).expect(0);
    assert!(looked.stdout.contains("launch attempt 1"), "{}", looked.stdout);
    assert!(!repo.plan_path().exists(), "looking makes nothing");
    let ran = repo.run(&["run", "--until-done", "-q"]).expect(0);
    assert!(ran.stdout.contains("2 completed"), "{}", ran.stdout);
    assert_eq!(ids(&repo), ["a", "b"]);
    assert_eq!((repo.stands("a"), repo.stands("b")), ("completed/Succeeded".into(), "completed/Succeeded".into()));
    let block = repo.task("a");
    assert_eq!(
        (&block["command"], &block["dependencies"]),
        (&Value::Null, &Value::Null),
        "people's fields stay theirs"
    );
    assert_eq!(repo.ran_log(), ["a 1", "b 1"]);

    // A later pass has nothing to do, and one more task is one more block.
    let before = fs::read(repo.plan_path()).expect("there");
    drop(repo.run(&[]).expect(0));
    assert_eq!(fs::read(repo.plan_path()).expect("there"), before);
    repo.spec(&(quick("a", "") + &quick("b", "  dependencies: [a]\n") + &quick("c", "  dependencies: [b]\n")));
    drop(repo.run(&["run", "--until-done", "-q"]).expect(0));
    assert_eq!((ids(&repo).join(" "), repo.ran_log().join(" ")), ("a b c".into(), "a 1 b 1 c 1".into()));
}

#[test]
fn a_spec_that_changes_while_it_runs_is_followed() {
    let repo = Repo::new();
    repo.spec(&(slow("a", "") + &quick("b", "  dependencies: [a]\n") + &quick("c", "  dependencies: [a]\n")));
    let daemon = repo.runs_in_background(&["run"]);
    repo.wait_until("a runs and all are told", |repo| runs(repo, "a") && ids(repo).len() == 3);
    // `b` is named no more and was never started, `c` waits for the new `d`, `a` goes on although it is another now.
    repo.spec(
        &(quick("a", "  title: Another\n")
            + &quick("c", "  dependencies: [a, d]\n")
            + &quick("d", "  dependencies: [a]\n")),
    );
    repo.wait_until("b is dropped, d is there", |repo| ids(repo) == ["a", "c", "d"]);
    assert_eq!(repo.stands("a"), "running/Started");
    repo.go("a");
    repo.wait_until("c is done", |repo| repo.stands("c") == "completed/Succeeded");
    assert_eq!(repo.ran_log(), ["a 1", "c 1", "d 1"]);
    // `a` ran: named no more, it stays as a record and is not run again by a retry that nothing stands behind.
    repo.spec(&(quick("d", "") + &quick("e", "")));
    repo.wait_until("e is done", |repo| ids(repo).len() == 4 && repo.stands("e") == "completed/Succeeded");
    assert_eq!(ids(&repo), ["a", "c", "d", "e"]);
    drop(repo.run(&["retry", "a", "-q"]).expect(0));
    repo.wait_until("a is held", |repo| repo.stands("a") == "blocked/InvalidSpec");
    assert!(repo.task("a")["message"].as_str().is_some_and(|text| text.contains("YAML spec no longer names")));
    assert_eq!(repo.ran_log(), ["a 1", "c 1", "d 1", "e 1"]);
    // Named again, it goes on by itself.
    repo.spec(&(quick("a", "") + &quick("d", "") + &quick("e", "")));
    repo.wait_until("a is done again", |repo| repo.stands("a") == "completed/Succeeded");
    assert_eq!(repo.ran_log(), ["a 1", "a 2", "c 1", "d 1", "e 1"]);
    drop(daemon);
}

#[test]
fn a_fault_in_the_spec_lets_running_tasks_go_on_and_starts_nothing() {
    let repo = Repo::new();
    let good = slow("a", "") + &quick("b", "  dependencies: [a]\n");
    repo.spec(&good);
    let daemon = Daemon::start(&repo, &[]);
    repo.wait_until("a runs", |repo| runs(repo, "a"));
    repo.spec(&(good.clone() + "- id: c\n  dependencies: [nobody]\n"));
    let metric = |valid: &str| {
        let sample = format!("orchestrate_spec_valid{{project=\"repo\"}} {valid}\n");
        wait_for(&sample, || daemon.get("/metrics").body.contains(&sample).then_some(()));
    };
    metric("0");
    let ready = daemon.get("/readyz");
    assert!(ready.status == 503 && ready.body.contains("not accepted"), "{}", ready.body);
    let status: Value = serde_json::from_str(&daemon.get("/api/v1/status").body).expect("JSON");
    let told = status["plan_invalid"].as_str().expect("told");
    assert!(told.starts_with("the YAML spec ") && told.contains("agent-tasks.yaml"), "{told}");
    let told = repo.run(&["status"]).expect(3);
    assert!(told.stderr.contains("agent-tasks.yaml:") && told.stderr.contains("E0016"), "{}", told.stderr);
    repo.go("a");
    // What comes of it is told as soon as the spec is good again; nothing that waits for it starts before.
    wait_for("a has ended", || {
        let status: Value = serde_json::from_str(&daemon.get("/api/v1/status").body).expect("JSON");
        (status["tasks"][0]["status"] == "completed").then_some(())
    });
    assert_eq!(repo.ran_log(), ["a 1"]);
    repo.spec(&good);
    repo.wait_until("b is done", |repo| repo.stands("b") == "completed/Succeeded");
    metric("1");
    assert_eq!(daemon.get("/readyz").body, "ready\n");
}

#[test]
fn half_of_a_spec_is_not_believed() {
    // A busy machine may hold the writer up for so long that half of the spec stands: that shows nothing.
    assert!((0..10).any(|_| half_of_a_spec_is_passed_over()), "never written in time");
}

/// Whether the writer was quick enough for it to count.
fn half_of_a_spec_is_passed_over() -> bool {
    let repo = Repo::new();
    let whole = slow("a", "") + &quick("b", "  dependencies: [a]\n");
    repo.spec(&whole);
    let daemon = repo.runs_in_background(&["run"]);
    repo.wait_until("a runs", |repo| runs(repo, "a"));
    // Somebody writes in place, slowly: what stands there meanwhile is valid YAML, in which `b` waits for nothing.
    let text = fs::read_to_string(repo.spec_path()).expect("there");
    let cut = text.find("  dependencies").expect("there");
    for _ in 0..8 {
        #[expect(clippy::disallowed_methods, reason = "the program's patience is one in real time")]
        let began = std::time::Instant::now();
        fs::write(repo.spec_path(), &text[..cut]).expect("written");
        std::thread::park_timeout(std::time::Duration::from_millis(60));
        fs::write(repo.spec_path(), "").expect("written");
        std::thread::park_timeout(std::time::Duration::from_millis(60));
        fs::write(repo.spec_path(), &text).expect("written");
        if began.elapsed().as_millis() > 180 {
            return false;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(300));
    }
    assert_eq!(repo.ran_log(), ["a 1"], "b waits for a");
    assert_eq!(ids(&repo), ["a", "b"]);
    repo.go("a");
    repo.wait_until("b is done", |repo| repo.stands("b") == "completed/Succeeded");
    drop(daemon);
    true
}

#[test]
fn where_the_files_differ_the_spec_stands_and_it_is_told() {
    let repo = Repo::new();
    repo.plan_with(
        json!({ "runtime": "docker", "note": 1, "defaults": {} }),
        json!([
            { "id": "a", "agent": "shell", "title": "Ours", "command": ["false"], "x-mine": true },
            { "id": "own", "agent": "shell", "command": ["true"], "dependencies": ["a"] },
        ]),
    );
    repo.spec(&quick("a", "  title: Theirs\n"));
    let judged = repo.run(&["validate"]).expect(0);
    for what in ["W0005", "`command`", "title", "`runtime`", ".agent-tasks.json:", "agent-tasks.yaml:"] {
        assert!(judged.stdout.contains(what), "{what}: {}", judged.stdout);
    }
    drop(repo.run(&["run", "--until-done"]).expect(0));
    let told = repo.run(&["status"]).expect(0);
    assert!(told.stderr.contains("the two files give different values"), "{}", told.stderr);
    assert_eq!(repo.ran_log(), ["a 1"]);
    assert_eq!((repo.stands("a"), repo.stands("own")), ("completed/Succeeded".into(), "completed/Succeeded".into()));
    let block = repo.task("a");
    assert_eq!(
        (&block["title"], &block["command"], &block["x-mine"]),
        (&json!("Ours"), &json!(["false"]), &json!(true))
    );
}

#[test]
fn a_spec_of_another_name_is_followed_and_must_be_there() {
    let repo = Repo::new();
    repo.spec(&quick("a", ""));
    let other = repo.ran().join("other.yaml");
    fs::rename(repo.spec_path(), &other).expect("moved");
    let other = other.to_str().expect("text");
    let missing = repo.run(&["--spec", "no.yaml", "once"]).expect(3);
    assert!(missing.stderr.contains("there is no YAML spec"), "{}", missing.stderr);
    assert!(missing.stderr.contains("--spec"), "{}", missing.stderr);
    drop(repo.run(&["--spec", other, "run", "--until-done", "-q"]).expect(0));
    assert_eq!(repo.ran_log(), ["a 1"]);
    // Without it, nothing says any more what is to be done, and nothing is done again.
    drop(repo.run(&["run", "--until-done", "-q"]).expect(0));
    assert_eq!(repo.ran_log(), ["a 1"]);
    // A named plan file stands alone.
    repo.spec("- id: x\n  nonsense: {\n");
    let named = repo.run(&["-f", ".agent-tasks.json", "status", "-o", "name"]).expect(0);
    assert_eq!(named.stdout, "a\n");
    drop(repo.run(&["status"]).expect(3));
    // A link is as good as the file.
    fs::remove_file(repo.spec_path()).expect("removed");
    symlink(other, repo.repo().join("linked.yaml")).expect("linked");
    let named = repo.run(&["--spec", "linked.yaml", "status", "-o", "name"]).expect(0);
    assert_eq!(named.stdout, "a\n");
}

#[test]
fn requests_reach_tasks_that_only_the_spec_names() {
    let repo = Repo::new();
    repo.spec_with("suspend: true\n", &(quick("a", "") + &quick("b", "")));
    let refused = repo.run(&["resume"]).expect(2);
    assert!(refused.stderr.contains("suspend: true"), "{}", refused.stderr);
    repo.spec(&(quick("a", "") + &quick("b", "")));
    // Before anything was served there is not even a plan file.
    drop(repo.run(&["cancel", "a", "-q"]).expect(0));
    assert_eq!(ids(&repo), ["a"]);
    let ended = repo.run(&["run", "--until-done", "-q"]).expect(1);
    assert!(ended.stdout.contains("cancelled"), "{}", ended.stdout);
    assert_eq!((repo.ran_log().join(" "), repo.stands("a")), ("b 1".into(), "cancelled/CancelledByRequest".into()));
    drop(repo.run(&["retry", "a", "-q"]).expect(0));
    drop(repo.run(&["run", "--until-done", "-q"]).expect(0));
    assert_eq!(repo.ran_log(), ["a 1", "b 1"]);
    drop(repo.run(&["suspend", "-q"]).expect(0));
    assert_eq!(repo.plan_now()["suspend"], json!(true));
}

#[test]
fn a_spec_that_is_taken_away_leaves_nothing_to_launch() {
    let repo = Repo::new();
    repo.spec(&(slow("a", "") + &quick("b", "  dependencies: [a]\n")));
    let daemon = Daemon::start(&repo, &[]);
    repo.wait_until("a runs", |repo| runs(repo, "a"));
    let away = repo.ran().join("away.yaml");
    fs::rename(repo.spec_path(), &away).expect("moved");
    wait_for("the fault", || daemon.get("/readyz").body.contains("not accepted").then_some(()));
    let told = repo.run(&["status"]).expect(3);
    assert!(told.stderr.contains("put the YAML spec back"), "{}", told.stderr);
    repo.go("a");
    fs::rename(&away, repo.spec_path()).expect("moved");
    repo.wait_until("b is done", |repo| repo.stands("b") == "completed/Succeeded");
    assert_eq!(repo.ran_log(), ["a 1", "b 1"]);
}

#[test]
fn failing_passes_leave_no_trace_in_the_journal() {
    let repo = Repo::new();
    // The engine of this plan is away.
    repo.plan(json!([{ "id": "a", "command": ["true"], "status": "cancelled" }, { "id": "b", "command": ["true"] }]));
    let journal = || fs::read(repo.repo().join(".git/orchestrate/journal")).expect("there");
    drop(repo.run(&["once"]).expect(4));
    let before = journal();
    for _ in 0..3 {
        drop(repo.run(&["once"]).expect(4));
    }
    assert_eq!(String::from_utf8_lossy(&journal()), String::from_utf8_lossy(&before));
    let view: Value = serde_json::from_str(&repo.run(&["status", "-o", "json"]).expect(0).stdout).expect("JSON");
    assert_eq!((&view["tasks"][0]["status"], &view["tasks"][1]["status"]), (&json!("cancelled"), &json!("pending")));
    // A person who thinks better of it before anything was served.
    repo.plan(json!([{ "id": "a", "command": ["true"] }, { "id": "b", "command": ["true"], "status": "completed" }]));
    let view: Value = serde_json::from_str(&repo.run(&["status", "-o", "json"]).expect(0).stdout).expect("JSON");
    assert_eq!((&view["tasks"][0]["status"], &view["tasks"][1]["status"]), (&json!("pending"), &json!("completed")));
    drop(repo.run(&["once"]).expect(4));
    let settled = journal();
    drop(repo.run(&["once"]).expect(4));
    assert_eq!(journal(), settled);
}
