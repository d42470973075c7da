//! What several test modules share: fakes that are stricter than the real things, and a private real engine.
#![expect(dead_code, reason = "each test uses its part")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

pub mod browser;
pub mod engine;
pub mod fake_clock;
pub mod fake_files;
pub mod fake_repository;
pub mod fake_runtime;
pub mod plans;
pub mod project;
pub mod proxy;
pub mod web;
pub mod world;
