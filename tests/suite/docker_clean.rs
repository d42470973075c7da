//! `clean` from outside: what is done with goes, what holds work stays, and why is told.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::{Project, committing, noting};

fn names(project: &Project, arguments: &[&str]) -> (Vec<String>, Value) {
    let ran = project.run(&[&["clean", "-o", "json"], arguments].concat()).expect(0);
    let told: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let removed = told["removed"].as_array().expect("a list").iter();
    let prefix = format!("orch-{}-", project.instance());
    let name = |one: &Value| {
        let name = one["name"].as_str().expect("a name");
        format!("{} {}", one["kind"].as_str().expect("a kind"), name.strip_prefix(&prefix).unwrap_or(name))
    };
    (removed.map(name).collect(), told)
}

fn why(told: &Value, task: &str) -> String {
    let kept = told["kept"].as_array().expect("a list").iter().filter(|kept| kept["task"] == task);
    kept.map(|kept| kept["why"].as_str().expect("text")).collect::<Vec<_>>().join("; ")
}

fn finished() -> Option<Project> {
    let project = Project::on_engine()?;
    project.plan(json!([
        { "id": "merged", "command": committing("") },
        { "id": "squashed", "command": committing("") },
        { "id": "open", "command": committing("") },
        { "id": "dirty", "leftovers": "keep", "command": noting("echo precious > work.txt") },
        { "id": "bad", "command": noting("exit 3") },
    ]));
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    project.git(&["merge", "-q", "--no-ff", "-m", "merged", "agent/merged"]);
    project.git(&["merge", "-q", "--squash", "agent/squashed"]);
    project.git(&["commit", "-q", "-m", "squashed"]);
    Some(project)
}

