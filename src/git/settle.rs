//! Bringing an attempt's branch and HEAD together: forward only, and nothing is lost.

use gix::{ObjectId, Repository};

use super::admin::{Admin, Head};
use super::contract::{GitError, ResultRequest};
use super::refs;

/// Where the branch ends, and which commit the worktree's files stand on; they differ only where the agent left the
/// branch for a history that does not go on from it.
pub(super) struct Settled {
    pub(super) tip: ObjectId,
    pub(super) parent: ObjectId,
}

/// Settles the refs of one attempt, and gathers what a person should know of it.
pub(super) struct Settle<'a> {
    repo: &'a Repository,
    request: &'a ResultRequest,
    base: ObjectId,
    pub(super) start: ObjectId,
    pub(super) notes: Vec<String>,
}

impl<'a> Settle<'a> {
    pub(super) fn new(repo: &'a Repository, request: &'a ResultRequest) -> Result<Self, GitError> {
        Ok(Self {
            base: refs::commit_of(repo, &request.base)?,
            start: refs::commit_of(repo, &request.start)?,
            repo,
            request,
            notes: Vec::new(),
        })
    }

    /// Commits that the repository had before the attempt.
    pub(super) fn known(&self) -> [ObjectId; 2] {
        [self.start, self.base]
    }

    /// The branch goes on from its base; what does not is kept beside it.
    pub(super) fn branch(&mut self) -> Result<ObjectId, GitError> {
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

    /// The same for a branch that came from a private git directory. What the repository's own branch is by now may be the
    /// work of an earlier try, or of a person.
    pub(super) fn import(&mut self, imported: Option<ObjectId>) -> Result<ObjectId, GitError> {
        let branch = &self.request.branch;
        let short = refs::short(branch);
        let current = refs::read_direct(self.repo, branch)?;
        if current.is_none() {
            refs::write(self.repo, branch, None, self.start, "orchestrate: restored")?;
        }
        let current = current.unwrap_or(self.start);
        let Some(tip) = imported else {
            self.notes.push(format!("the agent deleted `{short}`; it stays as it was"));
            return Ok(current);
        };
        let is_untouched = current == self.start;
        if tip == current || (!is_untouched && refs::contains(self.repo, current, tip)?) {
            return Ok(current);
        }
        if refs::contains(self.repo, tip, current)? {
            refs::write(self.repo, branch, Some(current), tip, "orchestrate: work of an agent")?;
            return Ok(tip);
        }
        if is_untouched && refs::contains(self.repo, tip, self.base)? {
            let kept = refs::keep(self.repo, &self.request.kept_ref, current, "orchestrate: rewritten by the agent")?;
            refs::write(self.repo, branch, Some(current), tip, "orchestrate: work of an agent, rewritten")?;
            self.notes.push(format!("commits of an earlier attempt were rewritten; they are kept as `{kept}`"));
            return Ok(tip);
        }
        let kept = refs::keep(self.repo, &self.request.kept_ref, tip, "orchestrate: refused")?;
        let reason = if is_untouched {
            format!("the history of `{short}` below its base {} was rewritten", self.request.base.short())
        } else {
            format!("`{short}` was moved by somebody else while the agent worked")
        };
        Err(GitError::Refused { reason, kept: Some(kept) })
    }

    /// HEAD back onto the branch. Where the agent committed on a detached HEAD or another branch, the branch goes forward
    /// to it if it can; else those commits are kept.
    pub(super) fn head(&mut self, admin: &Admin, tip: ObjectId) -> Result<Settled, GitError> {
        let branch = &self.request.branch;
        let on = match admin.head() {
            Some(Head::Branch(name)) if name == *branch => return Ok(Settled { tip, parent: tip }),
            Some(Head::Branch(name)) => refs::read_direct(self.repo, &name)?.map(|id| (refs::short(&name), id)),
            Some(Head::Detached(id)) => Some(("a detached HEAD".to_owned(), id)),
            None => None,
        };
        let settled = self.place(tip, on.filter(|(_, id)| is_commit(self.repo, *id)))?;
        if settled.parent == settled.tip {
            admin.attach(branch)?;
        }
        Ok(settled)
    }

    pub(super) fn place(&mut self, tip: ObjectId, place: Option<(String, ObjectId)>) -> Result<Settled, GitError> {
        let branch = &self.request.branch;
        let Some((place, id)) = place else { return Ok(Settled { tip, parent: tip }) };
        if refs::contains(self.repo, id, tip)? {
            if id != tip {
                refs::write(self.repo, branch, Some(tip), id, "orchestrate: forward to where the agent worked")?;
                self.notes
                    .push(format!("the agent committed on {place}; `{}` was moved forward to it", refs::short(branch)));
            }
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
