//! The loop: wakes up, observes, plans, acts, records.

mod backoff;
mod desired;
mod disks;
mod error;
mod holds;
mod news;
mod once;
mod options;
mod publishing;
mod reconciler;
mod refresh;
mod run;
mod slots;
mod snapshot;
mod sources;
mod stream;
mod survey;
mod timers;

pub use error::{JudgedFile, RunError, Trouble};
pub use once::once;
pub use options::{OpenOptions, RunEnd, RunOptions, Wakeups};
pub use reconciler::Reconciler;
pub use run::run;
pub use slots::{Share, Slots};
pub use snapshot::{Beat, Level, Reporter, Snapshot};
pub use sources::{SpecFile, accepted};
pub use survey::{UNSERVED, survey};
