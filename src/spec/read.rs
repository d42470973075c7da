//! The entry: bytes in, validated set or faults out.

use std::collections::BTreeSet;

use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, Place};
use super::fields::PlanFields;
use super::file;
use super::id::TaskId;
use super::json;
use super::merge;
use super::model::{RuntimeKind, TaskSet};
use super::reader::Reader;
use super::resolve;
use super::syntax::{SyntaxError, SyntaxErrorKind};
use super::text::Span;
use super::tree::Tree;
use super::values;
use super::yaml;
use crate::status::Published;

/// What bears on a reading beside the files.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Where attempts run, where a flag says so; it stands over the file.
    pub runtime: Option<RuntimeKind>,
    /// Tasks that the journal knows to have been started: the YAML spec cannot drop them.
    pub started: Option<&'a BTreeSet<TaskId>>,
}

/// A plan that is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The tasks.
    pub tasks: TaskSet,
    /// What each task's block says of `status` and `attempt`; in the order of `tasks`.
    pub published: Vec<Published>,
    /// Tasks that the YAML spec names, in its order: each has a block in the plan file for its status.
    pub named: Vec<TaskId>,
    /// The YAML spec says whether the plan is suspended, whatever the plan file says.
    pub is_suspend_named: bool,
    /// Tasks whose blocks in the plan file are left over, as the YAML spec no longer names them.
    pub dropped: Vec<TaskId>,
    /// What was probably not meant.
    pub warnings: Vec<Diagnostic>,
    /// Values of variables, which reports hide.
    pub sensitive: Vec<Place>,
}

/// A plan that is not accepted: nothing of it may be acted on.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// Errors and warnings in the order of the files; at least one error.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there are, beyond what anyone reads.
    pub untold: usize,
    /// Whether someone who has not finished writing could be the cause: worth another look in a moment.
    pub may_be_partial: bool,
    /// Values of variables, which reports hide.
    pub sensitive: Vec<Place>,
}

/// Reads a plan file.
///
/// # Errors
/// Every fault that was found.
pub fn read(bytes: &[u8], options: ReadOptions<'_>) -> Result<Accepted, Refused> {
    read_both(Some(bytes), None, options)
}

/// Reads a plan file, a YAML spec, or both merged. With neither the set is empty.
///
/// # Errors
/// Every fault that was found in either.
pub fn read_both(plan: Option<&[u8]>, spec: Option<&[u8]>, options: ReadOptions<'_>) -> Result<Accepted, Refused> {
    let mut reader = Reader::new(Origin::Plan);
    let below = plan.map(|bytes| parse(&mut reader, bytes, json::parse));
    reader.switch(Origin::Spec);
    let over = spec.map(|bytes| parse(&mut reader, bytes, yaml::parse));
    // What is half written bears the blame for what seems to be missing, so it alone is told.
    let partial = [&below, &over].into_iter().flatten().filter_map(|r| r.as_ref().err()).copied().reduce(|a, b| a && b);
    if let Some(may_be_partial) = partial {
        return Err(refuse(reader, may_be_partial));
    }
    let mut dropped = Vec::new();
    let both = below.is_some() && over.is_some();
    let (below, over) = (below.and_then(Result::ok).unwrap_or_default(), over.and_then(Result::ok));
    let named = over.iter().flat_map(|spec| &spec.tasks).map(|task| task.id.clone()).collect();
    let is_suspend_named = over.as_ref().is_some_and(|spec| spec.suspend.is_some());
    let fields = match over {
        Some(over) if both => {
            let none = BTreeSet::new();
            merge::merge(&mut reader, below, over, options.started.unwrap_or(&none), &mut dropped)
        }
        Some(over) => over,
        None => below,
    };
    if !fields.has_tasks && (plan.is_some() || spec.is_some()) {
        let origin = if plan.is_some() { Origin::Plan } else { Origin::Spec };
        let place = Place { origin, span: Span::default() };
        reader.report(
            Diagnostic::new(Code::MissingField, place, "a plan needs `tasks`")
                .help("a list of objects with an `id`, or an object keyed by id"),
        );
    }
    finish(reader, fields, Ties { named, is_suspend_named, dropped }, options)
}

