//! What an attempt's end means for its task. Pure.

use std::time::Duration;

use super::limit::MAX_RATE_LIMITS;
use crate::record::{Next, StopCause, TaskRecord};
use crate::spec::{EmptyPolicy, Leftovers, Terms};
use crate::status::{Reason, ResultKind};

/// How often in a row the engine or the host may interrupt a task before it fails.
pub const MAX_INTERRUPTIONS: u32 = 3;

/// The way in which an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Its container ended by itself or was stopped.
    Exited {
        /// The exit code.
        code: i64,
        /// The kernel killed one of its processes for memory.
        oom_killed: bool,
        /// The engine or the host ended it.
        interrupted: bool,
        /// Commits on the branch since the attempt began.
        commits: u64,
        /// Uncommitted changes were found.
        had_leftovers: bool,
    },
    /// Its container could not be started.
    StartFailed {
        /// The engine's words.
        error: String,
    },
    /// Its container is gone.
    Lost,
    /// Its worktree is gone.
    WorktreeLost {
        /// The exit code.
        code: i64,
    },
    /// What it left on its branch was refused.
    Refused {
        /// The exit code.
        code: i64,
        /// Why.
        why: String,
    },
    /// Its provider's limit was reached, which is no failure.
    RateLimited {
        /// The exit code.
        code: i64,
        /// The tool's words.
        words: String,
        /// How long to wait.
        pause: Duration,
    },
    /// Its result was verified.
    Verified {
        /// The exit code of what verified it.
        code: i64,
        /// The engine or the host ended it.
        interrupted: bool,
        /// Where its log is kept.
        log: Option<String>,
    },
    /// Its result could not be verified.
    Unverified {
        /// Why.
        why: String,
    },
    /// It never ran.
    NeverRan,
}

/// What is recorded of an end.
#[must_use = "record it"]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which kind of end.
    pub reason: Reason,
    /// The same for a person.
    pub message: String,
    /// What the attempt left.
    pub result: Option<ResultKind>,
    /// What follows.
    pub next: Next,
}

/// Judges an end by the terms that the attempt was launched under and by what happened to the task before.
pub fn judge(ending: &Ending, terms: &Terms, record: &TaskRecord) -> Verdict {
    let stop = record.current.as_ref().and_then(|current| current.stop);
    let result = result_of(ending, terms);
    let (reason, message) = match ending {
        Ending::Verified { code: 0, interrupted: false, .. } if stop.is_none() => {
            (Reason::Succeeded, verified_message(record))
        }
        _ => reason_of(ending, terms, stop),
    };
    let cancelled = record.cancel || stop == Some(StopCause::Cancel) || *ending == Ending::NeverRan;
    let next = match reason {
        _ if cancelled => Next::Cancel,
        Reason::Succeeded => Next::Complete,
        Reason::Interrupted => after_interruption(record),
        Reason::RateLimited => after_limit(ending, record),
        _ => after_failure(terms, record),
    };
    if cancelled {
        let message = match ending {
            Ending::Exited { code, .. } | Ending::RateLimited { code, .. } => {
                format!("cancelled; it ended with exit code {code}")
            }
            _ => "cancelled".to_owned(),
        };
        return Verdict { reason: Reason::CancelledByRequest, message, result, next };
    }
    Verdict { reason, message, result, next }
}

