//! Reads a whole file into [`PlanFields`].

use std::borrow::Cow;
use std::collections::HashMap;

use super::agents;
use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, Place, quote};
use super::fields::{PLAN_FIELDS, PlanFields, ProfileFields, Settings, TASK_FIELDS, TaskFields};
use super::id::{IdError, TaskId};
use super::reader::Reader;
use super::settings;
use super::text::Span;
use super::tree::{Kind, Member, Tree, Value};
use crate::status::{Published, Reason, Status, TaskStatus};

/// The newest format that is known.
pub(crate) const VERSION: u32 = 1;

/// Reads people's fields and what the blocks say of status.
pub(crate) fn read(reader: &mut Reader, tree: &Tree<'_>) -> PlanFields {
    let mut plan = PlanFields::default();
    reader.duplicate_keys(tree);
    let root = tree.root();
    if root.kind() == Kind::Null && reader.origin() == Origin::Spec {
        // Nothing but comments.
        return plan;
    }
    if root.kind() != Kind::Object {
        plan.has_tasks = true;
        reader.wrong_type(root, "an object with `tasks`");
        return plan;
    }
    for member in root.members() {
        let value = member.value;
        let errors = reader.errors;
        plan.has_tasks |= member.key == "tasks";
        if value.kind() == Kind::Null && member.key != "tasks" {
            continue;
        }
        let span = value.span();
        match member.key.as_ref() {
            "version" => version(reader, value),
            "project" => {
                plan.project = reader.text(value).filter(|name| !name.is_empty()).map(|name| (name.into_owned(), span));
            }
            "plan_id" if reader.origin() == Origin::Spec => recorded_elsewhere(reader, &member),
            "plan_id" => plan.plan_id = reader.text(value).filter(|id| !id.is_empty()).map(Into::into),
            "max_concurrent" => {
                if value.kind() == Kind::Number && value.raw() == "0" {
                    let place = reader.place(span);
                    reader.report(
                        Diagnostic::new(Code::NoSlots, place, "with no slots no task could ever run")
                            .help("to launch nothing for a while, set `\"suspend\": true`"),
                    );
                } else {
                    plan.max_concurrent = reader.integer(value, "from 1 up").map(|n| (n, span));
                }
            }
            "suspend" => plan.suspend = reader.bool(value).map(|on| (on, span)),
            "runtime" => plan.runtime = reader.word(value, &["docker", "process"]).map(|kind| (kind, span)),
            "agents" => agents(reader, value, &mut plan),
            "defaults" => {
                plan.defaults_place = Some(reader.place(member.key_span));
                if let Some(members) = reader.object(value, "an object") {
                    plan.defaults = settings_of(reader, members, "defaults");
                }
            }
            "secrets" => plan.secrets = settings::secrets(reader, value),
            "tasks" => tasks(reader, value, &mut plan),
            _ => reader.unknown_field("the plan", &member, PLAN_FIELDS),
        }
        plan.at_fault |= reader.errors > errors && member.key != "tasks";
    }
    plan
}

fn version(reader: &mut Reader, value: Value<'_>) {
    let Some(version) = reader.integer::<u32>(value, "from 1 up") else { return };
    if version != VERSION {
        let place = reader.place(value.span());
        let message = format!("this is version {version} of the format; this program knows version {VERSION}");
        let help = if version > VERSION {
            "the file was written for a newer orchestrate; update it"
        } else {
            "the first version is 1"
        };
        reader.report(Diagnostic::new(Code::Version, place, message).help(help));
    }
}

fn settings_of<'a>(reader: &mut Reader, members: impl Iterator<Item = Member<'a>>, scope: &'static str) -> Settings {
    let mut settings = Settings::default();
    for member in members {
        if Settings::FIELDS.contains(&member.key.as_ref()) {
            settings::read(reader, &mut settings, &member);
        } else if TASK_FIELDS.contains(&member.key.as_ref()) {
            let place = reader.place(member.key_span);
            let message = format!("{} is a task's own field and asks for nothing in {scope}", quote(&member.key));
            reader.report(Diagnostic::new(Code::UnknownField, place, message));
        } else {
            reader.unknown_field(scope, &member, Settings::FIELDS);
        }
    }
    settings
}

fn agents(reader: &mut Reader, value: Value<'_>, plan: &mut PlanFields) {
    let Some(members) = reader.object(value, "an object of profiles") else { return };
    for member in members {
        let place = reader.place(member.key_span);
        let name = id(reader, &member.key, place);
        let Some(inner) = reader.object(member.value, "an object") else { continue };
        let settings = settings_of(reader, inner, "a profile");
        if name.is_some() {
            plan.agents.insert(member.key.into_owned(), ProfileFields { settings, place });
        }
    }
}

