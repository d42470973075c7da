//! Completion while a person types: the shell's script, which `completions` prints, asks the program itself, so that task
//! ids are completed too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;

use super::args;
use super::world::{PLAN_FILE, SPEC_FILE};
use crate::error::{ExitCode, Kind, Report};
use crate::git::{GixRepository, Repository as _};
use crate::report::escape;
use crate::spec::{self, ReadOptions};

/// The variable in which a shell's script says which shell it is.
pub(super) const VARIABLE: &str = "ORCHESTRATE_COMPLETE";
/// Larger plan files would keep a person waiting at each key.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Prints what asks us; `None`: this shell has no such script.
pub(super) fn script(shell: &str) -> Option<Vec<u8>> {
    let shells = Shells::builtins();
    let completer = shells.completer(shell)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "orchestrate", "orchestrate", "orchestrate", &mut script).ok()?;
    Some(script)
}

/// Answers a shell's script. `args`: our own name, `--`, and the words of the line.
pub(super) fn answer(version: &'static str, shell: &str, args: &[OsString]) -> ExitCode {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else {
        let report = Report::new(Kind::Usage, format!("{VARIABLE} names no shell that is known: {shell}"));
        drop(std::io::Write::write_all(&mut anstream::stderr(), report.render().as_bytes()));
        return report.exit_code();
    };
    let words: Vec<OsString> = args.iter().skip_while(|arg| *arg != "--").skip(1).cloned().collect();
    let mut command = command(version, &words);
    command.build();
    let mut answer = Vec::new();
    // A shell shows nothing of an error, and a line that is not completed is none.
    if completer.write_complete(&mut command, words, None, &mut answer).is_ok() {
        drop(std::io::Write::write_all(&mut std::io::stdout(), &answer));
    }
    ExitCode::Done
}

/// The declaration, with ids wherever a task is named.
fn command(version: &'static str, words: &[OsString]) -> clap::Command {
    let value = |short: &str, long: &str| {
        let at = words.iter().position(|word| word == short || word == long)?;
        words.get(at + 1).map(PathBuf::from)
    };
    let (dir, file) = (value("-C", "--dir"), value("--file", "--file"));
    args::declared(version).mut_subcommands(|sub| {
        let (dir, file) = (dir.clone(), file.clone());
        sub.mut_args(move |arg| {
            let names_task =
                arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == "TASK"));
            if !names_task {
                return arg;
            }
            let (dir, file) = (dir.clone(), file.clone());
            arg.add(ArgValueCandidates::new(move || tasks(dir.as_deref(), file.as_deref())))
        })
    })
}

/// The plan's tasks; none where it cannot be read, which other commands tell.
fn tasks(dir: Option<&Path>, file: Option<&Path>) -> Vec<CompletionCandidate> {
    let dir = dir.unwrap_or(Path::new("."));
    let read = |path: &Path| {
        let small = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST);
        small.then(|| std::fs::read(path).ok()).flatten()
    };
    let files = if let Some(file) = file {
        [read(&dir.join(file)), None]
    } else {
        let Ok(repository) = GixRepository::discover(dir) else { return Vec::new() };
        let root = &repository.layout().root;
        [read(&root.join(PLAN_FILE)), read(&root.join(SPEC_FILE))]
    };
    let Ok(accepted) = spec::read_both(files[0].as_deref(), files[1].as_deref(), ReadOptions::default()) else {
        return Vec::new();
    };
    let candidate = |task: &spec::TaskSpec| {
        let title = task.title.as_deref().map(|title| escape::line(title).into_owned().into());
        CompletionCandidate::new(task.id.to_string()).help(title)
    };
    accepted.tasks.iter().map(|(_, task)| candidate(task)).collect()
}
