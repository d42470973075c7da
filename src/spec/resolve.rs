//! From fields to the validated set: dependencies, graph, digests, and the faults that only show over the whole plan.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::codes::Code;
use super::diagnostic::{Diagnostic, Place, quote};
use super::digest;
use super::fields::{PlanFields, TaskFields};
use super::graph::{Graph, GraphFault, TaskIx};
use super::id::TaskId;
use super::model::{DEFAULT_MAX_CONCURRENT, RuntimeKind, TaskSet, TaskSpec};
use super::profiles::Profiles;
use super::reader::Reader;

/// A circle of more tasks is shown by its ends.
const MOST_CYCLE_LABELS: usize = 6;

/// Resolves every task; faults go to the reader. The set is of use only where none of them is an error.
pub(crate) fn resolve(reader: &mut Reader, mut plan: PlanFields, runtime: Option<RuntimeKind>) -> TaskSet {
    let tasks = std::mem::take(&mut plan.tasks);
    let ids = Ids::new(&tasks);
    let runtime = runtime.or(plan.runtime.map(|(kind, _)| kind)).unwrap_or_default();
    let dependencies: Vec<Vec<Dependency>> = tasks.iter().map(|task| dependencies(reader, &plan, &ids, task)).collect();
    let graph = graph(reader, &tasks, &dependencies);
    let mut profiles = Profiles::new(reader, &plan);
    let mut specs = Vec::with_capacity(tasks.len());
    // Task by task, so that what a file of many settings holds does not stand in memory twice.
    for (task, dependencies) in tasks.into_iter().zip(dependencies) {
        let Some(attempt) = profiles.attempt(reader, &task, runtime) else { continue };
        let dependencies: Vec<TaskId> = dependencies.into_iter().map(|d| d.id).collect();
        let prompt = task.prompt.as_deref().or(task.description.as_deref());
        let digest = digest::digest(&attempt.spec.agent, &attempt.form, prompt, &dependencies);
        let is_record = task.is_record && (task.is_unnamed || !attempt.is_whole());
        specs.push(TaskSpec {
            id: task.id,
            title: task.title,
            description: task.description,
            prompt: task.prompt,
            dependencies,
            attempt: attempt.spec,
            digest,
            is_record,
        });
    }
    TaskSet {
        project: plan.project.map(|(name, _)| name),
        plan_id: plan.plan_id,
        max_concurrent: plan.max_concurrent.map_or(DEFAULT_MAX_CONCURRENT, |(n, _)| n),
        suspend: plan.suspend.is_some_and(|(on, _)| on),
        runtime,
        tasks: specs,
        graph,
    }
}

/// Finds tasks by id.
struct Ids<'p> {
    tasks: &'p [TaskFields],
    exact: HashMap<&'p str, u32>,
    /// By id in lower case, which is unique; made when the first id is not found.
    folded: OnceCell<HashMap<String, u32>>,
}

impl<'p> Ids<'p> {
    fn new(tasks: &'p [TaskFields]) -> Self {
        let exact = (0u32..).zip(tasks).map(|(i, task)| (task.id.as_str(), i)).collect();
        Self { tasks, exact, folded: OnceCell::new() }
    }

    fn find(&self, text: &str) -> Option<u32> {
        let folded = || {
            self.folded.get_or_init(|| {
                (0u32..).zip(self.tasks).map(|(i, task)| (task.id.as_str().to_ascii_lowercase(), i)).collect()
            })
        };
        self.exact.get(text).copied().or_else(|| folded().get(&text.to_ascii_lowercase()).copied())
    }
}

struct Dependency {
    id: TaskId,
    place: Place,
}

/// What a list has named so far. Most lists are short, and a long one must not take the square of its length.
#[derive(Default)]
struct Seen {
    few: Vec<(u32, Place)>,
    many: HashMap<u32, Place>,
}

impl Seen {
    /// Gives the place of an earlier one.
    fn insert(&mut self, task: u32, place: Place) -> Option<Place> {
        let first = self.few.iter().find(|(t, _)| *t == task).map(|(_, place)| *place);
        if first.is_some() {
            return first;
        }
        if self.few.len() < 16 {
            self.few.push((task, place));
            return None;
        }
        match self.many.entry(task) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(room) => {
                room.insert(place);
                None
            }
        }
    }
}

