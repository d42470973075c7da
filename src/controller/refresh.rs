//! How a reconciler comes by what is desired: its files are read where they changed, judged, and served; and what becomes
//! of the tasks is published in the plan file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::desired::{self, Adoption};
use super::error::RunError;
use super::publishing::{PublishResult, Publishing};
use super::reconciler::Reconciler;
use super::sources::{Content, SETTLED};
use crate::plan::Plan;
use crate::record::{PARTIAL_PATIENCE, PlanFileError, Stamp};
use crate::spec::{TaskId, TaskSet};
use crate::status::{Published, TaskStatus};

/// The newest valid content of the files, and the newest fault.
pub(super) struct Desired {
    pub(super) tasks: Arc<TaskSet>,
    content: Content,
    /// Tasks of the YAML spec, which need blocks in the plan file, and those whose blocks are left over.
    ties: Arc<(Vec<TaskId>, Vec<TaskId>)>,
    pub(super) fault: Option<RunError>,
}

/// A YAML spec whose writer may not be done.
pub(super) struct Settling {
    stamp: Option<Stamp>,
    /// Since when it stands as it is.
    since: Instant,
    /// Since when it is not what was last judged.
    began: Instant,
}

/// What a look at the files gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was read anew may have to be published over, and what settles has to be looked at again"]
pub(super) enum Refreshed {
    /// They are as they were.
    Same,
    /// They were read and judged anew.
    Anew,
    /// Somebody may still be writing; look again after so long.
    Settling(Duration),
}

impl Reconciler {
    /// Reads the files where they changed, and takes in what they ask. What cannot be accepted changes nothing: its fault
    /// is kept and what was last accepted goes on.
    pub(super) async fn refresh(&mut self, patience: Duration) -> Result<Refreshed, RunError> {
        if let Some(desired) = &self.desired {
            // A file that could not be read may be readable again without having changed.
            let is_unread = desired.fault.as_ref().is_some_and(|fault| !matches!(fault, RunError::Invalid { .. }));
            if !is_unread && !self.sources.has_changed(&desired.content) {
                self.settling = None;
                return Ok(Refreshed::Same);
            }
        }
        if let Some(pause) = self.settles(patience) {
            return Ok(Refreshed::Settling(pause));
        }
        self.settling = None;
        let read = self.sources.read(patience, &self.now()).await;
        let judged = match read {
            Ok(content) => self.judge(content),
            Err(error) => Err(error),
        };
        match (judged, &mut self.desired) {
            (Err(error @ (RunError::PlanFile(_) | RunError::NoSpec { .. })), Some(desired)) => {
                desired.fault = Some(error);
            }
            (judged, _) => judged?,
        }
        Ok(Refreshed::Anew)
    }

    /// How long a changed YAML spec is yet to be left alone. Who is patient waits while reading instead.
    fn settles(&mut self, patience: Duration) -> Option<Duration> {
        let seen = &self.desired.as_ref().filter(|_| patience.is_zero())?.content;
        let (true, stamp) = self.sources.look_at_spec(seen) else { return None };
        let now = Instant::now();
        let settling = self.settling.get_or_insert_with(|| Settling { stamp: stamp.clone(), since: now, began: now });
        if settling.stamp != stamp {
            (settling.stamp, settling.since) = (stamp, now);
        }
        let left = SETTLED.saturating_sub(now - settling.since);
        // Who never comes to an end is believed in the end.
        (!left.is_zero() && now - settling.began < PARTIAL_PATIENCE).then_some(left)
    }

    /// The fault of the newest content, where it is not accepted; an error where none ever was.
    pub(super) fn require_desired(&mut self) -> Result<(), RunError> {
        match &mut self.desired {
            Some(Desired { fault: None, .. }) => Ok(()),
            Some(desired) => Err(desired.fault.take().expect("BUG: matched above")),
            None => Err(self.no_desired()),
        }
    }

    /// Whether the newest content of the files is the accepted one.
    pub(super) fn is_desired_valid(&self) -> bool {
        self.desired.as_ref().is_some_and(|desired| desired.fault.is_none())
    }

