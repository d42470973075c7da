//! The fold of the journal: what is known of every task and attempt. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::{AttemptEnd, Entry, FORMAT, Hold, Next, StopCause};
use crate::clock::Moment;
use crate::git::CommitId;
use crate::observe::{AttemptKey, InstanceId, ObservedContainer, Role};
use crate::spec::{SpecDigest, TaskId, Terms};
use crate::status::{Reason, Request, Status};

/// What is known of every task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    instance: Option<InstanceId>,
    plan_id: Option<Arc<str>>,
    /// An attempt was begun since that plan came to be served.
    is_begun: bool,
    tasks: HashMap<TaskId, TaskRecord>,
}

/// What is known of one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Where the task stands.
    pub state: State,
    /// Number of the newest attempt; 0: never launched.
    pub attempt: u32,
    /// Facts of the newest attempt; `None`: never launched.
    pub current: Option<AttemptRecord>,
    /// A person wants the live attempt stopped.
    pub cancel: bool,
    /// Failed attempts since a person last asked for a run.
    pub failures: u32,
    /// Attempts in a row that ended by the engine's or the host's doing.
    pub interruptions: u32,
    /// Attempts in a row that ended at the provider's limit.
    pub rate_limits: u32,
    /// An attempt of ours made or took over the branch `agent/<id>`.
    pub owns_branch: bool,
}

/// Where a task stands, as far as only the journal knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Never launched, or to be launched again.
    #[default]
    Idle,
    /// The next attempt waits for its time.
    Waiting {
        /// `BackOff`, `RateLimited` or `Interrupted`.
        reason: Reason,
        /// When the pause began.
        since: Moment,
        /// How long it lasts.
        pause: Duration,
    },
    /// Cannot be launched before something changes.
    Held(Hold),
    /// The newest attempt is being made or runs.
    Live,
    /// Over, with this status.
    Done(Status),
}

/// Facts of one attempt, as they became known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// The spec that it was made from.
    pub spec: SpecDigest,
    /// Where it runs.
    pub host: String,
    /// What still matters of that spec.
    pub terms: Terms,
    /// When it was intended.
    pub intended: Moment,
    /// The commit that the branch starts from.
    pub base: Option<CommitId>,
    /// The branch's tip before the agent ran.
    pub start: Option<CommitId>,
    /// What identifies its image: the digest that its registry knows it by, else the engine's id of it.
    #[serde(default)]
    pub image: Option<String>,
    /// The engine's id of the container.
    pub container_id: Option<String>,
    /// The container's name.
    pub container: Option<String>,
    /// When a start request may last have been sent.
    pub start_intent: Option<Moment>,
    /// How many may have been sent.
    pub start_tries: u32,
    /// When it was known to run.
    pub started: Option<Moment>,
    /// Why we stop it, where we do.
    pub stop: Option<StopCause>,
    /// The agent is done and its result is being verified. What is known of container and start above is of the container
    /// that does so.
    #[serde(default)]
    pub verify: Option<Verification>,
    /// What it gave; `None`: not over.
    pub end: Option<AttemptEnd>,
}

/// What is known of the agent's run while its result is verified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// What it gave.
    pub end: AttemptEnd,
    /// The engine's id of its container.
    pub container_id: Option<String>,
    /// Its container's name.
    pub container: Option<String>,
    /// When it was known to run.
    pub started: Option<Moment>,
}

impl AttemptRecord {
    /// Which container is at work for it.
    pub fn role(&self) -> Role {
        if self.verify.is_some() { Role::Verify } else { Role::Agent }
    }

    /// The engine's id of the container that has this role.
    pub fn container_of(&self, role: Role) -> Option<&str> {
        let id = match (&self.verify, role) {
            (Some(verify), Role::Agent) => &verify.container_id,
            (None, Role::Verify) => return None,
            (Some(_), Role::Verify) | (None, Role::Agent) => &self.container_id,
        };
        id.as_deref()
    }

    /// When it began to run, as well as we know.
    pub fn running_since(&self) -> Option<&Moment> {
        self.started.as_ref().or(self.start_intent.as_ref())
    }
}

