//! The one place where effects are done: one job at a time for each task, any number of tasks at once.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::error::{ActError, Disposition};
use super::hold;
use super::job::{Failure, Job, Outcome};
use super::{harvest, launch, start};
use crate::plan::{Action, Ending};
use crate::record::{Entry, Hold, StopCause};
use crate::runtime::{ErrorKind, RuntimeEvent};

/// Between asking a container to end and making it end.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Does jobs.
#[derive(Clone)]
pub struct Executor {
    context: Arc<Context>,
}

impl Executor {
    /// Over a repository's context.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Does one job. A failure is data; it never stops others.
    pub async fn perform(&self, job: Job) -> Outcome {
        let mut events = Vec::new();
        let failure = match self.act(&job, &mut events).await {
            Ok(()) => None,
            Err(error) => self.fail(&job, error).await,
        };
        Outcome { key: job.key, action: job.action, events, failure }
    }

    async fn act(&self, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
        let context = self.context.as_ref();
        match job.action {
            Action::Launch { .. } if job.record.is_verifying() => launch::verify(context, job, events).await,
            Action::Launch { .. } => launch::launch(context, job, events).await,
            Action::Start => start::resume(context, job, events).await,
            Action::Harvest => harvest::harvest(context, job, events).await,
            Action::Stop(cause) => self.stop(job, cause, events).await,
            Action::Lose => harvest::end(context, &job.key, &Ending::Lost, Some(job)).await,
            Action::EndCancelled => start::end_cancelled(context, job, events).await,
        }
    }

    async fn stop(&self, job: &Job, cause: StopCause, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
        let Some(container) = &job.container else { return Ok(()) };
        if job.record.current.as_ref().is_some_and(|current| current.stop.is_none()) {
            let at = self.context.moment();
            self.context.record(&Entry::StopIntent { key: job.key.clone(), cause, at })?;
        }
        match self.context.runtime.stop(&container.id, STOP_GRACE).await {
            Ok(()) => events.push(RuntimeEvent::Exited(container.clone())),
            Err(error) if error.kind == ErrorKind::NotFound => events.push(RuntimeEvent::Removed(container.clone())),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn fail(&self, job: &Job, error: ActError) -> Option<Failure> {
        let unknown_start = start::is_unknown_start(&error);
        match error.disposition() {
            Disposition::Fatal(error) => Some(Failure::Fatal(error)),
            Disposition::Retry { message, runtime_away, .. } => {
                Some(Failure::Retry { message, runtime_away, unknown_start })
            }
            // The attempt is over but for its verification, and nothing is gained by holding that.
            Disposition::Hold(hold) if job.record.is_verifying() => {
                let ending = Ending::StartFailed { error: hold.message };
                match harvest::end(&self.context, &job.key, &ending, None).await.map_err(ActError::disposition) {
                    Ok(()) => None,
                    Err(Disposition::Fatal(error)) => Some(Failure::Fatal(error)),
                    Err(Disposition::Retry { message, .. } | Disposition::Hold(Hold { message, .. })) => {
                        Some(Failure::Retry { message, runtime_away: false, unknown_start })
                    }
                }
            }
            // Only a launch can be held; a container that exists is not given up for what an engine refuses.
            Disposition::Hold(hold) if !matches!(job.action, Action::Launch { .. }) => {
                Some(Failure::Retry { message: hold.message, runtime_away: false, unknown_start })
            }
            Disposition::Hold(hold) => self.hold(job, hold).await,
        }
    }

    async fn hold(&self, job: &Job, mut hold: Hold) -> Option<Failure> {
        if let Some(spec) = &job.spec {
            hold.key = hold::fingerprint(&self.context, spec, &job.heads, hold.reason).await;
        }
        let entry = Entry::Held { task: job.key.task.clone(), hold, at: self.context.moment() };
        match self.context.record(&entry).map_err(ActError::from).map_err(ActError::disposition) {
            Ok(()) => None,
            Err(Disposition::Fatal(error)) => Some(Failure::Fatal(error)),
            Err(Disposition::Retry { message, .. }) => {
                Some(Failure::Retry { message, runtime_away: false, unknown_start: false })
            }
            Err(Disposition::Hold(hold)) => {
                Some(Failure::Retry { message: hold.message, runtime_away: false, unknown_start: false })
            }
        }
    }
}
