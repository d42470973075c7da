//! One binary for all tests of the library from outside: one link.

mod git_merge;
mod git_result;
mod git_support;
mod git_worktree;
mod process_life;
mod process_support;
