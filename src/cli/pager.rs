//! Long data on a terminal goes through the pager that git would use.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::world::Context;
use crate::error::Report;

/// Shows data through the pager; without one, or where it cannot be started, as it is.
pub(super) fn show(context: &Context, configured: Option<String>, text: &[u8]) -> Result<(), Report> {
    let Some(pager) = choose(context.settings.pager(configured)) else {
        context.output.bytes(text)?;
        return Ok(());
    };
    // Ctrl-C is for the pager: it stops a search there, and we wait until it ends.
    let caught = Arc::new(AtomicBool::new(false));
    let handler = signal_hook::flag::register(signal_hook::consts::SIGINT, caught);
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    for (name, value) in context.settings.pager_defaults() {
        command.env(name, value);
    }
    let shown = command.spawn().and_then(|mut child| {
        if let Some(mut input) = child.stdin.take() {
            // Whoever closes the pager early has seen enough.
            drop(input.write_all(text));
        }
        child.wait()
    });
    if let Ok(handler) = handler {
        signal_hook::low_level::unregister(handler);
    }
    // 127: the shell found no such program.
    if !shown.is_ok_and(|status| status.code() != Some(127)) {
        context.output.bytes(text)?;
    }
    Ok(())
}

/// `cat` and nothing mean that no pager is wanted.
fn choose(pager: String) -> Option<String> {
    (!matches!(pager.trim(), "" | "cat")).then_some(pager)
}
