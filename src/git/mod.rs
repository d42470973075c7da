//! The user's repository: the port and its adapter over gix.

mod contract;

pub use contract::{
    BranchResult, BranchSummary, CommitId, GitError, MergeHead, MergeOutcome, Repository, RepositoryLayout,
    ResultRequest, WorktreeRequest, WorktreeState,
};
