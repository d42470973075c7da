//! Which commit a task's branch starts from.

use super::context::Context;
use super::error::ActError;
use super::job::{DependencyHead, Job};
use crate::git::{CommitId, MergeHead, MergeOutcome};
use crate::spec::TaskSpec;
use crate::status::Reason;

/// Resolves the base: the recorded one where the branch was made before, the one dependency's head, the merge of several,
/// or the task's `base` revision.
pub(super) async fn resolve(context: &Context, job: &Job, spec: &TaskSpec) -> Result<CommitId, ActError> {
    if let Some(base) = job.record.current.as_ref().and_then(|current| current.base.clone()) {
        return Ok(base);
    }
    let heads = heads(context, &job.heads).await?;
    if heads.is_empty() {
        return Ok(context.repository.resolve(&spec.attempt.base).await?);
    }
    match context.repository.merge(&heads).await? {
        MergeOutcome::Commit(commit) => Ok(commit),
        MergeOutcome::Conflict { paths, task, with } => {
            if let Some(merged) = merged_by_hand(context, job, &heads).await? {
                return Ok(merged);
            }
            Err(ActError::hold(Reason::MergeConflict, conflict_message(job, &paths, task.as_str(), &with)))
        }
    }
}

/// The commit that each dependency gives: its branch's tip where that goes on from what was recorded, else what was
/// recorded.
pub(super) async fn heads(context: &Context, dependencies: &[DependencyHead]) -> Result<Vec<MergeHead>, ActError> {
    let mut heads = Vec::new();
    for dependency in dependencies {
        let tip = context.repository.tip(&dependency.branch).await?;
        let commit =
            match (tip, &dependency.recorded) {
                (Some(tip), Some(recorded)) if tip != *recorded => {
                    if context.repository.contains(&tip, recorded).await? { tip } else { recorded.clone() }
                }
                (_, Some(recorded)) => recorded.clone(),
                (Some(tip), None) => tip,
                (None, None) => continue,
            };
        heads.push(MergeHead { task: dependency.task.clone(), commit });
    }
    Ok(heads)
}

/// A commit that a person put on the task's own branch and that contains all heads: the way out of a conflict.
async fn merged_by_hand(context: &Context, job: &Job, heads: &[MergeHead]) -> Result<Option<CommitId>, ActError> {
    let branch = crate::observe::names::branch_ref(&job.key.task);
    let Some(tip) = context.repository.tip(&branch).await? else { return Ok(None) };
    for head in heads {
        if !context.repository.contains(&tip, &head.commit).await? {
            return Ok(None);
        }
    }
    Ok(Some(tip))
}

fn conflict_message(job: &Job, paths: &[String], task: &str, with: &[crate::spec::TaskId]) -> String {
    let shown = paths.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if paths.len() > 5 { format!(" and {} more", paths.len() - 5) } else { String::new() };
    let with: Vec<String> = with.iter().map(|id| format!("agent/{id}")).collect();
    let id = &job.key.task;
    let merge: Vec<String> = job.heads.iter().skip(1).map(|head| format!("agent/{}", head.task)).collect();
    let first = job.heads.first().map(|head| head.task.to_string()).unwrap_or_default();
    format!(
        "agent/{task} does not merge with {}: {shown}{more}; merge them by hand: `git switch -c agent/{id} agent/{first}`, \
         `git merge {}`, resolve, commit, switch away again",
        with.join(", "),
        merge.join(" ")
    )
}
