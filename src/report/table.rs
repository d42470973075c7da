//! The view as a table, fitted to the width that there is. Pure.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

use super::escape;
use super::time;
use super::view::{TaskView, View};
use crate::status::{Reason, Status};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What one looks at while it runs.
    Normal,
    /// Everything that fits a line.
    Wide,
}

/// Columns between two cells.
const GAP: usize = 2;
/// With less room than this beside a task's other columns, its details stand on lines of their own.
const LEAST_DETAILS: usize = 28;
/// How far those are indented.
const INDENT: usize = 4;

/// The whole answer of `status`: table, summary and what happens next. `width`: columns of the terminal, `None` without
/// one, where every task has exactly one line. Styled; the caller strips what its output cannot show.
pub fn page(view: &View, width: Option<u16>, detail: Detail) -> String {
    let mut text = table(view, width, detail);
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&footer(view));
    text
}

/// The table alone; empty where there is no task.
pub fn table(view: &View, width: Option<u16>, detail: Detail) -> String {
    let shown: Vec<&TaskView> = view.tasks.iter().collect();
    rows(&shown, view, width, detail)
}

/// A table of some of the tasks.
pub fn rows(tasks: &[&TaskView], view: &View, width: Option<u16>, detail: Detail) -> String {
    if tasks.is_empty() {
        return String::new();
    }
    let header: &[&str] = match detail {
        Detail::Normal => &["TASK", "STATUS", "TRY", "TIME"],
        Detail::Wide => {
            &["TASK", "STATUS", "TRY", "TIME", "REASON", "RESULT", "STARTED", "BRANCH", "CONTAINER", "HOST", "AGENT"]
        }
    };
    let facts: Vec<Vec<String>> = tasks.iter().map(|task| cells(task, detail)).collect();
    let details: Vec<String> = tasks.iter().map(|task| details(task, view)).collect();
    let widths = widths(header, &facts);
    let taken: usize = widths.iter().map(|width| width + GAP).sum();
    let painted = Painter { offset: widths[0] + GAP, width: widths[1] };
    match width.map(usize::from) {
        Some(width) if width < taken + LEAST_DETAILS => stacked(header, facts, &details, width, painted),
        width => beside(header, facts, details, width, painted),
    }
}

/// Counts and what happens next.
pub fn footer(view: &View) -> String {
    let mut text = String::new();
    let mut put = |line: &str| {
        writeln!(text, "{}", escape::line(line)).expect("BUG: writing to a string cannot fail");
    };
    put(&view.summary.sentence());
    for sentence in &view.next {
        put(sentence);
    }
    if let Some(confinement) = &view.confinement {
        put(&format!("processes of this machine, no containers; what holds them: {confinement}"));
    }
    if !view.orphans.is_empty() {
        let names: Vec<&str> = view.orphans.iter().map(|orphan| orphan.container.as_str()).collect();
        put(&format!(
            "running without a live attempt (dropped from the file, or started again by hand), never touched: {}",
            names.join(", ")
        ));
    }
    text
}

fn cells(task: &TaskView, detail: Detail) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let stale = if task.stale { ", stale" } else { "" };
    let mut cells = vec![
        task.id.clone(),
        format!("{}{stale}", task.status),
        if task.attempt == 0 { "-".to_owned() } else { task.attempt.to_string() },
        or_dash(task.seconds.map(|seconds| time::age(std::time::Duration::from_secs(seconds)))),
    ];
    if detail == Detail::Wide {
        cells.extend([
            or_dash(task.reason.map(|reason| reason.to_string())),
            or_dash(task.result.map(|result| result.as_str().to_owned())),
            or_dash(task.started_at.map(time::exact)),
            or_dash(task.branch.clone()),
            or_dash(task.container.clone()),
            or_dash(task.host.clone()),
            task.agent.clone(),
        ]);
    }
    for cell in &mut cells {
        if let std::borrow::Cow::Owned(escaped) = escape::line(cell) {
            *cell = escaped;
        }
    }
    cells
}

/// The last column: why, and what next.
fn details(task: &TaskView, view: &View) -> String {
    let mut parts: Vec<String> = Vec::new();
    match task.reason {
        // Told once below the table, with the engine's words.
        Some(Reason::EngineUnavailable) => parts.push("the engine does not answer".to_owned()),
        _ => parts.extend(task.message.clone()),
    }
    if task.stale {
        parts.push("runs longer than its `stale_after`; nothing stops it".to_owned());
    }
    if task.silent {
        parts.push("has written nothing for longer than its `silent_after`; nothing stops it".to_owned());
    }
    if let Some(at) = task.not_before.filter(|_| task.status == Status::Pending) {
        parts.push(format!("in {}", time::age(time::between(view.at, at))));
    }
    if task.spec_changed {
        parts.push("its spec has changed since; `orchestrate retry` uses the new one".to_owned());
    }
    // A message of the plan may say it already.
    let told = |step: &String| parts.iter().any(|part| part.contains("`orchestrate retry")) && step.contains("retry");
    let step = task.next_step.clone().filter(|step| !told(step));
    parts.extend(step);
    if parts.is_empty() {
        parts.extend(task.title.clone());
    }
    escape::line(&parts.join("; ")).into_owned()
}

