//! YAML as the same tree as JSON, so that one validator serves both.
//!
//! Taken is what has one meaning for everyone: one document, text keys, JSON's numbers and words, aliases within a budget.
//! `no`, `0123` and `1.10.0` are text. Tags, merge keys, several documents and non-finite numbers are refused.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle};
use serde_json::value::RawValue;

use super::json::conflict_marker;
use super::syntax::{SyntaxError, SyntaxErrorKind as K};
use super::text::{BOM, MAX_FILE_LEN, Span};
use super::tree::{Builder, MAX_COPIED_NODES, MAX_DEPTH, Tree};

/// Reads a text of at most [`MAX_FILE_LEN`] bytes.
///
/// # Errors
/// The first breach of the syntax, or use of something that is not taken.
pub fn parse(text: &str) -> Result<Tree<'_>, SyntaxError> {
    debug_assert!(text.len() <= MAX_FILE_LEN, "the caller decodes first");
    let offset = if text.starts_with(BOM) { BOM.len_utf8() } else { 0 };
    let body = &text[offset..];
    if body.trim().is_empty() {
        return Err(SyntaxError { kind: K::Empty, span: Span::new(text.len(), text.len()) });
    }
    // Markers would make a wild but valid text of many YAML files.
    if let Some(span) = conflict_marker(text) {
        return Err(SyntaxError { kind: K::ConflictMarkers, span });
    }
    if let Some(at) = body.find(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}')) {
        let c = body[at..].chars().next().unwrap_or_default();
        let span = Span::new(offset + at, offset + at + c.len_utf8());
        return Err(SyntaxError { kind: K::ControlCharacter(c.into()), span });
    }
    let mut options = Options::default();
    options.disallow_directives = true;
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut reading = Reading {
        text,
        offset,
        tree: Builder::new(text),
        keys: Vec::new(),
        anchors: HashMap::new(),
        copied: 0,
        documents: 0,
    };
    let mut parser = Parser::new_from_str_with_options(body, options);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => {
                let tag = span.tag_start.and_then(|tag| tag.byte_offset());
                let content = reading.span(span.start.byte_offset(), span.end.byte_offset());
                if event.tag().is_some() {
                    let text = "tags are not taken; they mean different things to different readers";
                    let span = tag.map_or(content, |tag| {
                        let rest = body.get(tag..).unwrap_or_default();
                        let len = rest.find(char::is_whitespace).unwrap_or(rest.len());
                        reading.span(Some(tag), Some(tag + len))
                    });
                    return Err(SyntaxError { kind: K::YamlFeature(text), span });
                }
                let span = content;
                reading.event(&event, span).map_err(|kind| SyntaxError { kind, span })?;
            }
            Err(error) => {
                let at = reading.span(error.marker().byte_offset(), error.marker().byte_offset());
                return Err(SyntaxError { kind: K::Yaml(words(&error.info())), span: at });
            }
        }
    }
    if reading.documents == 0 {
        // Nothing but comments.
        reading.tree.null(text.len(), text.len());
    }
    Ok(reading.tree.finish())
}

/// The parser's message as a sentence of ours: lower case, no full stop.
fn words(message: &str) -> String {
    let message = message.trim_end_matches('.');
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

struct Reading<'t> {
    text: &'t str,
    offset: usize,
    tree: Builder<'t>,
    /// For each open bracket, whether a key comes next; `None` for lists.
    keys: Vec<Option<bool>>,
    anchors: HashMap<usize, u32>,
    copied: usize,
    documents: usize,
}

