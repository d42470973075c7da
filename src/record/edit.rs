//! The mechanics of a splice: one object's members are set, added and removed, front to back. Pure.

use std::fmt::Write as _;
use std::ops::Range;

use jiff::Timestamp;

use super::layout::{Layout, Style};
use super::splice::SpliceError;
use crate::spec::text::Span;
use crate::spec::tree::{Kind, Member, Value};
use crate::status::TaskStatus;

/// A value that we publish.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scalar<'a> {
    Text(&'a str),
    Integer(i64),
    Bool(bool),
    Time(Timestamp),
}

impl Scalar<'_> {
    /// Whether the file says the same, in whatever spelling.
    fn is(&self, found: Value<'_>) -> bool {
        match self {
            Self::Text(text) => found.as_str().is_some_and(|found| found == *text),
            // JSON has one spelling of an integer that its readers agree is one.
            Self::Integer(number) => found.kind() == Kind::Number && found.raw() == number.to_string(),
            Self::Bool(value) => found.as_bool() == Some(*value),
            Self::Time(time) => {
                found.as_str().and_then(|found| found.parse::<Timestamp>().ok()).is_some_and(|found| found == *time)
            }
        }
    }

    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => write_text(text, out),
            Self::Integer(number) => write!(out, "{number}").expect("BUG: writing to a string cannot fail"),
            Self::Bool(value) => write!(out, "{value}").expect("BUG: writing to a string cannot fail"),
            Self::Time(time) => write!(out, "\"{time}\"").expect("BUG: writing to a string cannot fail"),
        }
    }
}

pub(super) fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("BUG: text is always JSON"));
}

/// A field of ours with the value that it is to have; `None`: it is not to stand there.
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) value: Option<Scalar<'a>>,
}

/// All fields of a status, in the order of [`TaskStatus::FIELDS`].
pub(super) fn fields(status: &TaskStatus) -> [Field<'_>; TaskStatus::FIELDS.len()] {
    fn text(text: Option<&String>) -> Option<Scalar<'_>> {
        text.map(|text| Scalar::Text(text))
    }
    let mut values = [
        Some(Scalar::Text(status.status.as_str())),
        status.reason.map(|reason| Scalar::Text(reason.as_str())),
        text(status.message.as_ref()),
        status.attempt.map(|attempt| Scalar::Integer(attempt.into())),
        text(status.container_id.as_ref()),
        text(status.container.as_ref()),
        text(status.host.as_ref()),
        text(status.branch.as_ref()),
        text(status.worktree.as_ref()),
        text(status.base_commit.as_ref()),
        text(status.head_commit.as_ref()),
        status.result.map(|result| Scalar::Text(result.as_str())),
        status.exit_code.map(Scalar::Integer),
        status.started_at.map(Scalar::Time),
        status.finished_at.map(Scalar::Time),
        status.stale.map(Scalar::Bool),
        status.silent.map(Scalar::Bool),
        text(status.log.as_ref()),
        status.not_before.map(Scalar::Time),
    ]
    .into_iter();
    TaskStatus::FIELDS.map(|name| Field { name, value: values.next().flatten() })
}

/// The text that grows front to back: untouched stretches of the source, and edits between them.
pub(super) struct Output<'t> {
    source: &'t str,
    text: String,
    copied: usize,
}

impl<'t> Output<'t> {
    pub(super) fn of(source: &'t str) -> Self {
        Self { source, text: String::new(), copied: 0 }
    }

    pub(super) fn source(&self) -> &'t str {
        self.source
    }

    /// Copies up to the range, passes over it, and gives the buffer for what stands there instead.
    pub(super) fn edit(&mut self, range: Range<usize>) -> &mut String {
        if self.text.is_empty() {
            self.text.reserve(self.source.len() + self.source.len() / 4);
        }
        self.text.push_str(&self.source[self.copied..range.start]);
        self.copied = range.end;
        &mut self.text
    }

    pub(super) fn finish(mut self) -> Option<String> {
        if self.copied == 0 {
            return None;
        }
        let end = self.source.len();
        self.edit(end..end);
        Some(self.text)
    }
}

/// What becomes of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Not ours, or right as it is.
    Keep,
    /// Ours (its field's number) with another value.
    Replace(usize),
    /// Ours and not wanted.
    Remove,
}

