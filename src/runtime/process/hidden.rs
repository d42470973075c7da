//! The hidden modes of the program.

use std::ffi::OsString;
use std::fs;
use std::os::fd::RawFd;
use std::process::ExitCode;

use super::{cell, supervisor};

/// The first argument of the hidden modes.
pub const HIDDEN: &str = "__supervise";

/// Words after [`HIDDEN`].
pub(super) mod mode {
    pub(crate) const RUN: &str = "run";
    pub(crate) const CELL: &str = "cell";
    pub(crate) const PROBE: &str = "probe";
}

/// Does what a hidden mode is for, where the arguments name one; to be called first of all in `main`, before any thread
/// is made, since namespaces are entered by a process as a whole.
pub fn hidden_main(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != HIDDEN {
        return None;
    }
    let mode = arguments.next()?;
    close_inherited();
    Some(match mode.to_str()? {
        mode::RUN => supervisor::run(),
        mode::CELL => cell::run(),
        mode::PROBE => cell::probe(arguments.next().as_deref()),
        _ => return None,
    })
}

/// Closes what whoever started us left open beside the three streams: it would reach the command, and a pipe among it
/// would be held open for as long as an attempt runs. This process has opened nothing yet.
fn close_inherited() {
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<RawFd> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // Among them the one that the folder was listed by, which is closed already.
        nix::unistd::close(descriptor).ok();
    }
}
