//! `orchestrate schema`: JSON Schemas of what we read and write.

use clap::{Args, ValueEnum};

use super::app::Outcome;
use super::world::Context;
use crate::error::ExitCode;
use crate::report::{self, NextPass, View};

/// Flags of `schema`.
#[derive(Debug, Args)]
#[command(
    long_about = "Print a JSON Schema: of the plan file, or of what a command prints with `-o json`.",
    after_help = "Examples:\n  \
                  orchestrate schema status > status.schema.json"
)]
pub(super) struct Schema {
    /// Of what
    #[arg(value_name = "WHAT", default_value = "status")]
    what: What,
}

/// What there is a schema of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// `status -o json`, and that of `once` and `run`
    Status,
    /// `plan -o json`
    Next,
    /// `review -o json`
    Review,
}

impl Schema {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let schema = match self.what {
            What::Status => schemars::schema_for!(View),
            What::Next => schemars::schema_for!(NextPass),
            What::Review => schemars::schema_for!(report::Review),
        };
        context.output.json(&schema)?;
        Ok(ExitCode::Done)
    }
}
