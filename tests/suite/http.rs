//! What HTTP serves and to whom, without sockets where none is needed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode, Version};
use futures::StreamExt as _;
use orchestrate::controller::Trouble;
use orchestrate::http::{Board, Hosts, Listen, ListenError, Server, ServerOptions, Site, Token, router};
use orchestrate::report::View;
use tower::ServiceExt as _;

use crate::support::plans::{self, HOSTILE};
use crate::support::project::Project;
use crate::support::web::{Daemon, wait_for};

struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

async fn ask_as(board: &Arc<Board>, hosts: Hosts, token: Option<Token>, request: Request<Body>) -> Answer {
    let site = Arc::new(Site::new(Arc::clone(board), hosts, token));
    let response = router(site).oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let bytes = axum::body::to_bytes(body, 64 << 20).await.expect("ends");
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(bytes.into()).expect("text") }
}

async fn ask(board: &Arc<Board>, request: Request<Body>) -> Answer {
    ask_as(board, Hosts::Loopback, None, request).await
}

fn request(method: &str, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).header("host", "localhost:9464").body(Body::empty()).expect("a request")
}

fn published(view: &View) -> Arc<Board> {
    let board = plans::board();
    board.publish(view.clone(), plans::no_tasks());
    board
}

const PATHS: [&str; 6] = ["/", "/metrics", "/healthz", "/readyz", "/api/v1/status", "/tasks/schema-0"];

