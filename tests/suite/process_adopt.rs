//! Deaths: ours, a supervisor's, the machine's; and what is found after them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use orchestrate::observe::ContainerState;
use orchestrate::runtime::process::{Avoid, ProcessRuntime};
use orchestrate::runtime::{ErrorKind, Runtime, RuntimeEvent};
use rustix::process::{Signal, kill_process};

use crate::process_support::{World, command_lines, next, settings, until, within};

/// Where the reconciler that is to die keeps its state.
const DIR: &str = "ORCHESTRATE_TEST_DIR";

#[tokio::test]
#[ignore = "the one that dies in the next test"]
async fn a_reconciler_to_be_killed() {
    #[expect(clippy::disallowed_methods, reason = "how a test tells another process")]
    let Ok(dir) = std::env::var(DIR) else { return };
    let runtime = ProcessRuntime::new(settings(Path::new(&dir))).expect("a runtime");
    let world = World::with(|settings| settings.dir = (&dir).into());
    let mut request = world.request("a", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done");
    request.mounts.clear();
    let id = runtime.create(&request).await.expect("created");
    runtime.start(&id).await.expect("started");
    request.name.push_str("-b");
    runtime.create(&request).await.expect("created");
    std::fs::write(Path::new(&dir).join(".id"), &id).expect("told");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn whoever_comes_after_us_adopts() {
    let world = World::new();
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "process_adopt::a_reconciler_to_be_killed", "--ignored"])
        .env(DIR, world.root())
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let told = world.root().join(".id");
    until(|| std::fs::read_to_string(&told).is_ok_and(|id| !id.is_empty())).await;
    let id = std::fs::read_to_string(&told).expect("told");
    child.kill().expect("killed");
    child.wait().expect("gone");
    let mut states: Vec<_> = world.runtime.list(&world.instance).await.expect("listed");
    states.sort_by(|a, b| a.name.cmp(&b.name));
    let found: Vec<_> = states.iter().map(|container| container.state).collect();
    assert_eq!(found, [ContainerState::Running, ContainerState::Created]);
    world.written(&id).await;
    within(world.runtime.stop(&id, Duration::from_secs(30))).await.expect("stopped");
    assert_eq!(world.inspect(&id).await.exit_code, 9);
    // Its environment is still in the memory of its supervisor.
    let made = &states[1].id;
    world.runtime.start(made).await.expect("started");
    world.written(made).await;
    within(world.runtime.stop(made, Duration::ZERO)).await.expect("stopped");
}

fn modes() -> [Avoid; 3] {
    let all = Avoid::default();
    [all, Avoid { namespaces: true, ..all }, Avoid { namespaces: true, cgroups: true, ..all }]
}

#[tokio::test]
async fn a_killed_supervisor_is_no_tasks_end() {
    for (n, avoid) in modes().into_iter().enumerate() {
        let world = World::avoiding(avoid);
        let unique = format!("{}.{n}", 30_000 + std::process::id());
        let shell = format!("setsid sh -c 'while :; do sleep {unique}; done' & exec sleep {unique}");
        let id = world.launch("a", &shell).await;
        until(|| command_lines(&unique).len() >= 2).await;
        let mut events = world.subscribe().await;
        kill_process(world.supervisor(&id), Signal::KILL).expect("killed");
        assert!(matches!(next(&mut events).await, RuntimeEvent::Exited(container) if container.id == id), "{avoid:?}");
        // Ended for sure before it is called so: nothing of it may live beside a next attempt.
        assert_eq!(command_lines(&unique), Vec::<String>::new(), "{avoid:?}");
        let detail = world.inspect(&id).await;
        assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Exited, 255));
        assert_eq!(detail.finished_at, None);
        assert!(detail.error.contains("supervisor was killed"), "{}", detail.error);
        assert_eq!(world.runtime.start(&id).await.expect_err("has run").kind, ErrorKind::Conflict);
        // Whoever looks later finds the same.
        assert_eq!(world.successor().inspect(&world.instance, &id).await.expect("answered"), Some(detail));
    }
}

