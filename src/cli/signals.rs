//! Signals and other wishes from outside, while `run` works.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::record::Files;

/// How often the plan file is looked at. A look is one `stat`; watching by inotify would miss network file systems and
/// files that are replaced.
const LOOK: Duration = Duration::from_millis(500);

/// The signal that asked us to stop; 0: none.
pub(super) type Caught = Arc<AtomicI32>;

/// The handlers of the signals that end a process, installed.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs them; needs the asynchronous runtime.
    pub(super) fn install() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// On the first signal asks for the end; on the second ends at once, by that signal's own effect.
    pub(super) async fn watch(mut self, shutdown: CancellationToken, caught: Caught) {
        let first = self.next().await;
        caught.store(first, Ordering::SeqCst);
        shutdown.cancel();
        let second = self.next().await;
        raise(second);
    }

    async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}

/// Lets a signal take its own effect, so that the parent sees what ended us: a shell stops its loop for SIGINT only then.
pub(super) fn raise(signal: i32) {
    // Where it fails there is nothing left to do but to go on to a plain exit.
    drop(signal_hook::low_level::emulate_default_handler(signal));
}

/// Tells of each change of any of these files, for as long as it is polled.
pub(super) async fn watch_files(files: Arc<dyn Files>, paths: Vec<PathBuf>, changes: Arc<Notify>) {
    let look = || paths.iter().map(|path| files.stamp(path).ok().flatten()).collect::<Vec<_>>();
    let mut seen = look();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = look();
        if now != seen {
            seen = now;
            changes.notify_one();
        }
    }
}