/// Edits one object; `visit` is called for every member that is not ours, at its turn.
pub(super) fn edit_object<'t>(
    out: &mut Output<'t>,
    object: Value<'_>,
    members: &[Member<'_>],
    fields: &[Field<'_>],
    layout: &Layout<'_>,
    indent: Option<&str>,
    mut visit: impl FnMut(&mut Output<'t>, &Member<'_>) -> Result<(), SpliceError>,
) -> Result<(), SpliceError> {
    let mut fates = vec![Fate::Keep; members.len()];
    // Where each field stands and stays.
    let mut places = vec![None; fields.len()];
    let mut present = vec![false; fields.len()];
    for (at, member) in members.iter().enumerate() {
        let Some(number) = fields.iter().position(|field| field.name == member.key) else { continue };
        if std::mem::replace(&mut present[number], true) {
            return Err(SpliceError::DuplicateKey { key: fields[number].name.to_owned() });
        }
        fates[at] = match fields[number].value {
            None if member.value.kind() == Kind::Null => Fate::Keep,
            None => Fate::Remove,
            Some(value) if value.is(member.value) => Fate::Keep,
            Some(_) => Fate::Replace(number),
        };
        if fates[at] != Fate::Remove {
            places[number] = Some(at);
        }
    }

    let missing = |number: &usize| fields[*number].value.is_some() && !present[*number];
    let Some(last) = fates.iter().rposition(|fate| *fate != Fate::Remove) else {
        let new = (0..fields.len()).filter(missing).map(|number| &fields[number]);
        fill(out, object, members, new, layout, indent);
        return Ok(());
    };
    // A new field stands after the nearest of those before it in our order, else after the last of ours, else last.
    let last_of_ours = places.iter().flatten().max().copied().unwrap_or(last);
    let mut added: Vec<(usize, usize)> = (0..fields.len())
        .filter(missing)
        .map(|number| (places[..number].iter().rev().flatten().next().copied().unwrap_or(last_of_ours), number))
        .collect();
    // Stable: fields at one place stay in our order.
    added.sort_by_key(|(place, _)| *place);
    let mut added = added.into_iter().peekable();
    let style = added.peek().is_some().then(|| layout.style(object.span(), members));

    let mut end = None;
    for (at, member) in members.iter().enumerate() {
        let Span { start: value_start, end: value_end } = member.value.span();
        let (value_start, value_end) = (value_start as usize, value_end as usize);
        match (fates[at], end) {
            (Fate::Keep, _) => visit(out, member)?,
            (Fate::Replace(number), _) => {
                if let Some(value) = &fields[number].value {
                    value.write(out.edit(value_start..value_end));
                }
            }
            (Fate::Remove, Some(end)) => {
                out.edit(end..value_end);
            }
            (Fate::Remove, None) => {
                let next = members.get(at + 1).map_or(value_end, |next| next.key_span.range().start);
                out.edit(member.key_span.range().start..next);
            }
        }
        if fates[at] != Fate::Remove || end.is_some() {
            end = Some(value_end);
        }
        while let Some((_, number)) = added.next_if(|(place, _)| *place == at) {
            if let (Some(style), Some(value)) = (&style, &fields[number].value) {
                let text = out.edit(value_end..value_end);
                text.push_str(&style.separator);
                write_member(fields[number].name, value, style.colon, text);
            }
        }
    }
    Ok(())
}

pub(super) fn write_member(name: &str, value: &Scalar<'_>, colon: &str, out: &mut String) {
    out.push('"');
    out.push_str(name);
    out.push('"');
    out.push_str(colon);
    value.write(out);
}

/// Writes the members of an object of which nothing stays.
fn fill<'f>(
    out: &mut Output<'_>,
    object: Value<'_>,
    members: &[Member<'_>],
    new: impl Iterator<Item = &'f Field<'f>>,
    layout: &Layout<'_>,
    indent: Option<&str>,
) {
    let inside = object.span().range().start + 1..object.span().range().end - 1;
    let (range, style) = match (members.first(), members.last()) {
        (Some(first), Some(last)) => {
            (first.key_span.range().start..last.value.span().range().end, layout.style(object.span(), members))
        }
        _ => (inside, layout.style_inside(indent)),
    };
    let mut new = new.peekable();
    if new.peek().is_some() {
        let text = out.edit(range);
        text.push_str(&style.open);
        write_members(new, &style, text);
        text.push_str(&style.close);
    }
}

/// Writes the fields that have a value, with separators between them.
pub(super) fn write_members<'f>(fields: impl Iterator<Item = &'f Field<'f>>, style: &Style<'_>, out: &mut String) {
    let mut is_first = true;
    for Field { name, value } in fields {
        let Some(value) = value else { continue };
        if !std::mem::take(&mut is_first) {
            out.push_str(&style.separator);
        }
        write_member(name, value, style.colon, out);
    }
}
