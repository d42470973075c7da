//! Progress on a terminal: the table, repainted in place.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::escape;
use super::table::{self, Detail};
use super::view::{TaskView, View};
use crate::clock::Clock;
use crate::controller::{Level, Reporter, Snapshot};
use crate::status::Status;

/// The terminal's size in columns and rows, asked for at each repaint since people resize windows.
pub type Size = Box<dyn Fn() -> (u16, u16) + Send>;

/// Repaints the table. What cannot be written is dropped: progress may not stop the work.
pub struct LiveReporter {
    screen: Arc<Mutex<Screen>>,
    least: Level,
    folder: String,
}

/// Repaints what a [`LiveReporter`] shows, so that ages move while nothing changes.
#[derive(Clone)]
pub struct Ticker(Arc<Mutex<Screen>>);

struct Screen {
    out: Box<dyn Write + Send>,
    size: Size,
    clock: Arc<dyn Clock>,
    detail: Detail,
    /// What is shown, and the monotonic clock when it was so.
    shown: Option<(View, Duration)>,
    /// The picture on the screen, which the next one replaces.
    last: String,
}

impl LiveReporter {
    /// Paints on `out`, which is a terminal. `folder` names the plan where the file does not.
    pub fn new(
        out: Box<dyn Write + Send>,
        size: Size,
        least: Level,
        clock: Arc<dyn Clock>,
        folder: impl Into<String>,
    ) -> Self {
        let screen = Screen { out, size, clock, detail: Detail::Normal, shown: None, last: String::new() };
        Self { screen: Arc::new(Mutex::new(screen)), least, folder: folder.into() }
    }

    /// With so much of each task.
    #[must_use]
    pub fn with_detail(self, detail: Detail) -> Self {
        lock(&self.screen).detail = detail;
        self
    }

    /// What keeps the ages moving.
    pub fn ticker(&self) -> Ticker {
        Ticker(Arc::clone(&self.screen))
    }

    /// Shows how a plan stands.
    pub fn show(&mut self, view: View) {
        let mut screen = lock(&self.screen);
        let now = screen.clock.now().monotonic;
        screen.shown = Some((view, now));
        screen.repaint();
    }

    /// Takes the picture away, so that what follows stands in its place.
    pub fn clear(&mut self) {
        let mut screen = lock(&self.screen);
        let (columns, _) = (screen.size)();
        let mut text = up(&screen.last, columns);
        if !text.is_empty() {
            text.push_str("\x1b[J");
        }
        screen.shown = None;
        screen.last.clear();
        screen.put(&text);
    }
}

impl Ticker {
    /// Paints what is shown as it is now.
    pub fn tick(&self) {
        lock(&self.0).repaint();
    }
}

fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Screen {
    fn repaint(&mut self) {
        let Some((view, since)) = &self.shown else { return };
        let age = self.clock.now().monotonic.saturating_sub(*since);
        let (columns, rows) = (self.size)();
        let picture = picture(&view.aged(age), self.detail, columns, rows);
        if picture != self.last {
            let text = up(&self.last, columns) + &over(&picture);
            self.last = picture;
            self.put(&text);
        }
    }

    fn put(&mut self, text: &str) {
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }
}

/// To the first line of a picture. A window that became narrower has broken its lines.
fn up(picture: &str, columns: u16) -> String {
    let columns = usize::from(columns).max(1);
    let rows = |line: &str| anstream::adapter::strip_str(line).to_string().chars().count().div_ceil(columns).max(1);
    match picture.lines().map(rows).sum::<usize>() {
        0 => String::new(),
        rows => format!("\x1b[{rows}F"),
    }
}

/// A picture that is written over another: what is left of a line is erased after the line, and what is left below at the
/// end, so that nothing is ever blank in between.
fn over(picture: &str) -> String {
    let mut text = String::with_capacity(picture.len() + 64);
    for line in picture.lines() {
        text.extend([line, "\x1b[K\n"]);
    }
    text.push_str("\x1b[J");
    text
}

impl Reporter for LiveReporter {
    fn pass(&mut self, snapshot: &Snapshot) {
        self.show(View::of(snapshot, &self.folder));
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
        let mut screen = lock(&self.screen);
        let (columns, _) = (screen.size)();
        let notice = format!("{word}: {}\x1b[K\n", escape::line(message));
        let text = up(&screen.last, columns) + &notice + &over(&screen.last);
        screen.put(&text);
    }
}