/// Details in a column of their own, wrapped where the width is known.
fn beside(
    header: &[&str],
    mut facts: Vec<Vec<String>>,
    details: Vec<String>,
    width: Option<usize>,
    painter: Painter,
) -> String {
    let mut header = header.to_vec();
    header.push("DETAILS");
    for (row, details) in facts.iter_mut().zip(details) {
        row.push(details);
    }
    let mut table = bare(&header, facts);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
        for column in table.column_iter_mut().take(header.len() - 1) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    painter.paint(table.lines())
}

/// Details below each task.
fn stacked(header: &[&str], facts: Vec<Vec<String>>, details: &[String], width: usize, painter: Painter) -> String {
    let mut lines = Vec::new();
    for (number, line) in bare(header, facts).lines().enumerate() {
        lines.push(line);
        if let Some(details) = number.checked_sub(1).and_then(|row| details.get(row)) {
            lines.extend(wrapped(details, width, INDENT));
        }
    }
    painter.paint(lines.into_iter())
}

/// A text in indented lines.
pub(super) fn wrapped(text: &str, width: usize, indent: usize) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_row([text]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(u16::try_from(width.max(indent + 12)).unwrap_or(u16::MAX));
    if let Some(column) = table.column_mut(0) {
        column.set_padding((u16::try_from(indent).unwrap_or(0), 0));
    }
    table.lines().collect()
}

fn bare(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, u16::try_from(GAP).unwrap_or(0)));
    }
    table
}

fn widths(header: &[&str], facts: &[Vec<String>]) -> Vec<usize> {
    bare(header, facts.to_vec()).column_max_content_widths().into_iter().map(usize::from).collect()
}

/// Puts colour on the status word. Ids are ASCII and never wrapped, so the word's place is known in bytes.
#[derive(Debug, Clone, Copy)]
struct Painter {
    offset: usize,
    width: usize,
}

impl Painter {
    fn paint(self, lines: impl Iterator<Item = String>) -> String {
        let mut text = String::new();
        for line in lines {
            let line = line.trim_end();
            let end = (self.offset + self.width).min(line.len());
            let word = line.get(self.offset..end).map(str::trim_end).unwrap_or_default();
            match style_of(word).filter(|_| !line.starts_with(' ')) {
                Some(style) => {
                    let (before, rest) = line.split_at(self.offset);
                    let after = &rest[word.len()..];
                    writeln!(text, "{before}{style}{word}{style:#}{after}")
                }
                None => writeln!(text, "{line}"),
            }
            .expect("BUG: writing to a string cannot fail");
        }
        text
    }
}

/// The colour of a status: the word says the same.
fn style_of(cell: &str) -> Option<Style> {
    let (word, stale) = cell.split_once(',').map_or((cell, false), |(word, _)| (word, true));
    Some(status_style(Status::from_word(word)?, stale))
}

/// The colour of a status.
pub fn status_style(status: Status, stale: bool) -> Style {
    match status {
        Status::Running if stale => AnsiColor::Yellow.on_default().bold(),
        Status::Running => AnsiColor::Cyan.on_default(),
        Status::Completed => AnsiColor::Green.on_default(),
        Status::Failed => AnsiColor::Red.on_default().bold(),
        Status::Blocked => AnsiColor::Yellow.on_default(),
        Status::Cancelled => AnsiColor::Magenta.on_default(),
        Status::Pending => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, busy};
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn view() -> View {
        View::of(&busy().snapshot(), "folder")
    }

    #[test]
    fn a_table_without_a_terminal_has_one_line_a_task() {
        let text = plain(&page(&view(), None, Detail::Normal));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn details_are_wrapped_in_their_column_where_there_is_room() {
        let text = plain(&table(&view(), Some(76), Detail::Normal));
        assert!(text.lines().all(|line| line.chars().count() <= 76), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn on_a_narrow_terminal_details_stand_below_each_task() {
        let text = plain(&table(&view(), Some(40), Detail::Normal));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn an_id_of_any_length_is_never_broken_and_wide_characters_keep_their_columns() {
        let id = "x".repeat(63);
        let tasks = format!("{{\"id\": \"{id}\", \"prompt\": \"p\", \"title\": \"日本語の表\"}}");
        let world = World::new(&tasks).running(&id, 1, 0).at(60);
        let text = plain(&table(&View::of(&world.snapshot(), "folder"), Some(80), Detail::Normal));
        assert!(text.contains(&id) && text.contains("日本語の表"), "{text}");
    }

    #[test]
    fn every_column_is_there_when_wide() {
        insta::assert_snapshot!(plain(&table(&view(), None, Detail::Wide)));
    }

    #[test]
    fn colour_stands_on_the_word_of_the_status_and_says_nothing_more() {
        let text = table(&view(), None, Detail::Normal);
        let red = status_style(Status::Failed, false);
        assert!(text.contains(&format!("{red}failed{red:#}")), "{text}");
        let stale = status_style(Status::Running, true);
        assert!(text.contains(&format!("{stale}running, stale{stale:#}")), "{text}");
    }

    #[test]
    fn nothing_of_a_file_or_an_engine_drives_the_terminal() {
        let mut view = view();
        for task in &mut view.tasks {
            task.message = Some("a\u{1b}[2Jb\nc".to_owned());
            task.host = Some("\u{9b}x".to_owned());
        }
        view.next = vec!["\u{1b}]0;x\u{7}".to_owned()];
        for detail in [Detail::Normal, Detail::Wide] {
            let text = plain(&page(&view, None, detail));
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
            assert_eq!(text.lines().count(), 1 + view.tasks.len() + 3, "{text}");
        }
    }
}
