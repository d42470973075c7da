//! Sets our fields in the text of a plan file and leaves every other byte as people wrote it. Pure.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::edit::{Field, Output, Scalar, edit_object, fields, write_members, write_text};
use super::layout::{Gaps, Layout, indent_before};
use crate::spec::TaskId;
use crate::spec::tree::{Kind, Member, Tree, Value};
use crate::status::TaskStatus;

/// What is to stand in the file.
#[derive(Debug)]
pub struct Wanted<'a, F> {
    /// The plan's id, at the top level.
    pub plan_id: &'a str,
    /// The status of a task, by its id; `None` leaves the task as it is.
    pub status_of: F,
    /// The content that those statuses were decided on. A task whose `status` or `attempt` someone changed since then
    /// is left as it is: the change may be a request that nobody has judged yet. `None`: nothing can be lost.
    pub seen: Option<&'a Tree<'a>>,
    /// Tasks that are described elsewhere and need a block for their status: added at the end where they are missing.
    pub add: &'a [TaskId],
    /// Tasks that are described elsewhere no more: their blocks are removed, where those hold nothing but our fields.
    pub drop: &'a [TaskId],
}

/// A new text, and what was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spliced {
    /// The file's new text; `None` where nothing changes.
    pub text: Option<String>,
    /// Whether something was left as it is because it changed since [`Wanted::seen`].
    pub unseen: bool,
}

/// Why a file that is JSON cannot be written to: it cannot be told whose fields to set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// The outermost value is no object with `tasks` as a list or an object.
    #[error("it holds no `tasks`")]
    NoTasks,
    /// A key that decides or is ours stands twice in one object.
    #[error("the key {key:?} stands twice in one object")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// Two tasks have one id.
    #[error("two tasks have the id {id:?}")]
    DuplicateId {
        /// The id.
        id: String,
    },
}

const PLAN_ID: &str = "plan_id";
pub(super) const TASKS: &str = "tasks";

/// Sets the fields that are ours in the text of `newest`. Linear in the text, one output buffer.
///
/// A field of ours that has the wanted value in another spelling is not touched; nor is `null` where nothing is wanted.
///
/// # Errors
/// Where an ambiguous file would make a guess of it; nothing is to be written then.
pub fn splice<'s, F>(newest: &Tree<'_>, wanted: &Wanted<'_, F>) -> Result<Spliced, SpliceError>
where
    F: Fn(&str) -> Option<&'s TaskStatus>,
{
    let top: Vec<Member<'_>> = newest.root().members().collect();
    let plan_id = unique(&top, PLAN_ID)?;
    let tasks = unique(&top, TASKS)?.ok_or(SpliceError::NoTasks)?;
    if !matches!(tasks.kind(), Kind::Array | Kind::Object) {
        return Err(SpliceError::NoTasks);
    }
    let seen = wanted.seen.map(Seen::new);
    if seen.as_ref().is_some_and(|seen| is_other_plan(plan_id, wanted.plan_id, seen)) {
        return Ok(Spliced { text: None, unseen: true });
    }

    let layout = Layout::of(newest, &top);
    let mut out = Output::of(newest.text());
    let mut unseen = false;
    let top_fields = [Field { name: PLAN_ID, value: Some(Scalar::Text(wanted.plan_id)) }];
    // The tasks are edited when the walk over the top level comes to them, so that all edits are made front to back.
    edit_object(&mut out, newest.root(), &top, &top_fields, &layout, None, |out, member| {
        if member.key == TASKS {
            unseen = edit_tasks(out, member, wanted, seen.as_ref(), &layout)?;
        }
        Ok(())
    })?;
    Ok(Spliced { text: out.finish(), unseen })
}

/// Edits, removes and adds tasks; whether one was passed over because it changed since it was seen.
fn edit_tasks<'s, F>(
    out: &mut Output<'_>,
    tasks: &Member<'_>,
    wanted: &Wanted<'_, F>,
    seen: Option<&Seen<'_>>,
    layout: &Layout<'_>,
) -> Result<bool, SpliceError>
where
    F: Fn(&str) -> Option<&'s TaskStatus>,
{
    let text = out.source();
    let dropped: HashSet<&str> = wanted.drop.iter().map(TaskId::as_str).collect();
    let mut ids = HashSet::new();
    let mut unseen = false;
    let mut walked = Walked::default();
    let mut list = tasks_of(tasks.value).peekable();
    while let Some(task) = list.next() {
        let place = task.start..task.value.span().range().end;
        let members: Vec<_> = task.value.members().collect();
        let mut stays = true;
        if let Some(id) = task.id(&members)? {
            let status = (wanted.status_of)(&id);
            let found = Mark::of(&members);
            let is_unseen = seen.is_some_and(|seen| seen.get(&id) != Some(&found))
                && !status.is_some_and(|status| found.is(status));
            if dropped.contains(&*id) && task.is_bare(&members) {
                stays = is_unseen;
                unseen |= is_unseen;
            } else if let Some(status) = status {
                unseen |= is_unseen;
                if !is_unseen {
                    let indent = indent_before(text, task.start);
                    edit_object(out, task.value, &members, &fields(status), layout, indent, |_, _| Ok(()))?;
                }
            }
            if let Some(id) = ids.replace(id) {
                return Err(SpliceError::DuplicateId { id: id.into_owned() });
            }
        }
        walked.gaps.push(text, place.clone(), list.peek().map(|next| next.start));
        if stays {
            walked.last_kept = Some(task.value);
        } else {
            out.edit(match walked.end {
                Some(end) => end..place.end,
                None => place.start..list.peek().map_or(place.end, |next| next.start),
            });
        }
        if stays || walked.end.is_some() {
            walked.end = Some(place.end);
        }
    }
    let missing = wanted.add.iter().filter(|id| ids.insert(Cow::Borrowed(id.as_str())));
    let missing: Vec<_> = missing.filter_map(|id| Some((id, (wanted.status_of)(id.as_str())?))).collect();
    if !missing.is_empty() {
        add_blocks(out, tasks, &walked, layout, &missing);
    }
    Ok(unseen)
}

