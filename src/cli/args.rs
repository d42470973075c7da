//! The command line as it is declared: every command and flag, with its help.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum, ValueHint};

use super::{describe, events, graph, init, logs, once, plan, request, review, run, schema, shell, status, validate};

/// Work off a plan of coding-agent tasks: one git worktree, branch and container for each.
#[derive(Debug, Parser)]
#[command(
    name = "orchestrate",
    version,
    styles = STYLES,
    disable_help_subcommand = false,
    propagate_version = false,
    after_help = "Without a command: `once`. Flags stand over variables, variables over the plan file.\n\
                  `orchestrate help COMMAND` tells more, with examples.",
)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,

    #[command(subcommand)]
    pub(super) command: Command,
}

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Flags that every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Work as if started in this folder
    #[arg(
        short = 'C',
        long = "dir",
        value_name = "DIR",
        global = true,
        env = "ORCHESTRATE_DIR",
        hide_env_values = true
    )]
    #[arg(value_hint = ValueHint::DirPath)]
    pub(super) dir: Option<PathBuf>,

    /// Use this plan file [default: `.agent-tasks.json` at the root of the repository]
    #[arg(short = 'f', long, value_name = "FILE", global = true, env = "ORCHESTRATE_FILE", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: Option<PathBuf>,

    /// Say nothing but errors on standard error
    #[arg(short, long, global = true, env = "ORCHESTRATE_QUIET", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new(), conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Say more on standard error
    #[arg(short, long, global = true, env = "ORCHESTRATE_VERBOSE", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) verbose: bool,

    /// Colour the output; `auto` does so on a terminal unless `NO_COLOR` is set
    #[arg(long, value_name = "WHEN", global = true, env = "ORCHESTRATE_COLOR", hide_env_values = true)]
    #[arg(default_value = "auto", hide_possible_values = false)]
    pub(super) color: When,

    /// Write progress on standard error as text or as one JSON object a line
    #[arg(long, value_name = "FORMAT", global = true, env = "ORCHESTRATE_LOG_FORMAT", hide_env_values = true)]
    #[arg(default_value = "text")]
    pub(super) log_format: LogFormat,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    /// On a terminal
    Auto,
    /// Everywhere
    Always,
    /// Nowhere
    Never,
}

/// How progress is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Forms of a list of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TableFormat {
    /// Fitted to the terminal
    #[value(alias = "text")]
    Table,
    /// With every column
    Wide,
    /// One document with a stable schema: `orchestrate schema status`
    Json,
    /// Ids only, one a line
    Name,
}

/// Forms of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TextFormat {
    /// For people
    #[value(aliases = ["table", "wide", "name"])]
    Text,
    /// For programs
    Json,
}

/// The commands, in the order of the help.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make one pass: take in what ended, launch what is ready, and show the table
    Once(once::Once),
    /// Keep reconciling until told to stop, or until nothing can move any more
    Run(run::Run),
    /// Show what the next pass would do, and why; change nothing
    Plan(plan::Plan),
    /// Show every task, what it waits for, and what happens next
    Status(status::Status),
    /// Show everything that is known of one task
    #[command(alias = "why")]
    Describe(describe::Describe),
    /// Show a task's output
    Logs(logs::Logs),
    /// Show what happened, from the journal
    Events(events::Events),
    /// Show the dependencies as a graph
    Graph(graph::Graph),
    /// Show what the finished branches hold and how to merge them; merge nothing
    Review(review::Review),
    /// Run tasks again as new attempts
    Retry(request::Retry),
    /// Stop tasks that run, and never launch those that wait
    Cancel(request::Cancel),
    /// Launch nothing new; what runs goes on
    Suspend(request::Suspend),
    /// Launch again after a suspend
    Resume(request::Resume),
    /// Write a plan file to start from
    Init(init::Init),
    /// Judge a plan file; needs neither an engine nor git
    Validate(validate::Validate),
    /// Print a JSON Schema
    Schema(schema::Schema),
    /// Print a completion script for a shell
    Completions(shell::Completions),
    /// Print or write manual pages
    Man(shell::Man),
}

/// How the commands stand together in the help.
pub(super) const GROUPS: [(&str, &[&str]); 4] = [
    ("Work off a plan", &["once", "run", "plan"]),
    ("Look", &["status", "describe", "logs", "events", "graph", "review"]),
    ("Steer", &["retry", "cancel", "suspend", "resume"]),
    ("Set up", &["init", "validate", "schema", "completions", "man"]),
];

/// The command line with its grouped help, under the program's full version.
pub(super) fn command(version: &'static str) -> clap::Command {
    let command = Cli::command().version(version);
    let header = STYLES.get_header();
    let literal = STYLES.get_literal();
    let mut groups = String::new();
    for (group, names) in GROUPS {
        writeln!(groups, "\n{header}{group}:{header:#}").expect("BUG: writing to a string cannot fail");
        for name in names {
            let about =
                command.find_subcommand(name).and_then(|command| command.get_about()).cloned().unwrap_or_default();
            writeln!(groups, "  {literal}{name:12}{literal:#} {about}").expect("BUG: writing to a string cannot fail");
        }
    }
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\n{header}Global options:{header:#}\n{{options}}\n\n{{after-help}}"
    ))
}

/// Puts `once` where no command is named, so that `orchestrate -o json` is `orchestrate once -o json`.
pub(super) fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(arg) = args.get(at).and_then(|arg| arg.to_str()) {
        match arg {
            "-h" | "--help" | "-V" | "--version" | "--" => return args,
            // These take a value that is no command.
            "-C" | "--dir" | "-f" | "--file" | "--color" | "--log-format" | "-o" | "--output" | "--max-concurrent" => {
                at += 2;
            }
            arg if arg.starts_with('-') => at += 1,
            _ => return args,
        }
    }
    // A name that is not UTF-8 is no command either; the parser says so.
    if at < args.len() {
        return args;
    }
    args.insert(1.min(args.len()), "once".into());
    args
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn with_default(args: &[&str]) -> Vec<String> {
        let args = std::iter::once("orchestrate").chain(args.iter().copied()).map(OsString::from).collect();
        with_default_command(args).into_iter().skip(1).map(|arg| arg.into_string().expect("text")).collect()
    }

    #[test]
    fn once_is_meant_where_no_command_is_named() {
        assert_eq!(with_default(&[]), ["once"]);
        assert_eq!(with_default(&["-o", "json", "-C", "status"]), ["once", "-o", "json", "-C", "status"]);
        assert_eq!(with_default(&["-q", "--color=never"]), ["once", "-q", "--color=never"]);
        for other in [&["status"][..], &["-C", "x", "status", "-o", "json"], &["--help"], &["-q", "-V"], &["stauts"]] {
            assert_eq!(with_default(other), other);
        }
    }

    #[test]
    fn the_declaration_holds_together_and_every_command_stands_in_one_group() {
        let command = command("1");
        command.clone().debug_assert();
        let all: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(grouped.len(), all.len());
        assert_eq!(grouped.into_iter().collect::<BTreeSet<_>>(), all);
    }
}
