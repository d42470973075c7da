//! Orchestrate: a reconciler for coding-agent tasks.

pub mod clock;
pub mod git;
pub mod observe;
pub mod report;
pub mod runtime;
pub mod spec;
pub mod status;
