//! `orchestrate review`: what the finished branches hold and how to merge them.

use clap::Args;

use super::app::Outcome;
use super::args::TextFormat;
use super::world::{Context, World, block_on};
use crate::controller::Snapshot;
use crate::error::{ExitCode, Report};
use crate::git::{BranchSummary, CommitId, GitError, Merged, Repository};
use crate::observe::names;
use crate::report::{BranchFacts, KeptCommits, Review as ReviewReport, ReviewFacts, View, tops};
use crate::spec::{TaskId, TaskIx};
use crate::status::{Reason, Status};

/// Pairs of branches that are tried against each other; each is a merge in memory.
const MOST_PAIRS: usize = 300;

/// Show what the finished branches hold and how to merge them; merge nothing
///
/// In the order in which to merge them: commits, files, lines, conflicts foreseen, and the commands to review and merge
/// each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate review\n  \
                  orchestrate review --target origin/main\n  \
                  orchestrate review -o json | jq -r '.commands[]'")]
pub(super) struct Review {
    /// What the branches would be merged into
    #[arg(long, value_name = "REVISION", env = "ORCHESTRATE_TARGET", hide_env_values = true, default_value = "HEAD")]
    target: String,

    /// How to show it
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "text"
    )]
    output: TextFormat,
}

impl Review {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        let review = collect(&world, &snapshot, &view, &self.target)?;
        match self.output {
            TextFormat::Text => context.output.data(&review.text())?,
            TextFormat::Json => context.output.json(&review)?,
            TextFormat::Yaml => context.output.yaml(&review)?,
        }
        Ok(ExitCode::Done)
    }
}

/// Shows the review against HEAD, at the end of a run.
pub(super) fn show(context: &Context, world: &World, snapshot: &Snapshot, view: &View) -> Result<(), Report> {
    let review = collect(world, snapshot, view, "HEAD")?;
    Ok(context.output.data(&review.text())?)
}

fn collect(world: &World, snapshot: &Snapshot, view: &View, target: &str) -> Result<ReviewReport, Report> {
    let facts = block_on(facts(world.repository.as_ref(), snapshot, view, target))??;
    Ok(ReviewReport::of(facts))
}

async fn facts(
    repository: &dyn Repository,
    snapshot: &Snapshot,
    view: &View,
    target: &str,
) -> Result<ReviewFacts, GitError> {
    let target_commit = repository.resolve(target).await?;
    let status = |ix: TaskIx| view.tasks[ix.index()].status;
    let order: Vec<TaskIx> = snapshot.tasks.graph.topological().to_vec();
    let completed: Vec<TaskIx> = order.into_iter().filter(|ix| status(*ix) == Status::Completed).collect();
    let mut branches = Vec::with_capacity(completed.len());
    for &ix in &completed {
        branches.push(branch(repository, snapshot, view, ix, &target_commit).await?);
    }
    contain(repository, snapshot, &completed, &mut branches).await?;
    let untried = clash(repository, &target_commit, &mut branches).await;
    let kept = kept(repository, snapshot, view, &target_commit, target).await?;
    let open = view.tasks.iter().filter(|task| task.status != Status::Completed);
    Ok(ReviewFacts {
        target: target.to_owned(),
        target_commit,
        branches,
        open: open.map(|task| (task.id.clone(), task.status)).collect(),
        kept,
        untried,
    })
}

