//! What every reader sees of a plan: tables, JSON, pages and metrics show this and nothing else. Pure.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time;
use crate::controller::{Snapshot, UNSERVED};
use crate::record::{Ledger, State, TaskRecord};
use crate::spec::{TaskIx, TaskSpec};
use crate::status::{Reason, ResultKind, Status, TaskStatus};

/// The format of [`View`] in JSON. Fields may be added within a format; none is taken away or given another meaning.
pub const FORMAT: u32 = 1;

/// How a plan stands: the JSON of `orchestrate status -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "Status of a plan")]
pub struct View {
    /// The format's number: 1.
    pub format: u32,
    /// The plan's name.
    pub project: String,
    /// The plan's id; absent: it was never served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// When this was so.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// How many attempts may be live at once.
    pub max_concurrent: u32,
    /// Nothing new is launched.
    pub suspended: bool,
    /// Why the runtime could not be asked; absent: it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_unavailable: Option<String>,
    /// What keeps commands from what is not their own, where that depends on this machine (`runtime: process`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<String>,
    /// Why the newest plan file is not accepted; absent: it is. Nothing new is launched meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_invalid: Option<String>,
    /// How many tasks stand where.
    pub summary: Summary,
    /// What happens next, in sentences.
    pub next: Vec<String>,
    /// Every task, in the file's order.
    pub tasks: Vec<TaskView>,
    /// Running containers of this clone that no task accounts for. They are never touched.
    pub orphans: Vec<OrphanView>,
    /// What a person should know beside.
    pub warnings: Vec<String>,
}

/// How many tasks stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "each counts what it is named for")]
pub struct Summary {
    pub total: usize,
    pub pending: usize,
    pub running: usize,
    pub completed: usize,
    pub failed: usize,
    pub blocked: usize,
    pub cancelled: usize,
    pub stale: usize,
    pub orphans: usize,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskView {
    /// Its id.
    pub id: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// Why it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_step: Option<String>,
    /// What must be completed before it.
    pub dependencies: Vec<String>,
    /// Those of them that are not.
    pub waits_for: Vec<String>,
    /// For a task blocked by others: the one with which it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_cause: Option<String>,
    /// Its agent profile.
    pub agent: String,
    /// Number of the newest attempt; 0: never launched.
    pub attempt: u32,
    /// When it came to stand there, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// How long the newest attempt has run or ran, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// When the newest attempt began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub finished_at: Option<Timestamp>,
    /// When it is looked at again, where it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub not_before: Option<Timestamp>,
    /// Runs longer than `stale_after`. A flag, never a verdict.
    pub stale: bool,
    /// Has written nothing for longer than `silent_after`. A flag, never a verdict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent: bool,
    /// What is asked now differs from what the newest attempt was made from.
    pub spec_changed: bool,
    /// The newest attempt's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The engine's id of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// What identifies the image that it was made from: the digest that its registry knows it by, else the engine's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_digest: Option<String>,
    /// Where it runs or ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Its worktree, relative to the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The commit that the branch started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// The branch's tip when the attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_commit: Option<String>,
    /// What the attempt left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultKind>,
    /// The container's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// Path of the kept log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The beginning of what the agent left in `result.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
}

/// A running container that no task accounts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrphanView {
    /// Its name.
    pub container: String,
    /// The engine's id.
    pub container_id: String,
    /// The task that its labels name.
    pub task: String,
    /// The attempt that they name.
    pub attempt: u32,
}

