//! The piece of a file that a diagnostic shows, made fit for a terminal.

use std::borrow::Cow;
use std::ops::Range;

use super::diagnostics::File;
use crate::spec::Place;

/// Characters that are shown of one marked place, and on each side of it.
pub(super) const MOST_SHOWN: usize = 200;

/// A few lines of a file, cleaned and cut.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) text: String,
    /// The number of the first line.
    pub(super) first_line: usize,
    /// Whether the first line is cut at its start.
    pub(super) begins_in_a_line: bool,
    /// The marked places within `text`, in the order in which they were given.
    pub(super) spans: Vec<Range<usize>>,
}

/// Replaces what a terminal would obey or what would mislead a reader: control characters get their pictures, marks of
/// direction and invisible ones get U+FFFD. Line ends become spaces.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| shown(c) == c) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(shown).collect())
}

/// The text of a file, in which every offset stays what it is: a byte that is no UTF-8 becomes one that is shown as such.
/// A replacement of another length would move the places behind it, and with them what is hidden.
pub(super) fn decode(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| NOT_UTF8));
    }
    Cow::Owned(text)
}

/// "Substitute" in ASCII.
const NOT_UTF8: char = '\u{1a}';

fn shown(c: char) -> char {
    match c {
        '\n' | '\t' => ' ',
        '\0'..='\u{1f}' if c != NOT_UTF8 => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        NOT_UTF8
        | '\u{80}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => '\u{fffd}',
        _ => c,
    }
}

/// The end of what is shown of a place: on its first line, and not too far.
fn shown_end(text: &str, place: Place) -> usize {
    let Range { start, end } = place.span.range();
    let start = text.floor_char_boundary(start);
    let rest = &text[start..text.ceil_char_boundary(end).max(start)];
    let cut = rest
        .char_indices()
        .enumerate()
        .find(|&(count, (_, c))| c == '\n' || count == MOST_SHOWN)
        .map_or(rest.len(), |(_, (at, _))| at);
    start + rest[..cut].trim_end_matches('\r').len()
}

/// Whether only a part of a place is shown.
pub(super) fn is_cut(file: &File<'_>, place: Place) -> bool {
    shown_end(&file.text, place) < place.span.range().end
}

impl Window {
    /// Of places that lie near to each other; `hidden` is sorted.
    pub(super) fn new(file: &File<'_>, hidden: &[Place], places: &[Place]) -> Self {
        let text: &str = &file.text;
        let clamp = |offset: usize| text.floor_char_boundary(offset);
        let marked: Vec<Range<usize>> = places
            .iter()
            .map(|place| {
                let start = clamp(place.span.range().start);
                start..shown_end(text, *place)
            })
            .collect();
        let first = marked.iter().map(|m| m.start).min().unwrap_or(0);
        let last = marked.iter().map(|m| m.end).max().unwrap_or(0);
        let line_start = text[..first].rfind('\n').map_or(0, |at| at + 1);
        let line_end = memchr::memchr(b'\n', &text.as_bytes()[last..]).map_or(text.len(), |at| last + at);
        let from = if first - line_start > 2 * MOST_SHOWN { clamp(first - MOST_SHOWN) } else { line_start };
        let to = if line_end - last > 2 * MOST_SHOWN { clamp(last + MOST_SHOWN) } else { line_end };
        let mut out = Copier { text: String::new(), marks: marked.iter().map(|m| (m.clone(), 0..0)).collect() };
        if from > line_start {
            out.text.push('…');
        }
        let mut at = from;
        let begin = hidden.partition_point(|h| h.span.range().end <= from);
        for secret in hidden[begin..].iter().map(|h| h.span.range()).take_while(|h| h.start < to) {
            out.copy(text, at..clamp(secret.start).clamp(at, to));
            at = text.ceil_char_boundary(secret.end).clamp(at, to);
            out.hide(secret.start.max(from)..at);
        }
        out.copy(text, at..to);
        out.finish(to);
        if to < line_end {
            out.text.push('…');
        }
        let spans = out.marks.into_iter().map(|(_, shown)| shown).collect();
        Self {
            text: out.text,
            first_line: file.lines.position(text, from).line,
            begins_in_a_line: from > line_start,
            spans,
        }
    }
}

/// Copies pieces and keeps track of where the marked places come to lie.
struct Copier {
    text: String,
    /// In the file, and in the copy.
    marks: Vec<(Range<usize>, Range<usize>)>,
}

impl Copier {
    fn note(&mut self, offset: usize) {
        for (there, here) in &mut self.marks {
            if there.start == offset {
                here.start = self.text.len();
            }
            if there.end == offset {
                here.end = self.text.len();
            }
        }
    }

    fn copy(&mut self, text: &str, range: Range<usize>) {
        for (at, c) in text[range.clone()].char_indices() {
            self.note(range.start + at);
            match c {
                '\n' => self.text.push('\n'),
                // A line's own end, and the mark at a file's start, take no room.
                '\r' if text[range.start + at + 1..].starts_with('\n') => {}
                '\u{feff}' if range.start + at == 0 => {}
                _ => self.text.push(shown(c)),
            }
        }
    }

    /// A value whose length is not told either.
    fn hide(&mut self, range: Range<usize>) {
        self.note(range.start);
        let start = self.text.len();
        self.text.push_str("\"***\"");
        for (there, here) in &mut self.marks {
            if there.start > range.start && there.start < range.end {
                here.start = start;
            }
            if there.end > range.start && there.end < range.end {
                here.end = self.text.len();
            }
        }
    }

    fn finish(&mut self, end: usize) {
        self.note(end);
        for (_, here) in &mut self.marks {
            here.end = here.end.max(here.start);
        }
    }
}
