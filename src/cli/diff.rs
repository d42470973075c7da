//! `orchestrate diff`: what a task's branch and worktree changed.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use clap::Args;

use super::app::Outcome;
use super::pager;
use super::world::{Context, World, block_on, require_task};
use crate::error::{ExitCode, Kind, Report};
use crate::git::{Changes, ChangesRequest, FileChange};
use crate::observe::names;
use crate::report::escape::{self, StreamEscaper};
use crate::report::plural;
use crate::spec::TaskId;
use crate::status::Status;

/// Show what a task changed
///
/// From the commit that its branch started from to the branch's tip, and what its worktree holds beside that,
/// line by line. While an attempt runs, what it committed is not on the branch yet, and counts as not committed here.
/// Nothing is written and no program is run for it: no external diff, no text conversion, no hook.
///
/// On a terminal it goes through the pager that git would use (`GIT_PAGER`, your `core.pager`, `PAGER`, `less`). Into a
/// pipe or a file it is what `git apply` takes, but for binary files, which are only named.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "Examples:\n  \
                  orchestrate diff api\n  \
                  orchestrate diff api --stat              files and counts of lines\n  \
                  orchestrate diff api --name-only | xargs -d '\\n' wc -l\n  \
                  orchestrate diff api | git apply --check")]
pub(super) struct Diff {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,

    /// Only the files, with how many lines were added and removed
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,

    /// Only the files' names, one a line
    #[arg(long)]
    name_only: bool,

    /// Only what is on the branch, not what the worktree holds beside it
    #[arg(long)]
    committed: bool,

    /// Print at once, through no pager
    #[arg(long)]
    no_pager: bool,
}

impl Diff {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        let task = require_task(&view, &self.task)?;
        let id = TaskId::new(&task.id).expect("BUG: the view shows valid ids");
        let record = snapshot.ledger.task(&id);
        let Some(base) = record.and_then(|record| record.current.as_ref()).and_then(|current| current.base.clone())
        else {
            let mut report = Report::new(Kind::Usage, format!("`{id}` was never launched, so it changed nothing"));
            report.causes.extend(task.message.clone());
            return Err(report);
        };
        let branch = names::branch_ref(&id);
        let Some(head) = block_on(world.repository.tip(&branch))?? else {
            let report = Report::new(Kind::Environment, format!("the branch `{}` is gone", names::branch(&id)));
            return Err(report.hint(format!("`orchestrate describe {id}` tells what became of it")));
        };
        let worktree = (!self.committed).then(|| names::worktree(&id));
        let request = ChangesRequest { base: base.clone(), head, worktree };
        let changes = block_on(world.repository.changes(&request))??;
        for note in &changes.notes {
            context.output.warn(note);
        }
        if changes.files.is_empty() {
            let report = Report::new(Kind::Usage, format!("`{id}` changed nothing beside {}", base.short()));
            return Err(match task.status {
                Status::Running => report.hint("it runs; look again later"),
                _ => report.hint(format!("`orchestrate logs {id}` shows what it did instead")),
            });
        }
        self.show(context, &world, &changes)?;
        if !self.name_only {
            let live = task.status == Status::Running;
            context.output.note(&summary(&changes, live));
        }
        Ok(ExitCode::Done)
    }

    fn show(&self, context: &Context, world: &World, changes: &Changes) -> Result<(), Report> {
        let output = &context.output;
        let text = if self.name_only {
            // A pipe gets the names as they are, for programs; a terminal shows none that drives it.
            let name = |file: &FileChange| {
                if output.is_terminal { escape::line(&file.path).into_owned() } else { file.path.clone() }
            };
            changes.files.iter().map(|file| name(file) + "\n").collect::<String>().into_bytes()
        } else if self.stat {
            output.colored(stat(&changes.files, output.width.map_or(100, usize::from)).as_bytes())
        } else {
            patch(&changes.files, output.is_terminal, output.is_colored())
        };
        if self.no_pager || !output.is_terminal {
            output.bytes(&text)?;
            return Ok(());
        }
        pager::show(context, world.repository.pager(), &text)
    }
}

fn summary(changes: &Changes, live: bool) -> String {
    let mut text = format!(
        "{} changed in {}, {} added, {} removed",
        plural(changes.files.len(), "file", "files"),
        plural(usize::try_from(changes.commits).unwrap_or(usize::MAX), "commit", "commits"),
        changes.files.iter().map(|file| file.insertions).sum::<u64>(),
        changes.files.iter().map(|file| file.deletions).sum::<u64>(),
    );
    if !changes.uncommitted.is_empty() {
        let what = plural(changes.uncommitted.len(), "file", "files");
        let why = if live { "; what the attempt committed comes onto the branch at its end" } else { "" };
        write!(text, "; {what} of the worktree not on the branch ({}){why}", some(&changes.uncommitted))
            .expect("BUG: writing to a string cannot fail");
    }
    text
}

