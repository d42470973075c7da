//! Docker-compatible engines, through their API.
//!
//! What is judged is pure and tested by tables: [`body`] makes the create call's body, `classify` says what a failure
//! means, `convert` reads answers and events. [`DockerRuntime`] does the calls.

pub mod body;
mod classify;
mod client;
mod convert;
mod endpoint;
mod events;
mod frames;
mod logs;
mod look;
mod pull;
mod registry;
mod shell;
mod stream;

pub use client::DockerRuntime;
pub use endpoint::{DockerSettings, Endpoint};
