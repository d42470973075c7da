//! One binary for all tests of the library from outside: one link.

mod architecture;
mod decision_table;
mod git_merge;
mod git_result;
mod git_support;
mod git_worktree;
#[path = "../support/mod.rs"]
mod support;

mod record_files;
mod record_lock;
mod record_plan_file;
//! One test binary: one link.

#[path = "../support/mod.rs"]
mod support;

mod conformance;
mod docker_container;
mod fake_runtime;
//! All integration tests in one binary: one link instead of many.

mod diagnostics;
