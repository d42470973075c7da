//! `orchestrate logs`: a task's output, from its container or as it was kept.

use std::io::Write;
use std::path::Path;

use clap::Args;
use futures::StreamExt as _;

use super::app::Outcome;
use super::world::{Context, World, block_on, require_task};
use crate::error::{ExitCode, Kind, Report};
use crate::observe::{AttemptKey, names};
use crate::record::{Journal, Ledger, State};
use crate::report::escape::StreamEscaper;
use crate::runtime::{ErrorKind, LogOptions, RuntimeError};
use crate::spec::TaskId;

/// Show a task's output
///
/// From its container while it runs, as it was kept after it ended.
///
/// Both streams, in the order in which they were written. On a terminal control characters are shown as escapes;
/// into a pipe or a file every byte goes as it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate logs api                 the newest attempt\n  \
                  orchestrate logs -f api              and what comes, until it ends\n  \
                  orchestrate logs api --attempt 1     an earlier attempt\n  \
                  orchestrate logs api --tail 50")]
pub(super) struct Logs {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,

    /// Use this plan file [default: `.agent-tasks.json` at the root of the repository]
    // Declared again without its short form, which means something else here; the parser fills in the global one.
    #[arg(id = "file", long = "file", value_name = "FILE", help_heading = "Global options")]
    #[arg(env = "ORCHESTRATE_FILE", hide_env_values = true, value_hint = clap::ValueHint::FilePath)]
    _file: Option<std::path::PathBuf>,

    /// Go on until the attempt ends
    #[arg(short = 'f', long)]
    follow: bool,

    /// Of this attempt [default: the newest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,

    /// Only the last so many lines
    #[arg(long, value_name = "N")]
    tail: Option<u32>,
}

/// Where an attempt's output is.
enum Source {
    /// As it was kept.
    Kept(Vec<u8>),
    /// In this container.
    Container(String),
}

impl Logs {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let ledger = Journal::read(world.files.as_ref(), &world.state_dir())?.ledger;
        let key = self.key(context, &world, &ledger)?;
        match source(&world, &ledger, &key)? {
            Source::Kept(bytes) => {
                let mut sink = Sink::new(context);
                sink.write(last_lines(&bytes, self.tail))?;
                sink.finish()?;
            }
            Source::Container(name) => block_on(self.stream(context, &world, &ledger, &key, &name))??,
        }
        Ok(ExitCode::Done)
    }

    /// The attempt that is meant.
    fn key(&self, context: &Context, world: &World, ledger: &Ledger) -> Result<AttemptKey, Report> {
        let task =
            TaskId::new(&self.task).ok().filter(|task| ledger.task(task).is_some_and(|record| record.attempt > 0));
        let Some(task) = task else {
            let (_, view) = context.survey(world)?;
            let task = require_task(&view, &self.task)?;
            let why = task.message.clone().unwrap_or_else(|| "it was not looked at yet".to_owned());
            let mut report = Report::new(Kind::Usage, format!("`{}` was never launched, so it has no output", task.id));
            report.causes = vec![why];
            return Err(report);
        };
        let newest = ledger.task(&task).map_or(0, |record| record.attempt);
        let attempt = self.attempt.unwrap_or(newest);
        if attempt == 0 || attempt > newest {
            let report = Report::new(Kind::Usage, format!("`{task}` has no attempt {attempt}"));
            return Err(report.hint(format!("its attempts are 1 to {newest}")));
        }
        Ok(AttemptKey { task, attempt })
    }

    async fn stream(
        &self,
        context: &Context,
        world: &World,
        ledger: &Ledger,
        key: &AttemptKey,
        name: &str,
    ) -> Result<(), Report> {
        let options = LogOptions { follow: self.follow, tail: self.tail, since: None };
        let mut chunks = world.runtime.logs(name, options);
        let mut sink = Sink::new(context);
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(chunk) => sink.write(&chunk.bytes)?,
                Err(error) if error.kind == ErrorKind::NotFound => return Err(absent(ledger, key, &error)),
                Err(error) => return Err(error.into()),
            }
        }
        sink.finish()?;
        Ok(())
    }
}

/// The kept log where there is one, since a container may be gone; else the container.
fn source(world: &World, ledger: &Ledger, key: &AttemptKey) -> Result<Source, Report> {
    let path = names::attempt_dir(&world.state_dir(), key).join("log");
    if let Some(bytes) = kept(world, &path)? {
        return Ok(Source::Kept(bytes));
    }
    let record = ledger.task(&key.task).filter(|record| record.attempt == key.attempt);
    let id = record.and_then(|record| record.current.as_ref()).and_then(|current| current.container_id.clone());
    let name = || ledger.instance().map(|instance| names::container(instance, key));
    match id.or_else(name) {
        Some(name) => Ok(Source::Container(name)),
        None => Err(Report::new(Kind::Usage, format!("attempt {} of `{}` has no output", key.attempt, key.task))),
    }
}

fn kept(world: &World, path: &Path) -> Result<Option<Vec<u8>>, Report> {
    match world.files.stamp(path)? {
        Some(stamp) if stamp.is_file() => Ok(Some(world.files.read(path)?)),
        _ => Ok(None),
    }
}

fn absent(ledger: &Ledger, key: &AttemptKey, error: &RuntimeError) -> Report {
    let record = ledger.task(&key.task);
    let why = record.and_then(|record| record.end()).and_then(|end| end.log_error.clone());
    let being_made = record.is_some_and(|record| record.state == State::Live && record.attempt == key.attempt);
    let mut report =
        Report::new(Kind::Environment, format!("there is no output of attempt {} of `{}`", key.attempt, key.task));
    report.causes = vec![why.unwrap_or_else(|| error.to_string())];
    if being_made { report.hint("it is being launched; try again in a moment") } else { report }
}

/// Standard output; escaped where it is a terminal.
struct Sink {
    out: std::io::Stdout,
    escaper: Option<StreamEscaper>,
}

impl Sink {
    fn new(context: &Context) -> Self {
        Self { out: std::io::stdout(), escaper: context.output.is_terminal.then(StreamEscaper::default) }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.escaper {
            Some(escaper) => self.out.write_all(escaper.push(bytes).as_bytes())?,
            None => self.out.write_all(bytes)?,
        }
        self.out.flush()
    }

    fn finish(&mut self) -> std::io::Result<()> {
        if let Some(escaper) = &mut self.escaper {
            self.out.write_all(escaper.finish().as_bytes())?;
        }
        self.out.flush()
    }
}

/// The last so many lines; a last one without its end counts.
fn last_lines(bytes: &[u8], count: Option<u32>) -> &[u8] {
    let Some(count) = count else { return bytes };
    if count == 0 {
        return &[];
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let mut ends = memchr::memrchr_iter(b'\n', body);
    let start = ends.nth(count as usize - 1).map_or(0, |end| end + 1);
    &bytes[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_counted_from_the_end_with_or_without_a_final_line_end() {
        assert_eq!(last_lines(b"a\nb\nc\n", Some(2)), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", Some(2)), b"b\nc");
        assert_eq!(last_lines(b"a\n", Some(9)), b"a\n");
        assert_eq!(last_lines(b"\n\n\n", Some(1)), b"\n");
        assert_eq!(last_lines(b"a\nb", Some(0)), b"");
        assert_eq!(last_lines(b"", Some(3)), b"");
        assert_eq!(last_lines(b"a\nb", None), b"a\nb");
    }
}
