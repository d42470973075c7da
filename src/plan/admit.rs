//! Who gets the free slots.

use crate::spec::{TaskIx, TaskSet};

/// A task that could go on if it had a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The task.
    pub(super) task: TaskIx,
    /// An attempt of it was begun already.
    pub(super) begun: bool,
}

/// Orders candidates (attempts already begun, then `priority`, then the longest chain behind, then the file's order) and
/// cuts them at the free slots.
pub(super) fn admit(tasks: &TaskSet, mut candidates: Vec<Candidate>, free: usize) -> Vec<Candidate> {
    let rank = |c: &Candidate| {
        let priority = tasks.task(c.task).attempt.priority;
        (!c.begun, std::cmp::Reverse(priority), std::cmp::Reverse(tasks.graph.chain_behind(c.task)), c.task)
    };
    if free == 0 {
        return Vec::new();
    }
    if candidates.len() > free {
        candidates.select_nth_unstable_by_key(free - 1, rank);
        candidates.truncate(free);
    }
    candidates.sort_unstable_by_key(rank);
    candidates
}
