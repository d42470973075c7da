//! `orchestrate plan`: what the next pass would do.

use clap::Args;

use super::app::Outcome;
use super::args::TextFormat;
use super::world::Context;
use crate::error::ExitCode;
use crate::report::NextPass;

/// Show what the next pass would do, and why; change nothing
///
/// `+` launches, `~` takes in a result, `-` stops or gives up; below them what waits, and for what.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate plan\n  \
                  orchestrate plan --exit-status || echo 'there is work to do'\n  \
                  orchestrate plan -o json | jq '.actions[].task'")]
pub(super) struct Plan {
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

    /// Exit with 6 where there is something to do
    #[arg(long)]
    exit_status: bool,
}

impl Plan {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        let next = NextPass::of(&snapshot, &view);
        match self.output {
            TextFormat::Text => context.output.data(&next.text())?,
            TextFormat::Json => context.output.json(&next)?,
            TextFormat::Yaml => context.output.yaml(&next)?,
        }
        Ok(if self.exit_status && !next.is_empty() { ExitCode::Unfinished } else { ExitCode::Done })
    }
}
