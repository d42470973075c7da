//! What must outlive us: the journal and its fold, the plan file's published view, the locks.
//!
//! Every effect on a file goes through [`Files`], so that a simulation can drive the real code and crash it at each call.

mod entry;
mod files;
mod journal;
mod ledger;

pub use entry::{AttemptEnd, Entry, FORMAT, Hold, Next, StopCause};
pub use files::{FileError, FileLock, Files, OsFiles, Stamp};
pub use journal::{Journal, JournalError, Stored};
pub use ledger::{AttemptRecord, Ledger, State, TaskRecord};
