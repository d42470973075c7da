//! `orchestrate graph`: the dependencies.

use clap::{Args, ValueEnum};

use super::app::Outcome;
use super::world::Context;
use crate::error::ExitCode;
use crate::report::{graph, svg};

/// Show the dependencies as a graph
///
/// Each task with its status. The text lists tasks by stages: each stands one stage after the last of what it depends on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate graph\n  \
                  orchestrate graph -o mermaid > plan.mmd\n  \
                  orchestrate graph -o svg > plan.svg")]
pub(super) struct Graph {
    /// How to show it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: GraphFormat,
}

/// Forms of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    /// By stages
    Text,
    /// A Mermaid flowchart, for Markdown
    Mermaid,
    /// For Graphviz
    Dot,
    /// A picture, as on the page of `run --listen`
    Svg,
}

impl Graph {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (_, view) = context.survey(&world)?;
        let text = match self.output {
            GraphFormat::Text => graph::text(&view),
            GraphFormat::Mermaid => graph::mermaid(&view),
            GraphFormat::Dot => graph::dot(&view),
            GraphFormat::Svg => svg::document(&view) + "\n",
        };
        context.output.data(&text)?;
        Ok(ExitCode::Done)
    }
}
