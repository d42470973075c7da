//! Several repositories under one `run`: shared slots, one address, and no repository in another's way.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::daemon::{Site, sh};
use crate::support::web::{PATIENCE, raw};

struct Fleet {
    child: Child,
    stderr: std::path::PathBuf,
    address: String,
}

impl Fleet {
    fn start(mut command: Command, stderr: std::path::PathBuf) -> Self {
        let log = fs::File::create(&stderr).expect("creates");
        let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("starts");
        let mut fleet = Self { child, stderr, address: String::new() };
        let line = fleet.wait("it serves", |fleet| {
            let told = fleet.told();
            told.lines().find_map(|line| line.strip_prefix("serving ").map(str::to_owned))
        });
        line.trim_start_matches("http://").trim_end_matches('/').clone_into(&mut fleet.address);
        fleet
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    fn get(&self, path: &str) -> (u16, String) {
        let answer =
            raw(&self.address, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address));
        (answer.status, answer.body)
    }

    fn plans(&self) -> Vec<Value> {
        let (status, body) = self.get("/api/v1/status");
        assert_eq!(status, 200, "{body}");
        let all: Value = serde_json::from_str(&body).expect("JSON");
        all["plans"].as_array().expect("a list").clone()
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, found: impl Fn(&Self) -> Option<T>) -> T {
        #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
        let began = std::time::Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited too long until {what}:\n{}", self.told());
            #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("not zero");
        kill_process(pid, signal).expect("sends");
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn four(name: &str) -> Value {
    let tasks: Vec<Value> = (0..4).map(|n| json!({ "id": format!("{name}{n}"), "command": sh("sleep 1") })).collect();
    json!(tasks)
}

#[test]
fn several_repositories_share_slots_and_one_that_is_bad_stops_no_other() {
    let a = Site::new(json!({ "project": "first" }), four("a"));
    let b = Site::new(json!({ "project": "second" }), four("b"));
    let bad = Site::new(
        json!({ "project": "third" }),
        json!([{ "id": "x", "dependencies": ["nobody"], "command": ["true"] }]),
    );
    let list = a.project.ran().join("repos");
    let folder = |site: &Site| site.project.repo().canonicalize().expect("there").display().to_string();
    fs::write(&list, format!("# ours\n{}\n{}\n/no/such/folder\n", folder(&a), folder(&bad))).expect("writes");
    let arguments = [
        "run",
        "--repos-file",
        list.to_str().expect("text"),
        "-C",
        &folder(&b),
        "--max-concurrent",
        "2",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut fleet = Fleet::start(a.project.command(&arguments), a.project.ran().join("fleet"));
    // Both go on, and never more than two run together.
    fleet.wait("both are done", |fleet| {
        let views: Vec<Value> = fleet.plans().into_iter().map(|plan| plan["status"].clone()).collect();
        let count = |view: &Value, word: &str| view["summary"][word].as_u64().unwrap_or(0);
        let running: u64 = views.iter().map(|view| count(view, "running")).sum();
        // A task that is being taken in gave its slot away already.
        let live: u64 = views
            .iter()
            .flat_map(|view| view["tasks"].as_array().cloned().unwrap_or_default())
            .filter(|task| task["status"] == "running" && task["reason"] == "Started")
            .count() as u64;
        assert!(live <= 2, "{running} run, {live} hold a slot: {views:#?}");
        (views.iter().map(|view| count(view, "completed")).sum::<u64>() == 8).then_some(())
    });
    // What is wrong with the others is told, beside.
    let broken: Vec<String> =
        fleet.plans().iter().filter_map(|plan| plan["error"].as_str().map(str::to_owned)).collect();
    assert_eq!(broken.len(), 2, "{broken:?}");
    let (ready, why) = fleet.get("/readyz");
    assert_eq!(ready, 503);
    assert!(why.contains("/no/such/folder") && why.contains("invalid"), "{why}");
    assert_eq!(fleet.get("/healthz").0, 200);
    let (_, metrics) = fleet.get("/metrics");
    for project in ["first", "second"] {
        let sample = format!("orchestrate_tasks{{project=\"{project}\",status=\"completed\"}} 4");
        assert!(metrics.contains(&sample), "{metrics}");
    }
    let (_, page) = fleet.get("/");
    assert!(page.contains("first") && page.contains("second") && page.contains("/no/such/folder"), "{page}");
    assert!(fleet.told().lines().any(|line| line.contains(" repo/a0  ")), "{}", fleet.told());
    // Mended, it is served; taken from the list, it is not any more.
    bad.plan(json!({ "project": "third" }), json!([{ "id": "x", "command": ["true"] }]));
    fs::write(&list, format!("{}\n", folder(&bad))).expect("writes");
    fleet.signal(Signal::HUP);
    fleet.wait("the third is done and the first is gone", |fleet| {
        let plans = fleet.plans();
        let third = plans
            .iter()
            .any(|plan| plan["status"]["project"] == "third" && plan["status"]["summary"]["completed"] == 1);
        (third && plans.len() == 2).then_some(())
    });
    assert_eq!(b.project.stands("b3"), "completed/Succeeded");
    fleet.signal(Signal::TERM);
    let status = fleet.child.wait().expect("ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
}

#[test]
fn until_done_over_several_ends_with_the_worst_of_their_codes() {
    let good = Site::new(json!({}), json!([{ "id": "a", "command": ["true"] }]));
    let failing = Site::new(json!({}), json!([{ "id": "b", "command": sh("exit 3") }]));
    let folder = |site: &Site| site.project.repo().display().to_string();
    let ran = good.project.run(&["run", "--until-done", "-C", &folder(&good), "-C", &folder(&failing)]).expect(1);
    assert!(ran.stdout.contains("completed") && ran.stdout.contains("failed"), "{}", ran.stdout);
    let ran = good.project.run(&["run", "--until-done", "-C", &folder(&good), "-C", "/no/such/folder"]).expect(4);
    assert!(ran.stderr.contains("/no/such/folder"), "{}", ran.stderr);
    let ran = good.project.run(&["status", "-C", &folder(&good), "-C", &folder(&failing)]).expect(2);
    assert!(ran.stderr.contains("only `run` serves several"), "{}", ran.stderr);
}
