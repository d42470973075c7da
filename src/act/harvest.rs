//! Takes in the result of an attempt: log, then git, then the journal. Nothing removes a container.

use jiff::{SignedDuration, Timestamp};

use super::capture::{LogFailure, capture_log};
use super::context::Context;
use super::error::{ActError, one_line};
use super::job::Job;
use super::launch::is_isolated;
use super::redact::Secrets;
use super::secrets::SecretValue;
use super::{report, secret_files};
use crate::clock::Moment;
use crate::git::{BranchResult, CommitId, GitError, ResultRequest};
use crate::observe::{AttemptKey, ContainerDetail, names};
use crate::plan::{Ending, Evidence, Reached, is_interrupted as interrupted, judge, reached};
use crate::record::{AttemptEnd, Entry, Next, StopCause, TaskRecord};
use crate::runtime::{LogOptions, RuntimeEvent};
use crate::spec::{Leftovers, Terms};

/// How often a log that could not be read is tried again before the result is recorded without it.
const LOG_RETRIES: u32 = 5;
/// Exit codes that an engine's or a machine's end leaves.
const SUSPICIOUS: [i64; 3] = [137, 143, 255];

/// What the end of an attempt adds beside the verdict.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    exit_code: Option<i64>,
    oom_killed: bool,
    head: Option<CommitId>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    log: Option<String>,
    log_error: Option<String>,
    verify_log: Option<String>,
    report: Option<String>,
    notes: Vec<String>,
}

impl Facts {
    /// What an agent gave whose result was being verified.
    fn of(end: &AttemptEnd) -> Self {
        Self {
            exit_code: end.exit_code,
            oom_killed: end.oom_killed,
            head: end.head.clone(),
            started_at: end.started_at,
            finished_at: None,
            log: end.log.clone(),
            log_error: end.log_error.clone(),
            verify_log: None,
            report: end.report.clone(),
            notes: Vec::new(),
        }
    }
}

/// Takes in the result of a container that ended.
pub(super) async fn harvest(context: &Context, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
    let Some(seen) = &job.container else { return Ok(()) };
    let Some(detail) = context.runtime.inspect(&context.instance(), &seen.id).await? else {
        events.push(RuntimeEvent::Removed(seen.clone()));
        return Ok(());
    };
    if detail.container.state.is_live() {
        // Somebody started it again; the result is what its next end gives.
        events.push(RuntimeEvent::Started(detail.container));
        return Ok(());
    }
    let mut facts = Facts {
        exit_code: Some(detail.exit_code),
        oom_killed: detail.oom_killed,
        started_at: detail.started_at,
        finished_at: detail.finished_at,
        ..Facts::default()
    };
    if let Some(verify) = job.record.current.as_ref().and_then(|current| current.verify.as_ref()) {
        return verified(context, job, &detail, Facts::of(&verify.end)).await;
    }
    let log = save_log(context, job, &detail.container.id, "log").await?;
    facts.report = report::take(context, &job.key, &known_secrets(context, job))?;
    facts.log = Some(log.path);
    facts.log_error = log.error;
    let interrupted = is_interrupted(context, job, &detail).await?;
    if detail.interrupted {
        facts.notes.push(detail.error.clone());
    }
    let ending = match take_result(context, job).await {
        Ok(result) => {
            facts.head = Some(result.head);
            facts.notes.extend(result.notes);
            let exited = Ending::Exited {
                code: detail.exit_code,
                oom_killed: detail.oom_killed,
                interrupted,
                commits: result.commits,
                had_leftovers: result.had_leftovers,
            };
            reclassed(context, job, &detail, &log.bytes).unwrap_or(exited)
        }
        Err(Some(GitError::Refused { reason, kept })) => {
            let kept = kept.map_or_else(
                || {
                    format!(
                        "; what it committed is kept in {}",
                        context.shown(&context.attempt_dir(&job.key).join("git"))
                    )
                },
                |kept| format!("; its commits are kept at {kept}"),
            );
            Ending::Refused { code: detail.exit_code, why: format!("{reason}{kept}") }
        }
        // Without a record of its worktree (`None`), the container cannot have been ours to start.
        Err(None | Some(GitError::WorktreeLost(_))) => Ending::WorktreeLost { code: detail.exit_code },
        Err(Some(error)) => return Err(error.into()),
    };
    finish(context, &job.key, &ending, facts)
}

/// What the end of the log says of an exit code: that there was nothing to run, or that a provider's limit was reached.
fn reclassed(context: &Context, job: &Job, detail: &ContainerDetail, log: &[u8]) -> Option<Ending> {
    let code = detail.exit_code;
    let record = context.known(&job.key.task);
    let current = record.current.as_ref().filter(|current| current.stop.is_none())?;
    if let Some(error) = not_executed(code, log) {
        return Some(Ending::StartFailed { error });
    }
    let limit = current.terms.rate_limit.as_ref()?;
    let Reached { words, pause } = reached(limit, code, log, record.rate_limits, context.clock.now().wall)?;
    Some(Ending::RateLimited { code, words, pause })
}