fn reason_of(ending: &Ending, terms: &Terms, stop: Option<StopCause>) -> (Reason, String) {
    match ending {
        Ending::Exited { interrupted: true, code, .. } => (
            Reason::Interrupted,
            format!("the engine or the host stopped it (exit code {code}); its work is kept on its branch"),
        ),
        Ending::Exited { code, .. } if stop == Some(StopCause::Deadline) => (
            Reason::DeadlineExceeded,
            format!("ran longer than its timeout of {} and was stopped (exit code {code})", human(terms.timeout())),
        ),
        Ending::Exited { code: 137, oom_killed: true, .. } => (
            Reason::OutOfMemory,
            "the kernel killed it for memory (exit code 137); give it more with `resources.memory`".to_owned(),
        ),
        Ending::Exited { code: 0, had_leftovers: true, .. } if terms.leftovers == Leftovers::Fail => {
            (Reason::LeftoversFound, "exited with 0 and left uncommitted changes, which `leftovers` forbids".to_owned())
        }
        Ending::Exited { code: 0, commits: 0, had_leftovers: false, .. } if terms.empty == EmptyPolicy::Fail => {
            (Reason::EmptyResult, "exited with 0 without a commit, which `empty` forbids".to_owned())
        }
        Ending::Exited { code: 0, oom_killed: true, .. } => {
            (Reason::Succeeded, "completed; a child process of it was killed for memory".to_owned())
        }
        Ending::Exited { code: 0, commits: 0, had_leftovers: false, .. } => {
            (Reason::Succeeded, "completed without a change".to_owned())
        }
        Ending::Exited { code: 0, had_leftovers: true, .. } if terms.leftovers == Leftovers::Keep => {
            (Reason::Succeeded, "completed; uncommitted changes are left in its worktree".to_owned())
        }
        Ending::Exited { code: 0, .. } => (Reason::Succeeded, "completed".to_owned()),
        Ending::Exited { code, .. } => (Reason::NonZeroExit, format!("exited with code {code}")),
        Ending::StartFailed { error } => (Reason::StartError, format!("its container could not be started: {error}")),
        Ending::Lost => (
            Reason::ContainerLost,
            "its container is gone, removed by somebody else; its worktree and branch are kept".to_owned(),
        ),
        Ending::WorktreeLost { code } => {
            (Reason::WorktreeLost, format!("exited with code {code}, and its worktree is gone; its branch is kept"))
        }
        Ending::Refused { code, why } => {
            (Reason::ResultRefused, format!("exited with code {code}, and what it left was refused: {why}"))
        }
        Ending::RateLimited { code, words, .. } => {
            (Reason::RateLimited, format!("its provider's limit was reached (exit code {code}): {words}"))
        }
        Ending::Verified { interrupted: true, code, .. } => (
            Reason::Interrupted,
            format!(
                "the engine or the host stopped `verify` (exit code {code}); the agent's work is kept on its branch"
            ),
        ),
        Ending::Verified { code, .. } if stop == Some(StopCause::Deadline) => (
            Reason::VerifyFailed,
            format!("`verify` ran longer than the timeout of {} (exit code {code})", human(terms.timeout())),
        ),
        Ending::Verified { code, log, .. } => {
            let log = log.as_ref().map(|log| format!("; its output is in {log}")).unwrap_or_default();
            (Reason::VerifyFailed, format!("the agent exited with 0, and `verify` with code {code}{log}"))
        }
        Ending::Unverified { why } => {
            (Reason::VerifyFailed, format!("the agent exited with 0, and `verify` could not be run: {why}"))
        }
        Ending::NeverRan => (Reason::CancelledByRequest, "cancelled before it ran".to_owned()),
    }
}

fn result_of(ending: &Ending, terms: &Terms) -> Option<ResultKind> {
    let Ending::Exited { commits, had_leftovers, .. } = ending else { return None };
    Some(match (*had_leftovers && terms.leftovers != Leftovers::Commit, commits) {
        (true, _) => ResultKind::Leftovers,
        (false, 0) => ResultKind::Empty,
        (false, _) => ResultKind::Changed,
    })
}

fn after_failure(terms: &Terms, record: &TaskRecord) -> Next {
    if record.failures >= terms.retries {
        return Next::Fail;
    }
    Next::Retry { reason: Reason::BackOff, pause_ms: millis(terms.retry_backoff().pause(record.failures + 1)) }
}

fn after_interruption(record: &TaskRecord) -> Next {
    if record.interruptions + 1 >= MAX_INTERRUPTIONS {
        return Next::Fail;
    }
    Next::Retry { reason: Reason::Interrupted, pause_ms: 0 }
}

fn after_limit(ending: &Ending, record: &TaskRecord) -> Next {
    match ending {
        Ending::RateLimited { pause, .. } if record.rate_limits + 1 < MAX_RATE_LIMITS => {
            Next::Retry { reason: Reason::RateLimited, pause_ms: millis(*pause) }
        }
        _ => Next::Fail,
    }
}

