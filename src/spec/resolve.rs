//! From fields to the validated set: profiles, graph, digests, and the faults that only show over the whole plan.

use std::cell::OnceCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::agents;
use super::codes::Code;
use super::diagnostic::{Diagnostic, Place, quote};
use super::digest;
use super::fields::{PlanFields, Settings, TaskFields};
use super::file::agent_names;
use super::graph::{Graph, GraphFault, TaskIx};
use super::id::TaskId;
use super::model::{AttemptSpec, DEFAULT_MAX_CONCURRENT, RuntimeKind, TaskSet, TaskSpec};
use super::reader::Reader;
use super::values;

/// The kernel takes no longer argument (`MAX_ARG_STRLEN` less its final NUL).
const MOST_ARGUMENT_BYTES: usize = 128 * 1024 - 1;
/// A circle of more tasks is shown by its ends.
const MOST_CYCLE_LABELS: usize = 6;

/// What the tasks of one agent share.
struct Profile {
    /// What people ask, all layers below the task's own.
    asked: Settings,
    /// The built-in profile under it.
    built_in: Settings,
    /// Canonical form of `asked`.
    form: Arc<str>,
    hands_over: (bool, bool),
    /// For tasks that ask for nothing of their own.
    attempt: Arc<AttemptSpec>,
}

