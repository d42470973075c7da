//! Clocks over tokio's paused time: monotonic time follows it, wall time may jump, the machine may boot again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orchestrate::clock::{Clock, Now};
use tokio::time::Instant;

/// The machine's clocks. Clones are the same clocks.
#[derive(Clone)]
pub struct FakeClock {
    state: Arc<Mutex<State>>,
}

struct State {
    epoch: Instant,
    wall: Timestamp,
    booted: Instant,
    boots: u32,
    /// When it was read last, and how often at that very moment.
    read: (Instant, u32),
}

/// Who reads the clock so often without time passing does not wait for anything.
const HOT: u32 = 20_000;

impl FakeClock {
    /// A machine that has been up for a while.
    pub fn new() -> Self {
        let wall = Timestamp::from_second(1_800_000_000).expect("in range");
        let now = Instant::now();
        Self { state: Arc::new(Mutex::new(State { epoch: now, wall, booted: now, boots: 1, read: (now, 0) })) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody sets the date.
    pub fn jump(&self, by: SignedDuration) {
        let mut state = self.lock();
        state.wall = state.wall.checked_add(by).unwrap_or(state.wall);
    }

    /// The machine boots again: monotonic time begins anew.
    pub fn reboot(&self) {
        let mut state = self.lock();
        state.boots += 1;
        state.booted = Instant::now();
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Now {
        let mut state = self.lock();
        let instant = Instant::now();
        state.read = if state.read.0 == instant { (instant, state.read.1 + 1) } else { (instant, 0) };
        assert!(state.read.1 < HOT, "a loop that does not wait");
        let elapsed = SignedDuration::try_from(state.epoch.elapsed()).expect("in range");
        Now {
            wall: state.wall.checked_add(elapsed).unwrap_or(state.wall),
            monotonic: state.booted.elapsed() + Duration::from_secs(100),
            boot_id: format!("boot-{}", state.boots).into(),
        }
    }
}
