//! Paths, and what every request has to pass before one is looked at.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{self, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::Stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::board::{Board, Health};
use super::host::{Hosts, Refusal};
use super::page;
use super::tail::LogTail;
use super::task_page;
use super::token::Token;
use crate::report::MetricsFormat;

/// Streams at once.
const MAX_STREAMS: usize = 64;
/// A quiet stream shows that it lives, and that its client does.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// All that is served, and to whom.
pub struct Site {
    board: Arc<Board>,
    tail: Option<LogTail>,
    gate: Arc<Gate>,
    streams: Arc<Semaphore>,
}

/// Who is let in, and what every answer is sent with.
pub struct Gate {
    hosts: Hosts,
    token: Option<Token>,
    policy: HeaderValue,
}

impl Gate {
    /// Lets in requests with such hosts and this token.
    pub fn new(hosts: Hosts, token: Option<Token>) -> Self {
        let policy = HeaderValue::from_str(&page::policy()).expect("BUG: digests in base64 are header text");
        Self { hosts, token, policy }
    }
}

impl Site {
    /// Serves a board to requests with such hosts and this token.
    pub fn new(board: Arc<Board>, hosts: Hosts, token: Option<Token>) -> Self {
        let gate = Arc::new(Gate::new(hosts, token));
        Self { board, tail: None, gate, streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// With the ends of logs on the pages of tasks.
    #[must_use]
    pub fn with_tail(self, tail: LogTail) -> Self {
        Self { tail: Some(tail), ..self }
    }
}

type Served = State<Arc<Site>>;

/// The routes behind the checks.
pub fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/tasks/{task}", get(task))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/api/v1/status", get(status))
        .route("/api/v1/events", get(events))
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(&site.gate), guard))
        .with_state(site)
}

pub(super) async fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "there is nothing here\n")
}

/// Host, method, token, in this order: whoever names another host learns nothing more.
pub(super) async fn guard(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let mut response = match refuse(&gate, &request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, gate.policy.clone());
    response
}

fn refuse(gate: &Gate, request: &Request) -> Option<Response> {
    let hosts: Vec<&[u8]> = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes).collect();
    match gate.hosts.check(&hosts, request.uri().authority().map(axum::http::uri::Authority::as_str)) {
        Err(Refusal::Malformed) => return Some(plain(StatusCode::BAD_REQUEST, "give one Host header\n")),
        Err(Refusal::Misdirected) => {
            let why = "this host is not served here; use localhost or 127.0.0.1\n";
            return Some(plain(StatusCode::MISDIRECTED_REQUEST, why));
        }
        Ok(()) => {}
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "everything here is read-only\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    let given = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    if gate.token.as_ref().is_some_and(|token| !token.admits(given)) {
        let mut response = plain(StatusCode::UNAUTHORIZED, "give the token, as a bearer or as the password\n");
        let challenge = HeaderValue::from_static("Basic realm=\"orchestrate\", Bearer realm=\"orchestrate\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        return Some(response);
    }
    None
}

pub(super) fn typed(status: StatusCode, kind: &'static str, body: impl Into<String>) -> Response {
    (status, [(header::CONTENT_TYPE, kind)], body.into()).into_response()
}

pub(super) fn plain(status: StatusCode, body: impl Into<String>) -> Response {
    typed(status, TEXT, body)
}

fn not_yet() -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, "no pass was made yet\n")
}

/// The format of metrics that a scraper likes best.
pub(super) fn accepted(headers: &HeaderMap) -> MetricsFormat {
    let accept: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let accept = accept.join(",");
    MetricsFormat::accepted(Some(accept.as_str()).filter(|accept| !accept.is_empty()))
}

async fn metrics(State(site): Served, headers: HeaderMap) -> Response {
    let format = accepted(&headers);
    typed(StatusCode::OK, format.content_type(), site.board.metrics().text(format))
}

