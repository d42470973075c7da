//! The life of an attempt under the process runtime, beside what every runtime must do.

use std::time::Duration;

use futures::TryStreamExt;
use orchestrate::observe::{ContainerState, InstanceId};
use orchestrate::runtime::process::{Avoid, ProcessSettings};
use orchestrate::runtime::{ErrorKind, LogOptions, Runtime, RuntimeEvent};
use rstest::rstest;

use crate::process_support::{World, command_lines, next, until, within};

#[tokio::test]
async fn an_attempt_runs_only_once() {
    let world = World::new();
    let id = world.launch("a", "echo ran >>/project/runs").await;
    world.ended(&id).await;
    let error = world.runtime.start(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let error = world.successor().start(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert_eq!(std::fs::read_to_string(world.tree().join("runs")).expect("ran"), "ran\n");
}

#[tokio::test]
async fn of_twenty_starts_at_once_it_runs_once() {
    let world = World::new();
    let other = world.successor();
    let id = world.create("a", "echo ran >>/project/runs; sleep 0.2").await;
    let starts = (0..20).map(|n| if n % 2 == 0 { world.runtime.start(&id) } else { other.start(&id) });
    let answers = within(futures::future::join_all(starts)).await;
    assert!(answers.iter().any(Result::is_ok), "{answers:?}");
    for error in answers.into_iter().filter_map(Result::err) {
        assert!(matches!(error.kind, ErrorKind::Conflict | ErrorKind::Unknown), "{error}");
    }
    world.ended(&id).await;
    assert_eq!(std::fs::read_to_string(world.tree().join("runs")).expect("ran"), "ran\n");
}

/// Leaves the session, the group and the parent, and does not listen.
const DAEMON: &str = "setsid sh -c '(trap \"\" TERM HUP INT; while :; do sleep UNIQUE; done) & exit 0'; echo up;";

fn modes() -> [Avoid; 3] {
    let all = Avoid::default();
    [all, Avoid { namespaces: true, ..all }, Avoid { namespaces: true, cgroups: true, ..all }]
}

#[tokio::test]
async fn what_a_command_left_behind_ends_with_it() {
    for (n, avoid) in modes().into_iter().enumerate() {
        let world = World::avoiding(avoid);
        let unique = format!("{}.{n}", 10_000 + std::process::id());
        let shell = format!("{} exit 4", DAEMON.replace("UNIQUE", &unique));
        let id = world.launch("a", &shell).await;
        assert_eq!(world.ended(&id).await.exit_code, 4, "{avoid:?}");
        assert_eq!(command_lines(&unique), Vec::<String>::new(), "{avoid:?}");
    }
}

#[tokio::test]
async fn the_whole_tree_is_stopped() {
    for (n, avoid) in modes().into_iter().enumerate() {
        let world = World::avoiding(avoid);
        let unique = format!("{}.{n}", 20_000 + std::process::id());
        let shell = format!("trap '' TERM; {} while :; do sleep 0.1; done", DAEMON.replace("UNIQUE", &unique));
        let id = world.launch("a", &shell).await;
        world.written(&id).await;
        until(|| !command_lines(&unique).is_empty()).await;
        within(world.runtime.stop(&id, Duration::from_millis(50))).await.expect("stopped");
        assert_eq!(world.inspect(&id).await.exit_code, 137, "{avoid:?}");
        assert_eq!(command_lines(&unique), Vec::<String>::new(), "{avoid:?}");
    }
}

#[tokio::test]
async fn a_task_without_a_command_is_refused() {
    let world = World::new();
    let mut request = world.request("a", "true");
    request.command = None;
    let error = world.runtime.create(&request).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.message.contains("needs a `command`"), "{error}");
    assert!(world.runtime.list(&world.instance).await.expect("listed").is_empty());
}

#[tokio::test]
async fn where_nothing_confines_it_runs_only_if_it_is_allowed() {
    let bare = Avoid { namespaces: true, landlock: true, cgroups: true };
    let world = World::avoiding(bare);
    let request = world.request("a", "echo $HOME; exit 6");
    let error = world.runtime.create(&request).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.message.contains("--allow-unconfined"), "{error}");
    let world = World::with(|settings| {
        settings.avoid = bare;
        settings.allow_unconfined = true;
    });
    assert!(!world.runtime.confinement().await.expect("probed").confines_writes());
    assert_eq!(world.run(&world.request("a", "exit 6")).await.0, 6);
}

