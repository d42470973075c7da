//! Starts a container that was never started, and only such a one: an engine runs again what has ended.

use std::time::Duration;

use super::context::Context;
use super::error::ActError;
use super::harvest;
use super::job::Job;
use crate::observe::{AttemptKey, ContainerDetail, ContainerState, ObservedContainer};
use crate::plan::Ending;
use crate::record::Entry;
use crate::runtime::{ErrorKind, Operation, RuntimeError, RuntimeEvent};

/// Goes on with a container that the list shows as made: looks at it first, since `created` does not mean never tried.
pub(super) async fn resume(context: &Context, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
    let Some(seen) = &job.container else { return Ok(()) };
    if context.journal().ledger().is_anothers_start(seen) {
        events.push(RuntimeEvent::Removed(seen.clone()));
        return Ok(());
    }
    let Some(detail) = context.runtime.inspect(&context.instance(), &seen.id).await? else {
        events.push(RuntimeEvent::Removed(seen.clone()));
        return Ok(());
    };
    if job.record.current.as_ref().is_some_and(|current| current.container_id.is_none()) {
        context.record(&Entry::Created {
            key: job.key.clone(),
            container_id: detail.container.id.clone(),
            container: detail.container.name.clone(),
            at: context.moment(),
        })?;
    }
    if detail.started_at.is_some() || detail.container.state != ContainerState::Created {
        events.push(match detail.container.state {
            ContainerState::Exited | ContainerState::Dead => RuntimeEvent::Exited(detail.container),
            _ => RuntimeEvent::Started(detail.container),
        });
        return note_running(context, &job.key);
    }
    let tried = context.known(&job.key.task).current.is_some_and(|current| current.start_tries > 0);
    if tried && has_failed(&detail) && is_final(context, &job.key, &detail) {
        return failed(context, &job.key, &detail).await;
    }
    start(context, &job.key, &detail.container, events).await
}

/// The engine's code for a start that failed by its own doing: a network, a mount, a driver.
const ENGINES_OWN: i64 = 128;
/// How soon after its record a start is sent. Whoever finds the record waits for as long as a request can be on its way,
/// counted from there; a process that slept meanwhile (stopped, moved to another host, a disk that hangs) would come too
/// late, to start what has run.
const SENT_WITHIN: Duration = Duration::from_secs(10);
/// How often a container whose start failed by the engine's doing is tried again.
const START_RETRIES: u32 = 5;

fn has_failed(detail: &ContainerDetail) -> bool {
    detail.exit_code != 0 || !detail.error.is_empty()
}

fn is_final(context: &Context, key: &AttemptKey, detail: &ContainerDetail) -> bool {
    let tries = context.known(&key.task).current.map_or(0, |current| current.start_tries);
    detail.exit_code != ENGINES_OWN || tries > START_RETRIES
}

/// A start that failed: the same container is tried again where it was the engine's doing, else the attempt is over.
async fn failed(context: &Context, key: &AttemptKey, detail: &ContainerDetail) -> Result<(), ActError> {
    let error = if detail.error.is_empty() { format!("code {}", detail.exit_code) } else { detail.error.clone() };
    if is_final(context, key, detail) {
        return harvest::end(context, key, &Ending::StartFailed { error }, None).await;
    }
    Err(RuntimeError {
        operation: Operation::Start,
        target: Some(detail.container.name.clone()),
        kind: ErrorKind::Engine,
        status: None,
        message: error,
    }
    .into())
}

/// Ends an attempt that a person cancelled, after a look that its container did not run after all.
pub(super) async fn end_cancelled(
    context: &Context,
    job: &Job,
    events: &mut Vec<RuntimeEvent>,
) -> Result<(), ActError> {
    if let Some(seen) = &job.container
        && let Some(detail) = context.runtime.inspect(&context.instance(), &seen.id).await?
        && (detail.started_at.is_some() || detail.container.state != ContainerState::Created)
    {
        events.push(match detail.container.state {
            ContainerState::Exited | ContainerState::Dead => RuntimeEvent::Exited(detail.container),
            _ => RuntimeEvent::Started(detail.container),
        });
        return note_running(context, &job.key);
    }
    harvest::end(context, &job.key, &Ending::NeverRan, None).await
}

/// Sends the start request, its intent durable first.
pub(super) async fn start(
    context: &Context,
    key: &AttemptKey,
    container: &ObservedContainer,
    events: &mut Vec<RuntimeEvent>,
) -> Result<(), ActError> {
    // A person may have called it off while it was being made.
    if context.known(&key.task).cancel {
        return Ok(());
    }
    let intended = context.moment();
    context.record(&Entry::StartIntent { key: key.clone(), at: intended.clone() })?;
    if intended.age(&context.clock.now()) > SENT_WITHIN {
        return Err(too_late(container).into());
    }
    match context.runtime.start(&container.id).await {
        Ok(()) => {
            events.push(RuntimeEvent::Started(running(container)));
            context.record(&Entry::Started { key: key.clone(), at: context.moment() })?;
            Ok(())
        }
        Err(error) if matches!(error.kind, ErrorKind::StartRefused | ErrorKind::Engine) => {
            // Only the container tells whose doing it was.
            let detail = context.runtime.inspect(&context.instance(), &container.id).await?;
            match detail.filter(|detail| detail.container.state == ContainerState::Created && has_failed(detail)) {
                Some(detail) => failed(context, key, &detail).await,
                None => Err(error.into()),
            }
        }
        Err(error) if error.kind == ErrorKind::NotFound => {
            events.push(RuntimeEvent::Removed(container.clone()));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn too_late(container: &ObservedContainer) -> RuntimeError {
    RuntimeError {
        operation: Operation::Start,
        target: Some(container.name.clone()),
        kind: ErrorKind::Unknown,
        status: None,
        message: "not sent, since its record took too long; it is looked at again".to_owned(),
    }
}

/// Records that a container runs or ran which we did not know to have been started.
pub(super) fn note_running(context: &Context, key: &AttemptKey) -> Result<(), ActError> {
    let known = context.known(&key.task);
    if known.current.as_ref().is_some_and(|current| current.start_intent.is_none()) {
        context.record(&Entry::StartIntent { key: key.clone(), at: context.moment() })?;
    }
    context.record(&Entry::Started { key: key.clone(), at: context.moment() })?;
    Ok(())
}

/// Whether an error leaves open if a start will yet take effect.
pub(super) fn is_unknown_start(error: &ActError) -> bool {
    matches!(error, ActError::Runtime(RuntimeError { kind: ErrorKind::Unknown, operation: Operation::Start, .. }))
}

fn running(container: &ObservedContainer) -> ObservedContainer {
    ObservedContainer { state: ContainerState::Running, ..container.clone() }
}
