//! Orchestrate: a reconciler for coding-agent tasks.
//!
//! Desired state is a plan file in the user's repository; observed state is a container engine and git. Data flows one way:
//!
//! ```text
//! spec ─▶ observe ─▶ plan ─▶ act ─▶ record ─▶ report
//!             ▲                        │
//!             └──────── controller ◀───┘
//! ```
//!
//! The rooms, lowest first; each knows those before it and no other (`tests/suite/architecture.rs` holds them to it):
//!
//! | room | what it is | pure |
//! | --- | --- | --- |
//! | [`clock`] | the only reader of clocks | |
//! | [`status`] | status, reasons, what a person asked for | yes |
//! | [`spec`] | from text to a validated set of tasks, and all that is wrong with the text | yes |
//! | [`observe`] | what is: containers by attempt; the names that tie tasks to what exists | yes |
//! | [`runtime`] | where attempts run: the port, and an adapter for Docker's API | |
//! | [`git`] | the user's repository: the port, and an adapter over gix | |
//! | [`record`] | what must outlive us: the journal and its fold, the plan file, the locks | the fold is |
//! | [`plan`] | what should happen, from desired, observed, recorded and now | yes |
//! | [`act`] | the effects, each after its record and each repeatable | |
//! | [`controller`] | wakes up, observes, plans, acts, records | |
//! | [`report`] | what people and programs are shown | yes |
//! | [`http`] | metrics, health, status, events and a page for `run --listen`; reads what [`report`] shows | |
//! | [`settings`], [`error`], [`cli`] | the only reader of the environment; the one renderer of errors; the commands | |
//!
//! On disk, beside the user's own files: the plan file (our fields in it are a published view), `.worktrees/<id>`, branches
//! `agent/<id>`, refs under `refs/orchestrate/`, and the state dir `<git common dir>/orchestrate/` with `lock`, `journal` (the
//! truth about attempts and results) and `attempts/<task>/<n>/`.

pub mod act;
pub mod cli;
pub mod clock;
pub mod controller;
pub mod error;
pub mod git;
pub mod http;
pub mod observe;
pub mod plan;
pub mod record;
pub mod report;
pub mod runtime;
pub mod settings;
pub mod spec;
pub mod status;
