//! The main job from outside, on a real engine and with real git: what a person with a plan file sees.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::json;

use crate::support::engine;
use crate::support::project::{Project, committing, noting};

fn demo_plan(project: &Project) {
    project.plan(json!([
        { "id": "base", "command": committing("") },
        { "id": "left", "dependencies": ["base"], "command": committing("sleep 0.3;") },
        { "id": "right", "dependencies": ["base"], "command": committing("") },
        { "id": "flaky", "dependencies": ["base"], "retries": 1,
          "command": committing("[ $ORCHESTRATE_ATTEMPT = 2 ] || exit 3;") },
        { "id": "diamond", "dependencies": ["left", "right"], "command": committing("") },
        { "id": "three", "dependencies": ["left", "right", "flaky"], "command": committing("") },
        { "id": "bad", "command": noting("echo so it goes >&2; exit 7") },
        { "id": "behind", "dependencies": ["bad"], "command": committing("") },
        { "id": "far-behind", "dependencies": ["behind", "three"], "command": committing("") },
    ]));
}

#[test]
fn a_plan_with_a_diamond_an_octopus_a_retry_and_a_failure_runs_to_its_end() {
    let Some(project) = Project::on_engine() else { return };
    demo_plan(&project);
    let ran = project.run(&["run", "--until-done"]).expect(1);
    assert!(ran.stderr.lines().count() + ran.stdout.lines().count() > 5, "it tells what it does");
    for done in ["base", "left", "right", "flaky", "diamond", "three"] {
        assert_eq!(project.stands(done), "completed/Succeeded", "{done}");
        assert_eq!(project.task(done)["result"], "changed");
        assert_eq!(project.git(&["show", &format!("agent/{done}:{done}.txt")]), done);
        assert_eq!(
            project.task(done)["head_commit"].as_str(),
            Some(&*project.git(&["rev-parse", &format!("agent/{done}")]))
        );
    }
    assert_eq!(project.stands("bad"), "failed/NonZeroExit");
    assert_eq!(project.task("bad")["exit_code"], 7);
    for behind in ["behind", "far-behind"] {
        assert_eq!(project.stands(behind), "blocked/DependencyFailed");
        let message = project.task(behind)["message"].as_str().expect("a sentence").to_owned();
        assert!(message.contains("bad failed"), "{message}");
    }
    let log = fs::read_to_string(project.repo().join(project.task("bad")["log"].as_str().expect("a path")));
    assert_eq!(log.expect("kept"), "so it goes\n");
    assert_eq!(project.task("flaky")["attempt"], 2);
    let parents =
        project.git(&["show", "-s", "--format=%P", project.task("three")["base_commit"].as_str().expect("a commit")]);
    assert_eq!(parents.split(' ').count(), 3, "an octopus of three");
    assert_eq!(
        project.containers(),
        ["bad-1", "base-1", "diamond-1", "flaky-1", "flaky-2", "left-1", "right-1", "three-1"]
            .map(|n| format!("{n} exited"))
    );
    assert_eq!(
        project.ran_log(),
        ["bad 1", "base 1", "diamond 1", "flaky 1", "flaky 2", "left 1", "right 1", "three 1"],
        "nothing ran twice"
    );
    // The user's own tree is as it was.
    assert_eq!(project.git(&["status", "--porcelain"]), "?? .agent-tasks.json");
    assert_eq!(project.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
    assert_eq!(project.git(&["fsck", "--strict"]), "");
    let review = project.run(&["review"]).expect(0).stdout;
    assert!(review.contains("git merge") && review.contains("agent/three"), "{review}");
    assert_eq!(project.git(&["log", "--format=%s", "main"]).lines().count(), 1, "nothing is merged");
}

#[test]
fn a_second_pass_makes_no_engine_mutation_and_no_write() {
    let Some(project) = Project::on_engine() else { return };
    demo_plan(&project);
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    let stamp = || {
        let meta = fs::metadata(project.plan_path()).expect("there");
        (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec())
    };
    let journal = || fs::read(project.repo().join(".git/orchestrate/journal")).expect("there");
    let before = (stamp(), journal(), project.containers(), project.git(&["for-each-ref"]));
    let _ran = project.run(&["once"]).expect(0);
    let _ran = project.run(&["once", "--exit-status"]).expect(1);
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    let _ran = project.run(&["status"]).expect(0);
    assert_eq!(before, (stamp(), journal(), project.containers(), project.git(&["for-each-ref"])));
}

/// 8 kills, or `ORCHESTRATE_TEST_KILLS`, each at a random time, over as many plans of 30 tasks as that takes.
#[test]
fn killed_at_random_times_no_task_runs_twice_and_none_is_lost() {
    let kills: u32 = engine::variable("ORCHESTRATE_TEST_KILLS").map_or(8, |n| n.parse().expect("a number"));
    let (mut killed, mut plans) = (0, 0);
    while killed < kills {
        let Some(project) = Project::on_engine() else { return };
        killed += storm(&project, kills - killed, plans);
        plans += 1;
    }
    #[expect(clippy::print_stdout, reason = "how much was tried is told")]
    {
        println!("{killed} kills over {plans} plans of 30 tasks: every attempt ran once, every result is there");
    }
}

/// Gives how many kills there were until the plan was done.
fn storm(project: &Project, kills: u32, seed: u64) -> u32 {
    let mut random = fastrand::Rng::with_seed(7 + seed);
    let tasks: Vec<_> = (0..30)
        .map(|i: usize| {
            let mut on: Vec<String> =
                (0..i.min(random.usize(..3))).map(|_| format!("t{}", random.usize(..i))).collect();
            on.sort();
            on.dedup();
            json!({ "id": format!("t{i}"), "dependencies": on,
                    "command": committing(&format!("sleep 0.{};", random.usize(..5))) })
        })
        .collect();
    project.plan(json!(tasks));
    let mut killed = 0;
    let mut code = None;
    while code.is_none() && killed < kills {
        let mut child = project.start(&["run", "--until-done"]);
        // Short ones hit the beginning of a run, longer ones what comes later; after the longest even a start that was
        // under way at a kill is known to have arrived or not.
        let longest = [900, 900, 900, 900, 900, 900, 4000, 4000, 4000, 25_000][random.usize(..10)];
        let pause = std::time::Duration::from_millis(random.u64(20..longest));
        #[expect(clippy::disallowed_methods, reason = "the kill comes at a random time")]
        std::thread::sleep(pause);
        code = child.try_wait().expect("waits");
        if code.is_none() {
            child.kill().expect("kills");
            killed += 1;
        }
        child.wait().expect("waits");
    }
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    let mut expected: Vec<String> = (0..30).map(|i| format!("t{i} 1")).collect();
    expected.sort();
    assert_eq!(project.ran_log(), expected, "after {killed} kills");
    for i in 0..30 {
        assert_eq!(project.stands(&format!("t{i}")), "completed/Succeeded");
    }
    assert_eq!(project.containers().len(), 30);
    assert_eq!(project.git(&["fsck", "--strict"]), "");
    killed
}

#[test]
fn ctrl_c_leaves_containers_running_and_the_next_run_adopts_them() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "slow", "command": committing("while [ ! -e /ran/go ]; do sleep 0.1; done;") }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| p.containers() == ["slow-1 running"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("sends");
    let status = child.wait().expect("waits");
    assert!(!status.success());
    assert_eq!(project.containers(), ["slow-1 running"]);
    assert_eq!(project.task("slow")["status"], "running");
    fs::write(project.ran().join("go"), "").expect("writes");
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["slow 1"]);
    assert_eq!(project.containers(), ["slow-1 exited"]);
}

