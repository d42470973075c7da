//! What a person asked for by changing `status` in the plan file.

use serde::{Deserialize, Serialize};

use super::status::{Reason, Status};

/// Something that a person wants of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Run it (again), as a new attempt.
    Run,
    /// Stop it if it runs, and never launch it.
    Cancel,
}

/// What the plan file says of a task now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// The `status` word; `None` where the field is missing or not a status.
    pub status: Option<Status>,
    /// The `attempt` number; 0 where the field is missing.
    pub attempt: u32,
    /// The `reason`; `None` where the field is missing or no reason of ours.
    pub reason: Option<Reason>,
}

/// Reads a request out of the file's `found` block, given what the journal would publish.
///
/// A change is a request only where the block belongs to the journal's current attempt. Any other difference is a file
/// that was rolled back (`git stash`, checkout, an older copy) or damaged, and is repaired by writing the truth again. So
/// is a `pending` that stands beside a reason to be pending: nobody wrote that word, it is ours, and the file lags behind.
pub fn request(found: Published, truth: Published) -> Option<Request> {
    if found.attempt != truth.attempt || found.status == truth.status {
        return None;
    }
    let is_behind = found.reason.is_some_and(Reason::is_of_pending);
    match (found.status?, truth.status?) {
        (Status::Pending, _) if is_behind => None,
        (Status::Pending, Status::Completed | Status::Failed | Status::Blocked | Status::Cancelled) => {
            Some(Request::Run)
        }
        (Status::Cancelled, Status::Pending | Status::Running | Status::Blocked) => Some(Request::Cancel),
        // What waits anyway needs no request, a running attempt is not restarted by a word that may be a rollback, and a
        // result that is in is not called off. Only we say that something runs, ended or is blocked.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(status: Status, attempt: u32) -> Published {
        Published { status: Some(status), attempt, reason: None }
    }

    #[test]
    fn only_pending_and_cancelled_of_the_current_attempt_are_requests() {
        for found in Status::ALL {
            for truth in Status::ALL {
                let expected = match (found, truth) {
                    (Status::Pending, Status::Completed | Status::Failed | Status::Blocked | Status::Cancelled) => {
                        Some(Request::Run)
                    }
                    (Status::Cancelled, Status::Pending | Status::Running | Status::Blocked) => Some(Request::Cancel),
                    _ => None,
                };
                assert_eq!(request(block(found, 2), block(truth, 2)), expected, "{found} over {truth}");
                assert_eq!(request(block(found, 1), block(truth, 2)), None, "{found} over {truth}, older attempt");
            }
        }
    }

    #[test]
    fn a_word_beside_its_own_reason_is_ours_and_one_beside_another_is_a_persons() {
        let truth = block(Status::Blocked, 0);
        let found = |reason| Published { reason: Some(reason), ..block(Status::Pending, 0) };
        assert_eq!(request(found(Reason::WaitingForDependencies), truth), None);
        assert_eq!(request(found(Reason::BackOff), truth), None);
        assert_eq!(request(found(Reason::MergeConflict), truth), Some(Request::Run));
        assert_eq!(request(found(Reason::Succeeded), block(Status::Completed, 0)), Some(Request::Run));
    }

    #[test]
    fn a_missing_word_is_a_rollback() {
        assert_eq!(request(Published::default(), block(Status::Completed, 0)), None);
    }
}
