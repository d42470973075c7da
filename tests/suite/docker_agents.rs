//! What is asked of an attempt beside its command, from outside, on a real engine.

use std::fs;

use serde_json::json;

use crate::support::project::{Project, committing, noting};

fn journal(project: &Project) -> String {
    fs::read_to_string(project.repo().join(".git/orchestrate/journal")).expect("there")
}

#[test]
fn a_fresh_retry_begins_at_the_base_and_what_was_there_keeps_a_ref() {
    let Some(project) = Project::on_engine() else { return };
    let work = "ls > /ran/seen-$ORCHESTRATE_TASK-$ORCHESTRATE_ATTEMPT; echo $ORCHESTRATE_ATTEMPT > mine.txt; git add -A; \
                git commit -q -m work; echo more > loose.txt; [ $ORCHESTRATE_ATTEMPT = 2 ] || exit 3";
    project.plan(json!([
        { "id": "a", "retries": 1, "retry_mode": "fresh", "leftovers": "keep", "command": noting(work) },
        { "id": "b", "retries": 1, "command": noting(work) },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(fs::read_to_string(project.ran().join("seen-a-2")).expect("ran").lines().count(), 1);
    let plan_id = project.plan_now()["plan_id"].as_str().expect("served").to_owned();
    let kept = format!("refs/orchestrate/{plan_id}/a/kept/1");
    assert_eq!(project.git(&["show", &format!("{kept}:mine.txt")]), "1");
    assert_eq!(project.git(&["show", &format!("{kept}:loose.txt")]), "more");
    assert_eq!(project.git(&["show", "agent/a:mine.txt"]), "2");
    assert_eq!(project.git(&["rev-list", "--count", "main..agent/a"]), "1");
    assert!(project.git(&["rev-list", "--count", "main..agent/b"]).parse::<u32>().expect("a number") >= 2, "resumed");
    assert_eq!(project.git(&["fsck", "--strict"]), "");
}

#[test]
fn what_verifies_runs_in_a_container_of_its_own_and_decides() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "good", "command": committing(""), "verify": ["sh", "-c", "cat good.txt; git log -1 --format=%s"] },
        { "id": "bad", "command": committing(""), "verify": ["sh", "-c", "echo it is broken; exit 4"] },
        { "id": "absent", "command": committing(""), "verify": ["no-such-program"] },
        { "id": "fails", "command": noting("exit 1"), "verify": ["true"] },
        { "id": "after", "dependencies": ["good"], "command": committing("") },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("good"), "completed/Succeeded");
    assert_eq!(project.stands("after"), "completed/Succeeded");
    assert_eq!(project.stands("bad"), "failed/VerifyFailed");
    assert_eq!(project.task("bad")["exit_code"], 0);
    assert!(project.task("bad")["message"].as_str().expect("a sentence").contains("code 4"));
    assert_eq!(project.stands("absent"), "failed/VerifyFailed");
    assert!(project.task("absent")["message"].as_str().expect("a sentence").contains("no-such-program"));
    assert_eq!(project.stands("fails"), "failed/NonZeroExit");
    assert_eq!(
        project.containers(),
        ["absent-1", "absent-1-verify", "after-1", "bad-1", "bad-1-verify", "fails-1", "good-1", "good-1-verify"]
            .map(|name| format!("{name} exited"))
    );
    let log = |task: &str| {
        fs::read_to_string(project.repo().join(format!(".git/orchestrate/attempts/{task}/1/verify.log"))).expect("kept")
    };
    assert_eq!(log("good"), "good\ngood\n");
    assert_eq!(log("bad"), "it is broken\n");
    assert!(project.task("good")["container"].as_str().expect("a name").ends_with("-good-1"));
    let before = journal(&project);
    let _ran = project.run(&["once"]).expect(0);
    assert_eq!(before, journal(&project), "a second pass finds nothing to do");
}

#[test]
fn a_verification_outlives_us_counts_as_running_and_is_not_run_twice() {
    let Some(project) = Project::on_engine() else { return };
    let verify = "echo verify >> /ran/log; while [ ! -e /ran/go ]; do sleep 0.1; done";
    project.plan_with(
        json!({ "max_concurrent": 1 }),
        json!([
            { "id": "a", "command": committing(""), "verify": ["sh", "-c", verify] },
            { "id": "z", "command": committing("") },
        ]),
    );
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it is verified", |p| p.containers() == ["a-1 exited", "a-1-verify running"]);
    child.kill().expect("kills");
    child.wait().expect("waits");
    let _ran = project.run(&["once"]).expect(0);
    assert_eq!(project.task("a")["status"], "running");
    assert_eq!(project.stands("z"), "pending/WaitingForSlot");
    fs::write(project.ran().join("go"), "").expect("writes");
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1", "verify", "z 1"]);
    let id = project.task("a")["container_id"].as_str().expect("an id").to_owned();
    assert_eq!(project.docker(&["inspect", "--format", "{{.State.ExitCode}}", &id]).expect(0).stdout.trim(), "0");
}

