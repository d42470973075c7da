//! From tree to fields: the steps that every field shares. A fault is noted and reading goes on, so that all are told at
//! once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::StrDeserializer;

use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, Place, Severity, quote};
use super::text::Span;
use super::tree::{Kind, Member, Tree, Value};
use super::values;

/// More faults than anyone reads; a file with as many is broken by a program.
const MOST_DIAGNOSTICS: usize = 1000;
/// The nearest name is looked up this often, as each look-up goes over all names.
const MOST_SUGGESTIONS: usize = 50;

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
    suggestions: usize,
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
            suggestions: MOST_SUGGESTIONS,
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
        self.suggestions = self.suggestions.checked_sub(1)?;
        values::nearest(word, candidates)
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

    /// The members of an object, without those that are `null`, which is the same as absent.
    pub(crate) fn object<'a>(
        &mut self,
        value: Value<'a>,
        expected: &str,
    ) -> Option<impl Iterator<Item = Member<'a>> + use<'a>> {
        if value.kind() == Kind::Object {
            Some(value.members().filter(|m| m.value.kind() != Kind::Null))
        } else {
            self.wrong_type(value, expected);
            None
        }
    }

    pub(crate) fn list<'a>(
        &mut self,
        value: Value<'a>,
        expected: &str,
    ) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        if value.kind() == Kind::Array {
            Some(value.elements())
        } else {
            self.wrong_type(value, expected);
            None
        }
    }

    /// Any text.
    pub(crate) fn text<'a>(&mut self, value: Value<'a>) -> Option<Cow<'a, str>> {
        let text = value.as_str();
        if text.is_none() {
            let scalar = matches!(value.kind(), Kind::Number | Kind::Bool);
            if self.origin == Origin::Spec && scalar {
                let place = self.place(value.span());
                let message = format!("expected text, found {}", value.kind().describe());
                self.report(
                    Diagnostic::new(Code::WrongType, place, message)
                        .label("text that reads as something else stands in quotes")
                        .patch(place, format!("\"{}\"", value.raw())),
                );
            } else {
                self.wrong_type(value, "text");
            }
        }
        text
    }

    /// Text that can be an argument or a variable of a program.
    pub(crate) fn plain(&mut self, value: Value<'_>) -> Option<String> {
        let text = self.text(value)?;
        if text.contains('\0') {
            self.fault(Code::NulInText, value.span(), "a text that is handed to a program may not hold NUL");
            return None;
        }
        Some(text.into_owned())
    }

    pub(crate) fn bool(&mut self, value: Value<'_>) -> Option<bool> {
        let bool = value.as_bool();
        if bool.is_none() {
            let place = self.place(value.span());
            let mut diagnostic = Diagnostic::new(
                Code::WrongType,
                place,
                format!("expected true or false, found {}", value.kind().describe()),
            );
            if let Some(word) = value.as_str().filter(|w| matches!(w.as_ref(), "true" | "false")) {
                diagnostic = diagnostic.label("without the quotes").patch(place, word);
            }
            self.report(diagnostic);
        }
        bool
    }

    /// A whole number of a type's range.
    pub(crate) fn integer<T: std::str::FromStr>(&mut self, value: Value<'_>, range: &str) -> Option<T> {
        let place = self.place(value.span());
        match value.kind() {
            Kind::Number => {
                let number = value.raw().parse().ok();
                if number.is_none() {
                    let message = format!("expected a whole number {range}, found {}", quote(value.raw()));
                    self.report(
                        Diagnostic::new(Code::BadNumber, place, message).label(format!("a whole number {range}")),
                    );
                }
                number
            }
            Kind::String => {
                let text = value.as_str().unwrap_or_default();
                let mut diagnostic =
                    Diagnostic::new(Code::WrongType, place, format!("expected a whole number {range}, found text"));
                if text.parse::<T>().is_ok() {
                    diagnostic = diagnostic.label("without the quotes").patch(place, text);
                }
                self.report(diagnostic);
                None
            }
            _ => {
                self.wrong_type(value, &format!("a whole number {range}"));
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, value: Value<'_>) -> Option<Duration> {
        let place = self.place(value.span());
        if value.kind() == Kind::Number {
            self.report(
                Diagnostic::new(Code::BadDuration, place, "a duration needs a unit")
                    .help("write it as text with a unit, such as \"30s\" or \"30m\""),
            );
            return None;
        }
        let text = self.text(value)?;
        match values::duration(&text) {
            Ok(duration) => Some(duration),
            Err(why) => {
                self.report(Diagnostic::new(Code::BadDuration, place, why));
                None
            }
        }
    }

    pub(crate) fn size(&mut self, value: Value<'_>) -> Option<u64> {
        let size = match value.kind() {
            Kind::Number => value.raw().parse().map_err(|_| "a size in bytes is a whole number"),
            _ => values::size(&self.text(value)?),
        };
        match size {
            Ok(0) => {
                self.fault(Code::BadSize, value.span(), "a size may not be zero");
                None
            }
            Ok(size) => Some(size),
            Err(why) => {
                self.fault(Code::BadSize, value.span(), why);
                None
            }
        }
    }

    /// One of a few words that stand for the values of an enum.
    pub(crate) fn word<T: DeserializeOwned>(
        &mut self,
        value: Value<'_>,
        choices: &'static [&'static str],
    ) -> Option<T> {
        let text = self.text(value)?;
        if let Some(word) = choices.iter().find(|c| **c == text) {
            let word: StrDeserializer<'_, serde::de::value::Error> = (*word).into_deserializer();
            return Some(T::deserialize(word).expect("BUG: a choice that the type does not know"));
        }
        let place = self.place(value.span());
        let list = choices.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", ");
        let mut diagnostic = Diagnostic::new(Code::UnknownWord, place, format!("{} is none of {list}", quote(&text)))
            .label(format!("one of {list}"));
        if let Some(near) = self.nearest(&text, choices.iter().copied()) {
            diagnostic = diagnostic.label(format!("did you mean `{near}`?")).patch(place, format!("\"{near}\""));
        }
        self.report(diagnostic);
        None
    }

    /// A program and its arguments.
    pub(crate) fn argv(&mut self, value: Value<'_>) -> Option<Vec<String>> {
        let place = self.place(value.span());
        if let Some(text) = value.as_str() {
            let shell = text.contains(['|', '&', ';', '<', '>', '$', '`', '*', '?', '~', '\n']);
            let words = if shell { None } else { shlex::split(&text) };
            let words = words.filter(|w| !w.is_empty()).unwrap_or_else(|| vec!["sh".into(), "-c".into(), text.into()]);
            let array = serde_json::to_string(&words).expect("BUG: texts are JSON");
            self.report(
                Diagnostic::new(Code::CommandIsText, place, "a command is a list of arguments, not one text")
                    .label("no shell takes it apart")
                    .help("write each argument for itself")
                    .patch(place, array),
            );
            return None;
        }
        let words: Vec<Option<String>> = self.list(value, "a list of texts")?.map(|word| self.plain(word)).collect();
        let words: Vec<String> = words.into_iter().collect::<Option<_>>()?;
        if words.first().is_none_or(String::is_empty) {
            self.report(
                Diagnostic::new(Code::EmptyCommand, place, "a command needs a program")
                    .help("leave the field out to run the image's own"),
            );
            return None;
        }
        Some(words)
    }

    /// A map of texts, its values kept from every report.
    pub(crate) fn env(&mut self, value: Value<'_>) -> Option<BTreeMap<String, String>> {
        let mut map = BTreeMap::new();
        for member in self.object(value, "an object of texts")? {
            self.sensitive.push(self.place(member.value.span()));
            let place = self.place(member.key_span);
            match values::env_name(&member.key) {
                Ok(()) => {}
                Err(values::EnvFault::Name) => {
                    let message = format!("{} is no name for a variable", quote(&member.key));
                    self.report(
                        Diagnostic::new(Code::BadEnvName, place, message)
                            .help("a name has letters, digits and `_` of ASCII, and does not start with a digit"),
                    );
                    continue;
                }
                Err(fault) => {
                    let message = format!("the variable {} may not be set here", quote(&member.key));
                    let help = if fault == values::EnvFault::Secret {
                        "name it under `secrets`; its value is read at launch"
                    } else {
                        "it would change how every program in the container behaves"
                    };
                    self.report(Diagnostic::new(Code::DeniedEnv, place, message).help(help));
                    continue;
                }
            }
            if values::looks_secret(&member.key) && member.value.as_str().is_some_and(|v| !v.is_empty()) {
                let message = format!("the variable {} looks like a secret", quote(&member.key));
                self.report(
                    Diagnostic::new(Code::SecretInEnv, place, message).label("its value stands in this file").help(
                        format!("move it to the environment and write \"secrets\": [{{\"env\": \"{}\"}}]", member.key),
                    ),
                );
            }
            if let Some(text) = self.plain(member.value) {
                map.insert(member.key.into_owned(), text);
            }
        }
        Some(map)
    }
}
