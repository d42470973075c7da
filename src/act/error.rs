//! What a failed effect means for its task.

use crate::git::GitError;
use crate::record::{FileError, Hold, JournalError};
use crate::runtime::{ErrorKind, Operation, RuntimeError};
use crate::status::Reason;

/// An effect that did not take place, or of which we do not know.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// The runtime's error.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Git's error.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file of the state dir.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal: without it nothing more may be done.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The task cannot be launched before something changes.
    #[error("{}", .0.message)]
    Hold(Hold),
}

/// What follows from an error.
#[derive(Debug)]
pub enum Disposition {
    /// Recorded as held; the task is blocked.
    Hold(Hold),
    /// Tried again after a pause.
    Retry {
        /// What failed, in one line.
        message: String,
        /// The runtime is not to be reached at all: nobody needs to try for the moment.
        runtime_away: bool,
        /// The request may yet take effect.
        unknown: bool,
    },
    /// Nothing more may be done in this repository before a person looks.
    Fatal(JournalError),
}

impl ActError {
    /// Blocks the task for `reason`.
    pub fn hold(reason: Reason, message: impl Into<String>) -> Self {
        Self::Hold(Hold { reason, message: message.into(), key: String::new() })
    }

    /// Classes the error.
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Hold(hold) => Disposition::Hold(hold),
            // A journal that cannot grow (disk full) holds up every effect, since none may precede its record; what is
            // damaged or newer than us ends the work.
            Self::Journal(JournalError::File(error)) | Self::File(error) => retry(one_line(&error)),
            Self::Journal(error) => Disposition::Fatal(error),
            Self::Git(error) => git(error),
            Self::Runtime(error) => runtime(&error),
        }
    }
}

fn retry(message: String) -> Disposition {
    Disposition::Retry { message, runtime_away: false, unknown: false }
}

fn held(reason: Reason, message: String) -> Disposition {
    Disposition::Hold(Hold { reason, message, key: String::new() })
}

fn runtime(error: &RuntimeError) -> Disposition {
    let message = one_line(error);
    match (error.kind, error.operation) {
        (ErrorKind::ImageMissing | ErrorKind::RegistryDenied | ErrorKind::RegistryAway, _) => {
            held(Reason::ImageMissing, message)
        }
        (ErrorKind::NotOurs, _) => held(
            Reason::NameConflict,
            format!("{message}; a container of this name is not ours: rename or remove it, then `orchestrate retry`"),
        ),
        (ErrorKind::Invalid | ErrorKind::Unsupported, _) => held(Reason::InvalidSpec, message),
        (ErrorKind::Unknown, operation) => Disposition::Retry {
            message,
            runtime_away: false,
            unknown: matches!(operation, Operation::Create | Operation::Start),
        },
        (ErrorKind::Unreachable | ErrorKind::Denied, _) => {
            Disposition::Retry { message, runtime_away: true, unknown: false }
        }
        (
            ErrorKind::Engine
            | ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::NameTaken
            | ErrorKind::StartRefused,
            _,
        ) => retry(message),
    }
}

fn git(error: GitError) -> Disposition {
    let message = one_line(&error);
    match error {
        GitError::ForeignBranch { branch, .. } => held(
            Reason::BranchConflict,
            format!(
                "{message}; rename it (`git branch -m {branch} NEW`), delete it, or give the task another id, then \
                 `orchestrate retry`"
            ),
        ),
        GitError::BlockingRef(_) => {
            held(Reason::BranchConflict, format!("{message}; rename that branch, then `orchestrate retry`"))
        }
        GitError::CheckedOut { .. } => {
            held(Reason::BranchConflict, format!("{message}; switch that worktree to another branch"))
        }
        GitError::Unrelated(..) => held(Reason::MergeConflict, message),
        GitError::ForeignPath { .. } => held(Reason::WorktreeConflict, format!("{message}; move it away")),
        GitError::UnknownRevision(_) | GitError::Unborn => held(Reason::BaseMissing, message),
        GitError::NotARepository(_)
        | GitError::WorktreeLost(_)
        | GitError::Dirty { .. }
        | GitError::Locked { .. }
        | GitError::Refused { .. }
        | GitError::Unsupported(_) => held(Reason::WorktreeConflict, message),
        GitError::Io { .. } | GitError::Git { .. } => retry(message),
    }
}

/// An error with its causes in one line.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