#[test]
fn a_cancel_and_a_timeout_reach_what_verifies() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([
        { "id": "late", "timeout": "2s", "command": committing(""), "verify": ["sh", "-c", "trap 'exit 0' TERM; sleep 99 & wait"] },
        { "id": "off", "command": committing(""), "verify": ["sh", "-c", "trap 'exit 1' TERM; sleep 99 & wait"] },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("both are verified", |p| p.containers().iter().any(|c| c == "off-1-verify running"));
    let _ran = project.run(&["cancel", "off"]).expect(0);
    child.wait().expect("waits");
    assert_eq!(project.stands("late"), "failed/VerifyFailed");
    assert_eq!(project.stands("off"), "cancelled/CancelledByRequest");
}

#[test]
fn silence_is_flagged_and_the_flag_goes_when_it_speaks() {
    let Some(project) = Project::on_engine() else { return };
    let quiet = "echo hello; while [ ! -e /ran/speak ]; do sleep 0.1; done; \
                 while [ ! -e /ran/go ]; do echo again; sleep 0.1; done";
    let talks = "while [ ! -e /ran/go ]; do echo on and on; sleep 0.1; done";
    project.plan(json!([
        { "id": "quiet", "silent_after": "2s", "command": noting(quiet) },
        { "id": "talks", "silent_after": "2s", "command": noting(talks) },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it is flagged", |p| p.task("quiet")["silent"] == true);
    assert_eq!(project.task("talks")["silent"], json!(null));
    assert_eq!(project.task("quiet")["status"], "running");
    fs::write(project.ran().join("speak"), "").expect("writes");
    project.wait_until("the flag is gone", |p| p.task("quiet")["silent"] == json!(null));
    fs::write(project.ran().join("go"), "").expect("writes");
    assert!(child.wait().expect("waits").success());
    assert_eq!(project.task("quiet")["silent"], json!(null));
}

#[test]
fn a_reached_limit_waits_for_its_time_uses_no_retry_and_stops_its_provider() {
    let Some(project) = Project::on_engine() else { return };
    let limited = "[ $ORCHESTRATE_ATTEMPT = 2 ] || { echo \"usage limit reached; try again in 1 second\"; exit 1; }";
    let limit = json!({ "pattern": "usage limit reached", "scope": "provider" });
    project.plan_with(
        json!({ "max_concurrent": 1, "agents": { "mine": { "rate_limit": limit } } }),
        json!([
            { "id": "a", "agent": "mine", "priority": 9, "command": committing(&format!("{limited};")) },
            { "id": "b", "agent": "mine", "dependencies": ["other"], "command": committing("") },
            { "id": "other", "command": committing("") },
            { "id": "fine", "agent": "mine", "dependencies": ["b"],
              "command": noting("echo usage limit reached; exit 0") },
        ]),
    );
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it waits", |p| p.stands("a") == "pending/RateLimited");
    project.wait_until("another agent's task is done", |p| p.stands("other") == "completed/Succeeded");
    assert_eq!(project.stands("b"), "pending/RateLimited");
    assert!(project.task("b")["not_before"].is_string());
    assert_eq!(project.task("b")["attempt"], json!(null), "never launched");
    assert!(child.wait().expect("waits").success());
    for done in ["a", "b", "fine"] {
        assert_eq!(project.stands(done), "completed/Succeeded");
    }
    assert_eq!(project.task("a")["attempt"], 2);
    assert_eq!(project.ran_log(), ["a 1", "a 2", "b 1", "fine 1", "other 1"]);
}

#[test]
fn a_command_that_the_image_lacks_is_named() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "a", "command": ["no-such-agent", "--flag"] }]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("a"), "failed/StartError");
    let message = project.task("a")["message"].as_str().expect("a sentence").to_owned();
    assert!(message.contains("no command `no-such-agent`"), "{message}");
}

