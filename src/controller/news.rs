//! What a snapshot shows beside the statuses, to see whether it is news. Pure.

use crate::observe::ObservedContainer;

/// What was told last.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    /// The task set by its address: whoever edits the file makes a new one.
    pub(super) tasks: usize,
    pub(super) orphans: Vec<ObservedContainer>,
    pub(super) unavailable: Option<String>,
    pub(super) fault: Option<String>,
}

impl Told {
    /// Whether the plan file came to be refused, or to be refused for another fault, since `before`.
    pub(super) fn has_new_fault(&self, before: Option<&Self>) -> bool {
        self.fault.is_some() && self.fault.as_ref() != before.and_then(|before| before.fault.as_ref())
    }
}
