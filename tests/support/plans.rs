//! Views of plans in which everything occurs, of any size, always the same.

use std::sync::Arc;
use std::time::Duration;

use orchestrate::http::{Board, Hosts, Server, ServerOptions, Site};
use orchestrate::report::{Metrics, View};
use orchestrate::spec::{ReadOptions, TaskSet, read};
use serde_json::{Value, json};

/// What somebody might write who means harm.
pub const HOSTILE: &str =
    "</title></script><script>window.hurt = 1</script><img src=x onerror=\"window.hurt = 1\">\u{202e}desrever\u{1b}[2J";

/// An empty task set, for boards.
pub fn no_tasks() -> Arc<TaskSet> {
    Arc::new(read(br#"{"tasks": []}"#, ReadOptions::default()).expect("valid").tasks)
}

/// A board that was told that the loop is well.
pub fn board() -> Arc<Board> {
    let board = Board::new(Arc::new(Metrics::new("1.2.3", "folder")), "folder", Duration::from_mins(1), "e");
    board.note(None);
    Arc::new(board)
}

/// Serves a board on a free port; gives the server and its `127.0.0.1:PORT`.
pub fn serve(board: &Arc<Board>) -> (Server, String) {
    let site = Arc::new(Site::new(Arc::clone(board), Hosts::Loopback, None));
    let listen = "127.0.0.1:0".parse().expect("valid");
    let server = Server::start(&ServerOptions { listen, has_token: false }, site).expect("starts");
    let address = server.at().to_string().trim_start_matches("http://").trim_end_matches('/').to_owned();
    (server, address)
}

/// A plan of so many tasks, about half of them done. The second one is hostile.
pub fn plan(count: usize) -> View {
    view(&(0..count).map(|n| task(n, count)).collect::<Vec<_>>())
}

/// A plan that is over and went well.
pub fn done(count: usize) -> View {
    let tasks = (0..count).map(|n| {
        let mut task = task(n, count);
        task["status"] = json!("completed");
        task["reason"] = json!("Succeeded");
        for gone in ["message", "not_before", "next_step", "first_cause"] {
            task.as_object_mut().expect("an object").remove(gone);
        }
        task["waits_for"] = json!([]);
        task["stale"] = json!(false);
        task["result"] = json!("changed");
        task["seconds"] = json!(60 + n * 7);
        task["branch"] = json!(format!("agent/{}", id(n)));
        task
    });
    view(&tasks.collect::<Vec<_>>())
}

/// Of these tasks.
pub fn view(tasks: &[Value]) -> View {
    let count = |status: &str| tasks.iter().filter(|task| task["status"] == status).count();
    let statuses = ["pending", "running", "completed", "failed", "blocked", "cancelled"];
    let mut summary: serde_json::Map<String, Value> =
        statuses.iter().map(|status| ((*status).to_owned(), json!(count(status)))).collect();
    summary.insert("total".to_owned(), json!(tasks.len()));
    summary.insert("stale".to_owned(), json!(tasks.iter().filter(|task| task["stale"] == true).count()));
    summary.insert("orphans".to_owned(), json!(0));
    let view = json!({
        "format": 1, "project": "shop", "plan_id": "p-1", "at": "2030-01-02T03:04:05Z", "max_concurrent": 3,
        "suspended": false, "summary": summary, "tasks": tasks, "orphans": [], "warnings": [],
        "next": ["2 agents are at work", "something changes by itself in 3m 20s", "`orchestrate plan` shows more"],
    });
    serde_json::from_value(view).expect("a view")
}

fn id(n: usize) -> String {
    const WHAT: [&str; 9] =
        ["schema", "api-client", "auth", "search-index", "checkout", "mail-templates", "i18n", "reports", "docs"];
    format!("{}-{n}", WHAT[n % WHAT.len()])
}

fn task(n: usize, count: usize) -> Value {
    // Layers of about the square root; each task waits for one to three of the layer before.
    let width = count.isqrt().max(1);
    let layer = n / width;
    let before = |place: usize| (layer > 0).then(|| id((layer - 1) * width + place % width));
    let mut dependencies: Vec<String> = before(n).into_iter().collect();
    if n.is_multiple_of(3) {
        dependencies.extend(before(n * 7 + 1));
    }
    if n.is_multiple_of(5) && layer > 1 {
        dependencies.push(id((layer - 2) * width + n % width));
    }
    dependencies.sort();
    dependencies.dedup();
    let mut task = json!({
        "id": id(n), "title": format!("Make the {} work with the new tables", id(n)), "dependencies": dependencies,
        "waits_for": [], "agent": "claude", "attempt": 1, "stale": false, "spec_changed": false,
        "container": format!("orch-5f3a9c01-{}-1", id(n)), "host": "local",
    });
    let more = match () {
        () if n == 1 => json!({
            "title": HOSTILE.repeat(80), "status": "failed", "reason": "NonZeroExit", "seconds": 4_000, "exit_code": 7,
            "message": format!("exit code 7: {HOSTILE}"), "next_step": format!("`orchestrate logs {}` shows its output", id(n)),
        }),
        () if n < count / 2 => json!({
            "status": "completed", "reason": "Succeeded", "seconds": 60 + (n * 37) % 900, "result": "changed",
            "exit_code": 0, "branch": format!("agent/{}", id(n)), "head_commit": "0123456789abcdef0123456789abcdef01234567",
        }),
        () if n <= count / 2 + 1 => json!({
            "status": "running", "reason": "Started", "seconds": 312 * (n % 9 + 1), "stale": n % 2 == 1, "branch": format!("agent/{}", id(n)),
        }),
        () if n.is_multiple_of(6) => json!({
            "status": "blocked", "reason": "DependencyFailed", "attempt": 0, "first_cause": id(1),
            "message": format!("waits for {}, which failed", id(1)), "next_step": format!("mend {0}, then `orchestrate retry {0}`", id(1)),
        }),
        () if n.is_multiple_of(7) => json!({
            "status": "pending", "reason": "BackOff", "not_before": "2030-01-02T03:09:00Z",
            "message": "attempt 2 follows after a pause: exit code 1",
        }),
        () if n.is_multiple_of(11) => json!({ "status": "cancelled", "reason": "CancelledByRequest", "attempt": 0 }),
        () => json!({
            "status": "pending", "reason": "WaitingForDependencies", "attempt": 0, "waits_for": dependencies,
            "message": format!("waits for {}", dependencies.join(", ")),
        }),
    };
    for (name, value) in more.as_object().expect("an object") {
        task[name] = value.clone();
    }
    task
}
