//! What must outlive us: the journal and its fold, the plan file's published view, the locks.

mod entry;
mod ledger;

pub use entry::{AttemptEnd, Entry, FORMAT, Hold, Next, StopCause};
pub use ledger::{AttemptRecord, Ledger, State, TaskRecord};
