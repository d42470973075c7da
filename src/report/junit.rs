//! A plan as a JUnit report, which every CI shows: one case for each task.

use std::collections::BTreeMap;
use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::view::{TaskView, View};
use crate::status::{Reason, Status};

/// The report. `tails` holds the end of the kept output by task, already redacted.
///
/// A failed task is a failure. A task that is blocked by itself (a missing image, a conflict) is an error, one that is
/// blocked by another is skipped, so that one broken task counts once. What has not ended is an error where it runs and
/// skipped where it waits: a report of an unfinished plan is never green by silence.
pub fn junit(view: &View, tails: &BTreeMap<String, String>) -> String {
    let mut report = Report::new("orchestrate");
    let mut suite = TestSuite::new(&*view.project);
    for task in &view.tasks {
        suite.add_test_case(case(view, task, tails.get(&task.id)));
    }
    suite.set_time(view.tasks.iter().filter_map(|task| task.seconds).map(Duration::from_secs).sum());
    report.add_test_suite(suite);
    report.to_string().expect("BUG: writing to memory cannot fail, and the text is UTF-8")
}

fn case(view: &View, task: &TaskView, tail: Option<&String>) -> TestCase {
    let mut status = match (task.status, task.reason) {
        (Status::Completed, _) => TestCaseStatus::success(),
        (Status::Failed, _) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        (Status::Blocked, Some(Reason::DependencyFailed)) | (Status::Pending | Status::Cancelled, _) => {
            TestCaseStatus::skipped()
        }
        (Status::Blocked | Status::Running, _) => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    if task.status != Status::Completed {
        status.set_type(task.reason.map_or(task.status.as_str(), Reason::as_str));
        status.set_message(match (task.status, &task.message) {
            (Status::Running, _) => "still running when this report was made".to_owned(),
            (_, Some(message)) => message.clone(),
            (status, None) => status.as_str().to_owned(),
        });
        if let Some(tail) = tail {
            status.set_description(tail);
        }
    }
    let mut case = TestCase::new(&*task.id, status);
    case.set_classname(&*view.project);
    case.set_time(Duration::from_secs(task.seconds.unwrap_or(0)));
    case.timestamp = task.started_at.and_then(|at| at.to_string().parse().ok());
    let facts = [
        ("branch", task.branch.clone()),
        ("head_commit", task.head_commit.clone()),
        ("attempt", (task.attempt > 0).then(|| task.attempt.to_string())),
        ("log", task.log.clone()),
    ];
    case.add_properties(facts.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
    case
}

#[cfg(test)]
mod tests {
    use super::super::fixture::busy;
    use super::*;

    #[test]
    fn every_task_is_one_case_and_nothing_that_is_not_done_looks_done() {
        let view = View::of(&busy().snapshot(), "folder");
        let tails = BTreeMap::from([("left".to_owned(), "so it \u{1b}[31mgoes\u{0} ]]> <b>\n".to_owned())]);
        let xml = junit(&view, &tails);
        assert_eq!(xml.matches("<testcase ").count(), view.tasks.len(), "{xml}");
        let unhappy = xml.matches("<failure").count() + xml.matches("<error").count() + xml.matches("<skipped").count();
        assert_eq!(unhappy, view.summary.total - view.summary.completed, "{xml}");
        let back = Report::deserialize_from_str(&xml).expect("reads back");
        let case = back.test_suites[0].test_cases.iter().find(|case| case.name.as_str() == "left").expect("there");
        let TestCaseStatus::NonSuccess { kind, description, .. } = &case.status else { panic!("{case:?}") };
        assert_eq!(*kind, NonSuccessKind::Failure);
        assert!(description.as_ref().is_some_and(|text| text.as_str().contains("so it goes ]]> <b>")), "{xml}");
    }
}
