//! The effects that a plan asks for.

use crate::observe::AttemptKey;
use crate::record::StopCause;
use crate::spec::TaskIx;

/// An effect and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedAction {
    /// The task, by its place in the set that was planned; `None` for an attempt whose task the file no longer names.
    pub ix: Option<TaskIx>,
    /// The attempt.
    pub key: AttemptKey,
    /// What to do.
    pub action: Action,
    /// Why, in one sentence.
    pub cause: &'static str,
}

/// An effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Make the attempt: base, worktree, container, start. `resume`: it was begun before.
    Launch {
        /// The attempt's intent is durable already.
        resume: bool,
    },
    /// Inspect the container that was made, and start it if that was never tried.
    Start,
    /// Stop the container.
    Stop(StopCause),
    /// Take in its result.
    Harvest,
    /// Record that it is gone.
    Lose,
    /// Record the attempt as cancelled.
    EndCancelled,
}

impl Action {
    /// Whether a slot was given for it.
    pub fn takes_slot(self) -> bool {
        matches!(self, Self::Launch { .. } | Self::Start)
    }

    /// The verb for people.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Launch { resume: false } => "launch",
            Self::Launch { resume: true } => "resume launch of",
            Self::Start => "start",
            Self::Stop(_) => "stop",
            Self::Harvest => "take in the result of",
            Self::Lose => "record the loss of",
            Self::EndCancelled => "cancel",
        }
    }
}

impl Action {
    /// Why it is done, in one sentence.
    pub(super) fn cause(self, has_dependencies: bool) -> &'static str {
        match self {
            Self::Launch { resume: false } if has_dependencies => "its dependencies are completed",
            Self::Launch { resume: false } => "it waits for nothing",
            Self::Launch { resume: true } => "its launch was begun and there is no container yet",
            Self::Start => "its container was made and not started",
            Self::Stop(StopCause::Cancel) => "a person cancelled it",
            Self::Stop(StopCause::Deadline) => "it runs longer than its timeout",
            Self::Harvest => "its container ended",
            Self::Lose => "its container is in none of two complete lists",
            Self::EndCancelled => "a person cancelled it before it ran",
        }
    }
}
