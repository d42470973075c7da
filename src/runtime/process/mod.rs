//! Attempts as plain processes of this machine, for where no engine is. The contract of attempts is the whole one; the
//! isolation is what the kernel gives without an engine, and is no sandbox against an agent that means harm.
//!
//! Each attempt has a folder, whose name is its container's name, and a supervisor: a hidden mode of this binary that
//! outlives us. The supervisor holds a `flock` for as long as it lives, keeps the environment in memory alone, starts
//! the command at most once, captures its output and writes its end durably. So what an attempt does is read from its
//! folder and from that lock, and a process that comes after us needs nothing else to adopt it.
//!
//! - [`ProcessRuntime`] is the adapter; `folder` reads and judges a folder, `facts` is what stands in it.
//! - [`hidden_main`] is the entry of the hidden modes: `supervisor` (one per attempt), `cell` (the first process inside
//!   the confinement) and the probe.
//! - `confine` holds what the kernel offers: namespaces, the file system seen from within, Landlock, privileges, cgroups.

mod adapter;
mod capture;
mod cell;
mod cgroup;
mod confine;
mod control;
mod events;
mod facts;
mod folder;
mod hidden;
mod kin;
mod logs;
mod make;
mod settings;
mod supervisor;
mod watch;

pub use adapter::ProcessRuntime;
pub use confine::Confinement;
pub use hidden::{HIDDEN, hidden_main};
pub use settings::{Avoid, ProcessSettings};
pub use watch::{Change, Watch};
