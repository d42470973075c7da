//! Snapshots for the tests of this room, made by the real reader, fold and plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Moment, Now};
use crate::controller::Snapshot;
use crate::git::CommitId;
use crate::observe::{AttemptKey, ContainerState, InstanceId, Observed, ObservedContainer, Observer, Role};
use crate::plan::{Inputs, Memory, plan};
use crate::record::{AttemptEnd, Entry, Ledger, Next};
use crate::spec::{ReadOptions, TaskId, TaskSet, Terms, read};
use crate::status::{Reason, ResultKind};

/// A plan in the middle of its life, `seconds` after noon.
pub(super) struct World {
    pub(super) tasks: TaskSet,
    pub(super) entries: Vec<Entry>,
    containers: Vec<ObservedContainer>,
    seconds: u64,
    pub(super) away: Option<String>,
}

/// The clocks so many seconds after noon.
pub(super) fn now(seconds: u64) -> Now {
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    Now { wall: noon + Duration::from_secs(seconds), monotonic: Duration::from_secs(seconds), boot_id: "boot".into() }
}

fn at(seconds: u64) -> Moment {
    now(seconds).moment()
}

impl World {
    /// A plan of these tasks (JSON members of `tasks`), never looked at.
    pub(super) fn new(tasks: &str) -> Self {
        let text = format!(
            "{{\"plan_id\": \"p-1\", \"project\": \"demo\", \"defaults\": {{\"agent\": \"shell\", \"image\": \"i\"}}, \
             \"tasks\": [{tasks}]}}"
        );
        let accepted = read(text.as_bytes(), ReadOptions::default());
        let accepted = accepted.unwrap_or_else(|refused| panic!("refused: {:?}", refused.diagnostics));
        let opened = Entry::Opened { format: 1, instance: InstanceId("inst".into()), at: at(0) };
        let served = Entry::Plan { plan_id: "p-1".to_owned(), at: at(0) };
        Self { tasks: accepted.tasks, entries: vec![opened, served], containers: Vec::new(), seconds: 0, away: None }
    }

    fn key(task: &str, attempt: u32) -> AttemptKey {
        AttemptKey { task: TaskId::new(task).expect("valid"), attempt }
    }

    /// The attempt was launched and runs.
    pub(super) fn running(mut self, task: &str, attempt: u32, since: u64) -> Self {
        let key = Self::key(task, attempt);
        let spec = self.tasks.task(self.tasks.find(task).expect("there"));
        let container = format!("orch-inst-{key}");
        let id = format!("{:064x}", u64::from(attempt));
        let (digest, terms) = (spec.digest.clone(), Terms::from(&*spec.attempt));
        let (base, start) = (CommitId("a".repeat(40)), CommitId("a".repeat(40)));
        self.entries.extend([
            Entry::Intent { key: key.clone(), spec: digest, host: "unix:///s".to_owned(), terms, at: at(since) },
            Entry::Prepared { key: key.clone(), base, start, image: Some("sha256:1f".to_owned()), at: at(since) },
            Entry::Created { key: key.clone(), container_id: id.clone(), container: container.clone(), at: at(since) },
            Entry::StartIntent { key: key.clone(), at: at(since) },
            Entry::Started { key: key.clone(), at: at(since) },
        ]);
        let state = ContainerState::Running;
        self.containers.push(ObservedContainer {
            id,
            name: container,
            key,
            plan: "p-1".to_owned(),
            role: Role::Agent,
            state,
        });
        self.seconds = self.seconds.max(since);
        self
    }

    /// The running attempt ended.
    pub(super) fn ended(mut self, task: &str, attempt: u32, code: i64, when: u64) -> Self {
        let key = Self::key(task, attempt);
        let live = self.containers.iter_mut().find(|container| container.key == key).expect("runs");
        live.state = ContainerState::Exited;
        let (reason, message, next) = match code {
            0 => (Reason::Succeeded, "exit code 0".to_owned(), Next::Complete),
            code => (Reason::NonZeroExit, format!("exit code {code}"), Next::Fail),
        };
        let end = AttemptEnd {
            reason,
            message,
            exit_code: Some(code),
            oom_killed: false,
            head: Some(CommitId("b".repeat(40))),
            result: (code == 0).then_some(ResultKind::Changed),
            started_at: None,
            finished_at: now(when).wall,
            log: Some("log".to_owned()),
            log_error: None,
            verify_log: None,
            report: None,
        };
        self.entries.push(Entry::Ended { key, end, next, at: at(when) });
        self.seconds = self.seconds.max(when);
        self
    }

    /// So many seconds after noon.
    pub(super) fn at(mut self, seconds: u64) -> Self {
        self.seconds = seconds;
        self
    }

    /// What a pass would see now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut ledger = Ledger::default();
        for entry in &self.entries {
            ledger.apply(entry);
        }
        let mut watcher = Observer::default();
        let _relist = watcher.apply_list(self.containers.clone(), &BTreeSet::new());
        let seen = watcher.observed().clone();
        let observed = self.away.as_ref().map_or(seen, |why| Observed::unavailable(why.clone()));
        let now = now(self.seconds);
        let memory = Memory::new();
        let plan = plan(&Inputs {
            tasks: &self.tasks,
            observed: &observed,
            ledger: &ledger,
            memory: &memory,
            now: &now,
            frozen: false,
        });
        Snapshot { tasks: Arc::new(self.tasks.clone()), ledger, observed, plan, now, warnings: Vec::new(), fault: None }
    }
}

/// A diamond of which one side failed, beside a task that is stale, one that waits and one that could start.
pub(super) fn busy() -> World {
    let tasks = r#"
        {"id": "base", "title": "Lay the ground"},
        {"id": "left", "dependencies": ["base"]},
        {"id": "right", "dependencies": ["base"]},
        {"id": "join", "dependencies": ["left", "right"]},
        {"id": "after", "dependencies": ["join"]},
        {"id": "slow", "stale_after": "1m"},
        {"id": "next", "dependencies": ["slow"]},
        {"id": "free"}
    "#;
    World::new(&tasks.replace("\"id\"", "\"prompt\": \"p\", \"id\""))
        .running("base", 1, 0)
        .ended("base", 1, 0, 75)
        .running("left", 1, 80)
        .ended("left", 1, 3, 100)
        .running("right", 1, 80)
        .running("slow", 1, 10)
        .at(312)
}
