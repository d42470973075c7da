//! `orchestrate events`: the journal, readable.

use clap::Args;

use super::app::Outcome;
use super::args::TextFormat;
use super::world::Context;
use crate::error::ExitCode;
use crate::record::Journal;
use crate::report::{EventView, escape};

/// Show what happened, from the journal
///
/// Each attempt's steps and what people asked for, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate events --tail 20\n  \
                  orchestrate events api             what happened to one task\n  \
                  orchestrate events -o json | jq -r 'select(.kind == \"ended\") | .message'")]
pub(super) struct Events {
    /// Only these tasks
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,

    /// Only the last so many
    #[arg(long, value_name = "N")]
    tail: Option<usize>,

    /// How to show them; JSON is one object a line
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

impl Events {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let stored = Journal::read(world.files.as_ref(), &world.state_dir())?;
        let events: Vec<EventView> = stored.entries.iter().map(EventView::of).collect();
        let wanted = |event: &&EventView| {
            self.tasks.is_empty() || event.task.as_ref().is_some_and(|task| self.tasks.contains(task))
        };
        let events: Vec<&EventView> = events.iter().filter(wanted).collect();
        let skip = self.tail.map_or(0, |tail| events.len().saturating_sub(tail));
        let line = |event: &&EventView| match self.output {
            TextFormat::Text => Ok(event.line()),
            TextFormat::Yaml => super::output::yaml(event).map(|text| format!("---\n{}", text.trim_end())),
            TextFormat::Json => serde_json::to_string(event).map(|json| escape::json(&json).into_owned()),
        };
        let lines: Vec<String> =
            events[skip..].iter().map(line).collect::<Result<_, _>>().map_err(std::io::Error::from)?;
        context.output.lines(lines.iter().map(String::as_str))?;
        if events.is_empty() {
            context.output.note("nothing has happened yet");
        }
        Ok(ExitCode::Done)
    }
}
