//! Places in a file: byte spans, and the lines and columns that people count in.

use std::fmt;
use std::ops::Range;

/// The largest file that is read, in bytes. Also what makes `u32` enough for a [`Span`].
pub const MAX_FILE_LEN: usize = 64 << 20;

/// The byte order mark that some editors write.
pub(crate) const BOM: char = '\u{feff}';

/// A range of bytes of a file, its end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

impl Span {
    /// Of offsets into a file of at most [`MAX_FILE_LEN`] bytes.
    pub fn new(start: usize, end: usize) -> Self {
        let narrow = |n| u32::try_from(n).expect("BUG: an offset past the largest file");
        Self { start: narrow(start), end: narrow(end) }
    }

    /// As a range for slicing.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The number of bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it holds no byte, as a place between two bytes does.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// A place as editors show it; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character within the line.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where each line of a text begins.
#[derive(Debug, Clone)]
pub struct LineIndex {
    starts: Vec<u32>,
}

impl LineIndex {
    /// Finds the lines; `\n` and `\r\n` end one.
    pub fn new(text: &str) -> Self {
        let mut starts = vec![0];
        starts.extend(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| u32::try_from(at + 1).unwrap_or(u32::MAX)));
        Self { starts }
    }

    /// The line (from 0) that holds an offset.
    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start as usize <= offset) - 1
    }

    /// The bytes of a line (from 1), without its end; `None` past the last.
    pub fn span_of_line(&self, text: &str, line: usize) -> Option<Span> {
        let start = *self.starts.get(line.checked_sub(1)?)? as usize;
        let end = self.starts.get(line).map_or(text.len(), |&next| next as usize);
        let content = text.get(start..end)?.trim_end_matches(['\n', '\r']);
        Some(Span::new(start, start + content.len()))
    }

    /// Line and column of an offset; a byte order mark at the start is not counted.
    pub fn position(&self, text: &str, offset: usize) -> Position {
        let offset = text.floor_char_boundary(offset);
        let line = self.line(offset);
        let before = &text[self.starts[line] as usize..offset];
        let column = before.chars().filter(|&c| c != BOM).count() + 1;
        Position { line: line + 1, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_end_either_way() {
        let text = "\u{feff}aé\r\nb\n";
        let index = LineIndex::new(text);
        let at = |needle: &str| index.position(text, text.find(needle).expect("there")).to_string();
        assert_eq!((at("a"), at("é"), at("\r"), at("b")), ("1:1".into(), "1:2".into(), "1:3".into(), "2:1".into()));
        assert_eq!(index.position(text, 99).to_string(), "3:1");
        // The middle of a character belongs to it.
        assert_eq!(index.position(text, text.find('é').expect("there") + 1).to_string(), "1:2");
        assert_eq!(index.span_of_line(text, 2).map(|s| &text[s.range()]), Some("b"));
        assert_eq!(index.span_of_line(text, 3).map(Span::is_empty), Some(true));
        assert_eq!(index.span_of_line(text, 4), None);
    }
}
