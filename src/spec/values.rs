//! The small grammars: durations, sizes, images, networks, users, variables, mounts, revisions. From text to value or to
//! the reason why not; nothing here knows of files.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;

use super::model::{Network, User};

/// The longest duration that is taken: a year.
const MAX_DURATION: Duration = Duration::from_hours(8760);

/// Words that [`crate::spec`] lets a command hold.
pub const TEMPLATES: [&str; 4] = ["prompt", "prompt_file", "task_id", "branch"];

/// Reads `30m`, `1h30m`, `2 hours` or ISO 8601.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    let Ok(signed) = text.trim().parse::<SignedDuration>() else {
        let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let long = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[long.len()..].to_ascii_lowercase();
        return Err(match unit.as_str() {
            _ if bare => "a duration needs a unit, such as `30s` or `30m`",
            "d" | "day" | "days" | "w" | "week" | "weeks" => "days and weeks are not taken; write hours, such as `48h`",
            "month" | "months" | "mo" | "mos" | "y" | "yr" | "yrs" | "year" | "years" => {
                "months and years are not taken; write hours"
            }
            _ => "this is no duration; write for instance `90s`, `30m` or `1h30m`",
        });
    };
    let Ok(span) = Duration::try_from(signed) else { return Err("a duration may not be negative") };
    if span.is_zero() {
        return Err("a duration may not be zero");
    }
    if span > MAX_DURATION {
        return Err("a duration is at most a year (`8760h`)");
    }
    Ok(span)
}

/// Reads a number of bytes with an optional unit; units are powers of 1024, as with Docker.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b' '));
    let exponent = text.bytes().zip(text.bytes().skip(1)).any(|(a, b)| {
        // `1e9` is taken for a number in scientific notation, `1eb` is an exabyte.
        a.eq_ignore_ascii_case(&b'e') && b.is_ascii_digit()
    });
    if !plain || exponent {
        return Err("this is no size; write for instance `512m` or `4GiB`");
    }
    parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|_| "this is no size; write for instance `512m` or `4GiB`")
}

/// Checks `[registry[:port]/]name[:tag][@algorithm:digest]`.
pub(crate) fn image(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("an image may not be empty");
    }
    if text.len() > 4096 {
        return Err("an image reference of more than 4096 characters");
    }
    let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
    if let Some(digest) = digest {
        let hex = digest.split_once(':').filter(|(algorithm, _)| {
            !algorithm.is_empty()
                && algorithm.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'_' | b'-'))
        });
        if !hex.is_some_and(|(_, hex)| hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err("after `@` stands a digest, such as `sha256:` and 64 hex digits");
        }
    }
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag {
        let head = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        let tail = tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if !head || !tail || tag.len() > 128 {
            return Err("after `:` stands a tag of letters, digits, `_`, `.` and `-`");
        }
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    let is_registry = parts.len() > 1 && (parts[0].contains(['.', ':']) || parts[0] == "localhost");
    if is_registry {
        let (host, port) = parts[0].split_once(':').map_or((parts[0], None), |(host, port)| (host, Some(port)));
        let good = !host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
            && !host.starts_with(['-', '.'])
            && port.is_none_or(|port| port.parse::<u16>().is_ok());
        if !good {
            return Err("the registry before the first `/` is no host");
        }
        parts.remove(0);
    }
    for part in parts {
        let inner =
            part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'));
        let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if !inner || !part.starts_with(ends) || !part.ends_with(ends) {
            return Err(
                "an image's name consists of lower-case letters and digits, with `.`, `_`, `-` and `/` in between",
            );
        }
    }
    Ok(())
}

/// Reads a network's name.
pub(crate) fn network(text: &str) -> Result<Network, &'static str> {
    match text {
        "bridge" | "default" => return Ok(Network::Bridge),
        "none" => return Ok(Network::None),
        "host" => return Err("the host's network would give up the container's own"),
        _ => {}
    }
    let head = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let tail = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if head && tail && text.len() <= 128 {
        Ok(Network::Named(text.to_owned()))
    } else {
        Err("a network's name consists of letters, digits, `_`, `.` and `-`")
    }
}

