//! The user's repository: the port and its adapter over gix.

mod contract;

pub use contract::{
    AccessRequest, BranchResult, BranchSummary, CommitId, GitAccessPlan, GitBind, GitError, MergeHead, MergeOutcome,
    Repository, RepositoryLayout, ResultRequest, WorktreeRequest, WorktreeState,
};