/// Checks an id or a profile's name.
fn id(reader: &mut Reader, text: &str, place: Place) -> Option<TaskId> {
    match TaskId::new(text) {
        Ok(id) => Some(id),
        Err(error) => {
            let diagnostic = Diagnostic::new(Code::BadId, place, error.to_string());
            let mended = mend_id(text);
            let diagnostic = match (error, mended) {
                (IdError::BadCharacter(bad), mended) if !bad.is_ascii() => {
                    let diagnostic =
                        diagnostic.label(format!("U+{:04X} is no letter of ASCII, however it looks", u32::from(bad)));
                    match mended {
                        Some(mended) => diagnostic.help(format!("for instance `{mended}`")),
                        None => diagnostic,
                    }
                }
                (_, Some(mended)) => diagnostic.help(format!("for instance `{mended}`")),
                (_, None) => diagnostic,
            };
            reader.report(diagnostic);
            None
        }
    }
}

/// What an id may have been meant to be.
fn mend_id(text: &str) -> Option<String> {
    let mut mended = String::new();
    for c in text.trim().chars().take(super::id::MAX_LEN) {
        let c = if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        if !(mended.ends_with(['.', '-']) && matches!(c, '.' | '-')) {
            mended.push(c);
        }
    }
    let mended = mended.trim_matches(['.', '-', '_']);
    TaskId::new(mended).ok().map(|id| id.to_string())
}

/// Without regard to case; most ids need no copy.
fn folded(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) { Cow::Owned(text.to_ascii_lowercase()) } else { text }
}

fn tasks<'a>(reader: &mut Reader, value: Value<'a>, plan: &mut PlanFields) {
    let mut seen: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut refused = Vec::new();
    let mut add = |reader: &mut Reader, task: Option<TaskFields>, text: Option<Cow<'a, str>>, keyed: bool| {
        let (Some(task), Some(text)) = (task, text) else { return };
        match seen.get(&text) {
            None => {
                seen.insert(text, plan.tasks.len());
                plan.tasks.push(task);
            }
            Some(&first) => {
                let first = &plan.tasks[first];
                let same = first.id == task.id;
                // In an object it is a duplicate key, which is told already.
                if !(keyed && same) {
                    let message = if same {
                        format!("two tasks have the id {}", quote(task.id.as_str()))
                    } else {
                        format!("the id {} differs from another one only in case", quote(task.id.as_str()))
                    };
                    reader.report(
                        Diagnostic::new(Code::DuplicateId, task.place, message)
                            .label("the second one")
                            .also(first.place, "the first one"),
                    );
                }
            }
        }
    };
    match value.kind() {
        Kind::Array => {
            for element in value.elements() {
                let task = task(reader, element, None, &mut refused);
                add(reader, task, element.get("id").and_then(Value::as_str).map(folded), false);
            }
        }
        Kind::Object => {
            for member in value.members() {
                let task = task(reader, member.value, Some((&member.key, member.key_span)), &mut refused);
                add(reader, task, Some(folded(member.key)), true);
            }
        }
        _ => reader.wrong_type(value, "a list of tasks or an object keyed by id"),
    }
    plan.refused.extend(refused);
}