/// Reads `auto`, `image` or `uid:gid`.
pub(crate) fn user(text: &str) -> Result<User, &'static str> {
    match text {
        "auto" => return Ok(User::Auto),
        "image" => return Ok(User::Image),
        _ => {}
    }
    let id = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match text.split_once(':').map(|(uid, gid)| (id(uid), id(gid))) {
        Some((Some(uid), Some(gid))) => Ok(User::Ids { uid, gid }),
        _ => Err("a user is `auto`, `image`, or two numbers, `uid:gid`"),
    }
}

/// Why a variable may not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnvFault {
    /// Not a name.
    Name,
    /// Changes how all programs or git behave.
    Denied,
    /// A secret, which belongs under `secrets`.
    Secret,
}

/// Judges the name of a plain variable.
pub(crate) fn env_name(name: &str) -> Result<(), EnvFault> {
    let head = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if !head || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(EnvFault::Name);
    }
    match name {
        "CLAUDE_CODE_OAUTH_TOKEN" => Err(EnvFault::Secret),
        "PATH" => Err(EnvFault::Denied),
        _ if name.starts_with("LD_") || name.starts_with("GIT_") => Err(EnvFault::Denied),
        _ => Ok(()),
    }
}

/// Whether a variable's name says that its value should not stand in a file.
pub(crate) fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY"]
        .into_iter()
        .any(|end| upper.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('_')))
}

/// Checks the place of a mount in the container.
pub(crate) fn mount_target(text: &str) -> Result<PathBuf, &'static str> {
    let path = Path::new(text);
    if !path.is_absolute() {
        return Err("a target is an absolute path in the container");
    }
    if path.components().any(|c| c == Component::ParentDir) {
        return Err("a target may not hold `..`");
    }
    if text.contains('\0') || text.contains(':') {
        return Err("a target may not hold `:` or NUL");
    }
    // Rebuilt, so that `//run/./secrets` is judged as what it is.
    let clean: PathBuf = path.components().collect();
    if clean == Path::new("/") {
        return Err("a mount may not cover the container's root");
    }
    if clean.starts_with("/project") || clean.starts_with("/run/secrets") {
        return Err("`/project` and `/run/secrets` are taken");
    }
    Ok(clean)
}

/// Checks the source of a mount, as far as text tells.
pub(crate) fn mount_source(text: &str) -> Result<PathBuf, &'static str> {
    if text.is_empty() || text.contains('\0') {
        return Err("a source is a path");
    }
    if text.starts_with('~') {
        return Err("`~` is not expanded here; write the whole path");
    }
    Ok(PathBuf::from(text))
}

/// Checks a git revision, as far as text tells.
pub(crate) fn revision(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("a revision may not be empty");
    }
    if text.starts_with('-') {
        return Err("a revision may not start with `-`");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("a revision may not hold white space or control characters");
    }
    Ok(())
}

/// The `{{words}}` of a text that stand for nothing.
pub(crate) fn unknown_templates(text: &str) -> impl Iterator<Item = &str> {
    templates(text).filter(|word| !TEMPLATES.contains(word))
}

/// What stands between `{{` and `}}`, where that is one word.
pub(crate) fn templates(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("{{").filter_map(|(at, _)| {
        let word = text[at + 2..].split_once("}}")?.0;
        let is_word =
            |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        is_word(word.trim()).then_some(word)
    })
}

