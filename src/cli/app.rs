//! From arguments to exit code.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};

use clap::FromArgMatches as _;

use super::args::{self, Cli, Command};
use super::complete;
use super::output::Output;
use super::world::Context;
use crate::error::{self, ExitCode, Kind, Report};
use crate::settings::Settings;

/// What a command ends with.
pub(super) type Outcome = Result<ExitCode, Report>;

/// Runs the program: its arguments, the first of which is its own name, to its exit code.
pub fn main(version: &'static str, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    error::install_panic_hook(version);
    let args: Vec<OsString> = args.into_iter().collect();
    std::panic::catch_unwind(move || run(version, args)).unwrap_or(ExitCode::Bug)
}

fn run(version: &'static str, args: Vec<OsString>) -> ExitCode {
    let command_line: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let command_line = command_line.join(" ");
    let settings = Settings::from_env();
    if let Some(shell) = settings.complete() {
        return complete::answer(version, shell, &args);
    }
    let args = args::with_default_command(args);
    let command = args::command(version).color(help_color(&args, &settings));
    let cli = command.try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are data, the rest is not; clap knows which is which.
            drop(error.print());
            return if error.use_stderr() { ExitCode::Usage } else { ExitCode::Done };
        }
    };
    let output = Output::new(&cli.global, &settings.output);
    let context = Context { global: cli.global, settings, output, command_line, version };
    let outcome = match cli.command {
        Command::Run(run) => run.run(&context),
        _ if context.global.dir.len() > 1 => {
            Err(Report::new(Kind::Usage, "more than one `-C`: only `run` serves several repositories"))
        }
        Command::Once(once) => once.run(&context),
        Command::Plan(plan) => plan.run(&context),
        Command::Status(status) => status.run(&context),
        Command::Describe(describe) => describe.run(&context),
        Command::Diff(diff) => diff.run(&context),
        Command::Shell(enter) => enter.run(&context),
        Command::Logs(logs) => logs.run(&context),
        Command::Events(events) => events.run(&context),
        Command::Graph(graph) => graph.run(&context),
        Command::Review(review) => review.run(&context),
        Command::Retry(retry) => retry.run(&context),
        Command::Cancel(cancel) => cancel.run(&context),
        Command::Suspend(suspend) => suspend.run(&context),
        Command::Resume(resume) => resume.run(&context),
        Command::Clean(clean) => clean.run(&context),
        Command::Doctor(doctor) => doctor.run(&context),
        Command::Init(init) => init.run(&context),
        Command::Validate(validate) => validate.run(&context),
        Command::Schema(schema) => schema.run(&context),
        Command::Completions(completions) => completions.run(&context),
        Command::Man(man) => man.run(&context),
    };
    match outcome {
        Ok(code) => code,
        Err(report) => {
            drop(context.output.stderr().write_all(report.render().as_bytes()));
            report.exit_code()
        }
    }
}

/// Help is made before the flags are known, so its colour is looked for by hand.
fn help_color(args: &[OsString], settings: &Settings) -> clap::ColorChoice {
    let mut args = args.iter().filter_map(|arg| arg.to_str());
    let mut wish = None;
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--color") {
            Some("") => wish = args.next(),
            Some(value) => wish = value.strip_prefix('='),
            None => {}
        }
    }
    let output = &settings.output;
    match wish {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ if output.no_color => clap::ColorChoice::Never,
        _ if output.force_color => clap::ColorChoice::Always,
        _ if output.is_dumb || !std::io::stdout().is_terminal() => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}
