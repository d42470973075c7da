//! For GitHub's runner: log tails in groups, annotations, and the job's summary.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::view::{TaskView, View};
use super::{escape, merges, time};
use crate::status::{Reason, Status};

/// What a runner takes of a summary is 1 MiB; what is longer is refused whole.
const MAX_SUMMARY: usize = 900 * 1024;

const STRING: &str = "BUG: writing to a string cannot fail";

/// Groups with the ends of the outputs of what failed, then one annotation for each failed, blocked or stale task. `tails`
/// holds the end of the kept output by task, already redacted; `fence` is a word that no output can foresee: while it
/// stands, the runner takes no command from what an agent wrote.
pub fn commands(view: &View, tails: &BTreeMap<String, String>, fence: &str) -> String {
    let mut text = String::new();
    for task in view.tasks.iter().filter(|task| task.status == Status::Failed) {
        let Some(tail) = tails.get(&task.id) else { continue };
        writeln!(text, "::group::{}: the end of its output", data(&task.id)).expect(STRING);
        writeln!(text, "::stop-commands::{fence}").expect(STRING);
        for line in tail.lines() {
            writeln!(text, "{}", escape::line(line)).expect(STRING);
        }
        writeln!(text, "::{fence}::\n::endgroup::").expect(STRING);
    }
    for task in &view.tasks {
        let Some(level) = level(task) else { continue };
        let title = format!("{}: {}", task.id, if task.stale { "stale" } else { task.status.as_str() });
        let reason = task.reason.map_or("", Reason::as_str);
        let mut message = task.message.clone().unwrap_or_else(|| reason.to_owned());
        if let Some(step) = &task.next_step {
            write!(message, "\n{step}").expect(STRING);
        }
        writeln!(text, "::{level} title={}::{}", property(&title), data(&message)).expect(STRING);
    }
    text
}

/// One task is one annotation where it is the cause; what only waits behind it is not.
fn level(task: &TaskView) -> Option<&'static str> {
    match (task.status, task.reason) {
        (Status::Blocked, Some(Reason::DependencyFailed)) => None,
        (Status::Failed | Status::Blocked, _) => Some("error"),
        (Status::Running, _) if task.stale => Some("warning"),
        (Status::Cancelled, _) => Some("warning"),
        (Status::Running | Status::Pending | Status::Completed, _) => None,
    }
}

/// The summary of the job, in Markdown.
pub fn summary(view: &View) -> String {
    let mut text = format!("### {}\n\n{}\n\n", cell(&view.project), cell(&view.summary.sentence()));
    text.push_str("| Task | Status | Attempt | Time | Why | Branch |\n| --- | --- | ---: | ---: | --- | --- |\n");
    for (at, task) in view.tasks.iter().enumerate() {
        if text.len() > MAX_SUMMARY {
            writeln!(text, "\n… and {} more", view.tasks.len() - at).expect(STRING);
            break;
        }
        let seconds = task.seconds.map(|seconds| time::age(std::time::Duration::from_secs(seconds)));
        let why = task.message.as_deref().or_else(|| task.reason.map(Reason::as_str)).unwrap_or_default();
        let mut why: String = why.chars().take(300).collect();
        if task.status == Status::Completed {
            why.clear();
        }
        writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            cell(&task.id),
            task.status,
            if task.attempt > 0 { task.attempt.to_string() } else { String::new() },
            seconds.unwrap_or_default(),
            cell(&why),
            cell(task.branch.as_deref().unwrap_or_default()),
        )
        .expect(STRING);
    }
    let merges = merges::merge_commands(view);
    if view.is_settled() && !merges.is_empty() {
        // Indented, which nothing inside can end.
        text.push_str("\nTo review and merge, in this order:\n\n");
        for command in merges {
            writeln!(text, "    {}", escape::line(&command)).expect(STRING);
        }
    }
    text.push('\n');
    text
}

/// Text inside a table of Markdown with HTML in it, on one line, which makes nothing but text.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for char in escape::line(text).chars() {
        match char {
            '&' => cell.push_str("&amp;"),
            '<' => cell.push_str("&lt;"),
            '>' => cell.push_str("&gt;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '!' | '~' | '@' => {
                write!(cell, "&#{};", u32::from(char)).expect(STRING);
            }
            char => cell.push(char),
        }
    }
    cell
}

/// The message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A parameter of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::fixture::busy;
    use super::*;

    #[test]
    fn what_an_agent_wrote_is_no_command_and_no_markup() {
        let mut view = View::of(&busy().snapshot(), "folder");
        "a|b <img>".clone_into(&mut view.project);
        let tails = BTreeMap::from([("left".to_owned(), "fine\n::add-mask::x\n::endgroup::\u{1b}[2J\n".to_owned())]);
        let text = commands(&view, &tails, "fence-1");
        let lines: Vec<&str> = text.lines().collect();
        let stop = lines.iter().position(|line| *line == "::stop-commands::fence-1").expect("fenced");
        let go = lines.iter().position(|line| *line == "::fence-1::").expect("ended");
        let inside = lines.iter().position(|line| line.contains("add-mask")).expect("shown");
        assert!(stop < inside && inside < go, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("::error title=left%3A failed::"), "{text}");
        let summary = summary(&view);
        assert!(summary.starts_with("### a&#124;b &lt;img&gt;\n"), "{summary}");
        let rows = summary.lines().filter(|line| line.starts_with("| ")).count();
        assert_eq!(rows, view.tasks.len() + 2, "{summary}");
        assert!(summary.lines().filter(|line| line.starts_with("| ")).all(|row| row.matches('|').count() == 7));
    }

    #[test]
    fn a_summary_stays_under_what_a_runner_takes() {
        let tasks: Vec<String> = (0..20_000).map(|n| format!("{{\"id\": \"t{n}\", \"prompt\": \"p\"}}")).collect();
        let view = View::of(&super::super::fixture::World::new(&tasks.join(",")).snapshot(), "folder");
        let summary = summary(&view);
        assert!(summary.len() < 1024 * 1024 && summary.contains(" more\n"), "{}", summary.len());
    }
}
