//! Effects, and nowhere else: worktree, container, start, stop, harvest. Each may be repeated; each is preceded by its
//! record where a crash between the two would matter.

mod base;
mod capture;
mod clean;
mod context;
mod error;
mod executor;
mod harvest;
mod hold;
mod job;
mod launch;
mod listen;
mod mounts;
mod pull;
mod redact;
mod report;
mod secret_files;
mod secrets;
mod shell;
mod start;

pub use capture::{Capture, Captured, HEAD, LogCapture, LogFailure, LogResult, TAIL, capture_log};
pub use clean::{Cleaned, Leftover, Removed, clean, clean_templates, look};
pub use context::{Context, Ports};
pub use error::{ActError, Disposition, one_line};
pub use executor::Executor;
pub use hold::fingerprint;
pub use job::{DependencyHead, Failure, Job, Outcome, dependency_heads};
pub use launch::image_mend;
pub use listen::has_written;
pub use pull::Notices;
pub use redact::{Redactor, Secrets};
pub use secrets::{MissingSecret, SecretSource, SecretValue};
pub use shell::{Left, shell_request};
