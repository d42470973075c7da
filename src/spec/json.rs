//! Strict JSON with a span for every value. `serde_json` is the judge of the syntax; the tape is built from what it let
//! through, so there is no second grammar that could disagree with it.

use serde_json::value::RawValue;

pub use super::syntax::{SyntaxError, SyntaxErrorKind, decode};
use super::text::{BOM, MAX_FILE_LEN, Span};
use super::tree::{Builder, MAX_DEPTH, Tree};

/// Reads a text of at most [`MAX_FILE_LEN`] bytes. Iterative: depth costs no stack.
///
/// # Errors
/// The first breach of the syntax.
pub fn parse(text: &str) -> Result<Tree<'_>, SyntaxError> {
    debug_assert!(text.len() <= MAX_FILE_LEN, "the caller decodes first");
    let start = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let body = &text[start..];
    if body.bytes().all(is_space) {
        return Err(SyntaxError { kind: SyntaxErrorKind::Empty, span: Span::new(text.len(), text.len()) });
    }
    if let Err(error) = serde_json::from_str::<&RawValue>(body) {
        return Err(explain(text, start, &error));
    }
    build(text, start)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Builds the tape from a text that is known to be JSON.
fn build(text: &str, start: usize) -> Result<Tree<'_>, SyntaxError> {
    let bytes = text.as_bytes();
    let mut tree = Builder::new(text);
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        let from = at;
        at += 1;
        if tree.is_full() {
            return Err(SyntaxError { kind: SyntaxErrorKind::TooMany, span: Span::new(from, at) });
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => {}
            b'{' | b'[' => {
                if tree.depth() == MAX_DEPTH {
                    return Err(SyntaxError { kind: SyntaxErrorKind::TooDeep, span: Span::new(from, at) });
                }
                tree.open(byte == b'{', from);
            }
            b'}' | b']' => tree.close(at),
            b'"' => {
                let mut escaped = false;
                while let Some(stop) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
                    at += stop + 1;
                    if bytes[at - 1] == b'"' {
                        break;
                    }
                    escaped = true;
                    at += 1;
                }
                // Skipping a string, serde_json lets half a surrogate pair through.
                if escaped && serde_json::from_str::<String>(&text[from..at]).is_err() {
                    return Err(SyntaxError { kind: SyntaxErrorKind::BadEscape, span: Span::new(from, at) });
                }
                tree.literal(escaped, from, at);
            }
            _ => {
                while bytes.get(at).is_some_and(|&b| !is_space(b) && !matches!(b, b',' | b']' | b'}')) {
                    at += 1;
                }
                match byte {
                    b'n' => tree.null(from, at),
                    b't' | b'f' => tree.bool(byte == b't', from, at),
                    _ => tree.number(from, at),
                }
            }
        }
    }
    Ok(tree.finish())
}

/// The bracket or quote that is still open where a cut off text ends.
pub(super) fn last_open(text: &str) -> Option<Span> {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => open.push(at),
            b'}' | b']' => {
                open.pop();
            }
            b'"' => {
                open.push(at);
                while let Some(stop) = memchr::memchr2(b'"', b'\\', bytes.get(at + 1..).unwrap_or_default()) {
                    at += stop + 1;
                    if bytes[at] == b'"' {
                        open.pop();
                        break;
                    }
                    at += 1;
                }
                if open.last().is_some_and(|&quote| bytes[quote] == b'"') {
                    break;
                }
            }
            _ => {}
        }
        at += 1;
    }
    open.last().map(|&at| Span::new(at, at + 1))
}

fn explain(text: &str, start: usize, error: &serde_json::Error) -> SyntaxError {
    if let Some(span) = conflict_marker(text) {
        return SyntaxError { kind: SyntaxErrorKind::ConflictMarkers, span };
    }
    let mut offset = start + offset_of(&text[start..], error.line(), error.column());
    let message = words(error);
    if message.starts_with("control character") {
        // Told at the character before it.
        offset += text[offset..].find(|c: char| c < ' ').unwrap_or(0);
    }
    let found = text[offset..].chars().next();
    let end = offset + found.map_or(0, char::len_utf8);
    let before = text[..offset].trim_end_matches([' ', '\t', '\n', '\r']);
    if matches!(found, Some('}' | ']')) && before.ends_with(',') {
        let span = Span::new(before.len() - 1, before.len());
        return SyntaxError { kind: SyntaxErrorKind::TrailingComma, span };
    }
    let kind = match found {
        _ if error.is_eof() => SyntaxErrorKind::CutOff,
        Some('/' | '#') => SyntaxErrorKind::Comment,
        Some('\n' | '\r') => SyntaxErrorKind::OpenText,
        Some(c) if c.is_control() => SyntaxErrorKind::ControlCharacter(c.into()),
        _ => SyntaxErrorKind::Syntax(message),
    };
    let span = if error.is_eof() { Span::new(text.len(), text.len()) } else { Span::new(offset, end) };
    SyntaxError { kind, span }
}

/// The parser's message without the place, which people are shown in their own text.
fn words(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(&place).unwrap_or(&message).to_owned()
}

/// From a line and a column that counts bytes, both from 1; the column is 0 where a line end was the last byte read.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let newlines = memchr::memchr_iter(b'\n', text.as_bytes());
    let start = line.checked_sub(2).map_or(0, |n| newlines.into_iter().nth(n).map_or(0, |at| at + 1));
    text.floor_char_boundary((start + column).saturating_sub(1))
}

