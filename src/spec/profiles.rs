//! Agent profiles: laid over each other once, shared by the tasks that ask for them, judged with each task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::agents;
use super::codes::Code;
use super::diagnostic::{Diagnostic, Place, quote};
use super::digest;
use super::fields::{PlanFields, Settings, TaskFields};
use super::file::agent_names;
use super::model::{AttemptSpec, RuntimeKind};
use super::reader::Reader;
use super::values;

/// The kernel takes no longer argument (`MAX_ARG_STRLEN` less its final NUL).
const MOST_ARGUMENT_BYTES: usize = 128 * 1024 - 1;
/// What the tasks of one agent share.
struct Profile {
    name: Arc<str>,
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

/// One task's share of the profiles.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) spec: Arc<AttemptSpec>,
    /// Canonical form of what is asked.
    pub(super) form: Arc<str>,
    hands_over: (bool, bool),
}

/// All profiles of a plan.
pub(super) struct Profiles<'p> {
    plan: &'p PlanFields,
    ready: HashMap<String, Option<Arc<Profile>>>,
    /// Attempts by agent and form.
    made: HashMap<(Arc<str>, Arc<str>), Attempt>,
    /// Places of agents that are told to be unknown, as `defaults.agent` concerns many tasks.
    told: HashSet<Place>,
}

impl<'p> Profiles<'p> {
    /// Judges every profile, asked for or not.
    pub(super) fn new(reader: &mut Reader, plan: &'p PlanFields) -> Self {
        let mut profiles = Self { plan, ready: HashMap::new(), made: HashMap::new(), told: HashSet::new() };
        for (name, profile) in &plan.agents {
            profiles.profile(reader, name, profile.place);
        }
        profiles
    }

    /// What a task asks for over its profile; `None` where its agent is at fault.
    pub(super) fn attempt(&mut self, reader: &mut Reader, task: &TaskFields, runtime: RuntimeKind) -> Option<Attempt> {
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
                let form: Arc<str> = digest::canonical(&asked).into();
                // Equal forms under one agent ask for the same, and most plans have few of them.
                let made = self.made.entry((Arc::clone(&profile.name), Arc::clone(&form)));
                let made = made.or_insert_with(|| {
                    asked.over(&profile.built_in);
                    let spec = asked.resolve(name);
                    Attempt { hands_over: hands_over(&spec), spec: Arc::new(spec), form }
                });
                made.clone()
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
            // One that is defined is at fault itself, which is told already.
            if ready.is_none() && !self.plan.agents.contains_key(name) {
                self.unknown(reader, name, place);
            }
            return ready;
        }
        let profile = self.build(reader, name, place).map(Arc::new);
        self.ready.insert(name.to_owned(), profile.clone());
        profile
    }

    fn unknown(&mut self, reader: &mut Reader, name: &str, place: Place) {
        if !self.told.insert(place) {
            return;
        }
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
                // Told once, not again from each of them.
                self.ready.extend(visited.iter().map(|name| ((*name).to_owned(), None)));
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
        Some(Profile {
            name: name.into(),
            asked,
            built_in,
            form,
            hands_over: hands_over(&attempt),
            attempt: Arc::new(attempt),
        })
    }
}

impl Attempt {
    /// Whether it says all that is to be done, so that a task need add nothing.
    pub(super) fn is_whole(&self) -> bool {
        self.hands_over == (false, false) && (self.spec.command.is_some() || self.spec.image.is_some())
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
            let help = if task.status_only {
                "its block holds only its status: put the YAML spec back that described it, or remove the block"
            } else {
                "add a `prompt` or a `description`"
            };
            reader.report(Diagnostic::new(Code::NoPrompt, task.place, message).help(help));
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
