//! Taking in what an attempt left: its branch's tip, and what it did not commit.

use gix::{ObjectId, Repository};

use super::admin::Admin;
use super::contract::{BranchResult, GitError, ResultRequest};
use super::open::{GixRepository, Steer, commit_id, failed, open};
use super::settle::{Settle, Settled};
use super::{durable, identity, import, own, refs, scan, worktree};
use crate::spec::Leftovers;

/// Settles branch, HEAD, leftovers and index, in this order; each step may be repeated.
pub(super) fn take(git: &GixRepository, request: &ResultRequest) -> Result<BranchResult, GitError> {
    let path = worktree::absolute(git, &request.path)?;
    let common_dir = &git.layout.common_dir;
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(GitError::WorktreeLost(path));
    }
    let Some(admin) = Admin::find(common_dir, &path)?.filter(Admin::is_ours) else {
        return Err(GitError::WorktreeLost(path));
    };
    let repo = open(common_dir, Steer::Person, Some(&path))?;
    let mut settle = Settle::new(&repo, request)?;
    let Settled { tip, parent } = if let Some(attempt_dir) = &request.private {
        let imported = import::import(git, &repo, request, attempt_dir, &settle.known())?;
        if !imported.left.is_empty() {
            settle.notes.push(format!("left in the private git directory, not taken: {}", imported.left.join(", ")));
        }
        let tip = settle.import(imported.branch)?;
        admin.attach(&request.branch)?;
        let settled = settle.place(tip, imported.head)?;
        // A repetition: all that stood beside the branch has been taken since.
        let is_taken = settled.parent != settled.tip
            && refs::contains(&repo, settled.tip, settled.parent)?
            && scan::scan(&repo, &admin, &path, settled.tip)?.changes.is_empty();
        if is_taken { Settled { parent: settled.tip, ..settled } } else { settled }
    } else {
        let tip = settle.branch()?;
        settle.head(&admin, tip)?
    };
    let commits_wanted = request.leftovers == Leftovers::Commit;
    let scan = if commits_wanted {
        scan::scan_and_store(&repo, &admin, &path, parent)?
    } else {
        scan::scan(&repo, &admin, &path, parent)?
    };
    settle.notes.extend(scan.notes.iter().cloned());
    let had_leftovers = !scan.changes.is_empty();
    let mut head = tip;
    let mut index_at = parent;
    if had_leftovers && commits_wanted {
        index_at = commit_leftovers(&repo, &scan, parent, &request.subject)?;
        if parent == tip {
            refs::write(&repo, &request.branch, Some(tip), index_at, "commit (leftovers): by orchestrate")?;
            head = index_at;
        } else {
            let kept = refs::keep(&repo, &request.kept_ref, index_at, "orchestrate: kept")?;
            settle.notes.push(format!("uncommitted changes beside the branch are kept as `{kept}`"));
        }
    }
    scan.write_index(&repo, &admin, index_at)?;
    own::hand_over(&git.layout, &[&admin.dir])?;
    Ok(BranchResult {
        head: commit_id(head),
        commits: refs::count(&repo, settle.start, head)?,
        had_leftovers,
        notes: settle.notes,
    })
}

pub(super) fn commit_leftovers(
    repo: &Repository,
    scan: &scan::Scan,
    parent: ObjectId,
    subject: &str,
) -> Result<ObjectId, GitError> {
    let tree = scan.tree(repo, parent)?;
    let time = identity::now_as_git();
    let signature = identity::signature(&time);
    let message = format!("{}\n", subject.lines().next().unwrap_or_default());
    let commit = repo
        .new_commit_as(signature, signature, message, tree, [parent])
        .map_err(|error| failed("commit what was left", error))?;
    let id = commit.id;
    durable::sync_commit(repo, id, parent)?;
    Ok(id)
}