fn verified_message(record: &TaskRecord) -> String {
    let verify = record.current.as_ref().and_then(|current| current.verify.as_ref());
    let message = verify.map_or("completed", |verify| verify.end.message.as_str());
    format!("{message}; verified")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn human(span: Option<Duration>) -> String {
    span.and_then(|span| jiff::SignedDuration::try_from(span).ok()).map_or_else(String::new, |span| format!("{span:#}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::clock::Moment;
    use crate::record::{AttemptRecord, State};
    use crate::spec::SpecDigest;

    fn terms(change: impl FnOnce(&mut serde_json::Value)) -> Terms {
        let mut value = serde_json::json!({
            "timeout_ms": 60_000, "stale_after_ms": 1_800_000, "retries": 0,
            "retry_initial_ms": 10_000, "retry_max_ms": 300_000,
        });
        change(&mut value);
        serde_json::from_value(value).expect("terms")
    }

    fn record(stop: Option<StopCause>) -> TaskRecord {
        let moment = Moment { wall: jiff::Timestamp::UNIX_EPOCH, monotonic_ms: 0, boot_id: "b".into() };
        TaskRecord {
            state: State::Live,
            attempt: 1,
            current: Some(AttemptRecord {
                spec: SpecDigest("d".into()),
                host: String::new(),
                terms: terms(|_| ()),
                intended: moment,
                base: None,
                start: None,
                image: None,
                container_id: None,
                container: None,
                start_intent: None,
                start_tries: 0,
                started: None,
                stop,
                verify: None,
                end: None,
            }),
            ..TaskRecord::default()
        }
    }

    fn exited(code: i64) -> Ending {
        Ending::Exited { code, oom_killed: false, interrupted: false, commits: 1, had_leftovers: false }
    }

    #[rstest]
    #[case(0, Reason::Succeeded, Next::Complete)]
    #[case(1, Reason::NonZeroExit, Next::Fail)]
    #[case(255, Reason::NonZeroExit, Next::Fail)]
    fn exit_codes_speak(#[case] code: i64, #[case] reason: Reason, #[case] next: Next) {
        let verdict = judge(&exited(code), &terms(|_| ()), &record(None));
        assert_eq!((verdict.reason, verdict.next), (reason, next));
        assert_eq!(verdict.result, Some(ResultKind::Changed));
    }

    #[test]
    fn a_cancelled_attempt_is_cancelled_whatever_its_code() {
        for code in [0, 1, 143] {
            let verdict = judge(&exited(code), &terms(|t| t["retries"] = 3.into()), &record(Some(StopCause::Cancel)));
            assert_eq!((verdict.reason, verdict.next), (Reason::CancelledByRequest, Next::Cancel));
        }
    }

    #[test]
    fn a_deadline_fails_even_an_agent_that_exits_with_0_when_it_is_stopped() {
        let verdict = judge(&exited(0), &terms(|_| ()), &record(Some(StopCause::Deadline)));
        assert_eq!((verdict.reason, verdict.next), (Reason::DeadlineExceeded, Next::Fail));
        assert!(verdict.message.contains("1m"), "{}", verdict.message);
    }

    #[test]
    fn retries_wait_longer_each_time_and_end() {
        let terms = terms(|t| t["retries"] = 2.into());
        let mut record = record(None);
        let pauses: Vec<Option<u64>> = (0..3)
            .map(|failures| {
                record.failures = failures;
                judge(&exited(1), &terms, &record).next.pause().map(|pause| pause.as_secs())
            })
            .collect();
        assert_eq!(pauses, [Some(10), Some(20), None]);
    }

    #[test]
    fn interruptions_use_up_no_retry_and_the_third_in_a_row_fails() {
        let ending =
            Ending::Exited { code: 255, oom_killed: false, interrupted: true, commits: 0, had_leftovers: false };
        let mut record = record(None);
        for interruptions in 0..2 {
            record.interruptions = interruptions;
            let next = judge(&ending, &terms(|_| ()), &record).next;
            assert_eq!(next, Next::Retry { reason: Reason::Interrupted, pause_ms: 0 });
        }
        record.interruptions = 2;
        assert_eq!(judge(&ending, &terms(|_| ()), &record).next, Next::Fail);
    }

    #[test]
    fn a_reached_limit_uses_up_no_retry_and_the_twentieth_in_a_row_fails() {
        let ending = Ending::RateLimited { code: 1, words: "resets 3pm".into(), pause: Duration::from_secs(90) };
        let mut record = record(None);
        record.rate_limits = MAX_RATE_LIMITS - 2;
        let next = judge(&ending, &terms(|_| ()), &record).next;
        assert_eq!(next, Next::Retry { reason: Reason::RateLimited, pause_ms: 90_000 });
        record.rate_limits += 1;
        let verdict = judge(&ending, &terms(|t| t["retries"] = 3.into()), &record);
        assert_eq!((verdict.reason, verdict.next), (Reason::RateLimited, Next::Fail));
        record.cancel = true;
        assert_eq!(judge(&ending, &terms(|_| ()), &record).next, Next::Cancel);
    }

    #[rstest]
    #[case(Ending::Verified { code: 0, interrupted: false, log: None }, Reason::Succeeded, Next::Complete)]
    #[case(Ending::Verified { code: 2, interrupted: false, log: Some("v.log".into()) }, Reason::VerifyFailed, Next::Fail)]
    #[case(Ending::Unverified { why: "gone".into() }, Reason::VerifyFailed, Next::Fail)]
    fn verification_speaks_by_its_code(#[case] ending: Ending, #[case] reason: Reason, #[case] next: Next) {
        let verdict = judge(&ending, &terms(|_| ()), &record(None));
        assert_eq!((verdict.reason, verdict.next), (reason, next));
        let late = judge(&ending, &terms(|_| ()), &record(Some(StopCause::Deadline)));
        assert_eq!(late.reason, Reason::VerifyFailed, "a deadline that passed is no success");
        assert_eq!(judge(&ending, &terms(|_| ()), &record(Some(StopCause::Cancel))).next, Next::Cancel);
    }

    #[rstest]
    #[case::with_a_code_of_its_own(0)]
    #[case::killed(137)]
    fn an_interrupted_verification_says_nothing_of_the_result(#[case] code: i64) {
        let ending = Ending::Verified { code, interrupted: true, log: None };
        let verdict = judge(&ending, &terms(|t| t["retries"] = 0.into()), &record(None));
        let again = Next::Retry { reason: Reason::Interrupted, pause_ms: 0 };
        assert_eq!((verdict.reason, verdict.next), (Reason::Interrupted, again));
    }

    #[test]
    fn memory_kills_are_named() {
        let oom =
            |code| Ending::Exited { code, oom_killed: true, interrupted: false, commits: 1, had_leftovers: false };
        assert_eq!(judge(&oom(137), &terms(|_| ()), &record(None)).reason, Reason::OutOfMemory);
        let survived = judge(&oom(0), &terms(|_| ()), &record(None));
        assert_eq!(survived.next, Next::Complete);
        assert!(survived.message.contains("memory"));
    }

    #[test]
    fn leftovers_and_emptiness_follow_the_terms() {
        let left = Ending::Exited { code: 0, oom_killed: false, interrupted: false, commits: 0, had_leftovers: true };
        let with = |word: &str| terms(|t| t["leftovers"] = word.into());
        assert_eq!(judge(&left, &with("fail"), &record(None)).reason, Reason::LeftoversFound);
        assert_eq!(judge(&left, &with("keep"), &record(None)).result, Some(ResultKind::Leftovers));
        let empty = Ending::Exited { code: 0, oom_killed: false, interrupted: false, commits: 0, had_leftovers: false };
        assert_eq!(judge(&empty, &terms(|_| ()), &record(None)).result, Some(ResultKind::Empty));
        assert_eq!(judge(&empty, &terms(|t| t["empty"] = "fail".into()), &record(None)).reason, Reason::EmptyResult);
    }

    #[test]
    fn what_never_ran_or_is_lost_is_said() {
        assert_eq!(judge(&Ending::NeverRan, &terms(|_| ()), &record(None)).next, Next::Cancel);
        let lost = judge(&Ending::Lost, &terms(|t| t["retries"] = 1.into()), &record(None));
        assert_eq!(lost.reason, Reason::ContainerLost);
        assert_eq!(lost.next.pause(), Some(Duration::from_secs(10)));
    }
}
