//! One task: why it stands where it stands, its facts, and the end of its output.

use maud::{Markup, html};

use super::page::commands;
use super::parts::{alarms, badge, duration, moment, next_look, safe, shell};
use super::tail::Tail;
use crate::report::svg::cut;
use crate::report::{TaskView, View};

/// Characters of an unknown id that are shown again.
const UNKNOWN: usize = 80;
/// Other tasks that are listed before the rest is counted.
const LISTED: usize = 50;

/// The task's page.
pub(super) fn page(view: &View, task: &TaskView, tail: Option<&Tail>, event: &str) -> String {
    let content = html! {
        header data-part="head" {
            p class="back" { a href="/" { "← " (safe(&view.project)) } }
            h1 { (task.id) }
            p class="counts" role="status" { (badge(task)) " " (duration(task)) }
            p class="at" { "as of " (moment(view.at)) " UTC · " span id="live" { "reload for news" } }
        }
        main id="tasks" {
            div data-part="alarms" { (alarms(view)) }
            div data-part="facts" { (facts(view, task)) }
            @if let Some(tail) = tail {
                section aria-labelledby="log-title" {
                    h2 id="log-title" { "Output, the end of it" }
                    div data-part="log" { (log(task, tail)) }
                    p { "All of it: " code { "orchestrate logs " (task.id) } }
                }
            }
        }
    };
    shell(&format!("{} {} · {}", task.id, task.status, view.project), Some(event), &content)
}

/// Where there is no such task.
pub(super) fn unknown(view: &View, id: &str) -> String {
    let content = html! {
        header { p class="back" { a href="/" { "← " (safe(&view.project)) } } h1 { "No such task" } }
        main id="tasks" { p { "The plan has no task " code { (cut(&safe(id), UNKNOWN)) } "." } }
    };
    shell("no such task", None, &content)
}

fn facts(view: &View, task: &TaskView) -> Markup {
    let dependents: Vec<&TaskView> = view.tasks.iter().filter(|other| other.dependencies.contains(&task.id)).collect();
    let dependencies: Vec<&TaskView> = task.dependencies.iter().filter_map(|on| view.task(on)).collect();
    let commit = |commit: &Option<String>| commit.as_deref().map(|commit| html! { code { (commit) } });
    let code = |text: &Option<String>| text.as_deref().map(|text| html! { code { (safe(text)) } });
    let rows: Vec<(&str, Option<Markup>)> = vec![
        (
            "Why",
            task.message.as_deref().or(task.reason.map(crate::status::Reason::as_str)).map(|why| html! { (safe(why)) }),
        ),
        ("Reason", task.reason.map(|reason| html! { (reason.as_str()) })),
        ("What you can do", task.next_step.as_deref().map(commands)),
        ("First cause", task.first_cause.as_deref().map(|id| html! { a href=(format!("/tasks/{id}")) { (id) } })),
        ("Looked at again", next_look(task)),
        ("Waits for", (!dependencies.is_empty()).then(|| others(&dependencies))),
        ("Waited for by", (!dependents.is_empty()).then(|| others(&dependents))),
        ("Agent", Some(html! { (safe(&task.agent)) })),
        ("Attempt", (task.attempt > 0).then(|| html! { (task.attempt) })),
        ("Started", task.started_at.map(|at| html! { (moment(at)) " UTC" })),
        ("Ended", task.finished_at.map(|at| html! { (moment(at)) " UTC" })),
        ("Exit code", task.exit_code.map(|code| html! { (code) })),
        ("Result", task.result.map(|result| html! { (result.as_str()) })),
        ("Branch", code(&task.branch)),
        ("From", commit(&task.base_commit)),
        ("Head", commit(&task.head_commit)),
        ("Worktree", code(&task.worktree)),
        ("Container", code(&task.container)),
        ("On", code(&task.host)),
        ("Log", code(&task.log)),
    ];
    html! {
        @if let Some(title) = &task.title { p class="lead" dir="auto" { (safe(title)) } }
        dl class="facts" {
            @for (name, fact) in rows {
                @if let Some(fact) = fact { dt { (name) } dd { (fact) } }
            }
        }
    }
}

fn others(tasks: &[&TaskView]) -> Markup {
    html! {
        ul class="others" {
            @for task in tasks.iter().take(LISTED) {
                li { a href=(format!("/tasks/{}", task.id)) { (task.id) } " " (badge(task)) }
            }
            @if tasks.len() > LISTED { li { "and " (tasks.len() - LISTED) " more" } }
        }
    }
}

fn log(task: &TaskView, tail: &Tail) -> Markup {
    match tail {
        Tail::Missing(why) => html! { p { (safe(why)) } },
        Tail::Text { text, .. } if text.trim().is_empty() => html! { p { "It wrote nothing." } },
        Tail::Text { text, cut } => html! {
            @if *cut { p { "Earlier output is left out." } }
            pre class="log" tabindex="0" role="region" aria-label=(format!("Output of {}", task.id)) dir="ltr" { (text) }
        },
    }
}
