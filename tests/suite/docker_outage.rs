//! What an engine that dies leaves behind: the facts that the protocol stands on, each on an engine of the test's own.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, ContainerDetail, ContainerState, InstanceId};
use orchestrate::runtime::{Bind, CreateRequest, ErrorKind, Runtime, RuntimeEvent};
use orchestrate::spec::{Resources, TaskId};

use crate::support::engine::{IMAGE, OwnEngine};

fn instance() -> InstanceId {
    InstanceId("0ddba11".into())
}

async fn run(engine: &OwnEngine, task: &str, shell: &str) -> String {
    run_with(engine, task, shell, Vec::new()).await
}

async fn run_with(engine: &OwnEngine, task: &str, shell: &str, mounts: Vec<Bind>) -> String {
    let key = AttemptKey { task: TaskId::new(task).expect("valid"), attempt: 1 };
    let request = CreateRequest {
        name: names::container(&instance(), &key),
        labels: names::labels(&instance(), "plan", &key, "digest", "base"),
        key,
        image: Some(IMAGE.to_owned()),
        command: Some(["sh", "-c", shell].map(str::to_owned).to_vec()),
        env: BTreeMap::new(),
        mounts,
        workdir: "/".to_owned(),
        user: None,
        network: "none".to_owned(),
        resources: Resources::default(),
    };
    let id = engine.runtime.create(&request).await.expect("created");
    engine.runtime.start(&id).await.expect("started");
    id
}

async fn inspect(engine: &OwnEngine, id: &str) -> ContainerDetail {
    engine.runtime.inspect(&instance(), id).await.expect("answered").expect("there")
}

/// Waits for the end of a container without its events.
async fn ended(engine: &OwnEngine, id: &str) -> ContainerDetail {
    for _ in 0..600 {
        let detail = inspect(engine, id).await;
        if !detail.container.state.is_live() {
            return detail;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} did not end");
}

/// A trap is set before the shell says so.
async fn ready(engine: &OwnEngine, id: &str) {
    for _ in 0..600 {
        let log: Vec<_> =
            engine.runtime.logs(id, orchestrate::runtime::LogOptions::default()).try_collect().await.expect("a log");
        if !log.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} wrote nothing");
}

#[tokio::test]
async fn what_ends_while_a_killed_engine_is_away_keeps_its_code_and_is_never_told() {
    let Some(engine) = OwnEngine::start("killed") else { return };
    let folder = tempfile::tempdir().expect("temp dir");
    let (go, went) = (folder.path().join("go"), folder.path().join("went"));
    let mount = Bind { source: folder.path().to_owned(), target: "/x".to_owned(), read_only: false };
    let shell = "until [ -e /x/go ]; do sleep 0.05; done; touch /x/went; exit 5";
    let short = run_with(&engine, "short", shell, vec![mount]).await;
    let long = run(&engine, "long", "echo; sleep 1000").await;
    let mut events = engine.runtime.events(&instance());
    assert_eq!(events.next().await, Some(Ok(RuntimeEvent::Subscribed)));
    engine.kill();
    let error = events.next().await.expect("told").expect_err("gone");
    assert!(matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Unknown), "{error}");
    // A connection of the pool that died with the engine may be tried first; whether the call arrived is then not known.
    let error = engine.runtime.list(&instance()).await.expect_err("gone");
    assert!(matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Unknown), "{error}");
    std::fs::write(&go, "").expect("written");
    for _ in 0..600 {
        if went.exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(went.exists(), "containers live on without their engine");
    engine.start_again(&["--live-restore"]);
    let mut events = engine.runtime.events(&instance());
    assert_eq!(events.next().await, Some(Ok(RuntimeEvent::Subscribed)));
    let detail = ended(&engine, &short).await;
    assert_eq!((detail.container.state, detail.exit_code, detail.oom_killed), (ContainerState::Exited, 5, false));
    assert_eq!(inspect(&engine, &long).await.container.state, ContainerState::Running);
    // The first thing told is what happens now.
    engine.runtime.stop(&long, Duration::ZERO).await.expect("stopped");
    assert!(matches!(events.next().await, Some(Ok(RuntimeEvent::Exited(container))) if container.id == long));
}

#[tokio::test]
async fn an_engine_that_halts_lets_tasks_end_with_a_code_of_their_own() {
    let Some(engine) = OwnEngine::start("halted") else { return };
    let polite = run(&engine, "polite", "trap 'exit 0' TERM; echo; while :; do sleep 0.1; done").await;
    ready(&engine, &polite).await;
    engine.halt();
    assert_eq!(engine.runtime.list(&instance()).await.expect_err("gone").kind, ErrorKind::Unreachable);
    engine.start_again(&[]);
    let detail = inspect(&engine, &polite).await;
    let info = engine.runtime.probe().await.expect("answers");
    assert_eq!(info.live_restore, Some(false));
    // Together they prove that the engine was started after the task had begun, and so may have ended it.
    assert!(info.started_at > detail.started_at, "{info:?} {detail:?}");
    // Nothing in it tells this end from one of its own accord.
    assert_eq!((detail.container.state, detail.exit_code, detail.error.as_str()), (ContainerState::Exited, 0, ""));
}

#[tokio::test]
async fn an_engine_with_live_restore_halts_and_nothing_ends() {
    let Some(engine) = OwnEngine::start("restored") else { return };
    engine.halt();
    engine.start_again(&["--live-restore"]);
    let id = run(&engine, "a", "echo; sleep 1000").await;
    let started = inspect(&engine, &id).await.started_at;
    assert_eq!(engine.runtime.probe().await.expect("answers").live_restore, Some(true));
    engine.halt();
    engine.start_again(&["--live-restore"]);
    let detail = inspect(&engine, &id).await;
    assert_eq!((detail.container.state, detail.started_at), (ContainerState::Running, started));
}
