//! A write of the plan file, made beside the loop.

use std::collections::HashMap;
use std::sync::Arc;

use crate::record::{PlanFile, PlanFileError, Publication, Publish};
use crate::spec::TaskId;
use crate::status::TaskStatus;

/// A write of the plan file that is due.
#[derive(Debug, Clone)]
pub(super) struct Publishing {
    pub(super) file: PlanFile,
    pub(super) plan_id: String,
    pub(super) statuses: HashMap<TaskId, TaskStatus>,
    pub(super) seen: Option<Vec<u8>>,
    /// Tasks of the YAML spec, whose blocks are added where they are missing, and those whose blocks are removed.
    pub(super) ties: Arc<(Vec<TaskId>, Vec<TaskId>)>,
}

/// What came of it.
pub(super) type PublishResult = Result<Publication, PlanFileError>;

impl Publishing {
    /// Writes, where there is something to write.
    pub(super) async fn write(self) -> (Self, PublishResult) {
        let (add, drop) = &*self.ties;
        let publish =
            Publish { plan_id: &self.plan_id, statuses: &self.statuses, seen: self.seen.as_deref(), add, drop };
        let result = self.file.publish_with(publish).await;
        (self, result)
    }
}
