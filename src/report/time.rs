//! Times and ages as people read them.

use std::time::Duration;

use jiff::fmt::friendly::{Designator, Spacing, SpanPrinter};
use jiff::{RoundMode, SignedDuration, SignedDurationRound, Timestamp, Unit};

/// An age in at most two units: `42s`, `5m 12s`, `3h 20m`, `51h`. Rounded down, so that nothing seems older than it is.
pub fn age(span: Duration) -> String {
    let unit = match span.as_secs() {
        0..3_600 => Unit::Second,
        3_600..172_800 => Unit::Minute,
        _ => Unit::Hour,
    };
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    let rounded = span.round(SignedDurationRound::new().smallest(unit).mode(RoundMode::Trunc)).unwrap_or(span);
    let printer = SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::BetweenUnits);
    printer.duration_to_string(&rounded)
}

/// The time from one moment to another; zero where the second lies before the first.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// A moment to the second, UTC.
pub fn exact(at: Timestamp) -> String {
    format!("{at:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units_and_are_rounded_down() {
        let shown = |seconds| age(Duration::from_secs(seconds));
        assert_eq!(shown(0), "0s");
        assert_eq!(age(Duration::from_millis(59_999)), "59s");
        assert_eq!(shown(312), "5m 12s");
        assert_eq!(shown(3_600 * 3 + 1_259), "3h 20m");
        assert_eq!(shown(3_600 * 51 + 1_259), "51h");
    }

    #[test]
    fn an_age_is_never_negative() {
        let at = |seconds| Timestamp::from_second(seconds).expect("in range");
        assert_eq!(between(at(10), at(5)), Duration::ZERO);
        assert_eq!(exact(at(0)), "1970-01-01T00:00:00Z");
    }
}
