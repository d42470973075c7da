//! Masks the values of secrets in output, in the forms in which tools print them. Pure.

use std::collections::BTreeSet;
use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What stands in a secret's place.
const MASK: &[u8] = b"***";
/// A shorter value is no secret, and masking it would take whole logs apart.
const SHORTEST: usize = 4;
/// A part of a value (a line of a key, the middle of a base64 text) is masked by itself from this length on.
const SHORTEST_PART: usize = 8;
/// The line length of `base64` and of mail.
const BASE64_LINE: usize = 76;

/// What a URL keeps as it is.
const URL_KEEPS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The values to mask, each also as base64 (both alphabets, at any offset within a longer text, in lines), as a part of
/// a URL, and within a JSON text.
///
/// Values of fewer than four bytes are not masked.
pub struct Secrets {
    /// `None`: nothing to mask.
    automaton: Option<AhoCorasick>,
    patterns: Vec<Vec<u8>>,
    longest: usize,
}

/// Says nothing of the values.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("patterns", &self.patterns.len()).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Prepares the values. Newlines at a value's end do not belong to it.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut patterns = BTreeSet::new();
        for value in values {
            let value = value.trim_ascii_end();
            if value.len() >= SHORTEST {
                forms(value, &mut patterns);
            }
        }
        let patterns: Vec<Vec<u8>> = patterns.into_iter().collect();
        let automaton = (!patterns.is_empty()).then(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&patterns)
                .expect("BUG: a few short patterns fit any automaton")
        });
        let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
        Self { automaton, patterns, longest }
    }

    /// Masks a whole text.
    pub fn mask(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut redactor = Redactor::new(self);
        redactor.push(bytes, &mut out);
        redactor.finish(&mut out);
        out
    }

    /// Masks a message.
    pub fn mask_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.mask(text.as_bytes())).into_owned()
    }

    /// Where the end of `bytes` begins that more bytes might make a secret, or a longer one.
    fn undecided(&self, bytes: &[u8]) -> usize {
        let first = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        (first..bytes.len())
            .find(|at| {
                let end = &bytes[*at..];
                self.patterns.iter().any(|pattern| pattern.len() > end.len() && pattern.starts_with(end))
            })
            .unwrap_or(bytes.len())
    }
}

/// All forms of one value.
fn forms(value: &[u8], patterns: &mut BTreeSet<Vec<u8>>) {
    patterns.insert(value.to_vec());
    // Tools print a key or a certificate line by line, with line ends of their own.
    for line in value.split(|byte| matches!(byte, b'\n' | b'\r')) {
        if line.len() >= SHORTEST_PART && line.len() < value.len() {
            patterns.insert(line.to_vec());
        }
    }
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        let text = engine.encode(value);
        if text.len() > BASE64_LINE {
            let lines = text.as_bytes().chunks(BASE64_LINE).filter(|line| line.len() >= SHORTEST_PART);
            patterns.extend(lines.map(<[u8]>::to_vec));
        }
        for offset in 0..3 {
            let part = base64_part(engine, value, offset);
            if part.len() >= SHORTEST_PART {
                patterns.insert(part.into_bytes());
            }
        }
    }
    let url = percent_encode(value, URL_KEEPS).to_string();
    // A form writes a blank as a plus; some tools write the digits small.
    let form = url.replace("%20", "+");
    patterns.insert(small_digits(&url).into_bytes());
    patterns.insert(form.into_bytes());
    patterns.insert(url.into_bytes());
    if let Ok(text) = std::str::from_utf8(value)
        && let Ok(json) = serde_json::to_string(text)
    {
        let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
        patterns.extend(inner.map(|inner| inner.as_bytes().to_vec()));
    }
}

/// The characters that the value alone decides where it stands `offset` bytes (modulo 3) into what is encoded.
fn base64_part(engine: &impl Engine, value: &[u8], offset: usize) -> String {
    let padded = [&[0; 3][..offset], value].concat();
    let text = engine.encode(&padded);
    // The first characters hold bits of what comes before, the last may hold bits of what follows.
    let from = [0, 2, 3][offset];
    let whole = padded.len() * 8 / 6;
    text.get(from..whole.max(from)).unwrap_or_default().to_owned()
}

/// The same text with the digits of `%2F` as `%2f`.
fn small_digits(url: &str) -> String {
    let mut digits = 0;
    url.chars()
        .map(|c| {
            if c == '%' {
                digits = 2;
                return c;
            }
            if digits > 0 {
                digits -= 1;
                return c.to_ascii_lowercase();
            }
            c
        })
        .collect()
}

/// Masks a stream that comes in pieces. It holds back only what may be the beginning of a secret.
#[derive(Debug)]
pub struct Redactor<'a> {
    secrets: &'a Secrets,
    held: Vec<u8>,
}

impl<'a> Redactor<'a> {
    /// Begins a stream.
    pub fn new(secrets: &'a Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// Takes the next piece and appends what is decided to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(automaton) = &self.secrets.automaton else {
            out.extend_from_slice(bytes);
            return;
        };
        self.held.extend_from_slice(bytes);
        let undecided = self.secrets.undecided(&self.held);
        let done = mask(automaton, &self.held, undecided, out);
        self.held.drain(..done);
    }

    /// The stream ended; nothing is held after.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        match &self.secrets.automaton {
            Some(automaton) => mask(automaton, &held, held.len(), out),
            None => 0,
        };
    }
}

