//! The program as a person and a script meet it, without an engine: standard output, standard error and exit code
//! together, in an environment that holds nothing but what is named here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use orchestrate::error::ExitCode;
use orchestrate::record::{Holder, OsFiles, StateLock};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::project::{PROGRAM, Project};

/// A person's folder with a repository in it, and no engine.
struct Person {
    dir: TempDir,
}

const PLAN: &str = r#"{
  "max_concurrent": 2,
  "tasks": [
    {"id": "api", "title": "Build the API", "prompt": "Build it."},
    {"id": "web", "prompt": "Show it.", "dependencies": ["api"]},
    {"id": "docs", "prompt": "Tell of it."}
  ]
}
"#;

impl Person {
    fn without_repository() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        fs::create_dir(dir.path().join("repo")).expect("makes");
        Self { dir }
    }

    fn without_commit() -> Self {
        let person = Self::without_repository();
        person.git(&["init", "-q", "-b", "main"]);
        person
    }

    /// A repository with a commit and the plan.
    fn new() -> Self {
        let person = Self::without_commit();
        person.git(&["commit", "-q", "--allow-empty", "-m", "Start"]);
        person.write(PLAN);
        person
    }

    fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    fn plan_path(&self) -> PathBuf {
        self.repo().join(".agent-tasks.json")
    }

    fn write(&self, plan: &str) {
        fs::write(self.plan_path(), plan).expect("writes");
    }

    fn git(&self, arguments: &[&str]) {
        let mut command = Command::new("git");
        command.current_dir(self.repo()).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.dir.path()).args(["-c", "user.name=P", "-c", "user.email=p@localhost"]);
        let output = command.args(arguments).output().expect("git runs");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.repo()).env_clear().stdin(Stdio::null());
        command.env("HOME", self.dir.path()).env("DOCKER_HOST", "unix:///no/engine.sock").env("COLUMNS", "100");
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("runs")
    }

    /// One run as a text for a snapshot, paths of this machine taken out.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let mut text =
            format!("$ orchestrate {}\n[exit {}]\n", arguments.join(" "), output.status.code().unwrap_or(-1));
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            let stream = String::from_utf8(bytes.clone()).expect("UTF-8");
            let root = fs::canonicalize(self.dir.path()).expect("exists");
            let stream = stream.replace(&*root.to_string_lossy(), "[HOME]");
            let stream = stream.replace(&*self.dir.path().to_string_lossy(), "[HOME]");
            if !stream.is_empty() {
                writeln!(text, "--- {name}\n{}", stream.trim_end()).expect("a string");
            }
        }
        text
    }

    /// Several runs, one after the other.
    fn runs(&self, all: &[&[&str]]) -> String {
        all.iter().map(|arguments| self.run(arguments)).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn looking_at_a_fresh_plan_needs_no_engine() {
    insta::assert_snapshot!(Person::new().runs(&[
        &["status"],
        &["status", "-o", "wide", "web"],
        &["status", "-o", "name", "--status", "pending,running", "--sort-by", "name"],
        &["status", "--exit-status", "-o", "name"],
        &["plan"],
        &["graph"],
        &["describe", "web"],
        &["events"],
        &["review"],
        &["logs", "api"],
    ]));
}

#[test]
fn looking_changes_nothing() {
    let person = Person::new();
    drop(person.runs(&[&["status"], &["plan"], &["graph"], &["review"], &["events"], &["describe", "api"]]));
    assert_eq!(fs::read_to_string(person.plan_path()).expect("reads"), PLAN);
    assert!(!person.repo().join(".git/orchestrate").exists());
}

#[test]
fn an_engine_that_is_away_is_told_with_a_next_step() {
    let person = Person::new();
    insta::assert_snapshot!(person.runs(&[&[], &["once", "--exit-status"]]));
    let output = person.command(&["once"]).env("DOCKER_HOST", "ssh://me@host").output().expect("runs");
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let waited = person.output(&["run", "--until-done", "--stall-timeout", "1s"]);
    assert_eq!(waited.status.code(), Some(4), "{}", String::from_utf8_lossy(&waited.stderr));
}

#[test]
fn where_there_is_no_repository_or_no_plan_the_next_step_is_told() {
    insta::assert_snapshot!(Person::without_repository().runs(&[&["status"], &["init"]]));
    let person = Person::without_commit();
    insta::assert_snapshot!(person.runs(&[&["status"], &["-C", "/no/such/folder", "status"]]));
}

#[test]
fn a_repository_without_a_commit_is_told_to_make_one() {
    let person = Person::without_commit();
    person.write(PLAN);
    insta::assert_snapshot!(person.runs(&[&["review"]]));
}

#[test]
fn an_invalid_file_changes_nothing_and_every_fault_is_shown() {
    let person = Person::new();
    let invalid = PLAN.replace("[\"api\"]", "[\"apy\", \"web\"]");
    person.write(&invalid);
    insta::assert_snapshot!(person.runs(&[&["once"], &["validate"], &["plan", "-q"]]));
    assert_eq!(fs::read_to_string(person.plan_path()).expect("reads"), invalid);
    let judged = person.output(&["validate", "-o", "json"]);
    assert_eq!(judged.status.code(), Some(3));
    let judged: Value = serde_json::from_slice(&judged.stdout).expect("JSON");
    assert_eq!((&judged["valid"], judged["diagnostics"].as_array().map(Vec::len)), (&Value::Bool(false), Some(2)));
}

#[test]
fn validate_needs_neither_engine_nor_git() {
    let person = Person::without_repository();
    person.write(PLAN);
    fs::write(person.repo().join("plan.yaml"), "tasks:\n- id: a\n  prompt: p\n").expect("writes");
    insta::assert_snapshot!(person.runs(&[
        &["validate"],
        &["validate", "plan.yaml"],
        &["validate", "--spec", "plan.yaml"],
        &["validate", "-"],
        &["validate", "absent.json"],
        &["validate", "--explain", "E0018"],
        &["validate", "--explain", "E9"],
        &["validate", "-o", "github"],
    ]));
}

#[test]
fn a_second_reconciler_says_who_holds_the_lock() {
    let person = Person::new();
    let holder = Holder {
        pid: std::process::id(),
        host: "here".to_owned(),
        command: "orchestrate run".to_owned(),
        since: "2026-03-01T12:00:00Z".parse().expect("a time"),
    };
    let lock = StateLock::take(Arc::new(OsFiles), &person.repo().join(".git/orchestrate"), holder).expect("free");
    let told = person.runs(&[&["once"], &["suspend"]]).replace(&std::process::id().to_string(), "[PID]");
    insta::assert_snapshot!(told);
    drop(lock);
    assert_eq!(person.output(&["once"]).status.code(), Some(4), "the lock is free, and the engine is away");
}

#[test]
fn wishes_are_written_into_the_file_and_nothing_else_is() {
    let person = Person::new();
    insta::assert_snapshot!(person.runs(&[
        &["suspend"],
        &["suspend"],
        &["status"],
        &["resume"],
        &["retry", "api"],
        &["retry", "apj"],
        &["cancel", "api"],
    ]));
    let expected = PLAN.replace("  ]\n}", "  ],\n  \"suspend\": false\n}");
    let expected = expected.replace("\"Build it.\"", "\"Build it.\", \"status\": \"cancelled\"");
    assert_eq!(fs::read_to_string(person.plan_path()).expect("reads"), expected);
}

#[test]
fn init_writes_a_plan_that_is_valid_and_never_writes_over_one() {
    let person = Person::without_commit();
    insta::assert_snapshot!(person.runs(&[&["init"], &["init"], &["validate"], &["status", "-o", "name"]]));
    let person = Person::without_commit();
    let yaml: [&[&str]; 5] = [
        &["init", "--yaml"],
        &["init", "--yaml"],
        &["validate"],
        &["status", "-o", "name"],
        &["validate", "-o", "json"],
    ];
    insta::assert_snapshot!("init_yaml", person.runs(&yaml));
}

#[test]
fn a_wrong_command_line_is_told_with_what_was_meant() {
    insta::assert_snapshot!(Person::new().runs(&[
        &["stauts"],
        &["status", "--exit-statu"],
        &["status", "-o", "xml"],
        &["run", "--timeout", "5"],
        &["once", "--max-concurrent", "0"],
        &["logs"],
        &["describe", "AP"],
        &["logs", "nothing-like-it"],
    ]));
}

#[test]
fn flags_stand_over_variables() {
    let person = Person::new();
    let run = |flag: &[&str]| {
        let mut command = person.command(&[&["status"], flag].concat());
        command.current_dir("/").env("ORCHESTRATE_DIR", person.repo()).env("ORCHESTRATE_OUTPUT", "name");
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert_eq!(run(&[]), "api\nweb\ndocs\n");
    assert!(run(&["-o", "json"]).starts_with('{'));
    let other = person.dir.path().join("other.json");
    fs::write(&other, r#"{"tasks": [{"id": "x", "prompt": "p"}]}"#).expect("writes");
    assert_eq!(run(&["--file", other.to_str().expect("UTF-8")]), "x\n");
    let logs = person.command(&["logs", "x"]).env("ORCHESTRATE_FILE", &other).output().expect("runs");
    assert!(String::from_utf8_lossy(&logs.stderr).contains("`x` was never launched"));
}

#[test]
fn colour_is_for_terminals_and_for_those_who_ask() {
    let person = Person::new();
    let has_colour = |command: &mut Command| {
        let output = command.output().expect("runs");
        [output.stdout, output.stderr].concat().contains(&0x1b)
    };
    assert!(!has_colour(&mut person.command(&["once"])));
    assert!(has_colour(&mut person.command(&["once", "--color", "always"])));
    assert!(has_colour(person.command(&["once"]).env("CLICOLOR_FORCE", "1")));
    assert!(!has_colour(person.command(&["once"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1")));
    assert!(has_colour(&mut person.command(&["--help", "--color=always"])));
    assert!(!has_colour(&mut person.command(&["--help"])));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let person = Person::new();
    let mut child = person.command(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    // Closed before a byte is read.
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let all: [&[&str]; 17] = [
        &["status"],
        &["status", "-o", "json"],
        &["status", "-o", "name"],
        &["plan"],
        &["plan", "-o", "json"],
        &["describe", "api"],
        &["graph"],
        &["graph", "-o", "svg"],
        &["events"],
        &["review"],
        &["doctor"],
        &["validate"],
        &["completions", "bash"],
        &["completions", "elvish"],
        &["man"],
        &["--help"],
        &["--version"],
    ];
    for arguments in all {
        let mut child =
            person.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(70), "{arguments:?}: {told}");
        assert!(!told.contains("roken pipe") && !told.contains("os error 32"), "{arguments:?}: {told}");
        if arguments != ["doctor"] {
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn the_schema_of_doctor_is_the_one_in_its_file() {
    let printed = Person::new().output(&["schema", "doctor"]).stdout;
    let kept = fs::read(specs().join("doctor.schema.json")).unwrap_or_default();
    assert!(printed == kept, "run `orchestrate schema doctor > specs/doctor.schema.json`");
}

#[test]
fn status_as_json_keeps_to_its_schema_and_the_schema_to_its_file() {
    let person = Person::new();
    let printed = person.output(&["schema", "status"]).stdout;
    let kept = fs::read(specs().join("status.schema.json")).unwrap_or_default();
    assert!(printed == kept, "run `orchestrate schema status > specs/status.schema.json`");
    let schema: Value = serde_json::from_slice(&printed).expect("JSON");
    let status: Value = serde_json::from_slice(&person.output(&["status", "-o", "json"]).stdout).expect("JSON");
    let known = |value: &Value, schema: &Value| {
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        assert!(required.clone().all(|name| !value[name].is_null()), "{value}");
        let names = value.as_object().expect("an object").keys();
        assert!(names.clone().all(|name| !schema["properties"][name].is_null()), "{value}");
    };
    known(&status, &schema);
    known(&status["summary"], &schema["$defs"]["Summary"]);
    for task in status["tasks"].as_array().expect("a list") {
        known(task, &schema["$defs"]["TaskView"]);
    }
}

#[test]
fn yaml_says_what_json_says() {
    let person = Person::new();
    person.write(&PLAN.replace("Build the API", "yes: [no] # - *a \u{202e}x").replace("Build it.", "1.10"));
    for arguments in [&["status", "api"][..], &["describe", "web"], &["plan"], &["review"], &["status"]] {
        let with = |format: &str| {
            let output = person.output(&[arguments, &["-o", format]].concat());
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        let (json, yaml) = (with("json"), with("yaml"));
        assert!(!yaml.contains('\u{202e}'), "{yaml}");
        let path = person.dir.path().join("out.yaml");
        fs::write(&path, &yaml).expect("writes");
        // Another's reader, where there is one, is the better judge.
        let script = "import sys,json,yaml; print(json.dumps(yaml.load(open(sys.argv[1]), yaml.BaseLoader)))";
        let read = Command::new("python3").args(["-c", script]).arg(&path).output().expect("python3 runs");
        assert!(!yaml.starts_with('{') || yaml.contains("\\u202e"), "{yaml}");
        if String::from_utf8_lossy(&read.stderr).contains("No module named 'yaml'") {
            continue;
        }
        let read: Value = serde_json::from_slice(&read.stdout).expect("JSON");
        let wanted: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(texts(&read), texts(&wanted), "{yaml}");
    }
}

/// All scalars as their texts, times left out, which differ between two runs.
fn texts(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, _)| *name != "at").map(|(name, value)| (name.clone(), texts(value)));
            Value::Object(kept.collect())
        }
        Value::Array(list) => list.iter().map(texts).collect(),
        Value::String(text) => Value::String(text.clone()),
        Value::Null => Value::String("null".to_owned()),
        other => Value::String(other.to_string()),
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    let person = Person::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = person.output(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && script.contains("ORCHESTRATE_COMPLETE"), "{shell}: {script}");
    }
    let output = person.output(&["man", "--out", "pages"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for command in commands(&person) {
        assert!(person.repo().join("pages").join(format!("orchestrate-{command}.1")).is_file(), "{command}");
    }
}

/// What a shell's script is answered for a line, the last word being typed.
fn completed(person: &Person, words: &[&str]) -> Vec<String> {
    let mut command = person.command(&[&["--", "orchestrate"], words].concat());
    command.env("ORCHESTRATE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.env("_CLAP_IFS", "\n").output().expect("runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn a_shell_completes_commands_flags_values_and_task_ids() {
    let person = Person::new();
    assert_eq!(completed(&person, &["stat"]), ["status"]);
    assert_eq!(completed(&person, &["run", "--until"]), ["--until-done"]);
    assert_eq!(completed(&person, &["status", "--sort-by", "na"]), ["name"]);
    assert_eq!(completed(&person, &["describe", ""]).iter().filter(|word| !word.starts_with('-')).count(), 3);
    assert_eq!(completed(&person, &["retry", "api", "d"]), ["docs"]);
    let elsewhere = Person::without_repository();
    assert_eq!(completed(&elsewhere, &["logs", "a"]), [""; 0]);
    let there = person.repo();
    assert_eq!(completed(&elsewhere, &["-C", there.to_str().expect("UTF-8"), "logs", "a"]), ["api"]);
    person.write("{");
    assert_eq!(completed(&person, &["logs", "a"]), [""; 0], "a plan that cannot be read completes nothing");
}

#[test]
fn without_a_home_a_terminal_or_a_locale_everything_can_be_looked_at() {
    let person = Person::new();
    let looks: [&[&str]; 10] = [
        &["status"],
        &["status", "-o", "wide"],
        &["plan"],
        &["describe", "web"],
        &["graph"],
        &["events"],
        &["review"],
        &["validate"],
        &["schema"],
        &["help"],
    ];
    for arguments in looks {
        let with = person.output(arguments);
        let mut command = person.command(arguments);
        let without = command.env_remove("HOME").output().expect("runs");
        assert_eq!(without.status.code(), with.status.code(), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&without.stdout).len(), String::from_utf8_lossy(&with.stdout).len());
        assert!(without.status.code() == Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&without.stderr));
    }
}

#[test]
fn what_removes_things_refuses_in_a_pipe_without_being_told() {
    let project = Project::at("unix:///no/engine.sock".to_owned());
    project.write_plan(&serde_json::json!({
        "runtime": "process",
        "tasks": [{ "id": "api", "agent": "shell", "command": ["true"] }],
    }));
    drop(project.run(&["--allow-unconfined", "run", "--until-done", "--timeout", "200s"]).expect(0));
    let worktree = project.repo().join(".worktrees/api");
    for arguments in [&["clean", "--all"][..], &["clean", "api", "--force"], &["clean", "--all", "-o", "json"]] {
        let ran = project.run(arguments).expect(2);
        assert!(ran.stderr.contains("`--yes` does it without asking"), "{}", ran.stderr);
        assert!(worktree.is_dir(), "{arguments:?}");
    }
    drop(project.run(&["clean", "--all", "--yes"]).expect(0));
    assert!(!worktree.exists());
}

/// The first plan of the README, as a person pastes it, but for the one command that needs an engine and a token.
#[test]
fn the_first_plan_of_the_readme_does_what_it_says() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("readable");
    let plan = readme.split("## A first plan").nth(1).and_then(|rest| rest.split("```sh\n").nth(1)).expect("a block");
    let plan = plan.split("```").next().expect("an end");
    assert_eq!(plan.matches("\norchestrate run --until-done").count(), 1, "{plan}");
    let script = plan.replace("\norchestrate run --until-done", "\n: orchestrate run");
    let person = Person::without_commit();
    person.git(&["commit", "-q", "--allow-empty", "-m", "Start"]);
    let bin = person.dir.path().join("bin");
    fs::create_dir(&bin).expect("makes");
    std::os::unix::fs::symlink(PROGRAM, bin.join("orchestrate")).expect("links");
    let mut shell = Command::new("bash");
    shell.args(["-euc", &script]).current_dir(person.repo()).env_clear().stdin(Stdio::null());
    shell.env("HOME", person.dir.path()).env("DOCKER_HOST", "unix:///no/engine.sock");
    shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
    let output = shell.output().expect("runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    for wanted in ["schema", "e2e", "4 tasks: 4 pending"] {
        assert!(told.contains(wanted), "{wanted}:\n{told}");
    }
}

/// Names of all commands, off the help.
fn commands(person: &Person) -> Vec<String> {
    let help = String::from_utf8(person.output(&["--help"]).stdout).expect("UTF-8");
    let lines = help.lines().take_while(|line| !line.starts_with("Global options"));
    let listed = lines.filter(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    let names: Vec<String> = listed.map(str::to_owned).collect();
    assert!(names.len() >= 18, "{help}");
    names
}

#[test]
fn every_help_page_explains_itself() {
    let person = Person::without_repository();
    insta::assert_snapshot!(person.runs(&[&["--help"], &["--version"]]));
    for command in commands(&person) {
        let pages = [&[&*command, "--help"][..], &[&*command, "-h"], &["help", &*command]];
        let pages: Vec<Output> = pages.iter().map(|arguments| person.output(arguments)).collect();
        let page = String::from_utf8(pages[0].stdout.clone()).expect("UTF-8");
        for other in &pages {
            assert_eq!((other.status.code(), other.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
            assert_eq!(String::from_utf8_lossy(&other.stdout), page, "{command}");
        }
        assert!(page.contains(&format!("Usage: orchestrate {command}")), "{page}");
        let examples = page.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(examples.contains(&format!("orchestrate {command}")), "{command} without an example of its own");
        let first = page.lines().next().unwrap_or_default();
        assert!(!first.ends_with('.') && first.starts_with(char::is_uppercase), "{command}: {first}");
    }
}

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("specs")
}

#[test]
fn the_document_knows_every_exit_code_and_every_command() {
    let document = fs::read_to_string(specs().join("cli.md")).expect("readable");
    let rows: Vec<String> =
        ExitCode::ALL.iter().map(|code| format!("| {} | {} |", code.number(), code.meaning())).collect();
    for row in &rows {
        assert!(document.lines().any(|line| line == row), "specs/cli.md lacks:\n{row}");
    }
    let told: BTreeSet<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
    for command in commands(&Person::without_repository()) {
        assert!(told.iter().any(|line| line.starts_with(&format!("| `{command}"))), "specs/cli.md lacks {command}");
    }
}
