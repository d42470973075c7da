//! One test binary: one link.
#![expect(clippy::panic, reason = "how the helpers of tests fail")]

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod docker_container;
mod docker_outage;
mod fake_runtime;
mod transport;
