//! The arrows between the rooms, read off the `use` lines and paths of the code itself.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, lowest first. A room knows those before it, and no other.
const ROOMS: &[&[&str]] = &[
    &["clock", "status"],
    &["spec"],
    // Ports, and the data that they speak in.
    &["observe", "runtime", "git"],
    &["record"],
    &["plan"],
    &["act"],
    &["controller"],
    &["report"],
    &["http"],
    &["settings", "error"],
    &["cli"],
    &["main", "lib"],
];

/// Files and folders that decide and never do: no clock, no I/O, no async, no adapter.
const PURE: &[&str] = &[
    "status",
    "spec",
    "plan",
    "observe",
    "record/entry.rs",
    "record/ledger.rs",
    "record/space.rs",
    "record/splice.rs",
    "controller/desired.rs",
];

/// What a pure room may not name.
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "tokio::",
    "bollard",
    "gix::",
    "hyper",
    "rustix",
    "crate::clock::SystemClock",
];

/// Lines of production code in a file, beyond which it has more than one reason to change.
const MAX_LINES: usize = 500;

struct Source {
    path: PathBuf,
    production: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&entry).expect("UTF-8");
                let production = text.split("\n#[cfg(test)]").next().unwrap_or_default().to_owned();
                found.push(Source { path: entry.strip_prefix(&root).expect("inside").to_owned(), production });
            }
        }
    }
    assert!(found.len() > 40, "the walk finds the code");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.trim_start())).filter(|(_, line)| !line.starts_with("//"))
}

fn room(path: &Path) -> &str {
    let first = path.components().next().expect("not empty").as_os_str().to_str().expect("UTF-8");
    first.strip_suffix(".rs").unwrap_or(first)
}

fn level(room: &str) -> usize {
    let level = ROOMS.iter().position(|rooms| rooms.contains(&room));
    level.unwrap_or_else(|| panic!("src/{room} is a new room: give it a place in the order of rooms"))
}

/// Rooms that a line names, as `crate::room` or in a `use crate::{…}` list.
fn named(line: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        let name: &str = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let lower = name.chars().next().is_some_and(char::is_lowercase);
        if lower && ROOMS.iter().any(|rooms| rooms.contains(&name)) {
            names.push(name);
        }
    }
    names
}

#[test]
fn arrows_point_to_lower_rooms_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        let from = room(&source.path);
        for (number, line) in code_lines(&source.production) {
            assert!(!line.starts_with("use crate::{"), "{}:{number}: one `use` for each room", source.path.display());
            for to in named(line).into_iter().filter(|to| *to != from && level(to) > level(from)) {
                wrong.push(format!("src/{}:{number}: {from} → {to}: {line}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point up:\n{}", wrong.join("\n"));
}

#[test]
fn pure_rooms_name_no_effect() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| PURE.iter().any(|pure| source.path.starts_with(pure))) {
        for (number, line) in code_lines(&source.production) {
            if let Some(effect) = EFFECTS.iter().find(|effect| line.contains(**effect)) {
                wrong.push(format!("src/{}:{number}: {effect}: {line}", source.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "effects in pure rooms:\n{}", wrong.join("\n"));
}

#[test]
fn adapters_are_named_only_where_they_live_and_where_they_are_wired() {
    let mut wrong = Vec::new();
    for source in sources() {
        let path = source.path.to_str().expect("UTF-8");
        for (number, line) in code_lines(&source.production) {
            let strays = (line.contains("bollard") && !path.starts_with("runtime/docker"))
                || (line.contains("gix::") && !path.starts_with("git"));
            if strays {
                wrong.push(format!("src/{path}:{number}: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "adapters out of their rooms:\n{}", wrong.join("\n"));
}

#[test]
fn mod_files_only_say_what_is_inside() {
    for source in sources().iter().filter(|source| source.path.ends_with("mod.rs")) {
        for (number, line) in code_lines(&source.production) {
            let item = ["fn ", "struct ", "enum ", "impl ", "trait ", "static ", "const "];
            let defines = item.iter().any(|item| line.trim_start_matches("pub ").starts_with(item));
            assert!(!defines, "src/{}:{number} defines something: {line}", source.path.display());
        }
    }
}

#[test]
fn files_have_one_reason_to_change() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| source.production.lines().count() > MAX_LINES)
        .map(|source| format!("src/{}: {} lines", source.path.display(), source.production.lines().count()))
        .collect();
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

#[test]
fn no_test_file_is_forgotten() {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let main = fs::read_to_string(suite.join("main.rs")).expect("readable");
    for entry in fs::read_dir(&suite).expect("readable").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            continue;
        }
        let name = entry.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
        let listed = main.contains(&format!("mod {name};")) || name == "main";
        assert!(listed, "tests/suite/{name} is in no `mod` line of main.rs");
    }
}
