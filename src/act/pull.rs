//! The image of an attempt: looked for, and fetched where the policy says so. One fetch serves all who want the image.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytesize::ByteSize;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Notify;

use super::context::Context;
use super::error::ActError;
use super::job::Job;
use super::launch::image_mend;
use crate::clock::Moment;
use crate::runtime::{ErrorKind, ImageInfo, PullProgress, Runtime, RuntimeError};
use crate::spec::{AttemptSpec, PullPolicy};
use crate::status::Reason;

/// Between two tellings of how far a fetch is.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How soon a person's cancel ends the wait.
const LOOK_AT_CANCEL: Duration = Duration::from_secs(1);
/// Before an unreachable registry is asked again; doubles up to the second.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

type Fetching = BoxFuture<'static, Result<(), RuntimeError>>;

/// Fetches that are under way, and what those came to that found no registry.
#[derive(Default)]
pub(super) struct Pulls {
    /// Held by those who wait: when the last of them gives up, the fetch ends.
    running: Mutex<HashMap<String, WeakShared<Fetching>>>,
    away: Mutex<HashMap<String, Away>>,
    notices: Arc<Notices>,
}

struct Away {
    since: Moment,
    tries: u32,
}

/// What people are told while a job is under way.
#[derive(Default)]
pub struct Notices {
    waiting: Mutex<std::collections::VecDeque<String>>,
    wake: Notify,
}

impl Notices {
    fn tell(&self, text: String) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(text);
        self.wake.notify_one();
    }

    /// The next one, where there is one.
    pub fn take(&self) -> Option<String> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Waits for the next one.
    pub async fn next(&self) -> String {
        loop {
            if let Some(text) = self.take() {
                return text;
            }
            self.wake.notified().await;
        }
    }
}

impl Pulls {
    /// What people are to be told.
    pub(super) fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Whether a registry that was away should be asked again by now.
    pub(super) fn due(&self, reference: &str, now: &crate::clock::Now) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.get(reference).is_some_and(|away| away.since.age(now) >= away.pause())
    }

    fn fetch(&self, runtime: &Arc<dyn Runtime>, reference: &str) -> Shared<Fetching> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fetch) = running.get(reference).and_then(WeakShared::upgrade) {
            return fetch;
        }
        let (runtime, notices, image) = (Arc::clone(runtime), Arc::clone(&self.notices), reference.to_owned());
        let fetch = async move { fetch(runtime.as_ref(), &notices, &image).await }.boxed().shared();
        running.extend(fetch.downgrade().map(|weak| (reference.to_owned(), weak)));
        fetch
    }

    fn over(&self, reference: &str, result: &Result<(), RuntimeError>, now: Moment) {
        if self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(reference).is_none() {
            // Another who waited for it was first.
            return;
        }
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Err(error) if error.kind == ErrorKind::RegistryAway => {
                let entry = away.entry(reference.to_owned()).or_insert(Away { since: now.clone(), tries: 0 });
                entry.since = now;
                entry.tries += 1;
            }
            _ => drop(away.remove(reference)),
        }
    }
}

impl Away {
    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.tries.saturating_sub(1).min(8)).min(LONGEST_PAUSE)
    }
}

/// The attempt's image; `None` where none is asked for. Fetched before anything is made, so that giving up costs nothing.
pub(super) async fn image(context: &Context, job: &Job, spec: &AttemptSpec) -> Result<Option<ImageInfo>, ActError> {
    let Some(reference) = &spec.image else { return Ok(None) };
    let known = context.runtime.image(reference).await?;
    // What verifies a result runs in the image that the result was made in.
    let is_wanted = match spec.pull {
        PullPolicy::Never => false,
        PullPolicy::IfMissing => known.is_none(),
        PullPolicy::Always => known.is_none() || !job.record.is_verifying(),
    };
    if !is_wanted {
        let missing = || missing(&*context.runtime, reference, "");
        return known.map(Some).ok_or_else(missing);
    }
    match wait(context, job, reference).await {
        Ok(()) => {}
        // A runtime without images has nothing to fetch.
        Err(error) if error.kind == ErrorKind::Unsupported && known.is_some() => return Ok(known),
        Err(error) => return Err(refused(context, reference, error)),
    }
    let now_known = context.runtime.image(reference).await?;
    now_known.map(Some).ok_or_else(|| missing(&*context.runtime, reference, "; it was pulled and is gone again"))
}

