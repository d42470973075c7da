//! What is recorded about a task and shown to everyone who reads the plan file.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waits; `reason` says for what.
    Pending,
    /// An attempt is live.
    Running,
    /// The last attempt ended well.
    Completed,
    /// The last attempt ended badly and no retry is left.
    Failed,
    /// Cannot go on before something else changes; `reason` says what.
    Blocked,
    /// A person called it off.
    Cancelled,
}

impl Status {
    /// All of them, in the order of display.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Blocked, Self::Cancelled];

    /// The word in files, tables and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// Whether only a person (or a dependency's recovery) moves it on.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a task stands where it stands: one closed set for files, events and metric labels.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        pub enum Reason { $($(#[doc = $doc])+ $name,)+ }

        impl Reason {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The CamelCase word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    // pending
    /// A dependency is not completed yet.
    WaitingForDependencies,
    /// `max_concurrent` attempts are live.
    WaitingForSlot,
    /// The plan is suspended.
    Suspended,
    /// A retry waits for its time.
    BackOff,
    /// The provider's limit was reached; waits for its reset.
    RateLimited,
    /// Too little disk space to launch.
    DiskLow,
    /// The engine does not answer.
    EngineUnavailable,
    /// A step failed in a way that passes; it is tried again.
    TransientError,
    // running
    /// The attempt is being prepared: base, worktree, container.
    Launching,
    /// The container runs.
    Started,
    /// The container is paused.
    Paused,
    /// A start whose answer was lost may still take effect.
    Settling,
    /// The container is being stopped.
    Stopping,
    /// The container ended; its result is being taken in.
    Harvesting,
    // completed
    /// Exit code 0.
    Succeeded,
    /// The plan file said so when it was first read.
    TakenFromFile,
    // failed
    /// An exit code other than 0.
    NonZeroExit,
    /// The kernel killed it for memory.
    OutOfMemory,
    /// It ran longer than its `timeout`.
    DeadlineExceeded,
    /// The container could not be started.
    StartError,
    /// The container is gone without a result.
    ContainerLost,
    /// The engine or the host stopped it.
    Interrupted,
    /// `verify` did not exit 0.
    VerifyFailed,
    /// What the agent left was refused on import.
    ResultRefused,
    /// No commit where `empty` is `fail`.
    EmptyResult,
    /// Uncommitted changes where `leftovers` is `fail`.
    LeftoversFound,
    /// The worktree is gone.
    WorktreeLost,
    // blocked
    /// A dependency failed, is blocked or was cancelled.
    DependencyFailed,
    /// The image is not on the engine.
    ImageMissing,
    /// A container of that name is not ours.
    NameConflict,
    /// The branch holds work that is not ours.
    BranchConflict,
    /// Something that is not ours stands where the worktree belongs.
    WorktreeConflict,
    /// The dependencies' branches do not merge.
    MergeConflict,
    /// `base` names no commit.
    BaseMissing,
    /// A secret has no value.
    SecretMissing,
    /// A mount is refused.
    MountRefused,
    /// The engine refused the container's settings.
    InvalidSpec,
    // cancelled
    /// A person asked for it.
    CancelledByRequest,
}

impl Reason {
    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// Whether it may stand beside `pending`. A launch that has only been decided is pending, too.
    pub fn is_of_pending(self) -> bool {
        matches!(
            self,
            Self::WaitingForDependencies
                | Self::Launching
                | Self::WaitingForSlot
                | Self::Suspended
                | Self::BackOff
                | Self::RateLimited
                | Self::DiskLow
                | Self::EngineUnavailable
                | Self::TransientError
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What an attempt left on its branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResultKind {
    /// Commits of its own.
    Changed,
    /// Nothing.
    Empty,
    /// Uncommitted changes that stay in the worktree.
    Leftovers,
}

impl ResultKind {
    /// The word in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Empty => "empty",
            Self::Leftovers => "leftovers",
        }
    }
}

/// The fields of a task in the plan file that are ours. Absent fields are not written; a field that is absent here and
/// present in the file is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskStatus {
    /// Where the task stands.
    pub status: Status,
    /// Why it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for a person, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of the last attempt, from 1; absent: never launched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The engine's id of the last attempt's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Where it runs or ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The task's branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The task's worktree, relative to the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The commit that the branch started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The branch's tip when the attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_commit: Option<String>,
    /// What the attempt left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultKind>,
    /// The container's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// When the attempt began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub finished_at: Option<Timestamp>,
    /// Runs longer than `stale_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
    /// Has written nothing for longer than `silent_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<bool>,
    /// Path of the kept log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// When a back-off ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_before: Option<Timestamp>,
}

impl TaskStatus {
    /// Names of all our fields, in the order in which they are written.
    pub const FIELDS: [&'static str; 19] = [
        "status",
        "reason",
        "message",
        "attempt",
        "container_id",
        "container",
        "host",
        "branch",
        "worktree",
        "base_commit",
        "head_commit",
        "result",
        "exit_code",
        "started_at",
        "finished_at",
        "stale",
        "silent",
        "log",
        "not_before",
    ];

    /// A status with nothing but its word.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            reason: None,
            message: None,
            attempt: None,
            container_id: None,
            container: None,
            host: None,
            branch: None,
            worktree: None,
            base_commit: None,
            head_commit: None,
            result: None,
            exit_code: None,
            started_at: None,
            finished_at: None,
            stale: None,
            silent: None,
            log: None,
            not_before: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_are_those_that_are_written() {
        let mut full = TaskStatus::new(Status::Running);
        full.reason = Some(Reason::Started);
        full.message = Some(String::new());
        full.attempt = Some(1);
        for text in [
            &mut full.container_id,
            &mut full.container,
            &mut full.host,
            &mut full.branch,
            &mut full.worktree,
            &mut full.base_commit,
            &mut full.head_commit,
            &mut full.log,
        ] {
            *text = Some(String::new());
        }
        full.result = Some(ResultKind::Changed);
        full.exit_code = Some(0);
        full.started_at = Some(Timestamp::UNIX_EPOCH);
        full.finished_at = Some(Timestamp::UNIX_EPOCH);
        full.not_before = Some(Timestamp::UNIX_EPOCH);
        full.stale = Some(true);
        full.silent = Some(true);
        let value = serde_json::to_value(&full).expect("plain data");
        let names: Vec<&str> = value.as_object().expect("object").keys().map(String::as_str).collect();
        assert_eq!(names, TaskStatus::FIELDS);
    }

    #[test]
    fn words_round_trip() {
        for status in Status::ALL {
            assert_eq!(Status::from_word(status.as_str()), Some(status));
            assert_eq!(serde_json::to_string(&status).expect("word"), format!("\"{status}\""));
        }
        for &reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).expect("word"), format!("\"{reason}\""));
        }
    }
}
