//! Looks at everything from outside, at each call: what must never be, whatever failed before.

use std::collections::{BTreeMap, BTreeSet};

use orchestrate::clock::Now;
use orchestrate::observe::names::label;
use orchestrate::observe::{AttemptKey, ContainerState};
use orchestrate::record::{AttemptEnd, Entry, Ledger, Next, State};
use orchestrate::status::{Reason, Request, Status};

use super::Sim;
use crate::support::fake_runtime::{EndedBy, Seen};
use crate::support::world::{Deed, dependencies};

/// What was seen of the journal.
#[derive(Default)]
pub(super) struct Monitor {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    ledger: Ledger,
    ended: BTreeSet<AttemptKey>,
}

/// The whole records of a journal.
fn decode(bytes: &[u8]) -> Vec<Entry> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.filter_map(|line| serde_json::from_slice(line.get(9..)?).ok()).collect()
}

impl Monitor {
    /// Takes in what is new in the journal and says what is wrong with it.
    pub(super) fn read(&mut self, bytes: Vec<u8>, sim: &Sim) -> Vec<String> {
        if bytes == self.bytes {
            return Vec::new();
        }
        let entries = decode(&bytes);
        self.bytes = bytes;
        let kept = self.entries.iter().zip(&entries).take_while(|(a, b)| a == b).count();
        if kept < self.entries.len() {
            // A record whose writer got no answer was cut off, or a snapshot took the place of records.
            self.entries.truncate(kept);
            (self.ledger, self.ended) = Default::default();
            for entry in &self.entries {
                self.ledger.apply(entry);
                if let Entry::Ended { key, .. } = entry {
                    self.ended.insert(key.clone());
                }
            }
        }
        let mut wrong = Vec::new();
        for entry in entries.into_iter().skip(kept) {
            self.judge(&entry, sim, &mut wrong);
            self.entries.push(entry);
        }
        wrong
    }

    fn judge(&mut self, entry: &Entry, sim: &Sim, wrong: &mut Vec<String>) {
        let before = entry.task().and_then(|task| self.ledger.task(task)).cloned().unwrap_or_default();
        match entry {
            Entry::Intent { key, .. } => {
                let completed = |task: &String| {
                    let id = orchestrate::spec::TaskId::new(task).expect("ours");
                    self.ledger.task(&id).is_some_and(|record| record.state == State::Done(Status::Completed))
                };
                let free = |plan: &serde_json::Value| {
                    dependencies(plan).get(key.task.as_str()).is_some_and(|on| on.iter().all(completed))
                };
                if before.state != State::Live && !sim.people().plans.iter().rev().take(40).any(free) {
                    wrong.push(format!("I2: {key} is launched before its dependencies are completed"));
                }
                if key.attempt != before.next_attempt() {
                    wrong.push(format!("{key} follows attempt {}", before.attempt));
                }
            }
            Entry::Requested { task, request, .. } => {
                let people = sim.people();
                let asked = match request {
                    Request::Run => people.retried.contains(task.as_str()),
                    Request::Cancel => people.cancelled.contains(task.as_str()),
                };
                if !asked && !people.rolled_back {
                    wrong.push(format!("nobody asked for {request:?} of {task}"));
                }
            }
            Entry::Ended { key, end, next, .. } => {
                if before.state != State::Live || before.attempt != key.attempt {
                    wrong.push(format!("I5: {key} ends while attempt {} is {:?}", before.attempt, before.state));
                }
                if !self.ended.insert(key.clone()) {
                    wrong.push(format!("I5: {key} has two ends"));
                }
                let timeout = before.current.as_ref().and_then(|current| current.terms.timeout());
                judge_end(key, end, *next, timeout, sim, wrong);
            }
            _ => {}
        }
        self.ledger.apply(entry);
        if let (State::Done(status), Some(task)) = (&before.state, entry.task()) {
            let now = self.ledger.task(task).map(|record| record.state.clone()).unwrap_or_default();
            let by_person = matches!(entry, Entry::Requested { .. } | Entry::Renewed { .. } | Entry::Taken { .. });
            if now != before.state && !by_person {
                wrong.push(format!("I4: {task} was {status} and is {now:?} by {entry:?}"));
            }
        }
    }
}

