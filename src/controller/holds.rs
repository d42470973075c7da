//! Tasks that are held, and whether they still have to be.

use std::sync::Arc;

use crate::act::{Context, DependencyHead, fingerprint};
use crate::record::Hold;
use crate::spec::{TaskId, TaskSpec};

/// A task that is held.
#[derive(Debug, Clone)]
pub(super) struct HeldTask {
    pub(super) spec: TaskSpec,
    pub(super) heads: Vec<DependencyHead>,
    pub(super) hold: Hold,
}

impl HeldTask {
    /// Tells which holds no longer hold.
    pub(super) async fn outdated(context: Arc<Context>, holds: Vec<Self>) -> Vec<TaskId> {
        let mut outdated = Vec::new();
        for held in holds {
            if fingerprint(&context, &held.spec, &held.heads, held.hold.reason).await != held.hold.key {
                outdated.push(held.spec.id);
            }
        }
        outdated
    }
}