impl View {
    /// Of one pass. `folder` names the plan where the file does not.
    pub fn of(snapshot: &Snapshot, folder: &str) -> Self {
        let tasks = &snapshot.tasks;
        let causes = first_causes(snapshot);
        let rows: Vec<TaskView> = tasks.iter().map(|(ix, spec)| row(snapshot, &causes, ix, spec)).collect();
        let orphans: Vec<OrphanView> = snapshot.plan.orphans.iter().map(orphan).collect();
        let summary = Summary::of(&rows, orphans.len());
        Self {
            format: FORMAT,
            project: tasks.project.clone().unwrap_or_else(|| folder.to_owned()),
            plan_id: tasks.plan_id.clone().or_else(|| served(&snapshot.ledger)),
            at: snapshot.now.wall,
            max_concurrent: tasks.max_concurrent.get(),
            suspended: tasks.suspend,
            engine_unavailable: snapshot.observed.unavailable.clone(),
            confinement: None,
            plan_invalid: snapshot.fault.clone(),
            next: next(snapshot, &summary),
            summary,
            tasks: rows,
            orphans,
            warnings: snapshot.warnings.clone(),
        }
    }

    /// Finds a task.
    pub fn task(&self, id: &str) -> Option<&TaskView> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// The same some time later, if nothing changed but the time.
    #[must_use]
    pub fn aged(&self, by: Duration) -> Self {
        let mut view = self.clone();
        view.at = self.at.checked_add(by).unwrap_or(self.at);
        for task in view.tasks.iter_mut().filter(|task| task.status == Status::Running) {
            task.seconds = task.seconds.map(|seconds| seconds + by.as_secs());
        }
        view
    }

    /// Whether nothing waits and nothing runs any more.
    pub fn is_settled(&self) -> bool {
        self.summary.pending + self.summary.running == 0
    }

    /// Whether every task is completed.
    pub fn is_completed(&self) -> bool {
        self.summary.completed == self.summary.total
    }
}

impl Summary {
    fn of(rows: &[TaskView], orphans: usize) -> Self {
        let mut summary = Self { total: rows.len(), orphans, ..Self::default() };
        for row in rows {
            *match row.status {
                Status::Pending => &mut summary.pending,
                Status::Running => &mut summary.running,
                Status::Completed => &mut summary.completed,
                Status::Failed => &mut summary.failed,
                Status::Blocked => &mut summary.blocked,
                Status::Cancelled => &mut summary.cancelled,
            } += 1;
            summary.stale += usize::from(row.stale);
        }
        summary
    }

    /// `7 tasks: 1 running, 2 pending, 4 completed`.
    pub fn sentence(&self) -> String {
        let counts = [
            (self.running, "running"),
            (self.pending, "pending"),
            (self.completed, "completed"),
            (self.failed, "failed"),
            (self.blocked, "blocked"),
            (self.cancelled, "cancelled"),
            (self.stale, "stale"),
        ];
        let counts: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        let total = plural(self.total, "task", "tasks");
        if counts.is_empty() { total } else { format!("{total}: {}", counts.join(", ")) }
    }
}

/// `1 task`, `2 tasks`.
pub fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The served plan's id.
fn served(ledger: &Ledger) -> Option<String> {
    ledger.plan_id().filter(|id| *id != UNSERVED).map(str::to_owned)
}

/// For each blocked task the one with which it began, as the plan itself finds it.
fn first_causes(snapshot: &Snapshot) -> Vec<Option<TaskIx>> {
    let graph = &snapshot.tasks.graph;
    let status = |ix: TaskIx| snapshot.plan.tasks.get(ix.index()).map(|task| task.status);
    let mut causes = vec![None; snapshot.tasks.tasks.len()];
    for &ix in graph.topological() {
        let blocked =
            snapshot.plan.tasks.get(ix.index()).is_some_and(|task| task.reason == Some(Reason::DependencyFailed));
        let broken = |on: &&TaskIx| matches!(status(**on), Some(Status::Failed | Status::Blocked | Status::Cancelled));
        if let Some(&on) = graph.dependencies(ix).iter().find(broken).filter(|_| blocked) {
            causes[ix.index()] = Some(causes[on.index()].unwrap_or(on));
        }
    }
    causes
}

