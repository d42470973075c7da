//! Starts a container that was never started, and only such a one: an engine runs again what has ended.

use super::context::Context;
use super::error::ActError;
use super::harvest;
use super::job::Job;
use crate::observe::{AttemptKey, ContainerState, ObservedContainer};
use crate::plan::Ending;
use crate::record::Entry;
use crate::runtime::{ErrorKind, Operation, RuntimeError, RuntimeEvent};

/// Goes on with a container that the list shows as made: looks at it first, since `created` does not mean never tried.
pub(super) async fn resume(context: &Context, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
    let Some(seen) = &job.container else { return Ok(()) };
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
    if detail.exit_code != 0 || !detail.error.is_empty() {
        let error = if detail.error.is_empty() { format!("code {}", detail.exit_code) } else { detail.error };
        return harvest::end(context, &job.key, &Ending::StartFailed { error }, None).await;
    }
    start(context, &job.key, &detail.container, events).await
}

/// Sends the start request, its intent durable first.
pub(super) async fn start(
    context: &Context,
    key: &AttemptKey,
    container: &ObservedContainer,
    events: &mut Vec<RuntimeEvent>,
) -> Result<(), ActError> {
    context.record(&Entry::StartIntent { key: key.clone(), at: context.moment() })?;
    match context.runtime.start(&container.id).await {
        Ok(()) => {
            context.record(&Entry::Started { key: key.clone(), at: context.moment() })?;
            events.push(RuntimeEvent::Started(running(container)));
            Ok(())
        }
        Err(RuntimeError { kind: ErrorKind::StartRefused, message, .. }) => {
            harvest::end(context, key, &Ending::StartFailed { error: message }, None).await
        }
        Err(error) if error.kind == ErrorKind::NotFound => {
            events.push(RuntimeEvent::Removed(container.clone()));
            Ok(())
        }
        Err(error) => Err(error.into()),
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
