//! A parsed file as a flat tape of nodes with spans: small (16 bytes a node), in order, duplicates visible.

use std::borrow::Cow;
use std::ops::Range;

use super::text::Span;

/// The deepest nesting that is read.
pub const MAX_DEPTH: usize = 64;

/// The most values and keys that are read: a file of the largest size that holds nothing but digits and commas would take
/// many times its size in memory.
pub const MAX_NODES: usize = 16_000_000;

/// How many nodes aliases of YAML may be copied to.
pub const MAX_COPIED_NODES: usize = 1_000_000;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Null,
    /// True or false.
    Bool,
    /// A number, kept as it is spelled.
    Number,
    /// Text.
    String,
    /// A list.
    Array,
    /// A map.
    Object,
}

impl Kind {
    /// For messages: "a number".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "true or false",
            Self::Number => "a number",
            Self::String => "text",
            Self::Array => "a list",
            Self::Object => "an object",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Null,
    False,
    True,
    Number,
    /// A JSON string whose text is what stands between its quotes.
    Quoted,
    /// A JSON string with escapes.
    Escaped,
    /// Text in the side table; `next` is its index there.
    Owned,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    /// The node after this one's whole subtree. A leaf's is the next one, so [`Shape::Owned`] can reuse the room.
    next: u32,
    shape: Shape,
}

/// A whole file. An object's children are key, value, key, value, as they stand.
#[derive(Debug)]
pub struct Tree<'t> {
    text: &'t str,
    nodes: Vec<Node>,
    owned: Vec<Box<str>>,
}

/// One value of a [`Tree`].
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    tree: &'a Tree<'a>,
    at: u32,
}

/// One key with its value.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// The key, unescaped.
    pub key: Cow<'a, str>,
    /// Where the key stands, quotes included.
    pub key_span: Span,
    /// The value.
    pub value: Value<'a>,
}

impl<'t> Tree<'t> {
    /// The text that it was read from.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// The outermost value.
    pub fn root(&self) -> Value<'_> {
        Value { tree: self, at: 0 }
    }

    /// Every object, outermost first, in the file's order.
    pub fn objects(&self) -> impl Iterator<Item = Value<'_>> {
        (0u32..).zip(&self.nodes).filter(|(_, n)| n.shape == Shape::Object).map(|(at, _)| Value { tree: self, at })
    }
}

impl<'a> Value<'a> {
    fn node(self) -> Node {
        self.tree.nodes[self.at as usize]
    }

    fn next(self) -> u32 {
        let node = self.node();
        if node.shape == Shape::Owned { self.at + 1 } else { node.next }
    }

    /// What it is.
    pub fn kind(self) -> Kind {
        match self.node().shape {
            Shape::Null => Kind::Null,
            Shape::False | Shape::True => Kind::Bool,
            Shape::Number => Kind::Number,
            Shape::Quoted | Shape::Escaped | Shape::Owned => Kind::String,
            Shape::Array => Kind::Array,
            Shape::Object => Kind::Object,
        }
    }

    /// Where it stands, quotes and brackets included.
    pub fn span(self) -> Span {
        let node = self.node();
        Span { start: node.start, end: node.end }
    }

    /// As it is spelled in the file.
    pub fn raw(self) -> &'a str {
        &self.tree.text[self.span().range()]
    }

    /// The text of a string, unescaped.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let node = self.node();
        match node.shape {
            Shape::Quoted => Some(Cow::Borrowed(&self.tree.text[node.start as usize + 1..node.end as usize - 1])),
            Shape::Escaped => {
                let text = serde_json::from_str(self.raw()).expect("BUG: an escape that was checked when it was read");
                Some(Cow::Owned(text))
            }
            Shape::Owned => Some(Cow::Borrowed(&self.tree.owned[node.next as usize])),
            _ => None,
        }
    }

    /// The value of `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.node().shape {
            Shape::False => Some(false),
            Shape::True => Some(true),
            _ => None,
        }
    }

    /// The members of an object in the file's order, duplicates included; nothing for any other value.
    pub fn members(self) -> impl Iterator<Item = Member<'a>> {
        let mut children = self.children(Shape::Object);
        std::iter::from_fn(move || {
            let (key, value) = (children.next()?, children.next()?);
            Some(Member { key: key.as_str().unwrap_or_default(), key_span: key.span(), value })
        })
    }

    /// The elements of a list; nothing for any other value.
    pub fn elements(self) -> impl Iterator<Item = Value<'a>> {
        self.children(Shape::Array)
    }

    /// The first member of that name.
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.members().find(|m| m.key == key).map(|m| m.value)
    }

    fn children(self, shape: Shape) -> Children<'a> {
        let node = self.node();
        let end = if node.shape == shape { node.next } else { self.at };
        Children { tree: self.tree, at: self.at + 1, end }
    }
}

