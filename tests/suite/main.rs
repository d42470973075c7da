//! One test binary: one link.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod docker_container;
mod fake_runtime;