/// Reads the fields of one file; `Err` says whether it may be half written.
fn parse<'t>(
    reader: &mut Reader,
    bytes: &'t [u8],
    parse: impl FnOnce(&'t str) -> Result<Tree<'t>, SyntaxError>,
) -> Result<PlanFields, bool> {
    match json::decode(bytes).and_then(parse) {
        Ok(tree) => Ok(file::read(reader, &tree)),
        Err(error) => {
            let may_be_partial = error.kind.may_be_partial();
            let mut diagnostic = syntax(reader.origin(), &error);
            if error.kind == SyntaxErrorKind::CutOff
                && let Some(open) = std::str::from_utf8(bytes).ok().and_then(json::last_open)
            {
                diagnostic = diagnostic.also(reader.place(open), "this is still open");
            }
            reader.report(diagnostic);
            hide_secrets(reader, bytes, error.span);
            Err(may_be_partial)
        }
    }
}

/// Where there is no tree that says what is the value of a variable, names must do: what stands behind one that looks
/// like a secret is hidden around the fault.
fn hide_secrets(reader: &mut Reader, bytes: &[u8], fault: Span) {
    const AROUND: usize = 4096;
    let from = fault.range().start.saturating_sub(AROUND).min(bytes.len());
    let to = fault.range().end.saturating_add(AROUND).min(bytes.len());
    let pair = r#"([A-Za-z_][A-Za-z0-9_]*)["']?\s*:\s*("(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,{}\[\]"']+)"#;
    let pair = regex::bytes::Regex::new(pair).expect("BUG: a pattern of ours");
    for found in pair.captures_iter(&bytes[from..to]) {
        let (Some(name), Some(value)) = (found.get(1), found.get(2)) else { continue };
        if std::str::from_utf8(name.as_bytes()).is_ok_and(values::looks_secret) {
            let place = reader.place(Span::new(from + value.start(), from + value.end()));
            reader.sensitive.push(place);
        }
    }
}

/// What ties the plan file's blocks to the YAML spec.
struct Ties {
    named: Vec<TaskId>,
    is_suspend_named: bool,
    dropped: Vec<TaskId>,
}

fn finish(
    mut reader: Reader,
    plan: PlanFields,
    Ties { named, is_suspend_named, dropped }: Ties,
    options: ReadOptions<'_>,
) -> Result<Accepted, Refused> {
    let published = plan.tasks.iter().map(|task| task.published).collect();
    let tasks = resolve::resolve(&mut reader, plan, options.runtime);
    if reader.errors > 0 {
        return Err(refuse(reader, false));
    }
    reader.finish();
    sort(&mut reader.diagnostics);
    let (warnings, sensitive) = (reader.diagnostics, reader.sensitive);
    Ok(Accepted { tasks, published, named, is_suspend_named, dropped, warnings, sensitive })
}

fn refuse(mut reader: Reader, may_be_partial: bool) -> Refused {
    reader.finish();
    sort(&mut reader.diagnostics);
    let Reader { diagnostics, untold, sensitive, .. } = reader;
    Refused { diagnostics, untold, may_be_partial, sensitive }
}

/// As people read a file: from its top, and the plan file first.
fn sort(diagnostics: &mut [Diagnostic]) {
    diagnostics.sort_by_key(|d| (d.primary.place, d.code));
}