/// Masks what begins before `end`; returns how far it came, which is past `end` where a secret stands across it.
fn mask(automaton: &AhoCorasick, bytes: &[u8], end: usize, out: &mut Vec<u8>) -> usize {
    let mut done = 0;
    for found in automaton.find_iter(bytes).take_while(|found| found.start() < end) {
        out.extend_from_slice(&bytes[done..found.start()]);
        out.extend_from_slice(MASK);
        done = found.end();
    }
    if done < end {
        out.extend_from_slice(&bytes[done..end]);
        done = end;
    }
    done
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const TOKEN: &str = "sk-ant-oat01-aB3/xY+9_z=\"q\\ü";

    fn contains(haystack: &[u8], needle: &[u8]) -> bool {
        haystack.windows(needle.len()).any(|window| window == needle)
    }

    #[rstest]
    #[case::plain(TOKEN.to_owned())]
    #[case::base64(STANDARD.encode(TOKEN))]
    #[case::base64_of_a_line(STANDARD.encode(format!("{TOKEN}\n")))]
    #[case::base64_url(URL_SAFE.encode(TOKEN))]
    #[case::json(serde_json::to_string(TOKEN).expect("text"))]
    #[case::url(percent_encode(TOKEN.as_bytes(), NON_ALPHANUMERIC).to_string().replace("%2D", "-").replace("%5F", "_"))]
    fn forms_are_masked(#[case] form: String) {
        let secrets = Secrets::new([TOKEN.as_bytes()]);
        let text = format!("before {form} after");
        let masked = String::from_utf8(secrets.mask(text.as_bytes())).expect("text");
        assert!(masked.starts_with("before ") && masked.ends_with(" after") && masked.contains("***"), "{masked}");
        // What is left of an encoded form is at most its border.
        assert!(masked.len() < "before  after".len() + 12, "{masked}");
    }

    #[test]
    fn a_form_writes_blanks_as_plus_and_digits_in_any_case() {
        let secrets = Secrets::new([&b"pass word/1"[..]]);
        for form in ["pass+word%2F1", "pass%20word%2F1", "pass%20word%2f1"] {
            assert_eq!(secrets.mask_text(form), "***", "{form}");
        }
    }

    #[test]
    fn base64_at_any_offset_and_in_lines() {
        let long =
            "0123456789abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789abcdefghijklmnopqrstuvwxyz";
        let secrets = Secrets::new([long.as_bytes()]);
        for before in ["", "a", "ab", "user:"] {
            let text = STANDARD.encode(format!("{before}{long}:more"));
            let masked = secrets.mask_text(&text);
            assert!(masked.len() < 32, "{before}: {masked}");
        }
        let text = STANDARD.encode(long);
        let wrapped: Vec<&str> =
            text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).expect("ASCII")).collect();
        assert_eq!(secrets.mask_text(wrapped.join("\n").trim_end_matches('=')), "***\n***");
    }

    #[test]
    fn a_key_of_several_lines_is_masked_line_by_line() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEF\n-----END KEY-----\n";
        let secrets = Secrets::new([key.as_bytes()]);
        assert_eq!(secrets.mask_text(key), "***\n");
        assert_eq!(secrets.mask_text("x MIIEvQIBADANBgkq\r\nhkiG9w0BAQEF\r\n"), "x ***\r\n***\r\n");
    }

    #[test]
    fn a_longer_secret_wins_over_its_own_beginning() {
        let secrets = Secrets::new([&b"abcdef"[..], b"abcdefghij"]);
        let mut redactor = Redactor::new(&secrets);
        let mut out = Vec::new();
        redactor.push(b"x abcdef", &mut out);
        redactor.push(b"ghij abcdefg", &mut out);
        redactor.push(b"!", &mut out);
        redactor.finish(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), "x *** ***g!");
    }

    #[test]
    fn nothing_is_held_back_without_need_and_too_short_values_are_left() {
        let secrets = Secrets::new([&b"secret-value"[..], b"abc", b"\n"]);
        let mut redactor = Redactor::new(&secrets);
        let mut out = Vec::new();
        redactor.push(b"progress: 10% abc\r", &mut out);
        assert_eq!(out, b"progress: 10% abc\r");
        redactor.push(b"se", &mut out);
        assert_eq!(out, b"progress: 10% abc\r");
        redactor.finish(&mut out);
        assert_eq!(out, b"progress: 10% abc\rse");
        assert_eq!(Secrets::new([]).mask(b"anything"), b"anything");
    }

    #[test]
    fn debugging_shows_no_value() {
        let secrets = Secrets::new([&b"hunter2hunter2"[..]]);
        let mut redactor = Redactor::new(&secrets);
        redactor.push(b"hunter2", &mut Vec::new());
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives_and_no_value_is_left(
            values in prop::collection::vec("[ab]{4,7}", 1..4),
            text in "[abc]{0,60}",
            size in 1_usize..10,
        ) {
            let secrets = Secrets::new(values.iter().map(String::as_bytes));
            let mut redactor = Redactor::new(&secrets);
            let mut pieces = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                redactor.push(piece, &mut pieces);
            }
            redactor.finish(&mut pieces);
            prop_assert_eq!(String::from_utf8_lossy(&pieces), secrets.mask_text(&text));
            for value in &values {
                prop_assert!(!contains(&pieces, value.as_bytes()));
            }
        }

        #[test]
        fn what_holds_no_secret_is_left_alone(text in prop::collection::vec(any::<u8>(), 0..200), size in 1_usize..30) {
            let secrets = Secrets::new([&b"a value that is in no such text"[..]]);
            let mut redactor = Redactor::new(&secrets);
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                redactor.push(piece, &mut out);
            }
            redactor.finish(&mut out);
            prop_assert_eq!(out, text);
        }
    }
}
