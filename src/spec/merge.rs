//! Merges the YAML spec into the plan file's fields. The YAML's value stands; where the two differ it is told.
//!
//! The plan file keeps the status of all tasks. A block of it that holds nothing but an `id` and our fields is what we
//! wrote for a task of the YAML spec: where the YAML stops naming the task, the block is dropped while the task was never
//! started, and kept as a record of what ran otherwise.

use std::collections::{BTreeSet, HashMap};

use super::codes::Code;
use super::diagnostic::{Diagnostic, Origin, Place, quote};
use super::fields::{PlanFields, Settings, TaskFields};
use super::id::TaskId;
use super::reader::Reader;
use super::text::Span;

/// Lays `spec` over `plan`. Ids that are dropped go to `dropped`.
pub(crate) fn merge(
    reader: &mut Reader,
    mut plan: PlanFields,
    spec: PlanFields,
    started: &BTreeSet<TaskId>,
    dropped: &mut Vec<TaskId>,
) -> PlanFields {
    plan.project = top(reader, "project", plan.project, spec.project);
    plan.max_concurrent = top(reader, "max_concurrent", plan.max_concurrent, spec.max_concurrent);
    plan.suspend = top(reader, "suspend", plan.suspend, spec.suspend);
    plan.runtime = top(reader, "runtime", plan.runtime, spec.runtime);
    for (name, mut profile) in spec.agents {
        if let Some(under) = plan.agents.get(&name) {
            let what = format!("the profile {}", quote(&name));
            differ(reader, &what, &profile.settings.differing(&under.settings), under.place, profile.place);
            profile.settings.over(&under.settings);
        }
        plan.agents.insert(name, profile);
    }
    let mut defaults = spec.defaults;
    if let (Some(there), Some(here)) = (plan.defaults_place, spec.defaults_place) {
        differ(reader, "`defaults`", &defaults.differing(&plan.defaults), there, here);
    }
    defaults.over(&plan.defaults);
    plan.defaults = defaults;
    plan.defaults_place = spec.defaults_place.or(plan.defaults_place);
    let mut secrets = Settings { secrets: Some(spec.secrets), ..Settings::default() };
    secrets.add_secrets(&plan.secrets);
    plan.secrets = secrets.secrets.unwrap_or_default();
    plan.has_tasks |= spec.has_tasks;
    plan.at_fault |= spec.at_fault;
    plan.refused.extend(spec.refused);
    plan.tasks = tasks(reader, plan.tasks, spec.tasks, started, dropped);
    plan
}

/// One field at the top of the files.
fn top<T: PartialEq>(
    reader: &mut Reader,
    name: &str,
    plan: Option<(T, Span)>,
    spec: Option<(T, Span)>,
) -> Option<(T, Span)> {
    if let (Some((there, at)), Some((here, over))) = (&plan, &spec)
        && there != here
    {
        let at = Place { origin: Origin::Plan, span: *at };
        let over = Place { origin: Origin::Spec, span: *over };
        let message = format!("the two files give different values of {}", quote(name));
        reader.report(
            Diagnostic::new(Code::FilesDiffer, at, message)
                .label("this one does not count")
                .also(over, "this one stands"),
        );
    }
    spec.or(plan)
}

fn differ(reader: &mut Reader, what: &str, fields: &[&str], at: Place, over: Place) {
    if fields.is_empty() {
        return;
    }
    let list = fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", ");
    reader.report(
        Diagnostic::new(Code::FilesDiffer, at, format!("the two files give different values in {what}: {list}"))
            .label("these do not count")
            .also(over, "these stand"),
    );
}

/// The YAML's tasks in its order, then those that only the plan file names in that one's.
fn tasks(
    reader: &mut Reader,
    plan: Vec<TaskFields>,
    spec: Vec<TaskFields>,
    started: &BTreeSet<TaskId>,
    dropped: &mut Vec<TaskId>,
) -> Vec<TaskFields> {
    let mut blocks: HashMap<String, TaskFields> = HashMap::new();
    let mut order: Vec<String> = Vec::with_capacity(plan.len());
    for block in plan {
        let key = block.id.as_str().to_ascii_lowercase();
        order.push(key.clone());
        blocks.insert(key, block);
    }
    let mut merged = Vec::with_capacity(spec.len());
    for mut task in spec {
        let key = task.id.as_str().to_ascii_lowercase();
        match blocks.remove(&key) {
            Some(block) if block.id == task.id => {
                let differing = task.lay_over(block);
                let what = format!("the task {}", quote(task.id.as_str()));
                differ(reader, &what, &differing.0, differing.1, task.place);
            }
            Some(block) => {
                let message = format!("the id {} differs from another one only in case", quote(task.id.as_str()));
                reader.report(
                    Diagnostic::new(Code::DuplicateId, task.place, message)
                        .label("this one")
                        .also(block.place, "the other one"),
                );
            }
            None => {}
        }
        merged.push(task);
    }
    for mut block in order.iter().filter_map(|key| blocks.remove(key)) {
        block.is_record |= block.status_only && started.contains(&block.id);
        block.is_unnamed = true;
        if block.status_only && !block.is_record {
            let message = format!("the task {} is no longer named in the YAML spec", quote(block.id.as_str()));
            reader.report(
                Diagnostic::new(Code::Dropped, block.place, message)
                    .label("never started, so not part of the plan any more"),
            );
            dropped.push(block.id);
        } else {
            merged.push(block);
        }
    }
    merged
}

impl TaskFields {
    /// Takes from the plan file's block what is not said here; gives the fields that differ and where the block stands.
    fn lay_over(&mut self, block: Self) -> (Vec<&'static str>, Place) {
        let mut differing = Vec::new();
        macro_rules! text {
            ($($field:ident)+) => { $(match (&self.$field, block.$field) {
                (None, below) => self.$field = below,
                (Some(own), Some(below)) if *own != below => differing.push(stringify!($field)),
                _ => {}
            })+ };
        }
        text!(title description prompt);
        let ids = |list: &[(Box<str>, Place)]| list.iter().map(|(id, _)| id.clone()).collect::<BTreeSet<_>>();
        match (&self.dependencies, block.dependencies) {
            (None, below) => self.dependencies = below,
            (Some(own), Some(below)) if ids(own) != ids(&below) => differing.push("dependencies"),
            _ => {}
        }
        match (&mut self.settings, block.settings) {
            (None, below) => self.settings = below,
            (Some(own), Some(below)) => {
                differing.extend(own.differing(&below));
                own.over(&below);
            }
            _ => {}
        }
        self.published = block.published;
        self.at_fault |= block.at_fault;
        (differing, block.place)
    }
}
