//! The commands that look at and merge what a plan left, from its view alone: for where git cannot be asked. Pure.
//! `orchestrate review` knows more.

use std::collections::HashSet;

use super::view::{TaskView, View};
use crate::status::{ResultKind, Status};

/// Two commands for each branch that no other completed task's branch contains, in the plan's order. A task starts from
/// its dependencies' work, so its branch brings theirs.
pub fn merge_commands(view: &View) -> Vec<String> {
    let is_completed = |task: &&TaskView| task.status == Status::Completed && task.branch.is_some();
    let completed: Vec<&TaskView> = view.tasks.iter().filter(is_completed).collect();
    // A dependent that added nothing still holds what it started from.
    let contained: HashSet<&str> =
        completed.iter().flat_map(|task| task.dependencies.iter().map(String::as_str)).collect();
    let has_work = |task: &TaskView| task.result != Some(ResultKind::Empty) || !task.dependencies.is_empty();
    let tops = completed.iter().filter(|task| !contained.contains(task.id.as_str()) && has_work(task));
    tops.filter_map(|task| task.branch.as_deref())
        .flat_map(|branch| [format!("git diff HEAD...{branch}"), format!("git merge --no-ff {branch}")])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::layout::tests::view;

    #[test]
    fn only_branches_that_no_other_one_brings_are_merged() {
        let done = Some(1);
        let mut view = view(&[
            ("a", &[], done),
            ("b", &["a"], done),
            ("c", &["a"], None),
            ("d", &[], done),
            ("nothing", &[], done),
        ]);
        for task in &mut view.tasks {
            task.branch = Some(format!("agent/{}", task.id));
            task.result = Some(if task.id == "nothing" { ResultKind::Empty } else { ResultKind::Changed });
        }
        let commands = merge_commands(&view);
        assert_eq!(
            commands,
            [
                "git diff HEAD...agent/b",
                "git merge --no-ff agent/b",
                "git diff HEAD...agent/d",
                "git merge --no-ff agent/d"
            ]
        );
    }
}
