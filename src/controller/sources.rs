//! The files that a plan is read from: the plan file, which holds the status of all tasks, and the YAML spec, which is laid
//! over it where there is one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{JudgedFile, RunError};
use crate::act::Ports;
use crate::clock::Now;
use crate::observe::names;
use crate::record::{FileSnapshot, Files, Journal, Ledger, PARTIAL_PATIENCE, PlanFile, PlanFileError, Stamp};
use crate::spec::{Accepted, Origin, ReadOptions, read_both};

/// How long a YAML spec has to stand as it is before it is believed. Half of one is mostly valid YAML, so that unlike with
/// JSON only time tells whether its writer is done.
pub(super) const SETTLED: Duration = Duration::from_millis(200);

/// Between two looks at a YAML spec that has just been written.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Which YAML spec lies over the plan file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SpecFile {
    /// None.
    #[default]
    None,
    /// The one of the usual name, where it is there.
    Usual(PathBuf),
    /// One that was asked for, and has to be there.
    Given(PathBuf),
}

impl SpecFile {
    /// Where it is or would be.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::None => None,
            Self::Usual(path) | Self::Given(path) => Some(path),
        }
    }
}

/// Reads and judges the files as they stand, for those who are about to ask something of them.
///
/// # Errors
/// [`RunError::Invalid`] with every fault, or that they cannot be read.
pub async fn accepted(ports: &Ports, plan_file: &Path, spec: &SpecFile) -> Result<Accepted, RunError> {
    let layout = ports.repository.layout();
    let sources = Sources::new(&ports.files, plan_file.to_owned(), layout.root.clone(), spec);
    let content = sources.read(PARTIAL_PATIENCE, &ports.clock.now()).await?;
    let ledger = Journal::read(ports.files.as_ref(), &names::state_dir(&layout.common_dir))?.ledger;
    sources.judge(&content, &ledger)
}

/// Where a plan is read from.
pub(super) struct Sources {
    pub(super) plan: PlanFile,
    spec: Option<PlanFile>,
    is_required: bool,
}

/// What stood in the files.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Content {
    /// The plan file; `None`: there is none yet, and a YAML spec is there to make one from.
    pub(super) plan: Option<FileSnapshot>,
    /// The YAML spec; `None`: there is none.
    pub(super) spec: Option<FileSnapshot>,
}

impl Content {
    fn spec_stamp(&self) -> Option<&Stamp> {
        self.spec.as_ref().map(|spec| &spec.stamp)
    }
}

impl Sources {
    /// These files. Touches nothing.
    pub(super) fn new(files: &Arc<dyn Files>, plan_file: PathBuf, root: PathBuf, spec: &SpecFile) -> Self {
        let is_required = matches!(spec, SpecFile::Given(_));
        // Who names a file means it, wherever a link leads; it is only read.
        let spec_root = if is_required { PathBuf::from("/") } else { root.clone() };
        let spec = spec.path().map(|path| PlanFile::new(Arc::clone(files), path.to_owned(), spec_root));
        Self { plan: PlanFile::new(Arc::clone(files), plan_file, root), spec, is_required }
    }

    /// Whether any of them is no longer what was seen.
    pub(super) fn has_changed(&self, seen: &Content) -> bool {
        let changed = |file: &PlanFile, seen: &Option<FileSnapshot>| match seen {
            Some(seen) => file.has_changed(&seen.stamp).unwrap_or(true),
            None => file.stamp().is_ok_and(|stamp| stamp.is_some()),
        };
        changed(&self.plan, &seen.plan) || self.spec.as_ref().is_some_and(|file| changed(file, &seen.spec))
    }

    /// Whether the YAML spec is no longer what was seen, and what it looks like now; `None`: it is gone.
    pub(super) fn look_at_spec(&self, seen: &Content) -> (bool, Option<Stamp>) {
        let now = self.spec.as_ref().map_or(Ok(None), PlanFile::stamp);
        now.map_or((false, None), |now| (now.as_ref() != seen.spec_stamp(), now))
    }

    /// Reads both. Waits, at most `patience` for each on tokio's clock, for somebody who is writing it.
    pub(super) async fn read(&self, patience: Duration, now: &Now) -> Result<Content, RunError> {
        let spec = self.read_spec_settled(patience, now).await?;
        let plan = match self.plan.read_settled(patience).await {
            Ok(plan) => Some(plan),
            Err(PlanFileError::Missing { .. }) if spec.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Content { plan, spec })
    }

    async fn read_spec_settled(&self, patience: Duration, now: &Now) -> Result<Option<FileSnapshot>, RunError> {
        let began = Instant::now();
        let mut since = began;
        let mut spec = self.read_spec()?;
        while let Some(found) = &spec {
            let stands = is_old(&found.stamp, now) || since.elapsed() >= SETTLED;
            let is_empty = found.bytes.trim_ascii().is_empty();
            if (stands && !is_empty) || began.elapsed() >= patience {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
            let next = self.read_spec()?;
            if next != spec {
                (since, spec) = (Instant::now(), next);
            }
        }
        Ok(spec)
    }

    fn read_spec(&self) -> Result<Option<FileSnapshot>, RunError> {
        let Some(file) = &self.spec else { return Ok(None) };
        match file.read() {
            Ok(spec) => Ok(Some(spec)),
            Err(PlanFileError::Missing { path }) if self.is_required => Err(RunError::NoSpec { path }),
            Err(PlanFileError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Judges what was read. What `ledger` knows to have been started cannot be dropped by the YAML spec.
    pub(super) fn judge(&self, content: &Content, ledger: &Ledger) -> Result<Accepted, RunError> {
        let mut started = BTreeSet::new();
        if content.spec.is_some() {
            started.extend(ledger.tasks().filter(|(_, record)| record.attempt > 0).map(|(task, _)| task.clone()));
        }
        let options = ReadOptions { started: Some(&started), ..ReadOptions::default() };
        let bytes = [&content.plan, &content.spec].map(|file| file.as_ref().map(|file| file.bytes.as_slice()));
        read_both(bytes[0], bytes[1], options).map_err(|refused| {
            let read = [(Origin::Plan, Some(&self.plan), bytes[0]), (Origin::Spec, self.spec.as_ref(), bytes[1])];
            let files = read.into_iter().filter_map(|(origin, file, text)| {
                Some(JudgedFile { origin, path: file?.path().to_owned(), text: text?.to_owned() })
            });
            RunError::Invalid { files: files.collect(), refused }
        })
    }
}

/// Whether a file was last written long enough ago for its writer to be done. A time to come tells nothing.
fn is_old(stamp: &Stamp, now: &Now) -> bool {
    let age = now.wall.as_nanosecond() - stamp.mtime_ns;
    u128::try_from(age).is_ok_and(|age| age >= SETTLED.as_nanos())
}
