//! Progress as lines: one for each change of a task, for logs, pipes and CI.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::table::status_style;
use super::view::{TaskView, View};
use super::{escape, time};
use crate::clock::Clock;
use crate::controller::{Beat, Level, Reporter, Snapshot};
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
    heartbeat: Option<Duration>,
    /// Tells this plan from others on the same page.
    name: Option<String>,
    /// The monotonic clock when the last line was written, or the first pass was made.
    written: Option<Duration>,
    /// What to say when nothing happens: how the plan stood, where something can still happen.
    standing: Option<String>,
}

/// What was told last of a task. Not its attempt, which is known only while it is being launched.
type Seen = (Status, Option<Reason>, bool);

/// One change as JSON.
#[derive(Serialize)]
struct Change<'a> {
    at: String,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
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
        Self {
            out,
            format,
            least,
            clock,
            folder: folder.into(),
            seen: HashMap::new(),
            heartbeat: None,
            name: None,
            written: None,
            standing: None,
        }
    }

    /// Says how the plan stands where nothing was said for so long and something can still happen, so that a CI does not
    /// take a long wait for a hang.
    #[must_use]
    pub fn with_heartbeat(mut self, every: Option<Duration>) -> Self {
        self.heartbeat = every;
        self
    }

    /// Names the plan in each line, where others write to the same page.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Tells what changed since the last time.
    pub fn show(&mut self, view: &View) {
        for task in &view.tasks {
            self.change(view, task);
        }
        self.standing = standing(view);
    }

    fn change(&mut self, view: &View, task: &TaskView) {
        // That the engine is away is one notice, not a change of every task; what it means for them shows when it is back.
        if task.reason == Some(Reason::EngineUnavailable) {
            return;
        }
        let seen = (task.status, task.reason, task.stale);
        let before = self.seen.insert(task.id.clone(), seen);
        if before == Some(seen) || (before.is_none() && is_dull(task)) {
            return;
        }
        let was = before.map(|(status, _, _)| status).filter(|was| *was != task.status);
        let level = level_of(task);
        if level < self.least {
            return;
        }
        let line = match self.format {
            LineFormat::Text => text(self.name.as_deref(), view, task),
            LineFormat::Json => json(&Change {
                at: time::exact(view.at),
                level: word(level),
                project: self.name.as_deref(),
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
        self.written = Some(self.clock.now().monotonic);
        drop(writeln!(self.out, "{line}").and_then(|()| self.out.flush()));
    }
}

impl Reporter for LineReporter {
    fn pass(&mut self, snapshot: &Snapshot) {
        self.show(&View::of(snapshot, &self.folder));
    }

    fn beat(&mut self, beat: &Beat) {
        let Some(every) = self.heartbeat else { return };
        let now = beat.at.monotonic;
        let since = *self.written.get_or_insert(now);
        if now.saturating_sub(since) >= every
            && let Some(standing) = self.standing.clone()
        {
            self.notice(Level::Info, &standing);
            // Where that is not to be written, it is not to be made again at each pass either.
            self.written = Some(now);
        }
    }

    fn notice(&mut self, level: Level, message: &str) {
        if level < self.least {
            return;
        }
        let at = time::exact(self.clock.now().wall);
        let line = match self.format {
            LineFormat::Text => {
                let name = self.name.as_deref().map(|name| format!("{}: ", escape::line(name))).unwrap_or_default();
                format!("{at}  {}: {name}{}", word(level), escape::line(message))
            }
            LineFormat::Json => json(&Notice { at, level: word(level), project: self.name.as_deref(), message }),
        };
        self.write(&line);
    }
}

/// How a plan stands that something can still happen to.
fn standing(view: &View) -> Option<String> {
    const NAMED: usize = 5;
    if view.is_settled() {
        return None;
    }
    let mut running = view.tasks.iter().filter(|task| task.status == Status::Running).map(|task| task.id.as_str());
    let named: Vec<&str> = running.by_ref().take(NAMED).collect();
    let more = match running.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let runs = if named.is_empty() { String::new() } else { format!("; running: {}{more}", named.join(", ")) };
    Some(format!("still waiting: {}{runs}", view.summary.sentence()))
}

fn text(name: Option<&str>, view: &View, task: &TaskView) -> String {
    let style = status_style(task.status, task.stale);
    let name = name.map(|name| format!("{}/", escape::line(name))).unwrap_or_default();
    let mut line = format!("{}  {name}{}  {style}{}{style:#}", time::exact(view.at), task.id, task.status);
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

/// What need not be told when it is first seen: it waits for its turn or for others, or was so before we came.
fn is_dull(task: &TaskView) -> bool {
    let waits = [Reason::WaitingForDependencies, Reason::WaitingForSlot, Reason::DependencyFailed];
    matches!(task.status, Status::Completed | Status::Cancelled)
        || task.reason.is_some_and(|reason| waits.contains(&reason))
}

fn level_of(task: &TaskView) -> Level {
    match task.status {
        Status::Failed => Level::Error,
        Status::Blocked | Status::Cancelled => Level::Warning,
        Status::Running if task.stale => Level::Warning,
        // Over in a moment, and its result is told.
        Status::Running if task.reason == Some(Reason::Harvesting) => Level::Debug,
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
    escape::json(&serde_json::to_string(value).expect("BUG: a progress line is plain data")).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::super::fixture::{busy, now};
    use super::*;
    use crate::clock::Now;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn take(&self) -> String {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            anstream::adapter::strip_str(&String::from_utf8(bytes).expect("text")).to_string()
        }
    }

    struct Noon;

    impl Clock for Noon {
        fn now(&self) -> Now {
            now(0)
        }
    }

    fn reporter(format: LineFormat, least: Level) -> (LineReporter, Page) {
        let page = Page::default();
        (LineReporter::new(Box::new(page.clone()), format, least, Arc::new(Noon), "folder"), page)
    }

    #[test]
    fn a_change_is_told_once_and_what_only_waits_not_at_all() {
        let (mut reporter, page) = reporter(LineFormat::Text, Level::Info);
        let world = busy();
        reporter.pass(&world.snapshot());
        let first = page.take();
        insta::assert_snapshot!(first);
        reporter.pass(&world.at(400).snapshot());
        assert_eq!(page.take(), "");
        reporter.pass(&busy().ended("slow", 1, 0, 500).snapshot());
        let lines = page.take();
        assert!(lines.contains("slow  completed") && lines.contains("next  pending"), "{lines}");
        assert_eq!(lines.lines().count(), 2, "{lines}");
    }

    #[test]
    fn json_lines_parse_and_notices_keep_their_level() {
        let (mut reporter, page) = reporter(LineFormat::Json, Level::Warning);
        reporter.pass(&busy().snapshot());
        reporter.notice(Level::Info, "not told");
        reporter.notice(Level::Error, "the engine\nis away");
        let text = page.take();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
        assert!(lines.iter().all(|line| line["level"] != "info"));
        assert_eq!(lines.last().expect("a line")["message"], "the engine\nis away");
        assert!(lines.iter().any(|line| line["task"] == "left" && line["status"] == "failed"));
    }

    #[test]
    fn an_engine_that_is_away_is_no_change_of_every_task() {
        let (mut reporter, page) = reporter(LineFormat::Text, Level::Info);
        let mut world = busy();
        reporter.pass(&world.snapshot());
        drop(page.take());
        world.away = Some("gone".to_owned());
        reporter.pass(&world.snapshot());
        world.away = None;
        reporter.pass(&world.snapshot());
        assert_eq!(page.take(), "");
    }

    #[test]
    fn a_long_wait_is_told_now_and_then_and_the_end_of_all_ends_that() {
        let (reporter, page) = reporter(LineFormat::Text, Level::Info);
        let mut reporter = reporter.with_heartbeat(Some(Duration::from_mins(5)));
        let beat = |seconds| Beat { at: now(seconds), took: Duration::ZERO, trouble: None };
        reporter.pass(&busy().snapshot());
        drop(page.take());
        reporter.beat(&beat(299));
        assert_eq!(page.take(), "");
        reporter.beat(&beat(300));
        let line = page.take();
        assert!(line.contains("still waiting: 8 tasks: 2 running") && line.contains("running: right, slow"), "{line}");
        reporter.beat(&beat(310));
        assert_eq!(page.take(), "");
        let over = super::super::fixture::World::new(r#"{"id": "a", "prompt": "p"}"#);
        reporter.pass(&over.running("a", 1, 0).ended("a", 1, 0, 5).snapshot());
        drop(page.take());
        reporter.beat(&beat(9_000));
        assert_eq!(page.take(), "");
    }

    #[test]
    fn a_notice_stays_on_its_line() {
        let (mut reporter, page) = reporter(LineFormat::Text, Level::Info);
        reporter.notice(Level::Warning, "a\nb\u{1b}[2J");
        assert_eq!(page.take(), "2026-03-01T12:00:00Z  warning: a\\nb\\u{1b}[2J\n");
    }
}
