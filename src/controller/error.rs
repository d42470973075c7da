//! Why a pass could not be made. A task's failure is never one of these.

use std::path::PathBuf;

use crate::git::GitError;
use crate::record::{FileError, JournalError, LockError, PlanFileError};
use crate::runtime::RuntimeError;
use crate::spec::Diagnostic;

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
        diagnostics: Vec<Diagnostic>,
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
