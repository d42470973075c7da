//! Orchestrate: a reconciler for coding-agent tasks.

pub mod act;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod error;
pub mod git;
pub mod observe;
pub mod plan;
pub mod record;
pub mod report;
pub mod runtime;
pub mod settings;
pub mod spec;
pub mod status;
