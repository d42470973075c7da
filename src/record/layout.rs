//! The way a person laid out a JSON file, so that what is added looks like what is there. Pure.

use std::ops::Range;

use crate::spec::text::Span;
use crate::spec::tree::{Member, Tree};

/// The layout of a whole file, for objects that show none of their own.
#[derive(Debug)]
pub(super) struct Layout<'t> {
    text: &'t str,
    /// Line end and indentation of the outermost object's members; `None` where they share a line.
    lines: Option<Lines<'t>>,
    colon: &'t str,
}

#[derive(Debug, Clone, Copy)]
struct Lines<'t> {
    end: &'t str,
    /// One level.
    indent: &'t str,
}

/// How members are added to one object.
#[derive(Debug)]
pub(super) struct Style<'t> {
    /// From the end of a value to the next key.
    pub(super) separator: String,
    /// From the end of a key to its value.
    pub(super) colon: &'t str,
    /// From an empty object's opening bracket to the first key.
    pub(super) open: String,
    /// From its last value to the closing bracket.
    pub(super) close: String,
}

impl<'t> Layout<'t> {
    /// Reads it off the outermost object, whose members are given.
    pub(super) fn of(tree: &Tree<'t>, top: &[Member<'_>]) -> Self {
        let text = tree.text();
        let head = &text[head_of(tree.root().span(), top)];
        let lines = head
            .rfind('\n')
            .map(|at| Lines { end: if head[..at].ends_with('\r') { "\r\n" } else { "\n" }, indent: &head[at + 1..] });
        Self { text, lines, colon: top.last().and_then(|member| colon_of(text, member)).unwrap_or(": ") }
    }

    /// How to add to an object that has members.
    pub(super) fn style(&self, object: Span, members: &[Member<'_>]) -> Style<'t> {
        let colon = members.last().and_then(|member| colon_of(self.text, member)).unwrap_or(self.colon);
        let mut gaps = Gaps::default();
        let mut list = members.iter().peekable();
        while let Some(member) = list.next() {
            let place = member.key_span.range().start..member.value.span().range().end;
            gaps.push(self.text, place, list.peek().map(|next| next.key_span.range().start));
        }
        let separator = gaps.separator(self.text, object.range().start + 1);
        let separator = separator.unwrap_or_else(|| separator_in_line(colon).to_owned());
        Style { separator, colon, open: String::new(), close: String::new() }
    }

    /// How to fill an empty object, given the indentation of the line that it begins.
    pub(super) fn style_inside(&self, indent: Option<&str>) -> Style<'t> {
        let colon = self.colon;
        match (self.lines, indent) {
            (Some(Lines { end, indent: unit }), Some(indent)) => Style {
                separator: format!(",{end}{indent}{unit}"),
                colon,
                open: format!("{end}{indent}{unit}"),
                close: format!("{end}{indent}"),
            },
            _ => Style {
                separator: separator_in_line(colon).to_owned(),
                colon,
                open: String::new(),
                close: String::new(),
            },
        }
    }
}

/// What stands around the items of one list or object.
#[derive(Debug, Default)]
pub(super) struct Gaps<'t> {
    /// From the first item's beginning to the last one's end.
    items: Option<Range<usize>>,
    last: Option<&'t str>,
    last_with_line_end: Option<&'t str>,
}

impl<'t> Gaps<'t> {
    /// Takes in an item, and where the next one begins.
    pub(super) fn push(&mut self, text: &'t str, item: Range<usize>, next: Option<usize>) {
        let gap = next.map(|next| &text[item.end..next]);
        self.last = gap.or(self.last);
        self.last_with_line_end = gap.filter(|gap| gap.contains('\n')).or(self.last_with_line_end);
        self.items.get_or_insert(item.clone()).end = item.end;
    }

    /// Where the last item ends; `None` without items.
    pub(super) fn end(&self) -> Option<usize> {
        self.items.as_ref().map(|items| items.end)
    }

    /// What to put before one more item, given where the inside begins; `None` where nothing shows it.
    pub(super) fn separator(&self, text: &str, inside: usize) -> Option<String> {
        let head = &text[inside..self.items.as_ref()?.start];
        if let Some(gap) = self.last_with_line_end {
            let (before, after) = gap.split_once(',').unwrap_or(("", gap));
            Some(format!("{},{}", one_line_end(before), one_line_end(after)))
        } else if head.contains('\n') {
            Some(format!(",{}", one_line_end(head)))
        } else {
            self.last.map(str::to_owned)
        }
    }
}

/// Who puts a space after the colon puts one after the comma.
fn separator_in_line(colon: &str) -> &'static str {
    if colon.len() > 1 { ", " } else { "," }
}

/// The indentation before an offset, where only that stands between it and the beginning of its line.
pub(super) fn indent_before(text: &str, offset: usize) -> Option<&str> {
    let before = &text[..offset];
    let start = before.trim_end_matches([' ', '\t']).len();
    before[..start].ends_with('\n').then(|| &before[start..])
}

fn head_of(object: Span, members: &[Member<'_>]) -> Range<usize> {
    let inside = object.range().start + 1;
    inside..members.first().map_or(inside, |first| first.key_span.range().start)
}

/// A colon with the white space around it; not one that breaks the line.
fn colon_of<'t>(text: &'t str, member: &Member<'_>) -> Option<&'t str> {
    let colon = &text[member.key_span.range().end..member.value.span().range().start];
    (!colon.contains('\n')).then_some(colon)
}

/// White space without the empty lines that people put between groups.
fn one_line_end(space: &str) -> &str {
    let Some(at) = space.rfind('\n') else { return space };
    let at = if space[..at].ends_with('\r') { at - 1 } else { at };
    &space[at..]
}