/// What a walk over the tasks leaves behind.
#[derive(Default)]
pub(super) struct Walked<'a> {
    gaps: Gaps<'a>,
    /// Where the newest task ends, whether it stays or not, as soon as one stays.
    end: Option<usize>,
    last_kept: Option<Value<'a>>,
}

impl<'a> Walked<'a> {
    /// Passes over a task that stays.
    pub(super) fn keep(&mut self, text: &'a str, task: &Task<'a>, next: Option<&Task<'a>>) {
        let end = task.value.span().range().end;
        self.gaps.push(text, task.start..end, next.map(|next| next.start));
        self.last_kept = Some(task.value);
        self.end = Some(end);
    }
}

/// Adds blocks after the last task.
pub(super) fn add_blocks(
    out: &mut Output<'_>,
    tasks: &Member<'_>,
    Walked { gaps, end, last_kept }: &Walked<'_>,
    layout: &Layout<'_>,
    missing: &[(&TaskId, &TaskStatus)],
) {
    let text = out.source();
    let inside = tasks.value.span().range().start + 1..tasks.value.span().range().end - 1;
    let around = layout.style_inside(indent_before(text, tasks.key_span.range().start));
    let separator = gaps.separator(text, inside.start).unwrap_or_else(|| around.separator.clone());
    // A block over several lines, unless the one before it stands in one.
    let line = separator.rfind('\n').map(|at| &separator[at + 1..]);
    let indent = line.map(|line| &line[..line.len() - line.trim_start().len()]);
    let indent = indent.filter(|_| last_kept.is_none_or(|task| task.raw().contains('\n')));
    let style = layout.style_inside(indent);
    let is_empty = gaps.end().is_none();
    // Where all were removed, what stood around them stays.
    let out = out.edit(match end.or(gaps.end()) {
        Some(end) => end..end,
        None => inside,
    });
    if is_empty {
        out.push_str(&around.open);
    }
    for (at, (id, status)) in missing.iter().enumerate() {
        if at > 0 || end.is_some() {
            out.push_str(&separator);
        }
        let id_field = Field { name: "id", value: Some(Scalar::Text(id.as_str())) };
        let fields = fields(status);
        if tasks.value.kind() == Kind::Object {
            write_text(id.as_str(), out);
            out.push_str(style.colon);
        }
        let id_field = (tasks.value.kind() == Kind::Array).then_some(&id_field);
        out.push('{');
        out.push_str(&style.open);
        write_members(id_field.into_iter().chain(&fields), &style, out);
        out.push_str(&style.close);
        out.push('}');
    }
    if is_empty {
        out.push_str(&around.close);
    }
}

/// Whether the file has become another plan's since it was seen, or had its id taken away.
fn is_other_plan(found: Option<Value<'_>>, wanted: &str, seen: &Seen<'_>) -> bool {
    let found = found.and_then(Value::as_str);
    found.as_deref() != Some(wanted) && found != seen.plan_id
}

pub(super) fn unique<'a>(members: &[Member<'a>], key: &str) -> Result<Option<Value<'a>>, SpliceError> {
    let mut all = members.iter().filter(|member| member.key == key);
    let first = all.next().map(|member| member.value);
    if all.next().is_some() { Err(SpliceError::DuplicateKey { key: key.to_owned() }) } else { Ok(first) }
}

/// A task in the file, however `tasks` is written.
pub(super) struct Task<'a> {
    /// The key of a map's entry.
    key: Option<Cow<'a, str>>,
    /// Where it begins: the key of a map's entry, else the value.
    pub(super) start: usize,
    pub(super) value: Value<'a>,
}

