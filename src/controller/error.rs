//! Why a pass could not be made. A task's failure is never one of these.

use std::path::PathBuf;

use crate::git::GitError;
use crate::record::{FileError, JournalError, LockError, PlanFileError};
use crate::runtime::RuntimeError;
use crate::spec::Refused;

/// Why a repository cannot be served, or not go on being served.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another reconciler, or no lock at all.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The plan file cannot be read or written.
    #[error(transparent)]
    PlanFile(#[from] PlanFileError),
    /// The plan file is invalid.
    #[error("the plan file {} is invalid", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its bytes, for pointing at them.
        text: Vec<u8>,
        /// Everything that is wrong with it.
        refused: Refused,
    },
    /// The runtime does not answer.
    #[error("the runtime does not answer")]
    Runtime(#[from] RuntimeError),
    /// The repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The state dir.
    #[error(transparent)]
    File(#[from] FileError),
}

impl RunError {
    /// Whether it may pass by itself: a full disk, a file that is being written.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Journal(JournalError::File(error)) | Self::File(error) => !error.is_denied(),
            Self::PlanFile(error) => error.is_transient(),
            Self::Lock(_) | Self::Journal(_) | Self::Invalid { .. } | Self::Runtime(_) | Self::Git(_) => false,
        }
    }
}

/// What kind of thing did not work: one closed set, for metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trouble {
    /// The lock.
    Lock,
    /// The journal.
    Journal,
    /// The plan file cannot be read or written.
    PlanFile,
    /// The plan file is not accepted.
    InvalidPlan,
    /// The runtime does not answer.
    Runtime,
    /// The repository.
    Repository,
    /// The state dir.
    StateDir,
    /// A step for one task failed in a way that passes.
    Step,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Lock,
        Self::Journal,
        Self::PlanFile,
        Self::InvalidPlan,
        Self::Runtime,
        Self::Repository,
        Self::StateDir,
        Self::Step,
    ];

    /// The word in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Journal => "journal",
            Self::PlanFile => "plan_file",
            Self::InvalidPlan => "invalid_plan",
            Self::Runtime => "runtime",
            Self::Repository => "repository",
            Self::StateDir => "state_dir",
            Self::Step => "step",
        }
    }
}

impl From<&RunError> for Trouble {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Lock(_) => Self::Lock,
            RunError::Journal(_) => Self::Journal,
            RunError::PlanFile(_) => Self::PlanFile,
            RunError::Invalid { .. } => Self::InvalidPlan,
            RunError::Runtime(_) => Self::Runtime,
            RunError::Git(_) => Self::Repository,
            RunError::File(_) => Self::StateDir,
        }
    }
}
