//! Progress as lines: one for each change of a task, for logs, pipes and CI.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use serde::Serialize;

use super::table::status_style;
use super::view::{TaskView, View};
use super::{escape, time};
use crate::clock::Clock;
use crate::controller::{Level, Reporter, Snapshot};
use crate::status::{Reason, Status};

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Writes a line for each change. What cannot be written is dropped: progress may not stop the work.
pub struct LineReporter {
    out: Box<dyn Write + Send>,
    format: LineFormat,
    least: Level,
    clock: Arc<dyn Clock>,
    folder: String,
    seen: HashMap<String, Seen>,
}

/// What was told last of a task.
type Seen = (Status, Option<Reason>, u32, bool);

/// One change as JSON.
#[derive(Serialize)]
struct Change<'a> {
    at: String,
    level: &'static str,
    task: &'a str,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    attempt: u32,
    stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// One notice as JSON.
#[derive(Serialize)]
struct Notice<'a> {
    at: String,
    level: &'static str,
    message: &'a str,
}

impl LineReporter {
    /// Writes to `out` what is at least as important as `least`. `folder` names the plan where the file does not.
    pub fn new(
        out: Box<dyn Write + Send>,
        format: LineFormat,
        least: Level,
        clock: Arc<dyn Clock>,
        folder: impl Into<String>,
    ) -> Self {
        Self { out, format, least, clock, folder: folder.into(), seen: HashMap::new() }
    }

    fn change(&mut self, view: &View, task: &TaskView) {
        let seen = (task.status, task.reason, task.attempt, task.stale);
        let before = self.seen.insert(task.id.clone(), seen);
        if before == Some(seen) || (before.is_none() && is_dull(task)) {
            return;
        }
        let was = before.map(|(status, ..)| status).filter(|was| *was != task.status);
        let level = level_of(task);
        if level < self.least {
            return;
        }
        let line = match self.format {
            LineFormat::Text => text(view, task),
            LineFormat::Json => json(&Change {
                at: time::exact(view.at),
                level: word(level),
                task: &task.id,
                status: task.status,
                was,
                reason: task.reason,
                attempt: task.attempt,
                stale: task.stale,
                message: task.message.as_deref(),
            }),
        };
        self.write(&line);
    }

    fn write(&mut self, line: &str) {
        drop(writeln!(self.out, "{line}").and_then(|()| self.out.flush()));
    }
}

impl Reporter for LineReporter {
    fn pass(&mut self, snapshot: &Snapshot) {
        let view = View::of(snapshot, &self.folder);
        for task in &view.tasks {
            self.change(&view, task);
        }
    }

    fn notice(&mut self, level: Level, message: &str) {
        if level < self.least {
            return;
        }
        let at = time::exact(self.clock.now().wall);
        let line = match self.format {
            LineFormat::Text => format!("{at}  {}: {}", word(level), escape::line(message)),
            LineFormat::Json => json(&Notice { at, level: word(level), message }),
        };
        self.write(&line);
    }
}

fn text(view: &View, task: &TaskView) -> String {
    let style = status_style(task.status, task.stale);
    let mut line = format!("{}  {}  {style}{}{style:#}", time::exact(view.at), task.id, task.status);
    let mut add = |text: &str| {
        line.push_str("  ");
        line.push_str(text);
    };
    if task.attempt > 0 {
        add(&format!("attempt {}", task.attempt));
    }
    if let Some(reason) = task.reason {
        add(reason.as_str());
    }
    if task.stale {
        add("stale");
    }
    if let Some(message) = task.message.as_deref() {
        add(&escape::line(message));
    }
    line
}

/// What need not be told when it is first seen: it waits for its turn.
fn is_dull(task: &TaskView) -> bool {
    matches!(task.reason, Some(Reason::WaitingForDependencies | Reason::WaitingForSlot))
}

fn level_of(task: &TaskView) -> Level {
    match task.status {
        Status::Failed => Level::Error,
        Status::Blocked | Status::Cancelled => Level::Warning,
        Status::Running if task.stale => Level::Warning,
        Status::Pending | Status::Running | Status::Completed => Level::Info,
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("BUG: a progress line is plain data")
}