#[tokio::test]
async fn a_removed_name_can_be_made_again_and_is_another_one() {
    let world = World::new();
    let id = world.create("a", "true").await;
    world.runtime.remove(&id).await.expect("removed before it started");
    let again = world.create("a", "exit 2").await;
    assert_ne!(id, again);
    assert_eq!(world.runtime.start(&id).await.expect_err("gone").kind, ErrorKind::NotFound);
    world.runtime.start(&again).await.expect("started");
    assert_eq!(world.ended(&again).await.exit_code, 2);
}

#[tokio::test]
async fn a_refused_start_can_be_tried_again() {
    let world = World::new();
    let data = world.path().join("data");
    std::fs::create_dir(&data).expect("created");
    let mut request = world.request("a", "exit 3");
    request.mounts.push(orchestrate::runtime::Bind {
        source: data.clone(),
        target: "/data".to_owned(),
        read_only: true,
    });
    let id = world.runtime.create(&request).await.expect("created");
    std::fs::remove_dir(&data).expect("removed");
    let error = world.runtime.start(&id).await.expect_err("refused");
    assert_eq!(error.kind, ErrorKind::StartRefused, "{error}");
    let detail = world.inspect(&id).await;
    assert_eq!((detail.container.state, detail.exit_code), (ContainerState::Created, 128));
    assert!(detail.error.contains("/data"), "{}", detail.error);
    std::fs::create_dir(&data).expect("created");
    let again = world.runtime.start(&id).await;
    if world.runtime.confinement().await.expect("probed").user_namespace {
        // A user namespace gives its one pid namespace only once.
        assert_eq!(again.expect_err("refused").kind, ErrorKind::Engine);
        return;
    }
    again.expect("started");
    assert_eq!(world.ended(&id).await.exit_code, 3);
}

#[rstest]
#[case::short(1)]
#[case::long(400)]
#[tokio::test]
async fn any_path_is_long_enough(#[case] parts: usize) {
    // A socket's address holds 107 bytes.
    let long = vec!["d"; parts].join("/");
    let dir = tempfile::tempdir().expect("temp dir");
    let root = dir.path().join(long).join("state");
    let world = World::with(|settings| *settings = ProcessSettings { dir: root, ..settings.clone() });
    let id = world.launch("a", "sleep 1000").await;
    within(world.runtime.stop(&id, Duration::ZERO)).await.expect("stopped");
    world.ended(&id).await;
}

#[tokio::test]
async fn much_output_is_bounded_and_the_command_never_waits_for_a_reader() {
    let world = World::new();
    let id = world.launch("a", "echo first; yes 0123456789abcdef | head -c 200000000; echo last").await;
    within(world.ended(&id)).await;
    let files = std::fs::read_dir(world.folder(&id)).expect("listed");
    let size: u64 = files.map(|entry| entry.expect("read").metadata().expect("read").len()).sum();
    assert!(size < 66 << 20, "{size}");
    let log = world.output(&id).await;
    assert!(log.starts_with("first\n") && log.ends_with("last\n"));
    assert!(log.contains("of output are left out here"));
}

#[tokio::test]
async fn two_instances_share_a_folder_without_meeting() {
    let world = World::new();
    let mut events = world.runtime.events(&InstanceId("other".into()));
    assert_eq!(next(&mut events).await, RuntimeEvent::Subscribed);
    let id = world.launch("a", "true").await;
    world.ended(&id).await;
    let mut request = world.request("b", "true");
    request.labels.insert("dev.orchestrate.instance".to_owned(), "other".to_owned());
    world.runtime.create(&request).await.expect("created");
    assert!(matches!(next(&mut events).await, RuntimeEvent::Created(container) if container.name == request.name));
}

#[tokio::test]
async fn an_endless_line_and_bytes_of_any_kind_survive() {
    let world = World::new();
    let id = world.launch("a", "printf '\\000\\377L\\001'; head -c 300000 /dev/zero").await;
    world.ended(&id).await;
    let chunks: Vec<_> = world.runtime.logs(&id, LogOptions::default()).try_collect().await.expect("a log");
    let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
    assert_eq!(bytes.len(), 300_004);
    assert_eq!(bytes[..4], [0, 255, b'L', 1]);
}
