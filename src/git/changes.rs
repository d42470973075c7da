//! What a branch changed from its base, and what its worktree holds beside it, line by line. Nothing is written: what is
//! not committed becomes objects in memory. No program runs, since no driver of a diff is asked for: contents are compared
//! as they are stored.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use gix::bstr::{BStr, BString, ByteSlice as _};
use gix::diff::blob::unified_diff::{ConsumeHunk, ContextSize, DiffLineKind, HunkHeader};
use gix::diff::blob::{Algorithm, InternedInput, UnifiedDiff, diff_with_slider_heuristics};
use gix::objs::tree::EntryMode;
use gix::{ObjectId, Repository};

use super::admin::Admin;
use super::contract::{Changes, ChangesRequest, FileChange, GitError};
use super::open::{GixRepository, Steer, failed, open};
use super::{refs, scan, worktree};

/// Larger contents are told of like binary ones.
const LARGEST: u64 = 32 * 1024 * 1024;
/// Git looks for a NUL in so much of a file to tell whether it is a text.
const LOOKED_AT: usize = 8000;

/// Compares the base with the branch, or with the worktree where that is there.
pub(super) fn changes(git: &GixRepository, request: &ChangesRequest) -> Result<Changes, GitError> {
    let comparing = |error| failed("compare two commits", error);
    let path = request.worktree.as_deref().map(|path| worktree::absolute(git, path)).transpose()?;
    let admin = match &path {
        Some(path) if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) => {
            Admin::find(&git.layout.common_dir, path)?.filter(|admin| admin.is_ours() && !admin.is_in_the_making())
        }
        _ => None,
    };
    let steer = if admin.is_some() { Steer::Person } else { Steer::Nothing };
    let repo = open(&git.layout.common_dir, steer, admin.as_ref().and(path.as_deref()))?.with_object_memory();
    let (base, head) = (refs::commit_of(&repo, &request.base)?, refs::commit_of(&repo, &request.head)?);
    let mut changes = Changes { commits: refs::count(&repo, base, head)?, ..Changes::default() };
    // What the branch did, not what its base did meanwhile.
    let from = repo.merge_base(base, head).map_err(comparing)?.map_or(base, gix::Id::detach);
    let old = repo.find_commit(from).and_then(|commit| commit.tree()).map_err(comparing)?;
    let mut new = repo.find_commit(head).and_then(|commit| commit.tree_id()).map_err(comparing)?.detach();
    if let (Some(admin), Some(path)) = (&admin, &path) {
        let scan = scan::scan_and_store(&repo, admin, path, head)?;
        changes.uncommitted = scan.changes.iter().map(|change| change.path.to_str_lossy().into_owned()).collect();
        if !scan.changes.is_empty() {
            new = scan.tree(&repo, head)?;
        }
        changes.notes = scan.notes;
    }
    let new = repo.find_tree(new).map_err(comparing)?;
    let mut found = Vec::new();
    let mut platform = old.changes().map_err(comparing)?;
    platform.options(|options| {
        options.track_path().track_rewrites(None);
    });
    platform
        .for_each_to_obtain_tree(&new, |change| {
            found.push(Pair::of(&change));
            Ok(ControlFlow::Continue(()))
        })
        .map_err(comparing)?;
    found.retain(|pair| !pair.is_tree());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    changes.files = found.iter().map(|pair| file(&repo, pair)).collect::<Result<_, _>>()?;
    Ok(changes)
}

/// The two states of one path.
struct Pair {
    path: BString,
    old: Option<(EntryMode, ObjectId)>,
    new: Option<(EntryMode, ObjectId)>,
}

impl Pair {
    fn of(change: &gix::object::tree::diff::Change<'_, '_, '_>) -> Self {
        use gix::object::tree::diff::Change;
        let (old, new) = match change {
            // Renames are not looked for.
            Change::Addition { entry_mode, id, .. } | Change::Rewrite { entry_mode, id, .. } => {
                (None, Some((*entry_mode, id.detach())))
            }
            Change::Deletion { entry_mode, id, .. } => (Some((*entry_mode, id.detach())), None),
            Change::Modification { previous_entry_mode, previous_id, entry_mode, id, .. } => {
                (Some((*previous_entry_mode, previous_id.detach())), Some((*entry_mode, id.detach())))
            }
        };
        Self { path: change.location().to_owned(), old, new }
    }

    fn is_tree(&self) -> bool {
        [self.old, self.new].iter().flatten().all(|(mode, _)| mode.is_tree())
    }
}

/// One side as it is compared.
struct Side {
    bytes: Vec<u8>,
    is_text: bool,
}

fn file(repo: &Repository, pair: &Pair) -> Result<FileChange, GitError> {
    let mut change = FileChange { path: pair.path.to_str_lossy().into_owned(), ..FileChange::default() };
    // A file that became a link, or the other way round, is one that went and one that came, as git has it.
    match (pair.old, pair.new) {
        (Some(old), Some(new)) if kind(old.0) != kind(new.0) => {
            patch(repo, &mut change, pair.path.as_ref(), Some(old), None)?;
            patch(repo, &mut change, pair.path.as_ref(), None, Some(new))?;
        }
        (old, new) => patch(repo, &mut change, pair.path.as_ref(), old, new)?,
    }
    Ok(change)
}

