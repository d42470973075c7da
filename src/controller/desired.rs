//! What a newly read plan file means beside its specs: which plan it is, and what a person asked for. Pure.

use crate::clock::Now;
use crate::plan::Plan;
use crate::record::{Entry, Ledger, State, TaskRecord};
use crate::spec::TaskSet;
use crate::status::{Published, Reason, Request, Status, request};

/// What a file's plan is to us.
#[derive(Debug, PartialEq)]
pub(super) enum Adoption {
    /// The one that is served: what its blocks say of status may be requests.
    Served,
    /// A new one: these records make it the served one. Its blocks are of another plan's attempts, or nobody's; what of them
    /// counts is among the records.
    New(Vec<Entry>),
}

/// Tells whether a file's plan is the served one, and how it comes to be.
///
/// A file without an id is the plan that is being worked on while any attempt lives; else it is a new plan. In a new plan,
/// a task whose id and spec are known keeps its result, since nothing that is asked has changed, and the others start anew;
/// what stands in it as completed or as cancelled is taken as such. A plan whose id could not be published yet, and under
/// which nothing was begun, keeps it: looking at it again and again leaves no trace.
pub(super) fn adopt(
    tasks: &TaskSet,
    published: &[Published],
    ledger: &Ledger,
    now: &Now,
    new_id: impl FnOnce() -> String,
) -> Adoption {
    let at = || now.moment();
    let plan_id = match (&tasks.plan_id, ledger.plan_id()) {
        (Some(id), Some(served)) if id == served => return Adoption::Served,
        (Some(id), _) => Some(id.clone()),
        (None, Some(_)) if ledger.live().next().is_some() => return Adoption::Served,
        (None, Some(_)) if !ledger.is_begun() => None,
        (None, _) => Some(new_id()),
    };
    let mut entries = Vec::new();
    for (spec, published) in tasks.tasks.iter().zip(published) {
        let record = ledger.task(&spec.id);
        let attempt = record.map_or(0, |record| record.attempt);
        let cancel = || Entry::Requested { task: spec.id.clone(), request: Request::Cancel, at: at() };
        match record {
            Some(TaskRecord { state: State::Live, .. }) => continue,
            Some(TaskRecord { current: Some(current), state, .. }) if current.spec == spec.digest => {
                if published.status == Some(Status::Cancelled) && !matches!(state, State::Done(_)) {
                    entries.push(cancel());
                }
                continue;
            }
            // What stands in the way was found under this plan.
            Some(TaskRecord { state: State::Held(_), .. }) if plan_id.is_none() && published.status.is_none() => {
                continue;
            }
            _ => {}
        }
        let wanted = match published.status {
            Some(Status::Completed) if attempt == 0 => State::Done(Status::Completed),
            Some(Status::Cancelled) => State::Done(Status::Cancelled),
            _ => State::Idle,
        };
        let anew = |state: &State| TaskRecord { attempt, state: state.clone(), ..TaskRecord::default() };
        if *record.unwrap_or(&TaskRecord::default()) == anew(&wanted) {
            continue;
        }
        if record.is_some_and(|record| *record != anew(&State::Idle)) {
            entries.push(Entry::Renewed { task: spec.id.clone(), at: at() });
        }
        match wanted {
            State::Done(Status::Completed) => entries.push(Entry::Taken { task: spec.id.clone(), at: at() }),
            State::Done(_) => entries.push(cancel()),
            State::Idle | State::Waiting { .. } | State::Held(_) | State::Live => {}
        }
    }
    // Last: until it stands, all of this is done again.
    entries.extend(plan_id.map(|plan_id| Entry::Plan { plan_id, at: at() }));
    Adoption::New(entries)
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
        let truth =
            Published { status: Some(status.status), attempt: status.attempt.unwrap_or(0), reason: status.reason };
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::AttemptKey;
    use crate::record::Next;
    use crate::spec::{ReadOptions, TaskId, Terms, read};

    fn now() -> Now {
        Now { wall: jiff::Timestamp::UNIX_EPOCH, monotonic: Duration::ZERO, boot_id: "boot".into() }
    }

    /// Three tasks with these words as their status.
    fn plan(plan_id: Option<&str>, words: [Option<&str>; 3]) -> (TaskSet, Vec<Published>) {
        let task = |(id, word): (&str, Option<&str>)| {
            let status = word.map_or(String::new(), |word| format!(r#", "status": "{word}""#));
            format!(r#"{{"id": "{id}", "prompt": "p"{status}}}"#)
        };
        let tasks = ["a", "b", "c"].into_iter().zip(words).map(task).collect::<Vec<_>>().join(",");
        let id = plan_id.map_or(String::new(), |id| format!(r#""plan_id": "{id}","#));
        let accepted =
            read(format!("{{{id} \"tasks\": [{tasks}]}}").as_bytes(), ReadOptions::default()).expect("valid");
        (accepted.tasks, accepted.published)
    }

    fn look(ledger: &Ledger, (tasks, published): &(TaskSet, Vec<Published>)) -> Adoption {
        adopt(tasks, published, ledger, &now(), || "new".to_owned())
    }

    /// Takes a file's plan in; gives what was recorded, in words.
    fn take(ledger: &mut Ledger, file: &(TaskSet, Vec<Published>)) -> Option<String> {
        let Adoption::New(entries) = look(ledger, file) else { return None };
        let word = |entry: &Entry| {
            ledger.apply(entry);
            match entry {
                Entry::Plan { plan_id, .. } => format!("plan {plan_id}"),
                Entry::Taken { task, .. } => format!("taken {task}"),
                Entry::Renewed { task, .. } => format!("renewed {task}"),
                Entry::Requested { task, request, .. } => format!("{request:?} {task}").to_lowercase(),
                other => panic!("{other:?}"),
            }
        };
        Some(entries.iter().map(word).collect::<Vec<_>>().join(", "))
    }

    fn run(ledger: &mut Ledger, tasks: &TaskSet, id: &str, next: Option<Next>) {
        let key = AttemptKey { task: TaskId::new(id).expect("valid"), attempt: 1 };
        let spec = tasks.task(tasks.find(id).expect("there"));
        let terms = Terms::from(spec.attempt.as_ref());
        let (spec, host, at) = (spec.digest.clone(), "host".to_owned(), now().moment());
        ledger.apply(&Entry::Intent { key: key.clone(), spec, host, terms, at: at.clone() });
        if let Some(next) = next {
            let end = r#"{"reason": "Succeeded", "message": "over", "finished_at": "1970-01-01T00:00:00Z"}"#;
            let end = serde_json::from_str(end).expect("an end");
            ledger.apply(&Entry::Ended { key, end, next, at });
        }
    }

    #[test]
    fn what_a_new_file_says_of_completed_and_cancelled_is_taken_at_its_word() {
        let mut ledger = Ledger::default();
        let file = plan(None, [Some("completed"), Some("cancelled"), Some("failed")]);
        assert_eq!(take(&mut ledger, &file).as_deref(), Some("taken a, cancel b, plan new"));
        // The same again, as a pass does that could publish nothing: no trace.
        assert_eq!(take(&mut ledger, &file).as_deref(), Some(""));
        // Until it is published, the file is the only word.
        let file = plan(None, [Some("cancelled"), None, Some("completed")]);
        assert_eq!(take(&mut ledger, &file).as_deref(), Some("renewed a, cancel a, renewed b, taken c"));
        assert_eq!(take(&mut ledger, &file).as_deref(), Some(""));
        assert_eq!(take(&mut ledger, &plan(Some("new"), [None; 3])), None);
    }

    #[test]
    fn a_plan_under_which_something_was_begun_is_followed_by_another_one() {
        let mut ledger = Ledger::default();
        let first = plan(None, [None; 3]);
        assert_eq!(take(&mut ledger, &first).as_deref(), Some("plan new"));
        run(&mut ledger, &first.0, "a", None);
        assert_eq!(take(&mut ledger, &plan(None, [None; 3])), None, "an attempt lives");
        run(&mut ledger, &first.0, "a", Some(Next::Complete));
        run(&mut ledger, &first.0, "b", Some(Next::Fail));
        let again = plan(None, [None, Some("cancelled"), Some("cancelled")]);
        assert_eq!(take(&mut ledger, &again).as_deref(), Some("cancel c, plan new"), "results stay");
        assert_eq!(take(&mut ledger, &again).as_deref(), Some(""));
        let mut other = again;
        for task in &mut other.0.tasks {
            task.digest = crate::spec::SpecDigest("another".into());
        }
        assert_eq!(take(&mut ledger, &other).as_deref(), Some("renewed a, renewed b, cancel b"));
        assert_eq!(take(&mut ledger, &other).as_deref(), Some(""));
    }

    #[test]
    fn a_file_of_another_plan_calls_off_what_waits_and_not_what_runs() {
        let mut ledger = Ledger::default();
        let first = plan(Some("p"), [None; 3]);
        assert_eq!(take(&mut ledger, &first).as_deref(), Some("plan p"));
        run(&mut ledger, &first.0, "a", None);
        run(&mut ledger, &first.0, "b", Some(Next::Retry { reason: Reason::BackOff, pause_ms: 1_000 }));
        let other = plan(Some("q"), [Some("cancelled"), Some("cancelled"), None]);
        assert_eq!(take(&mut ledger, &other).as_deref(), Some("cancel b, plan q"));
    }
}
