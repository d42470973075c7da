//! One repository under control: the newest desired state, the newest picture, and the steps of a pass. The loops in
//! `once` and `run` decide when each step is made.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::backoff::Jitter;
use super::disks::disks;
use super::error::RunError;
use super::holds::HeldTask;
use super::options::OpenOptions;
use super::refresh::{Desired, Settling};
use super::snapshot::Snapshot;
use super::sources::Sources;
use crate::act::{Context, Executor, Failure, Job, Outcome, dependency_heads};
use crate::clock::{Moment, Now};
use crate::git::GitError;
use crate::observe::{Applied, AttemptKey, InstanceId, ObservedContainer, Observer};
use crate::plan::{BackOff, Inputs, Listen, Memory, Plan, PlannedAction, plan};
use crate::record::{AttemptRecord, Entry, Journal, PlanFileError, State, StateLock, Witness};
use crate::runtime::{RuntimeError, RuntimeEvent};
use crate::spec::{TaskId, TaskSet};
use crate::status::TaskStatus;

/// How long a task waits for a list that is newer than what its step found.
const REST: Duration = Duration::from_secs(5);
/// How many losses of the runtime are remembered.
const OUTAGES: usize = 16;

/// One repository under control. Holds its lock.
pub struct Reconciler {
    pub(super) context: Arc<Context>,
    executor: Executor,
    lock: StateLock,
    pub(super) sources: Sources,
    observer: Observer,
    pub(super) memory: Memory,
    /// When the runtime was lost, oldest first.
    outages: Vec<Moment>,
    /// The attempts that a list in flight must name: those that may have been started before it was asked for.
    expected: Option<BTreeSet<AttemptKey>>,
    pub(super) jitter: Jitter,
    pub(super) max_concurrent: Option<std::num::NonZeroU32>,
    pub(super) desired: Option<Desired>,
    /// A changed YAML spec that is left alone for a moment.
    pub(super) settling: Option<Settling>,
    /// What the file is known to say; `None`: not known.
    pub(super) published: Option<HashMap<TaskId, TaskStatus>>,
    pub(super) warnings: Vec<String>,
}

impl Reconciler {
    /// Takes the lock and opens the journal. Reads nothing of the plan yet.
    pub fn open(options: OpenOptions) -> Result<Self, RunError> {
        let OpenOptions { ports, plan_file, spec, secrets, home, sockets, holder, max_concurrent, disk_floor, seed } =
            options;
        let layout = ports.repository.layout().clone();
        let state_dir = crate::observe::names::state_dir(&layout.common_dir);
        let lock = StateLock::take(Arc::clone(&ports.files), &state_dir, holder)?;
        let now = ports.clock.now();
        let mut jitter = Jitter::new(seed);
        let journal = Journal::open(Arc::clone(&ports.files), &state_dir, &now, || InstanceId(jitter.id().into()))?;
        let sources = Sources::new(&ports.files, plan_file, layout.root, &spec);
        let memory = Memory { disk_floor, ..Memory::resumed(journal.ledger(), &now) };
        let context = Arc::new(Context::new(ports, journal, secrets).with_protected(home, sockets));
        context.sweep_secrets();
        Ok(Self {
            executor: Executor::new(Arc::clone(&context)),
            context,
            lock,
            sources,
            observer: Observer::default(),
            memory,
            outages: Vec::new(),
            expected: None,
            jitter,
            max_concurrent,
            desired: None,
            settling: None,
            published: None,
            warnings: Vec::new(),
        })
    }

    /// What every effect needs.
    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Does jobs.
    pub(super) fn executor(&self) -> Executor {
        self.executor.clone()
    }

    /// The clocks' reading.
    pub(super) fn now(&self) -> Now {
        self.context.clock.now()
    }

    /// Makes sure that we are still the only one.
    pub(super) fn ensure_lock(&mut self) -> Result<(), RunError> {
        Ok(self.lock.ensure_current()?)
    }