async fn branch(
    repository: &dyn Repository,
    snapshot: &Snapshot,
    view: &View,
    ix: TaskIx,
    target: &CommitId,
) -> Result<BranchFacts, GitError> {
    let spec = snapshot.tasks.task(ix);
    let task = &view.tasks[ix.index()];
    let current = snapshot.ledger.task(&spec.id).and_then(|record| record.current.as_ref());
    let base = current.and_then(|current| current.base.clone());
    let recorded = current.and_then(|current| current.end.as_ref()).and_then(|end| end.head.clone());
    let tip = repository.tip(&names::branch_ref(&spec.id)).await?;
    let mut notes = Vec::new();
    let (mut summary, mut merged) = (None::<BranchSummary>, false);
    if let Some(tip) = &tip {
        if recorded.as_ref().is_some_and(|recorded| recorded != tip) {
            notes.push("the branch has moved since the task ended".to_owned());
        }
        merged = repository.merged(target, tip).await? != Merged::No;
        match &base {
            Some(base) => match repository.summarize(base, tip).await {
                Ok(found) => summary = Some(found),
                Err(error) => notes.push(crate::act::one_line(&error)),
            },
            None => notes.push("where it started is not known".to_owned()),
        }
    }
    Ok(BranchFacts {
        task: spec.id.to_string(),
        title: spec.title.clone(),
        branch: names::branch(&spec.id),
        result: task.result,
        base,
        tip,
        summary,
        merged,
        contains: Vec::new(),
        conflicts: Vec::new(),
        clashes: Vec::new(),
        report: task.report.clone(),
        notes,
    })
}

/// What stands under refs of ours beside the branches, but for what the target or the task's branch holds by now.
async fn kept(
    repository: &dyn Repository,
    snapshot: &Snapshot,
    view: &View,
    target_commit: &CommitId,
    target: &str,
) -> Result<Vec<KeptCommits>, GitError> {
    let Some(plan) = snapshot.ledger.plan_id() else { return Ok(Vec::new()) };
    let mut kept = Vec::new();
    for (full_ref, commit) in repository.refs_below(&names::plan_refs(plan)).await? {
        let Some(task) = names::task_of_kept(&full_ref) else { continue };
        let Ok(id) = TaskId::new(task) else { continue };
        let mut holders = vec![target_commit.clone()];
        holders.extend(repository.tip(&names::branch_ref(&id)).await?);
        let mut is_held = false;
        for holder in &holders {
            is_held |= repository.contains(holder, &commit).await?;
        }
        if is_held {
            continue;
        }
        let refused = view.tasks.iter().find(|of| of.id == task && of.reason == Some(Reason::ResultRefused));
        let message = refused.and_then(|task| task.message.clone());
        kept.push(KeptCommits::new(task, &full_ref, &commit, message, target));
    }
    Ok(kept)
}

/// A task starts from its dependencies' branches, so only those can be inside of its own: no need to try all pairs.
async fn contain(
    repository: &dyn Repository,
    snapshot: &Snapshot,
    completed: &[TaskIx],
    branches: &mut [BranchFacts],
) -> Result<(), GitError> {
    let tips: Vec<Option<CommitId>> = branches.iter().map(|branch| branch.tip.clone()).collect();
    for (at, &ix) in completed.iter().enumerate() {
        let Some(tip) = &tips[at] else { continue };
        for &on in snapshot.tasks.graph.dependencies(ix) {
            let Some(place) = completed.iter().position(|other| *other == on) else { continue };
            let Some(below) = &tips[place] else { continue };
            if repository.contains(tip, below).await? {
                let id = snapshot.tasks.task(on).id.to_string();
                branches[at].contains.push(id);
            }
        }
    }
    Ok(())
}

/// Foresees conflicts of what would be merged: with the target, and with each other. Says whether some pairs were left out.
async fn clash(repository: &dyn Repository, target: &CommitId, branches: &mut [BranchFacts]) -> bool {
    let tops = tops(branches);
    for &at in &tops {
        let Some(tip) = branches[at].tip.clone() else { continue };
        match repository.conflicts(target, &tip).await {
            Ok(paths) => branches[at].conflicts = paths,
            Err(error) => branches[at].notes.push(crate::act::one_line(&error)),
        }
    }
    let pairs = tops.iter().enumerate().flat_map(|(n, &one)| tops[n + 1..].iter().map(move |&other| (one, other)));
    let mut untried = false;
    for (number, (one, other)) in pairs.enumerate() {
        if number >= MOST_PAIRS {
            untried = true;
            break;
        }
        let (Some(first), Some(second)) = (branches[one].tip.clone(), branches[other].tip.clone()) else { continue };
        // What cannot be tried was told above already.
        let paths = repository.conflicts(&first, &second).await.unwrap_or_default();
        if !paths.is_empty() {
            let task = branches[one].task.clone();
            branches[other].clashes.push((task, paths));
        }
    }
    untried
}
