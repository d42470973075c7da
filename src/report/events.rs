//! The journal, readable: one sentence for each record. Pure.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{escape, time};
use crate::observe::AttemptKey;
use crate::record::{AttemptEnd, Entry, Next, StopCause};
use crate::status::Request;

/// One record: a line of `orchestrate events -o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventView {
    /// When.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// What kind: `launching`, `started`, `ended`, ….
    pub kind: &'static str,
    /// The task that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened, in one sentence.
    pub message: String,
}

impl EventView {
    /// Of a record.
    pub fn of(entry: &Entry) -> Self {
        let (kind, attempt, message) = describe(entry);
        Self { at: entry.at().wall, kind, task: entry.task().map(ToString::to_string), attempt, message }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let task = self.task.as_deref().unwrap_or("-");
        let attempt = self.attempt.map(|attempt| format!("#{attempt}")).unwrap_or_default();
        let message = escape::line(&self.message);
        format!("{}  {:11}  {task}{attempt}  {message}", time::exact(self.at), self.kind)
    }
}

fn describe(entry: &Entry) -> (&'static str, Option<u32>, String) {
    let of = |key: &AttemptKey| Some(key.attempt);
    match entry {
        Entry::Opened { instance, .. } => ("opened", None, format!("the journal was made, for this clone: {instance}")),
        Entry::Plan { plan_id, .. } => ("plan", None, format!("the plan file is served as plan {plan_id}")),
        Entry::Kept { .. } => ("kept", None, "its earlier records were put into one".to_owned()),
        Entry::Taken { .. } => ("taken", None, "stood as completed in the plan file".to_owned()),
        Entry::Renewed { .. } => ("renewed", None, "starts anew in a new plan".to_owned()),
        Entry::Requested { request, .. } => {
            let what = match request {
                Request::Run => "a person asked for it to run again",
                Request::Cancel => "a person cancelled it",
            };
            ("requested", None, what.to_owned())
        }
        Entry::Intent { key, host, .. } => ("launching", of(key), format!("an attempt is made on {host}")),
        Entry::Prepared { key, base, .. } => {
            ("prepared", of(key), format!("branch and worktree are there, from {}", base.short()))
        }
        Entry::Created { key, container, .. } => ("created", of(key), format!("container {container}")),
        Entry::StartIntent { key, .. } => ("starting", of(key), "its container is being started".to_owned()),
        Entry::Started { key, .. } => ("started", of(key), "it runs".to_owned()),
        Entry::StopIntent { key, cause, .. } => {
            let why = match cause {
                StopCause::Cancel => "it is stopped: a person cancelled it",
                StopCause::Deadline => "it is stopped: it ran past its timeout",
            };
            ("stopping", of(key), why.to_owned())
        }
        Entry::Verifying { key, end, .. } => {
            ("verifying", of(key), format!("the agent is done ({}); its result is verified", end.message))
        }
        Entry::Ended { key, end, next, .. } => ("ended", of(key), ended(end, *next)),
        Entry::Held { hold, .. } => ("held", None, format!("{}: {}", hold.reason, hold.message)),
        Entry::Released { .. } => ("released", None, "what it was held for may have changed".to_owned()),
    }
}

fn ended(end: &AttemptEnd, next: Next) -> String {
    let mut text = format!("{}: {}", end.reason, end.message);
    if let Some(result) = end.result {
        text = format!("{text} (result: {})", result.as_str());
    }
    if let Some(error) = &end.log_error {
        text = format!("{text}; there is no log: {error}");
    }
    match next {
        Next::Complete => format!("{text}; completed"),
        Next::Fail => format!("{text}; failed"),
        Next::Cancel => format!("{text}; cancelled"),
        Next::Retry { .. } => {
            let pause = next.pause().map(time::age).unwrap_or_default();
            format!("{text}; the next attempt follows in {pause}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::busy;
    use super::*;

    #[test]
    fn each_record_is_one_line() {
        let lines: Vec<String> = busy().entries.iter().map(|entry| EventView::of(entry).line()).collect();
        assert!(lines.iter().all(|line| line.lines().count() == 1));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
