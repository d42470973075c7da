//! `orchestrate retry`, `cancel`, `suspend`, `resume`: what a person asks for, written into the plan file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use clap::Args;

use super::app::Outcome;
use super::world::{Context, World, block_on, require_tasks};
use crate::controller::{self, SpecFile};
use crate::error::{ExitCode, Kind, Report};
use crate::record::{Asked, PlanFile, current_holder};
use crate::report::{TaskView, View};
use crate::spec::TaskId;
use crate::status::{Reason, Status};

/// Run tasks again as new attempts
///
/// A failed, cancelled or completed task gets a new attempt that goes on from its branch (or from its base, with
/// `retry_mode: fresh`); what it blocked waits again and follows by itself. The wish is written into the plan file,
/// so it works beside a running `orchestrate run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate retry api\n  \
                  orchestrate retry api --downstream    and everything that builds on it\n  \
                  orchestrate retry $(orchestrate status --status failed -o name)")]
pub(super) struct Retry {
    /// The tasks
    #[arg(value_name = "TASK", required = true)]
    tasks: Vec<String>,

    /// Run what depends on them again too, however indirectly
    #[arg(long)]
    downstream: bool,
}

/// Stop tasks that run, and never launch those that wait
///
/// A running container is asked to end and what it has done so far is taken in; branch and worktree stay. What
/// depends on a cancelled task is blocked. `orchestrate retry` takes it back.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate cancel api\n  \
                  orchestrate cancel $(orchestrate status --status running -o name)")]
pub(super) struct Cancel {
    /// The tasks
    #[arg(value_name = "TASK", required = true)]
    tasks: Vec<String>,
}

/// Launch nothing new; what runs goes on
///
/// What ends is taken in. Sets `suspend` in the plan file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate suspend\n  \
                  orchestrate suspend && orchestrate run --until-done    let what runs end, then stop with 6")]
pub(super) struct Suspend {}

/// Launch again after a suspend
///
/// Clears `suspend` in the plan file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  orchestrate resume")]
pub(super) struct Resume {}

impl Retry {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (_, view) = context.survey(&world)?;
        let named = require_tasks(&view, &self.tasks)?;
        let mut asked = Asked::default();
        let chosen: BTreeSet<&str> = named.iter().map(|task| task.id.as_str()).collect();
        for task in &named {
            if let Some(attempt) = retry(task, &chosen)? {
                context.output.note(&format!("{}: runs again as attempt {attempt}", task.id));
                ask(&mut asked, task, Status::Pending);
            } else {
                let message = task.message.as_deref().unwrap_or("it will be launched");
                context.output.note(&format!("{}: is waiting already: {message}", task.id));
            }
        }
        let below = if self.downstream { downstream(&view, &chosen) } else { Vec::new() };
        for task in below {
            match task.status {
                Status::Completed | Status::Failed | Status::Cancelled => {
                    context.output.note(&format!("{}: runs again after it", task.id));
                    ask(&mut asked, task, Status::Pending);
                }
                Status::Running => {
                    context.output.warn(&format!("{} runs now, on what was there before; it is left alone", task.id));
                }
                Status::Pending | Status::Blocked => {}
            }
        }
        write(context, &world, asked)
    }
}

impl Cancel {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (_, view) = context.survey(&world)?;
        let tasks = require_tasks(&view, &self.tasks)?;
        let mut asked = Asked::default();
        for task in tasks {
            match task.status {
                Status::Completed | Status::Failed => {
                    let message = format!("`{}` has ended already: it is {}", task.id, task.status);
                    return Err(Report::new(Kind::Usage, message).hint("only what runs or waits can be cancelled"));
                }
                Status::Cancelled => context.output.note(&format!("{}: is cancelled already", task.id)),
                Status::Running | Status::Pending | Status::Blocked => {
                    let what = if task.status == Status::Running { "will be stopped" } else { "will not be launched" };
                    context.output.note(&format!("{}: {what}", task.id));
                    ask(&mut asked, task, Status::Cancelled);
                }
            }
        }
        write(context, &world, asked)
    }
}

impl Suspend {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, context: &Context) -> Outcome {
        suspend(context, true)
    }
}

impl Resume {
    #[expect(clippy::unused_self, reason = "every command is run alike")]
    pub(super) fn run(&self, context: &Context) -> Outcome {
        suspend(context, false)
    }
}

