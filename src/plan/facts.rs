//! What a decision about one task rests on, reduced to a finite product so that a test can walk all of it.

/// Where the journal has the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordFact {
    /// Never launched, or to be launched again.
    Idle,
    /// The next attempt waits for its time.
    Waiting,
    /// The wait is over.
    Due,
    /// Held, and nothing has changed.
    Held,
    /// The newest attempt is live and no start request was ever sent.
    Unstarted,
    /// A start request may have been sent, and one of them may still be on its way.
    Unsettled,
    /// A start request may have been sent; none can be on its way any more.
    Settled,
    /// Completed, failed or cancelled.
    Done,
}

impl RecordFact {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Idle, Self::Waiting, Self::Due, Self::Held, Self::Unstarted, Self::Unsettled, Self::Settled, Self::Done];
}

/// What the runtime says of the newest attempt's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerFact {
    /// The runtime does not answer.
    Unobserved,
    /// Missing in fewer than two complete lists.
    Missing,
    /// Missing in two complete lists.
    Gone,
    /// Made; what was tried with it only an inspection tells.
    Created,
    /// Runs or is paused.
    Live,
    /// Ended, or broken beyond use.
    Exited,
}

impl ContainerFact {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Unobserved, Self::Missing, Self::Gone, Self::Created, Self::Live, Self::Exited];
}

/// How the task's dependencies stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DependencyFact {
    /// All are completed.
    Completed,
    /// Some are not, and none is broken.
    Waiting,
    /// One failed, is blocked or was cancelled.
    Broken,
}

impl DependencyFact {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Waiting, Self::Broken];
}

/// Everything that [`super::decide()`] may look at.
#[expect(clippy::struct_excessive_bools, reason = "independent yes-or-no facts, each a column of the decision table")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// Where the journal has the task.
    pub record: RecordFact,
    /// What the runtime says.
    pub container: ContainerFact,
    /// How the dependencies stand.
    pub dependencies: DependencyFact,
    /// A person wants the live attempt stopped.
    pub cancel: bool,
    /// The attempt is past its `timeout`.
    pub overdue: bool,
    /// The plan launches nothing new.
    pub suspended: bool,
    /// A step failed in a way that passes, and its pause is not over.
    pub backing_off: bool,
}