/// What fits the screen: where not every task does, those at which something happens, and how many more there are. One
/// column and row less than there are, since a full last column or row would scroll.
fn picture(view: &View, detail: Detail, columns: u16, rows: u16) -> String {
    let columns = columns.saturating_sub(1).max(20);
    let room = usize::from(rows.max(8)) - 1;
    let mut tasks: Vec<&TaskView> = view.tasks.iter().collect();
    let footer = footer(view, columns);
    let fits = |text: &str| text.lines().count() + footer.lines().count() < room;
    let mut text = table::rows(&tasks, view, Some(columns), detail);
    if !fits(&text) {
        tasks.sort_by_key(|task| rank(task));
        loop {
            tasks.truncate((tasks.len() * 3 / 4).min(room));
            text = table::rows(&tasks, view, Some(columns), detail);
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
                let text = anstream::adapter::strip_str(&picture(&view, Detail::Normal, columns, rows)).to_string();
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
        let text = anstream::adapter::strip_str(&picture(&view, Detail::Normal, 80, 12)).to_string();
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("t99 ")), "{text}");
        assert!(text.contains(" more\n") && text.contains("100 tasks: 1 running, 99 pending"), "{text}");
    }

    /// A screen of so many columns that understands what is written to it.
    #[derive(Clone, Default)]
    struct Terminal {
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Terminal {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.written.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Terminal {
        /// What stands on the screen, and whether a line that was written had been erased before.
        fn screen(&self) -> Vec<String> {
            let bytes = self.written.lock().expect("unpoisoned").clone();
            let text = String::from_utf8(bytes).expect("UTF-8");
            let (mut lines, mut row, mut column) = (vec![String::new()], 0_usize, 0_usize);
            let mut rest = text.as_str();
            while let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
                match c {
                    '\n' => {
                        (row, column) = (row + 1, 0);
                        if row == lines.len() {
                            lines.push(String::new());
                        }
                    }
                    '\u{1b}' => {
                        let end = rest.find(|c: char| c.is_ascii_alphabetic()).expect("a whole sequence");
                        let (number, command) = (&rest[1..end], &rest[end..=end]);
                        match command {
                            "F" => (row, column) = (row - number.parse::<usize>().expect("a number"), 0),
                            "K" => lines[row] = lines[row].chars().take(column).collect(),
                            "J" => {
                                lines[row] = lines[row].chars().take(column).collect();
                                lines.truncate(row + 1);
                            }
                            "m" => {}
                            other => panic!("unknown sequence {other}"),
                        }
                        rest = &rest[end + 1..];
                    }
                    c => {
                        let mut line: Vec<char> = lines[row].chars().collect();
                        line.resize(line.len().max(column + 1), ' ');
                        line[column] = c;
                        column += 1;
                        lines[row] = line.into_iter().collect();
                    }
                }
            }
            lines.into_iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
        }
    }

    struct Hand(Mutex<crate::clock::Now>);

    impl Clock for Hand {
        fn now(&self) -> crate::clock::Now {
            self.0.lock().expect("unpoisoned").clone()
        }
    }

    #[test]
    fn ages_move_between_changes_a_notice_stands_above_and_nothing_is_left_of_what_was_longer() {
        let terminal = Terminal::default();
        let world = busy();
        let clock = Arc::new(Hand(Mutex::new(world.snapshot().now.clone())));
        let size: Size = Box::new(|| (80, 60));
        let out = Box::new(terminal.clone());
        let mut live = LiveReporter::new(out, size, Level::Info, Arc::clone(&clock) as _, "folder");
        live.pass(&world.snapshot());
        let first = terminal.screen();
        live.ticker().tick();
        assert_eq!(terminal.screen(), first);
        clock.0.lock().expect("unpoisoned").monotonic += Duration::from_hours(1);
        live.ticker().tick();
        let later = terminal.screen();
        assert_eq!(later.len(), first.len());
        let moved = first.iter().zip(&later).filter(|(a, b)| a != b).count();
        let running = View::of(&world.snapshot(), "folder").summary.running;
        assert!(moved >= running && running > 0, "{later:#?}");
        live.notice(Level::Warning, "the engine is away");
        assert_eq!(terminal.screen()[0], "warning: the engine is away");
        assert_eq!(terminal.screen()[1..], later[..]);
        live.show(View { tasks: Vec::new(), next: Vec::new(), ..View::of(&world.snapshot(), "folder") });
        assert_eq!(terminal.screen().len(), 2, "{:#?}", terminal.screen());
        live.clear();
        assert_eq!(terminal.screen(), ["warning: the engine is away"]);
    }

    #[test]
    fn lines_that_a_narrower_window_broke_are_counted() {
        let picture = format!("{}\nshort\n", "x".repeat(100));
        assert_eq!(up(&picture, 120), "\x1b[2F");
        assert_eq!(up(&picture, 40), "\x1b[4F");
        assert_eq!(up("", 40), "");
    }
}
