//! One task, one decision: the table of `specs/decision-table.md` as code.

use super::facts::{ContainerFact, DependencyFact, Facts, RecordFact};
use crate::record::StopCause;
use crate::status::Reason;

/// What should happen with a task.
#[must_use = "a decision is to be admitted and acted upon"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Over, and nobody asked for more.
    Keep,
    /// Goes on by itself; nothing to do now.
    Run(Reason),
    /// Waits for something that comes by itself or by other tasks.
    Wait(Reason),
    /// Stays held for the reason that is recorded.
    StayHeld,
    /// Blocked by a dependency.
    Block,
    /// Make the next attempt, when a slot is free.
    Launch,
    /// Make the recorded attempt (again) up to its container, when a slot is free.
    Resume,
    /// Start the container that was made, when a slot is free.
    Start,
    /// Stop the container.
    Stop(StopCause),
    /// Take in the result of the container that ended.
    Harvest,
    /// Record that the container is gone without a result.
    Lose,
    /// Record the attempt as cancelled: it never ran.
    EndCancelled,
}

/// Decides for one task. Rows are tried from the top; the first that fits holds.
pub fn decide(facts: Facts) -> Decision {
    match facts.record {
        RecordFact::Done => Decision::Keep,
        RecordFact::Unstarted | RecordFact::Unsettled | RecordFact::Settled => decide_live(facts),
        RecordFact::Idle | RecordFact::Waiting | RecordFact::Due | RecordFact::Held => decide_next(facts),
    }
}

fn decide_live(facts: Facts) -> Decision {
    match facts.container {
        // Nothing is concluded from silence.
        ContainerFact::Unobserved => Decision::Run(Reason::EngineUnavailable),
        // What has ended holds no slot, however long its result cannot be taken in.
        ContainerFact::Exited if facts.backing_off => Decision::Wait(Reason::TransientError),
        ContainerFact::Exited => Decision::Harvest,
        ContainerFact::Live if facts.backing_off => Decision::Run(Reason::TransientError),
        ContainerFact::Live if facts.cancel => Decision::Stop(StopCause::Cancel),
        ContainerFact::Live if facts.overdue => Decision::Stop(StopCause::Deadline),
        ContainerFact::Live => Decision::Run(Reason::Started),
        ContainerFact::Created => decide_created(facts),
        ContainerFact::Missing | ContainerFact::Gone => decide_missing(facts),
    }
}

fn decide_created(facts: Facts) -> Decision {
    match facts.record {
        // A start that is still on its way would find a container that has run, and run it again after us.
        RecordFact::Unsettled => Decision::Run(Reason::Settling),
        _ if facts.backing_off => Decision::Wait(Reason::TransientError),
        _ if facts.cancel => Decision::EndCancelled,
        _ => Decision::Start,
    }
}

fn decide_missing(facts: Facts) -> Decision {
    match (facts.record, facts.container) {
        // Nobody can have started it, so there is no result to lose, and its name lets it exist only once.
        (RecordFact::Unstarted, _) if facts.backing_off => Decision::Wait(Reason::TransientError),
        (RecordFact::Unstarted, _) if facts.cancel => Decision::EndCancelled,
        (RecordFact::Unstarted, _) => Decision::Resume,
        (_, ContainerFact::Gone) if facts.backing_off => Decision::Wait(Reason::TransientError),
        (_, ContainerFact::Gone) => Decision::Lose,
        _ => Decision::Run(Reason::Settling),
    }
}

fn decide_next(facts: Facts) -> Decision {
    if facts.dependencies == DependencyFact::Broken {
        return Decision::Block;
    }
    if facts.record == RecordFact::Held {
        return Decision::StayHeld;
    }
    if facts.dependencies == DependencyFact::Waiting {
        return Decision::Wait(Reason::WaitingForDependencies);
    }
    if facts.suspended {
        return Decision::Wait(Reason::Suspended);
    }
    if facts.record == RecordFact::Waiting {
        return Decision::Wait(Reason::BackOff);
    }
    if facts.container == ContainerFact::Unobserved {
        return Decision::Wait(Reason::EngineUnavailable);
    }
    if facts.backing_off {
        return Decision::Wait(Reason::TransientError);
    }
    Decision::Launch
}
