//! Everything that is known of one task: first of all why it is where it is, and what would change that. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anstyle::Style;
use schemars::JsonSchema;
use serde::Serialize;

use super::events::EventView;
use super::table::status_style;
use super::view::{TaskView, View, plural};
use super::{escape, time};
use crate::git::BranchSummary;
use crate::spec::TaskSpec;
use crate::status::Status;

/// Links of the chain that are told before the rest is left out.
const CHAIN: usize = 40;
/// Records of the journal that are told.
const EVENTS: usize = 30;

/// The JSON of `orchestrate describe -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "Description of a task")]
pub struct Description {
    /// The task as `status` shows it.
    pub task: TaskView,
    /// Why it is where it is: itself, then what that rests on, and so on.
    pub chain: Vec<Link>,
    /// What would change that.
    pub next_steps: Vec<String>,
    /// What people ask for.
    pub spec: SpecView,
    /// What happened to it, oldest first.
    pub events: Vec<EventView>,
    /// What its branch holds beside its base.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub branch: Option<BranchSummary>,
    /// The end of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
}

/// One link of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Link {
    /// How far from the task that was asked for.
    pub depth: usize,
    /// The task.
    pub task: String,
    /// Where it stands.
    pub status: Status,
    /// Why.
    pub message: String,
}

/// What people ask for of a task, after profiles and defaults.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "each is the plan file's field of that name")]
pub struct SpecView {
    pub agent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Names of the variables; their values are not shown.
    pub env: Vec<String>,
    /// Names of the secrets.
    pub secrets: Vec<String>,
    pub retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    pub stale_after: String,
    pub priority: i64,
    pub base: String,
    pub cpus: f64,
    pub memory: u64,
    pub network: String,
}

impl SpecView {
    /// Of a task's spec.
    pub fn of(spec: &TaskSpec) -> Self {
        let attempt = &spec.attempt;
        Self {
            agent: attempt.agent.clone(),
            image: attempt.image.clone(),
            command: attempt.command.clone(),
            prompt: spec.effective_prompt().map(str::to_owned),
            env: attempt.env.keys().cloned().collect(),
            secrets: attempt.secrets.iter().map(|secret| secret.env.clone()).collect(),
            retries: attempt.retries,
            timeout: attempt.timeout.map(time::age),
            stale_after: time::age(attempt.stale_after),
            priority: attempt.priority,
            base: attempt.base.clone(),
            cpus: attempt.resources.cpus,
            memory: attempt.resources.memory,
            network: attempt.network.as_str().to_owned(),
        }
    }
}

impl Description {
    /// Of a task and what was found out about it.
    pub fn of(
        view: &View,
        task: &TaskView,
        spec: &TaskSpec,
        events: Vec<EventView>,
        branch: Option<BranchSummary>,
        log_tail: Option<String>,
    ) -> Self {
        let chain = chain(view, task);
        Self {
            next_steps: next_steps(view, task, &chain),
            chain,
            spec: SpecView::of(spec),
            task: task.clone(),
            events,
            branch,
            log_tail,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut page = Page(String::new());
        let task = &self.task;
        page.head(&task.id, task.title.as_deref());
        page.section("Why");
        for link in &self.chain {
            let style = status_style(link.status, false);
            let indent = "  ".repeat(link.depth);
            page.line(&format!("  {indent}{} {style}{}{style:#}: ", link.task, link.status), &link.message);
        }
        for step in &self.next_steps {
            page.line("  → ", step);
        }
        page.section("Attempt");
        page.attempt(task);
        if let Some(branch) = &self.branch {
            let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
            let commits = plural(count(branch.commits), "commit", "commits");
            let files = plural(count(branch.files), "file", "files");
            let text = format!("{commits}, {files}, +{} -{}", branch.insertions, branch.deletions);
            page.field("holds", &text);
        }
        page.section("Spec");
        if task.spec_changed {
            page.line("  ", "has changed since the newest attempt was made; `orchestrate retry` uses the new one");
        }
        page.spec(&self.spec, task);
        if !self.events.is_empty() {
            page.section("Events");
            let skip = self.events.len().saturating_sub(EVENTS);
            if skip > 0 {
                page.line("  ", &format!("… {skip} earlier: `orchestrate events {}`", task.id));
            }
            for event in &self.events[skip..] {
                page.line("  ", &event.line());
            }
        }
        if let Some(tail) = &self.log_tail {
            page.section("End of its output");
            for line in tail.lines() {
                page.line("  | ", line);
            }
        }
        page.0
    }
}

/// A text that grows by sections.
struct Page(String);

impl Page {
    const HEAD: Style = Style::new().bold();

    fn head(&mut self, id: &str, title: Option<&str>) {
        const HEAD: Style = Page::HEAD;
        let title = title.map(|title| format!("  {}", escape::line(title))).unwrap_or_default();
        self.put(format_args!("{HEAD}{id}{HEAD:#}{title}\n"));
    }

    fn section(&mut self, name: &str) {
        const HEAD: Style = Page::HEAD;
        self.put(format_args!("\n{HEAD}{name}{HEAD:#}\n"));
    }

    fn field(&mut self, name: &str, value: &str) {
        self.put(format_args!("  {name:12} {}\n", escape::line(value)));
    }

    fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// A lead of ours and a text of others.
    fn line(&mut self, lead: &str, text: &str) {
        self.put(format_args!("{lead}{}\n", escape::line(text)));
    }

    fn attempt(&mut self, task: &TaskView) {
        if task.attempt == 0 {
            return self.line("  ", "never launched");
        }
        self.field("number", &task.attempt.to_string());
        self.optional("started", task.started_at.map(time::exact).as_deref());
        self.optional("ended", task.finished_at.map(time::exact).as_deref());
        let ran = task.seconds.map(|seconds| time::age(std::time::Duration::from_secs(seconds)));
        self.optional(if task.status == Status::Running { "runs for" } else { "ran for" }, ran.as_deref());
        self.optional("exit code", task.exit_code.map(|code| code.to_string()).as_deref());
        self.optional("result", task.result.map(crate::status::ResultKind::as_str));
        self.optional("host", task.host.as_deref());
        self.optional("container", task.container.as_deref());
        self.optional("image id", task.image_digest.as_deref());
        self.optional("branch", task.branch.as_deref());
        self.optional("worktree", task.worktree.as_deref());
        self.optional("from", task.base_commit.as_deref());
        self.optional("to", task.head_commit.as_deref());
        self.optional("log", task.log.as_deref());
        let report = task.report.iter().flat_map(|report| report.lines());
        for (number, line) in report.enumerate() {
            self.field(if number == 0 { "report" } else { "" }, line);
        }
    }

    fn spec(&mut self, spec: &SpecView, task: &TaskView) {
        self.field("agent", &spec.agent);
        self.optional("image", spec.image.as_deref());
        self.optional("command", spec.command.as_ref().map(|words| format!("{words:?}")).as_deref());
        let list = |items: &[String]| (!items.is_empty()).then(|| items.join(", "));
        self.optional("depends on", list(&task.dependencies).as_deref());
        self.optional("env", list(&spec.env).as_deref());
        self.optional("secrets", list(&spec.secrets).as_deref());
        self.field("retries", &spec.retries.to_string());
        self.optional("timeout", spec.timeout.as_deref());
        self.field("stale after", &spec.stale_after);
        self.field("limits", &format!("{} cores, {} MiB", spec.cpus, spec.memory >> 20));
        self.field("network", &spec.network);
        self.optional("prompt", spec.prompt.as_deref());
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("BUG: writing to a string cannot fail");
    }
}

/// The task, then what it waits for, then what that waits for: depth first, each task once, no recursion.
fn chain(view: &View, task: &TaskView) -> Vec<Link> {
    let mut chain = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut open = vec![(0, task.id.as_str())];
    while let Some((depth, id)) = open.pop() {
        let Some(task) = view.task(id).filter(|task| seen.insert(task.id.as_str())) else { continue };
        if chain.len() >= CHAIN {
            break;
        }
        chain.push(Link {
            depth,
            task: task.id.clone(),
            status: task.status,
            message: task.message.clone().unwrap_or_else(|| task.reason.map(|r| r.to_string()).unwrap_or_default()),
        });
        open.extend(task.waits_for.iter().rev().map(|on| (depth + 1, on.as_str())));
    }
    chain
}

/// What would change that: the steps of those links at which something can be done.
fn next_steps(view: &View, task: &TaskView, chain: &[Link]) -> Vec<String> {
    let mut steps = Vec::new();
    for link in chain {
        let step = view.task(&link.task).and_then(|task| match task.status {
            // What is blocked by others is moved by the step of those others.
            Status::Blocked if task.first_cause.is_some() => None,
            Status::Running => Some(format!("{} goes on by itself when it ends", task.id)),
            _ => task.next_step.clone(),
        });
        if let Some(step) = step.filter(|step| !steps.contains(step)) {
            steps.push(step);
        }
    }
    if steps.is_empty() && task.status == Status::Pending {
        steps.extend(view.next.iter().cloned());
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::fixture::busy;
    use super::*;

    #[test]
    fn the_chain_of_why_comes_first_and_says_what_would_change_it() {
        let world = busy();
        let snapshot = world.snapshot();
        let view = View::of(&snapshot, "folder");
        let task = view.task("after").expect("there");
        let spec = snapshot.tasks.task(snapshot.tasks.find("after").expect("there"));
        let description = Description::of(&view, task, spec, Vec::new(), None, None);
        let chain: Vec<(usize, &str)> = description.chain.iter().map(|link| (link.depth, link.task.as_str())).collect();
        assert_eq!(chain, [(0, "after"), (1, "join"), (2, "left"), (2, "right")]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&description.text()).to_string());
    }

    #[test]
    fn an_ended_task_shows_its_attempt_its_history_and_its_output() {
        let world = busy();
        let snapshot = world.snapshot();
        let view = View::of(&snapshot, "folder");
        let task = view.task("left").expect("there");
        let spec = snapshot.tasks.task(snapshot.tasks.find("left").expect("there"));
        let events = world.entries.iter().filter(|entry| entry.task() == Some(&spec.id)).map(EventView::of).collect();
        let branch = BranchSummary { commits: 1, files: 2, insertions: 3, deletions: 4, ..BranchSummary::default() };
        let tail = Some("one\ntwo \u{1b}[31m".to_owned());
        let description = Description::of(&view, task, spec, events, Some(branch), tail);
        insta::assert_snapshot!(anstream::adapter::strip_str(&description.text()).to_string());
    }
}
