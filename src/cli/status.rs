//! `orchestrate status`: how every task stands.

use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::StreamExt as _;

use super::app::Outcome;
use super::args::TableFormat;
use super::follow;
use super::world::{Context, World, block_on, require_tasks};
use crate::error::{ExitCode, Report};
use crate::report::table::{self, Detail};
use crate::report::{TaskView, View};
use crate::runtime::LogOptions;
use crate::status;

/// Show every task, what it waits for, and what happens next
///
/// Reads the plan file, the journal and one list of the engine; changes nothing, and works beside a running
/// `orchestrate run`. Where the engine does not answer, what the journal knows is shown, and that it is so.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate status                        the table\n  \
                  orchestrate status --status failed        only what failed\n  \
                  orchestrate status api web -o wide        two tasks with every column, and what they wrote last\n  \
                  orchestrate status --watch                until all is over or Ctrl-C\n  \
                  orchestrate status -o json | jq .summary  for scripts\n  \
                  orchestrate retry $(orchestrate status --status failed -o name)")]
#[expect(clippy::struct_field_names, reason = "fields are named for their flags")]
pub(super) struct Status {
    /// Only these tasks
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,

    /// Only tasks that stand like this; may be given several times
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<StatusWord>,

    /// Order of the table [default: that of the plan file]
    #[arg(long, value_name = "COLUMN")]
    sort_by: Option<SortBy>,

    /// How to show the tasks
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    output: TableFormat,

    /// Go on until nothing can move any more: on a terminal the table, repainted; elsewhere a line for each change, with
    /// `-o json` a document a line
    #[arg(short, long)]
    watch: bool,

    /// Exit with 1 where a task failed, is blocked or was cancelled, with 6 while anything can still move
    #[arg(long)]
    exit_status: bool,
}

/// A status on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StatusWord {
    Pending,
    Running,
    Completed,
    Failed,
    Blocked,
    Cancelled,
}

impl StatusWord {
    fn status(self) -> status::Status {
        match self {
            Self::Pending => status::Status::Pending,
            Self::Running => status::Status::Running,
            Self::Completed => status::Status::Completed,
            Self::Failed => status::Status::Failed,
            Self::Blocked => status::Status::Blocked,
            Self::Cancelled => status::Status::Cancelled,
        }
    }
}

/// What the table can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortBy {
    /// By id
    Name,
    /// What runs first, then what waits, then what ended
    Status,
    /// The longest first
    Time,
    /// The newest first
    Started,
}

impl Status {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        if self.watch {
            let select = |view: &View| self.select(view).map(|tasks| tasks.into_iter().cloned().collect());
            let view = follow::follow(context, &world, self.output, &select)?;
            return Ok(if self.exit_status { exit_code(&view) } else { ExitCode::Done });
        }
        let (_, mut view) = context.survey(&world)?;
        // A probe that fails says why where it is needed: at the first launch.
        view.confinement = block_on(world.runtime.isolation())?.ok().flatten();
        if self.output == TableFormat::Wide {
            block_on(add_last_lines(&world, &mut view))?;
        }
        show(context, &view, &self.select(&view)?, self.output)?;
        Ok(if self.exit_status { exit_code(&view) } else { ExitCode::Done })
    }

    fn select<'v>(&self, view: &'v View) -> Result<Vec<&'v TaskView>, Report> {
        let mut tasks =
            if self.tasks.is_empty() { view.tasks.iter().collect() } else { require_tasks(view, &self.tasks)? };
        if !self.status.is_empty() {
            tasks.retain(|task| self.status.iter().any(|word| word.status() == task.status));
        }
        match self.sort_by {
            None => {}
            Some(SortBy::Name) => tasks.sort_by(|a, b| a.id.cmp(&b.id)),
            Some(SortBy::Status) => tasks.sort_by_key(|task| (task.status != status::Status::Running, task.status)),
            Some(SortBy::Time) => tasks.sort_by_key(|task| std::cmp::Reverse(task.seconds)),
            Some(SortBy::Started) => tasks.sort_by_key(|task| std::cmp::Reverse(task.started_at)),
        }
        Ok(tasks)
    }
}

/// How long all the engine's answers may take. What does not come is not shown.
const LINES_WITHIN: Duration = Duration::from_secs(3);
/// So much of a line says what a task is about.
const LINE: usize = 200;

/// Adds to each task that runs what it wrote last.
async fn add_last_lines(world: &World, view: &mut View) {
    let options = LogOptions { follow: false, tail: Some(1), since: None };
    let running = view.tasks.iter_mut().filter(|task| task.status == status::Status::Running);
    let asked = running.filter_map(|task| {
        let id = task.container_id.clone()?;
        Some(async move {
            let mut chunks = world.runtime.logs(&id, options);
            let mut bytes = Vec::new();
            while let Some(Ok(chunk)) = chunks.next().await {
                bytes.extend_from_slice(&chunk.bytes);
                // A line without an end is not waited for.
                if bytes.len() > 64 * 1024 {
                    break;
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            let line: String = text.lines().last().unwrap_or_default().trim().chars().take(LINE).collect();
            if !line.is_empty() {
                let said = task.message.take().map_or_else(String::new, |message| message + "; ");
                task.message = Some(format!("{said}wrote last: {line}"));
            }
        })
    });
    drop(tokio::time::timeout(LINES_WITHIN, futures::future::join_all(asked)).await);
}

/// What `--exit-status` gives.
pub(super) fn exit_code(view: &View) -> ExitCode {
    if !view.is_settled() {
        ExitCode::Unfinished
    } else if view.is_completed() {
        ExitCode::Done
    } else {
        ExitCode::Unsuccessful
    }
}

/// Shows some of a view's tasks.
pub(super) fn show(context: &Context, view: &View, tasks: &[&TaskView], format: TableFormat) -> Result<(), Report> {
    let output = &context.output;
    let detail = if format == TableFormat::Wide { Detail::Wide } else { Detail::Normal };
    match format {
        TableFormat::Json | TableFormat::Yaml => {
            let selected = View { tasks: tasks.iter().map(|task| (*task).clone()).collect(), ..view.clone() };
            if format == TableFormat::Json { output.json(&selected)? } else { output.yaml(&selected)? }
        }
        TableFormat::Name => {
            output.lines(tasks.iter().map(|task| task.id.as_str()))?;
        }
        TableFormat::Table | TableFormat::Wide | TableFormat::Github => {
            let mut text = table::rows(tasks, view, output.width, detail);
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&table::footer(view));
            output.data(&text)?;
        }
    }
    Ok(())
}
