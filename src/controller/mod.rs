//! The loop: wakes up, observes, plans, acts, records.

mod snapshot;

pub use snapshot::{Level, Reporter, Snapshot};