fn row(snapshot: &Snapshot, causes: &[Option<TaskIx>], ix: TaskIx, spec: &TaskSpec) -> TaskView {
    let missing = TaskStatus::new(Status::Pending);
    let status = snapshot.plan.tasks.get(ix.index()).unwrap_or(&missing);
    let record = snapshot.ledger.task(&spec.id);
    let name = |ix: TaskIx| snapshot.tasks.task(ix).id.to_string();
    let is_open = |on: &&TaskIx| snapshot.plan.tasks.get(on.index()).map(|task| task.status) != Some(Status::Completed);
    let waits = !matches!(status.status, Status::Completed | Status::Failed | Status::Cancelled | Status::Running);
    let waits_for = snapshot.tasks.graph.dependencies(ix).iter().filter(is_open).filter(|_| waits).map(|on| name(*on));
    let first_cause = causes[ix.index()].map(name);
    TaskView {
        id: spec.id.to_string(),
        title: spec.title.clone(),
        status: status.status,
        reason: status.reason,
        message: status.message.clone(),
        next_step: next_step(spec.id.as_str(), status, first_cause.as_deref()),
        dependencies: spec.dependencies.iter().map(ToString::to_string).collect(),
        waits_for: waits_for.collect(),
        first_cause,
        agent: spec.attempt.agent.clone(),
        attempt: status.attempt.unwrap_or(0),
        since: since(status, record),
        seconds: ran(snapshot, status, record).map(|span| span.as_secs()),
        started_at: status.started_at,
        finished_at: status.finished_at,
        not_before: status.not_before,
        stale: status.stale == Some(true),
        silent: status.silent == Some(true),
        spec_changed: record
            .and_then(|record| record.current.as_ref())
            .is_some_and(|current| current.spec != spec.digest && status.status != Status::Pending),
        container: status.container.clone(),
        container_id: status.container_id.clone(),
        image_digest: record.and_then(|record| record.current.as_ref()?.image.clone()),
        host: status.host.clone(),
        branch: status.branch.clone(),
        worktree: status.worktree.clone(),
        base_commit: status.base_commit.clone(),
        head_commit: status.head_commit.clone(),
        result: status.result,
        exit_code: status.exit_code,
        log: status.log.clone(),
        report: record.and_then(TaskRecord::end).and_then(|end| end.report.clone()),
    }
}

fn since(status: &TaskStatus, record: Option<&TaskRecord>) -> Option<Timestamp> {
    match status.status {
        Status::Running => status.started_at,
        Status::Completed | Status::Failed | Status::Cancelled => status.finished_at,
        Status::Pending | Status::Blocked => match &record?.state {
            State::Waiting { since, .. } => Some(since.wall),
            State::Idle | State::Held(_) | State::Live | State::Done(_) => None,
        },
    }
}

/// How long the newest attempt has run, or ran. While it runs the monotonic clock counts, so that a machine that slept or a
/// date that was set makes nothing older.
fn ran(snapshot: &Snapshot, status: &TaskStatus, record: Option<&TaskRecord>) -> Option<Duration> {
    match (status.started_at, status.finished_at) {
        (Some(from), Some(to)) => Some(time::between(from, to)),
        (_, None) if status.status == Status::Running => {
            Some(record?.current.as_ref()?.running_since()?.age(&snapshot.now))
        }
        _ => None,
    }
}

fn next_step(id: &str, status: &TaskStatus, first_cause: Option<&str>) -> Option<String> {
    match (status.status, first_cause) {
        (Status::Blocked, Some(cause)) => Some(format!("mend {cause}, then `orchestrate retry {cause}`")),
        (Status::Failed, _) if status.attempt.is_some() => {
            Some(format!("`orchestrate logs {id}` shows its output, `orchestrate retry {id}` runs it again"))
        }
        (Status::Failed | Status::Cancelled, _) => Some(format!("`orchestrate retry {id}` runs it again")),
        _ => None,
    }
}

fn orphan(container: &crate::observe::ObservedContainer) -> OrphanView {
    OrphanView {
        container: container.name.clone(),
        container_id: container.id.clone(),
        task: container.key.task.to_string(),
        attempt: container.key.attempt,
    }
}

