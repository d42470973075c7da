//! Several plans under one address: an overview, the status of each as JSON, and the metrics of all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use maud::html;
use serde::Serialize;

use super::board::{Board, Health};
use super::parts::{safe, shell};
use super::router::{Gate, HTML, JSON, accepted, guard, not_found, plain, typed};
use crate::report::{Metrics, View, escape, merged_text};

/// The boards of the repositories that are served, and what is wrong with those that are not.
#[derive(Default)]
pub struct Boards {
    plans: Mutex<BTreeMap<PathBuf, Member>>,
}

enum Member {
    Served(Arc<Board>),
    /// Why not.
    Broken(String),
}

impl Boards {
    fn plans(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Member>> {
        // Each change is one call on a map.
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A repository is served.
    pub fn serve(&self, folder: &Path, board: Arc<Board>) {
        self.plans().insert(folder.to_owned(), Member::Served(board));
    }

    /// A repository cannot be served for now.
    pub fn fail(&self, folder: &Path, why: &str) {
        self.plans().insert(folder.to_owned(), Member::Broken(why.to_owned()));
    }

    /// A repository is none of ours any more.
    pub fn remove(&self, folder: &Path) {
        self.plans().remove(folder);
    }

    /// Those that are served.
    pub fn served(&self) -> Vec<(PathBuf, Arc<Board>)> {
        let plans = self.plans();
        let served = plans.iter().filter_map(|(folder, member)| match member {
            Member::Served(board) => Some((folder.clone(), Arc::clone(board))),
            Member::Broken(_) => None,
        });
        served.collect()
    }

    /// Loops that make no pass any more: one sentence each.
    pub fn stuck(&self) -> Vec<String> {
        let stuck = |(folder, board): (PathBuf, Arc<Board>)| match board.health() {
            Health::Alive(_) => None,
            Health::Stuck(age) => {
                let age = crate::report::time::age(age);
                Some(format!("stuck: {}: no pass was made for {age}", folder.display()))
            }
        };
        self.served().into_iter().filter_map(stuck).collect()
    }

    /// `3 repositories, 1 not served; 12 of 40 tasks completed, 3 running`.
    pub fn sentence(&self) -> String {
        let served = self.served();
        let broken = self.broken().len();
        let mut sum = (0, 0, 0);
        for view in served.iter().filter_map(|(_, board)| board.view()) {
            let all = &view.summary;
            sum = (sum.0 + all.completed, sum.1 + all.total, sum.2 + all.running);
        }
        let not = if broken > 0 { format!(", {broken} not served") } else { String::new() };
        let count = crate::report::plural(served.len() + broken, "repository", "repositories");
        format!("{count}{not}; {} of {} tasks completed, {} running", sum.0, sum.1, sum.2)
    }

    fn broken(&self) -> Vec<(PathBuf, String)> {
        let plans = self.plans();
        let broken = plans.iter().filter_map(|(folder, member)| match member {
            Member::Served(_) => None,
            Member::Broken(why) => Some((folder.clone(), why.clone())),
        });
        broken.collect()
    }
}

/// What is served of several plans, and to whom.
pub struct Sites {
    boards: Arc<Boards>,
    /// Of the process.
    metrics: Arc<Metrics>,
    gate: Arc<Gate>,
}

impl Sites {
    /// Serves these boards behind a gate; `metrics` are those of the process itself.
    pub fn new(boards: Arc<Boards>, metrics: Arc<Metrics>, gate: Gate) -> Self {
        Self { boards, metrics, gate: Arc::new(gate) }
    }

    /// The routes behind the checks.
    pub fn router(self) -> Router {
        let gate = Arc::clone(&self.gate);
        Router::new()
            .route("/", get(home))
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/api/v1/status", get(status))
            .fallback(not_found)
            .layer(middleware::from_fn_with_state(gate, guard))
            .with_state(Arc::new(self))
    }
}

type Served = State<Arc<Sites>>;

/// All plans: the JSON of `/api/v1/status` where several are served.
#[derive(Serialize)]
struct All {
    /// The format's number: 1.
    format: u32,
    plans: Vec<OnePlan>,
}

#[derive(Serialize)]
struct OnePlan {
    folder: String,
    /// Why it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How it stands; absent before its first pass and where it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<View>,
}

async fn status(State(sites): Served) -> Response {
    let served = sites.boards.served().into_iter().map(|(folder, board)| OnePlan {
        folder: folder.display().to_string(),
        error: None,
        status: board.view().map(|view| (*view).clone()),
    });
    let broken = sites.boards.broken().into_iter().map(|(folder, why)| OnePlan {
        folder: folder.display().to_string(),
        error: Some(why),
        status: None,
    });
    let all = All { format: crate::report::FORMAT, plans: served.chain(broken).collect() };
    let json = serde_json::to_string_pretty(&all).expect("BUG: a view is plain data");
    typed(StatusCode::OK, JSON, json + "\n")
}

async fn metrics(State(sites): Served, headers: HeaderMap) -> Response {
    let format = accepted(&headers);
    let boards = sites.boards.served();
    let plans: Vec<&Metrics> = boards.iter().map(|(_, board)| board.metrics()).collect();
    typed(StatusCode::OK, format.content_type(), merged_text(&sites.metrics, &plans, format))
}

async fn healthz(State(sites): Served) -> Response {
    let stuck = sites.boards.stuck();
    if stuck.is_empty() {
        return plain(StatusCode::OK, "ok\n");
    }
    plain(StatusCode::SERVICE_UNAVAILABLE, escape::lines(&stuck.join("\n")).into_owned() + "\n")
}

async fn readyz(State(sites): Served) -> Response {
    let mut why: Vec<String> =
        sites.boards.broken().into_iter().map(|(folder, why)| format!("{}: {why}", folder.display())).collect();
    for (folder, board) in sites.boards.served() {
        why.extend(board.unready().into_iter().map(|why| format!("{}: {why}", folder.display())));
    }
    if why.is_empty() {
        return plain(StatusCode::OK, "ready\n");
    }
    let lines: Vec<_> = why.iter().map(|why| format!("not ready: {}\n", escape::line(why))).collect();
    plain(StatusCode::SERVICE_UNAVAILABLE, lines.concat())
}

async fn home(State(sites): Served) -> Response {
    let served = sites.boards.served();
    let content = html! {
        header { h1 { "orchestrate" } p class="at" { (served.len()) " plans · reload for news" } }
        main {
            @for (folder, board) in &served {
                section {
                    @match board.view() {
                        Some(view) => {
                            h2 { (safe(&view.project)) }
                            p { (safe(&folder.display().to_string())) ": " (view.summary.sentence()) }
                            @if let Some(fault) = &view.plan_invalid { p { "The plan file is not accepted: " (safe(fault)) } }
                            @if let Some(why) = &view.engine_unavailable { p { "The engine does not answer: " (safe(why)) } }
                            ul class="next" { @for sentence in &view.next { li { (safe(sentence)) } } }
                        }
                        None => {
                            h2 { (safe(&folder.display().to_string())) }
                            p { "No pass was made yet." }
                        }
                    }
                }
            }
            @for (folder, why) in sites.boards.broken() {
                section {
                    h2 { (safe(&folder.display().to_string())) }
                    p { "Not served: " (safe(&why)) }
                }
            }
        }
        footer { p { a href="/metrics" { "metrics" } " · " a href="/api/v1/status" { "status as JSON" } " · " a href="/readyz" { "readiness" } } }
    };
    typed(StatusCode::OK, HTML, shell("orchestrate", None, &content))
}