/// Resolves every task; faults go to the reader. The set is of use only where none of them is an error.
pub(crate) fn resolve(reader: &mut Reader, plan: PlanFields, runtime: Option<RuntimeKind>) -> TaskSet {
    let ids = Ids::new(&plan.tasks);
    let runtime = runtime.or(plan.runtime.map(|(kind, _)| kind)).unwrap_or_default();
    let tasks = &plan.tasks;
    let dependencies: Vec<Vec<Dependency>> = tasks.iter().map(|task| dependencies(reader, &plan, &ids, task)).collect();
    let graph = graph(reader, tasks, &dependencies);
    let mut profiles = Profiles { plan: &plan, ready: HashMap::new(), told: HashSet::new() };
    let attempts: Vec<Option<Attempt>> = tasks.iter().map(|task| profiles.attempt(reader, task, runtime)).collect();
    let mut specs = Vec::with_capacity(tasks.len());
    for ((task, attempt), dependencies) in plan.tasks.into_iter().zip(attempts).zip(dependencies) {
        let Some(attempt) = attempt else { continue };
        let dependencies: Vec<TaskId> = dependencies.into_iter().map(|d| d.id).collect();
        let prompt = task.prompt.as_deref().or(task.description.as_deref());
        let digest = digest::digest(&attempt.spec.agent, &attempt.form, prompt, &dependencies);
        specs.push(TaskSpec {
            id: task.id,
            title: task.title,
            description: task.description,
            prompt: task.prompt,
            dependencies,
            attempt: attempt.spec,
            digest,
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
        let on = at.map(|at| &plan.tasks[at as usize].id);
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
                let near =
                    reader.nearest(text, plan.tasks.iter().map(|t| t.id.as_str()).filter(|id| *id != task.id.as_str()));
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

/// One task's share of the plan.
struct Attempt {
    spec: Arc<AttemptSpec>,
    /// Canonical form of what is asked.
    form: Arc<str>,
    hands_over: (bool, bool),
}

struct Profiles<'p> {
    plan: &'p PlanFields,
    ready: HashMap<String, Option<Arc<Profile>>>,
    /// Places of agents that are told to be unknown, as `defaults.agent` concerns many tasks.
    told: HashSet<Place>,
}

impl Profiles<'_> {
    fn attempt(&mut self, reader: &mut Reader, task: &TaskFields, runtime: RuntimeKind) -> Option<Attempt> {
        let own = task.settings.as_deref();
        let (name, place) = own
            .and_then(|s| s.agent.as_deref().map(|name| (name, s.agent_place)))
            .or(self.plan.defaults.agent.as_deref().map(|name| (name, self.plan.defaults.agent_place)))
            .unwrap_or((agents::DEFAULT_AGENT, None));
        let profile = self.profile(reader, name, place.unwrap_or(task.place))?;
        let only_agent = |settings: &Settings| {
            *settings
                == Settings { agent: settings.agent.clone(), agent_place: settings.agent_place, ..Settings::default() }
        };
        let attempt = match own {
            Some(own) if !only_agent(own) => {
                let mut asked = own.clone();
                asked.over(&profile.asked);
                let form = digest::canonical(&asked).into();
                asked.over(&profile.built_in);
                let spec = asked.resolve(name);
                Attempt { hands_over: hands_over(&spec), spec: Arc::new(spec), form }
            }
            _ => Attempt {
                spec: Arc::clone(&profile.attempt),
                form: Arc::clone(&profile.form),
                hands_over: profile.hands_over,
            },
        };
        if !(task.is_record || task.at_fault || self.plan.at_fault) {
            judge(reader, task, &attempt, runtime);
        }
        Some(attempt)
    }

    /// The layers of a profile, made once.
    fn profile(&mut self, reader: &mut Reader, name: &str, place: Place) -> Option<Arc<Profile>> {
        if let Some(ready) = self.ready.get(name).cloned() {
            if ready.is_none() && !self.told.contains(&place) {
                self.unknown(reader, name, place);
            }
            return ready;
        }
        let profile = self.build(reader, name, place).map(Arc::new);
        self.ready.insert(name.to_owned(), profile.clone());
        profile
    }

    fn unknown(&mut self, reader: &mut Reader, name: &str, place: Place) {
        self.told.insert(place);
        let mut diagnostic = Diagnostic::new(Code::UnknownAgent, place, format!("no agent is called {}", quote(name)));
        let near = reader.nearest(name, agent_names(self.plan)).map(str::to_owned);
        if let Some(near) = near {
            diagnostic = diagnostic.label(format!("did you mean `{near}`?")).patch(place, format!("\"{near}\""));
        } else {
            let names: Vec<String> = agent_names(self.plan).take(12).map(|n| format!("`{n}`")).collect();
            diagnostic = diagnostic.help(format!("known are {}; others are defined under `agents`", names.join(", ")));
        }
        reader.report(diagnostic);
    }

    /// A profile may name another one under `agent`, which it builds on.
    fn build(&mut self, reader: &mut Reader, name: &str, place: Place) -> Option<Profile> {
        let mut asked = Settings::default();
        let mut visited: Vec<&str> = Vec::new();
        let (mut at, mut at_place) = (name, place);
        let built_in = loop {
            if visited.contains(&at) {
                let path: Vec<&str> = visited.iter().copied().chain([at]).collect();
                let message = format!("profiles build on each other: {}", path.join(" → "));
                reader
                    .report(Diagnostic::new(Code::Cycle, at_place, message).help("remove one of these `agent` fields"));
                self.told.insert(place);
                return None;
            }
            let Some(profile) = self.plan.agents.get(at) else {
                let built_in = agents::built_in(at);
                if built_in.is_none() {
                    self.unknown(reader, at, at_place);
                }
                break built_in?;
            };
            visited.push(at);
            asked.over(&profile.settings);
            match profile.settings.agent.as_deref() {
                Some(under) if under != at => {
                    at_place = profile.settings.agent_place.unwrap_or(profile.place);
                    at = under;
                }
                _ => break agents::built_in(at).unwrap_or_default(),
            }
        };
        asked.over(&self.plan.defaults);
        asked.add_secrets(&self.plan.secrets);
        let form = digest::canonical(&asked).into();
        let mut full = asked.clone();
        full.over(&built_in);
        let attempt = full.resolve(name);
        Some(Profile { asked, built_in, form, hands_over: hands_over(&attempt), attempt: Arc::new(attempt) })
    }
}

/// Whether a command hands over the prompt as an argument, and whether as a file.
fn hands_over(spec: &AttemptSpec) -> (bool, bool) {
    let mut found = (false, false);
    for word in spec.command.iter().flatten().flat_map(|word| values::templates(word)) {
        found.0 |= word == "prompt";
        found.1 |= word == "prompt_file";
    }
    found
}

/// What must hold of a task once all layers are known.
fn judge(reader: &mut Reader, task: &TaskFields, attempt: &Attempt, runtime: RuntimeKind) {
    let spec = &attempt.spec;
    let id = || quote(task.id.as_str());
    match runtime {
        RuntimeKind::Docker if spec.image.is_none() => {
            let message = format!("the task {} has no image to run in", id());
            let help =
                format!("the agent `{}` brings none: set `image` here, in its profile or in `defaults`", spec.agent);
            reader.report(Diagnostic::new(Code::NoImage, task.place, message).help(help));
        }
        RuntimeKind::Process if spec.command.is_none() => {
            let message = format!("the task {} has no command", id());
            reader.report(
                Diagnostic::new(Code::EmptyCommand, task.place, message)
                    .help("with `\"runtime\": \"process\"` there is no image that brings one"),
            );
        }
        _ => {}
    }
    let (by_argument, by_file) = attempt.hands_over;
    if !by_argument && !by_file {
        return;
    }
    match task.prompt.as_deref().or(task.description.as_deref()) {
        None => {
            let message = format!("the task {} says nothing to its agent", id());
            reader
                .report(Diagnostic::new(Code::NoPrompt, task.place, message).help("add a `prompt` or a `description`"));
        }
        Some(prompt) if by_argument && prompt.len() > MOST_ARGUMENT_BYTES => {
            let message = format!("the prompt of {} has {} bytes, more than an argument may have", id(), prompt.len());
            reader.report(
                Diagnostic::new(Code::PromptTooLong, task.place, message)
                    .help("hand it over with `{{prompt_file}}`, or put it in a file of the repository and name that"),
            );
        }
        Some(_) => {}
    }
}
