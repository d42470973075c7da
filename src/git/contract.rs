//! The port to the user's repository. Nothing here moves a ref but `agent/<id>` and `refs/orchestrate/…`, and those only
//! forward (but for [`Repository::start_over`], which keeps what it leaves); nothing touches the user's work tree, index, HEAD, stash, config or hooks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::spec::{GitAccess, Leftovers, TaskId};

/// A commit's id in hex.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(pub String);

impl CommitId {
    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Where the repository is; found once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryLayout {
    /// The folder that holds the plan file and `.worktrees`: the main work tree (also when started in a linked one), or
    /// the git directory's parent for a bare repository.
    pub root: PathBuf,
    /// The git directory of the checkout that we were started in; its HEAD is the default base.
    pub git_dir: PathBuf,
    /// The directory that all worktrees share; holds the state dir.
    pub common_dir: PathBuf,
    /// Owner of the common directory.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// The repository.
#[async_trait]
pub trait Repository: Send + Sync {
    /// Where it is.
    fn layout(&self) -> &RepositoryLayout;

    /// Resolves a revision to a commit; `HEAD` is that of the checkout that we were started in.
    async fn resolve(&self, revision: &str) -> Result<CommitId, GitError>;

    /// The tip of a branch given by its full ref; `None` where there is no such ref.
    async fn tip(&self, full_ref: &str) -> Result<Option<CommitId>, GitError>;

    /// Refs below a prefix with what they name, sorted; only those that name a commit.
    async fn refs_below(&self, prefix: &str) -> Result<Vec<(String, CommitId)>, GitError> {
        let _ = prefix;
        Ok(Vec::new())
    }

    /// Whether every commit of `ancestor` is contained in `descendant`. A commit contains itself.
    async fn contains(&self, descendant: &CommitId, ancestor: &CommitId) -> Result<bool, GitError>;

    /// Merges heads in memory as `git merge-octopus` does and stores the result: heads contained in others drop out; one
    /// left is returned as it is; else a commit with all that are left as parents, in the given order, reproducible.
    async fn merge(&self, heads: &[MergeHead]) -> Result<MergeOutcome, GitError>;

    /// Gives up what a branch and its worktree hold, for an attempt that begins at the base again: the old tip and the
    /// uncommitted work get a ref, and only then the branch goes back to the base and the worktree away. Gives the ref,
    /// where there was something to keep. Idempotent.
    async fn start_over(&self, request: &StartOverRequest) -> Result<Option<String>, GitError> {
        Err(GitError::Unsupported(format!("it cannot take `{}` back to its base", request.branch)))
    }

    /// Makes branch and worktree, or finds them as they were made before; see [`WorktreeRequest`].
    async fn ensure_worktree(&self, request: &WorktreeRequest) -> Result<WorktreeState, GitError>;

    /// Prepares what an attempt may see and do of git, and tells how to mount it. Idempotent; a private git directory
    /// that an attempt has begun to write to is found again as it is.
    async fn open_access(&self, request: &AccessRequest) -> Result<GitAccessPlan, GitError>;

    /// Takes in what a private git directory holds, deals with what the agent left uncommitted in the worktree, and
    /// tells what its branch holds now. Idempotent; commits that are not taken are [`GitError::Refused`] and kept.
    async fn take_result(&self, request: &ResultRequest) -> Result<BranchResult, GitError>;

    /// What a branch holds beside its base, for people who review it.
    async fn summarize(&self, base: &CommitId, head: &CommitId) -> Result<BranchSummary, GitError>;

    /// What a branch changed from its base, and what its worktree holds beside it, line by line. Writes nothing.
    async fn changes(&self, request: &ChangesRequest) -> Result<Changes, GitError> {
        Err(GitError::Unsupported(format!("it cannot compare {} with {}", request.base, request.head)))
    }

    /// The pager that the person's own configuration names for git (`core.pager`).
    fn pager(&self) -> Option<String> {
        None
    }

    /// Paths that would conflict if `head` were merged into `target`; empty where it merges.
    async fn conflicts(&self, target: &CommitId, head: &CommitId) -> Result<Vec<String>, GitError>;

    /// Whether a branch's work is in `target` already.
    async fn merged(&self, target: &CommitId, head: &CommitId) -> Result<Merged, GitError> {
        Ok(if self.contains(target, head).await? { Merged::Commits } else { Merged::No })
    }

    /// How many bytes on disk a worktree takes that [`Repository::remove_worktree`] would remove; `None`: there is none.
    async fn removable(&self, worktree: &Path) -> Result<Option<u64>, GitError> {
        Err(GitError::Unsupported(format!("it cannot look at {}", worktree.display())))
    }

    /// Removes a worktree that has no uncommitted work, keeping its branch. One that is gone already is fine.
    async fn remove_worktree(&self, worktree: &Path) -> Result<(), GitError>;

    /// Removes what is kept to make worktrees quickly, or only looks; gives its bytes on disk, 0 where there is nothing.
    async fn remove_templates(&self, dry_run: bool) -> Result<u64, GitError> {
        let _ = dry_run;
        Ok(0)
    }

    /// Removes a branch that stands at a commit and is checked out nowhere. Where no other ref holds its commits, the tip gets
    /// `kept_ref` first (or one of its name and a number). Gives the ref.
    async fn remove_branch(&self, branch: &str, tip: &CommitId, kept_ref: &str) -> Result<Option<String>, GitError> {
        let _ = (tip, kept_ref);
        Err(GitError::Unsupported(format!("it cannot remove `{branch}`")))
    }
}

/// Whether a branch's work is in what it would be merged into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// Its commits are.
    Commits,
    /// Its changes are (a squash merge, or picked by hand); its commits are not.
    Content,
    /// It holds work that is not.
    No,
}

/// One input of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeHead {
    /// The task whose work it is, for messages.
    pub task: TaskId,
    /// Its commit.
    pub commit: CommitId,
}

