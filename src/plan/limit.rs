//! Whether an attempt ended at its provider's limit, and when that ends. Pure.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use regex::{Captures, Regex, RegexBuilder};

use crate::spec::RateLimit;

/// How often in a row an attempt may end at its provider's limit before its task fails.
pub const MAX_RATE_LIMITS: u32 = 20;

/// How much of a log's end is looked at, in bytes: a tool tells of its limit last.
const END: usize = 8 << 10;
/// The pause where no time is told; doubles with each one in a row.
const FIRST_PAUSE: Duration = Duration::from_mins(5);
/// The longest of these.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// Providers are not to be asked in the very second.
const MARGIN: Duration = Duration::from_secs(10);
/// What is told beyond this is taken for a misreading.
const FARTHEST: Duration = Duration::from_hours(31 * 24);
/// How much of the tool's words is shown, in characters.
const SHOWN: usize = 160;

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The tool's words, one line.
    pub words: String,
    /// How long to wait.
    pub pause: Duration,
}

/// Reads a reached limit out of an exit code and the end of a log. Exit 0 counts only where it is listed.
///
/// `before` are the attempts in a row that ended so. Times of day without a zone are UTC, which is what a container has.
pub fn reached(limit: &RateLimit, code: i64, log: &[u8], before: u32, now: Timestamp) -> Option<Reached> {
    let end = String::from_utf8_lossy(&log[log.len().saturating_sub(END)..]);
    let is_listed = limit.exit_codes.iter().any(|listed| i64::from(*listed) == code);
    let found = limit.pattern.as_ref().filter(|_| code != 0 || is_listed).and_then(|pattern| {
        let pattern = RegexBuilder::new(pattern).size_limit(1 << 20).build().ok()?;
        pattern.find_iter(&end).last().map(|found| found.start())
    });
    if !is_listed && found.is_none() {
        return None;
    }
    let from = found.map_or(0, |at| end[..at].rfind('\n').map_or(0, |line| line + 1));
    let words = found.and_then(|_| end[from..].lines().next()).unwrap_or("an exit code that means it");
    let pause = match resets(&end[from..], now) {
        Some(wait) => wait.saturating_add(MARGIN),
        None => FIRST_PAUSE.saturating_mul(1 << before.min(8)).min(LONGEST_PAUSE),
    };
    Some(Reached { words: words.trim().chars().take(SHOWN).collect(), pause })
}

static EPOCH: LazyLock<Regex> = LazyLock::new(|| regex(r#"(?i)(?:reached\||resets_?at"?\s*[:=]\s*"?)(\d{10})\b"#));
static STAMP: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:reset|again|retry|until|available)\D{0,40}(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))",
    )
});
static SECONDS: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"(?i)(?:resets?_in_seconds|retry[-_]?after|retrydelay)"?\s*[:=]?\s*"?(\d{1,8})(?:\.\d+)?s?\b"#)
});
static SPAN: LazyLock<Regex> = LazyLock::new(|| {
    let unit = r"\d+(?:\.\d+)?\s*(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\b?[\s,]*(?:and\s+)?";
    regex(&format!(
        r"(?i)(?:again|retry|resets?|wait|available|quota will reset)\D{{0,20}}?\b(?:in|after)[:\s]+((?:{unit})+)"
    ))
});
static PART: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)(\d+(?:\.\d+)?)\s*([dhms])"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    let date =
        r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?";
    let year = r"(?:,?\s+(?P<year>\d{4}))?(?:\s+at|,)?\s+";
    let time = r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]m)?\b";
    let zone = r"(?:\s*\((?P<zone>[A-Za-z0-9_+/-]+)\))?";
    regex(&format!(r"(?i)(?:resets?|again)\s*(?:at|on)?\s*(?:{date}{year})?{time}{zone}"))
});

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("BUG: a constant pattern is valid")
}