/// The init process starts well whatever it is to run; only its last words tell that it could not run it.
fn not_executed(code: i64, log: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(log).ok()?.trim();
    if !matches!(code, 126 | 127) || line.contains('\n') {
        return None;
    }
    let (_, failed) = line.strip_prefix("[FATAL tini ").and_then(|rest| rest.split_once("exec "))?;
    let (command, why) = failed.rsplit_once(" failed: ")?;
    let what = if code == 127 { "the image has no command" } else { "the image's user may not run" };
    Some(format!("{what} `{command}` ({why})"))
}

/// Takes in what a verification gave.
async fn verified(context: &Context, job: &Job, detail: &ContainerDetail, mut facts: Facts) -> Result<(), ActError> {
    let log = save_log(context, job, &detail.container.id, "verify.log").await?;
    facts.finished_at = detail.finished_at;
    facts.verify_log = Some(log.path.clone());
    let ending = if let Some(why) = not_executed(detail.exit_code, &log.bytes) {
        Ending::Unverified { why }
    } else {
        let interrupted = is_interrupted(context, job, detail).await?;
        Ending::Verified { code: detail.exit_code, interrupted, log: Some(log.path) }
    };
    finish(context, &job.key, &ending, facts)
}

/// Records an end that has no container to look at any more, or none that ever ran.
pub(super) async fn end(
    context: &Context,
    key: &AttemptKey,
    ending: &Ending,
    job: Option<&Job>,
) -> Result<(), ActError> {
    let mut facts = Facts::default();
    if let Some(verify) = context.known(&key.task).current.and_then(|current| current.verify) {
        let ending = match ending {
            Ending::StartFailed { error } => Ending::Unverified { why: error.clone() },
            Ending::Lost => Ending::Unverified { why: "its container is gone, removed by somebody else".to_owned() },
            other => other.clone(),
        };
        return finish(context, key, &ending, Facts::of(&verify.end));
    }
    if let Some(job) = job {
        facts.log_error = Some("the container is gone, and its output with it".to_owned());
        // Its work is kept where it is; what can be taken in is.
        facts.head = match take_result(context, job).await {
            Ok(result) => Some(result.head),
            Err(Some(error)) if error.is_transient() => return Err(error.into()),
            Err(_) => None,
        };
    } else {
        facts.log_error = Some("it never ran, so it wrote nothing".to_owned());
    }
    finish(context, key, ending, facts)
}

fn finish(context: &Context, key: &AttemptKey, ending: &Ending, facts: Facts) -> Result<(), ActError> {
    let now = context.clock.now();
    let mut record = context.known(&key.task);
    let Some(current) = &mut record.current else { return Ok(()) };
    let terms = current.terms.clone();
    if current.stop == Some(StopCause::Deadline) && ended_in_time(&facts, &terms) {
        // Our picture was older than its end, and the stop met nobody.
        current.stop = None;
    }
    let verdict = judge(ending, &terms, &record);
    let known = record.current.as_ref().and_then(|current| current.verify.as_ref()).map(|verify| &verify.end);
    let message = std::iter::once(verdict.message).chain(facts.notes).collect::<Vec<_>>().join("; ");
    let end = AttemptEnd {
        reason: verdict.reason,
        message,
        exit_code: facts.exit_code,
        oom_killed: facts.oom_killed,
        head: facts.head,
        result: verdict.result.or(known.and_then(|known| known.result)),
        started_at: facts.started_at,
        finished_at: facts.finished_at.unwrap_or(now.wall),
        log: facts.log,
        log_error: facts.log_error,
        verify_log: facts.verify_log,
        report: facts.report,
    };
    if verdict.next == Next::Complete && terms.verify.is_some() && known.is_none() {
        context.record(&Entry::Verifying { key: key.clone(), end, at: now.moment() })?;
        return Ok(());
    }
    context.record(&Entry::Ended { key: key.clone(), end, next: verdict.next, at: now.moment() })?;
    secret_files::remove(context.secrets.folders(), &context.instance(), key);
    Ok(())
}

fn ended_in_time(facts: &Facts, terms: &Terms) -> bool {
    let (Some(from), Some(to), Some(timeout)) = (facts.started_at, facts.finished_at, terms.timeout()) else {
        return false;
    };
    SignedDuration::try_from(timeout).is_ok_and(|timeout| to.duration_since(from) < timeout)
}

