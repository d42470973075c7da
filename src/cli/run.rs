//! `orchestrate run`: the loop.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use tokio::task::JoinSet;

use super::app::Outcome;
use super::args::TableFormat;
use super::changes::watch_files;
use super::ci::Ci;
use super::fleet::{self, Ended};
use super::follow;
use super::hooks::Hooks;
use super::output::Progress;
use super::repositories::{ReposFlags, Repositories};
use super::service::Service;
use super::signals::{self, Caught, Signals};
use super::watch::{Watch, Watchers};
use super::world::{Context, World, block_on};
use crate::controller::{self, Reconciler, Reporter, RunEnd, RunError, RunOptions, Snapshot, Wakeups};
use crate::error::{ExitCode, Kind, Report};
use crate::report::{All, View};
use crate::spec;

/// Keep reconciling until told to stop, or until nothing can move any more
///
/// Woken by the engine's events, by changes of the plan file and by timers. The first SIGINT or SIGTERM stops
/// launching, records and ends within seconds; a second one ends at once. Containers go on running and are taken up
/// by the next start. SIGHUP, where there is no terminal, has everything looked at anew. Progress goes to standard error: the table on a terminal, lines elsewhere.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate run --until-done                  work off the plan, then show the review\n  \
                  orchestrate run --until-done --timeout 2h     and give up waiting after two hours\n  \
                  orchestrate run --listen 127.0.0.1:9464       with a page, metrics and health\n  \
                  orchestrate run --log-format json 2> run.log  as a service")]
pub(super) struct Run {
    /// End when nothing can move any more: 0 where all tasks are completed, else 1; suspended with work left: 6
    #[arg(long)]
    pub(super) until_done: bool,

    /// End after so long whatever stands, with 6; containers go on running
    #[arg(long, value_name = "DURATION", env = "ORCHESTRATE_TIMEOUT", hide_env_values = true, value_parser = duration)]
    timeout: Option<Duration>,

    /// With --until-done: end with 4 where the engine is away, or there is no disk space to launch, for so long
    #[arg(long, value_name = "DURATION", env = "ORCHESTRATE_STALL_TIMEOUT", hide_env_values = true)]
    #[arg(value_parser = duration, default_value = "10m")]
    stall_timeout: Duration,

    /// List the engine's containers at least so often
    #[arg(long, value_name = "DURATION", env = "ORCHESTRATE_RESYNC", hide_env_values = true)]
    #[arg(value_parser = duration, default_value = "5m")]
    resync: Duration,

    /// Run at most so many tasks at once, whatever the plan file says; of several repositories together, beside each plan's own bound
    #[arg(long, value_name = "N", env = "ORCHESTRATE_MAX_CONCURRENT", hide_env_values = true)]
    pub(super) max_concurrent: Option<NonZeroU32>,

    #[command(flatten)]
    repos: ReposFlags,

    /// How to show the tasks at the end
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    output: TableFormat,

    /// Say how the plan stands when nothing was said for so long; not on a terminal; 0s: never
    #[arg(long, value_name = "DURATION", env = "ORCHESTRATE_HEARTBEAT", hide_env_values = true)]
    #[arg(value_parser = duration_or_zero, default_value = "5m")]
    heartbeat: Duration,

    #[command(flatten)]
    pub(super) watch: Watch,

    #[command(flatten)]
    ci: Ci,

    #[command(flatten)]
    pub(super) hooks: Hooks,
}

fn duration(text: &str) -> Result<Duration, &'static str> {
    spec::duration(text)
}

fn duration_or_zero(text: &str) -> Result<Duration, &'static str> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { spec::duration(text) }
}