impl TaskRecord {
    /// The number that the next launch gets. Only a live attempt is gone on with under its own number: so a file that says
    /// `pending` of an attempt which has ended since can only be a person's request.
    pub fn next_attempt(&self) -> u32 {
        if self.state == State::Live { self.attempt } else { self.attempt + 1 }
    }

    /// The newest attempt's end, where it is over.
    pub fn end(&self) -> Option<&AttemptEnd> {
        self.current.as_ref()?.end.as_ref()
    }

    /// Whether a person called it off: whatever was about to be launched is not.
    pub fn is_called_off(&self) -> bool {
        self.cancel || matches!(self.state, State::Done(_))
    }

    /// Whether the newest attempt's agent is done and its result is being verified.
    pub fn is_verifying(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.verify.is_some() && current.end.is_none())
    }

    /// Which container is at work for the newest attempt.
    pub fn role(&self) -> Role {
        if self.is_verifying() { Role::Verify } else { Role::Agent }
    }

    /// The newest attempt's key.
    pub fn key(&self, task: &TaskId) -> Option<AttemptKey> {
        (self.attempt > 0).then(|| AttemptKey { task: task.clone(), attempt: self.attempt })
    }
}

impl Ledger {
    /// This clone's id; set by the journal's first record.
    pub fn instance(&self) -> Option<&InstanceId> {
        self.instance.as_ref()
    }

    /// The plan that is served.
    pub fn plan_id(&self) -> Option<&str> {
        self.plan_id.as_deref()
    }

    /// Whether an attempt was begun under the plan that is served.
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// What is known of a task.
    pub fn task(&self, id: &TaskId) -> Option<&TaskRecord> {
        self.tasks.get(id)
    }

