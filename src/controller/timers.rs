//! When the loop has something to do by itself.

use std::future::pending;
use std::time::Duration;

use tokio::time::Instant;

use super::options::RunEnd;
use crate::plan::Plan;
use crate::status::{Reason, Status, TaskStatus};

/// An engine tells that something ended before its lists say so, by as long as it takes to clean up: who subscribes in
/// between hears of it no more, and sees it run. So a list follows that is newer than this.
const LAGS: Duration = Duration::from_secs(2);

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
    /// Since when nothing is live and launches wait for disk space.
    pub(super) low: Option<Instant>,
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
            low: None,
            stop: None,
        }
    }

    /// After subscribing; nothing waits for it.
    pub(super) fn list_again_soon(&mut self) {
        self.resync = self.resync.min(Instant::now() + LAGS);
    }

    /// The first of those that are always waited for.
    pub(super) fn next(&self) -> Instant {
        let some = [self.list, self.connect, self.publish, self.retry, self.look, self.tell, self.stop];
        some.into_iter().flatten().fold(self.resync.min(self.holds), Instant::min)
    }

    /// Notes whether nothing is live and launches wait for disk space.
    pub(super) fn note_low(&mut self, plan: &Plan) {
        let has = |is: fn(&TaskStatus) -> bool| plan.tasks.iter().any(is);
        let waits =
            has(|status| status.reason == Some(Reason::DiskLow)) && !has(|status| status.status == Status::Running);
        self.low = waits.then(|| self.low.unwrap_or_else(Instant::now));
    }

    /// The end of a loop that waited for disk space for as long as it may.
    pub(super) fn low_for(&self, patience: Duration, plan: &Plan) -> Option<RunEnd> {
        self.low.filter(|since| since.elapsed() >= patience)?;
        let mut low = plan.tasks.iter().filter(|status| status.reason == Some(Reason::DiskLow));
        Some(RunEnd::DiskLow { why: low.find_map(|status| status.message.clone()).unwrap_or_default() })
    }
}

/// Until then; for ever where there is nothing to wait for.
pub(super) async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => pending().await,
    }
}
