//! One action with everything that it was decided on.

use crate::clock::Moment;
use crate::git::CommitId;
use crate::observe::{AttemptKey, ObservedContainer, names};
use crate::plan::{Action, PlannedAction};
use crate::record::{Ledger, TaskRecord};
use crate::runtime::RuntimeEvent;
use crate::spec::{TaskId, TaskSet, TaskSpec};

/// One action with everything that it was decided on.
#[derive(Debug, Clone)]
pub struct Job {
    /// The attempt.
    pub key: AttemptKey,
    /// What to do.
    pub action: Action,
    /// The task as the file has it; `None` where the file no longer names it.
    pub spec: Option<TaskSpec>,
    /// The plan's id.
    pub plan_id: String,
    /// What the journal knew.
    pub record: TaskRecord,
    /// The container, where one was seen.
    pub container: Option<ObservedContainer>,
    /// What the task's dependencies give, in the file's order.
    pub heads: Vec<DependencyHead>,
    /// How often in a row the same failed in a way that passes.
    pub failures: u32,
    /// When this process lost the runtime, oldest first.
    pub outages: Vec<Moment>,
}

/// What a dependency gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyHead {
    /// The dependency.
    pub task: TaskId,
    /// Full ref of its branch.
    pub branch: String,
    /// The commit that was recorded when it completed.
    pub recorded: Option<CommitId>,
}

impl Job {
    /// Gathers what an action needs.
    pub fn new(action: PlannedAction, tasks: &TaskSet, ledger: &Ledger, container: Option<ObservedContainer>) -> Self {
        let spec = action.ix.map(|ix| tasks.task(ix));
        Self {
            record: ledger.task(&action.key.task).cloned().unwrap_or_default(),
            heads: spec.map(|spec| dependency_heads(spec, ledger)).unwrap_or_default(),
            spec: spec.cloned(),
            plan_id: ledger.plan_id().unwrap_or_default().to_owned(),
            key: action.key,
            action: action.action,
            container,
            failures: 0,
            outages: Vec::new(),
        }
    }
}

/// What a task's dependencies give, as the journal knows it.
pub fn dependency_heads(spec: &TaskSpec, ledger: &Ledger) -> Vec<DependencyHead> {
    let head = |task: &TaskId| DependencyHead {
        task: task.clone(),
        branch: names::branch_ref(task),
        recorded: ledger.task(task).and_then(TaskRecord::end).and_then(|end| end.head.clone()),
    };
    spec.dependencies.iter().map(head).collect()
}

/// What came of a job.
#[must_use = "take its events into the picture and its failure into the memory"]
#[derive(Debug)]
pub struct Outcome {
    /// The attempt.
    pub key: AttemptKey,
    /// What was done.
    pub action: Action,
    /// What we know to have happened to its container.
    pub events: Vec<RuntimeEvent>,
    /// Why it was not done.
    pub failure: Option<Failure>,
}

/// Why a job was not done.
#[derive(Debug)]
pub enum Failure {
    /// It is tried again after a pause.
    Retry {
        /// What failed, in one line.
        message: String,
        /// The runtime is not to be reached at all.
        runtime_away: bool,
        /// A start may yet take effect.
        unknown_start: bool,
    },
    /// The journal cannot be used any more.
    Fatal(crate::record::JournalError),
}