/// What happens next, in sentences.
fn next(snapshot: &Snapshot, summary: &Summary) -> Vec<String> {
    let mut next = Vec::new();
    if let Some(why) = &snapshot.observed.unavailable {
        next.push(format!("the engine does not answer, so nothing is launched or taken in: {why}"));
    } else if !snapshot.plan.actions.is_empty() {
        let actions = super::plan_text::counts(&snapshot.plan.actions);
        next.push(format!("the next pass would {actions}; `orchestrate plan` shows each"));
    }
    if snapshot.tasks.suspend && summary.pending > 0 {
        next.push("the plan is suspended; `orchestrate resume` lets it go on".to_owned());
    }
    // While agents work, what the clock changes is a flag at most.
    if let Some(wake) = snapshot.plan.wake.filter(|_| summary.running == 0) {
        next.push(format!("something changes by itself in {}", time::age(wake)));
    }
    if summary.running > 0 && snapshot.plan.actions.is_empty() {
        next.push(format!("{} at work", plural(summary.running, "agent is", "agents are")));
    }
    if summary.pending + summary.running == 0 && summary.total > 0 {
        if summary.completed > 0 {
            next.push("`orchestrate review` shows what the branches hold and how to merge them".to_owned());
        }
        if summary.completed < summary.total {
            next.push("nothing moves any more without you: see the failed and blocked tasks above".to_owned());
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, busy};
    use super::*;

    fn task(view: &View, id: &str) -> TaskView {
        view.task(id).expect("there").clone()
    }

    #[test]
    fn what_waits_names_what_it_waits_for_and_what_is_blocked_its_first_cause() {
        let view = View::of(&busy().snapshot(), "folder");
        assert_eq!(task(&view, "next").waits_for, ["slow"]);
        for blocked in ["join", "after"] {
            assert_eq!(task(&view, blocked).first_cause.as_deref(), Some("left"));
            let step = task(&view, blocked).next_step.expect("a step");
            assert_eq!(step, "mend left, then `orchestrate retry left`");
        }
        assert_eq!(task(&view, "join").waits_for, ["left", "right"]);
        assert!(task(&view, "right").waits_for.is_empty());
    }

    #[test]
    fn ages_come_from_the_monotonic_clock_while_it_runs_and_stale_is_a_flag() {
        let mut snapshot = busy().snapshot();
        snapshot.now.wall -= std::time::Duration::from_hours(24);
        let view = View::of(&snapshot, "folder");
        assert_eq!((task(&view, "slow").seconds, task(&view, "slow").stale), (Some(302), true));
        assert_eq!((task(&view, "right").seconds, task(&view, "right").stale), (Some(232), false));
    }

    #[test]
    fn the_summary_counts_and_the_name_is_the_files() {
        let view = View::of(&busy().snapshot(), "folder");
        assert_eq!(view.project, "demo");
        assert_eq!(view.summary.sentence(), "8 tasks: 2 running, 2 pending, 1 completed, 1 failed, 2 blocked, 1 stale");
        assert!(!view.is_settled());
    }

    #[test]
    fn a_changed_spec_is_told_of_what_ran_and_not_of_what_waits() {
        let mut world = busy();
        for task in &mut world.tasks.tasks {
            task.digest = crate::spec::SpecDigest("other".into());
        }
        let view = View::of(&world.snapshot(), "folder");
        assert!(task(&view, "base").spec_changed && task(&view, "slow").spec_changed);
        assert!(!task(&view, "next").spec_changed && !task(&view, "free").spec_changed);
    }

    #[test]
    fn when_all_is_over_the_review_is_offered() {
        let done = World::new(r#"{"id": "a", "prompt": "p"}"#).running("a", 1, 0).ended("a", 1, 0, 5);
        let view = View::of(&done.snapshot(), "folder");
        assert!(view.is_settled() && view.is_completed());
        assert_eq!(view.next.len(), 1);
        assert!(view.next[0].contains("orchestrate review"), "{:?}", view.next);
    }

    #[test]
    fn json_comes_back_as_it_went() {
        let view = View::of(&busy().snapshot(), "folder");
        let text = serde_json::to_string(&view).expect("plain data");
        assert_eq!(serde_json::from_str::<View>(&text).expect("the same"), view);
    }
}
