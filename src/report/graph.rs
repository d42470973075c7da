//! The plan as a graph with its status: text, Mermaid, Graphviz. Pure.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::table::status_style;
use super::view::{TaskView, View};
use crate::status::Status;

/// The longest status word.
const WORD: usize = "completed".len();

/// Tasks by stages: each stands one stage after the last of what it depends on.
pub fn text(view: &View) -> String {
    let stages = stages(view);
    let width = view.tasks.iter().map(|task| task.id.len()).max().unwrap_or(0);
    let digits = stages.len().to_string().len();
    let mut text = String::new();
    for (number, stage) in (1..).zip(&stages) {
        for (place, task) in stage.iter().enumerate() {
            let lead = if place == 0 { number.to_string() } else { String::new() };
            let style = status_style(task.status, task.stale);
            let word = task.status.as_str();
            let mut line = format!("{lead:>digits$}  {:width$}  {style}{word}{style:#}", task.id);
            if !task.dependencies.is_empty() {
                let pad = WORD - word.len();
                put(&mut line, format_args!("{:pad$}  after {}", "", task.dependencies.join(", ")));
            }
            put(&mut text, format_args!("{line}\n"));
        }
    }
    text
}

/// For Markdown: `flowchart TD`. Ids hold nothing that Mermaid reads in a quoted label.
pub fn mermaid(view: &View) -> String {
    let mut text = "flowchart TD\n".to_owned();
    let numbers = numbers(view);
    for (number, task) in view.tasks.iter().enumerate() {
        put(&mut text, format_args!("  t{number}[\"{}<br/>{}\"]:::{}\n", task.id, task.status, task.status));
    }
    for (on, task) in edges(view, &numbers) {
        put(&mut text, format_args!("  t{on} --> t{task}\n"));
    }
    for status in Status::ALL {
        let (fill, stroke) = colours(status);
        put(&mut text, format_args!("  classDef {status} fill:{fill},stroke:{stroke},color:#000\n"));
    }
    text
}

/// For Graphviz.
pub fn dot(view: &View) -> String {
    let mut text = "digraph plan {\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\"];\n".to_owned();
    let numbers = numbers(view);
    for (number, task) in view.tasks.iter().enumerate() {
        let (fill, stroke) = colours(task.status);
        put(
            &mut text,
            format_args!(
                "  t{number} [label=\"{}\\n{}\", fillcolor=\"{fill}\", color=\"{stroke}\"];\n",
                task.id, task.status
            ),
        );
    }
    for (on, task) in edges(view, &numbers) {
        put(&mut text, format_args!("  t{on} -> t{task};\n"));
    }
    text.push_str("}\n");
    text
}

fn numbers(view: &View) -> HashMap<&str, usize> {
    view.tasks.iter().enumerate().map(|(number, task)| (task.id.as_str(), number)).collect()
}

fn edges(view: &View, numbers: &HashMap<&str, usize>) -> Vec<(usize, usize)> {
    let of = |number: usize, task: &TaskView| {
        task.dependencies.iter().filter_map(|on| Some((*numbers.get(on.as_str())?, number))).collect::<Vec<_>>()
    };
    view.tasks.iter().enumerate().flat_map(|(number, task)| of(number, task)).collect()
}

/// By longest distance from a task without dependencies. The view's plan is valid, so it has no cycle; in one that had,
/// its tasks would be left out.
fn stages(view: &View) -> Vec<Vec<&TaskView>> {
    let numbers = numbers(view);
    let edges = edges(view, &numbers);
    let mut unmet = vec![0usize; view.tasks.len()];
    let mut dependents = vec![Vec::new(); view.tasks.len()];
    for (on, task) in edges {
        unmet[task] += 1;
        dependents[on].push(task);
    }
    let mut stages = Vec::new();
    let mut ready: Vec<usize> = (0..unmet.len()).filter(|task| unmet[*task] == 0).collect();
    while !ready.is_empty() {
        let mut next = Vec::new();
        for &done in &ready {
            for &task in &dependents[done] {
                unmet[task] -= 1;
                if unmet[task] == 0 {
                    next.push(task);
                }
            }
        }
        next.sort_unstable();
        stages.push(ready.iter().map(|task| &view.tasks[*task]).collect());
        ready = next;
    }
    stages
}

/// Fill and border; the label says the same in words.
fn colours(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Pending => ("#eeeeee", "#888888"),
        Status::Running => ("#cfe8ff", "#1f6fb2"),
        Status::Completed => ("#d3f2d3", "#2f8f2f"),
        Status::Failed => ("#ffd6d6", "#c22222"),
        Status::Blocked => ("#ffeebf", "#b27d00"),
        Status::Cancelled => ("#ecd9f2", "#7b3f99"),
    }
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("BUG: writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, busy};
    use super::*;

    #[test]
    fn text_lists_stages() {
        let view = View::of(&busy().snapshot(), "folder");
        insta::assert_snapshot!(anstream::adapter::strip_str(&text(&view)).to_string());
    }

    #[test]
    fn graph_languages_have_every_task_and_every_edge() {
        let view = View::of(&busy().snapshot(), "folder");
        let edges: usize = view.tasks.iter().map(|task| task.dependencies.len()).sum();
        assert_eq!(mermaid(&view).matches(" --> ").count(), edges);
        assert_eq!(dot(&view).matches(" -> ").count(), edges);
        insta::assert_snapshot!(mermaid(&view));
        insta::assert_snapshot!(dot(&view));
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let task = |n: usize| {
            let on = n.checked_sub(1).map(|on| format!(", \"dependencies\": [\"t{on}\"]")).unwrap_or_default();
            format!("{{\"id\": \"t{n}\", \"prompt\": \"p\"{on}}}")
        };
        let tasks: Vec<String> = (0..5_000).map(task).collect();
        let view = View::of(&World::new(&tasks.join(",")).snapshot(), "folder");
        assert_eq!(text(&view).lines().count(), 5_000);
    }
}
