//! Taking in what an attempt left: its branch's tip, and what it did not commit.

use gix::{ObjectId, Repository};

use super::admin::{Admin, Head};
use super::contract::{BranchResult, GitError, ResultRequest};
use super::open::{GixRepository, Steer, commit_id, failed, open};
use super::{identity, own, refs, scan, worktree};
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
    let mut work = Work {
        base: refs::commit_of(&repo, &request.base)?,
        start: refs::commit_of(&repo, &request.start)?,
        repo: &repo,
        request,
        notes: Vec::new(),
    };
    let tip = work.settle_branch()?;
    let Settled { tip, parent } = work.settle_head(&admin, tip)?;

    let commits_wanted = request.leftovers == Leftovers::Commit;
    let scan = if commits_wanted {
        scan::scan_and_store(&repo, &admin, &path, parent)?
    } else {
        scan::scan(&repo, &admin, &path, parent)?
    };
    work.notes.extend(scan.notes.iter().cloned());
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
            work.notes.push(format!("uncommitted changes beside the branch are kept as `{kept}`"));
        }
    }
    scan.write_index(&repo, &admin, index_at)?;
    own::hand_over(&git.layout, &[&admin.dir])?;
    Ok(BranchResult {
        head: commit_id(head),
        commits: refs::count(&repo, work.start, head)?,
        had_leftovers,
        notes: work.notes,
    })
}

/// Where the branch ends, and which commit the worktree's files stand on; they differ only where the agent left the
/// branch for a history that does not go on from it.
struct Settled {
    tip: ObjectId,
    parent: ObjectId,
}

struct Work<'a> {
    repo: &'a Repository,
    request: &'a ResultRequest,
    base: ObjectId,
    start: ObjectId,
    notes: Vec<String>,
}

impl Work<'_> {
    /// The branch goes on from its base; what does not is kept beside it.
    fn settle_branch(&mut self) -> Result<ObjectId, GitError> {
        let branch = &self.request.branch;
        let Some(tip) = refs::read_direct(self.repo, branch)? else {
            refs::write(self.repo, branch, None, self.start, "orchestrate: restored")?;
            self.notes.push(format!("the branch `{}` had been deleted and is restored", refs::short(branch)));
            return Ok(self.start);
        };
        if refs::contains(self.repo, tip, self.start)? {
            return Ok(tip);
        }
        if refs::contains(self.repo, tip, self.base)? {
            let kept =
                refs::keep(self.repo, &self.request.kept_ref, self.start, "orchestrate: rewritten by the agent")?;
            self.notes.push(format!("commits of an earlier attempt were rewritten; they are kept as `{kept}`"));
            return Ok(tip);
        }
        let kept = refs::keep(self.repo, &self.request.kept_ref, tip, "orchestrate: refused")?;
        refs::write(self.repo, branch, Some(tip), self.start, "orchestrate: history below the base was rewritten")?;
        Err(GitError::Refused {
            reason: format!(
                "the history of `{}` below its base {} was rewritten",
                refs::short(branch),
                self.request.base.short()
            ),
            kept: Some(kept),
        })
    }

    /// HEAD back onto the branch. Where the agent committed on a detached HEAD or another branch, the branch goes forward
    /// to it if it can; else those commits are kept.
    fn settle_head(&mut self, admin: &Admin, tip: ObjectId) -> Result<Settled, GitError> {
        let branch = &self.request.branch;
        let on = match admin.head() {
            Some(Head::Branch(name)) if name == *branch => return Ok(Settled { tip, parent: tip }),
            Some(Head::Branch(name)) => refs::read_direct(self.repo, &name)?.map(|id| (refs::short(&name), id)),
            Some(Head::Detached(id)) => Some(("a detached HEAD".to_owned(), id)),
            None => None,
        };
        let Some((place, id)) = on.filter(|(_, id)| is_commit(self.repo, *id)) else {
            admin.attach(branch)?;
            return Ok(Settled { tip, parent: tip });
        };
        if refs::contains(self.repo, id, tip)? {
            if id != tip {
                refs::write(self.repo, branch, Some(tip), id, "orchestrate: forward to where the agent worked")?;
                self.notes
                    .push(format!("the agent committed on {place}; `{}` was moved forward to it", refs::short(branch)));
            }
            admin.attach(branch)?;
            return Ok(Settled { tip: id, parent: id });
        }
        if !refs::contains(self.repo, tip, id)? {
            let kept = refs::keep(self.repo, &self.request.kept_ref, id, "orchestrate: kept")?;
            self.notes.push(format!("the agent left the branch for {place}; those commits are kept as `{kept}`"));
        }
        Ok(Settled { tip, parent: id })
    }
}

fn is_commit(repo: &Repository, id: ObjectId) -> bool {
    repo.find_header(id).is_ok_and(|header| header.kind() == gix::object::Kind::Commit)
}

fn commit_leftovers(
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
    Ok(commit.id)
}
