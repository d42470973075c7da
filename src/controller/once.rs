//! One pass and no more: what is ready is launched, what ended is taken in, and the rest is told.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::error::{RunError, Trouble};
use super::holds::HeldTask;
use super::reconciler::Reconciler;
use super::snapshot::{Beat, Level, Reporter, Snapshot};
use crate::act::has_written;
use crate::record::PARTIAL_PATIENCE;

/// How often in one pass acting may give more to do; a chain of tasks ends far sooner.
const ROUNDS: usize = 1_000;

/// Makes one pass over one observation. Planning again straight after gives nothing to do.
pub async fn once(reconciler: &mut Reconciler, reporter: &mut dyn Reporter) -> Result<Snapshot, RunError> {
    let began = tokio::time::Instant::now();
    let made = pass(reconciler, reporter).await;
    let trouble = made.as_ref().err().map(Trouble::from);
    reporter.beat(&Beat { at: reconciler.now(), took: began.elapsed(), trouble });
    made
}

async fn pass(reconciler: &mut Reconciler, reporter: &mut dyn Reporter) -> Result<Snapshot, RunError> {
    reconciler.sweep()?;
    let _anew = reconciler.refresh(PARTIAL_PATIENCE).await?;
    reconciler.require_desired()?;
    reconciler.require_commit().await?;
    list(reconciler).await?;
    // One list proves no absence.
    for _ in 0..2 {
        if reconciler.wants_another_list() {
            list(reconciler).await?;
        }
    }
    let outdated = HeldTask::outdated(reconciler.context().clone(), reconciler.holds()).await;
    reconciler.release(outdated)?;
    for _ in 0..ROUNDS {
        reconciler.look_at_disks();
        let now = reconciler.now();
        let Some((tasks, plan)) = reconciler.decide(&now) else { break };
        if plan.actions.is_empty() || reconciler.unavailable().is_some() {
            break;
        }
        let executor = reconciler.executor();
        let jobs: Vec<_> = plan.actions.into_iter().map(|action| reconciler.begin(action, &tasks)).collect();
        let mut running: FuturesUnordered<_> = jobs.into_iter().map(|job| executor.perform(job)).collect();
        let mut relist = false;
        let notices = reconciler.context().notices();
        loop {
            let outcome = tokio::select! {
                biased;
                text = notices.next() => {
                    reporter.notice(Level::Info, &text);
                    continue;
                }
                outcome = running.next() => outcome,
            };
            let Some(outcome) = outcome else { break };
            if outcome.failure.is_some() {
                reporter.trouble(Trouble::Step);
            }
            relist |= reconciler.finish(outcome, false)?;
        }
        drop(running);
        if relist {
            list(reconciler).await?;
        }
    }
    listen(reconciler).await;
    publish(reconciler).await?;
    let now = reconciler.now();
    let (tasks, plan) = reconciler.decide(&now).ok_or_else(|| reconciler.no_desired())?;
    let snapshot = reconciler.snapshot(tasks, plan, now);
    reporter.pass(&snapshot);
    Ok(snapshot)
}

/// Looks for the output of those that should have written by now.
async fn listen(reconciler: &mut Reconciler) {
    let now = reconciler.now();
    let Some((_, plan)) = reconciler.decide(&now) else { return };
    let context = reconciler.context().clone();
    let look = |listen: crate::plan::Listen| {
        let context = &context;
        async move { (has_written(context, &listen.container_id, listen.since).await, listen.key) }
    };
    let mut looks: FuturesUnordered<_> = plan.listen.into_iter().map(look).collect();
    let mut found = Vec::new();
    while let Some(look) = looks.next().await {
        found.push(look);
    }
    drop(looks);
    for (written, key) in found {
        reconciler.finish_listen(key, written);
    }
}

async fn list(reconciler: &mut Reconciler) -> Result<(), RunError> {
    let listed = Reconciler::list(reconciler.context()).await;
    reconciler.take_list(listed)?;
    Ok(())
}

/// Writes the plan file until it says what is so; a person's edit in between is taken in for the next pass.
pub(super) async fn publish(reconciler: &mut Reconciler) -> Result<(), RunError> {
    for _ in 0..3 {
        let now = reconciler.now();
        let Some((tasks, plan)) = reconciler.decide(&now) else { return Ok(()) };
        let Some(publishing) = reconciler.unpublished(&tasks, &plan) else { return Ok(()) };
        let (publishing, result) = publishing.write().await;
        reconciler.take_published(publishing, result)?;
    }
    Ok(())
}