/// What a merge gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The commit to start from; no new one where a head contains all others.
    Commit(CommitId),
    /// The heads do not merge.
    Conflict {
        /// Paths in conflict, sorted; none where the histories have no commit in common.
        paths: Vec<String>,
        /// The task whose head could not be added.
        task: TaskId,
        /// The tasks that had been merged before it.
        with: Vec<TaskId>,
    },
}

/// A worktree that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeRequest {
    /// Relative to the root, below `.worktrees`.
    pub path: PathBuf,
    /// Full ref of the branch.
    pub branch: String,
    /// The commit to start from.
    pub base: CommitId,
    /// Ref that keeps the base alive.
    pub base_ref: String,
    /// Whether the journal knows that we made this branch. One that exists and is not ours is a conflict unless it is
    /// exactly at `base`.
    pub branch_is_ours: bool,
    /// Why it is locked, for `git worktree list`; begins with `orchestrate: `, by which locks of others are told apart.
    pub lock_reason: String,
}

/// A branch of ours that goes back to its base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartOverRequest {
    /// The worktree, relative to the root.
    pub path: PathBuf,
    /// Full ref of the branch.
    pub branch: String,
    /// The commit to go back to.
    pub base: CommitId,
    /// Full ref that keeps what is given up.
    pub kept_ref: String,
    /// Subject line of the commit that keeps uncommitted work.
    pub subject: String,
}

/// A worktree that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeState {
    /// Absolute path.
    pub path: PathBuf,
    /// Its git directory, below the common directory.
    pub git_dir: PathBuf,
    /// The branch's tip.
    pub tip: CommitId,
}

/// What an attempt should see and do of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRequest {
    /// Its worktree.
    pub worktree: WorktreeState,
    /// How much of git.
    pub access: GitAccess,
    /// Full ref of its branch.
    pub branch: String,
    /// The commit that the branch started from.
    pub base: CommitId,
    /// Full refs of further branches to show: those of its dependencies. The default branch is shown in any case.
    pub visible: Vec<String>,
    /// Absolute, resolved folder of this attempt in the state dir; made where it is missing.
    pub attempt_dir: PathBuf,
    /// Where the worktree is mounted in the container.
    pub mount_point: PathBuf,
    /// Who must be able to write what the agent writes: worktree and private git directory. `None` leaves owners alone.
    pub owner: Option<(u32, u32)>,
}

/// How to give an attempt its git.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitAccessPlan {
    /// Beside the worktree itself, which the caller mounts at the mount point first; these come after it, in order.
    pub binds: Vec<GitBind>,
    /// Environment for the agent.
    pub env: BTreeMap<String, String>,
}

/// One bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitBind {
    /// Absolute path on the host, resolved.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// An attempt's work that should be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultRequest {
    /// The worktree, relative to the root.
    pub path: PathBuf,
    /// Full ref of the branch.
    pub branch: String,
    /// The commit that it started from.
    pub base: CommitId,
    /// The tip when the attempt started.
    pub start: CommitId,
    /// What to do with uncommitted changes.
    pub leftovers: Leftovers,
    /// Subject line of a commit of ours.
    pub subject: String,
    /// Full ref that keeps commits which the branch cannot take, such as a history rewritten below its base.
    pub kept_ref: String,
    /// The `attempt_dir` of an isolated access, to import from; `None` where the agent worked on the repository itself.
    pub private: Option<PathBuf>,
}

