//! One binary for all tests of the library from outside: one link.

mod git_merge;
mod git_result;
mod git_support;
mod git_worktree;
#[path = "../support/mod.rs"]
mod support;

mod record_files;
mod record_lock;
mod record_plan_file;
