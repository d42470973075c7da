//! Reads the fields that tasks, profiles and `defaults` share.

use super::codes::Code;
use super::diagnostic::{Diagnostic, quote};
use super::fields::{BackoffFields, ResourceFields, Settings};
use super::model::{MountSpec, RateLimit, RateLimitScope, SecretHandOver, SecretSpec};
use super::reader::Reader;
use super::text::Span;
use super::tree::{Kind, Member, Value};
use super::values;

/// Compiled patterns are kept small, so that a plan cannot make us allocate without end.
const MOST_PATTERN_BYTES: usize = 1 << 20;

const UP: &str = "from 0 up";

/// Reads one member of [`Settings::FIELDS`].
pub(crate) fn read(reader: &mut Reader, settings: &mut Settings, member: &Member<'_>) {
    let value = member.value;
    match member.key.as_ref() {
        "agent" => {
            settings.agent = reader.text(value).map(Into::into);
            settings.agent_place = Some(reader.place(value.span()));
        }
        "image" => settings.image = image(reader, value),
        "pull" => settings.pull = reader.word(value, &["if-missing", "always", "never"]),
        "command" => {
            settings.command = reader.argv(value);
            if settings.command.is_some() {
                templates(reader, value);
            }
        }
        "env" => settings.env = reader.env(value),
        "secrets" => settings.secrets = Some(secrets(reader, value)),
        "resources" => settings.resources = resources(reader, value),
        "mounts" => settings.mounts = mounts(reader, value),
        "network" => settings.network = judged(reader, value, Code::BadNetwork, values::network),
        "user" => settings.user = judged(reader, value, Code::BadUser, values::user),
        "timeout" => settings.timeout = reader.duration(value),
        "stale_after" => settings.stale_after = reader.duration(value),
        "silent_after" => settings.silent_after = reader.duration(value),
        "retries" => settings.retries = reader.integer(value, UP),
        "retry_backoff" => settings.retry_backoff = backoff(reader, value),
        "retry_mode" => settings.retry_mode = reader.word(value, &["resume", "fresh"]),
        "priority" => settings.priority = reader.integer(value, "of 64 bits"),
        "base" => {
            let base = judged(reader, value, Code::BadBase, |text| values::revision(text).map(|()| text.to_owned()));
            settings.base = base;
        }
        "leftovers" => settings.leftovers = reader.word(value, &["commit", "keep", "fail"]),
        "verify" => settings.verify = reader.argv(value),
        "empty" => settings.empty = reader.word(value, &["ok", "fail"]),
        "rate_limit" => settings.rate_limit = rate_limit(reader, value),
        "git_access" => settings.git_access = reader.word(value, &["isolated", "shared", "none"]),
        _ => {}
    }
}

fn judged<T>(
    reader: &mut Reader,
    value: Value<'_>,
    code: Code,
    judge: impl Fn(&str) -> Result<T, &'static str>,
) -> Option<T> {
    let text = reader.text(value)?;
    match judge(&text) {
        Ok(value) => Some(value),
        Err(why) => {
            let place = reader.place(value.span());
            reader.report(Diagnostic::new(code, place, why));
            None
        }
    }
}

fn image(reader: &mut Reader, value: Value<'_>) -> Option<String> {
    judged(reader, value, Code::BadImage, |text| values::image(text).map(|()| text.to_owned()))
}

fn templates(reader: &mut Reader, command: Value<'_>) {
    for element in command.elements() {
        let text = element.as_str().unwrap_or_default();
        for word in values::unknown_templates(&text) {
            let mut diagnostic = Diagnostic::new(
                Code::UnknownTemplate,
                reader.place(element.span()),
                format!("{} is replaced by nothing", quote(&format!("{{{{{word}}}}}"))),
            );
            diagnostic = match reader.nearest(word.trim(), values::TEMPLATES) {
                Some(near) => diagnostic.help(format!("did you mean `{{{{{near}}}}}`?")),
                None => diagnostic.help("known are `{{prompt}}`, `{{prompt_file}}`, `{{task_id}}` and `{{branch}}`"),
            };
            reader.report(diagnostic);
        }
    }
}

fn missing(reader: &mut Reader, span: Span, what: &str, field: &str) {
    reader.fault(Code::MissingField, span, format!("{what} needs {}", quote(field)));
}