    /// Every task that something is known of, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = (&TaskId, &TaskRecord)> {
        self.tasks.iter()
    }

    /// Attempts that are being made or run, in no order.
    pub fn live(&self) -> impl Iterator<Item = (AttemptKey, &AttemptRecord)> {
        self.tasks
            .iter()
            .filter(|(_, record)| record.state == State::Live)
            .filter_map(|(id, record)| Some((record.key(id)?, record.current.as_ref()?)))
    }

    /// The fewest records that give all of this again, for a journal that grew long.
    pub(super) fn condense(&self, at: &Moment) -> Vec<Entry> {
        let opened = self.instance.iter().map(|instance| Entry::Opened {
            format: FORMAT,
            instance: instance.clone(),
            at: at.clone(),
        });
        let plan = self.plan_id.iter().map(|id| Entry::Plan { plan_id: id.to_string(), at: at.clone() });
        let mut tasks: Vec<(&TaskId, &TaskRecord)> = self.tasks.iter().collect();
        tasks.sort_by_key(|(task, _)| *task);
        let tasks = tasks.into_iter().map(|(task, record)| Entry::Kept {
            task: task.clone(),
            record: Box::new(record.clone()),
            at: at.clone(),
        });
        // The plan last where nothing was begun under it, as it was.
        let (before, after) = if self.is_begun { (Some(plan), None) } else { (None, Some(plan)) };
        opened.chain(before.into_iter().flatten()).chain(tasks).chain(after.into_iter().flatten()).collect()
    }

    /// Live attempts whose container must be there: a start of it may have been sent.
    pub fn sent(&self) -> BTreeSet<AttemptKey> {
        self.live().filter(|(_, attempt)| attempt.start_intent.is_some()).map(|(key, _)| key).collect()
    }

    /// Live attempts whose result is being verified.
    pub fn verifying(&self) -> BTreeSet<AttemptKey> {
        self.live().filter(|(_, attempt)| attempt.verify.is_some()).map(|(key, _)| key).collect()
    }

    /// Of several containers of one attempt and role, only the one that was recorded: a person may have renamed ours, and a
    /// create that came late then made another. Where the recorded one was sent a start, no other is ever taken for it, also
    /// when it is gone: that would run the attempt again.
    pub fn only_recorded(&self, mut containers: Vec<ObservedContainer>) -> Vec<ObservedContainer> {
        let is_recorded = |container: &ObservedContainer| {
            let record = self.task(&container.key.task).filter(|record| record.attempt == container.key.attempt);
            let current = record.and_then(|record| record.current.as_ref());
            current.and_then(|current| current.container_of(container.role)) == Some(container.id.as_str())
        };
        let of = |container: &ObservedContainer| (container.key.clone(), container.role);
        let known: BTreeSet<_> = containers.iter().filter(|container| is_recorded(container)).map(of).collect();
        containers.retain(|container| {
            is_recorded(container) || !(known.contains(&of(container)) || self.is_anothers_start(container))
        });
        containers
    }

    /// Whether the attempt of a container was sent a start in another container.
    pub fn is_anothers_start(&self, container: &ObservedContainer) -> bool {
        let record = self.task(&container.key.task).filter(|record| record.attempt == container.key.attempt);
        let Some(current) = record.and_then(|record| record.current.as_ref()) else { return false };
        let is_sent = current.role() == container.role && current.start_intent.is_some();
        is_sent && current.container_of(container.role).is_some_and(|id| id != container.id)
    }

    /// Takes in one record. A record of an attempt that is not the newest one changes nothing.
    pub fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Opened { instance, .. } => self.instance = Some(instance.clone()),
            Entry::Plan { plan_id, .. } => (self.plan_id, self.is_begun) = (Some(plan_id.as_str().into()), false),
            Entry::Renewed { task, .. } => {
                let record = self.record(task);
                if record.state != State::Live {
                    // The branch may hold the earlier work; it is not taken for this task's own.
                    *record = TaskRecord { attempt: record.attempt, ..TaskRecord::default() };
                }
            }
            Entry::Kept { task, record, .. } => {
                self.is_begun |= record.attempt > 0;
                self.tasks.insert(task.clone(), record.as_ref().clone());
            }
            Entry::Taken { task, .. } => self.record(task).state = State::Done(Status::Completed),
            Entry::Requested { task, request, .. } => self.record(task).request(*request),
            Entry::Intent { key, spec, host, terms, at } => self.intend(key, spec, host, terms, at),
            Entry::Verifying { key, end, .. } => {
                if let Some((_, current)) = self.current(key)
                    && current.verify.is_none()
                {
                    current.start_intent = None;
                    current.start_tries = 0;
                    current.verify = Some(Verification {
                        end: end.clone(),
                        container_id: current.container_id.take(),
                        container: current.container.take(),
                        started: current.started.take(),
                    });
                }
            }
            Entry::Prepared { key, base, start, image, .. } => {
                if let Some((record, current)) = self.current(key) {
                    current.base = Some(base.clone());
                    current.start = Some(start.clone());
                    current.image.clone_from(image);
                    *record = true;
                }
            }
            Entry::Created { key, container_id, container, .. } => {
                if let Some((_, current)) = self.current(key) {
                    current.container_id = Some(container_id.clone());
                    current.container = Some(container.clone());
                }
            }
            Entry::StartIntent { key, at } => {
                if let Some((_, current)) = self.current(key) {
                    current.start_intent = Some(at.clone());
                    current.start_tries += 1;
                }
            }
            Entry::Started { key, at } => {
                if let Some((_, current)) = self.current(key) {
                    current.started.get_or_insert_with(|| at.clone());
                }
            }
            Entry::StopIntent { key, cause, .. } => {
                if let Some((_, current)) = self.current(key) {
                    current.stop.get_or_insert(*cause);
                }
            }
            Entry::Ended { key, end, next, at } => self.end(key, end, *next, at),
            Entry::Held { task, hold, .. } => {
                let record = self.record(task);
                if !matches!(record.state, State::Done(_)) {
                    let cancelled = std::mem::take(&mut record.cancel);
                    record.state = if cancelled { State::Done(Status::Cancelled) } else { State::Held(hold.clone()) };
                }
            }
            Entry::Released { task, .. } => {
                let record = self.record(task);
                if matches!(record.state, State::Held(_)) {
                    record.state = State::Idle;
                }
            }
        }
    }

    fn intend(&mut self, key: &AttemptKey, spec: &SpecDigest, host: &str, terms: &Terms, at: &Moment) {
        self.is_begun = true;
        let record = self.record(&key.task);
        // Two writers without a lock: what was sent to the engine is not forgotten for a record that came late.
        let is_sent = |current: &AttemptRecord| {
            current.start_intent.is_some() || current.verify.is_some() || current.end.is_some()
        };
        let is_late = key.attempt == record.attempt && record.current.as_ref().is_some_and(is_sent);
        if key.attempt < record.attempt || is_late {
            return;
        }
        record.attempt = key.attempt;
        record.state = State::Live;
        record.cancel = false;
        // The branch began there; a launch that dies before it is prepared again must not begin it elsewhere.
        let base = record.current.take().and_then(|current| current.base).filter(|_| record.owns_branch);
        record.current = Some(AttemptRecord {
            spec: spec.clone(),
            host: host.to_owned(),
            terms: terms.clone(),
            intended: at.clone(),
            base,
            start: None,
            image: None,
            container_id: None,
            container: None,
            start_intent: None,
            start_tries: 0,
            started: None,
            stop: None,
            verify: None,
            end: None,
        });
    }

    fn end(&mut self, key: &AttemptKey, end: &AttemptEnd, next: Next, at: &Moment) {
        let Some(record) = self.tasks.get_mut(&key.task).filter(|r| r.attempt == key.attempt && r.state == State::Live)
        else {
            return;
        };
        if let Some(current) = &mut record.current {
            current.end = Some(end.clone());
        }
        record.cancel = false;
        record.state = match next {
            Next::Complete => State::Done(Status::Completed),
            Next::Fail => State::Done(Status::Failed),
            Next::Cancel => State::Done(Status::Cancelled),
            Next::Retry { reason, pause_ms } => {
                State::Waiting { reason, since: at.clone(), pause: Duration::from_millis(pause_ms) }
            }
        };
        let (failures, interruptions, rate_limits) = match next {
            Next::Retry { reason: Reason::Interrupted, .. } => (record.failures, record.interruptions + 1, 0),
            Next::Retry { reason: Reason::RateLimited, .. } => (record.failures, 0, record.rate_limits + 1),
            Next::Retry { .. } | Next::Fail => (record.failures + 1, 0, 0),
            Next::Complete | Next::Cancel => (0, 0, 0),
        };
        (record.failures, record.interruptions, record.rate_limits) = (failures, interruptions, rate_limits);
    }

    fn record(&mut self, task: &TaskId) -> &mut TaskRecord {
        if !self.tasks.contains_key(task) {
            self.tasks.insert(task.clone(), TaskRecord::default());
        }
        self.tasks.get_mut(task).expect("BUG: inserted above")
    }

    /// The newest attempt where it is the one meant, with its task's `owns_branch`.
    fn current(&mut self, key: &AttemptKey) -> Option<(&mut bool, &mut AttemptRecord)> {
        let record = self.tasks.get_mut(&key.task).filter(|record| record.attempt == key.attempt)?;
        Some((&mut record.owns_branch, record.current.as_mut()?))
    }
}