/// Whether a retry means something for a task, and as which attempt it will run; `None`: it waits already.
fn retry(task: &TaskView, chosen: &BTreeSet<&str>) -> Result<Option<u32>, Report> {
    match task.status {
        Status::Running => {
            let report = Report::new(Kind::Usage, format!("`{}` runs already", task.id));
            Err(report.hint(format!("`orchestrate cancel {}` stops it; retry it then", task.id)))
        }
        Status::Pending => Ok(None),
        Status::Blocked if task.reason == Some(Reason::DependencyFailed) => match &task.first_cause {
            // It waits again as soon as the cause does.
            Some(cause) if chosen.contains(cause.as_str()) => Ok(None),
            cause => {
                let cause = cause.as_deref().unwrap_or("what it depends on");
                let report = Report::new(Kind::Usage, format!("`{}` cannot run before {cause} is completed", task.id));
                Err(report.hint(format!("`orchestrate retry {cause}`; what it blocks follows by itself")))
            }
        },
        Status::Completed | Status::Failed | Status::Blocked | Status::Cancelled => Ok(Some(task.attempt + 1)),
    }
}

/// What builds on the chosen tasks, however indirectly, in the file's order.
fn downstream<'v>(view: &'v View, chosen: &BTreeSet<&str>) -> Vec<&'v TaskView> {
    let mut dependents: HashMap<&str, Vec<&TaskView>> = HashMap::new();
    for task in &view.tasks {
        for on in &task.dependencies {
            dependents.entry(on).or_default().push(task);
        }
    }
    let mut found: BTreeMap<usize, &TaskView> = BTreeMap::new();
    let places: HashMap<&str, usize> = view.tasks.iter().enumerate().map(|(at, task)| (task.id.as_str(), at)).collect();
    let mut open: Vec<&str> = chosen.iter().copied().collect();
    while let Some(id) = open.pop() {
        for &task in dependents.get(id).into_iter().flatten() {
            if !chosen.contains(task.id.as_str()) && found.insert(places[task.id.as_str()], task).is_none() {
                open.push(&task.id);
            }
        }
    }
    found.into_values().collect()
}

fn ask(asked: &mut Asked, task: &TaskView, status: Status) {
    let id = TaskId::new(&task.id).expect("BUG: the view shows valid ids");
    asked.tasks.insert(id, (status, Some(task.attempt).filter(|attempt| *attempt > 0)));
}

fn suspend(context: &Context, suspend: bool) -> Outcome {
    let world = context.world()?;
    let (_, view) = context.survey(&world)?;
    if view.suspended == suspend {
        let state = if suspend { "suspended already" } else { "not suspended" };
        context.output.note(&format!("the plan is {state}"));
        return Ok(ExitCode::Done);
    }
    if block_on(controller::accepted(&world.ports(), &world.plan_file, &world.spec))?
        .is_ok_and(|accepted| accepted.is_suspend_named)
    {
        let path = world.spec.path().map(|path| path.display().to_string()).unwrap_or_default();
        let report = Report::new(Kind::Usage, format!("{path} says `suspend: {}`, which stands", view.suspended));
        return Err(report.hint("change it there, or take it out of there"));
    }
    let what = if suspend { "nothing new is launched; what runs goes on" } else { "the plan goes on" };
    context.output.note(what);
    write(context, &world, Asked { suspend: Some(suspend), ..Asked::default() })
}

/// Writes the wish and says when it takes effect.
fn write(context: &Context, world: &World, mut asked: Asked) -> Outcome {
    if asked == Asked::default() {
        return Ok(ExitCode::Done);
    }
    let accepted = block_on(controller::accepted(&world.ports(), &world.plan_file, &world.spec))?;
    let accepted = accepted.map_err(|error| context.fail(world, error))?;
    asked.described = accepted.named.into_iter().filter(|task| asked.tasks.contains_key(task)).collect();
    let root = world.repository.layout().root.clone();
    let file = PlanFile::new(std::sync::Arc::clone(&world.files), world.plan_file.clone(), root);
    if world.spec != SpecFile::None {
        file.ensure_exists()?;
    }
    block_on(file.ask(&asked))??;
    match current_holder(world.files.as_ref(), &world.state_dir()) {
        Some(holder) => context.output.note(&format!("process {} reconciles and takes it up at once", holder.pid)),
        None => context.output.note("takes effect with the next `orchestrate` or `orchestrate run`"),
    }
    Ok(ExitCode::Done)
}
