//! The hidden modes of the program.

use std::ffi::OsString;
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
    Some(match arguments.next()?.to_str()? {
        mode::RUN => supervisor::run(),
        mode::CELL => cell::run(),
        mode::PROBE => cell::probe(arguments.next().as_deref()),
        _ => return None,
    })
}