/// Whether the engine or the machine ended it. An ordinary end costs no call.
async fn is_interrupted(context: &Context, job: &Job, detail: &ContainerDetail) -> Result<bool, ActError> {
    let record = context.known(&job.key.task);
    let Some(current) = record.current.as_ref().filter(|current| current.stop.is_none() && !record.cancel) else {
        return Ok(false);
    };
    if detail.interrupted {
        return Ok(true);
    }
    if job.outages.is_empty() && !SUSPICIOUS.contains(&detail.exit_code) {
        return Ok(false);
    }
    let engine = context.runtime.probe().await?;
    let now = context.clock.now();
    let engine_now = engine.time.unwrap_or(now.wall);
    let by_its_clock = |lost: &Moment| engine_now.checked_sub(lost.age(&now)).unwrap_or(engine_now);
    Ok(interrupted(&Evidence {
        code: detail.exit_code,
        oom_killed: detail.oom_killed,
        started_at: detail.started_at,
        finished_at: detail.finished_at,
        engine_started_at: engine.started_at,
        // Who does not say so is not taken to end what runs.
        live_restore: engine.live_restore.unwrap_or(true),
        outages: job.outages.iter().map(by_its_clock).collect(),
        rebooted: current.running_since().is_some_and(|since| since.boot_id != now.boot_id),
    }))
}

/// The kept log, and why it is not whole.
struct SavedLog {
    path: String,
    bytes: Vec<u8>,
    error: Option<String>,
}

/// Keeps the log beside the prompt, secrets masked. An engine that has none (driver `none`) or lost it is told, not waited
/// for; what may pass is tried again a few times.
async fn save_log(context: &Context, job: &Job, container: &str, name: &str) -> Result<SavedLog, ActError> {
    let secrets = known_secrets(context, job);
    let log = capture_log(context.runtime.logs(container, LogOptions::default()), &secrets).await;
    let error = match log.failed {
        // What may be had later is waited for, but not for ever: a result is worth more than its log.
        Some(LogFailure::Runtime(error)) if error.kind.is_transient() && job.failures < LOG_RETRIES => {
            return Err(error.into());
        }
        Some(failure) => Some(one_line(&failure)),
        None => None,
    };
    let dir = context.attempt_dir(&job.key);
    let path = dir.join(name);
    context.files.create_dir_all(&dir)?;
    let temp = context.files.write_temp(&dir, "log.tmp-", &log.captured.bytes, None)?;
    context.files.rename(&temp, &path)?;
    context.files.sync_dir(&dir)?;
    Ok(SavedLog { path: context.shown(&path), bytes: log.captured.bytes, error })
}

fn known_secrets(context: &Context, job: &Job) -> Secrets {
    let values: Vec<SecretValue> =
        job.spec.iter().flat_map(|spec| context.secrets.known(&spec.attempt.secrets)).collect();
    Secrets::new(values.iter().map(|value| value.expose().as_bytes()))
}

/// Takes in what the attempt left in git; `None` where no worktree was ever recorded for it.
async fn take_result(context: &Context, job: &Job) -> Result<BranchResult, Option<GitError>> {
    let record: TaskRecord = context.known(&job.key.task);
    let current = record.current.as_ref().filter(|_| record.attempt == job.key.attempt);
    let (current, base, start) =
        current.and_then(|current| Some((current, current.base.clone()?, current.start.clone()?))).ok_or(None)?;
    let access = current.terms.git_access;
    let request = ResultRequest {
        path: names::worktree(&job.key.task),
        branch: names::branch_ref(&job.key.task),
        base,
        start,
        leftovers: leftovers(&current.terms),
        subject: format!("{}: uncommitted changes of attempt {}", job.key.task, job.key.attempt),
        kept_ref: names::kept_ref(&job.plan_id, &job.key),
        private: is_isolated(access).then(|| context.attempt_dir(&job.key)),
    };
    context.repository.take_result(&request).await.map_err(Some)
}

fn leftovers(terms: &Terms) -> Leftovers {
    // A task that forbids leftovers fails for them; they stay where they are.
    match terms.leftovers {
        Leftovers::Fail => Leftovers::Keep,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_init_that_found_no_command_says_so_in_its_only_line() {
        let log = b"[FATAL tini (7)] exec no-such failed: No such file or directory\n";
        let told = not_executed(127, log).expect("told");
        assert!(told.contains("no command `no-such`"), "{told}");
        let log = b"[FATAL tini (7)] exec /project/x failed: Permission denied";
        assert!(not_executed(126, log).is_some_and(|told| told.contains("`/project/x` (Permission denied)")));
        assert_eq!(not_executed(1, log), None);
        assert_eq!(not_executed(127, b"sh: 1: make: not found"), None, "the agent ran");
        assert_eq!(not_executed(127, &[b"work\n", &log[..]].concat()), None);
    }
}
