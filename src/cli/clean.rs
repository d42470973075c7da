//! `orchestrate clean`: removes what is done with, and says what stays and why.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use bytesize::ByteSize;
use clap::Args;
use serde::Serialize;

use super::app::Outcome;
use super::args::TextFormat;
use super::world::{Context, World, block_on, require_tasks};
use crate::act::{self, Cleaned, Leftover};
use crate::controller::Snapshot;
use crate::error::{ExitCode, Kind, Report};
use crate::git;
use crate::plan::{self, CleanPlan, CleanRequest, CleanStep};
use crate::report::{escape, plural};
use crate::spec::TaskId;

/// Remove containers, worktrees and branches that are done with
///
/// By default those of completed and cancelled tasks whose branch is merged into HEAD; a squash merge is recognised by
/// its content. Logs and results stay in the journal. A branch with work that is not merged stays unless it is named
/// with `--force`, and then its commits keep a ref; a worktree with uncommitted work always stays. Templates, from which
/// worktrees are copied, go where no task is named; they are made again when they are needed.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[command(after_help = "Examples:\n  \
                  orchestrate clean --dry-run\n  \
                  orchestrate clean --yes\n  \
                  orchestrate clean api --force     give up its branch, too\n  \
                  orchestrate clean --orphans       containers of tasks that the plan no longer names")]
pub(super) struct Clean {
    /// Only these tasks, merged or not; branches that are not merged stay
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,

    /// Only what is merged: the default
    #[arg(long, conflicts_with_all = ["all", "tasks"])]
    merged: bool,

    /// Containers and worktrees of every task that is over, merged or not
    #[arg(long)]
    all: bool,

    /// Containers of tasks that the plan no longer names, too; those that run are asked to end
    #[arg(long, conflicts_with = "tasks")]
    orphans: bool,

    /// Branches of the named tasks that are not merged, too
    #[arg(long, requires = "tasks")]
    force: bool,

    /// What branches count as merged into
    #[arg(long, value_name = "REVISION", env = "ORCHESTRATE_TARGET", hide_env_values = true, default_value = "HEAD")]
    target: String,

    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    /// How to show it
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "text"
    )]
    output: TextFormat,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Told<'c> {
    dry_run: bool,
    #[serde(flatten)]
    cleaned: &'c Cleaned,
    /// Bytes on disk that were, or would be, freed.
    bytes: u64,
    /// Bytes on disk of what attempts left in the state directory, which stays.
    attempts_bytes: u64,
}

impl Clean {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        if let Some(why) = &snapshot.observed.unavailable {
            let report = Report::new(Kind::Environment, format!("containers cannot be seen: {why}"));
            return Err(report.hint("nothing was removed; see whether the engine runs"));
        }
        let tasks = require_tasks(&view, &self.tasks)?;
        let tasks: BTreeSet<TaskId> =
            tasks.iter().map(|task| TaskId::new(&task.id).expect("BUG: the view shows valid ids")).collect();
        // They belong to no task.
        let templates = tasks.is_empty();
        let request = CleanRequest { tasks, all: self.all, orphans: self.orphans, force: self.force };
        let plan = self.decide(&world, &snapshot, &request)?;
        let preview = carry_out(&world, &snapshot, &plan, templates, true)?;
        if self.dry_run || preview.removed.is_empty() {
            self.tell(context, &world, &preview, true)?;
            return Ok(end(&preview));
        }
        if !self.yes && !self.confirm(context, &preview)? {
            context.output.note("nothing was removed");
            return Ok(ExitCode::Done);
        }
        let (to_stop, steps) = plan.steps.into_iter().partition(|step| matches!(step, CleanStep::Stop(_)));
        let plan = CleanPlan { steps, kept: plan.kept };
        let mut cleaned = carry_out(&world, &snapshot, &plan, templates, false)?;
        self.stop(context, &world, &request, to_stop, &mut cleaned)?;
        self.tell(context, &world, &cleaned, false)?;
        Ok(end(&cleaned))
    }

    fn decide(&self, world: &World, snapshot: &Snapshot, request: &CleanRequest) -> Result<CleanPlan, Report> {
        let branches = block_on(act::look(&world.ports(), &self.target, &snapshot.tasks, &snapshot.ledger))??;
        Ok(plan::clean(request, &snapshot.tasks, &snapshot.ledger, &snapshot.observed, &branches))
    }

    /// Asks containers to end, each after a look at everything as it stands then: the question may have stood for long,
    /// one that does not want to end takes its time, and meanwhile the plan may name the next one's task again.
    fn stop(
        &self,
        context: &Context,
        world: &World,
        request: &CleanRequest,
        steps: Vec<CleanStep>,
        cleaned: &mut Cleaned,
    ) -> Result<(), Report> {
        for step in steps {
            let (snapshot, _) = context.survey(world)?;
            let CleanStep::Stop(container) = &step else { continue };
            let task = container.key.task.to_string();
            if snapshot.observed.unavailable.is_none() && self.decide(world, &snapshot, request)?.steps.contains(&step)
            {
                let plan = CleanPlan { steps: vec![step], kept: Vec::new() };
                let stopped = carry_out(world, &snapshot, &plan, false, false)?;
                cleaned.removed.extend(stopped.removed);
                cleaned.failed.extend(stopped.failed);
            } else {
                let why = format!("{}: it is no longer to be stopped", container.name);
                cleaned.kept.push(Leftover { task, why });
            }
        }
        Ok(())
    }

    fn confirm(&self, context: &Context, would: &Cleaned) -> Result<bool, Report> {
        if !io::stdin().is_terminal() || !matches!(self.output, TextFormat::Text) {
            let report = Report::new(Kind::Usage, format!("this would remove {}", summary(would)));
            return Err(report.hint("`--yes` does it without asking; `--dry-run` shows each"));
        }
        context.output.data(&lines(would, true))?;
        let mut stderr = context.output.stderr();
        write!(stderr, "Remove {}? [y/N] ", summary(would)).and_then(|()| stderr.flush())?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn tell(&self, context: &Context, world: &World, cleaned: &Cleaned, dry_run: bool) -> Result<(), Report> {
        let attempts = world.state_dir().join("attempts");
        let attempts_bytes = if attempts.exists() { git::disk_usage(&attempts) } else { 0 };
        match self.output {
            TextFormat::Json | TextFormat::Yaml => {
                let told = Told { dry_run, cleaned, bytes: bytes(cleaned), attempts_bytes };
                match self.output {
                    TextFormat::Yaml => context.output.yaml(&told)?,
                    _ => context.output.json(&told)?,
                }
            }
            TextFormat::Text => {
                context.output.data(&lines(cleaned, dry_run))?;
                let did = match (cleaned.removed.is_empty(), dry_run) {
                    (true, _) => "there is nothing to remove".to_owned(),
                    (false, true) => format!("would remove {}", summary(cleaned)),
                    (false, false) => format!("removed {}", summary(cleaned)),
                };
                context.output.note(&did);
                if attempts_bytes > 0 {
                    // A private git directory may hold the only copy of what was refused.
                    let size = ByteSize(attempts_bytes);
                    let place = attempts.display();
                    context
                        .output
                        .note(&format!("logs and private git directories of attempts stay: {size} in {place}"));
                }
            }
        }
        Ok(())
    }
}

