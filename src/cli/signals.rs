//! Signals and other wishes from outside, while `run` works.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::service::{Reloading, Service};

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

    /// On the first signal asks for the end; on the second ends at once, by that signal's own effect. SIGHUP says that the
    /// terminal is gone where there is one; a service that has none is asked by it to look at everything anew.
    pub(super) async fn watch(
        mut self,
        shutdown: CancellationToken,
        caught: Caught,
        reload: Arc<Notify>,
        reloading: Reloading,
    ) {
        let has_terminal =
            std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
        let first = loop {
            match self.next().await {
                signal if signal == SignalKind::hangup().as_raw_value() && !has_terminal => {
                    reloading.begin();
                    reload.notify_one();
                }
                signal => break signal,
            }
        };
        caught.store(first, Ordering::SeqCst);
        Service::stopping();
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
