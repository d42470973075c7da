//! Makes text that others chose safe to show on a terminal: titles, paths, an engine's words, an agent's output.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Shows control characters, line ends and the characters that reorder or break lines as escapes, so that the text stays
/// on its line and drives no terminal. Other characters stand as they are; the result cannot be read back.
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_unsafe)
}

/// Like [`line()`], with line ends and tabs kept.
pub fn lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_unsafe(c) && !matches!(c, '\n' | '\t'))
}

/// Makes JSON safe to show without changing what it says: what [`line()`] escapes and JSON lets stand in texts is written
/// as JSON's own escape. JSON's line ends and blanks between values stay.
pub fn json(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\t' | '\r');
    let Some(first) = json.find(is_raw) else { return Cow::Borrowed(json) };
    let mut out = String::with_capacity(json.len() + 8);
    out.push_str(&json[..first]);
    for c in json[first..].chars() {
        if is_raw(c) {
            // All of them are in the first plane, so that one escape is enough.
            write!(out, "\\u{:04x}", u32::from(c)).expect("BUG: writing to a string cannot fail");
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn escape(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&is_unsafe) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 8);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        match c {
            c if !is_unsafe(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)).expect("BUG: writing to a string cannot fail"),
        }
    }
    Cow::Owned(out)
}

fn is_unsafe(c: char) -> bool {
    // Line and paragraph separators; marks, embeddings, overrides and isolates of writing direction.
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a stream of bytes that comes in pieces cut anywhere, as [`lines`] does. What is no UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub struct StreamEscaper {
    /// The beginning of a character whose rest has not come yet.
    rest: Vec<u8>,
}

impl StreamEscaper {
    /// The text of the next piece, as far as its characters are whole.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let keep = unfinished(&self.rest);
        let whole = self.rest.len() - keep;
        let text = lines(&String::from_utf8_lossy(&self.rest[..whole])).into_owned();
        self.rest.drain(..whole);
        text
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        lines(&String::from_utf8_lossy(&rest)).into_owned()
    }
}

/// How many bytes at the end begin a character that may yet be completed.
fn unfinished(bytes: &[u8]) -> usize {
    let Some(chunk) = bytes.utf8_chunks().last() else { return 0 };
    // An invalid sequence inside of the text is given as soon as it is known to be one; at the end, at most three bytes.
    let tail = chunk.invalid();
    let ends_here = tail.len() <= 3 && bytes.ends_with(tail);
    let begins = tail.first().is_some_and(|first| {
        let expected = match first {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        tail.len() < expected
    });
    if ends_here && begins { tail.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_and_drives_no_terminal() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{1b}[2J\u{202e}\u{2028}\u{7f}\u{85}ä\u{1f600}\n"] });
        let text = serde_json::to_string_pretty(&value).expect("plain data");
        let shown = json(&text);
        assert!(!shown.chars().any(|c| is_unsafe(c) && c != '\n'), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
        assert!(shown.contains('ä') && matches!(json("{\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn nothing_that_drives_a_terminal_or_breaks_a_line_is_left() {
        let text = "a\u{1b}[2Jb\nc\rd\u{9b}31me\u{202e}f\u{2028}g\u{7f}";
        assert_eq!(line(text), "a\\u{1b}[2Jb\\nc\\rd\\u{9b}31me\\u{202e}f\\u{2028}g\\u{7f}");
        assert_eq!(lines("a\tb\nc\u{7}"), "a\tb\nc\\u{7}");
    }

    #[test]
    fn plain_text_of_any_script_is_borrowed() {
        for text in ["", "plain", "täglich 日本語 🦀", "back\\slash \"quote\""] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_stream_cut_at_any_byte_gives_the_same_text() {
        let bytes = "x\u{1b}[1mé日🦀\u{9b}y\n".as_bytes();
        let whole = lines(std::str::from_utf8(bytes).expect("text")).into_owned();
        for cut in 0..=bytes.len() {
            for second in cut..=bytes.len() {
                let mut stream = StreamEscaper::default();
                let mut text = stream.push(&bytes[..cut]);
                text.push_str(&stream.push(&bytes[cut..second]));
                text.push_str(&stream.push(&bytes[second..]));
                text.push_str(&stream.finish());
                assert_eq!(text, whole, "cut at {cut} and {second}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_shown_as_such_and_held_back_by_nothing() {
        let mut stream = StreamEscaper::default();
        assert_eq!(stream.push(b"a\xffb\xf0\x9f"), "a\u{fffd}b");
        assert_eq!(stream.push(b"z"), "\u{fffd}z");
        assert_eq!(stream.push(b"\xe2\x82"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }
}