#[tokio::test]
async fn everything_is_there_safe_and_never_cached() {
    let board = published(&plans::plan(7));
    for path in PATHS {
        let answer = ask(&board, request("GET", path)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{path}");
        let head = ask(&board, request("HEAD", path)).await;
        assert_eq!((head.status, head.body.as_str()), (StatusCode::OK, ""), "{path}");
    }
    for path in ["/nothing", "/tasks/no-such-task", "/tasks/", "/api/v1", "/..%2f..%2fetc/passwd"] {
        assert_eq!(ask(&board, request("GET", path)).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn nothing_can_be_changed_and_no_other_origin_is_let_in() {
    let board = published(&plans::plan(7));
    for path in PATHS {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let mut request = request(method, path);
            request.headers_mut().insert("origin", "https://evil.example".parse().expect("a value"));
            let answer = ask(&board, request).await;
            assert_eq!(answer.status, 405, "{method} {path}");
            assert_eq!(answer.header("allow"), "GET, HEAD", "{method} {path}");
            assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_strangers_host_gets_nothing() {
    let board = published(&plans::plan(7));
    let cases: [(&[&str], &str, u16); 8] = [
        (&["evil.com"], "/", 421),
        (&["LOCALHOST.:9090"], "/", 200),
        (&["[::1]"], "/", 200),
        (&[], "/", 400),
        (&["localhost", "localhost"], "/", 400),
        (&["localhost"], "http://evil.com/", 421),
        (&["evil.com"], "/nothing", 421),
        (&["127.0.0.1:1"], "/metrics", 200),
    ];
    for (hosts, uri, status) in cases {
        let mut request = Request::builder().uri(uri).version(Version::HTTP_11);
        for host in hosts {
            request = request.header("host", *host);
        }
        let answer = ask(&board, request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.status, status, "{hosts:?} {uri}");
        assert!(status == 200 || !answer.body.contains("schema-0"));
    }
}

#[tokio::test]
async fn with_a_token_nothing_is_told_without_it() {
    let board = published(&plans::plan(7));
    let token = Token::new("0123456789abcdef");
    for path in PATHS {
        for authorization in [None, Some("Bearer 0123456789abcdeX"), Some("Basic eDp5")] {
            let mut request = request("GET", path);
            if let Some(text) = authorization {
                request.headers_mut().insert("authorization", text.parse().expect("a value"));
            }
            let answer = ask_as(&board, Hosts::Any, token.clone(), request).await;
            assert_eq!(answer.status, 401, "{path}");
            assert!(answer.header("www-authenticate").contains("Bearer"), "{path}");
            assert!(!answer.body.contains("schema-0"), "{path}");
        }
        let mut request = request("GET", path);
        request.headers_mut().insert("authorization", "Bearer 0123456789abcdef".parse().expect("a value"));
        request.headers_mut().insert("host", "orchestrate.internal:9464".parse().expect("a value"));
        assert_eq!(ask_as(&board, Hosts::Any, token.clone(), request).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_status_is_that_of_the_command() {
    let view = plans::plan(60);
    let answer = ask(&published(&view), request("GET", "/api/v1/status")).await;
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.body, serde_json::to_string_pretty(&view).expect("plain data") + "\n");
    assert_eq!(ask(&plans::board(), request("GET", "/api/v1/status")).await.status, 503, "nothing is known yet");
}

#[tokio::test]
async fn metrics_are_given_in_the_format_that_is_asked_for() {
    let board = published(&plans::plan(7));
    let plain = ask(&board, request("GET", "/metrics")).await;
    assert!(plain.header("content-type").starts_with("text/plain; version=0.0.4"));
    let mut asks_open = request("GET", "/metrics");
    asks_open
        .headers_mut()
        .insert("accept", "application/openmetrics-text;version=1.0.0,*/*;q=0.1".parse().expect("a value"));
    let open = ask(&board, asks_open).await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(open.body.ends_with("# EOF\n"));
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_makes_no_pass_is_stuck_and_one_that_does_is_well() {
    let board = published(&plans::plan(7));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(ask(&board, request("GET", "/healthz")).await.status, 200);
    tokio::time::advance(Duration::from_secs(2)).await;
    let stuck = ask(&board, request("GET", "/healthz")).await;
    assert_eq!((stuck.status.as_u16(), stuck.body.as_str()), (503, "stuck: no pass was made for 1m 1s\n"));
    assert_eq!(ask(&board, request("GET", "/readyz")).await.status, 503);
    board.note(None);
    assert_eq!(ask(&board, request("GET", "/healthz")).await.status, 200);
    assert_eq!(ask(&board, request("GET", "/readyz")).await.body, "ready\n");
}

#[tokio::test]
async fn readiness_says_why_not_each_on_a_line_and_escaped() {
    let mut view = plans::plan(7);
    view.plan_invalid = Some("the plan file\n/r/\u{1b}[2J is invalid".to_owned());
    view.engine_unavailable = Some("no such file".to_owned());
    let board = published(&view);
    board.note(Some(Trouble::PlanFile));
    let answer = ask(&board, request("GET", "/readyz")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.body,
        "not ready: the last pass failed: plan_file\n\
         not ready: the plan file is not accepted: the plan file\\n/r/\\u{1b}[2J is invalid\n\
         not ready: the engine does not answer: no such file\n"
    );
    let answer = ask(&plans::board(), request("GET", "/readyz")).await;
    assert_eq!(answer.body, "not ready: no pass was made yet\n");
}

#[tokio::test]
async fn what_others_wrote_stays_text() {
    let mut view = plans::plan(7);
    for text in [&mut view.plan_invalid, &mut view.engine_unavailable] {
        *text = Some(HOSTILE.to_owned());
    }
    view.project = HOSTILE.to_owned();
    view.warnings = vec![HOSTILE.to_owned(), HOSTILE.to_owned()];
    let board = published(&view);
    for path in ["/", "/tasks/api-client-1", "/tasks/%3Cscript%3E"] {
        let body = ask(&board, request("GET", path)).await.body;
        assert_eq!(body.matches("<script").count(), 1, "{path}: only our own");
        assert!(!body.contains("<img") && !body.contains('\u{202e}') && !body.contains('\u{1b}'), "{path}");
    }
}

/// Opens a stream of events.
async fn stream(board: &Arc<Board>, path: &str, last: Option<&str>) -> axum::body::BodyDataStream {
    let mut request = request("GET", path);
    if let Some(last) = last {
        request.headers_mut().insert("last-event-id", last.parse().expect("a value"));
    }
    let site = Arc::new(Site::new(Arc::clone(board), Hosts::Loopback, None));
    let response = router(site).oneshot(request).await.expect("infallible");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body().into_data_stream()
}

async fn next(stream: &mut axum::body::BodyDataStream) -> (String, String, serde_json::Value) {
    let bytes = tokio::time::timeout(Duration::from_mins(1), stream.next()).await;
    let bytes = bytes.expect("in time").expect("more").expect("well");
    let text = String::from_utf8(bytes.into()).expect("text");
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    (field("id:"), field("event:"), serde_json::from_str(&field("data:")).expect("JSON"))
}

#[tokio::test]
async fn events_begin_with_everything_tell_changes_and_resume_where_they_broke_off() {
    let board = published(&plans::plan(7));
    let mut events = stream(&board, "/api/v1/events", None).await;
    let (first, kind, data) = next(&mut events).await;
    assert_eq!((kind.as_str(), data["tasks"].as_array().map(Vec::len)), ("snapshot", Some(7)));
    let mut view = plans::plan(7);
    view.tasks[3].message = Some("news".to_owned());
    view.tasks[4].seconds = Some(1);
    board.publish(view.clone(), plans::no_tasks());
    let (second, kind, data) = next(&mut events).await;
    assert_eq!(kind, "status");
    let changed: Vec<_> = data["changed"].as_array().expect("a list").iter().map(|task| task["id"].clone()).collect();
    assert_eq!(changed, [view.tasks[3].id.as_str()], "that time passes is no news");
    view.tasks.remove(6);
    board.publish(view, plans::no_tasks());
    for (path, last) in [("/api/v1/events", Some(second.as_str())), (&*format!("/api/v1/events?from={second}"), None)] {
        let (_, kind, data) = next(&mut stream(&board, path, last).await).await;
        assert_eq!((kind.as_str(), data["removed"].as_array().map(Vec::len)), ("status", Some(1)), "{path}");
    }
    let mut both = stream(&board, "/api/v1/events", Some(&first)).await;
    assert_eq!(next(&mut both).await.0, second, "what was missed comes first");
    for unknown in ["other-1", "e-99", "x"] {
        let (_, kind, _) = next(&mut stream(&board, "/api/v1/events", Some(unknown)).await).await;
        assert_eq!(kind, "snapshot", "{unknown}");
    }
}

#[test]
fn slow_clients_hold_up_nobody_and_too_many_are_closed() {
    let board = published(&plans::plan(7));
    let (server, address) = plans::serve(&board);
    let slow: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("connects");
            // Fails on those that are closed already.
            drop(stream.write_all(b"GET / HTTP/1.1\r\nHost: loc"));
            stream
        })
        .collect();
    let is_closed = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).expect("sets");
        match stream.read(&mut [0; 64]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    let closed = wait_for("most of them to be closed", || {
        Some(slow.iter().filter(|stream| is_closed(stream)).count()).filter(|closed| *closed >= 272)
    });
    assert_eq!(closed, 272, "as many as there is room for stay");
    // Whoever tells of passes is on another thread and waits for none of them.
    board.note(None);
    board.publish(plans::plan(8), plans::no_tasks());
    drop(slow);
    wait_for("room again", || {
        TcpStream::connect(&address).ok().and_then(|mut stream| {
            stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            text.contains("200 OK").then_some(())
        })
    });
    drop(server);
    TcpStream::connect(&address).expect_err("nobody listens any more");
}

#[test]
fn oversized_heads_are_refused() {
    let (_server, address) = plans::serve(&published(&plans::plan(7)));
    let mut stream = TcpStream::connect(&address).expect("connects");
    let long = "x".repeat(100_000);
    drop(stream.write_all(format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()));
    let mut text = String::new();
    // It may be cut off before the answer is read.
    drop(stream.read_to_string(&mut text));
    assert!(!text.contains("200 OK"), "{text}");
}

#[test]
fn a_unix_socket_serves_whoever_may_open_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let listen = Listen::Unix(dir.path().join("http.sock"));
    let site = Arc::new(Site::new(published(&plans::plan(7)), listen.hosts(), None));
    let server = Server::start(&ServerOptions { listen, has_token: false }, site).expect("starts");
    let mut stream = UnixStream::connect(dir.path().join("http.sock")).expect("connects");
    stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: anything\r\n\r\n").expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("reads");
    assert!(text.ends_with("ready\n"), "{text}");
    drop(server);
    assert!(!dir.path().join("http.sock").exists(), "it goes with its server");
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let listen: Listen = "0.0.0.0:0".parse().expect("valid");
    let site = |token| Arc::new(Site::new(plans::board(), Hosts::Any, token));
    let refused = Server::start(&ServerOptions { listen: listen.clone(), has_token: false }, site(None));
    assert!(matches!(refused, Err(ListenError::Open { .. })), "{refused:?}");
    let token = Token::new("0123456789abcdef");
    drop(Server::start(&ServerOptions { listen, has_token: true }, site(token)).expect("starts"));
}

/// Without an engine: what is served says so.
fn without_engine() -> Project {
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    project.plan(serde_json::json!([{ "id": "a", "command": ["true"] }, { "id": "b", "dependencies": ["a"], "command": ["true"] }]));
    project
}

#[test]
fn a_port_in_use_is_an_error_with_a_way_out() {
    let project = without_engine();
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = held.local_addr().expect("bound").to_string();
    let ran = project.run(&["run", "--listen", &address, "--timeout", "1s"]).expect(4);
    assert!(ran.stderr.contains(&format!("http://{address}/ is in use")), "{}", ran.stderr);
    assert!(ran.stderr.contains("--http-optional"), "{}", ran.stderr);
    let ran = project.run(&["run", "--listen", &address, "--http-optional", "--timeout", "1s"]).expect(6);
    assert!(ran.stderr.contains("going on without HTTP"), "{}", ran.stderr);
}

#[test]
fn the_daemon_serves_what_its_commands_say_and_tells_of_an_invalid_file() {
    let project = without_engine();
    let daemon = Daemon::start(&project, &[]);
    let status =
        wait_for("the first pass", || Some(daemon.get("/api/v1/status")).filter(|answer| answer.status == 200));
    let served: View = serde_json::from_str(&status.body).expect("a view");
    let told: View = serde_json::from_str(&project.run(&["status", "-o", "json"]).expect(0).stdout).expect("a view");
    assert_eq!(served.project, told.project);
    let stands = |view: &View| view.tasks.iter().map(|task| (task.id.clone(), task.status)).collect::<Vec<_>>();
    assert_eq!(stands(&served), stands(&told));
    let good = std::fs::read(project.plan_path()).expect("reads");
    std::fs::write(project.plan_path(), b"{ not json").expect("writes");
    let is_valid = |valid: &str| {
        let sample = format!("orchestrate_spec_valid{{project=\"repo\"}} {valid}\n");
        wait_for(&sample, || daemon.get("/metrics").body.contains(&sample).then_some(()));
    };
    is_valid("0");
    assert!(daemon.get("/readyz").body.contains("not accepted"));
    assert!(daemon.get("/").body.contains("The plan file is not accepted."));
    assert!(
        daemon
            .get("/metrics")
            .body
            .contains("orchestrate_reconcile_errors_total{project=\"repo\",reason=\"invalid_plan\"} 1\n")
    );
    std::fs::write(project.plan_path(), good).expect("writes");
    is_valid("1");
}

#[test]
fn metrics_are_written_for_the_textfile_collector() {
    let project = without_engine();
    let file = project.ran().join("orchestrate.prom");
    let path = file.to_str().expect("text");
    let _unready = project.run(&["run", "--metrics-file", path, "--timeout", "1s"]).expect(6);
    let text = std::fs::read_to_string(&file).expect("written");
    assert!(text.contains("orchestrate_tasks{project=\"repo\",status=\"pending\"} 2\n"), "{text}");
    std::fs::remove_file(&file).expect("removes");
    let _away = project.run(&["once", "--metrics-file", path]).expect(4);
    let text = std::fs::read_to_string(&file).expect("written although the pass failed");
    assert!(text.contains("orchestrate_reconcile_errors_total{project=\"repo\",reason=\"runtime\"} 1\n"), "{text}");
}
