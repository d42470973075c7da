//! What people do to the plan file while its tasks run, from outside and on a real engine.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::{Project, committing};

fn edit(project: &Project, change: impl FnOnce(&mut Value)) {
    let mut plan = project.plan_now();
    change(&mut plan);
    project.write_plan(&plan);
}

#[test]
fn a_task_renamed_or_changed_while_it_runs_is_told_and_what_runs_is_left_alone() {
    let Some(project) = Project::on_engine() else { return };
    let waiting = committing("until [ -e /ran/go ]; do sleep 0.05; done;");
    project.plan_with(
        json!({ "max_concurrent": 3 }),
        json!([{ "id": "old", "command": waiting }, { "id": "kept", "command": waiting }]),
    );
    let mut child = project.start(&["run", "--until-done"]);
    let running =
        |p: &Project, count: usize| p.containers().iter().filter(|c| c.ends_with(" running")).count() == count;
    project.wait_until("both run", |p| running(p, 2) && p.stands("kept").starts_with("running"));
    edit(&project, |plan| {
        plan["max_concurrent"] = 1.into();
        plan["tasks"][0] = json!({ "id": "new", "command": committing("") });
        plan["tasks"][1]["env"] = json!({ "MORE": "1" });
    });
    project.wait_until("the new one waits", |p| p.stands("new") == "pending/WaitingForSlot");
    assert!(running(&project, 2), "fewer slots kill nothing, and neither does another name");
    let status = project.run(&["status", "-o", "wide"]).expect(0).stdout;
    assert!(status.contains("running without a live attempt") && status.contains("old-1"), "{status}");
    let view: Value = serde_json::from_str(&project.run(&["status", "-o", "json"]).expect(0).stdout).expect("JSON");
    let kept = view["tasks"].as_array().expect("a list").iter().find(|task| task["id"] == "kept").expect("there");
    assert_eq!(kept["spec_changed"], true, "{kept:#}");
    fs::write(project.ran().join("go"), "").expect("writes");
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.ran_log(), ["kept 1", "new 1", "old 1"]);
    assert_eq!(project.git(&["show", "agent/old:old.txt"]), "old", "the result of what lost its name is kept");
}
