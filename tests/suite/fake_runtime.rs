//! The fake engine's faults do what they say; scenarios stand on them.

use std::time::Duration;

use futures::StreamExt;
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, ContainerState, InstanceId};
use orchestrate::runtime::{CreateRequest, ErrorKind, Operation, Runtime, RuntimeEvent};
use orchestrate::spec::{Resources, TaskId};

use crate::support::fake_runtime::{Behaviour, EventFault, FakeRuntime, Fault};

fn instance() -> InstanceId {
    InstanceId("i".into())
}

fn request(attempt: u32) -> CreateRequest {
    let key = AttemptKey { task: TaskId::new("a").expect("valid"), attempt };
    CreateRequest {
        name: names::container(&instance(), &key),
        labels: names::labels(&instance(), "p", &key, "d", "b"),
        key,
        image: Some("orchestrate-test:latest".to_owned()),
        command: None,
        env: std::collections::BTreeMap::new(),
        mounts: Vec::new(),
        workdir: "/project".to_owned(),
        user: None,
        network: "none".to_owned(),
        resources: Resources::default(),
    }
}

async fn state(engine: &FakeRuntime) -> Option<ContainerState> {
    engine.list(&instance()).await.expect("up").first().map(|container| container.state)
}

#[tokio::test(start_paused = true)]
async fn an_effect_without_an_answer_is_an_effect() {
    let engine = FakeRuntime::new();
    engine.fail_next(Operation::Create, Fault::EffectWithoutAnswer);
    assert_eq!(engine.create(&request(1)).await.expect_err("silent").kind, ErrorKind::Unknown);
    assert_eq!(state(&engine).await, Some(ContainerState::Created));
    engine.fail_next(Operation::Start, Fault::Fail(ErrorKind::Engine));
    assert_eq!(engine.start(&request(1).name).await.expect_err("refused").kind, ErrorKind::Engine);
    assert_eq!(state(&engine).await, Some(ContainerState::Created));
    assert_eq!(engine.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_caller_gave_up_still_takes_effect() {
    let engine = FakeRuntime::new();
    engine.script(|_| Behaviour::endless());
    engine.create(&request(1)).await.expect("created");
    engine.fail_next(Operation::Start, Fault::Delay(Duration::from_secs(10)));
    let name = request(1).name;
    tokio::time::timeout(Duration::from_secs(1), engine.start(&name)).await.expect_err("gives up");
    assert_eq!(state(&engine).await, Some(ContainerState::Created));
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(state(&engine).await, Some(ContainerState::Running));
    let engine = FakeRuntime::new();
    engine.fail_next(Operation::Create, Fault::LateEffect(Duration::from_secs(10)));
    assert_eq!(engine.create(&request(1)).await.expect_err("silent").kind, ErrorKind::Unknown);
    assert_eq!(state(&engine).await, None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(state(&engine).await, Some(ContainerState::Created));
}

#[tokio::test(start_paused = true)]
async fn what_ends_during_an_outage_is_never_told() {
    let engine = FakeRuntime::new();
    engine.script(|_| Behaviour::exits(5, Duration::from_secs(10)));
    engine.create(&request(1)).await.expect("created");
    engine.start(&request(1).name).await.expect("started");
    let mut events = engine.events(&instance());
    assert_eq!(events.next().await.expect("up"), Ok(RuntimeEvent::Subscribed));
    engine.go_away();
    assert_eq!(events.next().await.expect("told").expect_err("gone").kind, ErrorKind::Unreachable);
    assert!(events.next().await.is_none());
    assert_eq!(engine.list(&instance()).await.expect_err("away").kind, ErrorKind::Unreachable);
    tokio::time::sleep(Duration::from_mins(1)).await;
    engine.come_back(true);
    let detail = engine.inspect(&instance(), &request(1).name).await.expect("up").expect("there");
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Exited, 5));
    let ran = detail.finished_at.expect("ended").duration_since(detail.started_at.expect("began"));
    assert_eq!(ran.as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_live_restore_asks_everything_to_end() {
    let engine = FakeRuntime::new();
    engine.script(|_| Behaviour { on_term: Some(0), ..Behaviour::endless() });
    engine.create(&request(1)).await.expect("created");
    engine.start(&request(1).name).await.expect("started");
    engine.go_away();
    engine.come_back(false);
    let detail = engine.inspect(&instance(), &request(1).name).await.expect("up").expect("there");
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Exited, 0));
}

#[tokio::test(start_paused = true)]
async fn events_are_lost_and_told_twice() {
    let engine = FakeRuntime::new();
    let mut events = engine.events(&instance());
    assert_eq!(events.next().await.expect("up"), Ok(RuntimeEvent::Subscribed));
    engine.fail_next_event(EventFault::Lose);
    engine.fail_next_event(EventFault::Duplicate);
    engine.create(&request(1)).await.expect("created");
    engine.start(&request(1).name).await.expect("started");
    for _ in 0..2 {
        assert!(matches!(events.next().await, Some(Ok(RuntimeEvent::Started(_)))));
    }
    assert!(matches!(events.next().await, Some(Ok(RuntimeEvent::Exited(_)))));
}

#[tokio::test(start_paused = true)]
async fn what_our_code_never_may_is_noted() {
    let engine = FakeRuntime::new();
    engine.script(|key| if key.attempt == 1 { Behaviour::default() } else { Behaviour::endless() });
    let mut stranger = request(9);
    stranger.labels.clear();
    engine.create(&stranger).await.expect("an engine does not mind");
    engine.create(&request(1)).await.expect("created");
    for _ in 0..2 {
        engine.start(&request(1).name).await.expect("an engine does not mind");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for attempt in [2, 3] {
        engine.create(&request(attempt)).await.expect("created");
        engine.start(&request(attempt).name).await.expect("an engine does not mind");
    }
    engine.remove(&request(3).name).await.expect_err("it lives");
    let violations = engine.violations();
    let found: Vec<_> = ["without an instance label", "has run already", "orch-i-a-2 lives", "which lives"]
        .into_iter()
        .filter(|text| violations.iter().any(|violation| violation.contains(text)))
        .collect();
    assert_eq!((found.len(), violations.len()), (4, 4), "{violations:?}");
    assert_eq!(engine.starts()["orch-i-a-1"], 2);
    assert_eq!((engine.calls(Operation::Create), engine.calls(Operation::Start), engine.mutations()), (4, 4, 9));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_task_runs_no_further() {
    let engine = FakeRuntime::new();
    engine.script(|_| Behaviour::exits(0, Duration::from_secs(10)));
    engine.create(&request(1)).await.expect("created");
    engine.start(&request(1).name).await.expect("started");
    engine.human_pause(&request(1).name);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(state(&engine).await, Some(ContainerState::Paused));
    engine.human_unpause(&request(1).name);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(state(&engine).await, Some(ContainerState::Running));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(state(&engine).await, Some(ContainerState::Exited));
}
