//! The whole plan in one pure step: facts of every task, a decision for each, slots, and what everyone is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::action::{Action, PlannedAction};
use super::admit::{Candidate, admit};
use super::decide::{Decision, decide};
use super::disk::disk_low;
use super::explain::{Explained, explain};
use super::facts::{ContainerFact, DependencyFact, Facts, RecordFact};
use super::listen::{Listen, listens};
use super::memory::Memory;
use crate::clock::Now;
use crate::observe::{AttemptKey, ContainerState, Observed, ObservedContainer, Role};
use crate::record::{AttemptRecord, Ledger, State, TaskRecord};
use crate::spec::{RateLimitScope, TaskId, TaskIx, TaskSet, TaskSpec};
use crate::status::{Reason, Status, TaskStatus};

/// Everything that a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// What people ask for.
    pub tasks: &'a TaskSet,
    /// What the runtime says.
    pub observed: &'a Observed,
    /// What the journal knows.
    pub ledger: &'a Ledger,
    /// What this process remembers.
    pub memory: &'a Memory,
    /// The newest plan file is invalid: nothing new is launched, and what runs goes on by what was last accepted.
    pub frozen: bool,
    /// The clocks.
    pub now: &'a Now,
}

/// What to do, what to tell, and when to look again.
#[must_use = "act on it, publish it and wake up for it"]
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Effects, in the order in which slots were given.
    pub actions: Vec<PlannedAction>,
    /// How every task stands, in the file's order.
    pub tasks: Vec<TaskStatus>,
    /// Running containers of this instance that no live attempt of a task in the file accounts for: the task was removed
    /// or renamed, or a person started a container again. They are told, counted against the slots, and never touched.
    pub orphans: Vec<ObservedContainer>,
    /// Attempts whose output is to be looked for.
    pub listen: Vec<Listen>,
    /// When something changes by the mere passing of time.
    pub wake: Option<Duration>,
    /// How many attempts hold a slot once the actions are begun.
    pub slots_used: usize,
    /// How many more could start at once, were there slots shared with other plans.
    pub slots_wanted: usize,
    /// Whether anything can still move without a person: a live attempt, an action, or a wake time.
    pub can_move: bool,
}

/// When free space is looked at again while launches wait for it.
const LOOK_AT_DISKS: Duration = Duration::from_secs(5);

/// A limit of a provider that keeps its tasks from starting.
#[derive(Debug, Clone)]
pub(super) struct ProviderLimit {
    pub(super) left: Duration,
    pub(super) until: Option<Timestamp>,
    /// The task that reached it.
    pub(super) task: TaskId,
}

/// Makes the plan. Equal inputs give equal plans; time enters by `inputs.now` only.
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    Planner::new(inputs).run()
}

/// What is begun, and what that means for slots.
struct Admission {
    actions: Vec<PlannedAction>,
    used: usize,
    wanted: usize,
}

struct Planner<'a> {
    inputs: &'a Inputs<'a>,
    decisions: Vec<Decision>,
    statuses: Vec<Option<Status>>,
    /// For a broken task: the task whose failure is the first cause.
    causes: Vec<Option<TaskIx>>,
    /// Reached limits of providers, by agent.
    limits: BTreeMap<&'a str, ProviderLimit>,
    wake: Option<Duration>,
}

impl<'a> Planner<'a> {
    fn new(inputs: &'a Inputs<'a>) -> Self {
        let count = inputs.tasks.tasks.len();
        Self {
            inputs,
            decisions: vec![Decision::Keep; count],
            statuses: vec![None; count],
            causes: vec![None; count],
            limits: limits(inputs),
            wake: None,
        }
    }