#[test]
fn a_second_reconciler_says_who_holds_the_lock() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "slow", "command": noting("sleep 100") }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it runs", |p| p.containers() == ["slow-1 running"]);
    let ran = project.run(&["once"]).expect(5);
    assert!(ran.stderr.contains(&child.id().to_string()), "{}", ran.stderr);
    child.kill().expect("kills");
    child.wait().expect("waits");
    let _ran = project.run(&["once"]).expect(0);
}

#[test]
fn a_missing_image_blocks_its_tasks_only_and_is_found_when_it_is_there() {
    let Some(project) = Project::on_engine() else { return };
    let image = format!("orchestrate-absent-{}:latest", std::process::id());
    project.plan(json!([
        { "id": "a", "image": image, "command": committing("") },
        { "id": "b", "command": committing("") },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("a"), "blocked/ImageMissing");
    assert!(project.task("a")["message"].as_str().expect("a sentence").contains(&image));
    assert_eq!(project.stands("b"), "completed/Succeeded");
    let _tagged = project.docker(&["tag", engine::IMAGE, &image]).expect(0);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    let _untagged = project.docker(&["rmi", &image]).expect(0);
    assert_eq!(project.stands("a"), "completed/Succeeded");
}

#[test]
fn a_branch_that_is_not_ours_is_never_overwritten() {
    let Some(project) = Project::on_engine() else { return };
    project.git(&["switch", "-q", "-c", "agent/mine"]);
    project.commit_file("work.txt", "a person's\n");
    project.git(&["switch", "-q", "main"]);
    let tip = project.git(&["rev-parse", "agent/mine"]);
    project.plan(json!([{ "id": "mine", "command": committing("") }, { "id": "other", "command": committing("") }]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("mine"), "blocked/BranchConflict");
    assert_eq!(project.stands("other"), "completed/Succeeded");
    assert_eq!(project.git(&["rev-parse", "agent/mine"]), tip);
    project.git(&["branch", "-m", "agent/mine", "elsewhere"]);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.git(&["rev-parse", "elsewhere"]), tip);
}

#[test]
fn dependencies_that_do_not_merge_block_until_a_person_merges_them() {
    let Some(project) = Project::on_engine() else { return };
    let writing = |text: &str| noting(&format!("echo {text} > same.txt; git add -A; git commit -q -m {text}"));
    project.plan(json!([
        { "id": "one", "command": writing("one") },
        { "id": "two", "command": writing("two") },
        { "id": "both", "dependencies": ["one", "two"], "command": committing("") },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.stands("both"), "blocked/MergeConflict");
    let message = project.task("both")["message"].as_str().expect("a sentence").to_owned();
    for word in ["same.txt", "agent/one", "agent/two"] {
        assert!(message.contains(word), "{message}");
    }
    project.git(&["switch", "-q", "-c", "agent/both", "agent/one"]);
    let _conflict = project.try_git(&["merge", "-q", "agent/two"]);
    fs::write(project.repo().join("same.txt"), "one and two\n").expect("writes");
    project.git(&["commit", "-q", "-a", "-m", "by hand"]);
    let by_hand = project.git(&["rev-parse", "HEAD"]);
    project.git(&["switch", "-q", "main"]);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.task("both")["base_commit"].as_str(), Some(&*by_hand));
}

#[test]
fn stale_is_shown_and_never_killed() {
    let Some(project) = Project::on_engine() else { return };
    project.plan(json!([{ "id": "old", "stale_after": "1s",
                          "command": committing("while [ ! -e /ran/go ]; do sleep 0.1; done;") }]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("it is stale", |p| p.task("old")["stale"] == true);
    let status = project.run(&["status"]).expect(0).stdout;
    assert!(status.contains("stale"), "{status}");
    assert_eq!(project.containers(), ["old-1 running"]);
    fs::write(project.ran().join("go"), "").expect("writes");
    assert!(child.wait().expect("waits").success());
    assert_eq!(project.task("old")["stale"], serde_json::Value::Null);
}

#[test]
fn what_people_do_to_containers_and_to_the_file_is_borne() {
    let Some(project) = Project::on_engine() else { return };
    let waiting = committing("while [ ! -e /ran/go ]; do sleep 0.1; done;");
    project.plan(json!([
        { "id": "removed", "command": waiting },
        { "id": "paused", "command": waiting },
        { "id": "dropped", "command": waiting },
        { "id": "cancelled", "command": waiting },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("all run", |p| p.containers().iter().filter(|c| c.ends_with("running")).count() == 4);
    let name = |task: &str| format!("orch-{}-{task}-1", project.instance());
    let _gone = project.docker(&["rm", "-f", &name("removed")]).expect(0);
    let _paused = project.docker(&["pause", &name("paused")]).expect(0);
    // Whether the engine still tells its exit code (137) when we ask is a matter of milliseconds.
    let lost = |p: &Project| ["failed/ContainerLost", "failed/NonZeroExit"].contains(&&*p.stands("removed"));
    project.wait_until("the loss is seen", lost);
    project.wait_until("the pause is seen", |p| p.stands("paused") == "running/Paused");
    let mut plan = project.plan_now();
    let tasks = plan["tasks"].as_array_mut().expect("a list");
    tasks.retain(|task| task["id"] != "dropped");
    tasks.iter_mut().find(|task| task["id"] == "cancelled").expect("there")["status"] = "cancelled".into();
    project.write_plan(&plan);
    project.wait_until("the cancelled one is stopped", |p| p.stands("cancelled") == "cancelled/CancelledByRequest");
    assert!(project.containers().contains(&"dropped-1 running".to_owned()), "an orphan is not killed");
    let _unpaused = project.docker(&["unpause", &name("paused")]).expect(0);
    fs::write(project.ran().join("go"), "").expect("writes");
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.stands("paused"), "completed/Succeeded");
    assert_eq!(project.ran_log(), ["cancelled 1", "dropped 1", "paused 1", "removed 1"]);
    assert!(project.repo().join(".worktrees/removed/README.md").exists(), "its work is kept");
}

#[test]
fn a_file_as_other_tools_write_it_works_as_it_is() {
    let Some(project) = Project::on_engine() else { return };
    let text = include_str!("../fixtures/decompose.json");
    fs::write(project.plan_path(), text).expect("writes");
    // Without the token its tasks are blocked, and the reason is said.
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    let plan = project.plan_now();
    let first = plan["tasks"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(project.stands(&first), "blocked/SecretMissing");
    let build = project.repo().join("claude-image");
    fs::create_dir_all(&build).expect("makes");
    let script = "#!/bin/sh\n[ -n \"$CLAUDE_CODE_OAUTH_TOKEN\" ] || exit 9\ncat \"$ORCHESTRATE_PROMPT_FILE\" > said.txt\necho done\n";
    fs::write(build.join("claude"), script).expect("writes");
    let dockerfile = format!("FROM {}\nCOPY --chmod=755 claude /usr/bin/claude\n", engine::IMAGE);
    let dockerfile = dockerfile.replace(" --chmod=755", "");
    fs::write(build.join("Dockerfile"), dockerfile).expect("writes");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(build.join("claude"), mode).expect("sets");
    let _built =
        project.docker(&["build", "-q", "-t", "orchestrate/claude:latest", build.to_str().expect("UTF-8")]).expect(0);
    fs::remove_dir_all(&build).expect("removes");
    let token = "canary-token-9f2c";
    let ran = project.command(&["run", "--until-done"]).env("CLAUDE_CODE_OAUTH_TOKEN", token).output().expect("runs");
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    for task in plan["tasks"].as_array().expect("a list") {
        let id = task["id"].as_str().expect("an id");
        assert_eq!(project.stands(id), "completed/Succeeded");
        assert_eq!(
            project.git(&["show", &format!("agent/{id}:said.txt")]),
            task["description"].as_str().expect("text")
        );
    }
    let everything = [project.plan_path(), project.repo().join(".git/orchestrate/journal")];
    for file in everything {
        assert!(!fs::read_to_string(file).expect("reads").contains(token), "the token is written nowhere");
    }
}

#[test]
fn without_an_engine_a_repository_or_a_commit_the_next_step_is_said() {
    let away = Project::at("unix:///nowhere/docker.sock".to_owned());
    away.plan(json!([{ "id": "a", "command": ["true"] }]));
    let before = fs::read(away.plan_path()).expect("reads");
    let said = |ran: &crate::support::project::Ran| {
        assert!(ran.stderr.contains("hint") && ran.stderr.contains("/nowhere/docker.sock"), "{}", ran.stderr);
    };
    said(&away.run(&["once"]).expect(4));
    assert_eq!(fs::read(away.plan_path()).expect("reads"), before, "a pass that cannot look writes nothing");
    said(&away.run(&["run", "--until-done", "--stall-timeout", "1s"]).expect(4));
    assert_eq!(away.stands("a"), "pending/EngineUnavailable");

    let empty = tempfile::tempdir().expect("temp dir");
    let nowhere = |dir: &std::path::Path| away.command(&["once"]).current_dir(dir).output().expect("runs");
    let ran = nowhere(empty.path());
    assert_eq!(ran.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("git init"));

    fs::create_dir(empty.path().join("repo")).expect("makes");
    let git = std::process::Command::new("git").args(["init", "-q"]).current_dir(empty.path().join("repo")).status();
    assert!(git.expect("runs").success());
    fs::copy(away.plan_path(), empty.path().join("repo/.agent-tasks.json")).expect("copies");
    let ran = nowhere(&empty.path().join("repo"));
    assert_eq!(ran.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("commit"), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn an_invalid_file_changes_nothing() {
    let Some(project) = Project::on_engine() else { return };
    let text = r#"{"tasks": [{"id": "a", "dependencies": ["b"]}, {"id": "c", "dependencies": ["c"]}, {"id": "x/y"}]}"#;
    fs::write(project.plan_path(), text).expect("writes");
    let ran = project.run(&["run", "--until-done"]).expect(3);
    for fault in ["`b`", "c", "x/y"] {
        assert!(ran.stderr.contains(fault) || ran.stdout.contains(fault), "{fault}: {}", ran.stderr);
    }
    assert_eq!(fs::read_to_string(project.plan_path()).expect("reads"), text);
    assert_eq!(project.containers(), Vec::<String>::new());
    assert!(!project.repo().join(".worktrees").exists());
}