/// The first few.
fn some(paths: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<&str> = paths.iter().take(SHOWN).map(String::as_str).collect();
    let more = paths.len().saturating_sub(SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const HUNK: Style = AnsiColor::Cyan.on_default();
const HEAD: Style = Style::new().bold();

/// As git shows it: a bar for each file, fitted to the width.
fn stat(files: &[FileChange], width: usize) -> String {
    let shown = |file: &FileChange| escape::line(&file.path).into_owned();
    let count = |file: &FileChange| {
        if file.is_binary { "binary".to_owned() } else { (file.insertions + file.deletions).to_string() }
    };
    let names = files.iter().map(|file| shown(file).chars().count()).max().unwrap_or(0);
    let most = files.iter().map(|file| file.insertions + file.deletions).max().unwrap_or(0).max(1);
    let counts = most.to_string().len();
    let room = width.saturating_sub(names + counts + 7).clamp(8, 60) as u64;
    // What is not nothing gets one sign at the least.
    let bar = |lines: u64| if most <= room { lines } else { (lines * room / most).max(u64::from(lines > 0)) };
    let mut text = String::new();
    for file in files {
        let repeat = |sign: &str, lines: u64| sign.repeat(usize::try_from(bar(lines)).unwrap_or(0));
        let (plus, minus) = (repeat("+", file.insertions), repeat("-", file.deletions));
        write!(text, " {:names$} | {:>counts$}", shown(file), count(file))
            .expect("BUG: writing to a string cannot fail");
        if !(plus.is_empty() && minus.is_empty()) {
            write!(text, " {ADDED}{plus}{ADDED:#}{REMOVED}{minus}{REMOVED:#}")
                .expect("BUG: writing to a string cannot fail");
        }
        text.push('\n');
    }
    text
}

/// The patches; on a terminal with colour and without anything that drives it, elsewhere byte for byte.
fn patch(files: &[FileChange], is_terminal: bool, is_colored: bool) -> Vec<u8> {
    let style_of = |style: Style| if is_colored { style } else { Style::new() };
    if !is_terminal && !is_colored {
        return files.iter().flat_map(|file| file.patch.iter().copied()).collect();
    }
    let mut text = Vec::new();
    for file in files {
        let mut in_hunk = false;
        for line in file.patch.split_inclusive(|byte| *byte == b'\n') {
            if line.starts_with(b"diff --git ") {
                in_hunk = false;
            }
            in_hunk |= line.starts_with(b"@@ ");
            let style = match line.first() {
                Some(b'@') if line.starts_with(b"@@ ") => HUNK,
                _ if !in_hunk => HEAD,
                Some(b'+') => ADDED,
                Some(b'-') => REMOVED,
                _ => Style::new(),
            };
            let body = line.strip_suffix(b"\n").unwrap_or(line);
            let mut escaper = StreamEscaper::default();
            let shown =
                if is_terminal { (escaper.push(body) + &escaper.finish()).into_bytes() } else { body.to_owned() };
            let style = style_of(style);
            text.extend_from_slice(style.render().to_string().as_bytes());
            text.extend_from_slice(&shown);
            text.extend_from_slice(style.render_reset().to_string().as_bytes());
            text.push(b'\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, insertions: u64, deletions: u64) -> FileChange {
        let text = format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-old\n+\u{1b}[2J\n");
        FileChange {
            path: path.to_owned(),
            insertions,
            deletions,
            is_binary: insertions + deletions == 0,
            patch: text.into_bytes(),
        }
    }

    #[test]
    fn bars_fit_and_what_changed_little_is_seen() {
        let text = stat(&[change("a.rs", 900, 1), change("logo.png", 0, 0), change("b\n", 3, 0)], 60);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.lines().all(|line| line.chars().count() < 60), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(
            text.contains("+-\n") && text.contains(" logo.png | binary\n") && text.contains(" b\\n      |   3 +\n"),
            "{text}"
        );
    }

    #[test]
    fn a_pipe_gets_every_byte_and_a_terminal_nothing_that_drives_it() {
        let files = [change("a", 1, 1)];
        assert_eq!(patch(&files, false, false), files[0].patch);
        let shown = String::from_utf8(patch(&files, true, true)).expect("text");
        assert!(!shown.contains("\u{1b}[2J") && shown.contains("\\u{1b}[2J"), "{shown}");
        assert!(shown.contains(&format!("{REMOVED}-old")) && shown.contains(&format!("{HEAD}--- a/a")), "{shown}");
    }
}