/// Reads a list of secrets; what is at fault is left out.
pub(crate) fn secrets(reader: &mut Reader, value: Value<'_>) -> Vec<SecretSpec> {
    let Some(elements) = reader.list(value, "a list of secrets") else { return Vec::new() };
    let mut secrets: Vec<SecretSpec> = Vec::new();
    for element in elements {
        let Some(secret) = secret(reader, element) else { continue };
        if secrets.iter().any(|s| s.env == secret.env) {
            let message = format!("the variable {} is given two secrets", quote(&secret.env));
            reader.fault(Code::BadSecret, element.span(), message);
        }
        secrets.push(secret);
    }
    secrets
}

fn secret(reader: &mut Reader, value: Value<'_>) -> Option<SecretSpec> {
    const KNOWN: [&str; 4] = ["env", "from_env", "from_file", "as"];
    let place = reader.place(value.span());
    if let Some(name) = value.as_str().filter(|name| values::env_name(name) != Err(values::EnvFault::Name)) {
        reader.report(
            Diagnostic::new(Code::WrongType, place, "expected an object, found text")
                .label("a secret is an object with `env`")
                .patch(place, format!("{{\"env\": \"{name}\"}}")),
        );
        return None;
    }
    let (mut env, mut from_env, mut from_file, mut hand_over) = (None, None, None, SecretHandOver::default());
    let mut good = true;
    for member in reader.object(value, "an object with `env`")? {
        match member.key.as_ref() {
            "env" => {
                let allow = |name: &str| match values::env_name(name) {
                    Ok(()) | Err(values::EnvFault::Secret) => Ok(name.to_owned()),
                    Err(values::EnvFault::Name) => Err("this is no name for a variable"),
                    Err(values::EnvFault::Denied) => Err("this variable may not be set"),
                };
                env = judged(reader, member.value, Code::BadSecret, allow);
                good &= env.is_some();
            }
            "from_env" => {
                from_env = judged(reader, member.value, Code::BadSecret, |name| match values::env_name(name) {
                    Err(values::EnvFault::Name) => Err("this is no name for a variable"),
                    _ => Ok(name.to_owned()),
                });
                good &= from_env.is_some();
            }
            "from_file" => {
                from_file = judged(reader, member.value, Code::BadSecret, |path| {
                    if path.is_empty() || path.contains('\0') { Err("this is no path") } else { Ok(path.to_owned()) }
                });
                good &= from_file.is_some();
            }
            "as" => hand_over = reader.word(member.value, &["env", "file"]).unwrap_or_default(),
            "value" => {
                reader.sensitive.push(reader.place(member.value.span()));
                let place = reader.place(member.key_span);
                reader.report(
                    Diagnostic::new(Code::BadSecret, place, "the value of a secret does not stand in the plan")
                        .help("say where it is read at launch: `from_env` or `from_file`"),
                );
                good = false;
            }
            _ => reader.unknown_field("a secret", &member, KNOWN),
        }
    }
    if env.is_none() && good {
        missing(reader, value.span(), "a secret", "env");
    }
    Some(SecretSpec { env: env?, from_env, from_file, hand_over }).filter(|_| good)
}

fn resources(reader: &mut Reader, value: Value<'_>) -> Option<ResourceFields> {
    const KNOWN: [&str; 4] = ["cpus", "memory", "pids", "shm"];
    let mut fields = ResourceFields::default();
    for member in reader.object(value, "an object")? {
        match member.key.as_ref() {
            "cpus" => fields.cpus = cpus(reader, member.value),
            "memory" => {
                fields.memory = reader.size(member.value);
                if fields.memory.is_some_and(|bytes| bytes < 6 << 20) {
                    let message = "an engine takes no less than 6 MiB of memory";
                    reader.fault(Code::BadSize, member.value.span(), message);
                }
            }
            "pids" => {
                fields.pids = reader.integer(member.value, "from 1 up");
                if fields.pids == Some(0) {
                    reader.fault(Code::BadNumber, member.value.span(), "a container needs at least 1 process");
                }
            }
            "shm" => fields.shm = reader.size(member.value),
            _ => reader.unknown_field("resources", &member, KNOWN),
        }
    }
    Some(fields)
}