    fn judge(&mut self, mut content: Content) -> Result<(), RunError> {
        if content.plan.is_none() && self.desired.as_ref().is_some_and(|desired| desired.content.plan.is_some()) {
            // Somebody took it away, perhaps for a moment: git does so when it switches branches.
            return Err(self.no_desired());
        }
        let judged = self.sources.judge(&content, self.context.journal().ledger());
        let mut accepted = match judged {
            Ok(accepted) => accepted,
            Err(fault) => {
                let Some(desired) = &mut self.desired else { return Err(fault) };
                desired.content = content;
                desired.fault = Some(fault);
                return Ok(());
            }
        };
        if content.plan.is_none() {
            self.sources.plan.ensure_exists()?;
            content.plan = Some(self.sources.plan.read()?);
            accepted = self.sources.judge(&content, self.context.journal().ledger())?;
        }
        let mut tasks = accepted.tasks;
        if let Some(cap) = self.max_concurrent {
            tasks.max_concurrent = cap;
        }
        self.warnings = accepted.warnings.iter().map(|warning| warning.message.clone()).collect();
        let mut asked: Vec<_> = tasks.tasks.iter().map(|task| &task.attempt).collect();
        // Tasks that ask for the same share it.
        asked.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let secrets = asked.iter().flat_map(|attempt| &attempt.secrets);
        self.warnings.extend(self.context.secrets.warnings(secrets));
        self.adopt(&tasks, &accepted.published)?;
        self.published = None;
        let ties = Arc::new((accepted.named, accepted.dropped));
        self.desired = Some(Desired { tasks: Arc::new(tasks), content, ties, fault: None });
        Ok(())
    }

    /// Makes the file's plan the served one and records what a person asked for.
    fn adopt(&mut self, tasks: &TaskSet, published: &[Published]) -> Result<(), RunError> {
        let now = self.now();
        let jitter = &mut self.jitter;
        let adoption = {
            let journal = self.context.journal();
            desired::adopt(tasks, published, journal.ledger(), &now, || format!("p-{}", jitter.id()))
        };
        let entries = match adoption {
            Adoption::New(entries) => entries,
            Adoption::Served => {
                let stands = self.plan_for(tasks, &now);
                desired::requests(tasks, published, &stands, self.context.journal().ledger(), &now)
            }
        };
        for entry in &entries {
            self.context.record(entry)?;
            if let Some(task) = entry.task() {
                self.memory.backoff.remove(task);
            }
        }
        Ok(())
    }

    /// The error where nothing was ever accepted.
    pub(super) fn no_desired(&self) -> RunError {
        PlanFileError::Missing { path: self.sources.plan.path().to_owned() }.into()
    }

    /// What has to be published, where the file does not say it yet.
    pub(super) fn unpublished(&self, tasks: &TaskSet, plan: &Plan) -> Option<Publishing> {
        let desired = self.desired.as_ref().filter(|desired| desired.fault.is_none())?;
        let wanted = |(spec, status): (&crate::spec::TaskSpec, &TaskStatus)| (spec.id.clone(), status.clone());
        let statuses: HashMap<TaskId, TaskStatus> = tasks.tasks.iter().zip(&plan.tasks).map(wanted).collect();
        if self.published.as_ref() == Some(&statuses) {
            return None;
        }
        let plan_id = self.context.journal().ledger().plan_id().unwrap_or_default().to_owned();
        let seen = desired.content.plan.as_ref().map(|plan| plan.bytes.clone());
        let ties = Arc::clone(&desired.ties);
        Some(Publishing { file: self.sources.plan.clone(), plan_id, statuses, seen, ties })
    }

    /// Takes in what came of publishing.
    pub(super) fn take_published(&mut self, published: Publishing, result: PublishResult) -> Result<(), RunError> {
        let publication = result?;
        let Some(desired) = &mut self.desired else { return Ok(()) };
        if publication.foreign {
            let content = Content { plan: Some(publication.content), ..desired.content.clone() };
            return self.judge(content);
        }
        desired.content.plan = Some(publication.content);
        self.published = Some(published.statuses);
        Ok(())
    }

    /// Why the newest content of the files is not accepted.
    pub(super) fn fault(&self) -> Option<String> {
        self.desired.as_ref()?.fault.as_ref().map(|fault| crate::act::one_line(fault))
    }
}
