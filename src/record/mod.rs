//! What is kept: the journal with its ledger, the plan file's published status, and the locks around them.
//!
//! Every effect on a file goes through [`Files`], so that a simulation can drive the real code and crash it at each call.

mod files;
mod layout;
mod lock;
mod plan_file;
pub mod splice;

pub use files::{FileError, FileLock, Files, OsFiles, Stamp};
pub use lock::{DATA_LOCK_PATIENCE, Holder, LockError, StateLock, data_lock};
pub use plan_file::{PARTIAL_PATIENCE, PlanFile, PlanFileError, Publication, Snapshot};
