//! One binary for all tests of the library from outside: one link.

mod git_isolated;
mod git_merge;
mod git_result;
mod git_support;
mod git_worktree;
