//! A write of the plan file, made beside the loop.

use std::collections::HashMap;

use crate::record::{PlanFile, PlanFileError, Publication};
use crate::spec::TaskId;
use crate::status::TaskStatus;

/// A write of the plan file that is due.
#[derive(Debug, Clone)]
pub(super) struct Publishing {
    pub(super) file: PlanFile,
    pub(super) plan_id: String,
    pub(super) statuses: HashMap<TaskId, TaskStatus>,
    pub(super) seen: Option<Vec<u8>>,
}

/// What came of it.
pub(super) type PublishResult = Result<Publication, PlanFileError>;

impl Publishing {
    /// Writes, where there is something to write.
    pub(super) async fn write(self) -> (Self, PublishResult) {
        let result = self.file.publish(&self.plan_id, &self.statuses, self.seen.as_deref()).await;
        (self, result)
    }
}