#[tokio::test]
async fn a_stop_of_what_its_supervisors_death_has_ended_is_no_error() {
    let world = World::new();
    let id = world.launch("a", "sleep 1000").await;
    kill_process(world.supervisor(&id), Signal::KILL).expect("killed");
    within(world.runtime.stop(&id, Duration::from_secs(30))).await.expect("stopped");
    assert_eq!(world.state(&id).await, ContainerState::Exited);
}

#[tokio::test]
async fn without_its_supervisor_a_made_attempt_is_as_if_never_made() {
    let world = World::new();
    let id = world.create("a", "echo ran").await;
    let mut events = world.subscribe().await;
    let pid = world.holder(&id);
    kill_process(pid, Signal::KILL).expect("killed");
    assert!(matches!(next(&mut events).await, RuntimeEvent::Removed(container) if container.id == id));
    assert_eq!(world.runtime.list(&world.instance).await.expect("listed"), []);
    assert_eq!(world.runtime.inspect(&world.instance, &id).await.expect("answered"), None);
    assert_eq!(world.runtime.start(&id).await.expect_err("absent").kind, ErrorKind::NotFound);
    let again = world.launch("a", "echo ran").await;
    assert_ne!(id, again);
    world.ended(&again).await;
    assert_eq!(world.output(&again).await, "ran\n");
}

/// Changes what a killed supervisor left, before anybody has looked at it.
async fn after_the_supervisors_death(world: &World, change: impl FnOnce(&mut serde_json::Value)) -> String {
    let id = world.launch("a", "sleep 1000").await;
    let mut started = world.fact(&id, "started.json");
    kill_process(world.supervisor(&id), Signal::KILL).expect("killed");
    let lock = std::fs::File::open(world.folder(&id).join("lock")).expect("there");
    until(|| lock.try_lock_shared().is_ok()).await;
    drop(lock);
    change(&mut started);
    std::fs::write(world.folder(&id).join("started.json"), started.to_string()).expect("written");
    id
}

#[tokio::test]
async fn a_restart_of_the_machine_is_noticed() {
    let world = World::new();
    let id = after_the_supervisors_death(&world, |started| started["boot_id"] = "another".into()).await;
    let detail = world.inspect(&id).await;
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Exited, 255));
    assert_eq!(detail.finished_at, None);
    assert!(detail.error.contains("machine was restarted"), "{}", detail.error);
}

#[tokio::test]
async fn another_process_with_the_same_number_is_left_alone() {
    let world = World::new();
    let mut bystander = Command::new("sleep").arg("1000").spawn().expect("started");
    let id = after_the_supervisors_death(&world, |started| {
        started["cell"]["pid"] = bystander.id().into();
        started["cgroups"] = serde_json::json!([]);
    })
    .await;
    // The mark finds what really is left of it.
    within(world.runtime.stop(&id, Duration::ZERO)).await.expect("ended");
    assert_eq!(world.state(&id).await, ContainerState::Exited);
    assert!(bystander.try_wait().expect("asked").is_none(), "the bystander lives");
    bystander.kill().expect("killed");
    bystander.wait().expect("gone");
}

#[tokio::test]
async fn what_was_left_half_made_is_cleared_and_never_listed() {
    let world = World::new();
    let left = world.root().join(".new-0123");
    std::fs::create_dir(&left).expect("created");
    std::fs::write(left.join("lock"), "").expect("written");
    std::fs::create_dir(world.root().join(".old-0123")).expect("created");
    assert_eq!(world.runtime.list(&world.instance).await.expect("listed"), []);
    world.successor();
    assert_eq!(std::fs::read_dir(world.root()).expect("listed").count(), 0);
}

#[tokio::test]
async fn a_folder_that_cannot_be_understood_proves_no_absence() {
    let world = World::new();
    let id = world.create("a", "true").await;
    std::fs::write(world.folder(&id).join("spec.json"), "{").expect("written");
    let error = world.runtime.list(&world.instance).await.expect_err("an incomplete list");
    assert!(error.message.contains("spec.json"), "{error}");
}
