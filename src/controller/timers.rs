//! When the loop has something to do by itself.

use std::time::Duration;

use tokio::time::Instant;

/// When something is due; `None`: not.
#[derive(Debug)]
pub(super) struct Timers {
    pub(super) started: Instant,
    pub(super) list: Option<Instant>,
    pub(super) resync: Instant,
    pub(super) holds: Instant,
    pub(super) connect: Option<Instant>,
    pub(super) publish: Option<Instant>,
    pub(super) retry: Option<Instant>,
    /// When a YAML spec that is being written is looked at again.
    pub(super) look: Option<Instant>,
    /// When those who only read are told of what has changed.
    pub(super) tell: Option<Instant>,
    /// Since when the runtime is away.
    pub(super) away: Option<Instant>,
    /// When jobs are given up after a signal.
    pub(super) stop: Option<Instant>,
}

impl Timers {
    /// At the start of the loop: everything is to be looked at.
    pub(super) fn new(now: Instant, resync: Duration) -> Self {
        Self {
            started: now,
            list: None,
            resync: now + resync,
            holds: now,
            connect: Some(now),
            publish: None,
            retry: None,
            look: None,
            tell: None,
            away: None,
            stop: None,
        }
    }

    /// The first of those that are always waited for.
    pub(super) fn next(&self) -> Instant {
        let some = [self.list, self.connect, self.publish, self.retry, self.look, self.tell, self.stop];
        some.into_iter().flatten().fold(self.resync.min(self.holds), Instant::min)
    }
}
