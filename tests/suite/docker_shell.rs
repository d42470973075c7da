//! `shell` on a real engine: in a container that runs, over what an attempt left, on a terminal and in a pipe.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::support::project::{PROGRAM, Project, Ran, committing, noting};

/// Runs the program with this on its standard input.
fn fed(project: &Project, arguments: &[&str], input: &str) -> Ran {
    let mut command = project.command(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("written");
    child.wait_with_output().expect("ends").into()
}

/// Those of this repository: the engine is shared with other tests.
fn shells(project: &Project) -> String {
    let name = format!("name=orch-{}-", project.instance());
    project.docker(&["ps", "-aq", "--filter", "label=dev.orchestrate.shell", "--filter", &name]).expect(0).stdout
}

#[test]
fn in_a_container_that_runs_input_output_and_exit_code_pass_through() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "long", "command": noting("echo first; echo at it; touch here; sleep 300") }]));
    drop(project.run(&["once"]).expect(0));
    project.wait_until("it runs", |project| project.repo().join(".worktrees/long/here").exists());
    let ran =
        project.run(&["shell", "long", "--", "sh", "-c", "echo $ORCHESTRATE_TASK; pwd; echo no >&2; exit 7"]).expect(7);
    assert_eq!(ran.stdout, "long\n/project\n");
    assert_eq!(ran.stderr, "no\n");
    let wide = project.run(&["status", "-o", "wide"]).expect(0);
    assert!(wide.stdout.contains("wrote last: at it") && !wide.stdout.contains("first"), "{}", wide.stdout);
    let ran = fed(&project, &["shell", "long"], "ls\nexit 3\n").expect(3);
    assert_eq!(ran.stdout, "README.md\nhere\n");
    let ran = project.run(&["shell", "long", "--", "no-such-program"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(project.containers(), ["long-1 running"]);
    assert_eq!(shells(&project), "", "nothing was made for it");
    drop(project.run(&["cancel", "long"]).expect(0));
    drop(project.run(&["run", "--until-done", "--timeout", "200s"]).expect(1));
}

#[test]
fn on_a_terminal_it_gets_one_of_the_same_size() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "long", "command": noting("touch here; sleep 300") }]));
    drop(project.run(&["once"]).expect(0));
    project.wait_until("it runs", |project| project.repo().join(".worktrees/long/here").exists());
    let mut script = project.command(&[]);
    let program = script.get_program().to_owned();
    assert_eq!(program, PROGRAM);
    let inside = "read line; echo got $line; tty; stty size; echo $TERM; exit 9";
    let line = format!("stty rows 31 cols 97; {PROGRAM} shell long -- sh -c '{inside}'; echo code $?");
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(project.repo()).env_clear();
    for (name, value) in script.stdin(Stdio::null()).get_envs() {
        command.env(name, value.expect("set"));
    }
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("util-linux's `script` is there");
    let mut input = child.stdin.take().expect("piped");
    // Kept open: a terminal that hangs up would end the shell before its answer.
    input.write_all(b"typed ahead\n").expect("written");
    let ran = Ran::from(child.wait_with_output().expect("ends"));
    drop(input);
    for wanted in ["got typed ahead", "/dev/", "31 97", "xterm", "code 9"] {
        assert!(ran.stdout.contains(wanted), "{wanted}: {}", ran.stdout);
    }
    drop(project.run(&["cancel", "long"]).expect(0));
    drop(project.run(&["run", "--until-done", "--timeout", "200s"]).expect(1));
}

#[test]
fn a_container_made_for_a_person_goes_with_them_also_when_they_are_torn_away() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "done", "command": committing("") }]));
    drop(project.run(&["run", "--until-done"]).expect(0));
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut child = project.start(&["shell", "done", "--", "sleep", "1000"]);
        project.wait_until("it runs", |project| !shells(project).is_empty());
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().expect("runs").success());
        assert_eq!(child.wait().expect("ends").signal(), Some(number), "{signal}");
        project.wait_until("nothing is left of it", |project| shells(project).is_empty());
    }
}

#[test]
fn over_what_an_attempt_left_it_is_a_container_of_its_own_that_nothing_takes_for_an_attempt() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "done", "command": committing("") },
        { "id": "never", "dependencies": ["fails"], "command": committing("") },
        { "id": "fails", "command": noting("exit 4") },
    ]));
    drop(project.run(&["run", "--until-done"]).expect(1));
    let before = (project.containers(), project.plan_now());
    let inside = "cat done.txt; git log --format=%s -1; id -u >> seen; git commit --allow-empty -m no 2>/dev/null && echo written; \
                  grep -c '^CapEff:.0000000000000000$' /proc/self/status; exit 5";
    let ran = project.run(&["shell", "done", "--", "sh", "-c", inside]).expect(5);
    assert_eq!(ran.stdout, "done\ndone\n1\n", "{}", ran.stderr);
    assert!(ran.stderr.contains("the attempt is over"), "{}", ran.stderr);
    assert!(project.repo().join(".worktrees/done/seen").exists(), "the worktree is the real one");
    project.wait_until("the engine removed it", |project| shells(project).is_empty());
    let ran = fed(&project, &["shell", "fails"], "pwd\n").expect(0);
    assert_eq!(ran.stdout, "/project\n");
    drop(project.run(&["once"]).expect(0));
    assert_eq!((project.containers(), project.plan_now()), before, "no attempt was touched");
    let ran = project.run(&["shell", "never"]).expect(2);
    assert!(ran.stderr.contains("was never launched"), "{}", ran.stderr);
    project.wait_until("the engine removed it", |project| shells(project).is_empty());
}
