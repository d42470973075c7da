//! Answers that no healthy engine gives: what the adapter makes of them, over a socket that plays the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use orchestrate::observe::names;
use orchestrate::observe::{AttemptKey, InstanceId};
use orchestrate::runtime::docker::{DockerRuntime, Endpoint};
use orchestrate::runtime::{CreateRequest, ErrorKind, LogOptions, Operation, Runtime, RuntimeEvent};
use orchestrate::spec::{Resources, TaskId};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

/// What the engine answers to a path that contains the text; the connection closes after it.
type Answers = Vec<(&'static str, Answer)>;

#[derive(Clone)]
enum Answer {
    Bytes(Vec<u8>),
    /// Reads the request and never answers.
    Silence,
}

struct Engine {
    runtime: DockerRuntime,
    seen: Arc<Mutex<Vec<String>>>,
    // Ends with the test.
    _tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

fn json(status: &str, body: &str) -> Answer {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    Answer::Bytes(format!("{head}\r\nConnection: close\r\n\r\n{body}").into_bytes())
}

fn engine(answers: Answers) -> Engine {
    let folder = tempfile::tempdir().expect("temp dir");
    let path = folder.path().join("sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let mut all = vec![("/version", json("200 OK", r#"{"ApiVersion":"1.41","Version":"20.10.24"}"#))];
    all.extend(answers);
    all.push(("/info", json("200 OK", r#"{"NCPU":2,"SystemTime":"2026-12-01T04:07:11.5Z"}"#)));
    let log = Arc::clone(&seen);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            let (all, log) = (all.clone(), Arc::clone(&log));
            connections.spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
                let found = all.iter().find(|(path, _)| line.contains(path)).map(|(_, answer)| answer.clone());
                log.lock().expect("no panic").push(line);
                match found {
                    Some(Answer::Bytes(bytes)) => {
                        // The other side may have hung up.
                        drop(connection.write_all(&bytes).await);
                    }
                    Some(Answer::Silence) => futures::future::pending().await,
                    None => {}
                }
            });
        }
    });
    Engine { runtime: DockerRuntime::at(Endpoint::Unix(path), None), seen, _tasks: tasks, _folder: folder }
}

fn instance() -> InstanceId {
    InstanceId("i".into())
}

fn request() -> CreateRequest {
    let key = AttemptKey { task: TaskId::new("a").expect("valid"), attempt: 1 };
    CreateRequest {
        name: names::container(&instance(), &key),
        labels: names::labels(&instance(), "p", &key, "d", "b"),
        key,
        image: Some("image".to_owned()),
        command: None,
        env: BTreeMap::new(),
        mounts: Vec::new(),
        workdir: "/".to_owned(),
        user: None,
        network: "none".to_owned(),
        resources: Resources::default(),
    }
}

const GOOD: &str = r#"[{"Id":"1","Names":["/orch-i-a-1"],"State":"running","Labels":{"dev.orchestrate.instance":"i","dev.orchestrate.task":"a","dev.orchestrate.attempt":"1"}}"#;

#[rstest]
#[case::whole(json("200 OK", &format!("{GOOD}]")), None)]
#[case::cut_by_the_connection(Answer::Bytes(format!("HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{GOOD}").into_bytes()), Some(ErrorKind::Unknown))]
#[case::cut_in_the_text(json("200 OK", GOOD), Some(ErrorKind::Unknown))]
#[case::a_container_without_a_state(json("200 OK", &format!("{GOOD},{{\"Id\":\"2\"}}]")), Some(ErrorKind::Unknown))]
#[case::no_list(json("200 OK", r#"{"message":"hello"}"#), Some(ErrorKind::Unknown))]
#[case::failed(json("500 Internal Server Error", r#"{"message":"database is locked"}"#), Some(ErrorKind::Engine))]
#[case::failed_without_json(json("502 Bad Gateway", "<html>"), Some(ErrorKind::Engine))]
#[case::hung_up(Answer::Bytes(Vec::new()), Some(ErrorKind::Unknown))]
#[case::no_http(Answer::Bytes(b"SSH-2.0-x\r\n".to_vec()), Some(ErrorKind::Unknown))]
#[tokio::test]
async fn a_list_is_whole_or_an_error(#[case] answer: Answer, #[case] kind: Option<ErrorKind>) {
    let engine = engine(vec![("/containers/json", answer)]);
    match (engine.runtime.list(&instance()).await, kind) {
        (Ok(list), None) => assert_eq!(list.len(), 1),
        (Err(error), Some(kind)) => assert_eq!(error.kind, kind, "{error}"),
        (result, kind) => panic!("{result:?} instead of {kind:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_answer_in_time_may_have_happened() {
    let engine =
        engine(vec![("/start", Answer::Silence), ("/containers/json", Answer::Silence), ("/logs", Answer::Silence)]);
    // So that only the call itself is waited for.
    engine.runtime.probe().await.expect("answers");
    let begin = tokio::time::Instant::now();
    let error = engine.runtime.list(&instance()).await.expect_err("silent");
    assert_eq!((error.kind, begin.elapsed().as_secs()), (ErrorKind::Unknown, 10), "{error}");
    let begin = tokio::time::Instant::now();
    let error = engine.runtime.start("orch-i-a-1").await.expect_err("silent");
    assert_eq!((error.kind, error.operation), (ErrorKind::Unknown, Operation::Start));
    assert_eq!((begin.elapsed().as_secs(), error.message.as_str()), (30, "no answer within 30 s"));
    let seen = engine.seen.lock().expect("no panic").clone();
    assert_eq!(seen.iter().filter(|line| line.contains("/start")).count(), 1, "asked once and no more: {seen:?}");
}

#[tokio::test]
async fn a_create_whose_answer_breaks_off_may_have_happened() {
    let cut = Answer::Bytes(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"Id\":".to_vec());
    let engine = engine(vec![("/containers/create", cut)]);
    assert_eq!(engine.runtime.create(&request()).await.expect_err("cut").kind, ErrorKind::Unknown);
    let seen = engine.seen.lock().expect("no panic").clone();
    assert_eq!(seen.iter().filter(|line| line.contains("/create")).count(), 1, "asked once and no more: {seen:?}");
}

#[tokio::test]
async fn an_event_stream_ends_with_an_error_however_it_ends() {
    let event = r#"{"Type":"image","Action":"tag","Actor":{"ID":"sha256:1","Attributes":{"name":"a:b"}}}"#;
    let line = format!("{event}\n{{\"Type\":\"image\",\"Act");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = format!("{head}{:x}\r\n{line}\r\n", line.len());
    for (bytes, kind) in [(format!("{chunk}0\r\n\r\n"), ErrorKind::Unreachable), (chunk, ErrorKind::Unknown)] {
        let engine = engine(vec![("/events", Answer::Bytes(bytes.into_bytes()))]);
        let mut events = engine.runtime.events(&instance());
        assert_eq!(events.try_next().await.expect("up"), Some(RuntimeEvent::Subscribed));
        assert_eq!(events.try_next().await.expect("whole"), Some(RuntimeEvent::ImageAvailable("a:b".to_owned())));
        assert_eq!(events.try_next().await.expect_err("ended").kind, kind);
        assert_eq!(events.try_next().await, Ok(None), "nothing follows an error");
    }
}

#[tokio::test]
async fn a_subscription_asks_for_what_happened_since_the_engines_own_time() {
    let engine = engine(vec![("/events", json("200 OK", ""))]);
    let mut events = engine.runtime.events(&instance());
    assert_eq!(events.try_next().await.expect("up"), Some(RuntimeEvent::Subscribed));
    let seen = engine.seen.lock().expect("no panic").clone();
    assert!(seen.iter().any(|line| line.contains("/events?since=1796098031.500000000&")), "{seen:?}");
}

#[tokio::test]
async fn a_log_that_breaks_off_says_so() {
    let body = b"\x01\0\0\0\0\0\0\x05hello\x02\0\0\0\0\0\0\x09wor".to_vec();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    let engine = engine(vec![("/json", json("200 OK", "{}")), ("/logs", Answer::Bytes([head, body].concat()))]);
    let mut log = engine.runtime.logs("orch-i-a-1", LogOptions::default());
    assert_eq!(log.try_next().await.expect("whole").expect("a chunk").bytes, "hello");
    assert_eq!(log.try_next().await.expect("so far").expect("a chunk").bytes, "wor");
    assert_eq!(log.try_next().await.expect_err("cut").kind, ErrorKind::Unknown);
}

#[tokio::test]
async fn the_engine_is_asked_again_after_it_was_away() {
    let folder = tempfile::tempdir().expect("temp dir");
    let runtime = DockerRuntime::at(Endpoint::Unix(folder.path().join("sock")), None);
    assert_eq!(runtime.list(&instance()).await.expect_err("away").kind, ErrorKind::Unreachable);
    let engine = engine(vec![("/containers/json", json("200 OK", "[]"))]);
    let Endpoint::Unix(path) = engine.runtime.endpoint().clone() else { panic!("a socket") };
    std::fs::rename(path, folder.path().join("sock")).expect("moved");
    assert_eq!(runtime.list(&instance()).await.expect("back"), []);
    assert_eq!(runtime.stop("a/b", Duration::ZERO).await.expect_err("no name").kind, ErrorKind::Invalid);
}
