//! Collects the faults of a reading. One that is found is noted and reading goes on, so that all are told at once.

use std::borrow::Cow;
use std::collections::HashMap;

use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, Place, Severity, quote};
use super::text::Span;
use super::tree::{Member, Tree, Value};
use super::values;

/// More faults than anyone reads; a file with as many is broken by a program.
const MOST_DIAGNOSTICS: usize = 1000;
/// How many names are looked at over a whole reading when the nearest one is looked for.
const MOST_COMPARED: usize = 500_000;

/// Collects faults while a file is read.
#[derive(Debug)]
pub(crate) struct Reader {
    origin: Origin,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Faults beyond [`MOST_DIAGNOSTICS`].
    pub(crate) untold: usize,
    /// How many errors there are so far, told or not.
    pub(crate) errors: usize,
    /// Values of variables, which no report shows.
    pub(crate) sensitive: Vec<Place>,
    unknown: HashMap<(Origin, &'static str, Box<str>), Repeated>,
    compare: usize,
}

/// A warning that is told once however often its cause is repeated.
#[derive(Debug)]
struct Repeated {
    diagnostic: usize,
    times: usize,
}

impl Reader {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            diagnostics: Vec::new(),
            untold: 0,
            errors: 0,
            sensitive: Vec::new(),
            unknown: HashMap::new(),
            compare: MOST_COMPARED,
        }
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Goes on with another file.
    pub(crate) fn switch(&mut self, origin: Origin) {
        self.origin = origin;
    }

    pub(crate) fn place(&self, span: Span) -> Place {
        Place { origin: self.origin, span }
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity() == Severity::Error);
        if self.diagnostics.len() < MOST_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        } else {
            self.untold += 1;
        }
    }

    pub(crate) fn fault(&mut self, code: Code, span: Span, message: impl Into<String>) {
        let place = self.place(span);
        self.report(Diagnostic::new(code, place, message));
    }

    /// The nearest of some names, while there is budget for looking.
    pub(crate) fn nearest<'c>(&mut self, word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
        if self.compare == 0 {
            return None;
        }
        let compare = &mut self.compare;
        values::nearest(word, candidates.into_iter().inspect(|_| *compare = compare.saturating_sub(1)))
    }

    pub(crate) fn wrong_type(&mut self, value: Value<'_>, expected: &str) {
        let found = value.kind().describe();
        let place = self.place(value.span());
        self.report(
            Diagnostic::new(Code::WrongType, place, format!("expected {expected}, found {found}"))
                .label(format!("expected {expected}")),
        );
    }

    /// Tells every key that stands twice in its object.
    pub(crate) fn duplicate_keys(&mut self, tree: &Tree<'_>) {
        let mut seen: HashMap<Cow<'_, str>, Span> = HashMap::new();
        let mut few: Vec<(Cow<'_, str>, Span)> = Vec::new();
        for object in tree.objects() {
            few.clear();
            seen.clear();
            for Member { key, key_span, .. } in object.members() {
                // Most objects are small, and comparing a few short keys is cheaper than hashing them.
                let first = if few.len() < 32 {
                    let first = few.iter().find(|(k, _)| *k == key).map(|(_, span)| *span);
                    if first.is_none() {
                        few.push((key.clone(), key_span));
                    }
                    first
                } else {
                    if seen.is_empty() {
                        seen.extend(few.iter().cloned());
                    }
                    let first = seen.get(&key).copied();
                    if first.is_none() {
                        seen.insert(key.clone(), key_span);
                    }
                    first
                };
                if let Some(first) = first {
                    let diagnostic = Diagnostic::new(
                        Code::DuplicateKey,
                        self.place(key_span),
                        format!("the key {} stands twice in one object", quote(&key)),
                    )
                    .label("the second one")
                    .also(self.place(first), "the first one")
                    .help("keep one of them; most readers would silently take the last");
                    self.report(diagnostic);
                }
            }
        }
    }

    /// Tells a field that is not known, once for each name.
    pub(crate) fn unknown_field<'c>(
        &mut self,
        scope: &'static str,
        member: &Member<'_>,
        known: impl IntoIterator<Item = &'c str>,
    ) {
        let key = member.key.as_ref();
        if key.starts_with("x-") || key.starts_with('_') || key == "$schema" {
            return;
        }
        if let Some(repeated) = self.unknown.get_mut(&(self.origin, scope, Box::from(key))) {
            repeated.times += 1;
            return;
        }
        let mut diagnostic = Diagnostic::new(
            Code::UnknownField,
            self.place(member.key_span),
            format!("unknown field {} in {scope}", quote(key)),
        );
        if let Some(near) = self.nearest(key, known) {
            diagnostic = diagnostic
                .label(format!("did you mean `{near}`?"))
                .patch(self.place(member.key_span), format!("\"{near}\""));
        } else {
            diagnostic = diagnostic.help("it is kept and ignored; name it `x-…` or `_…` to say that it is yours");
        }
        let at = self.diagnostics.len();
        self.report(diagnostic);
        self.unknown.insert((self.origin, scope, key.into()), Repeated { diagnostic: at, times: 0 });
    }

    /// Says how often what was told once was repeated.
    pub(crate) fn finish(&mut self) {
        for Repeated { diagnostic, times } in self.unknown.drain().map(|(_, repeated)| repeated) {
            if times > 0
                && let Some(diagnostic) = self.diagnostics.get_mut(diagnostic)
            {
                let again = if times == 1 { "once".to_owned() } else { format!("{times} times") };
                diagnostic.message = format!("{}, and {again} more", diagnostic.message);
            }
        }
    }
}
