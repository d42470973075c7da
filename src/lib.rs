//! Orchestrate: a reconciler for coding-agent tasks.

pub mod act;
pub mod clock;
pub mod git;
pub mod observe;
pub mod runtime;
pub mod spec;
pub mod status;
