//! The command line: one file per command. Data goes to standard output, words and progress to standard error; what
//! fails is told once, by [`crate::error::Report`]. The only room that ties adapters to ports.

mod app;
mod args;
mod changes;
mod ci;
mod clean;
mod complete;
mod describe;
mod diff;
mod doctor;
mod enter;
mod events;
mod fleet;
mod follow;
mod graph;
mod hooks;
mod init;
mod logs;
mod once;
mod output;
mod pager;
mod plan;
mod repositories;
mod request;
mod review;
mod run;
mod runtime;
mod schema;
mod service;
mod shell;
mod signals;
mod status;
mod validate;
mod watch;
mod world;

pub use app::main;
