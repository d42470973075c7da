//! What the journal holds: one record for each fact that must outlive us.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ledger::TaskRecord;
use crate::clock::Moment;
use crate::git::CommitId;
use crate::observe::{AttemptKey, InstanceId};
use crate::spec::{SpecDigest, TaskId, Terms};
use crate::status::{Reason, Request, ResultKind};

/// The newest journal format that this program reads and the one that it writes.
pub const FORMAT: u32 = 1;

impl Entry {
    /// Whether it may become durable with the next record only. It tells of an effect that was made under a durable
    /// intent, and that the runtime is asked about again where the record is missing after a loss of power: a container
    /// that was made is found by its name, one that was started by its state.
    pub(super) fn may_lag(&self) -> bool {
        matches!(self, Self::Created { .. } | Self::Started { .. })
    }
}

/// One durable fact. Records are applied in order; see [`super::Ledger::apply`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// The journal was made. Always the first record.
    Opened {
        /// Format of all that follows.
        format: u32,
        /// Identifies this clone.
        instance: InstanceId,
        /// When.
        at: Moment,
    },
    /// The plan file is served under this id from now on.
    Plan {
        /// The id.
        plan_id: String,
        /// When.
        at: Moment,
    },
    /// A new plan asks something else under a known id: the task starts anew, with attempt numbers that go on growing.
    Renewed {
        /// The task.
        task: TaskId,
        /// When.
        at: Moment,
    },
    /// A task stood as completed in the file when it was first read, and is taken as such.
    Taken {
        /// The task.
        task: TaskId,
        /// When.
        at: Moment,
    },
    /// All that is known of a task, in the place of its earlier records; see [`super::Journal::open`].
    Kept {
        /// The task.
        task: TaskId,
        /// What the earlier records gave.
        record: Box<TaskRecord>,
        /// When it was written.
        at: Moment,
    },
    /// A person asked for something.
    Requested {
        /// The task.
        task: TaskId,
        /// What.
        request: Request,
        /// When we noticed.
        at: Moment,
    },
    /// An attempt is going to be made. Stands before any of its effects.
    Intent {
        /// The attempt.
        key: AttemptKey,
        /// The spec that it is made from.
        spec: SpecDigest,
        /// Where it will run.
        host: String,
        /// What still matters of the spec once it runs.
        terms: Terms,
        /// When.
        at: Moment,
    },
    /// Branch and worktree are there.
    Prepared {
        /// The attempt.
        key: AttemptKey,
        /// The commit that the branch starts from.
        base: CommitId,
        /// The branch's tip before the agent runs.
        start: CommitId,
        /// What identifies its image: the digest that its registry knows it by, else the engine's id of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image: Option<String>,
        /// When.
        at: Moment,
    },
    /// The container is there.
    Created {
        /// The attempt.
        key: AttemptKey,
        /// The engine's id.
        container_id: String,
        /// Its name.
        container: String,
        /// When.
        at: Moment,
    },
    /// The container is going to be started. Stands before the first start request.
    StartIntent {
        /// The attempt.
        key: AttemptKey,
        /// When.
        at: Moment,
    },
    /// The container is known to have started.
    Started {
        /// The attempt.
        key: AttemptKey,
        /// When we learned of it.
        at: Moment,
    },
    /// The container is going to be stopped by us.
    StopIntent {
        /// The attempt.
        key: AttemptKey,
        /// Why.
        cause: StopCause,
        /// When.
        at: Moment,
    },
    /// The agent is done and its result is in; what verifies it is made and run next, in a container of its own.
    Verifying {
        /// The attempt.
        key: AttemptKey,
        /// What the agent gave, to be the attempt's end where that is found good.
        end: AttemptEnd,
        /// When.
        at: Moment,
    },
    /// The attempt is over and its result is in.
    Ended {
        /// The attempt.
        key: AttemptKey,
        /// What it gave.
        end: AttemptEnd,
        /// What follows for the task.
        next: Next,
        /// When.
        at: Moment,
    },
    /// The task cannot be launched before something changes.
    Held {
        /// The task.
        task: TaskId,
        /// Why.
        hold: Hold,
        /// When.
        at: Moment,
    },
    /// What the task was held for may have changed; it is tried again.
    Released {
        /// The task.
        task: TaskId,
        /// When.
        at: Moment,
    },
}

/// Why we stop a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A person cancelled the task.
    Cancel,
    /// It ran past its `timeout`.
    Deadline,
}

/// What an attempt gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// How it ended.
    pub reason: Reason,
    /// The same for a person, in one sentence.
    pub message: String,
    /// The container's exit code, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The kernel killed one of its processes for memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom_killed: bool,
    /// The branch's tip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// What it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultKind>,
    /// The engine's word for when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The engine's word for when it ended; ours where it has none.
    pub finished_at: Timestamp,
    /// The kept log, relative to the state dir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Why there is no log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_error: Option<String>,
    /// The kept log of what verified the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_log: Option<String>,
    /// The beginning of what the agent left in `result.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

/// What follows for a task after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "then", rename_all = "snake_case")]
pub enum Next {
    /// Completed.
    Complete,
    /// Failed; no retry is left.
    Fail,
    /// Cancelled.
    Cancel,
    /// Another attempt after a pause.
    Retry {
        /// Which kind of pause, for the counters: `BackOff`, `RateLimited`, `Interrupted`.
        reason: Reason,
        /// How long, in milliseconds.
        pause_ms: u64,
    },
}

impl Next {
    /// The pause before the next attempt, where there is one.
    pub fn pause(self) -> Option<Duration> {
        match self {
            Self::Retry { pause_ms, .. } => Some(Duration::from_millis(pause_ms)),
            Self::Complete | Self::Fail | Self::Cancel => None,
        }
    }
}

/// Why a task cannot be launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which kind.
    pub reason: Reason,
    /// The same for a person: what, which, and what to do.
    pub message: String,
    /// What it waits for: an image's name, the heads of a merge. When this changes, it is tried again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl Entry {
    /// When it was recorded.
    pub fn at(&self) -> &Moment {
        match self {
            Self::Opened { at, .. }
            | Self::Plan { at, .. }
            | Self::Renewed { at, .. }
            | Self::Taken { at, .. }
            | Self::Kept { at, .. }
            | Self::Requested { at, .. }
            | Self::Intent { at, .. }
            | Self::Prepared { at, .. }
            | Self::Created { at, .. }
            | Self::StartIntent { at, .. }
            | Self::Started { at, .. }
            | Self::StopIntent { at, .. }
            | Self::Verifying { at, .. }
            | Self::Ended { at, .. }
            | Self::Held { at, .. }
            | Self::Released { at, .. } => at,
        }
    }

    /// The task that it is about.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            Self::Opened { .. } | Self::Plan { .. } => None,
            Self::Taken { task, .. }
            | Self::Kept { task, .. }
            | Self::Renewed { task, .. }
            | Self::Requested { task, .. }
            | Self::Held { task, .. }
            | Self::Released { task, .. } => Some(task),
            Self::Intent { key, .. }
            | Self::Prepared { key, .. }
            | Self::Created { key, .. }
            | Self::StartIntent { key, .. }
            | Self::Started { key, .. }
            | Self::StopIntent { key, .. }
            | Self::Verifying { key, .. }
            | Self::Ended { key, .. } => Some(&key.task),
        }
    }
}