fn carry_out(
    world: &World,
    snapshot: &Snapshot,
    plan: &CleanPlan,
    templates: bool,
    dry_run: bool,
) -> Result<Cleaned, Report> {
    let plan_id = snapshot.ledger.plan_id().map(ToString::to_string).unwrap_or_default();
    block_on(async {
        let ports = world.ports();
        let mut cleaned = act::clean(&ports, plan, &plan_id, dry_run).await;
        if templates {
            act::clean_templates(&ports, dry_run, &mut cleaned).await;
        }
        cleaned
    })
}

fn end(cleaned: &Cleaned) -> ExitCode {
    if cleaned.failed.is_empty() { ExitCode::Done } else { ExitCode::Environment }
}

fn lines(cleaned: &Cleaned, dry_run: bool) -> String {
    let mut text = String::new();
    let mut line = |word: &str, what: &str| {
        text.extend([word, " ", &escape::line(what), "\n"]);
    };
    for removed in &cleaned.removed {
        let mut what = format!("{} {}", removed.kind, removed.name);
        if removed.kind == "stopped" {
            what = format!("container {}", removed.name);
        }
        if let Some(bytes) = removed.bytes {
            what = format!("{what} ({})", ByteSize(bytes));
        }
        if let Some(kept) = &removed.kept_ref {
            what = format!("{what}, its commits kept at {kept}");
        }
        let word = match (removed.kind, dry_run) {
            ("stopped", true) => "stop",
            ("stopped", false) => "stopped",
            (_, true) => "remove",
            (_, false) => "removed",
        };
        line(word, &what);
    }
    for kept in &cleaned.kept {
        line("kept", &format!("{}: {}", kept.task, kept.why));
    }
    for failed in &cleaned.failed {
        line("failed", &format!("{}: {}", failed.task, failed.why));
    }
    text
}

fn summary(cleaned: &Cleaned) -> String {
    let count = |kind: &str| cleaned.removed.iter().filter(|removed| removed.kind == kind).count();
    let parts = [
        (count("container"), "container", "containers"),
        (count("worktree"), "worktree", "worktrees"),
        (count("branch"), "branch", "branches"),
        (count("templates"), "set of templates", "sets of templates"),
        (count("stopped"), "container that runs (stopped)", "containers that run (stopped)"),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter(|(count, ..)| *count > 0).map(|(count, one, many)| plural(count, one, many)).collect();
    format!("{}: {} on disk", parts.join(", "), ByteSize(bytes(cleaned)))
}

fn bytes(cleaned: &Cleaned) -> u64 {
    cleaned.removed.iter().filter_map(|removed| removed.bytes).sum()
}
