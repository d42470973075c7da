//! All integration tests in one binary: one link instead of many.

mod diagnostics;
mod fuzz_corpus;
mod specs;
