//! What this process remembers beside the journal: nothing here needs to outlive it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::action::Action;
use super::disk::{Disk, DiskFloor};
use crate::clock::{Moment, Now};
use crate::observe::AttemptKey;
use crate::record::{AttemptRecord, Ledger, State};
use crate::spec::TaskId;

/// How long after the last possible request of ours a start is taken to have arrived or never to arrive.
pub const GRACE: Duration = Duration::from_secs(15);

/// A start that was sent so long ago has arrived or never will: the adapter waits half a minute for an answer, and the
/// grace follows.
const ARRIVES: Duration = Duration::from_mins(1);

/// How long an engine may work on a start before its caller gives up; a caller that died leaves it no less time.
const ANSWERS: Duration = Duration::from_secs(30);

/// From when on the grace of a start counts that an earlier process may have sent.
fn on_its_way(attempt: &AttemptRecord, now: &Now) -> Moment {
    let mut at = now.moment();
    if let Some(sent) = &attempt.start_intent {
        let answered = sent.monotonic_ms + u64::try_from(ANSWERS.as_millis()).unwrap_or(0);
        at.monotonic_ms = at.monotonic_ms.max(answered);
    }
    at
}

/// Volatile facts that decisions rest on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// How many attempts may be live, where other plans share this machine's slots; beside the plan's own bound.
    pub allowance: Option<usize>,
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
    /// What the file systems have left that launches write to; those that cannot tell are not among them.
    pub disks: Vec<Disk>,
    /// Below this nothing is launched.
    pub disk_floor: DiskFloor,
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

    /// What a process that died left open: a request of its may still be on its way; from now on no more can be sent. One
    /// that was due long ago is not waited for again, or passes that a timer makes would wait for ever.
    pub fn resumed(ledger: &Ledger, now: &Now) -> Self {
        let sent = ledger.live().filter(|(_, attempt)| {
            attempt.start_intent.as_ref().is_some_and(|sent| sent.boot_id == now.boot_id && sent.age(now) < ARRIVES)
        });
        let unsettled = sent.map(|(key, attempt)| (key, on_its_way(attempt, now))).collect();
        Self { unsettled, ..Self::new() }
    }

    /// Notes what a look at an attempt's output found; `None`: it could not be looked at. Forgets attempts that are over.
    pub fn hear(&mut self, key: AttemptKey, has_written: Option<bool>, at: Moment, ledger: &Ledger) {
        self.listening.remove(&key);
        let known = self.heard.get(&key).is_some_and(|heard| heard.silent);
        let silent = has_written.map_or(known, |written| !written);
        let lives = |key: &AttemptKey| {
            ledger.task(&key.task).is_some_and(|record| record.attempt == key.attempt && record.state == State::Live)
        };
        self.heard.retain(|key, _| lives(key));
        self.heard.insert(key, Heard { at, silent });
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
