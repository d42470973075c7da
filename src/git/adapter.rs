//! The port's implementation: blocking work on the threads meant for it.

use std::path::Path;

use async_trait::async_trait;

use super::contract::{
    AccessRequest, BranchResult, BranchSummary, Changes, ChangesRequest, CommitId, GitAccessPlan, GitError, MergeHead,
    MergeOutcome, Merged, Repository, RepositoryLayout, ResultRequest, StartOverRequest, WorktreeRequest,
    WorktreeState,
};
use super::open::{GixRepository, Steer, commit_id, failed, missing, open};
use super::{access, changes, merge, own, refs, start_over, summary, take, template, worktree};

impl GixRepository {
    /// Runs blocking work. It goes on where the caller gives up: every operation may be repeated.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let git = self.clone();
        tokio::task::spawn_blocking(move || work(&git)).await.map_err(|error| failed("finish its work", error))?
    }
}

#[async_trait]
impl Repository for GixRepository {
    fn layout(&self) -> &RepositoryLayout {
        &self.layout
    }

    async fn resolve(&self, revision: &str) -> Result<CommitId, GitError> {
        let revision = revision.to_owned();
        self.blocking(move |git| resolve(git, &revision)).await
    }

    async fn tip(&self, full_ref: &str) -> Result<Option<CommitId>, GitError> {
        let full_ref = full_ref.to_owned();
        self.blocking(move |git| refs::tip(&git.common(Steer::Nothing)?, &full_ref)).await
    }

    async fn refs_below(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, GitError> {
        let prefix = prefix.to_owned();
        self.blocking(move |git| refs::below(&git.common(Steer::Nothing)?, &prefix)).await
    }

    async fn contains(&self, descendant: &CommitId, ancestor: &CommitId) -> Result<bool, GitError> {
        let (descendant, ancestor) = (descendant.clone(), ancestor.clone());
        self.blocking(move |git| {
            let repo = git.common(Steer::Nothing)?;
            refs::contains(&repo, refs::commit_of(&repo, &descendant)?, refs::commit_of(&repo, &ancestor)?)
        })
        .await
    }

    async fn merge(&self, heads: &[MergeHead]) -> Result<MergeOutcome, GitError> {
        let heads = heads.to_vec();
        self.blocking(move |git| {
            let outcome = merge::merge(&git.common(Steer::Nothing)?, &heads)?;
            own::hand_over(&git.layout, &[])?;
            Ok(outcome)
        })
        .await
    }

    async fn start_over(&self, request: &StartOverRequest) -> Result<Option<String>, GitError> {
        let request = request.clone();
        self.blocking(move |git| {
            let kept = start_over::start_over(git, &request)?;
            own::hand_over(&git.layout, &[])?;
            Ok(kept)
        })
        .await
    }

    async fn ensure_worktree(&self, request: &WorktreeRequest) -> Result<WorktreeState, GitError> {
        let request = request.clone();
        self.blocking(move |git| worktree::ensure(git, &request)).await
    }

    async fn open_access(&self, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
        let request = request.clone();
        self.blocking(move |git| access::open(git, &request)).await
    }

    async fn take_result(&self, request: &ResultRequest) -> Result<BranchResult, GitError> {
        let request = request.clone();
        self.blocking(move |git| {
            let taken = take::take(git, &request);
            // What was refused has a ref as well.
            own::hand_over(&git.layout, &[])?;
            taken
        })
        .await
    }

    async fn summarize(&self, base: &CommitId, head: &CommitId) -> Result<BranchSummary, GitError> {
        let (base, head) = (base.clone(), head.clone());
        self.blocking(move |git| summary::summarize(&git.common(Steer::Nothing)?, &base, &head)).await
    }

    async fn changes(&self, request: &ChangesRequest) -> Result<Changes, GitError> {
        let request = request.clone();
        self.blocking(move |git| changes::changes(git, &request)).await
    }

    fn pager(&self) -> Option<String> {
        let repo = self.common(Steer::Person).ok()?;
        repo.config_snapshot().string("core.pager").map(|pager| pager.to_string())
    }

    async fn conflicts(&self, target: &CommitId, head: &CommitId) -> Result<Vec<String>, GitError> {
        let (target, head) = (target.clone(), head.clone());
        self.blocking(move |git| merge::conflicts(&git.common(Steer::Nothing)?, &target, &head)).await
    }

    async fn merged(&self, target: &CommitId, head: &CommitId) -> Result<Merged, GitError> {
        let (target, head) = (target.clone(), head.clone());
        self.blocking(move |git| merge::merged(&git.common(Steer::Nothing)?, &target, &head)).await
    }

    async fn removable(&self, worktree: &Path) -> Result<Option<u64>, GitError> {
        let path = worktree.to_owned();
        self.blocking(move |git| worktree::removable(git, &path)).await
    }

    async fn remove_branch(&self, branch: &str, tip: &CommitId, kept_ref: &str) -> Result<Option<String>, GitError> {
        let (branch, tip, kept_ref) = (branch.to_owned(), tip.clone(), kept_ref.to_owned());
        self.blocking(move |git| {
            let kept = worktree::remove_branch(git, &branch, &tip, &kept_ref)?;
            own::hand_over(&git.layout, &[])?;
            Ok(kept)
        })
        .await
    }

    async fn remove_templates(&self, dry_run: bool) -> Result<u64, GitError> {
        self.blocking(move |git| {
            let bytes = template::disk_usage(&git.layout.common_dir);
            if !dry_run {
                template::remove(&git.layout.common_dir)?;
            }
            Ok(bytes)
        })
        .await
    }

    async fn remove_worktree(&self, worktree: &Path) -> Result<(), GitError> {
        let path = worktree.to_owned();
        self.blocking(move |git| worktree::remove(git, &path)).await
    }
}

/// A revision in the checkout that we were started in, whose HEAD it may mean.
fn resolve(git: &GixRepository, revision: &str) -> Result<CommitId, GitError> {
    let repo = open(&git.layout.git_dir, Steer::Nothing, None)?;
    let unknown = || GitError::UnknownRevision(revision.to_owned());
    let head = repo.head().map_err(|error| failed("read HEAD", error))?;
    if head.is_unborn() && ["HEAD", "@"].iter().any(|name| revision.starts_with(name)) {
        return Err(GitError::Unborn);
    }
    let found = repo.rev_parse_single(revision).map_err(|_| unknown())?;
    let object =
        found.object().map_err(|error| missing(&repo, revision, failed(format!("read `{revision}`"), error)))?;
    let commit = object.peel_to_commit().map_err(|_| unknown())?;
    // A shallow or partial clone may lack what a checkout needs; say so now rather than half-way.
    commit.tree().map_err(|error| missing(&repo, revision, failed(format!("read `{revision}`"), error)))?;
    Ok(commit_id(commit.id))
}
