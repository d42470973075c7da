//! What the next pass would do and why, as a diff-like list. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use schemars::JsonSchema;
use serde::Serialize;

use super::escape;
use super::time;
use super::view::View;
use crate::controller::Snapshot;
use crate::plan::{Action, PlannedAction};
use crate::status::{Reason, Status};

/// The next pass as data: the JSON of `orchestrate plan -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NextPass {
    /// What would be done, in order.
    pub actions: Vec<NextAction>,
    /// What waits, and for what.
    pub waiting: Vec<Waiting>,
    /// Seconds until something changes by the mere passing of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_seconds: Option<u64>,
    /// Why the runtime could not be asked; nothing can be planned about its containers then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_unavailable: Option<String>,
}

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NextAction {
    /// `launch`, `resume`, `start`, `stop`, `harvest`, `lose` or `cancel`.
    pub action: &'static str,
    /// The task.
    pub task: String,
    /// Its attempt.
    pub attempt: u32,
    /// Why.
    pub cause: String,
    #[serde(skip)]
    verb: &'static str,
    #[serde(skip)]
    sign: char,
}

/// One task that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waiting {
    /// The task.
    pub task: String,
    /// `pending` or `blocked`.
    pub status: Status,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for a person.
    pub message: String,
}

impl NextPass {
    /// Of a survey.
    pub fn of(snapshot: &Snapshot, view: &View) -> Self {
        let actions: Vec<NextAction> = snapshot.plan.actions.iter().map(NextAction::of).collect();
        let acted = |id: &str| actions.iter().any(|action| action.task == id);
        let waiting = view.tasks.iter().filter(|task| matches!(task.status, Status::Pending | Status::Blocked));
        let waiting = waiting.filter(|task| !acted(&task.id)).map(|task| Waiting {
            task: task.id.clone(),
            status: task.status,
            reason: task.reason,
            message: match task.reason {
                // Told once, above the list.
                Some(Reason::EngineUnavailable) => "the engine does not answer".to_owned(),
                _ => task.message.clone().unwrap_or_default(),
            },
        });
        Self {
            waiting: waiting.collect(),
            actions,
            wake_seconds: snapshot.plan.wake.map(|wake| wake.as_secs()),
            engine_unavailable: view.engine_unavailable.clone(),
        }
    }

    /// Whether there is anything to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(why) = &self.engine_unavailable {
            line(
                &mut text,
                format_args!(
                    "The engine does not answer, so this is only what can be told without it: {}",
                    escape::line(why)
                ),
            );
        }
        let ids = self.actions.iter().map(|action| action.task.len()).chain(self.waiting.iter().map(|w| w.task.len()));
        let width = ids.max().unwrap_or(0);
        for action in &self.actions {
            let style = action.style();
            let what = format!("{} attempt {}", action.verb, action.attempt);
            line(
                &mut text,
                format_args!(
                    "{style}{} {:width$}{style:#}  {what}: {}",
                    action.sign,
                    action.task,
                    escape::line(&action.cause)
                ),
            );
        }
        for waiting in &self.waiting {
            let message = escape::line(&waiting.message);
            line(&mut text, format_args!("  {:width$}  {}: {message}", waiting.task, waiting.status));
        }
        if !text.is_empty() {
            text.push('\n');
        }
        if self.is_empty() {
            text.push_str("Nothing to do.");
        } else {
            let words: BTreeMap<&str, usize> = tally(self.actions.iter().map(|action| action.verb));
            write!(text, "The next pass would {}.", sentence(&words)).expect("BUG: writing to a string cannot fail");
        }
        if let Some(seconds) = self.wake_seconds {
            let wait = time::age(Duration::from_secs(seconds));
            write!(text, " Something changes by itself in {wait}.").expect("BUG: writing to a string cannot fail");
        }
        text.push('\n');
        text
    }
}

impl NextAction {
    fn of(planned: &PlannedAction) -> Self {
        let (action, sign) = match planned.action {
            Action::Launch { resume: false } => ("launch", '+'),
            Action::Launch { resume: true } => ("resume", '+'),
            Action::Start => ("start", '+'),
            Action::Stop(_) => ("stop", '-'),
            Action::Harvest => ("harvest", '~'),
            Action::Lose => ("lose", '-'),
            Action::EndCancelled => ("cancel", '-'),
        };
        Self {
            action,
            task: planned.key.task.to_string(),
            attempt: planned.key.attempt,
            cause: planned.cause.to_owned(),
            verb: planned.action.verb(),
            sign,
        }
    }

    fn style(&self) -> Style {
        match self.sign {
            '+' => AnsiColor::Green.on_default(),
            '-' => AnsiColor::Red.on_default(),
            _ => AnsiColor::Yellow.on_default(),
        }
    }
}

/// `launch 2 tasks, take in the result of 1 task`.
pub(super) fn counts(actions: &[PlannedAction]) -> String {
    sentence(&tally(actions.iter().map(|action| action.action.verb())))
}

fn tally<'a>(verbs: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for verb in verbs {
        *counts.entry(verb).or_insert(0) += 1;
    }
    counts
}

fn sentence(counts: &BTreeMap<&str, usize>) -> String {
    let parts: Vec<String> =
        counts.iter().map(|(verb, count)| format!("{verb} {}", super::view::plural(*count, "task", "tasks"))).collect();
    parts.join(", ")
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("BUG: writing to a string cannot fail");
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::fixture::busy;
    use super::*;

    #[test]
    fn actions_stand_first_with_their_causes_then_what_waits() {
        let snapshot = busy().snapshot();
        let next = NextPass::of(&snapshot, &View::of(&snapshot, "folder"));
        assert!(!next.is_empty());
        insta::assert_snapshot!(anstream::adapter::strip_str(&next.text()).to_string());
    }

    #[test]
    fn without_an_engine_it_says_what_can_be_told() {
        let mut world = busy();
        world.away = Some("no such\u{1b} file".to_owned());
        let snapshot = world.snapshot();
        let next = NextPass::of(&snapshot, &View::of(&snapshot, "folder"));
        assert!(next.is_empty());
        let text = next.text();
        assert!(text.starts_with("The engine does not answer") && text.contains("no such\\u{1b} file"), "{text}");
    }
}
