//! Making and removing linked worktrees by git's own plumbing.

use std::path::{Component, Path, PathBuf};

use gix::{ObjectId, Repository};

use super::admin::{self, Admin, Head};
use super::contract::{CommitId, GitError, RepositoryLayout, WorktreeRequest, WorktreeState};
use super::open::{GixRepository, Steer, commit_id, failed, io, open};
use super::refs::{self, RefValue};
use super::{checkout, exclude, identity, own, scan};

/// What the log of a base ref says.
const BASE_LOG: &str = "orchestrate: base of a task";

/// Makes branch and worktree, or finds and mends them.
pub(super) fn ensure(git: &GixRepository, request: &WorktreeRequest) -> Result<WorktreeState, GitError> {
    let path = absolute(git, &request.path)?;
    let common_dir = &git.layout.common_dir;
    let repo = git.common(Steer::Nothing)?;
    let base = refs::commit_of(&repo, &request.base)?;
    ensure_folder(path.parent().unwrap_or(&git.layout.root))?;
    exclude::ensure(common_dir)?;

    let found = Admin::find(common_dir, &path)?;
    if let Some(admin) = found.as_ref().filter(|admin| admin.is_ours()) {
        admin.point_at(&path)?;
    }
    let (tip, is_new) = ensure_branch(&repo, request, base, &path, &git.layout)?;
    if refs::ensure(&repo, &request.base_ref, base, BASE_LOG)? || is_new {
        // Together: the second one costs little then.
        refs::sync(&repo, &request.base_ref)?;
        refs::sync(&repo, &request.branch)?;
    }

    let place = Place::at(&path)?;
    let admin = match found {
        Some(admin) => {
            if !admin.is_ours() {
                if admin.head() != Some(Head::Branch(request.branch.clone())) {
                    return Err(GitError::ForeignPath { path, what: "a worktree that is not ours" });
                }
                admin.adopt(&request.branch)?;
            }
            admin.clear_index_lock()?;
            if admin.head().is_none() {
                admin.attach(&request.branch)?;
            }
            if place == Place::Folder && !admin.is_in_the_making() {
                admin.ensure_link(&path)?;
                admin.lock(&request.lock_reason)?;
                own::hand_over(&git.layout, &[&admin.dir])?;
                return Ok(WorktreeState { path, git_dir: admin.dir, tip: commit_id(tip) });
            }
            admin.reopen()?;
            admin.attach(&request.branch)?;
            admin
        }
        None if place == Place::Folder && admin::is_orphan_of_ours(common_dir, &path) => {
            // Its registration was lost, its files are there: they are work, so only the index is made anew.
            let admin = Admin::create(common_dir, &path, &request.branch)?;
            admin.ensure_link(&path)?;
            let repo = open(common_dir, Steer::Person, Some(&path))?;
            scan::write_index(&repo, &admin, &path, tip)?;
            admin.lock(&request.lock_reason)?;
            own::hand_over(&git.layout, &[&admin.dir])?;
            return Ok(WorktreeState { path, git_dir: admin.dir, tip: commit_id(tip) });
        }
        None if place == Place::Folder => {
            return Err(GitError::ForeignPath { path, what: "a folder that is not ours" });
        }
        None => Admin::create(common_dir, &path, &request.branch)?,
    };
    fill(git, &admin, &path, request, tip, place)?;
    Ok(WorktreeState { path, git_dir: admin.dir, tip: commit_id(tip) })
}

/// The bytes on disk of a worktree that [`remove`] would remove; `None`: there is none.
pub(super) fn removable(git: &GixRepository, worktree: &Path) -> Result<Option<u64>, GitError> {
    let path = absolute(git, worktree)?;
    match (Place::at(&path)?, Admin::find(&git.layout.common_dir, &path)?) {
        (Place::Nothing, None) => Ok(None),
        (Place::Nothing, Some(admin)) if admin.is_ours() => admin.refuse_locked(&path).map(|()| Some(0)),
        (Place::Empty, None) => Ok(Some(0)),
        (Place::Folder | Place::Empty, Some(admin)) if admin.is_ours() => {
            admin.refuse_locked(&path)?;
            if !admin.is_in_the_making() {
                refuse_losing_work(git, &admin, &path)?;
            }
            Ok(Some(admin::disk_usage(&path)))
        }
        _ => Err(GitError::ForeignPath { path, what: "a worktree that is not ours" }),
    }
}

