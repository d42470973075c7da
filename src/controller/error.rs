//! Why a pass could not be made. A task's failure is never one of these.

use std::path::PathBuf;

use crate::git::GitError;
use crate::record::{FileError, JournalError, LockError, PlanFileError};
use crate::runtime::RuntimeError;
use crate::spec::{Origin, Refused, Severity};

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
    /// The YAML spec that was asked for is not there.
    #[error("there is no YAML spec {}", path.display())]
    NoSpec {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The plan file or the YAML spec is invalid.
    #[error("{} is invalid", faulty(files, refused))]
    Invalid {
        /// The files that were judged.
        files: Vec<JudgedFile>,
        /// Everything that is wrong with them.
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

/// A file that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedFile {
    /// Which of the two.
    pub origin: Origin,
    /// Where it stands.
    pub path: PathBuf,
    /// Its bytes, for pointing at them.
    pub text: Vec<u8>,
}

/// Names the file that the first error stands in.
fn faulty(files: &[JudgedFile], refused: &Refused) -> String {
    let first = refused.diagnostics.iter().find(|diagnostic| diagnostic.severity() == Severity::Error);
    let at = first.map(|error| error.primary.place.origin);
    let file = files.iter().find(|file| Some(file.origin) == at).or(files.first());
    file.map_or_else(
        || "the plan".to_owned(),
        |file| match file.origin {
            Origin::Plan => format!("the plan file {}", file.path.display()),
            Origin::Spec => format!("the YAML spec {}", file.path.display()),
        },
    )
}

impl RunError {
    /// Whether it may pass by itself: a full disk, a file that is being written.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Journal(JournalError::File(error)) | Self::File(error) => !error.is_denied(),
            Self::PlanFile(error) => error.is_transient(),
            Self::NoSpec { .. }
            | Self::Lock(_)
            | Self::Journal(_)
            | Self::Invalid { .. }
            | Self::Runtime(_)
            | Self::Git(_) => false,
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
            RunError::Invalid { .. } | RunError::NoSpec { .. } => Self::InvalidPlan,
            RunError::Runtime(_) => Self::Runtime,
            RunError::Git(_) => Self::Repository,
            RunError::File(_) => Self::StateDir,
        }
    }
}