/// What a branch holds after an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchResult {
    /// Its tip.
    pub head: CommitId,
    /// Commits since the attempt's start, one of ours for leftovers included.
    pub commits: u64,
    /// Uncommitted changes were found.
    pub had_leftovers: bool,
    /// What a person should know: a nested repository left out, commits of a detached HEAD that were kept.
    pub notes: Vec<String>,
}

/// What a branch holds beside its base.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BranchSummary {
    /// Commits not in the base.
    pub commits: u64,
    /// Files that differ.
    pub files: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Paths that differ, sorted, at most 1,000.
    pub paths: Vec<String>,
    /// Those that run on somebody's machine once they are merged, sorted, at most 1,000.
    pub trusted: Vec<String>,
}

/// A git operation that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// No repository here or above.
    #[error("{0} is not inside a git repository")]
    NotARepository(PathBuf),
    /// There is no commit yet.
    #[error("the repository has no commit yet")]
    Unborn,
    /// A revision names no commit.
    #[error("`{0}` names no commit")]
    UnknownRevision(String),
    /// The branch exists with work that we did not make.
    #[error("branch `{branch}` exists and is not ours (at {tip})")]
    ForeignBranch {
        /// Short branch name.
        branch: String,
        /// Its tip.
        tip: CommitId,
    },
    /// A ref stands in the way of `agent/…`.
    #[error("ref `{0}` stands in the way of `agent/…` branches")]
    BlockingRef(String),
    /// The branch is checked out elsewhere.
    #[error("branch `{branch}` is checked out at {path}")]
    CheckedOut {
        /// Short branch name.
        branch: String,
        /// Where.
        path: PathBuf,
    },
    /// Something that is not ours stands where the worktree belongs.
    #[error("{path} is in the way: {what}")]
    ForeignPath {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// Two histories have no commit in common, so nothing says how to merge them.
    #[error("{0} and {1} have no commit in common")]
    Unrelated(CommitId, CommitId),
    /// The worktree is gone.
    #[error("the worktree {0} is gone")]
    WorktreeLost(PathBuf),
    /// Uncommitted work would be lost.
    #[error("{path} holds uncommitted work ({files} paths)")]
    Dirty {
        /// Where.
        path: PathBuf,
        /// How many paths.
        files: usize,
    },
    /// Somebody keeps the worktree from being removed.
    #[error("{path} is locked by somebody{reason}; `git worktree unlock {path}` frees it")]
    Locked {
        /// Where.
        path: PathBuf,
        /// What they said of it, in brackets; empty where they said nothing.
        reason: String,
    },
    /// What the agent left cannot be taken in.
    #[error("the result is refused: {reason}")]
    Refused {
        /// The rule that it breaks.
        reason: String,
        /// Ref that keeps its commits, where they could be kept.
        kept: Option<String>,
    },
    /// The repository has a form that we do not serve.
    #[error("this repository is not served: {0}")]
    Unsupported(String),
    /// The file system refused.
    #[error("cannot {action} {path}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Git's own machinery failed.
    #[error("git could not {action}")]
    Git {
        /// What was tried.
        action: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl GitError {
    /// Whether the same call may succeed later without anybody's doing: a lock, a full disk, an I/O error.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Git { .. } => true,
            Self::NotARepository(_)
            | Self::Unborn
            | Self::UnknownRevision(_)
            | Self::ForeignBranch { .. }
            | Self::BlockingRef(_)
            | Self::CheckedOut { .. }
            | Self::ForeignPath { .. }
            | Self::Unrelated(..)
            | Self::WorktreeLost(_)
            | Self::Dirty { .. }
            | Self::Locked { .. }
            | Self::Refused { .. }
            | Self::Unsupported(_) => false,
        }
    }
}

/// A branch to compare with its base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangesRequest {
    /// The commit that it started from.
    pub base: CommitId,
    /// Its tip.
    pub head: CommitId,
    /// Its worktree, relative to the root, whose uncommitted changes count too where it is there.
    pub worktree: Option<PathBuf>,
}

/// What a branch and its worktree changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Commits not in the base.
    pub commits: u64,
    /// The files that differ, by path.
    pub files: Vec<FileChange>,
    /// Paths of the worktree that differ from the branch, by path.
    pub uncommitted: Vec<String>,
    /// What was left out and why.
    pub notes: Vec<String>,
}

/// One file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileChange {
    /// Its path; what is not UTF-8 replaced.
    pub path: String,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// It is no text, or too large to be compared.
    pub is_binary: bool,
    /// What `git apply` takes, but for binary files, which it only names.
    pub patch: Vec<u8>,
}
