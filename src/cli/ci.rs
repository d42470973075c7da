//! What a CI is given: a JUnit report, annotations and a summary of the job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::args::TableFormat;
use super::status;
use super::world::{Context, World};
use crate::error::{Kind, Report};
use crate::observe::{AttemptKey, names};
use crate::report::{View, github, junit};
use crate::spec::TaskId;
use crate::status::Status;

/// How much of an output's end is shown, in bytes.
const TAIL: usize = 16 * 1024;

/// Flags of `run` and `once` about CI.
#[derive(Debug, Args)]
#[command(next_help_heading = "In a CI")]
pub(super) struct Ci {
    /// Write a JUnit report: a case for each task, a failed one with the end of its output
    #[arg(long, value_name = "FILE", env = "ORCHESTRATE_JUNIT", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    junit: Option<PathBuf>,
}

impl Ci {
    /// Shows the tasks and writes what was asked for.
    pub(super) fn show(
        &self,
        context: &Context,
        world: &World,
        view: &View,
        format: TableFormat,
    ) -> Result<(), Report> {
        status::show(context, view, &view.tasks.iter().collect::<Vec<_>>(), format)?;
        let tails = || tails(world, view);
        if format == TableFormat::Github {
            let fence = format!("{:032x}", fastrand::u128(..));
            context.output.data(&github::commands(view, &tails(), &fence))?;
            if let Some(path) = &context.settings.step_summary {
                append(path, &github::summary(view))?;
            }
        }
        self.write(context, view, tails)
    }

    /// Writes the report, where it is asked for.
    pub(super) fn write(
        &self,
        context: &Context,
        view: &View,
        tails: impl FnOnce() -> BTreeMap<String, String>,
    ) -> Result<(), Report> {
        let Some(path) = &self.junit else { return Ok(()) };
        let path = context.path(path);
        let text = junit(view, &tails());
        std::fs::write(&path, text).map_err(|error| cannot("write", &path, &error))
    }
}

/// Others' summaries of the same job stand in that file.
fn append(path: &Path, text: &str) -> Result<(), Report> {
    use std::io::Write as _;
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| cannot("append to", path, &error))
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> Report {
    let mut report = Report::new(Kind::Environment, format!("cannot {verb} {}", path.display()));
    report.causes = vec![error.to_string()];
    report
}

/// The ends of the kept outputs of what failed. They were redacted when they were kept.
fn tails(world: &World, view: &View) -> BTreeMap<String, String> {
    let failed = view.tasks.iter().filter(|task| task.status == Status::Failed && task.attempt > 0);
    failed.filter_map(|task| Some((task.id.clone(), tail(world, &task.id, task.attempt)?))).collect()
}

fn tail(world: &World, id: &str, attempt: u32) -> Option<String> {
    let key = AttemptKey { task: TaskId::new(id).ok()?, attempt };
    let folder = names::attempt_dir(&world.state_dir(), &key);
    let mut text = String::new();
    for name in ["log", "verify.log"] {
        let path = folder.join(name);
        let is_file = world.files.stamp(&path).ok().flatten().is_some_and(|stamp| stamp.is_file());
        let Some(bytes) = is_file.then(|| world.files.read(&path).ok()).flatten() else { continue };
        text.push_str(&String::from_utf8_lossy(last_lines(&bytes)));
    }
    (!text.is_empty()).then_some(text)
}

/// Whole lines where there are any.
fn last_lines(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= TAIL {
        return bytes;
    }
    let end = &bytes[bytes.len() - TAIL..];
    let start = memchr::memchr(b'\n', &end[..end.len() - 1]).map_or(0, |at| at + 1);
    &end[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_begins_with_a_line_where_there_are_lines() {
        assert_eq!(last_lines(b"a\nb\n"), b"a\nb\n");
        let many = b"0123456789\n".repeat(10_000);
        let end = last_lines(&many);
        assert!(end.starts_with(b"0123456789\n") && end.len() > TAIL - 11 && end.len() <= TAIL);
        let one = vec![b'x'; 3 * TAIL];
        assert_eq!(last_lines(&one).len(), TAIL);
    }
}
