//! What everyone is told of a task: its published status, with a reason and one sentence. Sentences hold no ages and no
//! counters of the moment, so that a task that stands still is not written again.

use std::time::Duration;

use super::decide::Decision;
use super::disk::disk_low;
use super::plan::{Inputs, ProviderLimit};
use crate::observe::{ContainerState, names};
use crate::record::{State, StopCause, TaskRecord};
use crate::spec::{TaskIx, TaskSpec};
use crate::status::{Reason, Status, TaskStatus};

/// All that the telling of one task rests on.
pub(super) struct Explained<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) spec: &'a TaskSpec,
    pub(super) ix: TaskIx,
    pub(super) record: Option<&'a TaskRecord>,
    pub(super) decision: Decision,
    pub(super) statuses: &'a [Option<Status>],
    pub(super) cause: Option<TaskIx>,
    pub(super) in_flight: bool,
    /// A reached limit of its agent's provider.
    pub(super) limit: Option<&'a ProviderLimit>,
}

/// The status to publish, and when it changes by the mere passing of time.
pub(super) fn explain(task: &Explained<'_>) -> (TaskStatus, Option<Duration>) {
    let (word, reason, message) = task.words();
    let mut status = TaskStatus::new(word);
    status.reason = Some(reason);
    status.message = Some(message).filter(|message| !message.is_empty());
    // Facts of the last attempt are not those of the one that is being made.
    if task.in_flight && task.decision == Decision::Launch {
        status.attempt = Some(task.record.map_or(1, TaskRecord::next_attempt));
        return (status, None);
    }
    let wake = task.fill(&mut status);
    (status, wake)
}

