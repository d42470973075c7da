//! From a value of the tree to a value of a kind: text, number, duration, word, command, variables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, quote};
use super::reader::Reader;
use super::tree::{Kind, Member, Value};
use super::values;

impl Reader {
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
            if self.origin() == Origin::Spec && scalar {
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
