//! What one pass saw and decided, for everyone who only reads: tables, JSON, metrics, pages.

use std::sync::Arc;
use std::time::Duration;

use super::error::Trouble;
use crate::clock::Now;
use crate::observe::Observed;
use crate::plan::Plan;
use crate::record::Ledger;
use crate::spec::TaskSet;

/// One pass's inputs and its plan. Owned, so that readers may keep it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What people ask for.
    pub tasks: Arc<TaskSet>,
    /// What the journal knows.
    pub ledger: Ledger,
    /// What the runtime says.
    pub observed: Observed,
    /// What was decided; `plan.tasks` is how every task stands, in the file's order.
    pub plan: Plan,
    /// When.
    pub now: Now,
    /// What a person should know beside: warnings of the file, of the journal, of orphans.
    pub warnings: Vec<String>,
    /// Why the newest plan file is not accepted, in one line; nothing new is launched then.
    pub fault: Option<String>,
}

/// The loop went round, whether or not anything changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// When the round ended.
    pub at: Now,
    /// How long it took to read, decide and begin; effects go on beside it.
    pub took: Duration,
    /// What it could not do; it is tried again.
    pub trouble: Option<Trouble>,
}

/// Told of every pass while `run` or `once` works. Called between awaits: it must not block.
pub trait Reporter: Send {
    /// A pass gave something else than the one before: of a status, an orphan, the runtime, the plan file.
    fn pass(&mut self, snapshot: &Snapshot);

    /// A pass was made. Told of every one, after [`Reporter::pass`] where that is called.
    fn beat(&mut self, _: &Beat) {}

    /// A step failed and is tried again, or nothing new is launched because of it.
    fn trouble(&mut self, _: Trouble) {}

    /// Something happened that is no task's status: the engine is away, the file is invalid, a signal came.
    fn notice(&mut self, level: Level, message: &str);
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who ask for more.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is not as it should be; work goes on.
    Warning,
    /// Something has failed.
    Error,
}