fn cpus(reader: &mut Reader, value: Value<'_>) -> Option<f64> {
    if value.kind() != Kind::Number {
        reader.wrong_type(value, "a number of cores");
        return None;
    }
    let cpus = value.raw().parse::<f64>().ok().filter(|cpus| (0.01..=1024.0).contains(cpus));
    if cpus.is_none() {
        reader.fault(Code::BadNumber, value.span(), "expected a number of cores from 0.01 to 1024");
    }
    cpus
}

fn mounts(reader: &mut Reader, value: Value<'_>) -> Option<Vec<MountSpec>> {
    let mut mounts: Vec<MountSpec> = Vec::new();
    for element in reader.list(value, "a list of mounts")? {
        let Some(mount) = mount(reader, element) else { continue };
        if mounts.iter().any(|m| m.target == mount.target) {
            reader.fault(Code::BadMount, element.span(), "two mounts have the same target");
        }
        mounts.push(mount);
    }
    Some(mounts)
}

fn mount(reader: &mut Reader, value: Value<'_>) -> Option<MountSpec> {
    const KNOWN: [&str; 3] = ["source", "target", "read_only"];
    let (mut source, mut target, mut read_only) = (None, None, true);
    let (mut has_source, mut has_target) = (false, false);
    for member in reader.object(value, "an object with `source` and `target`")? {
        match member.key.as_ref() {
            "source" => {
                has_source = true;
                source = judged(reader, member.value, Code::BadMount, values::mount_source);
            }
            "target" => {
                has_target = true;
                target = judged(reader, member.value, Code::BadMount, values::mount_target);
            }
            "read_only" => read_only = reader.bool(member.value).unwrap_or(true),
            _ => reader.unknown_field("a mount", &member, KNOWN),
        }
    }
    for (has, field) in [(has_source, "source"), (has_target, "target")] {
        if !has {
            missing(reader, value.span(), "a mount", field);
        }
    }
    Some(MountSpec { source: source?, target: target?, read_only })
}

fn backoff(reader: &mut Reader, value: Value<'_>) -> Option<BackoffFields> {
    const KNOWN: [&str; 2] = ["initial", "max"];
    let mut fields = BackoffFields::default();
    for member in reader.object(value, "an object with `initial` and `max`")? {
        match member.key.as_ref() {
            "initial" => fields.initial = reader.duration(member.value),
            "max" => fields.max = reader.duration(member.value),
            _ => reader.unknown_field("retry_backoff", &member, KNOWN),
        }
    }
    Some(fields)
}

fn rate_limit(reader: &mut Reader, value: Value<'_>) -> Option<RateLimit> {
    const KNOWN: [&str; 3] = ["exit_codes", "pattern", "scope"];
    let mut limit = RateLimit { exit_codes: Vec::new(), pattern: None, scope: RateLimitScope::default() };
    for member in reader.object(value, "an object with `exit_codes` and `pattern`")? {
        match member.key.as_ref() {
            "exit_codes" => {
                if let Some(elements) = reader.list(member.value, "a list of exit codes") {
                    let codes = elements.filter_map(|code| reader.integer::<u8>(code, "from 0 to 255"));
                    limit.exit_codes = codes.map(i32::from).collect();
                }
            }
            "pattern" => limit.pattern = pattern(reader, member.value),
            "scope" => limit.scope = reader.word(member.value, &["task", "provider"]).unwrap_or_default(),
            _ => reader.unknown_field("rate_limit", &member, KNOWN),
        }
    }
    Some(limit)
}

fn pattern(reader: &mut Reader, value: Value<'_>) -> Option<String> {
    let text = reader.text(value)?;
    match regex::RegexBuilder::new(&text).size_limit(MOST_PATTERN_BYTES).build() {
        Ok(_) => Some(text.into_owned()),
        Err(error) => {
            let why = match error {
                // Its display draws the pattern over several lines; the last one says what is wrong.
                regex::Error::Syntax(text) => {
                    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
                }
                _ => "it grows too large when compiled".to_owned(),
            };
            let place = reader.place(value.span());
            reader.report(Diagnostic::new(Code::BadPattern, place, format!("no regular expression: {why}")));
            None
        }
    }
}