impl Reading<'_> {
    fn span(&self, start: Option<usize>, end: Option<usize>) -> Span {
        let at = |byte: Option<usize>| self.text.floor_char_boundary(byte.unwrap_or(0) + self.offset);
        let start = at(start);
        Span::new(start, at(end).max(start))
    }

    fn event(&mut self, event: &Event<'_>, span: Span) -> Result<(), K> {
        let (start, end) = (span.range().start, span.range().end);
        if self.tree.is_full() {
            return Err(K::TooMany);
        }
        if let Some(anchor) = event.anchor_id().filter(|&id| id > 0) {
            self.anchors.insert(anchor, self.tree.next_node());
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(K::YamlFeature("a second document begins here; one file is one document"));
                }
            }
            Event::Scalar(text, style, ..) => {
                let plain = *style == ScalarStyle::Plain;
                if self.is_key() {
                    if plain && text.as_ref() == "<<" {
                        return Err(K::YamlFeature(
                            "merge keys are not taken; use `defaults` or a profile under `agents`",
                        ));
                    }
                    self.tree.owned(text, start, end);
                } else if plain {
                    self.plain(text, start, end)?;
                } else {
                    self.tree.owned(text, start, end);
                }
                self.done();
            }
            Event::Alias(id) => {
                if self.is_key() {
                    return Err(K::YamlFeature("a key is plain text, no alias"));
                }
                let nodes = self.anchors.get(id).and_then(|&at| self.tree.subtree(at));
                let Some(nodes) = nodes else { return Err(K::YamlFeature("an alias stands within its own anchor")) };
                self.copied += nodes.len();
                if self.copied > MAX_COPIED_NODES {
                    return Err(K::YamlBudget);
                }
                self.tree.copy(nodes);
                self.done();
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if self.is_key() {
                    return Err(K::YamlFeature("a key is plain text, neither a list nor a map"));
                }
                if self.tree.depth() == MAX_DEPTH {
                    return Err(K::TooDeep);
                }
                let object = matches!(event, Event::MappingStart(..));
                self.tree.open(object, start);
                self.keys.push(object.then_some(true));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.tree.close(end);
                self.keys.pop();
                self.done();
            }
            _ => {}
        }
        Ok(())
    }

    fn is_key(&self) -> bool {
        self.keys.last() == Some(&Some(true))
    }

    /// A key or a value is complete.
    fn done(&mut self) {
        if let Some(Some(key)) = self.keys.last_mut() {
            *key = !*key;
        }
    }

    /// The core schema as far as JSON knows it.
    fn plain(&mut self, text: &str, start: usize, end: usize) -> Result<(), K> {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => self.tree.null(start, end),
            "true" | "True" | "TRUE" => self.tree.bool(true, start, end),
            "false" | "False" | "FALSE" => self.tree.bool(false, start, end),
            _ => {
                let unsigned = text.trim_start_matches(['+', '-']);
                if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
                    return Err(K::YamlFeature("numbers are finite"));
                }
                let number = unsigned.starts_with(|c: char| c.is_ascii_digit())
                    && self.text.get(start..end) == Some(text)
                    && serde_json::from_str::<&RawValue>(text).is_ok();
                if number {
                    self.tree.number(start, end);
                } else {
                    self.tree.owned(text, start, end);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Kind, Value};
    use super::*;

    fn error(text: &str) -> (K, &str) {
        let error = parse(text).expect_err("refused");
        (error.kind, &text[error.span.range()])
    }

    #[test]
    fn values_are_what_they_are_in_json_and_spans_are_those_of_the_file() {
        let text = "\u{feff}# é comment\na: 1.10\nb: [no, 0123, 1.10.0, ~, True, \"q\\n\"]\nc: |\n  two\n  lines\n";
        let tree = parse(text).expect("YAML");
        let a = tree.root().get("a").expect("there");
        assert_eq!((a.kind(), a.raw()), (Kind::Number, "1.10"));
        let b: Vec<_> = tree.root().get("b").expect("there").elements().collect();
        let kinds: Vec<Kind> = b.iter().map(|v| v.kind()).collect();
        assert_eq!(kinds, [Kind::String, Kind::String, Kind::String, Kind::Null, Kind::Bool, Kind::String]);
        assert_eq!((b[1].raw(), b[5].as_str().as_deref(), b[5].raw()), ("0123", Some("q\n"), "\"q\\n\""));
        assert_eq!(tree.root().get("c").and_then(Value::as_str).as_deref(), Some("two\nlines\n"));
        let keys: Vec<_> = tree.root().members().map(|m| &text[m.key_span.range()]).collect();
        assert_eq!(keys, ["a", "b", "c"]);
    }

    #[test]
    fn aliases_are_copied_within_a_budget() {
        let text = "a: &x {k: [1, two]}\nb: *x\nc: [*x, *x]\n";
        let tree = parse(text).expect("YAML");
        let k = tree.root().get("c").and_then(|c| c.elements().nth(1)).and_then(|x| x.get("k")).expect("there");
        assert_eq!(k.elements().nth(1).and_then(Value::as_str).as_deref(), Some("two"));
        assert_eq!(tree.root().members().count(), 3);

        let row = |i: usize| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
        let bomb = format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}", (1..10).map(row).collect::<String>());
        assert_eq!(error(&bomb).0, K::YamlBudget);
        assert!(matches!(error("a: &a [*a]\n").0, K::YamlFeature(_)));
    }

    #[test]
    fn what_means_different_things_is_refused() {
        for (text, at) in [
            ("a: !!python/object x\n", "!!python/object"),
            ("a: 1\n---\nb: 2\n", "---"),
            ("a: .nan\n", ".nan"),
            ("a: -.inf\n", "-.inf"),
            ("a: {}\n<<: {b: 1}\n", "<<"),
            ("? [a]\n: 1\n", "["),
        ] {
            let (kind, quoted) = error(text);
            assert!(matches!(kind, K::YamlFeature(_)), "{text:?} {kind:?}");
            assert!(quoted == at, "{text:?} {quoted:?}");
        }
        assert!(matches!(error("a: *nobody\n").0, K::Yaml(_)));
        assert!(matches!(error("a: [1\n").0, K::Yaml(_)));
        assert!(matches!(error("a:\n\tb: 1\n").0, K::Yaml(_)));
        assert_eq!(error("a: \"x\u{1b}[0m\"\n").0, K::ControlCharacter(27));
        assert_eq!(error("a: 1\n<<<<<<< HEAD\n").0, K::ConflictMarkers);
        assert_eq!(error(" \n").0, K::Empty);
        assert_eq!(parse("# only a comment\n").expect("YAML").root().kind(), Kind::Null);
        for depth in [100, 100_000] {
            assert!(parse(&"[".repeat(depth)).is_err());
            assert!(parse(&"- ".repeat(depth)).is_err());
        }
    }
}
