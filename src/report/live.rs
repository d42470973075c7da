//! Progress on a terminal: the table, repainted in place.

use std::fmt::Write as _;
use std::io::Write;

use super::escape;
use super::table::{self, Detail};
use super::view::{TaskView, View};
use crate::controller::{Level, Reporter, Snapshot};
use crate::status::Status;

/// The terminal's size in columns and rows, asked for at each repaint since people resize windows.
pub type Size = Box<dyn Fn() -> (u16, u16) + Send>;

/// Repaints the table. What cannot be written is dropped: progress may not stop the work.
pub struct LiveReporter {
    out: Box<dyn Write + Send>,
    size: Size,
    least: Level,
    folder: String,
    /// Lines on the screen that the next picture replaces.
    painted: usize,
    last: String,
}

impl LiveReporter {
    /// Paints on `out`, which is a terminal. `folder` names the plan where the file does not.
    pub fn new(out: Box<dyn Write + Send>, size: Size, least: Level, folder: impl Into<String>) -> Self {
        Self { out, size, least, folder: folder.into(), painted: 0, last: String::new() }
    }

    /// Takes the picture away, so that what follows stands in its place.
    pub fn clear(&mut self) {
        let text = self.wipe();
        self.last.clear();
        self.put(&text);
    }

    fn wipe(&mut self) -> String {
        match std::mem::take(&mut self.painted) {
            0 => String::new(),
            // To the first painted line, then erase to the end of the screen.
            lines => format!("\x1b[{lines}F\x1b[J"),
        }
    }

    fn put(&mut self, text: &str) {
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }
}

impl Reporter for LiveReporter {
    fn pass(&mut self, snapshot: &Snapshot) {
        let view = View::of(snapshot, &self.folder);
        let (columns, rows) = (self.size)();
        let picture = picture(&view, columns, rows);
        if picture == self.last {
            return;
        }
        let mut text = self.wipe();
        text.push_str(&picture);
        self.painted = picture.lines().count();
        self.last = picture;
        self.put(&text);
    }

    fn notice(&mut self, level: Level, message: &str) {
        if level < self.least {
            return;
        }
        let word = match level {
            Level::Debug => "debug",
            Level::Info => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        let mut text = self.wipe();
        writeln!(text, "{word}: {}", escape::line(message)).expect("BUG: writing to a string cannot fail");
        let picture = std::mem::take(&mut self.last);
        text.push_str(&picture);
        self.painted = picture.lines().count();
        self.last = picture;
        self.put(&text);
    }
}

/// What fits the screen: where not every task does, those at which something happens, and how many more there are. One
/// column and row less than there are, since a full last column or row would scroll.
fn picture(view: &View, columns: u16, rows: u16) -> String {
    let columns = columns.saturating_sub(1).max(20);
    let room = usize::from(rows.max(8)) - 1;
    let mut tasks: Vec<&TaskView> = view.tasks.iter().collect();
    let footer = footer(view, columns);
    let fits = |text: &str| text.lines().count() + footer.lines().count() < room;
    let mut text = table::rows(&tasks, view, Some(columns), Detail::Normal);
    if !fits(&text) {
        tasks.sort_by_key(|task| rank(task));
        loop {
            tasks.truncate((tasks.len() * 3 / 4).min(room));
            text = table::rows(&tasks, view, Some(columns), Detail::Normal);
            let more = view.tasks.len() - tasks.len();
            writeln!(text, "… and {more} more").expect("BUG: writing to a string cannot fail");
            if fits(&text) || tasks.len() <= 1 {
                break;
            }
        }
    }
    text.push_str(&footer);
    text
}

fn footer(view: &View, columns: u16) -> String {
    let lines = table::wrapped(&view.summary.sentence(), usize::from(columns), 0);
    lines.iter().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

fn rank(task: &TaskView) -> u8 {
    match task.status {
        Status::Running => 0,
        Status::Failed => 1,
        Status::Blocked => 2,
        Status::Pending => 3,
        Status::Cancelled => 4,
        Status::Completed => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, busy};
    use super::*;

    #[test]
    fn a_picture_never_fills_the_last_column_or_row() {
        let many: Vec<String> = (0..200).map(|n| format!("{{\"id\": \"t{n}\", \"prompt\": \"p\"}}")).collect();
        for world in [busy(), World::new(&many.join(","))] {
            let view = View::of(&world.snapshot(), "folder");
            for (columns, rows) in [(80, 24), (40, 24), (200, 60), (80, 10)] {
                let text = anstream::adapter::strip_str(&picture(&view, columns, rows)).to_string();
                assert!(text.lines().count() < usize::from(rows), "{rows} rows:\n{text}");
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(widest < usize::from(columns), "{columns} columns:\n{text}");
            }
        }
    }

    #[test]
    fn where_not_all_fits_what_happens_is_shown_and_the_rest_counted() {
        let many: Vec<String> = (0..100).map(|n| format!("{{\"id\": \"t{n}\", \"prompt\": \"p\"}}")).collect();
        let view = View::of(&World::new(&many.join(",")).running("t99", 1, 0).at(9).snapshot(), "folder");
        let text = anstream::adapter::strip_str(&picture(&view, 80, 12)).to_string();
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("t99 ")), "{text}");
        assert!(text.contains(" more\n") && text.contains("100 tasks: 1 running, 99 pending"), "{text}");
    }
}
