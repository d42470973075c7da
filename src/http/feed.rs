//! Events that a client can resume from: numbered, and kept for a while. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use crate::report::{Summary, TaskView, View};

/// Events kept for those who reconnect.
const KEPT: usize = 1_000;
/// And no more than so many bytes of them.
const KEPT_BYTES: usize = 4 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) number: u64,
    pub(super) kind: &'static str,
    pub(super) data: Arc<str>,
}

/// The newest events of this process.
#[derive(Debug)]
pub(super) struct Feed {
    /// Tells numbers of this process from those of another one.
    epoch: String,
    newest: u64,
    items: VecDeque<Item>,
    bytes: usize,
}

impl Feed {
    pub(super) fn new(epoch: String) -> Self {
        Self { epoch, newest: 0, items: VecDeque::new(), bytes: 0 }
    }

    /// Number of the newest event; 0: none yet.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn push(&mut self, kind: &'static str, data: String) -> u64 {
        self.newest += 1;
        self.bytes += data.len();
        self.items.push_back(Item { number: self.newest, kind, data: data.into() });
        while self.items.len() > KEPT || (self.bytes > KEPT_BYTES && self.items.len() > 1) {
            self.bytes -= self.items.pop_front().map_or(0, |item| item.data.len());
        }
        self.newest
    }

    /// The `id` field of an event.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The number of an `id` that this process gave and from which nothing is missing.
    pub(super) fn resume(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.rsplit_once('-')?;
        let number = number.parse().ok().filter(|number| epoch == self.epoch && *number <= self.newest)?;
        self.after(number).map(|_| number)
    }

    /// What came after an event; `None` where some of it is not kept any more.
    pub(super) fn after(&self, number: u64) -> Option<Vec<Item>> {
        let first = self.items.front().map_or(self.newest + 1, |item| item.number);
        (number + 1 >= first).then(|| self.items.iter().filter(|item| item.number > number).cloned().collect())
    }
}

/// What is different in how a plan stands: the data of a `status` event.
#[derive(Debug, Serialize)]
pub(super) struct Change<'a> {
    at: jiff::Timestamp,
    summary: &'a Summary,
    suspended: bool,
    max_concurrent: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_unavailable: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_invalid: Option<&'a str>,
    next: &'a [String],
    warnings: &'a [String],
    /// Tasks that are new or stand otherwise.
    changed: Vec<&'a TaskView>,
    /// Ids of tasks that are no more.
    removed: Vec<&'a str>,
}

impl<'a> Change<'a> {
    /// From one view to the next.
    pub(super) fn between(before: Option<&'a View>, after: &'a View) -> Self {
        let old: std::collections::HashMap<&str, &TaskView> =
            before.iter().flat_map(|view| &view.tasks).map(|task| (task.id.as_str(), task)).collect();
        let changed = after.tasks.iter().filter(|task| !old.get(task.id.as_str()).is_some_and(|old| same(old, task)));
        let changed: Vec<&TaskView> = changed.collect();
        let new: std::collections::HashSet<&str> = after.tasks.iter().map(|task| task.id.as_str()).collect();
        let gone = before.iter().flat_map(|view| &view.tasks).map(|task| task.id.as_str());
        Self {
            at: after.at,
            summary: &after.summary,
            suspended: after.suspended,
            max_concurrent: after.max_concurrent,
            engine_unavailable: after.engine_unavailable.as_deref(),
            plan_invalid: after.plan_invalid.as_deref(),
            next: &after.next,
            warnings: &after.warnings,
            changed,
            removed: gone.filter(|id| !new.contains(id)).collect(),
        }
    }
}

/// Whether only time passed.
fn same(before: &TaskView, after: &TaskView) -> bool {
    before.status == after.status
        && before.attempt == after.attempt
        && TaskView { seconds: after.seconds, ..before.clone() } == *after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_resumes_where_it_was_unless_something_is_missing() {
        let mut feed = Feed::new("e".to_owned());
        assert_eq!(feed.resume("e-0"), Some(0));
        for number in 1..=KEPT as u64 + 5 {
            assert_eq!(feed.push("status", number.to_string()), number);
        }
        let newest = feed.newest();
        assert_eq!(feed.resume(&feed.id(newest)), Some(newest));
        assert_eq!(feed.after(newest - 1).expect("kept").len(), 1);
        assert_eq!(feed.resume("e-5"), Some(5));
        assert_eq!(feed.resume("e-4"), None, "not kept any more");
        for other in ["f-9", "e-99999", "e", "", "9", "e--1"] {
            assert_eq!(feed.resume(other), None, "{other}");
        }
    }

    #[test]
    fn large_events_do_not_pile_up() {
        let mut feed = Feed::new("e".to_owned());
        for _ in 0..10 {
            feed.push("status", "x".repeat(KEPT_BYTES / 2));
        }
        assert!(feed.items.len() <= 2);
    }
}
