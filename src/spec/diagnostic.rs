//! A fault in a file as data: what, where, why, and how to mend it. Rendering is the report's.

use serde::Serialize;

use super::codes::Code;
use super::text::Span;

/// Which of the files a place is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The plan file, `.agent-tasks.json`.
    Plan,
    /// The YAML spec beside it, `agent-tasks.yaml`.
    Spec,
}

/// A range of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub origin: Origin,
    /// Its bytes.
    pub span: Span,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is not accepted.
    Error,
    /// The file is accepted, and probably not what was meant.
    Warning,
}

/// A place that a diagnostic talks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub place: Place,
    /// A few words beside the caret; may be empty.
    pub text: String,
}

/// A replacement that mends the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// What to replace; empty: insert.
    pub place: Place,
    /// With what.
    pub replacement: String,
}

/// One fault.
///
/// Texts may quote the file, so they can hold any character: only the renderers bring them to a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its stable code, which also says how bad it is.
    pub code: Code,
    /// What is wrong, as a sentence without its full stop.
    pub message: String,
    /// The place that is to be changed.
    pub primary: Label,
    /// Other places that explain it.
    pub others: Vec<Label>,
    /// The next step.
    pub help: Option<String>,
    /// The mended text.
    pub patch: Option<Patch>,
}

impl Diagnostic {
    /// A fault at a place.
    pub fn new(code: Code, place: Place, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            primary: Label { place, text: String::new() },
            others: Vec::new(),
            help: None,
            patch: None,
        }
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Puts words beside the caret.
    #[must_use]
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.primary.text = text.into();
        self
    }

    /// Points at another place.
    #[must_use]
    pub fn also(mut self, place: Place, text: impl Into<String>) -> Self {
        self.others.push(Label { place, text: text.into() });
        self
    }

    /// Says the next step.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// Offers the mended text for a place.
    #[must_use]
    pub fn patch(mut self, place: Place, replacement: impl Into<String>) -> Self {
        self.patch = Some(Patch { place, replacement: replacement.into() });
        self
    }
}

/// Text of the file within a message: in back-quotes, shortened.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 64;
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("`{}…`", &text[..cut]),
        None => format!("`{text}`"),
    }
}
