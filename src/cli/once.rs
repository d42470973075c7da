//! `orchestrate once`: one pass.

use std::num::NonZeroU32;

use clap::Args;

use super::app::Outcome;
use super::args::TableFormat;
use super::ci::Ci;
use super::status;
use super::watch::MetricsFile;
use super::world::{Context, block_on};
use crate::controller;
use crate::error::ExitCode;
use crate::report::{All, View};

/// Make one pass: take in what ended, launch what is ready, and show the table
///
/// Containers go on running after it. Made again and again (by cron, by a CI, by hand) it works off the plan; a
/// pass that finds nothing to do changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate                       one pass over the plan of this repository\n  \
                  orchestrate once --exit-status    and tell by the exit code how the plan stands\n  \
                  orchestrate once -o json          and print how it stands as JSON")]
pub(super) struct Once {
    /// How to show the tasks
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    output: TableFormat,

    /// Exit with 1 where a task failed, is blocked or was cancelled, with 6 while anything can still move
    #[arg(long)]
    exit_status: bool,

    /// Run at most so many tasks at once, whatever the plan file says
    #[arg(long, value_name = "N", env = "ORCHESTRATE_MAX_CONCURRENT", hide_env_values = true)]
    max_concurrent: Option<NonZeroU32>,

    #[command(flatten)]
    metrics: MetricsFile,

    #[command(flatten)]
    ci: Ci,
}

impl Once {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let mut world = context.world()?;
        let metrics = self.metrics.meter(context, &mut world);
        let mut reconciler = context.open(&world, self.max_concurrent)?;
        let mut progress = context.output.progress(std::sync::Arc::clone(&world.clock), &world.folder, None);
        let snapshot = if let Some(mut metrics) = metrics.clone() {
            reconciler.set_witness(std::sync::Arc::clone(&metrics) as _);
            let mut both = All(vec![progress.reporter(), &mut metrics]);
            block_on(controller::once(&mut reconciler, &mut both))?
        } else {
            block_on(controller::once(&mut reconciler, progress.reporter()))?
        };
        progress.finish();
        if let Some(metrics) = &metrics {
            self.metrics.write(context, &*world.files, metrics);
        }
        let snapshot = snapshot.map_err(|error| context.fail(&world, error))?;
        let view = View::of(&snapshot, &world.folder);
        self.ci.show(context, &world, &view, self.output)?;
        if view.is_settled() && view.summary.completed > 0 && self.output == TableFormat::Table {
            super::review::show(context, &world, &snapshot, &view)?;
        }
        Ok(if self.exit_status { status::exit_code(&view) } else { ExitCode::Done })
    }
}
