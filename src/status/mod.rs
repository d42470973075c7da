//! Task status, reasons, and what a person asked for through the plan file. Pure.

mod request;
#[expect(clippy::module_inception, reason = "the room is named for its main concept")]
mod status;

pub use request::{Published, Request, request};
pub use status::{Reason, ResultKind, Status, TaskStatus};