impl<'a> Task<'a> {
    /// Its id; `None` for what is no task.
    pub(super) fn id(&self, members: &[Member<'a>]) -> Result<Option<Cow<'a, str>>, SpliceError> {
        match &self.key {
            Some(_) if self.value.kind() != Kind::Object => Ok(None),
            Some(key) => Ok(Some(key.clone())),
            None => Ok(unique(members, "id")?.and_then(Value::as_str)),
        }
    }

    /// Whether nothing stands in it but its id and our fields.
    fn is_bare(&self, members: &[Member<'a>]) -> bool {
        members.iter().all(|member| {
            (self.key.is_none() && member.key == "id") || TaskStatus::FIELDS.iter().any(|field| *field == member.key)
        })
    }
}

pub(super) fn tasks_of(tasks: Value<'_>) -> impl Iterator<Item = Task<'_>> {
    let listed = tasks.elements().map(|value| (None, value.span(), value));
    let keyed = tasks.members().map(|member| (Some(member.key), member.key_span, member.value));
    listed.chain(keyed).map(|(key, place, value)| Task { key, start: place.range().start, value })
}

/// What of a task's block can be a request.
#[derive(Debug, PartialEq, Eq)]
struct Mark<'a> {
    status: Option<Cow<'a, str>>,
    attempt: Option<&'a str>,
}

impl<'a> Mark<'a> {
    fn of(members: &[Member<'a>]) -> Self {
        let find = |key| members.iter().find(|member| member.key == key).map(|member| member.value);
        let set = |key| find(key).filter(|value| value.kind() != Kind::Null);
        Self {
            status: set("status").map(|value| value.as_str().unwrap_or(Cow::Borrowed(value.raw()))),
            attempt: set("attempt").map(Value::raw),
        }
    }

    /// Whether it says what we would write anyway.
    fn is(&self, status: &TaskStatus) -> bool {
        self.status.as_deref() == Some(status.status.as_str())
            && self.attempt == status.attempt.map(|attempt| attempt.to_string()).as_deref()
    }
}

/// The marks of a content that was seen before.
struct Seen<'a> {
    plan_id: Option<Cow<'a, str>>,
    marks: HashMap<Cow<'a, str>, Mark<'a>>,
}

impl<'a> Seen<'a> {
    fn new(tree: &'a Tree<'a>) -> Self {
        let root = tree.root();
        let tasks = root.get(TASKS).into_iter().flat_map(tasks_of);
        let marks = tasks.filter_map(|task| {
            let members: Vec<_> = task.value.members().collect();
            Some((task.id(&members).ok()??, Mark::of(&members)))
        });
        let marks = marks.collect();
        Self { plan_id: root.get(PLAN_ID).and_then(Value::as_str), marks }
    }

    fn get(&self, id: &str) -> Option<&Mark<'a>> {
        self.marks.get(id)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use proptest::sample::select;
    use rstest::rstest;

    use super::*;
    use crate::spec::json;
    use crate::status::{Reason, ResultKind, Status};

    type Statuses = HashMap<String, TaskStatus>;

    fn spliced(text: &str, plan_id: &str, statuses: &Statuses, seen: Option<&str>) -> Result<Spliced, SpliceError> {
        let seen = seen.map(|seen| json::parse(seen).expect("JSON"));
        let wanted =
            Wanted { plan_id, status_of: |id: &str| statuses.get(id), seen: seen.as_ref(), add: &[], drop: &[] };
        splice(&json::parse(text).expect("JSON"), &wanted)
    }

    /// The text with `status` for the task `a` and the plan's id `p`.
    fn with(text: &str, status: &TaskStatus) -> Option<String> {
        let statuses = [("a".to_owned(), status.clone())].into();
        spliced(text, "p", &statuses, None).expect("writable").text
    }

    fn running() -> TaskStatus {
        let mut status = TaskStatus::new(Status::Running);
        status.reason = Some(Reason::Started);
        status.attempt = Some(1);
        status
    }

    #[rstest]
    #[case::lines(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\n      \"id\": \"a\"\n    }\n  ]\n}\n",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\n      \"id\": \"a\",\n      \"status\": \"running\",\n      \"reason\": \"Started\",\n      \"attempt\": 1\n    }\n  ]\n}\n"
    )]
    #[case::crlf_tabs_and_a_mark(
        "\u{feff}{\r\n\t\"plan_id\":\"p\",\r\n\t\"tasks\":[{\r\n\t\t\"id\":\"a\",\r\n\r\n\t\t\"n\":1E5\r\n\t}]\r\n}",
        "\u{feff}{\r\n\t\"plan_id\":\"p\",\r\n\t\"tasks\":[{\r\n\t\t\"id\":\"a\",\r\n\r\n\t\t\"n\":1E5,\r\n\t\t\"status\":\"running\",\r\n\t\t\"reason\":\"Started\",\r\n\t\t\"attempt\":1\r\n\t}]\r\n}"
    )]
    #[case::one_line(
        "{\"plan_id\": \"p\", \"tasks\": [{ \"id\": \"a\" }]}",
        "{\"plan_id\": \"p\", \"tasks\": [{ \"id\": \"a\", \"status\": \"running\", \"reason\": \"Started\", \"attempt\": 1 }]}"
    )]
    #[case::minified(
        "{\"tasks\":[{\"id\":\"a\",\"x\":[1, 2]}]}",
        "{\"tasks\":[{\"id\":\"a\",\"x\":[1, 2],\"status\":\"running\",\"reason\":\"Started\",\"attempt\":1}],\"plan_id\":\"p\"}"
    )]
    #[case::one_line_tasks_in_a_list_of_lines(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\"id\": \"a\"},\n    {\"id\": \"b\"}\n  ]\n}",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\"id\": \"a\", \"status\": \"running\", \"reason\": \"Started\", \"attempt\": 1},\n    {\"id\": \"b\"}\n  ]\n}"
    )]
    #[case::leading_commas(
        "{ \"plan_id\": \"p\"\n, \"tasks\": [\n  { \"id\": \"a\"\n  , \"x\": 1\n  }\n]}",
        "{ \"plan_id\": \"p\"\n, \"tasks\": [\n  { \"id\": \"a\"\n  , \"x\": 1\n  , \"status\": \"running\"\n  , \"reason\": \"Started\"\n  , \"attempt\": 1\n  }\n]}"
    )]
    #[case::an_empty_object_in_lines(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": {\n    \"a\": {}\n  }\n}",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": {\n    \"a\": {\n      \"status\": \"running\",\n      \"reason\": \"Started\",\n      \"attempt\": 1\n    }\n  }\n}"
    )]
    #[case::an_empty_object_in_a_line(
        "{\"plan_id\":\"p\",\"tasks\":{\"a\":{ }}}",
        "{\"plan_id\":\"p\",\"tasks\":{\"a\":{\"status\":\"running\",\"reason\":\"Started\",\"attempt\":1}}}"
    )]
    #[case::in_place_and_beside_its_neighbours(
        "{\"plan_id\": \"p\", \"tasks\": [{\"id\": \"a\", \"attempt\": 0, \"x\": {\"status\": 1}, \"status\": \"pending\", \"y\": 2}]}",
        "{\"plan_id\": \"p\", \"tasks\": [{\"id\": \"a\", \"attempt\": 1, \"x\": {\"status\": 1}, \"status\": \"running\", \"reason\": \"Started\", \"y\": 2}]}"
    )]
    #[case::removed_at_both_ends(
        "{\"plan_id\": \"p\", \"tasks\": [{\"log\": \"l\", \"host\": 1, \"id\": \"a\",  \"status\": \"running\", \"reason\": \"Started\", \"attempt\": 1,\n\"exit_code\": 3 }]}",
        "{\"plan_id\": \"p\", \"tasks\": [{\"id\": \"a\",  \"status\": \"running\", \"reason\": \"Started\", \"attempt\": 1 }]}"
    )]
    #[case::nothing_stays(
        "{\"plan_id\": \"p\", \"tasks\": {\"a\": { \"log\": \"l\", \"host\": \"h\" }}}",
        "{\"plan_id\": \"p\", \"tasks\": {\"a\": { \"status\": \"running\", \"reason\": \"Started\", \"attempt\": 1 }}}"
    )]
    fn what_is_added_looks_like_what_is_there(#[case] before: &str, #[case] after: &str) {
        assert_eq!(with(before, &running()).as_deref(), Some(after));
        assert_eq!(with(after, &running()), None);
    }

    #[test]
    fn the_same_value_in_another_spelling_is_not_touched() {
        let mut status = running();
        status.message = Some("ä\n".into());
        status.started_at = Some("2026-05-01T10:00:00Z".parse().expect("a time"));
        let text = r#"{"plan_id": "\u0070", "tasks": [{"id": "\u0061", "status": "\u0072unning", "reason": "Started",
            "message": "\u00e4\u000a", "attempt": 1, "host": null, "started_at": "2026-05-01T12:00:00.0+02:00"}]}"#;
        assert_eq!(with(text, &status), None);
    }

    #[test]
    fn values_are_escaped() {
        let mut status = TaskStatus::new(Status::Failed);
        status.message = Some("\"\\\n\u{1b}[31m\u{0}".into());
        let text = with(r#"{"plan_id":"p","tasks":[{"id":"a"}]}"#, &status).expect("written");
        assert!(text.ends_with(r#""message":"\"\\\n\u001b[31m\u0000"}]}"#), "{text}");
    }

    #[rstest]
    #[case(r"[]", SpliceError::NoTasks)]
    #[case(r#"{"tasks": 1}"#, SpliceError::NoTasks)]
    #[case(r#"{"tasks": [], "tasks": []}"#, SpliceError::DuplicateKey { key: "tasks".into() })]
    #[case(r#"{"tasks": [{"id": "a", "id": "b"}]}"#, SpliceError::DuplicateKey { key: "id".into() })]
    #[case(r#"{"tasks": [{"id": "a", "log": 1, "log": 1}]}"#, SpliceError::DuplicateKey { key: "log".into() })]
    #[case(r#"{"tasks": [{"id": "a"}, {"id": "a"}]}"#, SpliceError::DuplicateId { id: "a".into() })]
    #[case(r#"{"tasks": {"a": {}, "a": {}}}"#, SpliceError::DuplicateId { id: "a".into() })]
    fn ambiguous_files_are_not_written(#[case] text: &str, #[case] error: SpliceError) {
        let statuses = [("a".to_owned(), running())].into();
        assert_eq!(spliced(text, "p", &statuses, None), Err(error));
    }

    #[rstest]
    #[case::in_lines(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\n      \"id\": \"z\"\n    }\n  ]\n}",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\n      \"id\": \"z\"\n    },\n    {\n      \"id\": \"a\",\n      \"status\": \"pending\"\n    }\n  ]\n}"
    )]
    #[case::one_line_each(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\"id\": \"z\"}\n  ]\n}",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\"id\": \"z\"},\n    {\"id\": \"a\", \"status\": \"pending\"}\n  ]\n}"
    )]
    #[case::empty_in_lines(
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": []\n}",
        "{\n  \"plan_id\": \"p\",\n  \"tasks\": [\n    {\n      \"id\": \"a\",\n      \"status\": \"pending\"\n    }\n  ]\n}"
    )]
    #[case::empty_map(
        "{\"plan_id\":\"p\",\"tasks\":{}}",
        "{\"plan_id\":\"p\",\"tasks\":{\"a\":{\"status\":\"pending\"}}}"
    )]
    #[case::in_the_place_of_what_is_dropped(
        "{\"plan_id\": \"p\", \"tasks\": [ {\"id\": \"b\", \"log\": 1}, {\"id\": \"b2\"} ]}",
        "{\"plan_id\": \"p\", \"tasks\": [ {\"id\": \"a\", \"status\": \"pending\"} ]}"
    )]
    #[case::what_people_wrote_is_not_dropped(
        "{\"plan_id\": \"p\", \"tasks\": [{\"id\": \"b\", \"title\": \"\"}, {\"id\": \"b2\"}, {\"id\": \"c\"}]}",
        "{\"plan_id\": \"p\", \"tasks\": [{\"id\": \"b\", \"title\": \"\"}, {\"id\": \"c\"}, {\"id\": \"a\", \"status\": \"pending\"}]}"
    )]
    fn blocks_of_another_spec_are_added_and_dropped(#[case] before: &str, #[case] after: &str) {
        let id = |id| TaskId::new(id).expect("valid");
        let status = TaskStatus::new(Status::Pending);
        let status_of = |id: &str| (id == "a").then_some(&status);
        let wanted = Wanted { plan_id: "p", status_of, seen: None, add: &[id("a")], drop: &[id("b"), id("b2")] };
        let result = splice(&json::parse(before).expect("JSON"), &wanted).expect("writable");
        assert_eq!(result.text.as_deref(), Some(after));
        let again = splice(&json::parse(after).expect("JSON"), &wanted).expect("writable");
        assert_eq!(again.text, None);
    }

    #[test]
    fn what_is_no_task_is_passed_over() {
        let text = r#"{"plan_id": "p", "tasks": [1, null, {}, {"id": 2}, [{"id": "a"}], {"id": "b"}]}"#;
        assert_eq!(with(text, &running()), None);
        assert_eq!(with(r#"{"plan_id": "p", "tasks": {"a": 1}}"#, &running()), None);
    }

    /// Would not end if any step looked back over the line or the list.
    #[rstest]
    #[case::lines("\n  ")]
    #[case::one_line("")]
    fn a_hundred_thousand_tasks_are_linear(#[case] gap: &str) {
        let tasks: Vec<_> = (0..100_000).map(|number| format!("{gap}\"t{number}\": {{}}")).collect();
        let text = format!("{{{gap}\"plan_id\": \"p\",{gap}\"tasks\": {{{}}}}}", tasks.join(","));
        let statuses: Statuses = (0..100_000).map(|number| (format!("t{number}"), running())).collect();
        let new = spliced(&text, "p", &statuses, Some(&text)).expect("writable").text.expect("written");
        assert_eq!(new.matches("\"running\"").count(), 100_000);
        assert_eq!(spliced(&new, "p", &statuses, Some(&text)), Ok(Spliced { text: None, unseen: false }));
    }

    #[test]
    fn a_request_that_nobody_has_seen_stays() {
        let statuses: Statuses = [("a".to_owned(), running()), ("b".to_owned(), running())].into();
        let file = |a: &str, b: &str| {
            format!(r#"{{"plan_id": "p", "tasks": [{{"id": "a", "status": "{a}"}}, {{"id": "b", "status": "{b}"}}]}}"#)
        };
        let seen = file("pending", "pending");
        let newest = file("cancelled", "pending");
        let result = spliced(&newest, "p", &statuses, Some(&seen)).expect("writable");
        assert!(result.unseen);
        let text = result.text.expect("the other one is written");
        assert!(text.contains(r#"{"id": "a", "status": "cancelled"}"#), "{text}");
        assert!(text.contains(r#"{"id": "b", "status": "running", "#), "{text}");

        // What it says already needs no judgement.
        let newest = newest.replace("cancelled\"", "running\", \"attempt\": 1");
        assert!(!spliced(&newest, "p", &statuses, Some(&seen)).expect("writable").unseen);
        // A task that nobody has seen.
        let empty = r#"{"plan_id": "p", "tasks": []}"#;
        assert_eq!(
            spliced(&seen, "p", &statuses, Some(empty)).expect("writable"),
            Spliced { text: None, unseen: true }
        );
    }

    #[test]
    fn a_file_that_became_another_plan_is_left_alone() {
        let statuses: Statuses = [("a".to_owned(), running())].into();
        let file = |top: &str| format!(r#"{{{top}"tasks": [{{"id": "a"}}]}}"#);
        let (ours, bare, other) = (file(r#""plan_id": "p", "#), file(""), file(r#""plan_id": "q", "#));
        let left = Spliced { text: None, unseen: true };
        assert_eq!(spliced(&bare, "p", &statuses, Some(&ours)).expect("writable"), left);
        assert_eq!(spliced(&other, "p", &statuses, Some(&ours)).expect("writable"), left);
        assert_eq!(spliced(&other, "p", &statuses, Some(&bare)).expect("writable"), left);
        // The first time, and where it had been judged so.
        assert!(spliced(&bare, "p", &statuses, Some(&bare)).expect("writable").text.is_some());
        assert!(spliced(&other, "p", &statuses, Some(&other)).expect("writable").text.is_some());
    }

    // ----- ugly but valid files -----

    /// A file, its gaps not yet filled: `\u{1}` where white space may stand, `\u{2}` where a style may break the line.
    fn any_file() -> impl Strategy<Value = String> {
        let people = select(vec!["title", "x", "ünï", "Status", "deps", "a\\\"b", "statu\\u0073es"]);
        let number = select(vec!["0", "-0", "1E5", "12345678901234567890123", "1.50", "-1e-7"]);
        let leaf = prop_oneof![
            number.prop_map(str::to_owned),
            select(vec!["null", "true", "\"\"", "\"a,b:{}[]\\\"\"", "\"\\u00e4\\/\"", "\"ä\""]).prop_map(str::to_owned),
        ];
        let value = leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|all| bracket('[', &all, ']')),
                prop::collection::vec((select(vec!["status", "k"]), inner), 0..2).prop_map(|all| {
                    let mut all: Vec<_> = all.into_iter().map(|(key, value)| member(key, &value)).collect();
                    all.dedup_by_key(|member| member[..4].to_owned());
                    bracket('{', &all, '}')
                }),
            ]
        });
        let ours = (
            select(TaskStatus::FIELDS.to_vec()),
            select(vec![
                "null",
                "1",
                "1.0",
                "-0",
                "\"pending\"",
                "\"\\u0070ending\"",
                "\"Started\"",
                "true",
                "{\u{1}}",
                "\"2026-05-01T10:00:00+00:00\"",
            ]),
        );
        let own = prop::collection::vec((people, value).prop_map(|(key, value)| (key.to_owned(), value)), 0..4);
        let ours = prop::collection::vec(ours.prop_map(|(key, value)| (key.to_owned(), value.to_owned())), 0..7);
        let task = (own, ours).prop_flat_map(|(own, ours)| {
            let mut seen = HashSet::new();
            let all: Vec<_> = own.into_iter().chain(ours).filter(|(key, _)| seen.insert(key.clone())).collect();
            Just(all).prop_shuffle()
        });
        let tasks = prop::collection::vec((task, any::<prop::sample::Index>()), 0..6);
        (tasks, any::<bool>(), select(vec!["", "p", "q"]), any::<bool>()).prop_map(|(tasks, keyed, plan_id, first)| {
            let object = |members: &[(String, String)]| {
                let members: Vec<_> = members.iter().map(|(key, value)| member(key, value)).collect();
                bracket('{', &members, '}')
            };
            let tasks: Vec<_> = tasks
                .into_iter()
                .enumerate()
                .map(|(number, (mut members, at))| {
                    if keyed {
                        return member(&format!("t{number}"), &object(&members));
                    }
                    members.insert(at.index(members.len() + 1), ("id".to_owned(), format!("\"t{number}\"")));
                    object(&members)
                })
                .collect();
            let tasks = if keyed { bracket('{', &tasks, '}') } else { bracket('[', &tasks, ']') };
            let mut top = vec![member("version", "1"), member("tasks", &tasks), member("z", "[]")];
            if !plan_id.is_empty() {
                top.insert(if first { 0 } else { 2 }, member("plan_id", &format!("\"{plan_id}\"")));
            }
            top.truncate(if first { 4 } else { 3 });
            bracket('{', &top, '}')
        })
    }

    fn member(key: &str, value: &str) -> String {
        format!("\"{key}\"\u{1}:\u{1}{value}")
    }

    fn bracket(open: char, items: &[String], close: char) -> String {
        if items.is_empty() {
            return format!("{open}\u{1}{close}");
        }
        format!("{open}\u{2}{}\u{2}{close}", items.join("\u{1},\u{2}"))
    }

    /// Fills the gaps: each style its own way, or any white space anywhere.
    fn laid_out() -> impl Strategy<Value = String> {
        let style = select(vec![("", ""), (" ", " "), ("", "\n  "), (" ", "\r\n\t"), ("\n", "\n\n"), ("?", "?")]);
        let spaces = prop::collection::vec(select(vec!["", " ", "\n", "\r\n", "\t", "\n    ", "  "]), 1..40);
        (any_file(), style, spaces, any::<bool>(), any::<bool>()).prop_map(|(file, (one, two), spaces, bom, end)| {
            let mut spaces = spaces.into_iter().cycle();
            let mut text = if bom { "\u{feff}".to_owned() } else { String::new() };
            for c in file.chars() {
                match c {
                    '\u{1}' | '\u{2}' if one == "?" => text.push_str(spaces.next().unwrap_or_default()),
                    '\u{1}' => text.push_str(one),
                    '\u{2}' => text.push_str(two),
                    c => text.push(c),
                }
            }
            text + if end { "\n" } else { "" }
        })
    }

    fn any_status() -> impl Strategy<Value = TaskStatus> {
        let text = || prop::option::of(select(vec![String::new(), "pending".into(), "ä\"\n".into()]));
        let time = || {
            prop::option::of(
                select(vec![1_777_629_600i64, 0]).prop_map(|s| Timestamp::from_second(s).expect("in range")),
            )
        };
        let words =
            (select(Status::ALL.to_vec()), prop::option::of(select(Reason::ALL.to_vec())), prop::option::of(0u32..3));
        let numbers = (prop::option::of(-1i64..300), prop::option::of(any::<bool>()));
        (words, numbers, [text(), text(), text(), text(), text(), text(), text(), text()], [time(), time(), time()])
            .prop_map(
                |((status, reason, attempt), (exit_code, stale), texts, [started_at, finished_at, not_before])| {
                    let [message, container_id, container, host, branch, worktree, base_commit, head_commit] = texts;
                    let log = host.clone();
                    let result = stale.map(|stale| if stale { ResultKind::Changed } else { ResultKind::Empty });
                    TaskStatus {
                        status,
                        reason,
                        message,
                        attempt,
                        container_id,
                        container,
                        host,
                        branch,
                        worktree,
                        base_commit,
                        head_commit,
                        result,
                        exit_code,
                        started_at,
                        finished_at,
                        stale,
                        silent: stale,
                        log,
                        not_before,
                    }
                },
            )
    }

    /// Everything that is people's: exact pieces, and gaps that count where nothing of ours stands in them.
    #[derive(Debug, PartialEq)]
    enum Piece {
        Exact(String),
        Gap(Option<String>),
    }

    fn pieces(text: &str) -> Vec<Piece> {
        let tree = json::parse(text).expect("JSON");
        let root = tree.root();
        let mut pieces = vec![Piece::Exact(text[..root.span().range().start].to_owned())];
        object_pieces(text, root, &[PLAN_ID], &mut pieces);
        pieces.push(Piece::Exact(text[root.span().range().end..].to_owned()));
        pieces
    }

    fn object_pieces(text: &str, object: Value<'_>, ours: &[&str], pieces: &mut Vec<Piece>) {
        let members: Vec<_> = object.members().collect();
        let inside = object.span().range().start + 1..object.span().range().end - 1;
        let (Some(first), Some(last)) = (members.first(), members.last()) else {
            pieces.push(Piece::Gap(None));
            return;
        };
        let is_ours = |member: &Member<'_>| ours.contains(&&*member.key);
        if members.iter().any(|member| !is_ours(member)) {
            pieces.push(Piece::Exact(text[inside.start..first.key_span.range().start].to_owned()));
        }
        let mut end = None;
        for member in &members {
            if is_ours(member) {
                end = None;
                continue;
            }
            pieces.push(Piece::Gap(end.map(|end: usize| text[end..member.key_span.range().start].to_owned())));
            pieces
                .push(Piece::Exact(text[member.key_span.range().start..member.value.span().range().start].to_owned()));
            if member.key == TASKS {
                let mut at = member.value.span().range().start;
                for task in tasks_of(member.value) {
                    let span = task.value.span().range();
                    pieces.push(Piece::Exact(text[at..span.start].to_owned()));
                    at = span.end;
                    if task.value.kind() == Kind::Object {
                        object_pieces(text, task.value, &TaskStatus::FIELDS, pieces);
                    }
                }
                pieces.push(Piece::Exact(text[at..member.value.span().range().end].to_owned()));
            } else {
                pieces.push(Piece::Exact(member.value.raw().to_owned()));
            }
            end = Some(member.value.span().range().end);
        }
        if members.iter().any(|member| !is_ours(member)) {
            pieces.push(Piece::Exact(text[last.value.span().range().end..inside.end].to_owned()));
        } else {
            pieces.push(Piece::Gap(None));
        }
    }

    fn id_of<'a>(task: &Task<'a>) -> Option<Cow<'a, str>> {
        task.id(&task.value.members().collect::<Vec<_>>()).expect("one")
    }

    fn block_of(tree: &Tree<'_>, id: &str) -> TaskStatus {
        let tasks = tree.root().get(TASKS).expect("there");
        let task = tasks_of(tasks).find(|task| id_of(task).as_deref() == Some(id)).expect("there");
        let ours: Vec<_> = task
            .value
            .members()
            .filter(|member| TaskStatus::FIELDS.contains(&&*member.key))
            .map(|member| format!("\"{}\":{}", member.key, member.value.raw()))
            .collect();
        serde_json::from_str(&format!("{{{}}}", ours.join(","))).expect("a status")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn only_our_fields_change_and_they_read_back(
            text in laid_out(),
            wanted in prop::collection::vec(prop::option::of(any_status()), 6),
        ) {
            let statuses: Statuses =
                wanted.into_iter().enumerate().filter_map(|(at, status)| Some((format!("t{at}"), status?))).collect();
            let result = spliced(&text, "p", &statuses, None).expect("writable");
            prop_assert!(!result.unseen);
            let new = result.text.unwrap_or_else(|| text.clone());
            let tree = json::parse(&new).map_err(|e| TestCaseError::fail(format!("{e}: {new}")))?;

            let (before, after) = (pieces(&text), pieces(&new));
            prop_assert_eq!(before.len(), after.len(), "{}\n{}", text, new);
            for pair in before.iter().zip(&after) {
                if !matches!(pair, (Piece::Gap(None), Piece::Gap(_)) | (Piece::Gap(_), Piece::Gap(None))) {
                    prop_assert_eq!(pair.0, pair.1, "{}\n{}", text, new);
                }
            }

            let plan_id = tree.root().get(PLAN_ID).and_then(Value::as_str);
            prop_assert_eq!(plan_id.as_deref(), Some("p"));
            let tasks = tree.root().get(TASKS).expect("there");
            for id in tasks_of(tasks).filter_map(|task| id_of(&task)) {
                if let Some(status) = statuses.get(&*id) {
                    prop_assert_eq!(&block_of(&tree, &id), status, "{}", new);
                }
            }
            // Again with the same, or with the first content as what was seen: nothing to do.
            prop_assert_eq!(spliced(&new, "p", &statuses, None), Ok(Spliced { text: None, unseen: false }));
            prop_assert_eq!(spliced(&new, "p", &statuses, Some(&text)), Ok(Spliced { text: None, unseen: false }));
        }

        #[test]
        fn blocks_come_and_go_and_the_rest_stays(
            text in laid_out(),
            add in prop::collection::btree_set(0..9u8, 0..4),
            drop in prop::collection::btree_set(0..6u8, 0..6),
        ) {
            let name = |number: &u8| format!("t{number}");
            let statuses: Statuses = add.iter().map(|number| (name(number), running())).collect();
            let add: Vec<_> = add.iter().map(|number| TaskId::new(&name(number)).expect("valid")).collect();
            let drop: Vec<_> = drop.iter().map(|number| TaskId::new(&name(number)).expect("valid")).collect();
            let drop: Vec<_> = drop.into_iter().filter(|id| !add.contains(id)).collect();
            let spliced = |text: &str| {
                let status_of = |id: &str| statuses.get(id);
                splice(&json::parse(text).expect("JSON"), &Wanted { plan_id: "p", status_of, seen: None, add: &add, drop: &drop })
            };
            let new = spliced(&text).expect("writable").text.unwrap_or_else(|| text.clone());
            let before = json::parse(&text).expect("JSON");
            let after = json::parse(&new).map_err(|e| TestCaseError::fail(format!("{e}: {new}")))?;
            let tasks = |tree: &Tree<'_>| -> Vec<(String, String, bool)> {
                let all = tasks_of(tree.root().get(TASKS).expect("there"));
                let all = all.map(|task| {
                    let members: Vec<_> = task.value.members().collect();
                    (id_of(&task).expect("one").into_owned(), task.value.raw().to_owned(), task.is_bare(&members))
                });
                all.collect()
            };
            let (mut expected, found) = (tasks(&before), tasks(&after));
            expected.retain(|(id, _, is_bare)| !(*is_bare && drop.iter().any(|drop| drop.as_str() == id)));
            for id in &add {
                if expected.iter().all(|(there, ..)| there != id.as_str()) {
                    expected.push((id.to_string(), String::new(), true));
                }
            }
            prop_assert_eq!(expected.len(), found.len(), "{}\n{}", text, new);
            for (expected, found) in expected.iter().zip(&found) {
                prop_assert_eq!(&expected.0, &found.0);
                if let Some(status) = statuses.get(&expected.0) {
                    prop_assert_eq!(&block_of(&after, &expected.0), status);
                } else {
                    prop_assert_eq!(&expected.1, &found.1);
                }
            }
            let has_line_ends = |text: &str| text.contains('\n');
            // What stands between the brackets of an empty list gives way to what is put there.
            let list = before.root().get(TASKS).expect("there").span().range();
            let mut laid_out = text.clone();
            if expected.iter().all(|(_, raw, _)| raw.is_empty()) && tasks(&before).is_empty() {
                laid_out.replace_range(list.start + 1..list.end - 1, "");
            }
            prop_assert!(has_line_ends(laid_out.trim_end()) == has_line_ends(new.trim_end()) || new == text, "{}", new);
            prop_assert_eq!(spliced(&new), Ok(Spliced { text: None, unseen: false }), "{}", new);
        }

        #[test]
        fn a_damaged_file_is_refused_or_stays_json(
            text in laid_out(),
            at in any::<prop::sample::Index>(),
            with in select(vec!["", "{", "}", "]", ",", "\"", ":", "\\", "id", "0", "\"id\":\"t0\",", "{},", "\u{0}"]),
            drop in any::<bool>(),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            let text: String = chars[..at].iter().copied().chain(with.chars()).chain(chars[at + 1..].iter().copied()).collect();
            let Ok(tree) = json::parse(&text) else { return Ok(()) };
            let (status, ids) = (running(), ["t0", "t1", "t9"].map(|id| TaskId::new(id).expect("valid")));
            let (add, drop) = if drop { ([].as_slice(), ids.as_slice()) } else { (ids.as_slice(), [].as_slice()) };
            let wanted = Wanted { plan_id: "p", status_of: |_: &str| Some(&status), seen: None, add, drop };
            if let Ok(Spliced { text: Some(new), .. }) = splice(&tree, &wanted) {
                let new = json::parse(&new).map_err(|e| TestCaseError::fail(format!("{e}: {new}")))?;
                prop_assert_eq!(splice(&new, &wanted), Ok(Spliced { text: None, unseen: false }));
            }
        }

        #[test]
        fn our_fields_are_those_of_the_status(status in any_status()) {
            let mut text = String::new();
            for field in fields(&status) {
                if let Some(value) = field.value {
                    text.push(if text.is_empty() { '{' } else { ',' });
                    write_text(field.name, &mut text);
                    text.push(':');
                    value.write(&mut text);
                }
            }
            prop_assert_eq!(text + "}", serde_json::to_string(&status).expect("plain data"));
        }
    }
}
