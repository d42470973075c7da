//! What a service manager is told, where one started us: that we are ready, that the loop goes round, that we stop.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;

use crate::controller::{Beat, Level, Reporter, Snapshot};
use crate::status::Status;

/// Tells systemd, or nobody where `NOTIFY_SOCKET` is not set. The watchdog is fed by the loop's own beats: a loop that is
/// stuck feeds it no more, however alive the process is.
#[derive(Debug, Default)]
pub(super) struct Service {
    ready: bool,
    reloading: Reloading,
    told: String,
}

/// Set between a wish to reload and the pass that followed it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reloading(Arc<AtomicBool>);

impl Reloading {
    /// Tells that a reload begins.
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }
}

impl Service {
    /// What the handler of the signal sets.
    pub(super) fn reloading(&self) -> Reloading {
        self.reloading.clone()
    }

    /// How often the loop has to go round at least: three times within what the watchdog allows.
    pub(super) fn beat_every() -> Option<Duration> {
        sd_notify::watchdog_enabled().map(|limit| limit / 3)
    }

    /// Where several loops run: they all go round.
    pub(super) fn beat_of_several(&mut self, status: &str) {
        self.status(status);
        self.beaten();
    }

    fn status(&mut self, status: &str) {
        if status != self.told {
            tell(&[NotifyState::Status(status)]);
            status.clone_into(&mut self.told);
        }
    }

    fn beaten(&mut self) {
        let reloaded = self.reloading.0.swap(false, Ordering::SeqCst);
        if !self.ready || reloaded {
            self.ready = true;
            tell(&[NotifyState::Ready, NotifyState::Watchdog]);
        } else {
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Tells that the process ends.
    pub(super) fn stopping() {
        tell(&[NotifyState::Stopping]);
    }
}

/// Nobody listens, or the manager is going away: neither may stop the work.
fn tell(states: &[NotifyState<'_>]) {
    drop(sd_notify::notify(states));
}

impl Reporter for Service {
    fn pass(&mut self, snapshot: &Snapshot) {
        let count = |status| snapshot.plan.tasks.iter().filter(|task| task.status == status).count();
        let total = snapshot.plan.tasks.len();
        let (running, completed) = (count(Status::Running), count(Status::Completed));
        let failed = count(Status::Failed) + count(Status::Blocked);
        let mut status = format!("{completed} of {total} tasks completed, {running} running");
        if failed > 0 {
            write!(status, ", {failed} failed or blocked").expect("BUG: writing to a string cannot fail");
        }
        if snapshot.observed.unavailable.is_some() {
            status.push_str("; the engine does not answer");
        }
        if snapshot.fault.is_some() {
            status.push_str("; the plan file is invalid");
        }
        self.status(&status);
    }

    fn beat(&mut self, _: &Beat) {
        self.beaten();
    }

    fn notice(&mut self, _: Level, _: &str) {}
}