/// The candidate nearest to a word, if it is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > 100 {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let length = lower.chars().count();
    let allowed = (length / 3).max(1);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(lower.len()) <= allowed)
        .map(|c| (strsim::osa_distance(&lower, &c.to_ascii_lowercase()), c))
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, c)| c)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("90s", 90)]
    #[case("30m", 1800)]
    #[case("1h30m", 5400)]
    #[case("1h 30m", 5400)]
    #[case("2 hours", 7200)]
    #[case("PT1H30M", 5400)]
    #[case(" 5s ", 5)]
    fn durations(#[case] text: &str, #[case] seconds: u64) {
        assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
    }

    #[rstest]
    #[case("30", "unit")]
    #[case("", "no duration")]
    #[case("2d", "days")]
    #[case("1 month", "months")]
    #[case("P1Y", "years")]
    #[case("-5m", "negative")]
    #[case("5m ago", "negative")]
    #[case("0s", "zero")]
    #[case("8761h", "at most")]
    #[case("99999999999999999999h", "no duration")]
    #[case("soon", "no duration")]
    #[case("30m\0", "no duration")]
    fn no_durations(#[case] text: &str, #[case] why: &str) {
        let message = duration(text).expect_err("refused");
        assert!(message.contains(why), "{message}");
    }

    #[rstest]
    #[case("512m", 512 << 20)]
    #[case("4GiB", 4 << 30)]
    #[case("4 GB", 4 << 30)]
    #[case("1.5g", 3 << 29)]
    #[case("64k", 64 << 10)]
    #[case("100", 100)]
    fn sizes(#[case] text: &str, #[case] bytes: u64) {
        assert_eq!(size(text), Ok(bytes));
    }

    #[rstest]
    #[case("")]
    #[case("-1g")]
    #[case("1e9")]
    #[case("1_000")]
    #[case("many")]
    #[case("4GiBs")]
    #[case("99999999999999999999g")]
    #[case("4\u{a0}GiB")]
    fn no_sizes(#[case] text: &str) {
        assert!(size(text).is_err());
    }

    #[rstest]
    #[case("alpine")]
    #[case("alpine:3.20")]
    #[case("orchestrate/claude:latest")]
    #[case("localhost:5000/a/b_c:x")]
    #[case("ghcr.io/o/n@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")]
    #[case("registry.example:443/n:1.0@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")]
    fn images(#[case] text: &str) {
        assert_eq!(image(text), Ok(()));
    }

    #[rstest]
    #[case("")]
    #[case("-alpine")]
    #[case("Alpine")]
    #[case("a b")]
    #[case("alpine:")]
    #[case("alpine:-x")]
    #[case("alpine@sha256:xyz")]
    #[case("a//b")]
    #[case("/a")]
    #[case("--privileged")]
    #[case("host.example:port/x")]
    #[case("a\n")]
    fn no_images(#[case] text: &str) {
        assert!(image(text).is_err());
    }

    #[test]
    fn users_and_networks() {
        assert_eq!(user("1000:100"), Ok(User::Ids { uid: 1000, gid: 100 }));
        for bad in ["", "root", "1000", "+1:1", "1:", "-1:1", "1:4294967296"] {
            assert!(user(bad).is_err(), "{bad}");
        }
        assert_eq!(network("ci_net"), Ok(Network::Named("ci_net".into())));
        for bad in ["", "host", "container:x", "-x", "a b"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables() {
        assert_eq!(env_name("A_1"), Ok(()));
        for bad in ["", "1A", "A=B", "A B", "É", "A\0"] {
            assert_eq!(env_name(bad), Err(EnvFault::Name), "{bad:?}");
        }
        for bad in ["LD_PRELOAD", "GIT_DIR", "PATH"] {
            assert_eq!(env_name(bad), Err(EnvFault::Denied), "{bad}");
        }
        assert_eq!(env_name("CLAUDE_CODE_OAUTH_TOKEN"), Err(EnvFault::Secret));
        assert!(looks_secret("NPM_TOKEN") && looks_secret("token") && looks_secret("AWS_SECRET_ACCESS_KEY"));
        assert!(!looks_secret("MAX_TOKENS") && !looks_secret("KEYBOARD") && !looks_secret("BROKEN"));
    }

    #[test]
    fn mounts() {
        assert_eq!(mount_target("//cache/./x"), Ok(PathBuf::from("/cache/x")));
        for bad in ["", "cache", "/a/../b", "/", "/.", "/project", "/project/x", "/run/secrets/x", "/a:ro"] {
            assert!(mount_target(bad).is_err(), "{bad}");
        }
        assert!(mount_source("~/.ssh").is_err() && mount_source("").is_err() && mount_source("cache").is_ok());
    }

    #[test]
    fn template_words() {
        let unknown: Vec<_> = unknown_templates("{{prompt}} {{promt}} {{ x y }} {{}} {{{{task_id}}").collect();
        assert_eq!(unknown, ["promt"]);
        // Spaces inside the braces are not forgiven when it is filled in, so they are told.
        assert_eq!(unknown_templates("{{ prompt }}").collect::<Vec<_>>(), [" prompt "]);
    }

    #[test]
    fn nearest_is_near() {
        let ids = ["auth", "api", "database"];
        assert_eq!(nearest("Auth", ids), Some("auth"));
        assert_eq!(nearest("databse", ids), Some("database"));
        assert_eq!(nearest("zzz", ids), None);
        assert_eq!(nearest("", ids), None);
    }
}
