//! The loop: wakes up, observes, plans, acts, records.

mod backoff;
mod desired;
mod error;
mod once;
mod reconciler;
mod run;
mod snapshot;
mod survey;

pub use error::{RunError, Trouble};
pub use once::once;
pub use reconciler::{OpenOptions, Reconciler};
pub use run::{RunEnd, RunOptions, Wakeups, run};
pub use snapshot::{Beat, Level, Reporter, Snapshot};
pub use survey::{UNSERVED, survey};