impl Explained<'_> {
    fn words(&self) -> (Status, Reason, String) {
        match self.decision {
            Decision::Keep => self.ended(),
            Decision::Launch | Decision::Resume | Decision::Wait(_) | Decision::Run(Reason::Settling)
                if self.in_flight =>
            {
                (Status::Running, Reason::Launching, "is being launched".into())
            }
            Decision::Run(reason) => (Status::Running, self.running(reason), self.running_message(reason)),
            Decision::Start => (Status::Running, Reason::Launching, "its container is about to be started".into()),
            Decision::Stop(StopCause::Cancel) => (Status::Running, Reason::Stopping, "is being cancelled".into()),
            Decision::Stop(StopCause::Deadline) => {
                (Status::Running, Reason::Stopping, "is being stopped: it runs longer than its timeout".into())
            }
            Decision::Harvest => (Status::Running, Reason::Harvesting, "ended; its result is being taken in".into()),
            Decision::Lose => (Status::Running, Reason::ContainerLost, "its container is gone".into()),
            Decision::Resume => (Status::Running, Reason::Launching, "its launch goes on".into()),
            Decision::Launch => (Status::Pending, Reason::Launching, "is about to be launched".into()),
            Decision::Wait(reason) => self.waiting(reason),
            Decision::StayHeld => match self.record.map(|record| &record.state) {
                Some(State::Held(hold)) => (Status::Blocked, hold.reason, hold.message.clone()),
                _ => (Status::Blocked, Reason::InvalidSpec, String::new()),
            },
            Decision::Block => (Status::Blocked, Reason::DependencyFailed, self.blocked_message()),
            Decision::EndCancelled => (Status::Cancelled, Reason::CancelledByRequest, "cancelled before it ran".into()),
        }
    }

    fn ended(&self) -> (Status, Reason, String) {
        let Some(record) = self.record else { return (Status::Pending, Reason::WaitingForSlot, String::new()) };
        let State::Done(status) = record.state else { return (Status::Pending, Reason::WaitingForSlot, String::new()) };
        match (status, record.end()) {
            (Status::Cancelled, _) => {
                (status, Reason::CancelledByRequest, "cancelled; `orchestrate retry` runs it again".into())
            }
            (_, Some(end)) => (status, end.reason, end.message.clone()),
            (_, None) => (status, Reason::TakenFromFile, "stood as completed in the plan file".into()),
        }
    }

    fn running(&self, reason: Reason) -> Reason {
        let paused = || {
            let key = self.record?.key(&self.spec.id)?;
            let container = self.inputs.observed.find(&key, self.record?.role())?;
            (container.state == ContainerState::Paused).then_some(Reason::Paused)
        };
        if reason == Reason::Started { paused().unwrap_or(reason) } else { reason }
    }

    fn running_message(&self, reason: Reason) -> String {
        match self.running(reason) {
            Reason::Paused => "its container is paused; `docker unpause` lets it go on".into(),
            Reason::EngineUnavailable => {
                format!("the engine does not answer; it is taken to run on: {}", self.unavailable())
            }
            Reason::Settling if self.has_started() => {
                "its container is not in the last list; it is looked for once more".into()
            }
            Reason::Settling => {
                "the answer to its start was lost; it is looked at again before anything is done".into()
            }
            Reason::TransientError => self.backoff_message(),
            _ if self.is_verifying() => "its agent is done; `verify` runs over the result".into(),
            _ => String::new(),
        }
    }

    fn is_verifying(&self) -> bool {
        self.record.is_some_and(TaskRecord::is_verifying)
    }

    fn has_started(&self) -> bool {
        self.record.and_then(|record| record.current.as_ref()).is_some_and(|current| current.started.is_some())
    }

    fn waiting(&self, reason: Reason) -> (Status, Reason, String) {
        let message = match reason {
            Reason::WaitingForDependencies => format!("waits for {}", self.unmet()),
            Reason::WaitingForSlot => match self.inputs.memory.allowance {
                Some(allowance) if allowance < own_bound(self.inputs) => {
                    "all slots that the plans of this machine share are taken".into()
                }
                _ => format!("all {} slots are taken", self.inputs.tasks.max_concurrent),
            },
            Reason::Suspended if self.inputs.frozen => "the plan file is invalid; nothing new is launched".into(),
            Reason::Suspended => "the plan is suspended; `orchestrate resume` lets it go on".into(),
            Reason::EngineUnavailable => format!("the engine does not answer: {}", self.unavailable()),
            Reason::TransientError => self.backoff_message(),
            Reason::DiskLow => disk_low(&self.inputs.memory.disks, self.inputs.memory.disk_floor).unwrap_or_default(),
            Reason::BackOff => return self.between_attempts(),
            _ => String::new(),
        };
        let begun = self.record.is_some_and(|record| record.state == State::Live);
        (if begun { Status::Running } else { Status::Pending }, reason, message)
    }

    fn between_attempts(&self) -> (Status, Reason, String) {
        let recorded = match self.record.map(|record| &record.state) {
            Some(State::Waiting { since, pause, .. })
                if self.limit_outlasts(since.remaining(*pause, self.inputs.now)) =>
            {
                return self.limited();
            }
            Some(State::Idle) | None if self.limit.is_some() => return self.limited(),
            Some(State::Waiting { reason, .. }) => *reason,
            _ => Reason::BackOff,
        };
        let last = self.record.and_then(TaskRecord::end).map(|end| end.message.as_str()).unwrap_or_default();
        let attempt = self.record.map_or(1, TaskRecord::next_attempt);
        (Status::Pending, recorded, format!("attempt {attempt} follows after a pause: {last}"))
    }

    /// Whether it waits for its provider longer than for itself.
    fn limit_outlasts(&self, own: Duration) -> bool {
        self.limit.is_some_and(|limit| limit.task != self.spec.id && limit.left > own)
    }

    fn limited(&self) -> (Status, Reason, String) {
        let agent = &self.spec.attempt.agent;
        let by = self.limit.map(|limit| format!(", as {} found", limit.task)).unwrap_or_default();
        (Status::Pending, Reason::RateLimited, format!("the limit of {agent}'s provider is reached{by}"))
    }

    fn backoff_message(&self) -> String {
        self.inputs.memory.backoff.get(&self.spec.id).map(|backoff| backoff.message.clone()).unwrap_or_default()
    }

    fn unavailable(&self) -> &str {
        self.inputs.observed.unavailable.as_deref().unwrap_or("no answer")
    }

    fn unmet(&self) -> String {
        let tasks = self.inputs.tasks;
        let unmet = tasks.graph.dependencies(self.ix).iter();
        let mut names: Vec<String> = unmet
            .filter(|on| self.statuses[on.index()] != Some(Status::Completed))
            .map(|on| format!("{} ({})", tasks.task(*on).id, self.statuses[on.index()].unwrap_or(Status::Pending)))
            .collect();
        let more = names.len().saturating_sub(5);
        names.truncate(5);
        let list = names.join(", ");
        if more > 0 { format!("{list} and {more} more") } else { list }
    }

    fn blocked_message(&self) -> String {
        let tasks = self.inputs.tasks;
        let Some(cause) = self.cause else { return String::new() };
        let how = match self.statuses[cause.index()] {
            Some(Status::Blocked) => "is blocked",
            Some(Status::Cancelled) => "was cancelled",
            _ => "failed",
        };
        let id = &tasks.task(cause).id;
        let next = format!("`orchestrate describe {id}` tells more, `orchestrate retry {id}` runs it again");
        if tasks.graph.dependencies(self.ix).contains(&cause) {
            return format!("its dependency {id} {how}; {next}");
        }
        let broken = |on: &&TaskIx| self.statuses[on.index()].is_some_and(|s| s == Status::Blocked);
        let through = tasks.graph.dependencies(self.ix).iter().find(broken).map_or(id, |on| &tasks.task(*on).id);
        format!("{id} {how}, which its dependency {through} waits for; {next}")
    }

    /// Adds what is known of the newest attempt.
    fn fill(&self, status: &mut TaskStatus) -> Option<Duration> {
        let wake = self.fill_attempt(status);
        if status.reason == Some(Reason::RateLimited) {
            let limit = self.limit.and_then(|limit| limit.until);
            status.not_before = status.not_before.max(limit);
        }
        wake
    }

    fn fill_attempt(&self, status: &mut TaskStatus) -> Option<Duration> {
        let record = self.record?;
        let now = self.inputs.now;
        if let State::Waiting { since, pause, .. } = &record.state {
            status.not_before = since.wall.checked_add(*pause).ok();
        }
        status.attempt = (record.attempt > 0).then_some(record.attempt);
        let current = record.current.as_ref()?;
        status.host = Some(current.host.clone());
        // The container that verified is named by its attempt's; this is the agent's.
        let verify = current.verify.as_ref();
        status.container_id.clone_from(verify.map_or(&current.container_id, |verify| &verify.container_id));
        status.container.clone_from(verify.map_or(&current.container, |verify| &verify.container));
        if current.base.is_some() {
            status.branch = Some(names::branch(&self.spec.id));
            status.worktree = Some(names::worktree(&self.spec.id).to_string_lossy().into_owned());
        }
        status.base_commit = current.base.as_ref().map(ToString::to_string);
        let started = verify.map_or(&current.started, |verify| &verify.started);
        status.started_at = started.as_ref().map(|moment| moment.wall);
        if let Some(end) = &current.end {
            status.head_commit = end.head.as_ref().map(ToString::to_string);
            status.result = end.result;
            status.exit_code = end.exit_code;
            status.started_at = end.started_at.or(status.started_at);
            status.finished_at = Some(end.finished_at);
            status.log.clone_from(&end.log);
        }
        if record.state != State::Live || status.status != Status::Running {
            return None;
        }
        let since = current.running_since()?;
        let left = since.remaining(current.terms.stale_after(), now);
        status.stale = left.is_zero().then_some(true);
        let heard = record.key(&self.spec.id).and_then(|key| self.inputs.memory.heard.get(&key));
        status.silent = heard.is_some_and(|heard| heard.silent).then_some(true);
        Some(left).filter(|left| !left.is_zero())
    }
}

fn own_bound(inputs: &Inputs<'_>) -> usize {
    usize::try_from(inputs.tasks.max_concurrent.get()).unwrap_or(usize::MAX)
}
