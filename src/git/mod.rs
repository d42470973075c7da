//! The user's repository: the port and its adapter over gix.
//!
//! The adapter runs no hook, no fsmonitor and no filter of the repository's own config, reads no `GIT_…` variable, and
//! finds a worktree's git directory by name, never by the worktree's own `.git` file.

mod access;
mod adapter;
mod admin;
mod changes;
mod checkout;
mod contract;
mod copy;
mod durable;
mod exclude;
mod identity;
mod import;
mod isolate;
mod jail;
mod merge;
mod open;
mod own;
mod quarantine;
mod refs;
mod scan;
mod settle;
mod start_over;
mod summary;
mod take;
mod template;
mod trust;
mod verify;
mod walk;
mod worktree;

pub use admin::disk_usage;
pub use contract::{
    AccessRequest, BranchResult, BranchSummary, Changes, ChangesRequest, CommitId, FileChange, GitAccessPlan, GitBind,
    GitError, MergeHead, MergeOutcome, Merged, Repository, RepositoryLayout, ResultRequest, StartOverRequest,
    WorktreeRequest, WorktreeState,
};
pub use open::GixRepository;
pub use trust::runner;
