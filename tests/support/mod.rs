//! What several test modules share: fakes of everything outside, a private real engine.
#![expect(dead_code, reason = "each test uses its part")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

pub mod engine;
pub mod fake_clock;
pub mod fake_files;
pub mod fake_repository;
pub mod fake_runtime;
pub mod world;
