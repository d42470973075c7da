//! The only reader of clocks: wall time for people, monotonic time for ages.
//!
//! Ages are measured on `CLOCK_MONOTONIC`, which stands still while a machine sleeps and never jumps, so a host that
//! slept eight hours or whose date was corrected makes no task stale and no back-off endless. Across a reboot only wall
//! time is left, and that this boot is younger than what was before it; an age is never negative.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One reading of all clocks, taken together and handed to pure code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Now {
    /// Wall time, UTC; for display and for comparing across reboots only.
    pub wall: Timestamp,
    /// Time since an arbitrary point of this boot, without the time the machine slept.
    pub monotonic: Duration,
    /// Identifies the boot that `monotonic` belongs to.
    pub boot_id: Arc<str>,
}

/// A point in time that can be stored and whose age can be told later, also by another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Wall time, UTC.
    pub wall: Timestamp,
    /// Milliseconds of monotonic time within the boot.
    pub monotonic_ms: u64,
    /// The boot that `monotonic_ms` belongs to.
    pub boot_id: Arc<str>,
}

impl Now {
    /// This instant as a storable moment.
    pub fn moment(&self) -> Moment {
        Moment {
            wall: self.wall,
            monotonic_ms: u64::try_from(self.monotonic.as_millis()).unwrap_or(u64::MAX),
            boot_id: Arc::clone(&self.boot_id),
        }
    }
}

impl Moment {
    /// How long ago this moment was; zero where it lies ahead.
    pub fn age(&self, now: &Now) -> Duration {
        if self.boot_id == now.boot_id {
            now.monotonic.saturating_sub(Duration::from_millis(self.monotonic_ms))
        } else {
            // It was before this boot, whatever the date says: a date set back a year makes no pause last a year.
            Duration::try_from(now.wall.duration_since(self.wall)).unwrap_or(Duration::ZERO).max(now.monotonic)
        }
    }

    /// What is left of `span` counted from this moment; zero once it has passed.
    pub fn remaining(&self, span: Duration, now: &Now) -> Duration {
        span.saturating_sub(self.age(now))
    }
}

/// Source of [`Now`]; the simulation has its own.
pub trait Clock: Send + Sync {
    /// Reads all clocks.
    fn now(&self) -> Now;
}

/// The machine's clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    boot_id: Arc<str>,
}

impl SystemClock {
    /// A clock of this boot. Without `/proc` the boot is unknown and only moments of the same process compare
    /// monotonically.
    pub fn new() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| format!("process-{}", std::process::id()), |text| text.trim().to_owned());
        Self { boot_id: boot_id.into() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let spec = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(spec.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(spec.tv_nsec).unwrap_or(0);
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
        let wall = Timestamp::now();
        Now { wall, monotonic: Duration::new(seconds, nanos), boot_id: Arc::clone(&self.boot_id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(wall: i64, monotonic: u64, boot: &str) -> Now {
        Now {
            wall: Timestamp::from_second(wall).expect("in range"),
            monotonic: Duration::from_secs(monotonic),
            boot_id: boot.into(),
        }
    }

    #[test]
    fn within_a_boot_the_wall_clock_does_not_count() {
        let start = now(1_000, 10, "a").moment();
        assert_eq!(start.age(&now(-31_000_000, 15, "a")), Duration::from_secs(5));
        assert_eq!(start.age(&now(31_000_000, 15, "a")), Duration::from_secs(5));
    }

    #[test]
    fn across_boots_an_age_is_never_negative() {
        let start = now(1_000, 10, "a").moment();
        assert_eq!(start.age(&now(1_060, 1, "b")), Duration::from_mins(1));
        assert_eq!(start.age(&now(10, 1, "b")), Duration::from_secs(1));
        assert_eq!(start.remaining(Duration::from_secs(20), &now(10, 20, "b")), Duration::ZERO);
    }
}
