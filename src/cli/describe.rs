//! `orchestrate describe`: everything that is known of one task.

use clap::Args;

use super::app::Outcome;
use super::args::TextFormat;
use super::world::{Context, World, block_on, require_task};
use crate::controller::Snapshot;
use crate::error::{ExitCode, Report};
use crate::git::BranchSummary;
use crate::observe::names;
use crate::record::Journal;
use crate::report::{Description, EventView};
use crate::spec::TaskId;

/// Lines of the kept log that are shown.
const TAIL: usize = 10;

/// Show everything that is known of one task
///
/// First of all why it is where it is, link by link, and what would change that; then its attempt, what is asked of
/// it, what happened, and the end of its output.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate describe api\n  \
                  orchestrate why api                 the same\n  \
                  orchestrate describe api -o json | jq .chain")]
pub(super) struct Describe {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,

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

impl Describe {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        let task = require_task(&view, &self.task)?;
        let ix = snapshot.tasks.find(&task.id).expect("BUG: the view shows the set's tasks");
        let spec = snapshot.tasks.task(ix);
        let stored = Journal::read(world.files.as_ref(), &world.state_dir())?;
        let of_task = stored.entries.iter().filter(|entry| entry.task() == Some(&spec.id));
        let events = of_task.map(EventView::of).collect();
        let branch = block_on(branch(&world, &snapshot, &spec.id))?;
        let tail = tail(&world, &snapshot, &spec.id)?;
        let description = Description::of(&view, task, spec, events, branch, tail);
        match self.output {
            TextFormat::Text => context.output.data(&description.text())?,
            TextFormat::Json => context.output.json(&description)?,
            TextFormat::Yaml => context.output.yaml(&description)?,
        }
        Ok(ExitCode::Done)
    }
}

/// What the branch holds; nothing where git cannot tell.
async fn branch(world: &World, snapshot: &Snapshot, task: &TaskId) -> Option<BranchSummary> {
    let base = snapshot.ledger.task(task)?.current.as_ref()?.base.clone()?;
    let tip = world.repository.tip(&names::branch_ref(task)).await.ok()??;
    world.repository.summarize(&base, &tip).await.ok()
}

/// The end of the newest attempt's kept log.
fn tail(world: &World, snapshot: &Snapshot, task: &TaskId) -> Result<Option<String>, Report> {
    let Some(key) = snapshot.ledger.task(task).and_then(|record| record.key(task)) else { return Ok(None) };
    let path = names::attempt_dir(&world.state_dir(), &key).join("log");
    if world.files.stamp(&path)?.is_none_or(|stamp| !stamp.is_file()) {
        return Ok(None);
    }
    let bytes = world.files.read(&path)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(Some(lines[lines.len().saturating_sub(TAIL)..].join("\n")))
}
