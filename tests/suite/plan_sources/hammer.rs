//! Two foreign writers hammer the plan file while a plan runs: one that keeps to the documented lock, and one that does not.
//!
//! `ORCHESTRATE_HAMMER_EDITS` sets how many edits each makes (10,000 for the figures in
//! `specs/plan-file-writing.md`).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::web::Running;

/// Edits a second of each writer.
const RATE: u32 = 300;

/// Keeps the two writers apart, so that neither overwrites the other: what is lost then is lost by us. Holds what they last
/// wrote.
struct Turn {
    path: PathBuf,
    last: Mutex<String>,
    /// How often something else stood there than the writers had written.
    ours: AtomicU32,
}

impl Turn {
    /// One edit, as `sed` would make it: a number is put into a list. It is renamed over the file, or written in place.
    fn edit(&self, into: &str, number: u32, with_lock: bool, in_place: bool) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = with_lock.then(|| lock(&self.path.with_extension("json.lock")));
        let found = fs::read_to_string(&self.path).expect("there, and text");
        if !last.is_empty() && found != *last {
            self.ours.fetch_add(1, Ordering::Relaxed);
        }
        let marker = format!("\"{into}\": [0");
        assert!(found.contains(&marker), "the list is there: {found}");
        let text = found.replacen(&marker, &format!("{marker}, {number}"), 1);
        if in_place {
            fs::write(&self.path, &text).expect("written");
        } else {
            let temp = self.path.with_extension("theirs");
            fs::write(&temp, &text).and_then(|()| fs::rename(&temp, &self.path)).expect("replaced");
        }
        drop(lock);
        *last = text;
    }

    /// Edits at the rate, making up for what it was late.
    fn hammer(&self, list: &str, edits: u32, with_lock: bool) -> f64 {
        #[expect(clippy::disallowed_methods, reason = "a rate in real time")]
        let began = Instant::now();
        for number in 1..=edits {
            self.edit(list, number, with_lock, !with_lock && number % 4 == 0);
            let due = Duration::from_secs(1) * number / RATE;
            std::thread::park_timeout(due.saturating_sub(began.elapsed()));
        }
        f64::from(edits) / began.elapsed().as_secs_f64()
    }
}

/// As `specs/plan-file-writing.md` says.
fn lock(path: &Path) -> fs::File {
    loop {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("opened");
        file.lock().expect("locked");
        let same = |a: &fs::Metadata, b: &fs::Metadata| {
            use std::os::unix::fs::MetadataExt as _;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        };
        if fs::metadata(path).is_ok_and(|now| same(&now, &file.metadata().expect("open"))) {
            return file;
        }
    }
}

fn lost(plan: &Value, list: &str, edits: u32) -> usize {
    let found: std::collections::BTreeSet<u64> =
        plan[list].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    (1..=u64::from(edits)).filter(|number| !found.contains(number)).count()
}

#[test]
fn no_edit_of_the_careful_and_hardly_one_of_the_careless_is_lost_while_a_plan_runs() {
    #[expect(clippy::disallowed_methods, reason = "how many edits is up to who runs the test")]
    let edits = std::env::var("ORCHESTRATE_HAMMER_EDITS").ok().and_then(|edits| edits.parse().ok()).unwrap_or(600u32);
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    let count = (edits / RATE).max(2) * 4;
    let command = json!(["sh", "-c", "echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> /ran/log; sleep 0.8"]);
    let tasks: Vec<Value> = (0..count).map(|n| json!({ "id": format!("t{n}"), "command": command })).collect();
    project.plan_with(json!({ "runtime": "process", "x-careful": [0], "x-careless": [0] }), tasks.into());
    // On one line, where the writers look for them.
    let text = fs::read_to_string(project.plan_path()).expect("there");
    let flat =
        |text: &str, list: &str| text.replace(&format!("\"{list}\": [\n    0\n  ]"), &format!("\"{list}\": [0]"));
    fs::write(project.plan_path(), flat(&flat(&text, "x-careful"), "x-careless")).expect("written");

    let daemon = Running(project.start(&["run"]));
    project.wait_until("it runs", |project| project.plan_now()["plan_id"].is_string());
    let turn = Turn { path: project.plan_path(), last: Mutex::default(), ours: AtomicU32::new(0) };
    let rates = std::thread::scope(|scope| {
        let careful = scope.spawn(|| turn.hammer("x-careful", edits, true));
        let careless = scope.spawn(|| turn.hammer("x-careless", edits, false));
        [careful, careless].map(|writer| writer.join().expect("every edit is made"))
    });
    let ended = project.ran_log().len();
    project.wait_until("all is done", |project| {
        let plan = project.plan_now();
        plan["tasks"].as_array().expect("a list").iter().all(|task| task["status"] == "completed")
    });
    drop(daemon);

    let plan = project.plan_now();
    let (careful, careless) = (lost(&plan, "x-careful", edits), lost(&plan, "x-careless", edits));
    let ours = turn.ours.load(Ordering::Relaxed);
    let told = format!(
        "{edits} edits each at {:.0} and {:.0} a second, at least {ours} writes of ours between, {ended} of {count} tasks \
         begun meanwhile; lost with the lock: {careful}, without: {careless}",
        rates[0], rates[1]
    );
    // Nobody to tell where stderr is closed.
    drop(writeln!(std::io::stderr(), "hammer: {told}"));
    assert!(ours >= 2, "{told}");
    assert_eq!(careful, 0, "{told}");
    assert!(careless <= 2 + edits as usize / 200, "{told}");
    let expected: std::collections::BTreeSet<String> = (0..count).map(|n| format!("t{n} 1")).collect();
    assert_eq!(project.ran_log(), expected.into_iter().collect::<Vec<_>>(), "each ran once");
}
