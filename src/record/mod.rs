//! What must outlive us: the journal and its fold, the plan file's published view, the locks.
//!
//! Every effect on a file goes through [`Files`], so that a simulation can drive the real code and crash it at each call.

mod ask;
mod edit;
mod entry;
mod files;
mod journal;
mod layout;
mod ledger;
mod lock;
mod place;
mod plan_file;
mod space;
pub mod splice;

pub use ask::Asked;
pub use entry::{AttemptEnd, Entry, FORMAT, Hold, Next, StopCause};
pub use files::{FileError, FileLock, Files, OsFiles, Stamp};
pub use journal::{Journal, JournalError, Stored, Witness};
pub use ledger::{AttemptRecord, Ledger, State, TaskRecord, Verification};
pub use lock::{DATA_LOCK_PATIENCE, Holder, LockError, StateLock, current_holder, data_lock};
pub use place::copied_from;
pub use plan_file::{PARTIAL_PATIENCE, PlanFile, PlanFileError, Publication, Publish, Snapshot as FileSnapshot};
pub use space::Space;
