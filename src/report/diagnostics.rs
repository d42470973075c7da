//! Shows diagnostics: in the style of `rustc`, as JSON, and as annotations of a GitHub workflow.
//!
//! Nothing of a file reaches a terminal as it is: control and direction characters are replaced, values of variables
//! are hidden, long lines and long texts are cut. Only the lines that a diagnostic names are copied, however large the
//! file.

use std::borrow::Cow;
use std::fmt::Write as _;

use annotate_snippets::{
    AnnotationKind, Group, Level, Origin as Header, Patch as Suggestion, Renderer, Snippet, renderer::DecorStyle,
};
use serde::Serialize;

use super::window::{self, Window};
use crate::spec::text::{LineIndex, Position};
use crate::spec::{Diagnostic, Label, Origin, Place, Severity};

/// How many diagnostics people are shown; other programs get all.
const MOST_RENDERED: usize = 100;

/// The files that diagnostics point into.
#[derive(Debug)]
pub struct Files<'a> {
    files: Vec<File<'a>>,
    sensitive: Vec<Place>,
}

#[derive(Debug)]
pub(super) struct File<'a> {
    origin: Origin,
    name: String,
    pub(super) text: Cow<'a, str>,
    pub(super) lines: LineIndex,
}

/// One diagnostic for other programs. Lines and columns count from 1, columns in characters, ends excluded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    /// `E0016`.
    pub code: &'static str,
    /// `error` or `warning`.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where.
    #[serde(flatten)]
    pub place: RecordPlace,
    /// A few words for that place.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Other places that explain it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<RecordLabel>,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<RecordPatch>,
}

/// A place for other programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordPlace {
    /// Name of the file as it was given.
    pub file: String,
    /// First line.
    pub line: usize,
    /// First column.
    pub column: usize,
    /// Line of the end.
    pub end_line: usize,
    /// Column of the end.
    pub end_column: usize,
    /// Offset of the first byte.
    pub start_byte: u32,
    /// Offset of the end.
    pub end_byte: u32,
}

/// A place with words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordLabel {
    /// Where.
    #[serde(flatten)]
    pub place: RecordPlace,
    /// The words.
    pub label: String,
}

/// A replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordPatch {
    /// What is replaced.
    #[serde(flatten)]
    pub place: RecordPlace,
    /// By what.
    pub replacement: String,
}

impl<'a> Files<'a> {
    /// Files by name and content as they were read, and the places whose text is hidden.
    pub fn new(files: impl IntoIterator<Item = (Origin, &'a str, &'a [u8])>, sensitive: &[Place]) -> Self {
        let files = files.into_iter().map(|(origin, name, bytes)| {
            let text = window::decode(bytes);
            let lines = LineIndex::new(&text);
            File { origin, name: window::clean(name).into_owned(), text, lines }
        });
        let mut sensitive = sensitive.to_vec();
        sensitive.sort_unstable();
        Self { files: files.collect(), sensitive }
    }

    fn file(&self, origin: Origin) -> Option<&File<'a>> {
        self.files.iter().find(|file| file.origin == origin)
    }

    /// The hidden places that touch a range of a file.
    fn hidden(&self, origin: Origin) -> &[Place] {
        let from = self.sensitive.partition_point(|p| p.origin < origin);
        let to = self.sensitive.partition_point(|p| p.origin <= origin);
        &self.sensitive[from..to]
    }

    fn place(&self, place: Place) -> RecordPlace {
        let none = Position { line: 1, column: 1 };
        let (file, start, end) = self.file(place.origin).map_or((String::new(), none, none), |file| {
            let at = |offset: u32| file.lines.position(&file.text, offset as usize);
            (file.name.clone(), at(place.span.start), at(place.span.end))
        });
        RecordPlace {
            file,
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            start_byte: place.span.start,
            end_byte: place.span.end,
        }
    }
}

/// Renders for a terminal of that width, or without colour for a file; ends with a line that counts them.
pub fn text(files: &Files<'_>, diagnostics: &[Diagnostic], untold: usize, color: bool, width: usize) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(width).decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for diagnostic in diagnostics.iter().take(MOST_RENDERED) {
        out.push_str(&one(files, diagnostic, &renderer));
        out.push_str("\n\n");
    }
    if diagnostics.len() > MOST_RENDERED {
        let _ = write!(out, "… and {} more\n\n", diagnostics.len() - MOST_RENDERED);
    }
    out.push_str(&summary(diagnostics, untold));
    out
}

