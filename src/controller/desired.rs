//! What a newly read plan file means beside its specs: which plan it is, and what a person asked for. Pure.

use crate::clock::Now;
use crate::plan::Plan;
use crate::record::{Entry, Ledger, State};
use crate::spec::TaskSet;
use crate::status::{Published, Reason, Request, Status, request};

/// The records that make a file's plan the one that is served; none where it is already.
///
/// A file without an id is the plan that is being worked on while any attempt lives; else it is a new plan. In a new plan,
/// a task whose id and spec are known keeps its result, since nothing that is asked has changed, and the others start anew.
pub(super) fn adopt(
    tasks: &TaskSet,
    published: &[Published],
    ledger: &Ledger,
    now: &Now,
    new_id: impl FnOnce() -> String,
) -> Vec<Entry> {
    let at = || now.moment();
    let plan_id = match (&tasks.plan_id, ledger.plan_id()) {
        (Some(id), Some(served)) if id == served => return Vec::new(),
        (Some(id), _) => id.clone(),
        (None, Some(_)) if ledger.live().next().is_some() => return Vec::new(),
        (None, _) => new_id(),
    };
    let mut entries = Vec::new();
    for (spec, published) in tasks.tasks.iter().zip(published) {
        match ledger.task(&spec.id) {
            None if published.status == Some(Status::Completed) => {
                entries.push(Entry::Taken { task: spec.id.clone(), at: at() });
            }
            None => {}
            // Taken as completed before, by a pass that died amid these records.
            Some(record) if record.attempt == 0 && published.status == Some(Status::Completed) => {}
            Some(record) => {
                let same = record.current.as_ref().is_some_and(|current| current.spec == spec.digest);
                let untouched = record.attempt == 0 && record.state == State::Idle;
                if !same && !untouched && record.state != State::Live {
                    entries.push(Entry::Renewed { task: spec.id.clone(), at: at() });
                }
            }
        }
    }
    // Last: until it stands, all of this is done again.
    entries.push(Entry::Plan { plan_id, at: at() });
    entries
}

/// The records of what a person asked for by changing the file, given how every task stands by the journal.
pub(super) fn requests(
    tasks: &TaskSet,
    published: &[Published],
    plan: &Plan,
    ledger: &Ledger,
    now: &Now,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for ((spec, found), status) in tasks.tasks.iter().zip(published).zip(&plan.tasks) {
        let truth = Published { status: Some(status.status), attempt: status.attempt.unwrap_or(0) };
        let Some(wanted) = request(*found, truth) else { continue };
        // What waits for another task's recovery goes on by itself; the file may only lag behind.
        if wanted == Request::Run && status.reason == Some(Reason::DependencyFailed) {
            continue;
        }
        let noted = ledger.task(&spec.id).is_some_and(|record| record.cancel);
        if wanted == Request::Cancel && noted {
            continue;
        }
        entries.push(Entry::Requested { task: spec.id.clone(), request: wanted, at: now.moment() });
    }
    entries
}
