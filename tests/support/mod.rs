//! What several tests share.

pub(crate) mod fake_files;
//! What several test modules share: a fake engine, a private real one.
#![expect(dead_code, reason = "each test uses its part")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

pub mod engine;
pub mod fake_runtime;