impl TaskRecord {
    fn request(&mut self, request: Request) {
        match (request, &self.state) {
            (Request::Run, State::Live) => self.cancel = false,
            (Request::Run, _) => {
                self.state = State::Idle;
                self.cancel = false;
                (self.failures, self.interruptions, self.rate_limits) = (0, 0, 0);
            }
            (Request::Cancel, State::Live) => self.cancel = true,
            (Request::Cancel, State::Done(_)) => {}
            (Request::Cancel, State::Idle | State::Waiting { .. } | State::Held(_)) => {
                self.state = State::Done(Status::Cancelled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::ContainerState;

    fn at() -> Moment {
        Moment { wall: jiff::Timestamp::UNIX_EPOCH, monotonic_ms: 0, boot_id: "b".into() }
    }

    fn key() -> AttemptKey {
        AttemptKey { task: TaskId::new("a").expect("valid"), attempt: 1 }
    }

    fn end() -> AttemptEnd {
        AttemptEnd {
            reason: Reason::Succeeded,
            message: String::new(),
            exit_code: Some(0),
            oom_killed: false,
            head: None,
            result: None,
            started_at: None,
            finished_at: jiff::Timestamp::UNIX_EPOCH,
            log: None,
            log_error: None,
            verify_log: None,
            report: None,
        }
    }

    fn launched(id: &str) -> [Entry; 2] {
        let created =
            Entry::Created { key: key(), container_id: id.to_owned(), container: format!("c-{id}"), at: at() };
        [created, Entry::StartIntent { key: key(), at: at() }]
    }

    fn intent() -> Entry {
        let terms = serde_json::json!({ "stale_after_ms": 1, "retries": 0, "retry_initial_ms": 1, "retry_max_ms": 1 });
        let terms = serde_json::from_value(terms).expect("terms");
        Entry::Intent { key: key(), spec: SpecDigest("d".into()), host: "h".to_owned(), terms, at: at() }
    }

    /// The agent ran in container 1, and 2 verifies its result.
    fn verifying() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.apply(&intent());
        for entry in &launched("1") {
            ledger.apply(entry);
        }
        ledger.apply(&Entry::Verifying { key: key(), end: end(), at: at() });
        ledger
    }

    #[test]
    fn what_was_sent_a_start_in_one_container_is_in_no_other() {
        let of = |id: &str| ObservedContainer {
            id: id.to_owned(),
            name: id.to_owned(),
            key: key(),
            plan: "p".to_owned(),
            role: Role::Agent,
            state: crate::observe::ContainerState::Created,
        };
        let mut ledger = Ledger::default();
        ledger.apply(&intent());
        let [created, sent] = launched("1");
        ledger.apply(&created);
        assert_eq!(ledger.only_recorded(vec![of("2")]), [of("2")], "made again, not yet recorded");
        ledger.apply(&sent);
        assert_eq!(ledger.only_recorded(vec![of("2")]), []);
        assert_eq!(ledger.only_recorded(vec![of("1"), of("2")]), [of("1")]);
    }

    #[test]
    fn an_intent_that_comes_late_forgets_nothing_that_was_sent() {
        for sent in [1, 2] {
            let mut ledger = Ledger::default();
            let intent = intent();
            ledger.apply(&intent);
            for entry in launched("1").iter().take(sent) {
                ledger.apply(entry);
            }
            let before = ledger.task(&key().task).cloned().expect("there");
            let is_sent = before.current.as_ref().is_some_and(|current| current.start_intent.is_some());
            ledger.apply(&intent);
            assert_eq!(ledger.task(&key().task) == Some(&before), is_sent, "after {sent}");
        }
        let mut ledger = verifying();
        let before = ledger.task(&key().task).cloned();
        ledger.apply(&intent());
        assert_eq!(ledger.task(&key().task).cloned(), before);
    }

    #[test]
    fn a_verification_starts_with_tries_of_its_own() {
        let mut ledger = verifying();
        let current = |ledger: &Ledger| ledger.task(&key().task).and_then(|r| r.current.clone()).expect("there");
        assert_eq!((current(&ledger).start_tries, current(&ledger).start_intent), (0, None));
        assert_eq!(current(&ledger).container_of(Role::Agent), Some("1"));
        assert_eq!(current(&ledger).container_of(Role::Verify), None);
        for entry in &launched("2") {
            ledger.apply(entry);
        }
        assert_eq!(current(&ledger).start_tries, 1);
        assert_eq!(current(&ledger).container_of(Role::Agent), Some("1"));
        assert_eq!(current(&ledger).container_of(Role::Verify), Some("2"));
    }

    #[test]
    fn what_is_recorded_hides_only_others_of_its_own_role() {
        let seen = |id: &str, role| ObservedContainer {
            id: id.to_owned(),
            name: "renamed".to_owned(),
            key: key(),
            plan: "p".to_owned(),
            role,
            state: ContainerState::Exited,
        };
        let (agent, late) = (seen("1", Role::Agent), seen("9", Role::Agent));
        let (verify, twin) = (seen("2", Role::Verify), seen("8", Role::Verify));
        let mut ledger = verifying();
        let all = vec![late.clone(), agent.clone(), twin.clone(), verify.clone()];
        let unknown = vec![agent.clone(), twin.clone(), verify.clone()];
        assert_eq!(ledger.only_recorded(all.clone()), unknown, "neither verifying one is known yet");
        for entry in &launched("2") {
            ledger.apply(entry);
        }
        assert_eq!(ledger.only_recorded(all), [agent, verify]);
        assert_eq!(ledger.only_recorded(vec![late.clone()]), [late], "where ours is not there, what is there is seen");
    }
}