/// The diagnostic of a breach of the syntax.
fn syntax(origin: Origin, error: &SyntaxError) -> Diagnostic {
    use SyntaxErrorKind as K;
    let place = Place { origin, span: error.span };
    let with = |code: Code| Diagnostic::new(code, place, error.kind.to_string());
    match &error.kind {
        K::TooLarge(_) => with(Code::TooLarge).help("move long prompts into files and name those"),
        K::Empty => with(Code::Empty).help("`orchestrate init` writes a plan to start from"),
        K::NotUtf8 => with(Code::NotUtf8).help("save it as UTF-8"),
        K::TooMany => with(Code::TooLarge),
        K::CutOff => with(Code::CutOff).label("the file ends here"),
        K::ConflictMarkers => with(Code::ConflictMarkers)
            .help("keep one version of the lines and delete the markers; status needs no care"),
        K::ControlCharacter(0) => with(Code::ControlCharacter).help("NUL bytes are often left by a loss of power"),
        K::ControlCharacter(c) => with(Code::ControlCharacter).help(format!("in a text write it as `\\u{c:04x}`")),
        K::OpenText => with(Code::Syntax).help("close the quote, or write a line end within a text as `\\n`"),
        K::BadEscape => with(Code::BadEscape),
        K::TooDeep => with(Code::TooDeep),
        K::TrailingComma => with(Code::Syntax).label("remove it").patch(place, ""),
        K::Comment => with(Code::Syntax).help("the YAML form, `agent-tasks.yaml`, may hold comments"),
        K::Yaml(_) => with(Code::YamlSyntax),
        K::YamlFeature(_) => with(Code::YamlFeature),
        K::YamlBudget => with(Code::YamlBudget),
        K::Syntax(message) => {
            let (words, help) = match message.as_str() {
                "key must be a string" => ("a key is a text in double quotes", None),
                "expected value" => (
                    "a value is expected here",
                    Some("a text in double quotes, a number, true, false, null, a list or an object"),
                ),
                "trailing characters" => ("the file goes on after its last bracket", None),
                "expected `,` or `}`" => ("`,` or `}` is expected here", Some("a comma stands between two members")),
                "expected `,` or `]`" => ("`,` or `]` is expected here", Some("a comma stands between two items")),
                "expected `:`" => ("`:` is expected between a key and its value", None),
                other => (other, None),
            };
            let diagnostic = Diagnostic::new(Code::Syntax, place, words);
            match help {
                Some(help) => diagnostic.help(help),
                None => diagnostic,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::model::{Network, SecretSpec};
    use super::*;
    use crate::status::Status;

    fn accepted(text: &str) -> Accepted {
        read(text.as_bytes(), ReadOptions::default()).unwrap_or_else(|r| panic!("refused: {:?}", r.diagnostics))
    }

    #[test]
    fn a_bare_id_is_a_task_where_the_defaults_say_all_and_a_record_where_they_do_not() {
        let plan = |agent: &str| {
            format!(
                r#"{{"defaults":{{"agent":"{agent}","image":"i","command":["true"]}},
                    "tasks":[{{"id":"a","status":"failed","attempt":1}}]}}"#
            )
        };
        assert!(!accepted(&plan("shell")).tasks.tasks[0].is_record);
        assert!(accepted(&plan("shell").replace("true", "{{prompt}}")).tasks.tasks[0].is_record);
        let spec = "defaults: {agent: shell, image: i, command: [\"true\"]}\ntasks: [{id: b}]\n";
        let both = read_both(Some(plan("shell").as_bytes()), Some(spec.as_bytes()), ReadOptions::default());
        let both = both.unwrap_or_else(|refused| panic!("refused: {:?}", refused.diagnostics)).tasks;
        let named: Vec<(&str, bool)> = both.tasks.iter().map(|task| (task.id.as_str(), task.is_record)).collect();
        assert_eq!(named, [("b", false), ("a", true)]);
    }

    fn codes(text: &str) -> Vec<(String, String)> {
        let refused = read(text.as_bytes(), ReadOptions::default()).expect_err("refused");
        let quoted = |d: &Diagnostic| text[d.primary.place.span.range()].to_owned();
        refused.diagnostics.iter().map(|d| (d.code.to_string(), quoted(d))).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect()
    }

    #[test]
    fn a_file_of_the_chat_command_works_as_it_is() {
        let text = r#"{"max_concurrent": 2, "tasks": [
            {"id": "a", "description": "Do a", "status": "completed", "dependencies": []},
            {"id": "b", "description": "Do b", "status": "pending", "dependencies": ["a"]}
        ]}"#;
        let Accepted { tasks, published, warnings, .. } = accepted(text);
        assert_eq!(warnings, []);
        assert_eq!(tasks.max_concurrent.get(), 2);
        assert_eq!(published[0], Published { status: Some(Status::Completed), ..Published::default() });
        let b = &tasks.tasks[1];
        assert_eq!(
            (b.attempt.agent.as_str(), b.attempt.image.as_deref()),
            ("claude", Some("orchestrate/claude:latest"))
        );
        assert_eq!(b.effective_prompt(), Some("Do b"));
        assert_eq!(b.attempt.secrets[0].env, "CLAUDE_CODE_OAUTH_TOKEN");
        assert_eq!(tasks.graph.dependencies(tasks.find("b").expect("there")), [tasks.find("a").expect("there")]);
    }

    #[test]
    fn layers_lie_over_each_other() {
        let text = r#"{
            "secrets": [{"env": "SHARED", "from_file": "/s"}],
            "defaults": {"timeout": "1h", "env": {"A": "default", "B": "default"}, "resources": {"memory": "1g"}, "network": "none"},
            "agents": {
                "claude": {"env": {"B": "profile"}},
                "reviewer": {"agent": "claude", "command": ["review", "{{prompt_file}}"], "retries": 2, "timeout": "2h"}
            },
            "tasks": {
                "x": {"prompt": "p", "agent": "reviewer", "timeout": "3h", "env": {"C": "task"}, "resources": {"cpus": 1.5},
                      "secrets": [{"env": "SHARED", "from_env": "OWN"}]},
                "y": {"prompt": "p"}
            }
        }"#;
        let tasks = accepted(text).tasks;
        let x = &tasks.tasks[0].attempt;
        assert_eq!(x.timeout, Some(Duration::from_hours(3)));
        assert_eq!(x.retries, 2);
        let env: Vec<_> = x.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(env, [("A", "default"), ("B", "profile"), ("C", "task")]);
        assert_eq!((x.resources.cpus, x.resources.memory, x.resources.pids), (1.5, 1 << 30, 512));
        assert_eq!(x.network, Network::None);
        assert_eq!(x.command.as_deref().map(|c| c[0].as_str()), Some("review"));
        assert_eq!(x.image.as_deref(), Some("orchestrate/claude:latest"));
        let secrets: Vec<&SecretSpec> = x.secrets.iter().collect();
        assert_eq!(secrets[0].from_env.as_deref(), Some("OWN"));
        assert_eq!(secrets.iter().map(|s| s.env.as_str()).collect::<Vec<_>>(), ["SHARED", "CLAUDE_CODE_OAUTH_TOKEN"]);
        assert_eq!(tasks.tasks[1].attempt.timeout, Some(Duration::from_hours(1)));
    }

    #[test]
    fn all_faults_are_told_at_once_in_the_order_of_the_file() {
        let text = r#"{"version": 2, "max_concurrent": 0, "tasks": [
            {"id": "a", "prompt": "p", "dependencies": ["a", "B", "bb", "zzz"], "timeout": 30},
            {"id": "b", "prompt": "p", "dependencies": ["c"], "command": "make test", "agent": "cluade"},
            {"id": "c", "prompt": "p", "dependencies": ["b", "x y"], "env": {"LD_PRELOAD": "x", "1": "y"}},
            {"id": "C", "prompt": "p", "prompt": "q"},
            {"id": "x y"}, {}, 7
        ]}"#;
        assert_eq!(
            codes(text),
            pairs(&[
                ("E0013", "2"),
                ("E0037", "0"),
                ("E0017", "\"a\""),
                ("E0016", "\"B\""),
                ("E0016", "\"bb\""),
                ("E0016", "\"zzz\""),
                ("E0020", "30"),
                ("E0018", "\"c\""),
                ("E0023", "\"make test\""),
                ("E0019", "\"cluade\""),
                ("E0026", "\"LD_PRELOAD\""),
                ("E0025", "\"1\""),
                ("E0015", "\"C\""),
                ("E0010", "\"prompt\""),
                ("E0014", "\"x y\""),
                ("E0012", "{"),
                ("E0011", "7"),
            ])
        );
    }

    #[test]
    fn null_is_absent_and_own_fields_are_silent() {
        let text = r#"{"$schema": "s", "x-note": 1, "tasks": [{"id": "a", "prompt": "p", "image": null, "timeout": null,
            "container_id": null, "attempt": null, "_mine": {}, "log": 5}]}"#;
        assert_eq!(accepted(text).warnings, []);
    }

    #[test]
    fn an_unknown_field_is_told_once_with_the_nearest_name() {
        let text = r#"{"tasks": [{"id": "a", "promt": "p", "prompt": "p"}, {"id": "b", "promt": "p", "prompt": "p"}]}"#;
        let warnings = accepted(text).warnings;
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].message, "unknown field `promt` in a task, and once more");
        assert_eq!(warnings[0].patch.as_ref().map(|p| p.replacement.as_str()), Some("\"prompt\""));
    }

    #[test]
    fn a_shell_task_needs_an_image_only_in_containers() {
        let text = r#"{"tasks": [{"id": "a", "agent": "shell", "command": ["true"]}]}"#;
        assert_eq!(codes(text), pairs(&[("E0029", "\"a\"")]));
        let process = ReadOptions { runtime: Some(RuntimeKind::Process), ..ReadOptions::default() };
        assert!(read(text.as_bytes(), process).is_ok());
        assert!(read(text.replace("{\"id", "{\"image\": \"alpine\", \"id").as_bytes(), ReadOptions::default()).is_ok());
    }

    #[test]
    fn the_digest_sees_what_is_asked_and_nothing_else() {
        let digest = |task: &str| {
            let text = format!("{{\"tasks\": [{{\"id\": \"b\", \"prompt\": \"p\"}}, {{\"id\": \"a\", {task}}}]}}");
            accepted(&text).tasks.tasks[1].digest.clone()
        };
        let base = digest(r#""prompt": "p""#);
        assert_eq!(base, digest(r#""status": "failed", "attempt": 4, "prompt": "p", "title": "T", "x-a": 1"#));
        assert_eq!(base, digest(r#""description": "p", "dependencies": []"#));
        for other in [r#""prompt": "q""#, r#""prompt": "p", "timeout": "1h""#, r#""prompt": "p", "depends_on": ["b"]"#]
        {
            assert_ne!(base, digest(other), "{other}");
        }
        assert_eq!(digest(r#""prompt": "p", "timeout": "60m""#), digest(r#""prompt": "p", "timeout": "PT1H""#));
    }

    fn both(plan: &str, spec: &str) -> Result<Accepted, Refused> {
        read_both(Some(plan.as_bytes()), Some(spec.as_bytes()), ReadOptions::default())
    }

    #[test]
    fn the_yaml_stands_over_the_plan_file_and_differences_are_told() {
        let plan = r#"{"max_concurrent": 2, "tasks": [
            {"id": "only-json", "prompt": "p", "status": "completed", "attempt": 1},
            {"id": "both", "prompt": "old", "timeout": "1h", "retries": 1, "status": "failed", "attempt": 3}
        ]}"#;
        let spec = "max_concurrent: 4\ntasks:\n  both:\n    prompt: new\n    retries: 1\n  fresh:\n    prompt: p\n    dependencies: [both, only-json]\n";
        let Accepted { tasks, published, dropped, warnings, .. } = both(plan, spec).expect("accepted");
        let ids: Vec<&str> = tasks.tasks.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(ids, ["both", "fresh", "only-json"]);
        assert_eq!(tasks.max_concurrent.get(), 4);
        assert_eq!(tasks.tasks[0].prompt.as_deref(), Some("new"));
        assert_eq!(tasks.tasks[0].attempt.timeout, Some(Duration::from_hours(1)));
        assert_eq!(published[0], Published { status: Some(Status::Failed), attempt: 3, ..Published::default() });
        assert_eq!(published[1], Published::default());
        assert_eq!(dropped, []);
        let messages: Vec<&str> = warnings.iter().map(|w| w.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "the two files give different values of `max_concurrent`",
                "the two files give different values in the task `both`: `prompt`",
            ]
        );
    }

    #[test]
    fn a_task_that_the_yaml_stops_naming_is_dropped_while_never_started() {
        let plan = r#"{"tasks": [
            {"id": "waiting", "status": "pending", "reason": "WaitingForSlot"},
            {"id": "ran", "status": "completed", "attempt": 1, "prompt": null, "x-note": "mine"},
            {"id": "launching", "status": "pending"},
            {"id": "own", "prompt": "of the plan file", "status": "pending"}
        ]}"#;
        let started = BTreeSet::from([TaskId::new("launching").expect("valid")]);
        let options = ReadOptions { started: Some(&started), ..ReadOptions::default() };
        let spec = b"tasks: {}\n";
        let accepted = read_both(Some(plan.as_bytes()), Some(spec), options).expect("accepted");
        let ids: Vec<&str> = accepted.tasks.tasks.iter().map(|t| t.id.as_str()).collect();
        assert_eq!(ids, ["ran", "launching", "own"]);
        assert_eq!(accepted.published.len(), 3);
        assert_eq!(accepted.dropped.iter().map(TaskId::as_str).collect::<Vec<_>>(), ["waiting"]);
    }

    #[test]
    fn a_half_written_file_is_worth_another_look_and_a_wrong_one_is_not() {
        let partial = |plan: &str| read(plan.as_bytes(), ReadOptions::default()).expect_err("refused").may_be_partial;
        assert!(partial("") && partial("{\"tasks\": [{\"id\": \"a"));
        assert!(!partial("{\"tasks\": [,]}") && !partial("{\"tasks\": [{}]}"));
        assert!(both("", "a: [").is_err_and(|r| !r.may_be_partial && r.diagnostics.len() == 2));
    }

    #[test]
    fn a_profile_at_fault_is_told_once_wherever_it_is_used() {
        let text = r#"{"agents": {"a": {"agent": "nobody"}, "b": {"agent": "c"}, "c": {"agent": "b"}}, "tasks": [
            {"id": "x", "prompt": "p", "agent": "a"}, {"id": "y", "prompt": "p", "agent": "b"},
            {"id": "z", "prompt": "p", "agent": "c"}]}"#;
        assert_eq!(codes(text), pairs(&[("E0019", "\"nobody\""), ("E0018", "\"b\"")]));
    }

    #[test]
    fn what_an_engine_would_refuse_as_twice_the_same_is_told() {
        let text = r#"{"tasks": [{"id": "x", "prompt": "p", "secrets": [{"env": "A"}, {"env": "A", "from_env": "B"}],
            "mounts": [{"source": "a", "target": "/t"}, {"source": "b", "target": "/t/"}]}]}"#;
        let found: Vec<String> = codes(text).into_iter().map(|(code, _)| code).collect();
        assert_eq!(found, ["E0033", "E0032"]);
    }

    #[test]
    fn tasks_that_ask_for_the_same_share_it() {
        let text = r#"{"tasks": [{"id": "a", "prompt": "p", "timeout": "1h"}, {"id": "b", "prompt": "q", "timeout": "60m"},
            {"id": "c", "prompt": "p", "timeout": "1h", "agent": "codex"}]}"#;
        let tasks = accepted(text).tasks.tasks;
        assert!(std::sync::Arc::ptr_eq(&tasks[0].attempt, &tasks[1].attempt));
        assert_ne!(tasks[0].attempt, tasks[2].attempt);
        assert_ne!(tasks[0].digest, tasks[1].digest);
    }

    #[test]
    fn a_spec_alone_is_a_plan() {
        let spec = b"tasks:\n- id: a\n  prompt: p\n  suspend: 1\n";
        let accepted = read_both(None, Some(spec), ReadOptions::default()).expect("accepted");
        assert_eq!(accepted.tasks.tasks.len(), 1);
        assert!(read_both(None, Some(b"project: x\n"), ReadOptions::default()).is_err());
        assert!(read_both(Some(b"{\"tasks\": []}"), Some(b"# nothing\n"), ReadOptions::default()).is_ok());
    }
}