/// Removes a branch that stands at a commit and is checked out nowhere, its base ref left for the records. Where no other
/// ref holds its commits, `kept_ref` does from then on: a detached HEAD or a commit that was named by hand holds nothing.
pub(super) fn remove_branch(
    git: &GixRepository,
    branch: &str,
    tip: &CommitId,
    kept_ref: &str,
) -> Result<Option<String>, GitError> {
    let repo = git.common(Steer::Nothing)?;
    let id = refs::commit_of(&repo, tip)?;
    if let Some(path) = Admin::holder(&git.layout, branch, Path::new(""))? {
        return Err(GitError::CheckedOut { branch: refs::short(branch), path });
    }
    let kept = if refs::is_reachable(&repo, id, Some(branch))? {
        None
    } else {
        Some(refs::keep(&repo, kept_ref, id, "orchestrate: cleaned")?)
    };
    refs::delete(&repo, branch, id)?;
    Ok(kept)
}

/// Removes a worktree without uncommitted work, and its registration.
pub(super) fn remove(git: &GixRepository, worktree: &Path) -> Result<(), GitError> {
    let path = absolute(git, worktree)?;
    let found = Admin::find(&git.layout.common_dir, &path)?;
    match (Place::at(&path)?, found) {
        (Place::Nothing, None) => Ok(()),
        (Place::Nothing, Some(admin)) if admin.is_ours() => {
            admin.refuse_locked(&path)?;
            admin.remove()
        }
        (Place::Folder | Place::Empty, Some(admin)) if admin.is_ours() => {
            admin.refuse_locked(&path)?;
            if !admin.is_in_the_making() {
                refuse_losing_work(git, &admin, &path)?;
            }
            admin::remove_tree(&path)?;
            admin.remove()
        }
        (Place::Empty, None) => std::fs::remove_dir(&path).map_err(io("remove", &path)),
        _ => Err(GitError::ForeignPath { path, what: "a worktree that is not ours" }),
    }
}

fn refuse_losing_work(git: &GixRepository, admin: &Admin, path: &Path) -> Result<(), GitError> {
    let repo = open(&git.layout.common_dir, Steer::Person, Some(path))?;
    let tip = match admin.head() {
        Some(Head::Branch(branch)) => refs::read_direct(&repo, &branch)?,
        Some(Head::Detached(id)) => {
            if !refs::is_reachable(&repo, id, None)? {
                return Err(GitError::ForeignPath {
                    path: path.to_owned(),
                    what: "its detached HEAD holds commits that no ref has",
                });
            }
            Some(id)
        }
        None => None,
    };
    let Some(tip) = tip else {
        // With no commit to compare with, each file may be work.
        return match Place::at(path)? {
            Place::Nothing | Place::Empty => Ok(()),
            Place::Folder => Err(GitError::ForeignPath {
                path: path.to_owned(),
                what: "a worktree whose branch is gone, so that uncommitted work in it cannot be told from the rest",
            }),
        };
    };
    let scan = scan::scan(&repo, admin, path, tip)?;
    if scan.changes.is_empty() {
        Ok(())
    } else {
        Err(GitError::Dirty { path: path.to_owned(), files: scan.changes.len() })
    }
}

/// What stands where the worktree belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nothing,
    Empty,
    Folder,
}

impl Place {
    fn at(path: &Path) -> Result<Self, GitError> {
        match path.symlink_metadata() {
            Ok(meta) if meta.is_symlink() => {
                Err(GitError::ForeignPath { path: path.to_owned(), what: "a symbolic link" })
            }
            Ok(meta) if meta.is_dir() => {
                let mut entries = path.read_dir().map_err(io("list", path))?;
                Ok(if entries.next().is_some() { Self::Folder } else { Self::Empty })
            }
            Ok(_) => Err(GitError::ForeignPath { path: path.to_owned(), what: "a file" }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::Nothing),
            Err(error) => Err(io("look at", path)(error)),
        }
    }
}

/// The absolute path of a worktree: one folder below `.worktrees`, whatever the caller was given.
pub(super) fn absolute(git: &GixRepository, relative: &Path) -> Result<PathBuf, GitError> {
    let relative = relative.strip_prefix(&git.layout.root).unwrap_or(relative);
    let parts: Vec<_> = relative.components().collect();
    match parts.as_slice() {
        [Component::Normal(folder), Component::Normal(name)] if *folder == ".worktrees" && *name != ".git" => {
            Ok(git.layout.root.join(relative))
        }
        _ => Err(GitError::ForeignPath { path: relative.to_owned(), what: "not a folder below `.worktrees`" }),
    }
}