async fn healthz(State(site): Served) -> Response {
    match site.board.health() {
        Health::Alive(age) => {
            plain(StatusCode::OK, format!("ok: the last pass was {} ago\n", crate::report::time::age(age)))
        }
        Health::Stuck(age) => {
            let why = format!("stuck: no pass was made for {}\n", crate::report::time::age(age));
            plain(StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

async fn readyz(State(site): Served) -> Response {
    let why = site.board.unready();
    if why.is_empty() {
        return plain(StatusCode::OK, "ready\n");
    }
    let lines: Vec<_> = why.iter().map(|why| crate::report::escape::line(why)).collect();
    plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", lines.join("\nnot ready: ")))
}

async fn status(State(site): Served) -> Response {
    let Some(view) = site.board.view() else { return not_yet() };
    let json = serde_json::to_string_pretty(&*view).expect("BUG: a view is plain data");
    typed(StatusCode::OK, JSON, json + "\n")
}

async fn home(State(site): Served) -> Response {
    match site.board.view_and_id() {
        Some((view, id)) => typed(StatusCode::OK, HTML, page::page(&view, &id)),
        None => typed(StatusCode::SERVICE_UNAVAILABLE, HTML, page::waiting()),
    }
}

async fn task(State(site): Served, Path(id): Path<String>) -> Response {
    let Some((view, event)) = site.board.view_and_id() else {
        return typed(StatusCode::SERVICE_UNAVAILABLE, HTML, page::waiting());
    };
    let Some(task) = view.task(&id) else {
        return typed(StatusCode::NOT_FOUND, HTML, task_page::unknown(&view, &id));
    };
    let tail = match (&site.tail, site.board.tasks()) {
        (Some(tail), Some(tasks)) => Some(tail.of(task, &tasks).await),
        _ => None,
    };
    typed(StatusCode::OK, HTML, task_page::page(&view, task, tail.as_ref(), &event))
}

async fn events(State(site): Served, RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let Ok(permit) = Arc::clone(&site.streams).try_acquire_owned() else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open\n");
    };
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let seen = seen.or_else(|| {
        let query = query.unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "from").map(|(_, id)| id.into_owned())
    });
    Sse::new(stream(Arc::clone(&site.board), seen, permit))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
        .into_response()
}

/// What a stream is at.
struct Cursor {
    board: Arc<Board>,
    newest: tokio::sync::watch::Receiver<u64>,
    /// The last event that was given; `None`: a whole view comes first.
    at: Option<u64>,
    queue: std::collections::VecDeque<Event>,
    _permit: OwnedSemaphorePermit,
}

impl Cursor {
    /// Puts what is there into the queue.
    fn fill(&mut self) {
        if let Some(at) = self.at
            && let Some(items) = self.board.after(at)
        {
            for (id, item) in items {
                self.at = Some(item.number);
                self.queue.push_back(Event::default().id(id).event(item.kind).data(&*item.data));
            }
            return;
        }
        // A client that fell too far behind begins anew, as one that has seen nothing.
        if let Some((number, id, view)) = self.board.snapshot() {
            let json = serde_json::to_string(&*view).expect("BUG: a view is plain data");
            self.at = Some(number);
            self.queue.push_back(Event::default().id(id).event("snapshot").data(json));
        }
    }
}

fn stream(
    board: Arc<Board>,
    seen: Option<String>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let newest = board.subscribe();
    let at = seen.and_then(|id| board.resume(&id));
    let cursor = Cursor { board, newest, at, queue: std::collections::VecDeque::new(), _permit: permit };
    futures::stream::unfold(cursor, |mut cursor| async move {
        loop {
            if let Some(event) = cursor.queue.pop_front() {
                return Some((Ok(event), cursor));
            }
            // Seen before looking, so that what comes in between wakes us.
            cursor.newest.mark_unchanged();
            cursor.fill();
            if cursor.queue.is_empty() && cursor.newest.changed().await.is_err() {
                return None;
            }
        }
    })
}
