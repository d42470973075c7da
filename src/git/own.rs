//! Handing what root makes to the one who owns the repository.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::contract::{GitError, RepositoryLayout};
use super::open::io;

/// Where we are root and the repository is not root's, gives trees of ours, and what git's own folders got new of us, to
/// the owner: else the owner's git could not write there any more.
pub(super) fn hand_over(layout: &RepositoryLayout, trees: &[&Path]) -> Result<(), GitError> {
    if layout.uid == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    for tree in trees {
        give(tree, layout.uid, layout.gid)?;
    }
    let common = &layout.common_dir;
    for name in ["worktrees", "info/exclude", "orchestrate"] {
        give_one(&common.join(name), layout.uid, layout.gid)?;
    }
    give_one(&layout.root.join(".worktrees"), layout.uid, layout.gid)?;
    for name in ["refs/heads", "refs/orchestrate", "logs/refs", "objects"] {
        give_foreign(&common.join(name), layout)?;
    }
    Ok(())
}

/// Gives a whole tree, links themselves and not their targets; tells whether anything was another's.
pub(super) fn give(path: &Path, uid: u32, gid: u32) -> Result<bool, GitError> {
    let mut open = vec![path.to_owned()];
    let mut given = false;
    while let Some(path) = open.pop() {
        given |= give_one(&path, uid, gid)?;
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            for entry in path.read_dir().map_err(io("list", &path))? {
                open.push(entry.map_err(io("list", &path))?.path());
            }
        }
    }
    Ok(given)
}

/// Gives what is root's in a tree. Folders that are the owner's already are entered only where root may have written.
fn give_foreign(path: &Path, layout: &RepositoryLayout) -> Result<(), GitError> {
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.uid() == 0 {
            give_one(&path, layout.uid, layout.gid)?;
        }
        if meta.is_dir() && path.file_name().is_none_or(|name| name != "pack") {
            for entry in path.read_dir().map_err(io("list", &path))? {
                open.push(entry.map_err(io("list", &path))?.path());
            }
        }
    }
    Ok(())
}

fn give_one(path: &Path, uid: u32, gid: u32) -> Result<bool, GitError> {
    let Ok(meta) = path.symlink_metadata() else { return Ok(false) };
    if (meta.uid(), meta.gid()) == (uid, gid) {
        return Ok(false);
    }
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(io("hand over", path))?;
    Ok(true)
}