/// `.worktrees` itself: a link would have us write somewhere else.
fn ensure_folder(folder: &Path) -> Result<(), GitError> {
    match folder.symlink_metadata() {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(meta) if meta.is_symlink() => {
            Err(GitError::ForeignPath { path: folder.to_owned(), what: "a symbolic link; it must be a real folder" })
        }
        Ok(_) => Err(GitError::ForeignPath { path: folder.to_owned(), what: "a file; it must be a folder" }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            match std::fs::create_dir(folder) {
                // Another task was as fast: look again at what it made.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => ensure_folder(folder),
                made => made.map_err(io("make", folder)),
            }
        }
        Err(error) => Err(io("look at", folder)(error)),
    }
}

/// The branch's tip, and whether it was made now, at the base.
fn ensure_branch(
    repo: &Repository,
    request: &WorktreeRequest,
    base: ObjectId,
    path: &Path,
    layout: &RepositoryLayout,
) -> Result<(ObjectId, bool), GitError> {
    let foreign = |tip| GitError::ForeignBranch { branch: refs::short(&request.branch), tip: commit_id(tip) };
    match refs::read(repo, &request.branch)? {
        RefValue::Symbolic(target) => Err(GitError::BlockingRef(format!("{} -> {target}", request.branch))),
        RefValue::Direct(tip) => {
            if !request.branch_is_ours && tip != base {
                return Err(foreign(tip));
            }
            if let Some(holder) = Admin::holder(layout, &request.branch, path)? {
                return Err(GitError::CheckedOut { branch: refs::short(&request.branch), path: holder });
            }
            Ok((tip, false))
        }
        RefValue::Absent => {
            refuse_blocked(repo, &request.branch)?;
            // First, since it tells a later look that the branch is ours, should we die before anything is recorded.
            refs::ensure(repo, &request.base_ref, base, BASE_LOG)?;
            refs::write_soon(repo, &request.branch, None, base, "branch: Created by orchestrate")?;
            Ok((base, true))
        }
    }
}

/// A ref cannot be made where another is its folder, or lies in a folder of its name.
fn refuse_blocked(repo: &Repository, branch: &str) -> Result<(), GitError> {
    for (at, _) in branch.match_indices('/').skip(2) {
        if refs::read(repo, &branch[..at])? != RefValue::Absent {
            return Err(GitError::BlockingRef(branch[..at].to_owned()));
        }
    }
    let listing = |error| failed("list refs", error);
    let prefix = format!("{branch}/");
    let platform = repo.references().map_err(listing)?;
    match platform.prefixed(prefix.as_str()).map_err(listing)?.next() {
        Some(Ok(below)) => Err(GitError::BlockingRef(below.name().as_bstr().to_string())),
        _ => Ok(()),
    }
}

/// Checks the tip out into a registered worktree that is in the making, and says that it is whole.
fn fill(
    git: &GixRepository,
    admin: &Admin,
    path: &Path,
    request: &WorktreeRequest,
    tip: ObjectId,
    place: Place,
) -> Result<(), GitError> {
    if place == Place::Nothing {
        std::fs::create_dir(path).map_err(io("make", path))?;
    }
    admin.ensure_link(path)?;
    admin::remove_file(&admin.dir.join("index"))?;
    checkout::fill(git, admin, path, tip, place == Place::Nothing, place != Place::Folder)?;
    log_head(admin, tip)?;
    // Whole only once it is the owner's: a kill before this makes it anew.
    own::hand_over(&git.layout, &[path])?;
    admin.lock(&request.lock_reason)?;
    own::hand_over(&git.layout, &[&admin.dir])
}

/// The first line of the worktree's own HEAD log, as git writes it; one that is there stays.
fn log_head(admin: &Admin, tip: ObjectId) -> Result<(), GitError> {
    let path = admin.dir.join("logs/HEAD");
    if path.exists() {
        return Ok(());
    }
    let folder = admin.dir.join("logs");
    std::fs::create_dir_all(&folder).map_err(io("make", &folder))?;
    let null = tip.kind().null();
    let line = format!("{null} {tip} {} <{}> {}\n", identity::NAME, identity::EMAIL, identity::now_as_git());
    admin::write_new(&path, line.as_bytes())
}