fn dependencies(reader: &mut Reader, plan: &PlanFields, ids: &Ids<'_>, task: &TaskFields) -> Vec<Dependency> {
    let Some(listed) = &task.dependencies else { return Vec::new() };
    let mut found: Vec<Dependency> = Vec::with_capacity(listed.len());
    let mut seen = Seen::default();
    for (text, place) in listed {
        let (text, place) = (text.as_ref(), *place);
        let at = ids.find(text);
        let on = at.map(|at| &ids.tasks[at as usize].id);
        match (at, on) {
            (Some(at), Some(on)) if on.as_str() == text => {
                if let Some(first) = seen.insert(at, place) {
                    let message = format!("{} is listed twice", quote(text));
                    reader.report(
                        Diagnostic::new(Code::RepeatedDependency, place, message).also(first, "the first time"),
                    );
                } else {
                    found.push(Dependency { id: on.clone(), place });
                }
            }
            (_, Some(on)) => {
                let message = format!("no task has the id {}", quote(text));
                reader.report(
                    Diagnostic::new(Code::UnknownDependency, place, message)
                        .label("ids are compared with their case")
                        .help(format!("the task is called `{on}`"))
                        .patch(place, format!("\"{on}\"")),
                );
            }
            _ if plan.refused.contains(text) => {}
            _ => {
                let message = format!("no task has the id {}", quote(text));
                let mut diagnostic = Diagnostic::new(Code::UnknownDependency, place, message);
                // What is listed already was not meant by this entry.
                let is_listed = |id: &str| listed.len() < 64 && listed.iter().any(|(other, _)| **other == *id);
                let others = ids.tasks.iter().map(|t| t.id.as_str());
                let near = reader.nearest(text, others.filter(|id| *id != task.id.as_str() && !is_listed(id)));
                if let Some(near) = near {
                    diagnostic =
                        diagnostic.label(format!("did you mean `{near}`?")).patch(place, format!("\"{near}\""));
                } else {
                    diagnostic = diagnostic.help("add the task, or remove the entry");
                }
                reader.report(diagnostic);
            }
        }
    }
    found
}

fn graph(reader: &mut Reader, tasks: &[TaskFields], dependencies: &[Vec<Dependency>]) -> Graph {
    let rows = tasks.iter().zip(dependencies).map(|(task, on)| (&task.id, on.iter().map(|d| &d.id)));
    let faults = match Graph::build(rows) {
        Ok(graph) => return graph,
        Err(faults) => faults,
    };
    for fault in faults {
        let GraphFault::Cycle(path) = fault else { continue };
        let step = |i: usize| {
            let (from, to): (TaskIx, TaskIx) = (path[i], path[(i + 1) % path.len()]);
            let to = &tasks[to.index()].id;
            let place = dependencies[from.index()].iter().find(|d| d.id == *to).map(|d| d.place);
            (&tasks[from.index()].id, to, place)
        };
        let (first, _, place) = step(0);
        let place = place.unwrap_or(tasks[path[0].index()].place);
        if path.len() == 1 {
            let message = format!("the task {} depends on itself", quote(first.as_str()));
            reader.report(Diagnostic::new(Code::SelfDependency, place, message).help("remove the entry"));
            continue;
        }
        let mut diagnostic =
            Diagnostic::new(Code::Cycle, place, cycle_message(tasks, &path)).help("remove one of these dependencies");
        for i in 0..path.len().min(MOST_CYCLE_LABELS) {
            let (from, to, place) = step(i);
            let words = format!("`{from}` waits for `{to}`");
            if i == 0 {
                diagnostic = diagnostic.label(words);
            } else if let Some(place) = place {
                diagnostic = diagnostic.also(place, words);
            }
        }
        reader.report(diagnostic);
    }
    Graph::default()
}

fn cycle_message(tasks: &[TaskFields], path: &[TaskIx]) -> String {
    let name = |ix: &TaskIx| tasks[ix.index()].id.to_string();
    let mut names: Vec<String> = path.iter().map(name).collect();
    if names.len() > 2 * MOST_CYCLE_LABELS {
        let left_out = names.len() - 2 * MOST_CYCLE_LABELS;
        let tail = names.split_off(names.len() - MOST_CYCLE_LABELS);
        names.truncate(MOST_CYCLE_LABELS);
        names.push(format!("… {left_out} more …"));
        names.extend(tail);
    }
    names.extend(path.first().map(name));
    format!("{} tasks wait for each other: {}", path.len(), names.join(" → "))
}
