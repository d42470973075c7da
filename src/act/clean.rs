//! Removes what is done with. Each step looks once more before it acts, since a reconciler may be at work beside us.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::context::Ports;
use super::error::one_line;
use crate::git::{GitError, Merged};
use crate::observe::{AttemptKey, names};
use crate::plan::{BranchFact, CleanPlan, CleanStep};
use crate::record::{Journal, Ledger, Stamp, State};
use crate::spec::{TaskId, TaskSet};

/// How long a container without a task may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// What was, or would be, removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Removed {
    /// `container`, `worktree`, `branch` or `templates`; `stopped` for a container that was asked to end.
    pub kind: &'static str,
    /// Its name or path.
    pub name: String,
    /// The task; absent for what belongs to none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// Bytes on disk, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A ref that keeps its commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_ref: Option<String>,
}

/// What stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Leftover {
    /// The task.
    pub task: String,
    /// Why it stays.
    pub why: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct Cleaned {
    /// Gone, or to go.
    pub removed: Vec<Removed>,
    /// Still there.
    pub kept: Vec<Leftover>,
    /// Steps that failed though nothing speaks against them.
    pub failed: Vec<Leftover>,
}

impl Cleaned {
    fn keep(&mut self, task: &TaskId, why: String) {
        self.kept.push(Leftover { task: task.to_string(), why });
    }
}

/// What is known of the branches of tasks that were launched, and whether their work is in `target`.
pub async fn look(
    ports: &Ports,
    target: &str,
    tasks: &TaskSet,
    ledger: &Ledger,
) -> Result<BTreeMap<TaskId, BranchFact>, GitError> {
    let target = ports.repository.resolve(target).await?;
    let mut branches = BTreeMap::new();
    for spec in &tasks.tasks {
        if ledger.task(&spec.id).is_none_or(|record| !matches!(record.state, State::Done(_))) {
            continue;
        }
        let tip = ports.repository.tip(&names::branch_ref(&spec.id)).await?;
        let merged = match &tip {
            Some(tip) => ports.repository.merged(&target, tip).await?,
            None => Merged::Commits,
        };
        branches.insert(spec.id.clone(), BranchFact { tip, merged });
    }
    Ok(branches)
}

/// Carries a plan out, or says what it would do. A step that fails stops no other task's.
pub async fn clean(ports: &Ports, plan: &CleanPlan, plan_id: &str, dry_run: bool) -> Cleaned {
    let mut cleaned = Cleaned::default();
    for kept in &plan.kept {
        cleaned.keep(&kept.task, kept.why.clone());
    }
    // Nothing of a task goes after something of it could not: a branch is worth more than its worktree.
    let mut stuck: Vec<TaskId> = Vec::new();
    let mut journal = Newest::new(ports);
    for step in &plan.steps {
        let task = task_of(step).clone();
        if stuck.contains(&task) {
            continue;
        }
        let done = match step {
            _ if !dry_run && !journal.says_over(step) => {
                Err(Leftover { task: task.to_string(), why: "it runs".to_owned() })
            }
            CleanStep::Stop(container) if dry_run => Ok(removed("stopped", &container.name, &task)),
            CleanStep::Container(container) if dry_run => Ok(removed("container", &container.name, &task)),
            CleanStep::Stop(container) => match ports.runtime.stop(&container.id, GRACE).await {
                Ok(()) => Ok(removed("stopped", &container.name, &task)),
                Err(error) => Err(failure(&task, &error)),
            },
            CleanStep::Container(container) => match ports.runtime.remove(&container.id).await {
                Ok(()) => Ok(removed("container", &container.name, &task)),
                Err(error) => Err(failure(&task, &error)),
            },
            CleanStep::Worktree(_) => match worktree(ports, &task, dry_run).await {
                Ok(Some(removed)) => Ok(removed),
                Ok(None) => continue,
                Err(error @ (GitError::Dirty { .. } | GitError::Locked { .. } | GitError::ForeignPath { .. })) => {
                    cleaned.keep(&task, one_line(&error));
                    stuck.push(task);
                    continue;
                }
                Err(error) => Err(failure(&task, &error)),
            },
            CleanStep::Branch { tip, .. } => {
                let key = AttemptKey { task: task.clone(), attempt: 0 };
                let kept_ref = names::kept_ref(plan_id, &key);
                let branch = names::branch_ref(&task);
                let gone =
                    if dry_run { Ok(None) } else { ports.repository.remove_branch(&branch, tip, &kept_ref).await };
                match gone {
                    Ok(kept_ref) => Ok(Removed { kept_ref, ..removed("branch", &names::branch(&task), &task) }),
                    Err(error) => Err(failure(&task, &error)),
                }
            }
        };
        match done {
            Ok(removed) => cleaned.removed.push(removed),
            Err(failed) => {
                stuck.push(task);
                cleaned.failed.push(failed);
            }
        }
    }
    cleaned
}

