//! Pauses after failures, and random ids: both from one seed, so that a simulation replays.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: with it a task that fails for ever costs few calls a minute.
const LONGEST: Duration = Duration::from_mins(1);

/// The longest pause before a runtime that is away is tried again: a person who starts it should not wait for us.
const MAX_AWAY_PAUSE: Duration = Duration::from_secs(15);

/// Random numbers from a seed.
#[derive(Debug, Clone)]
pub(super) struct Jitter(fastrand::Rng);

impl Jitter {
    /// From a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The pause after so many failures in a row (from 1): doubles up to a minute, less up to a quarter at random.
    pub(super) fn pause(&mut self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
        full.mul_f64(1.0 - 0.25 * self.0.f64())
    }

    /// The pause before a runtime that is away is tried again, after so many tries in a row that failed; none at first.
    pub(super) fn away_pause(&mut self, failures: u32) -> Duration {
        if failures == 0 { Duration::ZERO } else { self.pause(failures).min(MAX_AWAY_PAUSE) }
    }

    /// Ten lower-case letters and digits.
    pub(super) fn id(&mut self) -> String {
        const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        (0..10).map(|_| char::from(DIGITS[self.0.usize(..DIGITS.len())])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_the_same_seed_gives_the_same() {
        let pauses = |seed| (1..=12).map(|n| Jitter::new(seed).pause(n)).collect::<Vec<_>>();
        assert_eq!(pauses(7), pauses(7));
        assert!(pauses(7).windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(pauses(7).iter().all(|pause| *pause >= FIRST.mul_f64(0.75) && *pause <= LONGEST));
    }
}