impl Run {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        if let Some(repositories) = self.repos.several(&context.global.dir) {
            return self.run_several(&context.without_folder(), &repositories);
        }
        let mut world = context.world()?;
        let watchers = self.watch.watchers(context, &mut world);
        let reconciler = context.open(&world, self.max_concurrent)?;
        let mut progress = context.output.progress(Arc::clone(&world.clock), &world.folder, self.heartbeat());
        let caught = Caught::default();
        let ended = block_on(self.reconcile(context, &world, watchers.as_ref(), reconciler, &mut progress, &caught))?;
        progress.finish();
        if let Some(watchers) = &watchers {
            watchers.write(context, &*world.files);
        }
        let (end, snapshot) = ended?.map_err(|error| context.fail(&world, error))?;
        let view = View::of(&snapshot, &world.folder);
        self.ci.show(context, &world, &view, self.output)?;
        if self.until_done && view.is_settled() && view.summary.completed > 0 && self.output == TableFormat::Table {
            context.output.data("\n")?;
            super::review::show(context, &world, &snapshot, &view)?;
        }
        self.outcome(context, end, &caught)
    }

    /// How often lines tell of a long wait.
    pub(super) fn heartbeat(&self) -> Option<Duration> {
        Some(self.heartbeat).filter(|every| !every.is_zero())
    }

    /// How each loop runs.
    pub(super) fn options(&self) -> RunOptions {
        RunOptions {
            until_done: self.until_done,
            timeout: self.timeout,
            resync: self.resync,
            stall_timeout: self.stall_timeout,
            beat_every: Service::beat_every(),
        }
    }

    fn run_several(&self, context: &Context, repositories: &Repositories) -> Outcome {
        let caught = Caught::default();
        let ended = block_on(fleet::reconcile(self, context, repositories, &caught))??;
        let mut code = ExitCode::Done;
        for Ended { folder, outcome } in ended {
            let next = match outcome {
                Ok((end, snapshot, world, context)) => {
                    let view = View::of(&snapshot, &world.folder);
                    if self.output == TableFormat::Table {
                        context.output.data(&format!("{}\n", folder.display()))?;
                    }
                    self.ci.show(&context, &world, &view, self.output)?;
                    match end {
                        RunEnd::Stopped => ExitCode::Done,
                        end => self.outcome(&context, end, &caught).unwrap_or_else(|report| report.exit_code()),
                    }
                }
                Err(report) => report.exit_code(),
            };
            // What cannot be served weighs more than what failed, and that more than what is unfinished.
            let weight = |code: ExitCode| match code {
                ExitCode::Done => 0,
                ExitCode::Unfinished => 1,
                ExitCode::Unsuccessful => 2,
                _ => 3,
            };
            if weight(next) > weight(code) {
                code = next;
            }
        }
        match caught.load(Ordering::SeqCst) {
            0 => {}
            signal => signals::raise(signal),
        }
        Ok(code)
    }

    async fn reconcile(
        &self,
        context: &Context,
        world: &World,
        watchers: Option<&Watchers>,
        reconciler: Reconciler,
        progress: &mut Progress,
        caught: &Caught,
    ) -> Result<Result<(RunEnd, Snapshot), RunError>, Report> {
        let wakeups = Wakeups::default();
        let signals = Signals::install().map_err(|error| Report::of(Kind::Environment, &error))?;
        // Dropped with everything in it when the loop has ended.
        let mut background = JoinSet::new();
        let mut service = Service::default();
        let reload = Arc::clone(&wakeups.reload);
        background.spawn(signals.watch(wakeups.shutdown.clone(), Arc::clone(caught), reload, service.reloading()));
        let watched = std::iter::once(&*world.plan_file).chain(world.spec.path()).map(Into::into).collect();
        background.spawn(watch_files(Arc::clone(&world.files), watched, Arc::clone(&wakeups.changes)));
        if let Some(ticker) = progress.ticker() {
            background.spawn(follow::keep_ticking(ticker));
        }
        let options = self.options();
        let mut board = watchers.map(|watchers| Arc::clone(&watchers.board));
        let _server = match watchers {
            Some(watchers) => self.watch.serve(context, world, watchers, &reconciler)?,
            None => None,
        };
        if let Some((path, metrics)) = watchers.and_then(Watchers::file) {
            background.spawn(Watchers::keep_writing(Arc::clone(&world.files), path, metrics));
        }
        let caller = self.hooks.caller(&context.output);
        let mut hooks = caller.as_ref().map(|caller| caller.reporter(&world.folder));
        let mut told: Vec<&mut dyn Reporter> = vec![progress.reporter(), &mut service];
        told.extend(board.as_mut().map(|board| board as &mut dyn Reporter));
        told.extend(hooks.as_mut().map(|hooks| hooks as &mut dyn Reporter));
        let ended = controller::run(reconciler, options, wakeups, &mut All(told)).await;
        Service::stopping();
        drop(hooks);
        if let Some(caller) = caller {
            caller.finish(caught.load(Ordering::SeqCst) != 0).await;
        }
        Ok(ended)
    }

    fn outcome(&self, context: &Context, end: RunEnd, caught: &Caught) -> Outcome {
        Ok(match end {
            RunEnd::AllCompleted => ExitCode::Done,
            RunEnd::Unfinished => ExitCode::Unsuccessful,
            RunEnd::Suspended => {
                context.output.note("the plan is suspended and work is left; `orchestrate resume` lets it go on");
                ExitCode::Unfinished
            }
            RunEnd::TimedOut => {
                context.output.note("the time is up; containers go on running, and the next start takes them up");
                ExitCode::Unfinished
            }
            RunEnd::Stalled { why } => {
                let limit = crate::report::time::age(self.stall_timeout);
                let mut report = Report::new(Kind::Environment, format!("the engine did not answer for {limit}"));
                report.causes = vec![why];
                return Err(report.hint("start it and run again: what ran is taken up, nothing runs twice"));
            }
            RunEnd::DiskLow { why } => {
                let limit = crate::report::time::age(self.stall_timeout);
                let mut report = Report::new(Kind::Environment, format!("nothing could be launched for {limit}"));
                report.causes = vec![why];
                return Err(report
                    .hint("make room there and run again: what was done stays done")
                    .hint("or lower the floor with --disk-floor"));
            }
            RunEnd::Stopped => {
                signals::raise(caught.load(Ordering::SeqCst));
                ExitCode::Done
            }
        })
    }
}
