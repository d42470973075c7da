//! Keeps the newest picture of the runtime.

/// Keeps the newest picture of the runtime.
#[derive(Debug, Default)]
pub struct Observer {}
