//! What people want to be called for: from the views of two passes, the happenings between them. Pure.

use std::collections::HashMap;

use serde::Serialize;

use super::view::{Summary, TaskView, View};
use crate::status::{Reason, Status};

/// The format of [`Happening`] in JSON. Fields may be added within a format; none is taken away or given another meaning.
const FORMAT: u32 = 1;

/// What a person is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HappeningKind {
    /// A task is completed.
    Finished,
    /// A task failed and is not retried, or is blocked by something of its own.
    Failed,
    /// A task runs longer than its `stale_after`.
    Stale,
    /// Nothing runs and nothing waits any more.
    AllResolved,
}

/// One happening.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Happening {
    /// The format's number: 1.
    format: u32,
    /// What it is.
    pub event: HappeningKind,
    /// When.
    at: String,
    /// The plan's name.
    pub project: String,
    /// The task, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
    /// How many tasks stand where.
    summary: Summary,
}

/// What was seen last.
#[derive(Debug, Default)]
pub struct Watcher {
    seen: HashMap<String, (Status, u32, bool)>,
    was_settled: Option<bool>,
}

impl Watcher {
    /// What happened since the view before. The first view tells nothing: it was so when we came.
    pub fn look(&mut self, view: &View) -> Vec<Happening> {
        let first = self.was_settled.is_none();
        let mut happenings = Vec::new();
        let make = |event, task: Option<&TaskView>| Happening {
            format: FORMAT,
            event,
            at: super::time::exact(view.at),
            project: view.project.clone(),
            task: task.cloned(),
            summary: view.summary,
        };
        let mut seen = HashMap::with_capacity(view.tasks.len());
        for task in &view.tasks {
            let now = (task.status, task.attempt, task.stale);
            let was = self.seen.get(&task.id).copied();
            seen.insert(task.id.clone(), now);
            if first || was == Some(now) {
                continue;
            }
            let ended = was.is_none_or(|(status, attempt, _)| (status, attempt) != (task.status, task.attempt));
            match task.status {
                Status::Completed if ended => happenings.push(make(HappeningKind::Finished, Some(task))),
                Status::Failed if ended => happenings.push(make(HappeningKind::Failed, Some(task))),
                Status::Blocked if ended && task.reason != Some(Reason::DependencyFailed) => {
                    happenings.push(make(HappeningKind::Failed, Some(task)));
                }
                Status::Running if task.stale && !was.is_some_and(|(_, _, stale)| stale) => {
                    happenings.push(make(HappeningKind::Stale, Some(task)));
                }
                _ => {}
            }
        }
        self.seen = seen;
        let settled = view.is_settled();
        if settled && self.was_settled == Some(false) {
            happenings.push(make(HappeningKind::AllResolved, None));
        }
        self.was_settled = Some(settled);
        happenings
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, busy};
    use super::*;

    fn kinds(watcher: &mut Watcher, world: &World) -> Vec<(HappeningKind, Option<String>)> {
        let view = View::of(&world.snapshot(), "folder");
        watcher.look(&view).into_iter().map(|one| (one.event, one.task.map(|task| task.id))).collect()
    }

    #[test]
    fn a_happening_is_told_once_and_what_was_so_before_us_never() {
        let mut watcher = Watcher::default();
        assert_eq!(kinds(&mut watcher, &busy()), []);
        assert_eq!(kinds(&mut watcher, &busy().at(400)), []);
        let ended = busy().ended("slow", 1, 0, 500);
        let told = kinds(&mut watcher, &ended);
        assert_eq!(told, [(HappeningKind::Finished, Some("slow".to_owned()))]);
        assert_eq!(kinds(&mut watcher, &ended), []);
    }

    #[test]
    fn the_end_of_all_is_told_when_nothing_is_left_and_again_after_more_was_asked() {
        let one = || World::new(r#"{"id": "a", "prompt": "p"}"#);
        let mut watcher = Watcher::default();
        assert_eq!(kinds(&mut watcher, &one().running("a", 1, 0).at(5)), []);
        let over = [(HappeningKind::Failed, Some("a".to_owned())), (HappeningKind::AllResolved, None)];
        assert_eq!(kinds(&mut watcher, &one().running("a", 1, 0).ended("a", 1, 3, 9)), over);
        assert_eq!(kinds(&mut watcher, &one().running("a", 1, 0).at(20)), []);
        assert_eq!(kinds(&mut watcher, &one().running("a", 1, 0).ended("a", 1, 3, 30)), over);
    }
}