async fn wait(context: &Context, job: &Job, reference: &str) -> Result<(), RuntimeError> {
    let fetch = context.pulls.fetch(&context.runtime, reference);
    tokio::pin!(fetch);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut fetch => break result,
            () = tokio::time::sleep(LOOK_AT_CANCEL) => {
                if context.known(&job.key.task).is_called_off() {
                    return Err(cancelled(reference));
                }
            }
        }
    };
    context.pulls.over(reference, &result, context.moment());
    result
}

fn cancelled(reference: &str) -> RuntimeError {
    RuntimeError {
        operation: crate::runtime::Operation::Pull,
        target: Some(reference.to_owned()),
        kind: ErrorKind::Engine,
        status: None,
        message: "the task was cancelled meanwhile".to_owned(),
    }
}

/// One fetch, told at its start, now and then, and at its end.
async fn fetch(runtime: &dyn Runtime, notices: &Notices, reference: &str) -> Result<(), RuntimeError> {
    notices.tell(format!("pulling image {reference}"));
    let began = tokio::time::Instant::now();
    let progress = Mutex::new(PullProgress::default());
    let sink = |now: PullProgress| *progress.lock().unwrap_or_else(PoisonError::into_inner) = now;
    let pull = runtime.pull(reference, &sink);
    tokio::pin!(pull);
    let mut beat = tokio::time::interval_at(began + HEARTBEAT, HEARTBEAT);
    let result = loop {
        tokio::select! {
            biased;
            result = &mut pull => break result,
            _ = beat.tick() => {
                let now = *progress.lock().unwrap_or_else(PoisonError::into_inner);
                notices.tell(format!("pulling image {reference}: {}", shown(now)));
            }
        }
    };
    let took = began.elapsed().as_secs_f64();
    match &result {
        Ok(()) => notices.tell(format!("pulled image {reference} in {took:.1} s")),
        Err(error) => notices.tell(format!("image {reference} could not be pulled: {}", error.message)),
    }
    result
}

fn shown(progress: PullProgress) -> String {
    let size = |bytes| ByteSize(bytes).display().iec();
    let PullProgress { layers, done, bytes, total } = progress;
    if layers == 0 {
        return "nothing heard from its registry yet".to_owned();
    }
    format!("{done} of {layers} layers, {} of {}", size(bytes), size(total))
}

/// The image is not there, and the next step.
pub(super) fn missing(runtime: &dyn Runtime, reference: &str, why: &str) -> ActError {
    let host = runtime.host();
    ActError::hold(Reason::ImageMissing, format!("image {reference} is not on {host}{why}; {}", image_mend(reference)))
}

/// What follows from a fetch that failed.
fn refused(context: &Context, reference: &str, error: RuntimeError) -> ActError {
    let why = &error.message;
    match error.kind {
        ErrorKind::ImageMissing => {
            missing(&*context.runtime, reference, &format!(", and its registry does not have it ({why})"))
        }
        ErrorKind::RegistryDenied => {
            let host = context.runtime.host();
            let message = format!(
                "image {reference} cannot be pulled to {host}, since its registry refuses ({why}); check the name, \
                 `docker login` as the user that orchestrate runs as, then `orchestrate retry`; or {}",
                image_mend(reference)
            );
            ActError::hold(Reason::ImageMissing, message)
        }
        ErrorKind::RegistryAway => missing(
            &*context.runtime,
            reference,
            &format!(" and its registry cannot be reached ({why}); it is asked again later"),
        ),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_layers_and_bytes() {
        let progress = PullProgress { layers: 3, done: 1, bytes: 5 << 20, total: 12 << 20 };
        assert_eq!(shown(progress), "1 of 3 layers, 5.0 MiB of 12.0 MiB");
        assert_eq!(shown(PullProgress::default()), "nothing heard from its registry yet");
    }
}
