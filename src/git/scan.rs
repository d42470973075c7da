//! What a worktree holds beside a commit.

use std::collections::HashMap;
use std::path::Path;

use gix::bstr::BString;
use gix::index::entry::{Flags, Mode, Stat};
use gix::objs::tree::EntryKind;
use gix::{ObjectId, Repository};

use super::admin::Admin;
use super::contract::GitError;
use super::open::failed;
use super::walk::{Keep, Walk};

/// One path that differs from the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// Slash-separated, relative to the worktree.
    pub(super) path: BString,
    /// What stands there now; `None` where it was removed.
    pub(super) now: Option<(EntryKind, ObjectId)>,
}

/// A worktree compared with a commit.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// What differs, ignored files aside.
    pub(super) changes: Vec<Change>,
    /// What was left out and why.
    pub(super) notes: Vec<String>,
    pub(super) on_disk: HashMap<BString, (Mode, ObjectId, Stat)>,
    pub(super) skipped: Vec<BString>,
}

/// Compares without storing anything.
pub(super) fn scan(repo: &Repository, admin: &Admin, work_dir: &Path, tip: ObjectId) -> Result<Scan, GitError> {
    Walk::new(repo, admin, work_dir, tip, Keep::Hash)?.run()
}

/// Compares and stores the contents that differ.
pub(super) fn scan_and_store(
    repo: &Repository,
    admin: &Admin,
    work_dir: &Path,
    tip: ObjectId,
) -> Result<Scan, GitError> {
    Walk::new(repo, admin, work_dir, tip, Keep::Store)?.run()
}

impl Scan {
    /// The commit's tree with the changes in it.
    pub(super) fn tree(&self, repo: &Repository, tip: ObjectId) -> Result<ObjectId, GitError> {
        let writing = |error| failed("write a tree", error);
        let tree = repo.find_commit(tip).map_err(writing)?.tree_id().map_err(writing)?;
        let mut editor = repo.edit_tree(tree).map_err(writing)?;
        // Removals first: a file may have become a folder.
        for change in self.changes.iter().filter(|change| change.now.is_none()) {
            editor.remove(&change.path).map_err(writing)?;
        }
        for change in &self.changes {
            if let Some((kind, id)) = change.now {
                editor.upsert(&change.path, kind, id).map_err(writing)?;
            }
        }
        Ok(editor.write().map_err(writing)?.detach())
    }

    /// Brings the worktree's index in line with a commit, so that `git status` need not read the files again.
    pub(super) fn write_index(&self, repo: &Repository, admin: &Admin, commit: ObjectId) -> Result<(), GitError> {
        let writing = |error| failed("write the index", error);
        let tree = repo.find_commit(commit).map_err(writing)?.tree_id().map_err(writing)?;
        let mut index = repo.index_from_tree(&tree).map_err(writing)?;
        for (entry, path) in index.entries_mut_with_paths() {
            if let Some((mode, id, stat)) = self.on_disk.get(path)
                && *id == entry.id
                && *mode == entry.mode
            {
                entry.stat = *stat;
            }
            if self.skipped.iter().any(|skipped| skipped == path) {
                entry.flags.insert(Flags::SKIP_WORKTREE | Flags::EXTENDED);
            }
        }
        admin.clear_index_lock()?;
        index.set_path(admin.dir.join("index"));
        index.write(gix::index::write::Options::default()).map_err(writing)
    }
}

/// Makes the index of a worktree anew from a commit and the files that are there.
pub(super) fn write_index(repo: &Repository, admin: &Admin, work_dir: &Path, tip: ObjectId) -> Result<(), GitError> {
    scan(repo, admin, work_dir, tip)?.write_index(repo, admin, tip)
}