    /// Removes what writers left when they died.
    pub(super) fn sweep(&self) -> Result<(), RunError> {
        match self.sources.plan.sweep() {
            Ok(()) | Err(PlanFileError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// An error where the repository has no commit yet, so that nothing could ever be launched.
    pub(super) async fn require_commit(&self) -> Result<(), RunError> {
        match self.context.repository.resolve("HEAD").await {
            Err(error @ GitError::Unborn) => Err(error.into()),
            // What else is wrong with HEAD is told of the tasks that start from it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Looks at what is free where launches write.
    pub(super) fn look_at_disks(&mut self) {
        self.memory.disks = disks(&*self.context.files, self.context.repository.layout());
    }

    /// Lists the runtime's containers.
    pub(super) async fn list(context: &Context) -> Result<Vec<ObservedContainer>, RuntimeError> {
        let instance = context.instance();
        context.runtime.list(&instance).await
    }

    /// Notes that a list is being asked for while events still come in.
    pub(super) fn begin_list(&mut self) {
        self.observer.begin_list();
        self.expected = Some(self.expected());
    }

    fn expected(&self) -> BTreeSet<AttemptKey> {
        let journal = self.context.journal();
        let sent = journal.ledger().live().filter(|(_, attempt)| attempt.start_intent.is_some());
        sent.map(|(key, _)| key).collect()
    }

    /// Takes a list into the picture; true where only another one tells what happened meanwhile.
    pub(super) fn take_list(
        &mut self,
        listed: Result<Vec<ObservedContainer>, RuntimeError>,
    ) -> Result<bool, RuntimeError> {
        match listed {
            Ok(containers) => {
                let expected = self.expected.take().unwrap_or_else(|| self.expected());
                let journal = self.context.journal();
                let containers = journal.ledger().only_recorded(containers);
                let verifying = journal.ledger().verifying();
                Ok(self.observer.apply_list_with(containers, &expected, &verifying) == Applied::Relist)
            }
            Err(error) => {
                self.lose_runtime(crate::act::one_line(&error));
                Err(error)
            }
        }
    }

    /// Takes an event into the picture; true where only a fresh list tells what it means.
    pub(super) fn take_event(&mut self, event: RuntimeEvent) -> bool {
        self.observer.apply_event(event) == Applied::Relist
    }

    /// The runtime is away.
    pub(super) fn lose_runtime(&mut self, message: impl Into<String>) {
        if self.unavailable().is_none() {
            self.outages.push(self.now().moment());
            if self.outages.len() > OUTAGES {
                self.outages.remove(0);
            }
        }
        self.expected = None;
        self.observer.lost(message.into());
    }

    /// Whether a container that should be there is missing, and no two complete lists in a row have said so yet.
    pub(super) fn wants_another_list(&self) -> bool {
        let observed = self.observer.observed();
        let journal = self.context.journal();
        let missing = |key: &AttemptKey, attempt: &AttemptRecord| {
            observed.find(key, attempt.role()).is_none()
                && observed.absent.get(key).is_none_or(|lists| *lists < 2)
                && !self.memory.in_flight.contains_key(&key.task)
        };
        observed.unavailable.is_none()
            && journal.ledger().live().any(|(key, attempt)| attempt.start_intent.is_some() && missing(&key, attempt))
    }

    /// Whether any attempt is being made or runs, as far as the journal knows.
    pub(super) fn has_live(&self) -> bool {
        self.context.journal().ledger().live().next().is_some()
    }

    /// Whether the runtime is away, and why.
    pub(super) fn unavailable(&self) -> Option<&str> {
        self.observer.observed().unavailable.as_deref()
    }

    /// Tasks that are held, with what is needed to see whether they still have to be.
    pub(super) fn holds(&self) -> Vec<HeldTask> {
        let Some(desired) = &self.desired else { return Vec::new() };
        let journal = self.context.journal();
        let ledger = journal.ledger();
        let mut holds = Vec::new();
        for (task, record) in ledger.tasks() {
            let State::Held(hold) = &record.state else { continue };
            let Some(ix) = desired.tasks.find(task.as_str()) else { continue };
            let spec = desired.tasks.task(ix).clone();
            holds.push(HeldTask { heads: dependency_heads(&spec, ledger), spec, hold: hold.clone() });
        }
        holds.sort_by(|a, b| a.spec.id.cmp(&b.spec.id));
        holds
    }

    /// Records that tasks are held no more.
    pub(super) fn release(&mut self, tasks: Vec<TaskId>) -> Result<(), RunError> {
        for task in tasks {
            self.context.record(&Entry::Released { task, at: self.now().moment() })?;
        }
        Ok(())
    }

    pub(super) fn plan_for(&self, tasks: &TaskSet, now: &Now) -> Plan {
        let journal = self.context.journal();
        let frozen = self.desired.as_ref().is_some_and(|desired| desired.fault.is_some());
        let observed = self.observer.observed();
        plan(&Inputs { tasks, observed, ledger: journal.ledger(), memory: &self.memory, frozen, now })
    }

    /// Decides. While the newest file is invalid, nothing new is launched.
    pub(super) fn decide(&self, now: &Now) -> Option<(Arc<TaskSet>, Plan)> {
        let desired = self.desired.as_ref()?;
        Some((Arc::clone(&desired.tasks), self.plan_for(&desired.tasks, now)))
    }

    /// Turns an action into a job and notes that it is under way.
    pub(super) fn begin(&mut self, action: PlannedAction, tasks: &TaskSet) -> Job {
        let role = self.context.known(&action.key.task).role();
        let container = self.observer.observed().find(&action.key, role).cloned();
        self.memory.in_flight.insert(action.key.task.clone(), action.action);
        let failures = self.memory.backoff.get(&action.key.task).map_or(0, |backoff| backoff.failures);
        let job = Job::new(action, tasks, self.context.journal().ledger(), container);
        Job { failures, outages: self.outages.clone(), ..job }
    }

    /// Takes in what came of a job; true where only a fresh list tells what it means.
    /// While a list is on its way (`listing`), that one is older: the task waits a moment for the next, or the same step
    /// would be taken again at once.
    pub(super) fn finish(&mut self, outcome: Outcome, listing: bool) -> Result<bool, RunError> {
        let task = outcome.key.task.clone();
        self.memory.in_flight.remove(&task);
        let mut relist = false;
        for event in outcome.events {
            relist |= self.observer.apply_event(event) == Applied::Relist;
        }
        match outcome.failure {
            None if relist && listing => {
                let (since, pause) = (self.now().moment(), REST);
                let message = "its container is not as the engine last listed it; a new list is asked for".to_owned();
                self.memory.backoff.insert(task, BackOff { since, pause, failures: 1, message });
            }
            None => {
                self.memory.backoff.remove(&task);
            }
            Some(Failure::Fatal(error)) => return Err(error.into()),
            Some(Failure::Retry { message, runtime_away, unknown_start }) => {
                let since = self.now().moment();
                if unknown_start {
                    self.memory.unsettled.insert(outcome.key, since.clone());
                }
                if runtime_away {
                    self.lose_runtime(message.clone());
                }
                let failures = self.memory.backoff.get(&task).map_or(0, |backoff| backoff.failures) + 1;
                let pause = self.jitter.pause(failures);
                self.memory.backoff.insert(task, BackOff { since, pause, failures, message });
            }
        }
        Ok(relist && self.unavailable().is_none())
    }

    /// Notes that an attempt's output is being looked for.
    pub(super) fn begin_listen(&mut self, listen: &Listen) {
        self.memory.listening.insert(listen.key.clone());
    }

    /// Takes in what a look at an attempt's output found.
    pub(super) fn finish_listen(&mut self, key: AttemptKey, has_written: Option<bool>) {
        let now = self.now().moment();
        self.memory.hear(key, has_written, now, self.context.journal().ledger());
    }

    /// The pause before the runtime is tried again, after so many tries in a row that failed.
    pub(super) fn pause(&mut self, failures: u32) -> Duration {
        self.jitter.away_pause(failures)
    }

    /// Forgets jobs that were given up.
    pub(super) fn forget_jobs(&mut self) {
        self.memory.in_flight.clear();
    }

    /// Everything for those who only read.
    pub(super) fn snapshot(&self, tasks: Arc<TaskSet>, plan: Plan, now: Now) -> Snapshot {
        let mut warnings = self.warnings.clone();
        let fault = self.fault();
        if let Some(fault) = &fault {
            warnings.insert(0, format!("{fault}; nothing new is launched"));
        }
        Snapshot {
            tasks,
            ledger: self.context.journal().ledger().clone(),
            observed: self.observer.observed().clone(),
            plan,
            now,
            warnings,
            fault,
        }
    }

    /// Tells somebody of every fact that becomes durable from now on.
    pub fn set_witness(&self, witness: Arc<dyn Witness>) {
        self.context.journal().set_witness(witness);
    }
}
