//! Pieces of pages. Everything that others wrote goes through [`safe`] and then through the template, which escapes.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::report::svg::cut;
use crate::report::{TaskView, View, escape, time};

/// The pages' whole style.
pub(super) const STYLE: &str = concat!(include_str!("../report/graph.css"), include_str!("page.css"));
/// The pages' whole script. Without it they show how things stood when they were loaded.
pub(super) const SCRIPT: &str = include_str!("page.js");

/// Text of others, without what reorders or hides text.
pub(super) fn safe(text: &str) -> Cow<'_, str> {
    escape::line(text)
}

/// A page around its content. `event`: the newest event that it knows of.
pub(super) fn shell(title: &str, event: Option<&str>, content: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (safe(title)) }
                // Otherwise a browser asks for one.
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body data-event=[event] {
                a class="skip" href="#tasks" { "Skip to the tasks" }
                (content)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// A moment, exact for machines and on a hint, short to see.
pub(super) fn moment(at: Timestamp) -> Markup {
    let exact = time::exact(at);
    // `2030-01-02T03:04:05Z`: the day only where it is not today's could not be told without script.
    let short = format!("{} {}", exact.get(5..10).unwrap_or_default(), exact.get(11..19).unwrap_or(&exact));
    html! { time datetime=(exact) title=(exact) { (short) } }
}

/// How long it runs or ran; the script lets what runs go on counting.
pub(super) fn duration(task: &TaskView) -> Markup {
    let Some(seconds) = task.seconds else { return html! { "–" } };
    let shown = time::age(Duration::from_secs(seconds));
    if task.status == crate::status::Status::Running {
        html! { span data-tick=(seconds) { (shown) } }
    } else {
        html! { (shown) }
    }
}

/// The status as a word in its colour; the sign before it is for the eye only.
pub(super) fn badge(task: &TaskView) -> Markup {
    html! {
        span class=(format!("badge s-{}", task.status)) { (task.status) }
        @if task.stale { " " span class="badge s-stale" { "stale" } }
        @if task.spec_changed { " " span class="badge s-pending" { "changed since" } }
    }
}

/// When it is looked at again.
pub(super) fn next_look(task: &TaskView) -> Option<Markup> {
    task.not_before.map(|at| html! { "next look " (moment(at)) " UTC" })
}

/// What an attempt left.
pub(super) fn result(task: &TaskView) -> Markup {
    let commit = task.head_commit.as_deref().map(|commit| commit.get(..12).unwrap_or(commit));
    html! {
        @if let Some(result) = task.result { span { (result.as_str()) } }
        @if let Some(code) = task.exit_code { @if code != 0 { " " span { "exit " (code) } } }
        @if let Some(commit) = commit { " " code { (commit) } }
    }
}

/// The word, and what a person reads beside it.
pub(super) fn why(task: &TaskView, most: usize) -> Markup {
    html! {
        @if let Some(reason) = task.reason { span class="reason" { (reason.as_str()) } }
        @if let Some(message) = &task.message { " " span class="message" { (cut(&safe(message), most)) } }
        @if let Some(look) = next_look(task) { " " span class="look" { (look) } }
    }
}

/// What is wrong beside single tasks.
pub(super) fn alarms(view: &View) -> Markup {
    html! {
        @if let Some(fault) = &view.plan_invalid {
            p class="alarm" { strong { "The plan file is not accepted." } " " (safe(fault)) "; nothing new is launched." }
        }
        @if let Some(error) = &view.engine_unavailable {
            p class="alarm" { strong { "The engine does not answer." } " " (safe(error)) }
        }
        @if !view.orphans.is_empty() {
            p class="alarm" {
                strong { "Containers of ours run without a task:" }
                @for orphan in &view.orphans { " " code { (safe(&orphan.container)) } }
                ". They are never touched."
            }
        }
        // The first one says again what is said above.
        @for warning in view.warnings.iter().skip(usize::from(view.plan_invalid.is_some())) {
            p class="warning" { (safe(warning)) }
        }
    }
}
