//! The page: what runs, what waits for what and why, and what to do when all is done.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use sha2::{Digest as _, Sha256};

use super::parts::{SCRIPT, STYLE, alarms, badge, duration, moment, result, safe, shell, why};
use crate::report::svg::{self, cut};
use crate::report::{Summary, TaskView, View, merge_commands, plural};
use crate::status::Status;

/// Characters of a title and of a message in the table; the task's own page has the rest.
const TITLE: usize = 120;
const MESSAGE: usize = 240;

/// The strict content policy: our one style and our one script, by digest, and requests to where the page is from.
pub(super) fn policy() -> String {
    let digest = |text: &str| STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        digest(SCRIPT),
        digest(STYLE)
    )
}

/// The plan.
pub(super) fn page(view: &View, event: &str) -> String {
    let content = html! {
        header data-part="head" {
            h1 { (safe(&view.project)) }
            (counts(&view.summary))
            p class="at" { "as of " (moment(view.at)) " UTC · " span id="live" { "reload for news" } }
        }
        main {
            div data-part="alarms" { (alarms(view)) }
            section aria-labelledby="next-title" data-part="next" {
                h2 id="next-title" { "What happens next" }
                ul class="next" { @for sentence in &view.next { li { (commands(sentence)) } } }
            }
            div data-part="review" { (review(view)) }
            (graph(view))
            (table(view))
        }
        footer {
            p {
                a href="/metrics" { "metrics" } " · " a href="/api/v1/status" { "status as JSON" } " · "
                a href="/readyz" { "readiness" }
            }
        }
    };
    shell(&format!("{} · {}", headline(&view.summary), view.project), Some(event), &content)
}

/// Before the first pass.
pub(super) fn waiting() -> String {
    let content = html! {
        header { h1 { "orchestrate" } }
        main { p id="tasks" { "No pass was made yet. Reload in a moment." } }
    };
    shell("orchestrate", None, &content)
}

/// What matters most, for a tab.
fn headline(summary: &Summary) -> String {
    match summary {
        Summary { failed: 1.., .. } => format!("{} failed", summary.failed),
        Summary { running: 1.., .. } => format!("{} running", summary.running),
        Summary { pending: 1.., .. } => format!("{} pending", summary.pending),
        Summary { blocked: 1.., .. } => format!("{} blocked", summary.blocked),
        Summary { .. } => "done".to_owned(),
    }
}

fn counts(summary: &Summary) -> Markup {
    let counts = [
        (summary.running, Status::Running),
        (summary.pending, Status::Pending),
        (summary.completed, Status::Completed),
        (summary.failed, Status::Failed),
        (summary.blocked, Status::Blocked),
        (summary.cancelled, Status::Cancelled),
    ];
    html! {
        p class="counts" role="status" {
            span class="total" { (plural(summary.total, "task", "tasks")) }
            @for (count, status) in counts.iter().filter(|(count, _)| *count > 0) {
                " " span class=(format!("badge s-{status}")) { (count) " " (status) }
            }
            @if summary.stale > 0 { " " span class="badge s-stale" { (summary.stale) " stale" } }
        }
    }
}

/// A sentence with its `commands` set apart.
pub(super) fn commands(sentence: &str) -> Markup {
    let sentence = safe(sentence);
    html! {
        @for (at, piece) in sentence.split('`').enumerate() {
            @if at % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

fn review(view: &View) -> Markup {
    if !view.is_settled() || view.summary.completed == 0 {
        return html! {};
    }
    let merges = merge_commands(view);
    html! {
        section class="review" aria-labelledby="review-title" {
            h2 id="review-title" { "Review and merge" }
            p { "Nothing runs any more, and nothing was merged. " code { "orchestrate review" }
                " shows what each branch holds and foresees conflicts." }
            @if merges.is_empty() {
                p { "No completed task left a commit of its own." }
            } @else {
                p { "To look at and to merge everything, in this order:" }
                pre tabindex="0" aria-label="Commands to review and merge" { (merges.join("\n")) }
            }
        }
    }
}

fn graph(view: &View) -> Markup {
    if view.tasks.is_empty() {
        return html! {};
    }
    let path = svg::critical_path(view, 12);
    html! {
        section aria-labelledby="graph-title" {
            h2 id="graph-title" { "What waits for what" }
            div data-part="path" {
                @if !path.is_empty() { p class="path" { "Critical path: " (path) } }
            }
            div class="scroll" tabindex="0" role="region" aria-label="Graph of dependencies, scrolls" data-part="graph" {
                (svg::inline(view, &|id| format!("/tasks/{id}")))
            }
        }
    }
}

fn table(view: &View) -> Markup {
    html! {
        section id="tasks" aria-labelledby="tasks-title" {
            h2 id="tasks-title" { "Tasks" }
            // Shown by the script, without which it could do nothing.
            div class="filter" role="search" hidden {
                label for="filter" { "Filter" } " "
                input id="filter" type="search" placeholder="id, title, status, reason" autocomplete="off" aria-controls="rows";
                " " span id="shown" role="status" {}
            }
            table role="table" {
                caption class="hidden" { "Every task: where it stands, why, and what it left" }
                thead role="rowgroup" {
                    tr role="row" {
                        @for name in ["Task", "Status", "Try", "Time", "Why", "Result"] {
                            th role="columnheader" scope="col" { (name) }
                        }
                    }
                }
                tbody id="rows" role="rowgroup" data-list { @for task in &view.tasks { (row(task)) } }
            }
            @if view.tasks.is_empty() { p { "The plan has no task yet." } }
        }
    }
}

fn row(task: &TaskView) -> Markup {
    html! {
        tr role="row" data-k=(task.id) class=(format!("s-{}", task.status)) {
            th role="rowheader" scope="row" {
                a href=(format!("/tasks/{}", task.id)) { (task.id) }
                @if let Some(title) = &task.title { span class="title" dir="auto" { (cut(&safe(title), TITLE)) } }
                @if !task.waits_for.is_empty() {
                    span class="waits" { "after " (cut(&task.waits_for.join(", "), TITLE)) }
                }
            }
            td role="cell" data-label="Status" { (badge(task)) }
            td role="cell" data-label="Try" class="number" { @if task.attempt > 0 { (task.attempt) } @else { "–" } }
            td role="cell" data-label="Time" class="number" { (duration(task)) }
            td role="cell" data-label="Why" class="why" {
                (why(task, MESSAGE))
                @if let Some(step) = &task.next_step { span class="step" { (commands(step)) } }
            }
            td role="cell" data-label="Result" { (result(task)) }
        }
    }
}