    fn run(mut self) -> Plan {
        let tasks = self.inputs.tasks;
        for &ix in tasks.graph.topological() {
            let facts = self.facts(ix);
            let decision = decide(facts);
            self.decisions[ix.index()] = decision;
            self.statuses[ix.index()] = Some(self.status_of(ix, decision));
        }
        let orphans = self.orphans();
        let unseen = self.unseen();
        let Admission { actions, used, wanted } = self.actions(orphans.len() + unseen);
        let published: Vec<TaskStatus> = tasks.iter().map(|(ix, spec)| self.published(ix, spec)).collect();
        let can_move = !actions.is_empty()
            || !self.inputs.memory.in_flight.is_empty()
            || self.wake.is_some()
            || wanted > 0
            || (!orphans.is_empty() && published.iter().any(|s| s.reason == Some(Reason::WaitingForSlot)))
            || published.iter().any(|status| status.status == Status::Running);
        let (listen, wake) = listens(self.inputs);
        self.wake_in(wake);
        let (slots_used, slots_wanted) = (used, wanted);
        Plan { actions, tasks: published, orphans, listen, wake: self.wake, slots_used, slots_wanted, can_move }
    }

    fn record(&self, task: &TaskId) -> Option<&'a TaskRecord> {
        self.inputs.ledger.task(task)
    }

    fn facts(&mut self, ix: TaskIx) -> Facts {
        let spec = self.inputs.tasks.task(ix);
        let record = self.record(&spec.id);
        let memory = self.inputs.memory;
        let pause = memory.pause(&spec.id, self.inputs.now);
        self.wake_in(pause);
        let fact = record.map_or(RecordFact::Idle, |record| self.record_fact(&spec.id, record));
        Facts {
            record: self.limited(spec, fact),
            container: self.container_fact(&spec.id, record),
            dependencies: self.dependency_fact(ix),
            cancel: record.is_some_and(|record| record.cancel),
            overdue: record.is_some_and(|record| self.is_overdue(record)),
            suspended: self.inputs.tasks.suspend || self.inputs.frozen,
            backing_off: pause.is_some(),
        }
    }

    /// A task that could be launched waits where a limit of its agent's provider was reached.
    fn limited(&mut self, spec: &TaskSpec, fact: RecordFact) -> RecordFact {
        let limit = self.limits.get(spec.attempt.agent.as_str()).map(|limit| limit.left);
        if limit.is_none() || !matches!(fact, RecordFact::Idle | RecordFact::Due) {
            return fact;
        }
        self.wake_in(limit);
        RecordFact::Waiting
    }

    fn record_fact(&mut self, id: &TaskId, record: &TaskRecord) -> RecordFact {
        match &record.state {
            State::Idle => RecordFact::Idle,
            State::Held(_) => RecordFact::Held,
            State::Done(_) => RecordFact::Done,
            State::Waiting { since, pause, .. } => {
                let left = since.remaining(*pause, self.inputs.now);
                self.wake_in(Some(left).filter(|left| !left.is_zero()));
                if left.is_zero() { RecordFact::Due } else { RecordFact::Waiting }
            }
            State::Live => {
                let sent = record.current.as_ref().is_some_and(|current| current.start_intent.is_some());
                let settling = record.key(id).and_then(|key| self.inputs.memory.settling(&key, self.inputs.now));
                self.wake_in(settling);
                match (sent, settling) {
                    (false, _) => RecordFact::Unstarted,
                    (true, Some(_)) => RecordFact::Unsettled,
                    (true, None) => RecordFact::Settled,
                }
            }
        }
    }

    fn container_fact(&self, id: &TaskId, record: Option<&TaskRecord>) -> ContainerFact {
        let observed = self.inputs.observed;
        if observed.unavailable.is_some() {
            return ContainerFact::Unobserved;
        }
        let Some(key) = record.and_then(|record| record.key(id)) else { return ContainerFact::Missing };
        match observed.find(&key, record.map_or(Role::Agent, TaskRecord::role)).map(|container| container.state) {
            None if observed.absent.get(&key).is_some_and(|lists| *lists >= 2) => ContainerFact::Gone,
            None => ContainerFact::Missing,
            Some(ContainerState::Created) => ContainerFact::Created,
            Some(ContainerState::Running | ContainerState::Paused) => ContainerFact::Live,
            Some(ContainerState::Exited | ContainerState::Dead) => ContainerFact::Exited,
        }
    }

    fn dependency_fact(&mut self, ix: TaskIx) -> DependencyFact {
        let graph = &self.inputs.tasks.graph;
        let mut fact = DependencyFact::Completed;
        for &on in graph.dependencies(ix) {
            match self.statuses[on.index()] {
                Some(Status::Completed) => {}
                Some(Status::Failed | Status::Blocked | Status::Cancelled) => {
                    self.causes[ix.index()] = Some(self.causes[on.index()].unwrap_or(on));
                    return DependencyFact::Broken;
                }
                // A dependency without a status cannot be; if it were, it would not be satisfied.
                Some(Status::Pending | Status::Running) | None => fact = DependencyFact::Waiting,
            }
        }
        fact
    }

    fn is_overdue(&mut self, record: &TaskRecord) -> bool {
        let State::Live = record.state else { return false };
        let Some(current) = &record.current else { return false };
        let (Some(timeout), Some(since)) = (current.terms.timeout(), current.running_since()) else { return false };
        let left = since.remaining(timeout, self.inputs.now);
        self.wake_in(Some(left).filter(|left| !left.is_zero()));
        left.is_zero()
    }

    /// The status word that dependents see, before slots are given: a candidate is pending either way.
    fn status_of(&self, ix: TaskIx, decision: Decision) -> Status {
        match decision {
            Decision::Keep => match self.record(&self.inputs.tasks.task(ix).id).map(|record| &record.state) {
                Some(State::Done(status)) => *status,
                _ => Status::Pending,
            },
            Decision::Run(_) | Decision::Start | Decision::Stop(_) | Decision::Harvest | Decision::Lose => {
                Status::Running
            }
            // Begun is running, also where it waits for a slot or a pause: `pending` means that no attempt is live.
            Decision::Resume => Status::Running,
            Decision::Wait(_) if self.is_live(ix) => Status::Running,
            Decision::Wait(_) | Decision::Launch => Status::Pending,
            Decision::StayHeld | Decision::Block => Status::Blocked,
            Decision::EndCancelled => Status::Cancelled,
        }
    }

    fn is_live(&self, ix: TaskIx) -> bool {
        self.record(&self.inputs.tasks.task(ix).id).is_some_and(|record| record.state == State::Live)
    }

    fn is_in_flight(&self, ix: TaskIx) -> bool {
        self.inputs.memory.in_flight.contains_key(&self.inputs.tasks.task(ix).id)
    }

    /// Attempts that run or may be about to: these hold a slot.
    fn holds_slot(&self, ix: TaskIx) -> bool {
        if self.inputs.memory.is_starting(&self.inputs.tasks.task(ix).id) {
            return true;
        }
        match self.decisions[ix.index()] {
            Decision::Run(_) | Decision::Stop(_) => true,
            // What verifies the result takes over the slot.
            Decision::Harvest => {
                let record = self.record(&self.inputs.tasks.task(ix).id);
                let current = record.filter(|record| !record.is_verifying()).and_then(|record| record.current.as_ref());
                current.is_some_and(|current| current.terms.verify.is_some())
            }
            // So it does while the job that took the result in, and has recorded it, is not yet over.
            Decision::Resume => self.is_in_flight(ix),
            Decision::Keep
            | Decision::Wait(_)
            | Decision::StayHeld
            | Decision::Block
            | Decision::Launch
            | Decision::Start
            | Decision::Lose
            | Decision::EndCancelled => false,
        }
    }

    fn actions(&mut self, orphans: usize) -> Admission {
        let tasks = self.inputs.tasks;
        let held = tasks.iter().filter(|(ix, _)| self.holds_slot(*ix)).count() + orphans;
        let own = usize::try_from(tasks.max_concurrent.get()).unwrap_or(usize::MAX);
        let cap = self.inputs.memory.allowance.map_or(own, |allowance| allowance.min(own));
        let mut actions = self.forgotten();
        let mut candidates = Vec::new();
        for (ix, spec) in tasks.iter() {
            if self.is_in_flight(ix) {
                continue;
            }
            let action = match self.decisions[ix.index()] {
                Decision::Keep | Decision::Run(_) | Decision::Wait(_) | Decision::StayHeld | Decision::Block => {
                    continue;
                }
                Decision::Launch => {
                    candidates.push(Candidate { task: ix, begun: false });
                    continue;
                }
                Decision::Resume | Decision::Start => {
                    candidates.push(Candidate { task: ix, begun: true });
                    continue;
                }
                Decision::Stop(cause) => Action::Stop(cause),
                Decision::Harvest => Action::Harvest,
                Decision::Lose => Action::Lose,
                Decision::EndCancelled => Action::EndCancelled,
            };
            actions.push(self.action(ix, spec, action));
        }
        self.spare_disks(&mut candidates);
        let admitted = admit(tasks, candidates.clone(), cap.saturating_sub(held));
        let used = held + admitted.len();
        // Where the plan's own bound is what holds them back, a shared slot would be of no use.
        let wanted = (candidates.len() - admitted.len()).min(own.saturating_sub(used));
        let chosen: BTreeSet<TaskIx> = admitted.iter().map(|candidate| candidate.task).collect();
        for candidate in candidates.iter().filter(|candidate| !chosen.contains(&candidate.task)) {
            self.decisions[candidate.task.index()] = Decision::Wait(Reason::WaitingForSlot);
        }
        for candidate in admitted {
            let action = match self.decisions[candidate.task.index()] {
                Decision::Start => Action::Start,
                Decision::Resume => Action::Launch { resume: true },
                _ => Action::Launch { resume: false },
            };
            actions.push(self.action(candidate.task, tasks.task(candidate.task), action));
        }
        Admission { actions, used, wanted }
    }

    /// While a disk is low nothing is made that would fill it; a container that was made already is started.
    fn spare_disks(&mut self, candidates: &mut Vec<Candidate>) {
        if candidates.is_empty() || disk_low(&self.inputs.memory.disks, self.inputs.memory.disk_floor).is_none() {
            return;
        }
        let mut waits = false;
        candidates.retain(|candidate| {
            let decision = &mut self.decisions[candidate.task.index()];
            if *decision == Decision::Start {
                return true;
            }
            *decision = Decision::Wait(Reason::DiskLow);
            waits = true;
            false
        });
        self.wake_in(waits.then_some(LOOK_AT_DISKS));
    }

    fn action(&self, ix: TaskIx, spec: &TaskSpec, action: Action) -> PlannedAction {
        let record = self.record(&spec.id);
        let attempt = match action {
            Action::Launch { resume: false } => record.map_or(1, TaskRecord::next_attempt),
            _ => record.map_or(1, |record| record.attempt),
        };
        PlannedAction {
            ix: Some(ix),
            key: AttemptKey { task: spec.id.clone(), attempt },
            action,
            cause: action.cause(!spec.dependencies.is_empty()),
        }
    }

    fn published(&mut self, ix: TaskIx, spec: &TaskSpec) -> TaskStatus {
        let decision = self.decisions[ix.index()];
        let (status, wake) = explain(&Explained {
            inputs: self.inputs,
            spec,
            ix,
            record: self.record(&spec.id),
            decision,
            statuses: &self.statuses,
            cause: self.causes[ix.index()],
            in_flight: self.inputs.memory.in_flight.contains_key(&spec.id),
            limit: self.limits.get(spec.attempt.agent.as_str()),
        });
        self.wake_in(wake);
        status
    }

    fn orphans(&self) -> Vec<ObservedContainer> {
        let accounted = |key: &AttemptKey| {
            self.inputs.tasks.find(key.task.as_str()).is_some()
                && self.record(&key.task).is_some_and(|r| r.state == State::Live && r.attempt == key.attempt)
        };
        let observed = self.inputs.observed;
        let all = observed.containers.values().chain(observed.verifies.values());
        let running = all.filter(|container| container.state.is_live());
        running.filter(|container| !accounted(&container.key)).cloned().collect()
    }

    /// Attempts whose task the file no longer names and whose container may be about to run: they hold slots as well.
    fn unseen(&mut self) -> usize {
        let memory = self.inputs.memory;
        let live = self.inputs.ledger.live().filter(|(key, _)| self.inputs.tasks.find(key.task.as_str()).is_none());
        let may_start = |(key, attempt): &(AttemptKey, &AttemptRecord)| {
            let fact = self.container_fact(&key.task, self.record(&key.task));
            match fact {
                // Among the orphans already.
                ContainerFact::Live => false,
                ContainerFact::Exited | ContainerFact::Gone => memory.is_starting(&key.task),
                ContainerFact::Unobserved => attempt.start_intent.is_some(),
                ContainerFact::Missing | ContainerFact::Created => {
                    memory.is_starting(&key.task) || memory.settling(key, self.inputs.now).is_some()
                }
            }
        };
        let begun: Vec<AttemptKey> = live.filter(may_start).map(|(key, _)| key).collect();
        for key in &begun {
            self.wake_in(memory.settling(key, self.inputs.now));
        }
        // Not even the intent is recorded yet.
        let fresh = memory.in_flight.iter().filter(|(task, action)| {
            let unknown = self.record(task).is_none_or(|record| record.state != State::Live);
            matches!(action, Action::Launch { .. }) && unknown && self.inputs.tasks.find(task.as_str()).is_none()
        });
        begun.len() + fresh.count()
    }

    /// Attempts whose task the file no longer names: their results are taken in all the same.
    fn forgotten(&mut self) -> Vec<PlannedAction> {
        let mut actions: Vec<PlannedAction> = Vec::new();
        for (key, _) in self.inputs.ledger.live() {
            if self.inputs.tasks.find(key.task.as_str()).is_some()
                || self.inputs.memory.in_flight.contains_key(&key.task)
            {
                continue;
            }
            if let Some(pause) = self.inputs.memory.pause(&key.task, self.inputs.now) {
                self.wake_in(Some(pause));
                continue;
            }
            let action = match self.container_fact(&key.task, self.record(&key.task)) {
                ContainerFact::Exited => Action::Harvest,
                ContainerFact::Gone => Action::Lose,
                ContainerFact::Unobserved | ContainerFact::Missing | ContainerFact::Created | ContainerFact::Live => {
                    continue;
                }
            };
            actions.push(PlannedAction { ix: None, key, action, cause: action.cause(false) });
        }
        actions.sort_by(|a, b| a.key.cmp(&b.key));
        actions
    }

    fn wake_in(&mut self, wait: Option<Duration>) {
        self.wake = [self.wake, wait].into_iter().flatten().min();
    }
}

/// Reached limits that stop all tasks of an agent; of several the one that ends last.
fn limits<'a>(inputs: &Inputs<'a>) -> BTreeMap<&'a str, ProviderLimit> {
    let mut limits: BTreeMap<&str, ProviderLimit> = BTreeMap::new();
    for (task, record) in inputs.ledger.tasks() {
        let State::Waiting { reason: Reason::RateLimited, since, pause } = &record.state else { continue };
        let Some(terms) = record.current.as_ref().map(|current| &current.terms) else { continue };
        let left = since.remaining(*pause, inputs.now);
        let is_wide = terms.rate_limit.as_ref().is_some_and(|limit| limit.scope == RateLimitScope::Provider);
        let ends_last = limits.get(terms.agent.as_str()).is_none_or(|other| (other.left, &other.task) < (left, task));
        if is_wide && !left.is_zero() && ends_last {
            let until = since.wall.checked_add(*pause).ok();
            limits.insert(&terms.agent, ProviderLimit { left, until, task: task.clone() });
        }
    }
    limits
}
