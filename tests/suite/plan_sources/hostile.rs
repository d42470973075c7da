//! What a hostile plan file says never reaches a terminal raw: titles, ids, values, names of files, words of diagnostics.
//! Asked through a real terminal, since some things are told to terminals only.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::project::{PROGRAM, Project};
use crate::support::web::program;

/// Clears the screen, sets the window's title, rings, goes back, turns the direction of text, breaks the line.
const EVIL: &str = "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{8}\u{9b}2J\u{202e}\u{2066}\u{2028}\r\n\u{0}\u{200f}y";

/// Runs a command with a terminal as its output; gives what the terminal was sent.
fn on_terminal(project: &Project, arguments: &[&str]) -> String {
    let script = program("script").expect("looked before");
    let plain = project.command(&[]);
    let words: Vec<String> = std::iter::once(PROGRAM)
        .chain(arguments.iter().copied())
        .map(|word| format!("'{}'", word.replace('\'', "'\\''")))
        .collect();
    let mut command = Command::new(script);
    command.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]).current_dir(project.repo()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("TERM", "xterm-256color");
    let output = command.stdin(Stdio::null()).output().expect("runs");
    String::from_utf8(output.stdout).expect("a terminal is sent text")
}

/// The text without what is ours to send and without the terminal's own carriage returns.
fn uncoloured(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|c: char| !(c.is_ascii_digit() || c == ';')).unwrap_or(after.len());
        // Colours, and what the live table goes back and clears the rest of a line with.
        let is_ours = after[end..].starts_with(['m', 'F', 'K']) || after.starts_with('J');
        assert!(is_ours, "not ours: {after:?} in {text:?}");
        rest = &after[end + 1..];
    }
    plain.push_str(rest);
    plain.replace("\r\n", "\n")
}

#[track_caller]
fn assert_tame(what: &str, text: &str) {
    let plain = uncoloured(text);
    let raw = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(plain.chars().find(raw), None, "{what}: {plain:?}");
    assert!(!plain.contains("not-to-be-shown"), "{what}: {plain}");
}

const LOOKS: [&[&str]; 15] = [
    &["status"],
    &["status", "-o", "wide"],
    &["status", "-o", "json"],
    &["plan"],
    &["describe", "a"],
    &["describe", "gone"],
    &["why", EVIL_WORD],
    &["events"],
    &["events", "-o", "json"],
    &["graph"],
    &["graph", "-o", "mermaid"],
    &["review"],
    &["logs", "a"],
    &["validate"],
    &["once"],
];

/// As an argument may be: without a NUL.
const EVIL_WORD: &str = "x\u{1b}[2J\u{202e}y";

#[test]
fn a_plan_that_is_accepted_cannot_drive_a_terminal() {
    if program("script").is_none() {
        return;
    }
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    let tame = EVIL.replace('\0', "");
    let secret = project.ran().join("secret");
    fs::write(&secret, "not-to-be-shown\n").expect("written");
    project.plan_with(
        json!({ "runtime": "process", "project": EVIL, EVIL: EVIL, "x-note": EVIL }),
        json!([
            { "id": "a", "title": EVIL, "description": tame, "prompt": tame, "nonsense": EVIL, EVIL: 1,
              "env": { "API_TOKEN": "plain" }, "secrets": [{ "env": "KEY", "from_file": secret }],
              "command": ["sh", "-c", "printf '\\033[2Jloud\\007\\n'; echo $KEY; exit 3"] },
            { "id": "gone", "title": EVIL, "command": [format!("/no/{tame}")] },
            { "id": "late", "title": EVIL, "dependencies": ["a"], "status": EVIL, "command": ["true"],
              "base": "main", "message": EVIL, "log": EVIL },
        ]),
    );
    for looks in [&LOOKS[..], &LOOKS[..]] {
        for arguments in looks {
            assert_tame(&format!("{arguments:?}"), &on_terminal(&project, arguments));
        }
        let ran = project.run(&["run", "--until-done"]).expect(1);
        assert_tame("run", &(ran.stdout + &ran.stderr));
    }
    assert_eq!(project.task("a")["exit_code"], json!(3), "it was run");
    let status = project.run(&["status", "-o", "json"]).expect(0).stdout;
    let view: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(view["tasks"][0]["title"], json!(EVIL), "programs get what was written");
}

#[test]
fn a_plan_that_is_refused_cannot_drive_a_terminal() {
    if program("script").is_none() {
        return;
    }
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    let judge = |name: &str| {
        for arguments in [&["validate", name][..], &["validate", "-o", "github", name], &["-f", name, "status"]] {
            assert_tame(&format!("{arguments:?}"), &on_terminal(&project, arguments));
        }
    };
    let hostile = json!({
        "max_concurrent": EVIL, "runtime": EVIL, EVIL: 1, "version": EVIL,
        "agents": { EVIL: { "image": EVIL } },
        "defaults": { "timeout": EVIL, "network": EVIL, "user": EVIL, "base": EVIL, "resources": { "memory": EVIL } },
        "tasks": [
            { "id": EVIL, "prompt": 1 }, { "id": "a", "agent": EVIL, "dependencies": [EVIL, EVIL], "command": EVIL },
            { "id": "b", "env": { "LD_PRELOAD": EVIL, EVIL: EVIL, "MY_PASSWORD": "not-to-be-shown" }, "timeout": 1, "image": EVIL,
              "mounts": [{ "source": EVIL, "target": EVIL }] },
        ],
    });
    fs::write(project.repo().join("bad.json"), hostile.to_string()).expect("written");
    judge("bad.json");
    // Raw, in and out of texts, cut off, and not even UTF-8.
    let raw = format!("{{\"tasks\": [{{\"id\": \"{EVIL}\", \"env\": {{\"A_SECRET\": \"not-to-be-shown\"}}, {EVIL} }}");
    for text in [raw.as_bytes(), &raw.as_bytes()[..40], &[raw.as_bytes(), b"\xff\x9b2J"].concat(), EVIL.as_bytes()] {
        for name in ["raw.json", "raw.yaml", &format!("{EVIL_WORD}.json")] {
            fs::write(project.repo().join(name), text).expect("written");
            judge(name);
        }
    }
    let yaml = "project: \"\\e[2J\\u202e\"\ntasks:\n- id: \"\\e[2J\\a\"\n  \"\\e]0;x\\a\": 1\n- id: b\n  timeout: \"\\x9b2J\"\n  env: {MY_TOKEN: \
                not-to-be-shown, \"\\e\": x}\n";
    fs::write(project.repo().join("evil.yaml"), yaml).expect("written");
    judge("evil.yaml");
    for code in ["E0007", "E9999", EVIL_WORD] {
        assert_tame(code, &on_terminal(&project, &["validate", "--explain", code]));
    }
}
