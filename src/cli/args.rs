//! The command line as it is declared: every command and flag, with its help.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum, ValueHint};

use super::{
    clean, describe, diff, doctor, enter, events, graph, init, logs, once, plan, request, review, run, schema, shell,
    status, validate,
};
use crate::plan::DiskFloor;
use crate::spec::RuntimeKind;

/// Work off a plan of coding-agent tasks: one git worktree, branch and container for each.
#[derive(Debug, Parser)]
#[command(
    name = "orchestrate",
    version,
    styles = STYLES,
    override_usage = "orchestrate [OPTIONS] [COMMAND]",
    disable_help_subcommand = true,
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
    pub(super) dir: Vec<PathBuf>,

    /// Use this plan file [default: `.agent-tasks.json` at the root of the repository]
    #[arg(short = 'f', long, value_name = "FILE", global = true, env = "ORCHESTRATE_FILE", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: Option<PathBuf>,

    /// Lay this YAML spec over the plan file [default: `agent-tasks.yaml` beside it, where that is there]
    #[arg(long, value_name = "FILE", global = true, env = "ORCHESTRATE_SPEC", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) spec: Option<PathBuf>,

    /// Run attempts on this runtime, whatever the plan file says [default: the file's `runtime`, else docker]
    #[arg(long, value_name = "RUNTIME", global = true, env = "ORCHESTRATE_RUNTIME", hide_env_values = true)]
    pub(super) runtime: Option<Runtime>,

    /// With `--runtime process`: run attempts although this machine can confine them in no way
    #[arg(long, global = true, env = "ORCHESTRATE_ALLOW_UNCONFINED", hide_env_values = true)]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) allow_unconfined: bool,

    /// Launch nothing while less than SIZE is free for worktrees and state; 0: launch all the same
    #[arg(long, value_name = "SIZE", global = true, env = "ORCHESTRATE_DISK_FLOOR", hide_env_values = true)]
    #[arg(value_parser = crate::spec::size, default_value = "1GiB")]
    pub(super) disk_floor: u64,

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

impl Global {
    /// Below this nothing is launched.
    pub(super) fn disk_floor(&self) -> DiskFloor {
        DiskFloor { bytes: self.disk_floor }
    }
}

/// Where attempts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Runtime {
    /// Containers of a Docker-compatible engine
    Docker,
    /// Local processes, confined as far as the kernel allows; no container
    Process,
}

impl From<Runtime> for RuntimeKind {
    fn from(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Docker => Self::Docker,
            Runtime::Process => Self::Process,
        }
    }
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
    /// The same as YAML
    Yaml,
    /// Ids only, one a line
    Name,
    /// The table with annotations for GitHub's runner; `once` and `run` add log tails and the job's summary
    Github,
}

/// Forms of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TextFormat {
    /// For people
    #[value(aliases = ["table", "wide", "name"])]
    Text,
    /// For programs
    Json,
    /// The same as YAML
    Yaml,
}

/// The commands, in the order of the help. Each is described where its flags are declared.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Once(once::Once),
    Run(Box<run::Run>),
    Plan(plan::Plan),
    Status(status::Status),
    #[command(alias = "why")]
    Describe(describe::Describe),
    Diff(diff::Diff),
    #[command(name = "shell")]
    Shell(enter::Enter),
    Logs(logs::Logs),
    Events(events::Events),
    Graph(graph::Graph),
    Review(review::Review),
    Retry(request::Retry),
    Cancel(request::Cancel),
    Suspend(request::Suspend),
    Resume(request::Resume),
    Clean(clean::Clean),
    Doctor(doctor::DoctorCommand),
    Init(init::Init),
    Validate(validate::Validate),
    Schema(schema::Schema),
    Completions(shell::Completions),
    Man(shell::Man),
}

/// How the commands stand together in the help.
pub(super) const GROUPS: [(&str, &[&str]); 4] = [
    ("Work off a plan", &["once", "run", "plan"]),
    ("Look", &["status", "describe", "diff", "shell", "logs", "events", "graph", "review"]),
    ("Steer", &["retry", "cancel", "suspend", "resume", "clean"]),
    ("Set up", &["doctor", "init", "validate", "schema", "completions", "man"]),
];

/// The command line as it is declared, for what is made from it.
pub(super) fn declared(version: &'static str) -> clap::Command {
    Cli::command().version(version)
}

