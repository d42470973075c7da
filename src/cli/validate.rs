//! `orchestrate validate`: judges files, without engine and git.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::app::Outcome;
use super::world::{Context, PLAN_FILE, SPEC_FILE};
use crate::error::{ExitCode, Kind, Report};
use crate::record::{Files as _, OsFiles};
use crate::report::diagnostics::{self, Files, Record};
use crate::report::plural;
use crate::spec::{Accepted, Code, Diagnostic, Origin, ReadOptions, Refused, read_both};

/// Judge a plan file; needs neither an engine nor git
///
/// Shows every fault at once, each with its code, its place and the next step. Exits with 3 where the file is not
/// accepted; warnings alone are no failure.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate validate\n  \
                  orchestrate validate plans/big.json\n  \
                  orchestrate validate agent-tasks.yaml\n  \
                  generate-plan | orchestrate validate -\n  \
                  orchestrate validate --explain E0018    what a code means\n  \
                  orchestrate validate -o github          annotations for a workflow")]
pub(super) struct Validate {
    /// The file; `-` for standard input; YAML by its ending [default: `.agent-tasks.json` and `agent-tasks.yaml` here or above]
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    input: Option<PathBuf>,

    /// Tell what a code means, and nothing else
    #[arg(long, value_name = "CODE", exclusive = true)]
    explain: Option<String>,

    /// How to show it
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// Forms of a judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// Annotations of a GitHub workflow
    Github,
}

/// The JSON of a judgement.
#[derive(Debug, Serialize)]
struct Judgement {
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<usize>,
    diagnostics: Vec<Record>,
    /// Further faults that are not told.
    untold: usize,
}

/// One file that is judged.
struct Input {
    origin: Origin,
    name: String,
    bytes: Vec<u8>,
}

impl Validate {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        if let Some(code) = &self.explain {
            return explain(context, code);
        }
        let inputs = self.inputs(context)?;
        let bytes = |origin| inputs.iter().find(|input| input.origin == origin).map(|input| input.bytes.as_slice());
        let judged = read_both(bytes(Origin::Plan), bytes(Origin::Spec), ReadOptions::default());
        let files = inputs.iter().map(|input| (input.origin, input.name.as_str(), input.bytes.as_slice()));
        match judged {
            Ok(Accepted { tasks, warnings, sensitive, .. }) => {
                let cap = tasks.max_concurrent;
                let count = tasks.tasks.len();
                let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
                let (names, tasks) = (names.join(" with "), plural(count, "task", "tasks"));
                let praise = format!("{names}: valid; {tasks}, at most {cap} at once\n");
                self.show(context, &Files::new(files, &sensitive), &warnings, 0, Some(count))?;
                if self.output == Format::Text {
                    context.output.data(&praise)?;
                }
                Ok(ExitCode::Done)
            }
            Err(Refused { diagnostics, untold, sensitive, .. }) => {
                self.show(context, &Files::new(files, &sensitive), &diagnostics, untold, None)?;
                Ok(ExitCode::InvalidFile)
            }
        }
    }

    fn show(
        &self,
        context: &Context,
        files: &Files<'_>,
        diagnostics: &[Diagnostic],
        untold: usize,
        tasks: Option<usize>,
    ) -> Result<(), Report> {
        let output = &context.output;
        match self.output {
            Format::Text if diagnostics.is_empty() => {}
            // Its own renderer knows no colour that is stripped later, so it is told.
            Format::Text => {
                let width = output.width.map_or(100, usize::from);
                output.data(&diagnostics::text(files, diagnostics, untold, true, width))?;
            }
            Format::Json => {
                let records = diagnostics::records(files, diagnostics);
                output.json(&Judgement { valid: tasks.is_some(), tasks, diagnostics: records, untold })?;
            }
            Format::Github => output.data(&diagnostics::github(files, diagnostics))?,
        }
        Ok(())
    }

    fn inputs(&self, context: &Context) -> Result<Vec<Input>, Report> {
        let mut inputs = match (&self.input, &context.global.file) {
            (Some(path), _) if path == Path::new("-") => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
                vec![Input { origin: Origin::Plan, name: "standard input".to_owned(), bytes }]
            }
            (Some(path), _) | (None, Some(path)) => vec![input(context, path, is_yaml(path))?],
            (None, None) => find(context)?,
        };
        if let Some(spec) = &context.global.spec {
            // The one that was named instead of the usual one.
            if self.input.is_none() && context.global.file.is_none() {
                inputs.retain(|input| input.origin == Origin::Plan);
            }
            if inputs.iter().any(|input| input.origin == Origin::Spec) {
                return Err(Report::new(Kind::Usage, "two YAML specs were given; one is merged over a plan file"));
            }
            inputs.push(input(context, spec, true)?);
        }
        Ok(inputs)
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"))
}

fn input(context: &Context, path: &Path, yaml: bool) -> Result<Input, Report> {
    let bytes = OsFiles.read(&context.path(path))?;
    let origin = if yaml { Origin::Spec } else { Origin::Plan };
    Ok(Input { origin, name: path.display().to_string(), bytes })
}

/// The plan file and the YAML spec, or one of them, here or in the nearest folder above, as they would be named from here.
fn find(context: &Context) -> Result<Vec<Input>, Report> {
    let here = OsFiles.real_path(context.dir())?;
    for (levels, dir) in here.ancestors().enumerate() {
        let mut found = Vec::new();
        for (name, is_spec) in [(PLAN_FILE, false), (SPEC_FILE, true)] {
            if OsFiles.stamp(&dir.join(name))?.is_some() {
                let name = if levels == 0 { PathBuf::from(name) } else { dir.join(name) };
                found.push(input(context, &name, is_spec)?);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    if context.global.spec.is_some() {
        return Ok(Vec::new());
    }
    let message = format!("there is no {PLAN_FILE} or {SPEC_FILE} in {} or above", here.display());
    Err(Report::new(Kind::InvalidFile, message).hint("name the file, or write one with `orchestrate init`"))
}

fn unreadable(error: &std::io::Error) -> Report {
    let mut report = Report::new(Kind::Environment, "cannot read standard input");
    report.causes = vec![error.to_string()];
    report
}

fn explain(context: &Context, word: &str) -> Outcome {
    let Some(code) = Code::from_word(word) else {
        let first = Code::ALL.first().map(|code| code.as_str()).unwrap_or_default();
        let last = Code::ALL.last().map(|code| code.as_str()).unwrap_or_default();
        let report = Report::new(Kind::Usage, format!("there is no code `{word}`"));
        return Err(report.hint(format!("codes look like {first} and {last}; they stand in front of each fault")));
    };
    context.output.data(&format!("{}: {}\n\n{}\n", code.as_str(), code.title(), code.explanation()))?;
    Ok(ExitCode::Done)
}
