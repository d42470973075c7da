//! `run` over several repositories: a loop for each in one process, shared slots, one address. What is wrong with one
//! repository is told, tried again, and stops no other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::changes::watch_files;
use super::hooks::Caller;
use super::repositories::Repositories;
use super::run::Run;
use super::service::Service;
use super::signals::{Caught, Signals};
use super::watch::{STUCK_AFTER, WRITE_EVERY};
use super::world::{Context, World};
use crate::controller::{self, Reporter, RunEnd, RunOptions, Slots, Snapshot, Wakeups};
use crate::error::{Kind, Report};
use crate::http::{Board, Boards};
use crate::record::OsFiles;
use crate::report::{All, Metrics, MetricsFormat, merged_text, write_textfile_text};
use crate::runtime::{Metered, RequestSink};

/// Between two looks for repositories that came or went.
const RESCAN: Duration = Duration::from_secs(5);
/// Before a repository that cannot be served is tried again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// How the loop of one repository ended.
pub(super) struct Ended {
    pub(super) folder: PathBuf,
    pub(super) outcome: Result<(RunEnd, Snapshot, World, Context), Report>,
}

/// Where one repository is.
enum Member {
    Served {
        stop: CancellationToken,
        reload: Arc<Notify>,
    },
    Broken {
        again: Instant,
        pause: Duration,
    },
    /// With `--until-done`: its end was told.
    Over,
}

/// Everything that the loops share.
struct Fleet<'a> {
    run: &'a Run,
    context: &'a Context,
    slots: Option<Arc<Slots>>,
    boards: Arc<Boards>,
    /// Of the process: requests to engines.
    metrics: Arc<Metrics>,
    caller: Option<Caller>,
    stop: CancellationToken,
}

type Loops<'a> = FuturesUnordered<LocalBoxFuture<'a, Ended>>;

/// Serves all of them until told to stop, or until each is done.
pub(super) async fn reconcile(
    run: &Run,
    context: &Context,
    repositories: &Repositories,
    caught: &Caught,
) -> Result<Vec<Ended>, Report> {
    let signals = Signals::install().map_err(|error| Report::of(Kind::Environment, &error))?;
    let stop = CancellationToken::new();
    let reload = Arc::new(Notify::new());
    let mut service = Service::default();
    let mut background = JoinSet::new();
    background.spawn(signals.watch(stop.clone(), Arc::clone(caught), Arc::clone(&reload), service.reloading()));
    let fleet = Fleet {
        run,
        context,
        slots: run.max_concurrent.map(Slots::new),
        boards: Arc::default(),
        metrics: Arc::new(Metrics::new(context.version, "")),
        caller: run.hooks.caller(&context.output),
        stop: stop.clone(),
    };
    let _server = run.watch.serve_several(context, &fleet.boards, &fleet.metrics)?;
    let mut members = BTreeMap::new();
    let mut ended = Vec::new();
    let mut loops: Loops<'_> = FuturesUnordered::new();
    fleet.rescan(repositories, &mut members, &loops, &mut ended)?;
    if run.until_done && members.is_empty() {
        return Err(Report::new(Kind::Usage, "there is no repository to serve"));
    }
    let beat = Service::beat_every().map_or(RESCAN, |every| every.min(RESCAN));
    let mut written = None;
    while !stop.is_cancelled() || !loops.is_empty() {
        if members.values().all(|member| matches!(member, Member::Over)) && run.until_done {
            break;
        }
        tokio::select! {
            Some(end) = loops.next() => fleet.take(end, &mut members, &mut ended),
            () = reload.notified() => {
                for member in members.values_mut() {
                    match member {
                        Member::Served { reload, .. } => reload.notify_one(),
                        Member::Broken { again, .. } => *again = Instant::now(),
                        Member::Over => {}
                    }
                }
            }
            () = stop.cancelled(), if !stop.is_cancelled() => {}
            () = tokio::time::sleep(beat) => {}
        }
        if !stop.is_cancelled()
            && let Err(report) = fleet.rescan(repositories, &mut members, &loops, &mut ended)
        {
            context.output.warn(&report.render());
        }
        // Everything here is one task: a loop that blocks it keeps this line from being reached. One that only waits for
        // ever shows by its board.
        if fleet.boards.stuck().is_empty() {
            service.beat_of_several(&fleet.boards.sentence());
        }
        if written.is_none_or(|at: Instant| at.elapsed() >= WRITE_EVERY) {
            written = Some(Instant::now());
            fleet.write_metrics();
        }
    }
    Service::stopping();
    fleet.write_metrics();
    drop(loops);
    if let Some(caller) = fleet.caller {
        caller.finish(caught.load(Ordering::SeqCst) != 0).await;
    }
    Ok(ended)
}