/// Ids that are refused go to `refused`, so that what depends on them is not told to depend on nothing.
fn task(
    reader: &mut Reader,
    value: Value<'_>,
    key: Option<(&str, Span)>,
    refused: &mut Vec<Box<str>>,
) -> Option<TaskFields> {
    if value.kind() != Kind::Object {
        reader.wrong_type(value, "a task, which is an object");
        return None;
    }
    let mut own: Option<(String, Span)> = None;
    let mut has_id = false;
    let mut settings: Option<Box<Settings>> = None;
    let (mut title, mut description, mut prompt) = (None, None, None);
    let mut dependencies: Option<Vec<(Box<str>, Place)>> = None;
    let mut dependencies_at: Option<Span> = None;
    let mut published = Published::default();
    let mut has_status = false;
    let mut has_other = false;
    let errors = reader.errors;
    for member in value.members() {
        let inner = member.value;
        let name = member.key.as_ref();
        if name == "id" {
            has_id = true;
            own = reader.text(inner).map(|id| (id.into_owned(), inner.span()));
            continue;
        }
        if TaskStatus::FIELDS.contains(&name) {
            has_status |= name == "status";
            status_field(reader, &member, &mut published);
            continue;
        }
        if inner.kind() == Kind::Null {
            continue;
        }
        has_other |= !name.starts_with("x-") && !name.starts_with('_');
        match name {
            "title" => title = reader.text(inner).map(Into::into),
            "description" => description = reader.plain(inner).filter(|text| !text.trim().is_empty()),
            "prompt" => prompt = reader.plain(inner).filter(|text| !text.trim().is_empty()),
            "dependencies" | "depends_on" => {
                if let Some(first) = dependencies_at.replace(member.key_span) {
                    let message = "`dependencies` and `depends_on` are two names of the same field";
                    let place = reader.place(member.key_span);
                    let first = reader.place(first);
                    // The same name twice is told as a duplicate key.
                    if first.span.len() != place.span.len() {
                        reader.report(Diagnostic::new(Code::DuplicateKey, place, message).also(first, "the first one"));
                    }
                }
                dependencies = self::dependencies(reader, inner);
            }
            _ if Settings::FIELDS.contains(&name) => {
                settings::read(reader, settings.get_or_insert_default(), &member);
            }
            _ => {
                let known = TASK_FIELDS.into_iter().chain(Settings::FIELDS).chain(TaskStatus::FIELDS);
                reader.unknown_field("a task", &member, known);
            }
        }
    }
    let (text, span) = match (&own, key) {
        (Some((own, span)), Some((key, _))) if own != key => {
            let place = reader.place(*span);
            let message = format!("the task's key is {} and its id {}", quote(key), quote(own));
            reader.report(Diagnostic::new(Code::IdMismatch, place, message).help("leave the `id` out"));
            refused.extend([key.into(), own.as_str().into()]);
            return None;
        }
        (_, Some((key, span))) => (key, span),
        (Some((own, span)), None) => (own.as_str(), *span),
        (None, None) => {
            if !has_id {
                let start = value.span().start;
                let place = reader.place(Span { start, end: start + 1 });
                reader.report(Diagnostic::new(Code::MissingField, place, "a task needs an `id`").label("this task"));
            }
            return None;
        }
    };
    let place = reader.place(span);
    let Some(id) = id(reader, text, place) else {
        refused.push(text.into());
        return None;
    };
    let status_only = has_status && !has_other;
    let ran = published.attempt > 0 || !matches!(published.status, None | Some(Status::Pending | Status::Blocked));
    let is_record = status_only && ran;
    let at_fault = reader.errors > errors;
    Some(TaskFields {
        id,
        place,
        title,
        description,
        prompt,
        dependencies,
        settings,
        published,
        status_only,
        is_record,
        is_unnamed: false,
        at_fault,
    })
}

fn dependencies(reader: &mut Reader, value: Value<'_>) -> Option<Vec<(Box<str>, Place)>> {
    if let Some(text) = value.as_str() {
        let place = reader.place(value.span());
        let mended = serde_json::to_string(&[text]).expect("BUG: texts are JSON");
        reader.report(
            Diagnostic::new(Code::WrongType, place, "expected a list of ids, found text")
                .label("expected a list")
                .patch(place, mended),
        );
        return None;
    }
    let elements = reader.list(value, "a list of ids")?;
    let mut list: Vec<(Box<str>, Place)> = Vec::new();
    for element in elements {
        let Some(text) = reader.text(element) else { continue };
        let place = reader.place(element.span());
        list.push((text.into(), place));
    }
    Some(list)
}

fn status_field(reader: &mut Reader, member: &Member<'_>, published: &mut Published) {
    let value = member.value;
    let name = member.key.as_ref();
    if reader.origin() == Origin::Spec {
        if name == "status" {
            recorded_elsewhere(reader, member);
        }
        return;
    }
    match name {
        "status" => {
            let text = value.as_str();
            published.status = text.as_deref().and_then(Status::from_word);
            if published.status.is_none() && value.kind() != Kind::Null {
                let place = reader.place(value.span());
                let words = Status::ALL.map(Status::as_str);
                let mut diagnostic = Diagnostic::new(
                    Code::UnknownStatus,
                    place,
                    format!("{} is no status and will be written over", quote(text.as_deref().unwrap_or(value.raw()))),
                )
                .help(format!("known are {}", words.map(|w| format!("`{w}`")).join(", ")));
                if let Some(near) = text.and_then(|text| reader.nearest(&text, words)) {
                    diagnostic = diagnostic.label(format!("did you mean `{near}`?"));
                }
                reader.report(diagnostic);
            }
        }
        "attempt" => published.attempt = value.raw().parse().unwrap_or(0),
        "reason" => published.reason = value.as_str().as_deref().and_then(Reason::from_word),
        _ => {}
    }
}

/// A field of ours in the YAML spec, where nobody looks for it.
fn recorded_elsewhere(reader: &mut Reader, member: &Member<'_>) {
    let place = reader.place(member.key_span);
    let message = format!("{} is recorded in the plan file; here it asks for nothing", quote(&member.key));
    let diagnostic = Diagnostic::new(Code::StatusInSpec, place, message);
    reader.report(if member.key == "status" {
        diagnostic.help("to run a task again use `orchestrate retry`")
    } else {
        diagnostic.help("remove it")
    });
}

/// Names of all profiles that a task may ask for.
pub(crate) fn agent_names(plan: &PlanFields) -> impl Iterator<Item = &str> {
    agents::BUILT_IN.into_iter().chain(plan.agents.keys().map(String::as_str))
}