fn judge_end(
    key: &AttemptKey,
    end: &AttemptEnd,
    next: Next,
    timeout: Option<std::time::Duration>,
    sim: &Sim,
    wrong: &mut Vec<String>,
) {
    let seen: Vec<Seen> = of_attempt(&sim.engine.seen(), key);
    let mine = |seen: &&Seen| seen.starts > seen.human_starts;
    let human = seen.iter().any(|seen| seen.touched || seen.human_starts > 0);
    if end.log.is_none() && end.log_error.is_none() {
        wrong.push(format!("I13: {key} ends without a log or a word why not"));
    }
    if let Some(code) = end.exit_code {
        let fits = |seen: &Seen| seen.starts > 0 && seen.exit_code == code && !seen.state.is_live();
        if !human && !seen.iter().any(fits) {
            wrong.push(format!("I5: {key} is recorded with code {code}, the engine has {seen:?}"));
        }
    }
    let ran = seen.iter().any(|seen| mine(&seen));
    match end.reason {
        // One that was made late under its name, and never started, is not the one that ran.
        Reason::ContainerLost
            if seen.iter().any(|seen| !seen.removed) && !seen.iter().any(|seen| seen.removed && seen.starts > 0) =>
        {
            wrong.push(format!("I12: {key} is recorded as lost and is there"));
        }
        Reason::StartError if ran => wrong.push(format!("{key} is recorded as not started and ran")),
        Reason::CancelledByRequest if end.exit_code.is_none() && ran && seen.iter().any(|seen| !seen.removed) => {
            wrong.push(format!("I5: {key} is recorded as never run and ran"));
        }
        // Right after an engine was killed, or right before one came back, an end by itself looks like the engine's doing; so
        // does what a person killed while nobody looked, and anything where a clock jumped. Where nothing of the kind
        // happened there is no excuse.
        Reason::Interrupted
            if !seen.iter().any(|seen| seen.ended_by == Some(EndedBy::Engine))
                && ![Deed::EngineKilled, Deed::EngineStopped, Deed::PowerLoss, Deed::ClockJump]
                    .iter()
                    .any(|deed| sim.did(*deed)) =>
        {
            wrong.push(format!("{key} is recorded as interrupted, the engine has {seen:?}"));
        }
        Reason::DeadlineExceeded => {
            let over = |seen: &Seen| {
                let (Some(from), Some(to), Some(timeout)) = (seen.started_at, seen.finished_at, timeout) else {
                    return false;
                };
                to.duration_since(from) >= jiff::SignedDuration::try_from(timeout).expect("short")
            };
            if !human && !seen.iter().any(over) {
                wrong.push(format!("I14: {key} is recorded as overdue and was not: {seen:?}"));
            }
        }
        _ => {}
    }
    let is_sure = !human && end.exit_code.is_some() && !sim.did(Deed::SecondWithoutLock);
    let by_engine = |seen: &Seen| {
        let was_seen = seen.finished_at.is_some_and(|finished| sim.saw_the_outage(finished));
        seen.ended_by == Some(EndedBy::Engine) && was_seen
    };
    if is_sure && seen.iter().any(by_engine) {
        // What a person took the worktree of has lost more than its end.
        let is_lost = end.reason == Reason::WorktreeLost && sim.did(Deed::DeleteWorktree);
        let called_off = matches!(next, Next::Cancel) || end.reason == Reason::DeadlineExceeded || is_lost;
        if end.reason != Reason::Interrupted && !called_off {
            wrong.push(format!("{key} was ended by the engine and is recorded as {}: {seen:?}", end.reason));
        }
    }
}

fn of_attempt(seen: &[Seen], key: &AttemptKey) -> Vec<Seen> {
    let attempt = key.attempt.to_string();
    let is_its = |seen: &&Seen| {
        seen.labels.get(label::TASK).map(String::as_str) == Some(key.task.as_str())
            && seen.labels.get(label::ATTEMPT) == Some(&attempt)
    };
    seen.iter().filter(is_its).cloned().collect()
}

/// What is wrong with the engine's state, whatever the journal says.
pub(super) fn judge_engine(sim: &Sim) -> Vec<String> {
    let mut wrong = sim.engine.violations();
    let seen = sim.engine.seen();
    let mut starts: BTreeMap<(String, String), u32> = BTreeMap::new();
    for one in &seen {
        let get = |name: &str| one.labels.get(name).cloned().unwrap_or_default();
        *starts.entry((get(label::TASK), get(label::ATTEMPT))).or_default() += one.starts - one.human_starts;
    }
    for ((task, attempt), times) in starts {
        if times > 1 {
            wrong.push(format!("I1: {task}-{attempt} was started {times} times"));
        }
    }
    let live = seen.iter().filter(|one| !one.removed && one.state.is_live() && one.human_starts == 0).count();
    let cap = sim.people().highest_cap;
    if live > cap {
        wrong.push(format!("I3: {live} live containers, at most {cap} are allowed"));
    }
    wrong
}

/// What must be so when everything has come to rest.
pub(super) fn judge_rest(sim: &Sim, monitor: &Monitor, now: &Now) -> Vec<String> {
    let mut wrong = sim.repository.violations();
    // Of two that take results side by side, each for long, one finds the branch moved on by the other; git then keeps what
    // it brought under another ref, which this repository does not play.
    wrong.retain(|wrong| !(sim.did(Deed::SecondWithoutLock) && wrong.starts_with("the result of")));
    let named = sim.people().plans.last().map(dependencies).unwrap_or_default();
    for seen in sim.engine.seen() {
        let get = |name: &str| seen.labels.get(name).cloned().unwrap_or_default();
        let Ok(task) = orchestrate::spec::TaskId::new(&get(label::TASK)) else { continue };
        let key = AttemptKey { task, attempt: get(label::ATTEMPT).parse().unwrap_or(0) };
        if seen.state.is_live() && !named.contains_key(key.task.as_str()) {
            continue;
        }
        if seen.starts > seen.human_starts && !monitor.ended.contains(&key) {
            wrong.push(format!("I5: {key} ran and its end is not recorded"));
        }
        if !seen.removed && seen.state == ContainerState::Running && seen.human_starts == 0 {
            wrong.push(format!("{key} still runs at {}", now.wall));
        }
    }
    let may_hold = |reason: Reason| match reason {
        Reason::BranchConflict => {
            sim.did(Deed::RenameTask) || sim.did(Deed::RollBack) || sim.did(Deed::AddTask) || sim.did(Deed::ChangeSpec)
        }
        Reason::NameConflict => sim.did(Deed::Rename),
        Reason::WorktreeConflict => sim.did(Deed::DeleteWorktree),
        Reason::MergeConflict => true,
        _ => false,
    };
    for (task, record) in monitor.ledger.tasks() {
        if let State::Held(hold) = &record.state
            && !may_hold(hold.reason)
        {
            wrong.push(format!("{task} is held: {} {}", hold.reason, hold.message));
        }
    }
    wrong
}
