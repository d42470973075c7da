//! Giving up what an attempt left, for one that begins at the base again. Nothing is let go before it has a ref.

use std::path::Path;

use gix::{ObjectId, Repository};

use super::admin::{self, Admin, Head};
use super::contract::{GitError, StartOverRequest};
use super::open::{GixRepository, Steer, open};
use super::{refs, scan, take, worktree};

/// Keeps, then resets. A kill at any point leaves either everything or a ref to it; what a repetition keeps a second time
/// stands beside the first.
pub(super) fn start_over(git: &GixRepository, request: &StartOverRequest) -> Result<Option<String>, GitError> {
    let path = worktree::absolute(git, &request.path)?;
    let common_dir = &git.layout.common_dir;
    let repo = git.common(Steer::Nothing)?;
    let base = refs::commit_of(&repo, &request.base)?;
    let Some(tip) = refs::read_direct(&repo, &request.branch)? else { return Ok(None) };
    let is_folder = match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => true,
        Ok(_) => return Err(GitError::ForeignPath { path, what: "not a folder" }),
        Err(_) => false,
    };
    let admin = match Admin::find(common_dir, &path)? {
        Some(admin) if !admin.is_ours() => {
            return Err(GitError::ForeignPath { path, what: "a worktree that is not ours" });
        }
        None if is_folder && !admin::is_orphan_of_ours(common_dir, &path) => {
            return Err(GitError::ForeignPath { path, what: "a folder that is not ours" });
        }
        other => other,
    };
    if let Some(admin) = &admin {
        admin.refuse_locked(&path)?;
    }
    if let Some(holder) = Admin::holder(&git.layout, &request.branch, &path)? {
        return Err(GitError::CheckedOut { branch: refs::short(&request.branch), path: holder });
    }
    let mut given_up = Vec::new();
    // One that is in the making again was given up before, and is perhaps half removed.
    if let Some(admin) = admin.as_ref().filter(|admin| is_folder && !admin.is_in_the_making()) {
        let repo = open(common_dir, Steer::Person, Some(&path))?;
        let stands_on = stands_on(&repo, admin, &request.branch)?.unwrap_or(tip);
        let scan = scan::scan_and_store(&repo, admin, &path, stands_on)?;
        given_up.push(if scan.changes.is_empty() {
            stands_on
        } else {
            take::commit_leftovers(&repo, &scan, stands_on, &request.subject)?
        });
    }
    given_up.push(tip);
    let mut kept: Option<(String, ObjectId)> = None;
    for id in given_up {
        let is_held = |by: ObjectId| refs::contains(&repo, by, id);
        if is_held(base)? || kept.as_ref().map_or(Ok(false), |(_, by)| is_held(*by))? {
            continue;
        }
        let name = refs::keep(&repo, &request.kept_ref, id, "orchestrate: given up for a fresh attempt")?;
        kept.get_or_insert((name, id));
    }
    reset(&repo, request, tip, base, admin.as_ref(), &path)?;
    Ok(kept.map(|(name, _)| name))
}

/// The commit that the worktree's files are changes to.
fn stands_on(repo: &Repository, admin: &Admin, branch: &str) -> Result<Option<ObjectId>, GitError> {
    Ok(match admin.head() {
        Some(Head::Detached(id)) => refs::commit_of(repo, &super::open::commit_id(id)).ok(),
        Some(Head::Branch(name)) if name != branch => refs::read_direct(repo, &name)?,
        Some(Head::Branch(_)) | None => None,
    })
}

fn reset(
    repo: &Repository,
    request: &StartOverRequest,
    tip: ObjectId,
    base: ObjectId,
    admin: Option<&Admin>,
    path: &Path,
) -> Result<(), GitError> {
    if let Some(admin) = admin {
        admin.reopen()?;
        admin::sync(&admin.dir.join("locked"))?;
    }
    if tip != base {
        refs::write(repo, &request.branch, Some(tip), base, "orchestrate: a fresh attempt begins at the base")?;
    }
    if path.symlink_metadata().is_ok() {
        admin::remove_tree(path)?;
    }
    admin.map_or(Ok(()), Admin::remove)
}