impl Fleet<'_> {
    /// Begins what is new or due, and ends what is gone.
    fn rescan<'f>(
        &'f self,
        repositories: &Repositories,
        members: &mut BTreeMap<PathBuf, Member>,
        loops: &Loops<'f>,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Report> {
        let wanted = repositories.list()?;
        members.retain(|folder, member| {
            if wanted.contains(folder) {
                return true;
            }
            self.context.output.note(&format!("{}: no longer served; its containers go on", folder.display()));
            if let Member::Served { stop, .. } = member {
                stop.cancel();
            }
            self.boards.remove(folder);
            false
        });
        for folder in wanted {
            let pause = match members.get(&folder) {
                None => PAUSES.0,
                Some(Member::Broken { again, pause }) if *again <= Instant::now() => *pause,
                Some(_) => continue,
            };
            let stop = self.stop.child_token();
            let wakeups = Wakeups { shutdown: stop.clone(), ..Wakeups::default() };
            let reload = Arc::clone(&wakeups.reload);
            match self.begin(&folder, wakeups) {
                Ok(work) => {
                    loops.push(work);
                    members.insert(folder, Member::Served { stop, reload });
                }
                Err(report) if self.run.until_done => {
                    self.tell(&folder, &report);
                    members.insert(folder.clone(), Member::Over);
                    ended.push(Ended { folder, outcome: Err(report) });
                }
                Err(report) => self.bear(folder, &report, pause, members),
            }
        }
        Ok(())
    }

    /// Opens a repository; gives its loop.
    fn begin<'f>(&'f self, folder: &Path, wakeups: Wakeups) -> Result<LocalBoxFuture<'f, Ended>, Report> {
        let context = self.context.at(folder);
        let mut world = context.world()?;
        world.runtime =
            Arc::new(Metered::new(Arc::clone(&world.runtime), Arc::clone(&self.metrics) as Arc<dyn RequestSink>));
        let reconciler = context.open(&world, None)?;
        let metrics = Arc::new(Metrics::new(context.version, &world.folder));
        let epoch = format!("{:x}", fastrand::u64(..));
        let board = Arc::new(Board::new(metrics, &*world.folder, STUCK_AFTER, epoch));
        reconciler.set_witness(Arc::clone(&board) as _);
        self.boards.serve(folder, Arc::clone(&board));
        let share = self.slots.as_ref().map(|slots| Arc::new(slots.share(Arc::clone(&wakeups.changes))));
        let wakeups = Wakeups { share, ..wakeups };
        let options = RunOptions { beat_every: Service::beat_every(), ..self.run.options() };
        let folder = folder.to_owned();
        Ok(Box::pin(async move {
            let mut background = JoinSet::new();
            let watched = std::iter::once(&*world.plan_file).chain(world.spec.path()).map(Into::into).collect();
            background.spawn(watch_files(Arc::clone(&world.files), watched, Arc::clone(&wakeups.changes)));
            let mut lines = context.output.lines_of(Arc::clone(&world.clock), &world.folder, self.run.heartbeat());
            let mut board = board;
            let mut hooks = self.caller.as_ref().map(|caller| caller.reporter(&world.folder));
            let mut told: Vec<&mut dyn Reporter> = vec![&mut lines, &mut board];
            told.extend(hooks.as_mut().map(|hooks| hooks as &mut dyn Reporter));
            let ended = controller::run(reconciler, options, wakeups, &mut All(told)).await;
            let outcome = match ended {
                Ok((end, snapshot)) => Ok((end, snapshot, world, context)),
                Err(error) => Err(context.fail(&world, error)),
            };
            Ended { folder, outcome }
        }))
    }

    /// Takes in the end of a loop.
    fn take(&self, end: Ended, members: &mut BTreeMap<PathBuf, Member>, ended: &mut Vec<Ended>) {
        let Some(member @ Member::Served { .. }) = members.get_mut(&end.folder) else {
            // It is no longer served, and came to its end; or it was named again meanwhile, and waits for this one's lock.
            return;
        };
        match &end.outcome {
            Ok(_) => *member = Member::Over,
            Err(_) if self.run.until_done => {
                if let Err(report) = &end.outcome {
                    self.tell(&end.folder, report);
                }
                *member = Member::Over;
            }
            Err(report) => {
                self.bear(end.folder, report, PAUSES.0, members);
                return;
            }
        }
        ended.push(end);
    }

    fn tell(&self, folder: &Path, report: &Report) {
        self.context.output.warn(&format!("{}: {}", folder.display(), report.sentence()));
        self.boards.fail(folder, &report.sentence());
    }

    /// A repository cannot be served: it is told and tried again, after a pause that grows.
    fn bear(&self, folder: PathBuf, report: &Report, pause: Duration, members: &mut BTreeMap<PathBuf, Member>) {
        self.tell(&folder, report);
        let again = Instant::now() + pause;
        members.insert(folder, Member::Broken { again, pause: (pause * 2).min(PAUSES.1) });
    }

    fn write_metrics(&self) {
        let Some(path) = self.run.watch.metrics_file() else { return };
        let boards = self.boards.served();
        let plans: Vec<&Metrics> = boards.iter().map(|(_, board)| board.metrics()).collect();
        let text = merged_text(&self.metrics, &plans, MetricsFormat::Text);
        if let Err(error) = write_textfile_text(&OsFiles, path, &text) {
            self.context.output.warn(&crate::act::one_line(&error));
        }
    }
}
