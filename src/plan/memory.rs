//! What this process remembers beside the journal: nothing here needs to outlive it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::action::Action;
use crate::clock::{Moment, Now};
use crate::observe::AttemptKey;
use crate::spec::TaskId;

/// How long after the last possible request of ours a start is taken to have arrived or never to arrive.
pub const GRACE: Duration = Duration::from_secs(15);

/// Volatile facts that decisions rest on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Tasks with an action under way, and which; they get no other one.
    pub in_flight: BTreeMap<TaskId, Action>,
    /// Steps that failed in a way that passes.
    pub backoff: BTreeMap<TaskId, BackOff>,
    /// When the last request for an attempt may have been sent, where its effect is unknown.
    pub unsettled: BTreeMap<AttemptKey, Moment>,
    /// How long such a request may be on its way.
    pub grace: Duration,
    /// When the output of attempts with a `silent_after` was last looked for, and what was found.
    pub heard: BTreeMap<AttemptKey, Heard>,
    /// Attempts whose output is being looked for.
    pub listening: BTreeSet<AttemptKey>,
}

/// What a look at an attempt's output found.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    /// When.
    pub at: Moment,
    /// Nothing was written for as long as `silent_after`.
    pub silent: bool,
}

/// The pause after a step that failed in a way that passes.
#[derive(Debug, Clone, PartialEq)]
pub struct BackOff {
    /// When it began.
    pub since: Moment,
    /// How long it lasts.
    pub pause: Duration,
    /// Failures in a row.
    pub failures: u32,
    /// What failed.
    pub message: String,
}

impl Memory {
    /// Empty, with the grace of an engine on the same machine.
    pub fn new() -> Self {
        Self { grace: GRACE, ..Self::default() }
    }

    /// Whether an action under way may bring a container to life.
    pub(super) fn is_starting(&self, task: &TaskId) -> bool {
        matches!(self.in_flight.get(task), Some(Action::Launch { .. } | Action::Start))
    }

    /// What is left of a task's pause; `None`: none.
    pub fn pause(&self, task: &TaskId, now: &Now) -> Option<Duration> {
        let backoff = self.backoff.get(task)?;
        Some(backoff.since.remaining(backoff.pause, now)).filter(|left| !left.is_zero())
    }

    /// What is left of the grace of an attempt; `None`: settled.
    pub fn settling(&self, key: &AttemptKey, now: &Now) -> Option<Duration> {
        let since = self.unsettled.get(key)?;
        Some(since.remaining(self.grace, now)).filter(|left| !left.is_zero())
    }
}