/// How long until the limit is said to end; the last word on it counts.
fn resets(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let last = |pattern: &Regex| pattern.captures_iter(&text).last().map(|found| found[1].to_owned());
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    let wait = last(&EPOCH)
        .and_then(|seconds| Timestamp::from_second(seconds.parse().ok()?).ok())
        .map(until)
        .or_else(|| last(&STAMP)?.parse().ok().map(until))
        .or_else(|| last(&SECONDS)?.parse().ok().map(Duration::from_secs))
        .or_else(|| last(&SPAN).map(|span| sum(&span)))
        .or_else(|| TIME.captures_iter(&text).last().and_then(|found| time_of_day(&found, now)).map(until))?;
    (wait <= FARTHEST).then_some(wait)
}

/// `2 days 17 hours 14 minutes`, `12h53m19s`, `37.5s`.
fn sum(span: &str) -> Duration {
    let seconds = PART.captures_iter(span).filter_map(|part| {
        let unit = match part[2].to_ascii_lowercase().as_str() {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            _ => 1.0,
        };
        Some(part[1].parse::<f64>().ok()? * unit)
    });
    Duration::try_from_secs_f64(seconds.sum::<f64>().ceil()).unwrap_or(FARTHEST.saturating_mul(2))
}

/// The next such time of day, or that of the date which is told.
fn time_of_day(found: &Captures<'_>, now: Timestamp) -> Option<Timestamp> {
    let number = |name: &str| found.name(name).and_then(|text| text.as_str().parse::<i16>().ok());
    let half = found.name("half").map(|half| half.as_str().to_ascii_lowercase());
    // A bare number may be anything.
    if half.is_none() && found.name("minute").is_none() {
        return None;
    }
    let hour = match (number("hour")?, half.as_deref()) {
        (12, Some("am")) => 0,
        (hour @ 1..=11, Some("pm")) => hour + 12,
        (hour, _) => hour,
    };
    let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(number("minute").unwrap_or(0)).ok()?, 0, 0).ok()?;
    let zone = match found.name("zone") {
        Some(name) => TimeZone::get(name.as_str()).ok()?,
        None => TimeZone::UTC,
    };
    let today = now.to_zoned_datetime(zone.clone()).date();
    let at = |date: Date| date.to_datetime(time).to_zoned_datetime(zone.clone()).ok().map(|at| at.timestamp());
    let Some(month) = found.name("month").map(|month| month.as_str().to_ascii_lowercase()) else {
        let next = at(today)?;
        return if next > now { Some(next) } else { at(today.checked_add(1.day()).ok()?) };
    };
    let months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = i8::try_from(months.iter().position(|name| *name == month)? + 1).ok()?;
    let day = i8::try_from(number("day")?).ok()?;
    match number("year") {
        Some(year) => at(Date::new(year, month, day).ok()?),
        None => {
            let this_year = at(Date::new(today.year(), month, day).ok()?)?;
            let is_long_ago = now.duration_since(this_year) > jiff::SignedDuration::from_hours(180 * 24);
            if is_long_ago { at(Date::new(today.year() + 1, month, day).ok()?) } else { Some(this_year) }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::spec::RateLimitScope;
    use crate::spec::agents::built_in_rate_limit;

    fn now() -> Timestamp {
        "2026-07-04T07:20:00Z".parse().expect("a time")
    }

    fn seconds(hours: u64, minutes: u64) -> u64 {
        hours * 3_600 + minutes * 60
    }

    #[rstest]
    #[case("claude", "You've hit your session limit · resets 12:50am (America/Los_Angeles)", seconds(0, 30))]
    #[case("claude", "You've hit your limit · resets 1pm (Europe/Lisbon)", seconds(4, 40))]
    #[case("claude", "You've hit your weekly limit · resets Jul 6, 5:59am (America/Los_Angeles)", seconds(53, 39))]
    #[case("claude", "You've hit your limit · resets 7am", seconds(23, 40))]
    #[case("claude", "Claude AI usage limit reached|1783153200", seconds(1, 0))]
    #[case(
        "codex",
        "You've hit your usage limit. Upgrade to Pro (https://x.example/pricing) or try again in 5 days 22 hours 11\nminutes.",
        seconds(142, 11)
    )]
    #[case("codex", "You've hit your usage limit. Visit https://x.example, or try again at 8:19 PM.", seconds(12, 59))]
    #[case(
        "codex",
        "You've hit your usage limit. Upgrade to Plus, or try again at Jul 5th, 2026 8:19 PM.",
        seconds(36, 59)
    )]
    #[case(
        "codex",
        "stream error: Rate limit reached for gpt-5 in organization o on tokens per min (TPM). Please try again in 6m0s.",
        360
    )]
    #[case(
        "codex",
        r#"{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_at":1783153200}"#,
        seconds(1, 0)
    )]
    #[case("gemini", "You exceeded your current quota. RESOURCE_EXHAUSTED Please retry in 37.5s.", 38)]
    #[case("gemini", "You have exhausted your capacity on this model. Your quota will reset after 12h53m19s.", seconds(12, 53) + 19)]
    #[case("gemini", r#""status": "RESOURCE_EXHAUSTED", "retryDelay": "34s""#, 34)]
    #[case("opencode", "Too Many Requests, retry-after: 120", 120)]
    #[case("opencode", "rate limit: resets at 2026-07-04T08:00:00Z", seconds(0, 40))]
    fn the_tools_tell_when_they_may_go_on(#[case] agent: &str, #[case] log: &str, #[case] wait: u64) {
        let limit = built_in_rate_limit(agent).expect("a profile");
        let found = reached(&limit, 1, format!("work\nmore work\n{log}\n").as_bytes(), 0, now()).expect("a limit");
        assert_eq!(found.pause, Duration::from_secs(wait) + MARGIN);
        assert!(log.starts_with(&found.words) || found.words.chars().count() == SHOWN, "{}", found.words);
    }

    #[test]
    fn without_a_time_the_pause_doubles_up_to_an_hour() {
        let limit = built_in_rate_limit("claude").expect("a profile");
        let pause = |before| {
            let log = b"API Error: 429 rate_limit_error: This request would exceed your account's rate limit.";
            reached(&limit, 1, log, before, now()).expect("a limit").pause.as_secs() / 60
        };
        assert_eq!([pause(0), pause(1), pause(3), pause(19)], [5, 10, 40, 60]);
    }

    #[test]
    fn exit_0_and_ordinary_words_are_no_limit_unless_the_code_is_listed() {
        let log = b"You've hit your limit \xc2\xb7 resets 1pm";
        let built_in = built_in_rate_limit("claude").expect("a profile");
        assert_eq!(reached(&built_in, 0, log, 0, now()), None);
        assert_eq!(reached(&built_in, 1, b"error: the tests fail", 0, now()), None);
        let old = [&log[..], &b"\n".repeat(END)].concat();
        assert_eq!(reached(&built_in, 1, &old, 0, now()), None, "long before the end");
        let listed = RateLimit { exit_codes: vec![0, 75], pattern: None, scope: RateLimitScope::Task };
        assert!(reached(&listed, 0, b"", 0, now()).is_some());
        assert_eq!(reached(&listed, 75, b"resets 1pm", 0, now()).map(|r| r.pause.as_secs() / 60), Some(340));
        assert_eq!(reached(&listed, 1, b"", 0, now()), None);
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        for text in
            ["resets in 99999999999 days", "resets 25:99", "resets Feb 31, 5am", "resets 3", "resets 3pm (No/Where)"]
        {
            assert_eq!(resets(text, now()), None, "{text}");
        }
        assert_eq!(resets("limit reached|1", now()), None);
        assert_eq!(resets("resets_at: 1700000000", now()), Some(Duration::ZERO), "over already");
    }
}