#[test]
fn what_is_merged_goes_and_what_holds_work_stays() {
    let Some(project) = finished() else { return };
    let before = (project.containers(), project.git(&["for-each-ref"]));
    let (would, _) = names(&project, &["--dry-run"]);
    assert_eq!(before, (project.containers(), project.git(&["for-each-ref"])), "a dry run removes nothing");
    // Nobody can be asked, and nothing was said beforehand.
    let ran = project.run(&["clean"]).expect(2);
    assert!(ran.stderr.contains("--yes"), "{}", ran.stderr);
    assert_eq!(before.0, project.containers());
    let (removed, told) = names(&project, &["--yes"]);
    assert_eq!(removed, would);
    assert_eq!(
        removed,
        [
            "container merged-1",
            "worktree .worktrees/merged",
            "branch agent/merged",
            "container squashed-1",
            "worktree .worktrees/squashed",
            "container dirty-1",
        ]
    );
    assert!(told["bytes"].as_u64().expect("a number") > 0);
    assert!(told["attempts_bytes"].as_u64().expect("a number") > 5 * 4096, "what stays is counted");
    assert!(why(&told, "squashed").contains("its changes are merged, its commits are not"), "{told:#}");
    assert!(why(&told, "open").contains("not merged"), "{told:#}");
    assert!(why(&told, "dirty").contains("uncommitted"), "{told:#}");
    assert!(why(&told, "bad").contains("it failed"), "{told:#}");
    assert_eq!(project.containers(), ["bad-1 exited", "open-1 exited"]);
    assert_eq!(fs::read_to_string(project.repo().join(".worktrees/dirty/work.txt")).expect("kept"), "precious\n");
    assert!(!project.repo().join(".worktrees/merged").exists());
    assert!(!project.try_git(&["rev-parse", "-q", "--verify", "agent/merged"]).stdout.contains(char::is_alphanumeric));
    assert_eq!(project.git(&["rev-parse", "agent/squashed"]).len(), 40);
    // The results stand, and nothing is done again.
    assert_eq!(project.stands("merged"), "completed/Succeeded");
    let _ran = project.run(&["run", "--until-done"]).expect(1);
    assert_eq!(project.ran_log().len(), 5);
    let _log = project.run(&["logs", "merged"]).expect(0);
    assert_eq!(project.git(&["fsck", "--strict"]), "");
    let list = project.git(&["worktree", "list", "--porcelain"]);
    assert!(!list.contains("prunable") && !list.contains("merged"), "{list}");
    let (again, _) = names(&project, &["--yes"]);
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_named_task_goes_and_its_branch_only_by_force_with_its_commits_kept() {
    let Some(project) = finished() else { return };
    let tip = project.git(&["rev-parse", "agent/open"]);
    let (removed, told) = names(&project, &["open", "--yes"]);
    assert_eq!(removed, ["container open-1", "worktree .worktrees/open"]);
    assert!(why(&told, "open").contains("not merged"), "{told:#}");
    assert_eq!(project.git(&["rev-parse", "agent/open"]), tip);
    let _usage = project.run(&["clean", "--force", "--yes"]).expect(2);
    let (removed, told) = names(&project, &["open", "--force", "--yes"]);
    assert_eq!(removed, ["branch agent/open"]);
    let kept = told["removed"][0]["kept_ref"].as_str().expect("a ref");
    assert_eq!(project.git(&["rev-parse", kept]), tip, "no commit is lost");
    let (removed, _) = names(&project, &["--all", "--yes"]);
    assert!(removed.contains(&"container bad-1".to_owned()), "{removed:?}");
    assert!(project.repo().join(".worktrees/dirty/work.txt").exists());
}

/// Whatever counts as merged, a branch is not the ref that its own removal may rely on.
#[test]
fn what_is_merged_into_nothing_that_lasts_keeps_a_ref() {
    let Some(project) = finished() else { return };
    let tip = project.git(&["rev-parse", "agent/open"]);
    let (removed, told) = names(&project, &["--target", "agent/open", "--yes"]);
    assert!(removed.contains(&"branch agent/open".to_owned()), "{removed:?}");
    let one = told["removed"].as_array().expect("a list").iter().find(|one| one["name"] == "agent/open");
    let kept = one.and_then(|one| one["kept_ref"].as_str()).expect("a ref");
    assert_eq!(project.git(&["rev-parse", kept]), tip);
}

#[test]
fn a_squashed_branch_is_not_offered_for_merging_again() {
    let Some(project) = finished() else { return };
    let review = project.run(&["review"]).expect(0).stdout;
    assert!(review.contains("git merge --no-ff agent/open"), "{review}");
    for merged in ["agent/merged", "agent/squashed"] {
        assert!(!review.contains(&format!("git merge --no-ff {merged}")), "{review}");
    }
}

#[test]
fn what_runs_or_is_built_on_stays_and_an_orphan_goes_only_when_asked_to() {
    let Some(project) = Project::on_engine() else { return };
    let waiting = "trap 'exit 0' TERM; until [ -e /ran/go ]; do sleep 0.05; done;";
    project.plan(json!([
        { "id": "below", "command": committing("") },
        { "id": "above", "dependencies": ["below"], "command": committing(waiting) },
        { "id": "stray", "command": noting(&format!("{waiting} true")) },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    project.wait_until("two run", |p| ["above", "stray"].iter().all(|task| p.stands(task) == "running/Started"));
    project.git(&["merge", "-q", "agent/below"]);
    // Beside a reconciler at work.
    let (removed, told) = names(&project, &["--yes"]);
    assert!(removed.is_empty(), "{removed:?}");
    assert!(why(&told, "below").contains("above builds on it"), "{told:#}");
    assert!(why(&told, "above").contains("it runs"), "{told:#}");
    let mut plan = project.plan_now();
    plan["tasks"].as_array_mut().expect("a list").retain(|task| task["id"] != "stray");
    project.write_plan(&plan);
    let (removed, _) = names(&project, &["--dry-run"]);
    assert!(removed.is_empty(), "{removed:?}");
    let (removed, _) = names(&project, &["--orphans", "--yes"]);
    assert_eq!(removed, ["stopped stray-1"]);
    project.wait_until("it ended", |p| p.containers().contains(&"stray-1 exited".to_owned()));
    fs::write(project.ran().join("go"), "").expect("writes");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    let (removed, _) = names(&project, &["--orphans", "--yes"]);
    assert!(removed.contains(&"container stray-1".to_owned()), "{removed:?}");
    assert!(project.repo().join(".worktrees/stray").exists(), "its work is kept");
}

/// Stopping takes as long as a container lets it; what the plan names again by then is no orphan any more.
#[test]
fn an_orphan_is_looked_at_again_in_the_moment_before_it_is_stopped() {
    let Some(project) = Project::on_engine() else { return };
    let waiting = "until [ -e /ran/go ]; do sleep 0.05; done; true";
    project.plan(json!([
        { "id": "keeper", "command": noting(waiting) },
        { "id": "stray-1", "command": noting(&format!("trap 'touch /ran/asked' TERM; {waiting}")) },
        { "id": "stray-2", "command": noting(waiting) },
    ]));
    let mut child = project.start(&["run", "--until-done"]);
    let all = ["keeper", "stray-1", "stray-2"];
    project.wait_until("they run", |p| all.iter().all(|task| p.stands(task) == "running/Started"));
    let plan = project.plan_now();
    let mut fewer = plan.clone();
    fewer["tasks"].as_array_mut().expect("a list").truncate(1);
    project.write_plan(&fewer);
    let (removed, told) = std::thread::scope(|scope| {
        let cleaning = scope.spawn(|| names(&project, &["--orphans", "--yes"]));
        // The first one does not listen, and has ten seconds until it is killed.
        project.wait_until("it is asked", |p| p.ran().join("asked").exists());
        let mut again = fewer.clone();
        let third = plan["tasks"][2].clone();
        again["tasks"].as_array_mut().expect("a list").push(third);
        project.write_plan(&again);
        cleaning.join().expect("cleaned")
    });
    assert_eq!(removed, ["stopped stray-1-1"]);
    assert!(why(&told, "stray-2").contains("no longer to be stopped"), "{told:#}");
    assert!(project.containers().contains(&"stray-2-1 running".to_owned()), "{:?}", project.containers());
    fs::write(project.ran().join("go"), "").expect("writes");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.stands("stray-2"), "completed/Succeeded");
}

/// Templates of worktrees are a cache: they go, and are not missed.
#[test]
fn templates_of_worktrees_go_and_come_again() {
    let Some(project) = Project::on_engine() else { return };
    for n in 0..300 {
        fs::write(project.repo().join(format!("f{n}")), format!("{n}\n")).expect("writes");
    }
    project.git(&["add", "-A"]);
    project.git(&["commit", "-qm", "many"]);
    project.plan_with(
        json!({ "max_concurrent": 1 }),
        json!([1, 2, 3].map(|n| json!({ "id": format!("t{n}"), "command": committing("") }))),
    );
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    let (would, told) = names(&project, &["--dry-run"]);
    assert!(would.contains(&"templates of worktrees".to_owned()), "{told:#}");
    let templates = project.repo().join(".git/orchestrate/templates");
    assert!(templates.exists());
    let (removed, _) = names(&project, &["t1", "--yes"]);
    assert!(!removed.iter().any(|one| one.starts_with("templates")) && templates.exists(), "{removed:?}");
    let (removed, _) = names(&project, &["--yes"]);
    assert!(removed.contains(&"templates of worktrees".to_owned()) && !templates.exists(), "{removed:?}");
    let mut plan = project.plan_now();
    plan["tasks"].as_array_mut().expect("a list").push(json!({ "id": "t4", "command": committing("") }));
    project.write_plan(&plan);
    let _ran = project.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.git(&["fsck", "--strict"]), "");
}