struct Children<'a> {
    tree: &'a Tree<'a>,
    at: u32,
    end: u32,
}

impl<'a> Iterator for Children<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if self.at >= self.end {
            return None;
        }
        let value = Value { tree: self.tree, at: self.at };
        self.at = value.next();
        Some(value)
    }
}

/// Builds a tree front to back. The parser that drives it owes: one root, balanced brackets, key before value.
#[derive(Debug)]
pub(crate) struct Builder<'t> {
    tree: Tree<'t>,
    open: Vec<u32>,
}

impl<'t> Builder<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { tree: Tree { text, nodes: Vec::new(), owned: Vec::new() }, open: Vec::new() }
    }

    /// How many brackets are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether there is no room for another node.
    pub(crate) fn is_full(&self) -> bool {
        self.tree.nodes.len() >= MAX_NODES
    }

    /// The index of the next node.
    pub(crate) fn next_node(&self) -> u32 {
        u32::try_from(self.tree.nodes.len()).expect("BUG: more nodes than bytes")
    }

    /// The subtree at a node, if it is closed.
    pub(crate) fn subtree(&self, at: u32) -> Option<Range<u32>> {
        let value = Value { tree: &self.tree, at };
        (!self.open.contains(&at)).then(|| at..value.next())
    }

    /// Copies a closed subtree to the end.
    pub(crate) fn copy(&mut self, nodes: Range<u32>) {
        let shift = self.next_node() - nodes.start;
        for at in nodes {
            let mut node = self.tree.nodes[at as usize];
            if node.shape != Shape::Owned {
                node.next += shift;
            }
            self.tree.nodes.push(node);
        }
    }

    fn push(&mut self, shape: Shape, start: usize, end: usize, next: Option<usize>) {
        let span = Span::new(start, end);
        let next = next.unwrap_or(self.tree.nodes.len() + 1);
        let next = u32::try_from(next).expect("BUG: more nodes than bytes");
        self.tree.nodes.push(Node { start: span.start, end: span.end, next, shape });
    }

    pub(crate) fn null(&mut self, start: usize, end: usize) {
        self.push(Shape::Null, start, end, None);
    }

    pub(crate) fn bool(&mut self, value: bool, start: usize, end: usize) {
        self.push(if value { Shape::True } else { Shape::False }, start, end, None);
    }

    pub(crate) fn number(&mut self, start: usize, end: usize) {
        self.push(Shape::Number, start, end, None);
    }

    /// A JSON string literal at that place; an escaped one must be known to decode.
    pub(crate) fn literal(&mut self, escaped: bool, start: usize, end: usize) {
        self.push(if escaped { Shape::Escaped } else { Shape::Quoted }, start, end, None);
    }

    /// Text that is not simply a part of the file.
    pub(crate) fn owned(&mut self, text: &str, start: usize, end: usize) {
        let index = self.tree.owned.len();
        self.tree.owned.push(text.into());
        self.push(Shape::Owned, start, end, Some(index));
    }

    pub(crate) fn open(&mut self, object: bool, start: usize) {
        self.open.push(u32::try_from(self.tree.nodes.len()).expect("BUG: more nodes than bytes"));
        self.push(if object { Shape::Object } else { Shape::Array }, start, start, None);
    }

    pub(crate) fn close(&mut self, end: usize) {
        let at = self.open.pop().expect("BUG: a bracket closed that was never opened");
        let next = u32::try_from(self.tree.nodes.len()).expect("BUG: more nodes than bytes");
        let node = &mut self.tree.nodes[at as usize];
        node.end = u32::try_from(end).expect("BUG: an offset past the largest file");
        node.next = next;
    }

    pub(crate) fn finish(mut self) -> Tree<'t> {
        self.tree.nodes.shrink_to_fit();
        self.tree
    }
}
