//! One binary for all tests of the library from outside: one link.

#[path = "../support/mod.rs"]
mod support;

mod record_files;
mod record_lock;
mod record_plan_file;