fn kind(mode: EntryMode) -> u16 {
    mode.value() & 0o170_000
}

type Entry = Option<(EntryMode, ObjectId)>;

fn patch(repo: &Repository, change: &mut FileChange, path: &BStr, old: Entry, new: Entry) -> Result<(), GitError> {
    let (from, to) = (quoted(b"a/", path), quoted(b"b/", path));
    let null = ObjectId::null(repo.object_hash());
    let (old_id, new_id) = (old.map_or(null, |(_, id)| id), new.map_or(null, |(_, id)| id));
    let mut head = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        head.write_fmt(text).expect("BUG: writing to a string cannot fail");
        head.push('\n');
    };
    line(format_args!("diff --git {from} {to}"));
    let mut shared = String::new();
    match (old, new) {
        (None, Some((mode, _))) => line(format_args!("new file mode {:06o}", mode.value())),
        (Some((mode, _)), None) => line(format_args!("deleted file mode {:06o}", mode.value())),
        (Some((was, _)), Some((is, _))) if was != is => {
            line(format_args!("old mode {:06o}", was.value()));
            line(format_args!("new mode {:06o}", is.value()));
        }
        (Some((mode, _)), _) => shared = format!(" {:06o}", mode.value()),
        (None, None) => {}
    }
    if old_id != new_id {
        line(format_args!("index {old_id}..{new_id}{shared}"));
        let (before, after) = (side(repo, old)?, side(repo, new)?);
        let from = if old.is_some() { from } else { "/dev/null".to_owned() };
        let to = if new.is_some() { to } else { "/dev/null".to_owned() };
        if before.is_text && after.is_text {
            let input = InternedInput::new(before.bytes.as_slice(), after.bytes.as_slice());
            let diff = diff_with_slider_heuristics(Algorithm::Histogram, &input);
            change.insertions += u64::from(diff.count_additions());
            change.deletions += u64::from(diff.count_removals());
            if !(before.bytes.is_empty() && after.bytes.is_empty()) {
                line(format_args!("--- {from}"));
                line(format_args!("+++ {to}"));
            }
            let hunks = UnifiedDiff::new(&diff, &input, Hunks::default(), ContextSize::symmetrical(3)).consume();
            let hunks = hunks.map_err(|error| failed("write a diff", error))?;
            change.patch.extend_from_slice(head.as_bytes());
            change.patch.extend_from_slice(&hunks);
            return Ok(());
        }
        change.is_binary = true;
        line(format_args!("Binary files {from} and {to} differ"));
    }
    change.patch.extend_from_slice(head.as_bytes());
    Ok(())
}

fn side(repo: &Repository, entry: Entry) -> Result<Side, GitError> {
    let Some((mode, id)) = entry else { return Ok(Side { bytes: Vec::new(), is_text: true }) };
    if mode.is_commit() {
        return Ok(Side { bytes: format!("Subproject commit {id}\n").into_bytes(), is_text: true });
    }
    let reading = |error| failed("read a file of a commit", error);
    if repo.find_header(id).map_err(reading)?.size() > LARGEST {
        return Ok(Side { bytes: Vec::new(), is_text: false });
    }
    let bytes = repo.find_object(id).map_err(reading)?.detach().data;
    let is_text = memchr::memchr(0, &bytes[..bytes.len().min(LOOKED_AT)]).is_none();
    Ok(Side { bytes, is_text })
}

/// A path as git writes it: in quotes where it holds what would break the line.
fn quoted(prefix: &[u8], path: &BStr) -> String {
    let whole = [prefix, path].concat();
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    if whole.iter().all(is_plain) {
        return String::from_utf8_lossy(&whole).into_owned();
    }
    let mut text = String::from("\"");
    for byte in whole {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            byte if is_plain(&byte) => text.push(char::from(byte)),
            byte => write!(text, "\\{byte:03o}").expect("BUG: writing to a string cannot fail"),
        }
    }
    text.push('"');
    text
}

/// Writes hunks as git does.
#[derive(Default)]
struct Hunks(Vec<u8>);

impl ConsumeHunk for Hunks {
    type Out = Vec<u8>;

    fn consume_hunk(&mut self, header: HunkHeader, lines: &[(DiffLineKind, &[u8])]) -> std::io::Result<()> {
        let range = |start: u32, len: u32| match len {
            // Where a side is empty, git names the line before.
            0 => format!("{},0", start.saturating_sub(1)),
            1 => start.to_string(),
            len => format!("{start},{len}"),
        };
        let before = range(header.before_hunk_start, header.before_hunk_len);
        let after = range(header.after_hunk_start, header.after_hunk_len);
        self.0.extend_from_slice(format!("@@ -{before} +{after} @@\n").as_bytes());
        for (kind, line) in lines {
            self.0.push(match kind {
                DiffLineKind::Context => b' ',
                DiffLineKind::Add => b'+',
                DiffLineKind::Remove => b'-',
            });
            self.0.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                self.0.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
        Ok(())
    }

    fn finish(self) -> Self::Out {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_would_break_the_line_is_quoted_as_git_does() {
        assert_eq!(quoted(b"a/", "src/main file.rs".into()), "a/src/main file.rs");
        assert_eq!(quoted(b"b/", "ä\n\"\\\u{1b}".into()), "\"b/\\303\\244\\n\\\"\\\\\\033\"");
    }
}
