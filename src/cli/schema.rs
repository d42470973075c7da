//! `orchestrate schema`: JSON Schemas of what we read and write.

use clap::{Args, ValueEnum};

use super::app::Outcome;
use super::world::Context;
use crate::error::ExitCode;
use crate::report::{self, NextPass, View};
use crate::spec;

/// Print a JSON Schema
///
/// Of the plan file, or of what a command prints with `-o json`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate schema > agent-tasks.schema.json      for editors: the plan file\n  \
                  orchestrate schema status                         what `status -o json` prints")]
pub(super) struct Schema {
    /// Of what
    #[arg(value_name = "WHAT", default_value = "plan")]
    what: What,
}

/// What there is a schema of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// The plan file
    Plan,
    /// `status -o json`, and that of `once` and `run`
    Status,
    /// `plan -o json`
    Next,
    /// `review -o json`
    Review,
    /// `doctor -o json`
    Doctor,
}

impl Schema {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let schema = match self.what {
            What::Plan => spec::schema::schema(),
            What::Status => schemars::schema_for!(View).into(),
            What::Next => schemars::schema_for!(NextPass).into(),
            What::Doctor => schemars::schema_for!(report::Doctor).into(),
            What::Review => schemars::schema_for!(report::Review).into(),
        };
        context.output.json(&schema)?;
        Ok(ExitCode::Done)
    }
}