/// "2 errors, 1 warning", and where to read more.
pub fn summary(diagnostics: &[Diagnostic], untold: usize) -> String {
    let count = |severity| diagnostics.iter().filter(|d| d.severity() == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let plural = |n: usize, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
    let mut parts = Vec::new();
    if errors > 0 {
        parts.push(plural(errors, "error"));
    }
    if warnings > 0 {
        parts.push(plural(warnings, "warning"));
    }
    if untold > 0 {
        parts.push(format!("{untold} more not shown"));
    }
    let mut out = if parts.is_empty() { "no faults".to_owned() } else { parts.join(", ") };
    let first = diagnostics.iter().min_by_key(|d| d.severity());
    if let Some(first) = first {
        let _ = write!(out, "; `orchestrate validate --explain {}` says more", first.code);
    }
    out.push('\n');
    out
}

fn one(files: &Files<'_>, diagnostic: &Diagnostic, renderer: &Renderer) -> String {
    let level = match diagnostic.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(window::clean(&diagnostic.message)).id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    let all: Vec<&Label> = std::iter::once(&diagnostic.primary).chain(&diagnostic.others).collect();
    for cluster in clusters(files, &all) {
        let Some(file) = files.file(cluster[0].place.origin) else { continue };
        let places: Vec<Place> = cluster.iter().map(|label| label.place).collect();
        let window = Window::new(file, files.hidden(cluster[0].place.origin), &places);
        let mut snippet = Snippet::source(window.text).line_start(window.first_line);
        if window.begins_in_a_line {
            // The library would count columns from the cut.
            let lead = cluster.iter().find(|l| std::ptr::eq(**l, &raw const diagnostic.primary)).unwrap_or(&cluster[0]);
            let at = file.lines.position(&file.text, lead.place.span.start as usize);
            group = group.element(Header::path(file.name.clone()).line(at.line).char_column(at.column));
        } else {
            snippet = snippet.path(file.name.clone());
        }
        for (label, span) in cluster.iter().zip(window.spans) {
            let is_primary = std::ptr::eq(*label, &raw const diagnostic.primary);
            let kind = if is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
            let words = window::clean(&label.text).into_owned();
            snippet = snippet.annotation(kind.span(span).label((!words.is_empty()).then_some(words)));
        }
        group = group.element(snippet);
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(window::clean(help)));
    }
    let mut report = vec![group];
    report.extend(suggestion(files, diagnostic));
    renderer.render(&report)
}

fn suggestion<'r>(files: &Files<'_>, diagnostic: &Diagnostic) -> Option<Group<'r>> {
    let patch = diagnostic.patch.as_ref()?;
    let file = files.file(patch.place.origin)?;
    let replacement = window::clean(&patch.replacement).into_owned();
    if window::is_cut(file, patch.place) || replacement.chars().count() > window::MOST_SHOWN {
        return None;
    }
    let mut window = Window::new(file, files.hidden(patch.place.origin), &[patch.place]);
    let span = window.spans.pop()?;
    let title = if replacement.is_empty() { "remove it" } else { "write" };
    let snippet = Snippet::source(window.text).line_start(window.first_line).patch(Suggestion::new(span, replacement));
    Some(Group::with_title(Level::HELP.secondary_title(title)).element(snippet))
}

/// Labels that are shown in one piece of a file: near to each other. The primary one's piece comes first.
fn clusters<'d>(files: &Files<'_>, labels: &[&'d Label]) -> Vec<Vec<&'d Label>> {
    const MOST_LINES: usize = 12;
    const MOST_BYTES: u32 = 1000;
    let primary = labels[0];
    let mut sorted = labels.to_vec();
    sorted.sort_by_key(|label| label.place);
    let line = |place: Place| files.place(place).line;
    let mut clusters: Vec<Vec<&'d Label>> = Vec::new();
    for label in sorted {
        let near = clusters.last().and_then(|cluster| cluster.last()).is_some_and(|last| {
            last.place.origin == label.place.origin
                && label.place.span.start - last.place.span.start <= MOST_BYTES
                && line(label.place) - line(last.place) <= MOST_LINES
        });
        match clusters.last_mut() {
            Some(cluster) if near => cluster.push(label),
            _ => clusters.push(vec![label]),
        }
    }
    clusters.sort_by_key(|cluster| !cluster.iter().any(|label| std::ptr::eq(*label, primary)));
    clusters
}

/// For `-o json`.
pub fn records(files: &Files<'_>, diagnostics: &[Diagnostic]) -> Vec<Record> {
    let text = |text: &str| window::clean(text).into_owned();
    let record = |d: &Diagnostic| Record {
        code: d.code.as_str(),
        severity: d.severity(),
        message: text(&d.message),
        place: files.place(d.primary.place),
        label: text(&d.primary.text),
        related: d
            .others
            .iter()
            .map(|label| RecordLabel { place: files.place(label.place), label: text(&label.text) })
            .collect(),
        help: d.help.as_deref().map(text),
        patch: d
            .patch
            .as_ref()
            .map(|patch| RecordPatch { place: files.place(patch.place), replacement: patch.replacement.clone() }),
    };
    diagnostics.iter().map(record).collect()
}

/// Workflow commands, one a line, which GitHub shows beside the changed lines of a pull request.
pub fn github(files: &Files<'_>, diagnostics: &[Diagnostic]) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut out = String::new();
    for record in records(files, diagnostics) {
        let RecordPlace { file, line, column, end_line, end_column, .. } = &record.place;
        let level = if record.severity == Severity::Error { "error" } else { "warning" };
        let mut message = record.message;
        for more in std::iter::once(record.label).filter(|l| !l.is_empty()).chain(record.help) {
            message.push('\n');
            message.push_str(&more);
        }
        let _ = writeln!(
            out,
            "::{level} file={},line={line},col={column},endLine={end_line},endColumn={end_column},title={}::{}",
            property(file),
            record.code,
            data(&message)
        );
    }
    out
}
