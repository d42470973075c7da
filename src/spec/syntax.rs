//! What can be wrong with a file before its meaning is looked at.

use super::text::{MAX_FILE_LEN, Span};
use super::tree::{MAX_COPIED_NODES, MAX_DEPTH, MAX_NODES};

/// Why bytes are no file that we read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct SyntaxError {
    /// What is wrong.
    pub kind: SyntaxErrorKind,
    /// Where; may be empty, between two bytes.
    pub span: Span,
}

/// What is wrong with the syntax of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxErrorKind {
    /// Larger than [`MAX_FILE_LEN`].
    #[error("the file has {0} bytes; at most 67108864 (64 MiB) are read")]
    TooLarge(usize),
    /// More than [`MAX_NODES`] values.
    #[error("the file holds more than {MAX_NODES} values")]
    TooMany,
    /// Nothing but white space.
    #[error("the file is empty")]
    Empty,
    /// The first byte that is not UTF-8.
    #[error("the file is not UTF-8")]
    NotUtf8,
    /// It ends inside a value.
    #[error("the file ends in the middle of a value")]
    CutOff,
    /// A merge was left unfinished.
    #[error("the file holds the conflict markers of an unfinished merge")]
    ConflictMarkers,
    /// A control character that JSON does not allow, NUL among them.
    #[error("the control character U+{0:04X} may not stand here")]
    ControlCharacter(u32),
    /// Half of a surrogate pair in a `\u` escape.
    #[error("the escapes of this text are no valid Unicode")]
    BadEscape,
    /// More than [`MAX_DEPTH`] brackets inside each other.
    #[error("brackets are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// A comma after the last member or element; the span is the comma's.
    #[error("a comma may not stand after the last item")]
    TrailingComma,
    /// A text that is not closed before its line ends.
    #[error("a text runs over the end of its line")]
    OpenText,
    /// `//`, `/*` or `#`.
    #[error("JSON has no comments")]
    Comment,
    /// Any other breach of JSON, in the parser's words.
    #[error("{0}")]
    Syntax(String),
    /// A breach of YAML, in the parser's words.
    #[error("{0}")]
    Yaml(String),
    /// Something that YAML has and we do not take.
    #[error("{0}")]
    YamlFeature(&'static str),
    /// Aliases that stand for too much.
    #[error("aliases stand for more than {MAX_COPIED_NODES} values")]
    YamlBudget,
}

impl SyntaxErrorKind {
    /// Whether a writer that has not finished yet could be the cause.
    pub fn may_be_partial(&self) -> bool {
        matches!(self, Self::Empty | Self::CutOff | Self::NotUtf8 | Self::ControlCharacter(0))
    }
}

/// Checks size and encoding. A byte order mark stays in the text, so that offsets are those of the file.
///
/// # Errors
/// [`SyntaxErrorKind::TooLarge`] and [`SyntaxErrorKind::NotUtf8`].
pub fn decode(bytes: &[u8]) -> Result<&str, SyntaxError> {
    if bytes.len() > MAX_FILE_LEN {
        return Err(SyntaxError { kind: SyntaxErrorKind::TooLarge(bytes.len()), span: Span::default() });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let start = error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |len| start + len);
        SyntaxError { kind: SyntaxErrorKind::NotUtf8, span: Span::new(start, end) }
    })
}