#[test]
fn a_secret_shows_nowhere_and_a_file_of_it_lives_only_while_its_attempt_does() {
    let Some(project) = Project::on_engine() else { return };
    let canary = "canary-3f9b7c21d0";
    fs::write(project.ran().join("token"), canary).expect("writes");
    let uses = "stat -c %a /run/secrets/FILE_TOKEN; cat /run/secrets/FILE_TOKEN; echo; cat $FILE_TOKEN_FILE | base64; \
                env | grep -c ENV_TOKEN; while [ ! -e /ran/go ]; do sleep 0.1; done; \
                cat /run/secrets/FILE_TOKEN > /run/orchestrate/result.md; [ $ORCHESTRATE_TASK = a ]";
    let secrets = json!([
        { "env": "FILE_TOKEN", "from_file": project.ran().join("token"), "as": "file" },
        { "env": "ENV_TOKEN", "from_env": "OTHER" },
    ]);
    project.plan(json!([
        { "id": "a", "secrets": secrets, "command": noting(uses), "verify": ["test", "-s", "/run/secrets/FILE_TOKEN"] },
        { "id": "b", "secrets": secrets, "command": noting(uses) },
        { "id": "gone", "command": noting("true"), "secrets": [{ "env": "GONE", "from_file": "~/nothing", "as": "file" }] },
    ]));
    let mut command = project.command(&["run", "--until-done"]);
    let mut child = command.env("OTHER", canary).stderr(std::process::Stdio::piped()).spawn().expect("starts");
    project.wait_until("both run", |p| p.containers() == ["a-1 running", "b-1 running"]);
    let place = std::path::Path::new("/dev/shm")
        .join(format!("orchestrate-{}", rustix::process::geteuid().as_raw()))
        .join(project.instance());
    assert!(place.join("a-1/FILE_TOKEN").exists());
    let inspect = ["a-1", "b-1"].map(|name| {
        let name = format!("orch-{}-{name}", project.instance());
        project
            .docker(&[
                "inspect",
                "--format",
                "{{json .HostConfig}} {{json .Mounts}} {{json .Args}} {{json .Config.Cmd}} {{json .Config.Labels}}",
                &name,
            ])
            .expect(0)
            .stdout
    });
    let arguments = fs::read_to_string(format!("/proc/{}/cmdline", child.id())).expect("runs");
    fs::write(project.ran().join("go"), "").expect("writes");
    let mut told = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut told).expect("text");
    assert!(!child.wait().expect("waits").success());
    assert_eq!(project.stands("a"), "completed/Succeeded");
    assert_eq!(project.stands("b"), "failed/NonZeroExit");
    assert_eq!(project.stands("gone"), "blocked/SecretMissing");
    assert!(!place.join("a-1").exists() && !place.join("b-1").exists(), "gone with their attempts");
    let kept = |task: &str| {
        fs::read_to_string(project.repo().join(project.task(task)["log"].as_str().expect("kept"))).expect("kept")
    };
    assert!(kept("a").starts_with("400\n***\n***"), "{}", kept("a"));
    let shown = ["status", "describe a", "describe b", "events", "review", "logs a", "plan"].map(|words| {
        let ran = project.run(&words.split(' ').collect::<Vec<_>>());
        format!("{}{}", ran.stdout, ran.stderr)
    });
    assert!(shown[0].contains("can be read by other users"), "{}", shown[0]);
    let attempts = project.repo().join(".git/orchestrate/attempts");
    let files = ["a", "b"].map(|task| {
        let dir = attempts.join(task).join("1");
        let of = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
        [of("log"), of("result.md"), of("prompt"), of("verify.log")].concat()
    });
    let plan = fs::read_to_string(project.plan_path()).expect("there");
    let base64 = "Y2FuYXJ5LTNmOWI3YzIxZDA";
    for text in [&inspect[..], &shown[..], &files[..], &[journal(&project), plan, arguments, told]].concat() {
        assert!(!text.contains(canary) && !text.contains(base64), "{text}");
    }
}

#[test]
fn what_an_agent_leaves_reaches_people_and_the_tasks_after_it() {
    let Some(project) = Project::on_engine() else { return };
    let leave = "printf 'All \\033[31mdone\\033[0m.\\nSecond line.\\n' > $ORCHESTRATE_RESULT_FILE;";
    let read = "cat /run/orchestrate/dependencies/first/result.md > /ran/seen; echo $ORCHESTRATE_DEPENDENCY_HEADS >> /ran/seen; \
                echo x > /run/orchestrate/dependencies/first/result.md && exit 9; ls /run/orchestrate/dependencies >> /ran/seen;";
    project.plan(json!([
        { "id": "first", "command": committing(leave) },
        { "id": "mute", "command": committing("") },
        { "id": "huge", "command": committing("head -c 3000000 /dev/zero | tr '\\0' x > $ORCHESTRATE_RESULT_FILE;") },
        { "id": "next", "dependencies": ["first", "mute"], "command": committing(read) },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    let seen = fs::read_to_string(project.ran().join("seen")).expect("ran");
    let heads = ["first", "mute"]
        .map(|task| format!("{task}={}", project.task(task)["head_commit"].as_str().expect("a commit")));
    assert_eq!(seen, format!("All \u{1b}[31mdone\u{1b}[0m.\nSecond line.\n{}\nfirst\n", heads.join(" ")));
    let described = project.run(&["describe", "first"]).expect(0).stdout;
    assert!(described.contains("Second line.") && !described.contains("\u{1b}[31mdone"), "{described}");
    let status = project.run(&["status", "-o", "json"]).expect(0).stdout;
    assert!(status.contains("Second line."), "{status}");
    let huge = project.repo().join(".git/orchestrate/attempts/huge/1/result.md");
    assert!(huge.metadata().expect("kept").len() < 70_000);
}
