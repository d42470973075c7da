//! Carries out what was planned: every effect of an attempt.

mod capture;
mod redact;

pub use capture::{Capture, Captured, HEAD, LogCapture, LogFailure, LogResult, TAIL, capture_log};
pub use redact::{Redactor, Secrets};
