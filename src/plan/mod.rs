//! What should happen next, as a pure function of what is asked, what is seen, what is recorded and the time.

mod action;
mod admit;
mod clean;
mod decide;
mod disk;
mod explain;
mod facts;
mod interruption;
mod limit;
mod listen;
mod memory;
mod outcome;
#[expect(clippy::module_inception, reason = "the room is named for its main concept")]
mod plan;

pub use action::{Action, PlannedAction};
pub use clean::{BranchFact, CleanPlan, CleanRequest, CleanStep, Kept, clean};
pub use decide::{Decision, decide};
pub use disk::{Disk, DiskFloor, Shortage, disk_low};
pub use facts::{ContainerFact, DependencyFact, Facts, RecordFact};
pub use interruption::{Evidence, is_interrupted};
pub use limit::{MAX_RATE_LIMITS, Reached, reached};
pub use listen::Listen;
pub use memory::{BackOff, GRACE, Heard, Memory};
pub use outcome::{Ending, MAX_INTERRUPTIONS, Verdict, judge};
pub use plan::{Inputs, Plan, plan};