/// The command line with its grouped help, under the program's full version.
pub(super) fn command(version: &'static str) -> clap::Command {
    let command = declared(version);
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
    // One form of help for `-h` and `--help`: the whole description over compact flags. The parser's own long form would
    // put three lines between two flags.
    let help = || clap::Arg::new("help").short('h').long("help").help("Show this help").action(ArgAction::HelpShort);
    let command = command.disable_help_flag(true).arg(help()).mut_subcommands(|sub| {
        let about = sub.get_long_about().or(sub.get_about()).cloned().unwrap_or_default();
        sub.about(about).disable_help_flag(true).arg(help())
    });
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\n{header}Global options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// Puts `once` where no command is named, so that `orchestrate -o json` is `orchestrate once -o json`, and makes
/// `orchestrate help COMMAND` the same as `orchestrate COMMAND --help`.
pub(super) fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|arg| arg == "help") {
        args.remove(1);
        args.push("--help".into());
        return args;
    }
    let mut at = 1;
    while let Some(arg) = args.get(at).and_then(|arg| arg.to_str()) {
        match arg {
            "-h" | "--help" | "-V" | "--version" | "--" => return args,
            // These take a value that is no command.
            "-C" | "--dir" | "-f" | "--file" | "--spec" | "--color" | "--log-format" | "--disk-floor" | "-o"
            | "--output" | "--max-concurrent" => {
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
        assert_eq!(with_default(&["help", "run"]), ["run", "--help"]);
        assert_eq!(with_default(&["help"]), ["--help"]);
        for other in [&["status"][..], &["-C", "x", "status", "-o", "json"], &["--help"], &["-q", "-V"], &["stauts"]] {
            assert_eq!(with_default(other), other);
        }
    }

    /// The command lines of a text: what follows our name in a line, up to what belongs to the shell or to the reader.
    fn lines_of(text: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        for line in text.lines() {
            let line = line.trim_start_matches(|c: char| c == '|' || c == '`' || c.is_whitespace());
            let Some(at) = line.find("orchestrate ") else { continue };
            let before = &line[..at];
            // Where it is the command of its line, or of a pipe's part.
            if !(before.is_empty() || before.trim_end().ends_with(['|', '(', '=']) || before.ends_with("&& ")) {
                continue;
            }
            let line = &line[at..];
            let end = ["  ", " | ", " || ", " > ", " 2>", " >> ", " & ", " # ", ")", "; ", " && ", "`"]
                .iter()
                .filter_map(|end| line.find(end))
                .min();
            let line = line[..end.unwrap_or(line.len())].replace('…', "");
            // What a shell would put in.
            let line = line.split(" $(").next().unwrap_or_default().to_owned();
            found.push(shlex::split(&line).unwrap_or_else(|| panic!("quotes: {line}")));
        }
        found
    }

    #[test]
    fn every_documented_command_line_is_one() {
        let mut texts: Vec<(String, String)> = Vec::new();
        for sub in command("1").get_subcommands() {
            let text = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            texts.push((sub.get_name().to_owned(), text));
        }
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let documents =
            std::fs::read_dir(root.join("specs")).expect("readable").map(|entry| entry.expect("read").path());
        for path in documents.chain([root.join("README.md")]).filter(|path| path.extension() == Some("md".as_ref())) {
            let text = std::fs::read_to_string(&path).expect("readable");
            // Only what stands in a block is for pasting.
            let blocks = text.split("```").skip(1).step_by(2).collect::<Vec<_>>().join("\n");
            texts.push((path.display().to_string(), blocks));
        }
        let mut count = 0;
        let mut wrong = Vec::new();
        for (place, text) in &texts {
            for words in lines_of(text) {
                count += 1;
                let args = with_default_command(words.iter().map(OsString::from).collect());
                let parsed = command("1").try_get_matches_from(args);
                // A substitution that was cut off left nothing where a task has to be.
                let is_fine = parsed.as_ref().err().is_none_or(|error| {
                    !error.use_stderr() || error.kind() == clap::error::ErrorKind::MissingRequiredArgument
                });
                if !is_fine {
                    wrong.push(format!(
                        "{place}: {words:?}: {}",
                        parsed.err().map(|error| error.to_string()).unwrap_or_default()
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(count > 60, "only {count} found");
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
