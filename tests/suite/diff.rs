//! `diff`: what a task changed, and that nothing an agent planted has a say in it.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::project::Project;

/// A project without an engine whose task runs this.
fn after(script: &str) -> Project {
    let project = Project::at("unix:///no/engine.sock".to_owned());
    project.commit_file("one.txt", "one\ntwo\nthree\n");
    fs::write(project.repo().join("gone.bin"), b"a\0b").expect("written");
    project.git(&["add", "."]);
    project.git(&["commit", "-q", "-m", "More"]);
    project.write_plan(&json!({
        "runtime": "process",
        "tasks": [
            { "id": "api", "agent": "shell", "command": ["sh", "-c", script], "leftovers": "keep" },
            { "id": "later", "agent": "shell", "command": ["true"], "dependencies": ["api"] },
        ],
    }));
    drop(project.run(&["--allow-unconfined", "run", "--until-done", "--timeout", "200s"]).expect(0));
    project
}

const WORK: &str = "printf 'one\\n2\\nthree' > one.txt; rm gone.bin; mkdir -p 'a b'; printf 'x\\n' > 'a b/\u{e4}.txt'; \
                    printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; ln -s one.txt link; : > empty; \
                    git add -A; git commit -q -m Work; echo more >> README.md; echo new > loose.txt";

#[test]
fn a_pipe_gets_a_patch_that_git_takes() {
    let project = after(WORK);
    let ran = project.run(&["diff", "api"]).expect(0);
    // Git refuses a patch that names a binary file and does not hold it.
    let parts = ran.stdout.split("diff --git ").filter(|part| !part.is_empty() && !part.contains("Binary files"));
    let text_only = parts.fold(String::new(), |text, part| text + "diff --git " + part);
    let clean = project.repo().parent().expect("a folder").join("clean");
    project.git(&["worktree", "add", "-q", "--detach", clean.to_str().expect("UTF-8"), "main"]);
    let mut apply = Command::new("git");
    apply.args(["apply", "--index", "-"]).current_dir(&clean).stdin(Stdio::piped());
    let mut apply = apply.spawn().expect("git runs");
    apply.stdin.take().expect("piped").write_all(text_only.as_bytes()).expect("written");
    assert!(apply.wait().expect("ends").success(), "{text_only}");
    for (path, text) in [("one.txt", "one\n2\nthree"), ("a b/\u{e4}.txt", "x\n"), ("loose.txt", "new\n"), ("empty", "")]
    {
        assert_eq!(fs::read_to_string(clean.join(path)).expect("made"), text, "{path}");
    }
    assert_eq!(fs::read_link(clean.join("link")).expect("a link"), std::path::Path::new("one.txt"));
    assert!(ran.stdout.contains("Binary files a/gone.bin and /dev/null differ"), "{}", ran.stdout);
    assert!(ran.stderr.contains("8 files changed in 1 commit"), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 files of the worktree not on the branch (README.md, loose.txt)"), "{}", ran.stderr);
}

#[test]
fn names_and_counts_are_those_of_git() {
    let project = after(WORK);
    let ours = project.run(&["diff", "api", "--committed", "--name-only"]).expect(0).stdout;
    let theirs =
        project.git(&["-c", "core.quotePath=false", "diff", "--no-renames", "--name-only", "main", "agent/api"]);
    assert_eq!(ours.trim_end(), theirs);
    let stat = project.run(&["diff", "api", "--committed", "--stat"]).expect(0);
    assert!(stat.stdout.contains(" one.txt") && stat.stdout.contains(" | 4 ++--\n"), "{}", stat.stdout);
    assert!(!stat.stdout.contains('\u{1b}'), "a pipe gets no colour");
    let before = project.git(&["count-objects"]);
    drop(project.run(&["diff", "api"]).expect(0));
    assert_eq!(project.git(&["count-objects"]), before, "nothing is written");
}

#[test]
fn where_there_is_nothing_to_show_it_says_why() {
    let project = after("true");
    let ran = project.run(&["diff", "api"]).expect(2);
    assert!(ran.stderr.contains("changed nothing"), "{}", ran.stderr);
    drop(project.run(&["diff", "aip"]).expect(2));
    let fresh = Project::at("unix:///no/engine.sock".to_owned());
    fresh.write_plan(&json!({ "tasks": [{ "id": "api", "prompt": "p" }] }));
    let ran = fresh.run(&["diff", "api"]).expect(2);
    assert!(ran.stderr.contains("was never launched"), "{}", ran.stderr);
}

#[test]
fn nothing_that_an_agent_planted_runs() {
    let project = after(
        "echo x > x.txt; echo '* diff=evil filter=evil' > .gitattributes; git add -A; git commit -q -m W; echo y > y.txt",
    );
    let mark = project.ran().join("mark");
    let touch = format!("touch {}", mark.display());
    // As an agent with shared access could have.
    for name in [
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "filter.evil.clean",
        "core.pager",
        "core.fsmonitor",
    ] {
        project.git(&["config", name, &touch]);
    }
    let ran = project.run(&["diff", "api"]).expect(0);
    assert!(ran.stdout.contains("+x\n") && ran.stdout.contains("+y\n"), "{}", ran.stdout);
    drop(project.run(&["diff", "api", "--stat"]).expect(0));
    assert!(!mark.exists(), "something ran");
}