/// Removes what is kept to make worktrees quickly: it is made again when it is needed.
pub async fn clean_templates(ports: &Ports, dry_run: bool, cleaned: &mut Cleaned) {
    match ports.repository.remove_templates(dry_run).await {
        Ok(0) => {}
        Ok(bytes) => cleaned.removed.push(Removed {
            kind: "templates",
            name: "of worktrees".to_owned(),
            task: String::new(),
            bytes: Some(bytes),
            kept_ref: None,
        }),
        Err(error) => cleaned.failed.push(Leftover { task: "templates".to_owned(), why: one_line(&error) }),
    }
}

async fn worktree(ports: &Ports, task: &TaskId, dry_run: bool) -> Result<Option<Removed>, GitError> {
    let path = names::worktree(task);
    let Some(bytes) = ports.repository.removable(&path).await? else { return Ok(None) };
    if !dry_run {
        ports.repository.remove_worktree(&path).await?;
    }
    Ok(Some(Removed { bytes: Some(bytes), ..removed("worktree", &path.display().to_string(), task) }))
}

fn task_of(step: &CleanStep) -> &TaskId {
    match step {
        CleanStep::Stop(container) | CleanStep::Container(container) => &container.key.task,
        CleanStep::Worktree(task) | CleanStep::Branch { task, .. } => task,
    }
}

/// The journal as it stands, read again only where it has changed.
struct Newest<'p> {
    ports: &'p Ports,
    state_dir: PathBuf,
    read: Option<(Stamp, Ledger)>,
}

impl<'p> Newest<'p> {
    fn new(ports: &'p Ports) -> Self {
        Self { ports, state_dir: names::state_dir(&ports.repository.layout().common_dir), read: None }
    }

    /// Whether nothing of a step's task is at work. A person's retry may have come meanwhile.
    fn says_over(&mut self, step: &CleanStep) -> bool {
        if matches!(step, CleanStep::Stop(_)) {
            return true;
        }
        let files = self.ports.files.as_ref();
        // Before it is read: what is added meanwhile shows at the next look.
        let Ok(Some(stamp)) = Journal::stamp(files, &self.state_dir) else { return false };
        if self.read.as_ref().is_none_or(|(seen, _)| *seen != stamp) {
            let Ok(stored) = Journal::read(files, &self.state_dir) else { return false };
            self.read = Some((stamp, stored.ledger));
        }
        let record = self.read.as_ref().and_then(|(_, ledger)| ledger.task(task_of(step)));
        record.is_none_or(|record| record.state != State::Live)
    }
}

fn removed(kind: &'static str, name: &str, task: &TaskId) -> Removed {
    Removed { kind, name: name.to_owned(), task: task.to_string(), bytes: None, kept_ref: None }
}

fn failure(task: &TaskId, error: &dyn std::error::Error) -> Leftover {
    Leftover { task: task.to_string(), why: one_line(error) }
}