/// The first line that `git` wrote between two versions. In JSON no string can hold such a line.
pub(crate) fn conflict_marker(text: &str) -> Option<Span> {
    ["<<<<<<< ", ">>>>>>> "].into_iter().find_map(|marker| {
        memchr::memmem::find_iter(text.as_bytes(), marker).find_map(|at| {
            (at == 0 || text.as_bytes()[at - 1] == b'\n').then(|| {
                let line = text[at..].lines().next().unwrap_or_default();
                Span::new(at, at + line.len())
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tree::{Kind, Value};
    use super::*;

    fn error(text: &str) -> (SyntaxErrorKind, &str) {
        let error = parse(text).expect_err("no JSON");
        (error.kind, &text[error.span.range()])
    }

    #[test]
    fn spans_and_duplicates_are_kept() {
        let text = "\u{feff}{\r\n \"a\" : [1E5, \"\\u0041\\n\"],\"a\":{},\n\"b\":null , \"c\": true}";
        let tree = parse(text).expect("JSON");
        let keys: Vec<_> = tree.root().members().map(|m| (m.key, &text[m.key_span.range()], m.value.raw())).collect();
        let expected = [
            ("a", "\"a\"", "[1E5, \"\\u0041\\n\"]"),
            ("a", "\"a\"", "{}"),
            ("b", "\"b\"", "null"),
            ("c", "\"c\"", "true"),
        ];
        assert_eq!(keys.iter().map(|(k, s, v)| (k.as_ref(), *s, *v)).collect::<Vec<_>>(), expected);
        let list: Vec<Value> = tree.root().get("a").expect("there").elements().collect();
        assert_eq!(list[0].kind(), Kind::Number);
        assert_eq!(list[1].as_str().as_deref(), Some("A\n"));
        assert_eq!(tree.root().get("c").and_then(Value::as_bool), Some(true));
        assert_eq!(tree.root().elements().count(), 0);
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        use SyntaxErrorKind as K;
        assert_eq!(error("").0, K::Empty);
        assert_eq!(error("\u{feff} \n").0, K::Empty);
        assert_eq!(error("{\"a\": [1").0, K::CutOff);
        assert_eq!(error("{\"a\": \"x").0, K::CutOff);
        assert_eq!(error("{\"a\": 1, \n}"), (K::TrailingComma, ","));
        assert_eq!(error("[1,]"), (K::TrailingComma, ","));
        assert_eq!(error("{\"a\": 1} x"), (K::Syntax("trailing characters".into()), "x"));
        assert_eq!(error("{\n// note\n\"a\": 1}"), (K::Comment, "/"));
        assert_eq!(error("{\"é\": NaN}"), (K::Syntax("expected value".into()), "N"));
        assert_eq!(error("{\"a\": \"x\u{0}\"}"), (K::ControlCharacter(0), "\0"));
        assert_eq!(error("{\"a\": \"x\n\"}"), (K::OpenText, "\n"));
        assert_eq!(error("{\"a\": \"\\ud800\"}"), (K::BadEscape, "\"\\ud800\""));
        assert_eq!(error("{\n<<<<<<< HEAD\n\"a\": 1\n"), (K::ConflictMarkers, "<<<<<<< HEAD"));
        assert_eq!(decode(b"ab\xffc").expect_err("no UTF-8").span, Span::new(2, 3));
    }

    #[test]
    fn what_is_still_open_is_found() {
        for (text, at) in [
            ("{\"a\": [1, {\"b\": 2}", Some(6)),
            ("{\"a\": \"x\\\"y", Some(6)),
            ("{\"a\": \"x\\", Some(6)),
            ("{\"a", Some(1)),
            ("{", Some(0)),
            ("tru", None),
        ] {
            assert_eq!(last_open(text).map(|span| span.start), at, "{text}");
        }
    }

    #[test]
    fn depth_costs_no_stack_and_has_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(error(&nested(MAX_DEPTH + 1)).0, SyntaxErrorKind::TooDeep);
        assert_eq!(error(&nested(1_000_000)).0, SyntaxErrorKind::TooDeep);
    }

    fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
        match theirs {
            serde_json::Value::Null => ours.kind() == Kind::Null,
            serde_json::Value::Bool(b) => ours.as_bool() == Some(*b),
            serde_json::Value::Number(n) => ours.kind() == Kind::Number && ours.raw() == n.to_string(),
            serde_json::Value::String(s) => ours.as_str().as_deref() == Some(s),
            serde_json::Value::Array(a) => {
                ours.elements().count() == a.len() && ours.elements().zip(a).all(|(x, y)| same(x, y))
            }
            serde_json::Value::Object(o) => {
                ours.members().count() == o.len()
                    && ours.members().zip(o).all(|(m, (k, v))| m.key == k.as_str() && same(m.value, v))
            }
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::vec((any::<String>(), inner), 0..8)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_tree_says_what_serde_json_says(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.expect("a value");
            let tree = parse(&text).expect("JSON");
            prop_assert!(same(tree.root(), &value));
        }

        #[test]
        fn any_text_is_judged_as_serde_json_judges_it(text in "[\\[\\]{}:,\"\\\\ua0-9.eE+nultrfs \u{0}é\n-]{0,40}") {
            let ours = parse(&text);
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // Its own `Value` refuses numbers beyond `f64`, which are syntax nevertheless.
            let out_of_range = theirs.as_ref().is_err_and(|e| e.to_string().starts_with("number out of range"));
            prop_assert!(out_of_range || ours.is_ok() == theirs.is_ok(), "{ours:?} {theirs:?}");
        }
    }
}
