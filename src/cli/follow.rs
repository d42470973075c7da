//! `orchestrate status --watch`: the same look again and again, without the lock, beside a running `run` or without one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::args::TableFormat;
use super::changes::watch_files;
use super::output::Followed;
use super::signals;
use super::status;
use super::world::{Context, World, block_on};
use crate::controller::{self, RunError};
use crate::error::{Kind, Report};
use crate::report::table::Detail;
use crate::report::{TaskView, Ticker, View, escape};

/// How often ages move.
const TICK: Duration = Duration::from_secs(1);
/// How often the engine is asked where no file changed: what ends while nobody reconciles is in no file yet.
const LOOK: Duration = Duration::from_secs(2);

/// Which of a view's tasks are shown.
pub(super) type Select<'s> = &'s dyn Fn(&View) -> Result<Vec<TaskView>, Report>;

/// Repaints for as long as it is polled.
pub(super) async fn keep_ticking(ticker: Ticker) {
    loop {
        tokio::time::sleep(TICK).await;
        ticker.tick();
    }
}

/// Shows how the plan stands until nothing can move any more, and gives how it stood then. A signal that ends it takes its
/// own effect, with the last picture left where it is.
pub(super) fn follow(
    context: &Context,
    world: &World,
    format: TableFormat,
    select: Select<'_>,
) -> Result<View, Report> {
    let mut shown = match format {
        TableFormat::Name => {
            let report = Report::new(Kind::Usage, "`-o name` and `--watch` do not go together");
            return Err(report.hint("`-o json --watch` gives one document a line"));
        }
        TableFormat::Json | TableFormat::Yaml => Shown::Documents { is_yaml: format == TableFormat::Yaml, last: None },
        TableFormat::Table | TableFormat::Wide | TableFormat::Github => {
            let detail = if format == TableFormat::Wide { Detail::Wide } else { Detail::Normal };
            Shown::People(context.output.followed(Arc::clone(&world.clock), &world.folder, detail))
        }
    };
    match block_on(look_on(context, world, select, &mut shown))?? {
        Ended::Settled(view) => {
            if let Shown::People(Followed::Live(live)) = &mut shown {
                live.clear();
                let tasks = select(&view)?;
                let tasks: Vec<&TaskView> = tasks.iter().collect();
                status::show(context, &view, &tasks, format)?;
            }
            Ok(*view)
        }
        Ended::Signal(number, view) => {
            signals::raise(number);
            Ok(*view)
        }
    }
}

enum Ended {
    Settled(Box<View>),
    Signal(i32, Box<View>),
}

enum Shown {
    People(Followed),
    Documents { is_yaml: bool, last: Option<View> },
}

impl Shown {
    fn show(&mut self, context: &Context, view: View) -> Result<(), Report> {
        match self {
            Self::People(Followed::Live(live)) => live.show(view),
            Self::People(Followed::Lines(lines)) => lines.show(&view),
            Self::Documents { is_yaml, last } => {
                let still = timeless(&view);
                if last.as_ref() != Some(&still) {
                    if *is_yaml {
                        context.output.data("---\n")?;
                        context.output.yaml(&view)?;
                    } else {
                        let text = serde_json::to_string(&view).map_err(std::io::Error::from)? + "\n";
                        context.output.data(&escape::json(&text))?;
                    }
                    *last = Some(still);
                }
            }
        }
        Ok(())
    }

    fn ticker(&self) -> Option<Ticker> {
        match self {
            Self::People(Followed::Live(live)) => Some(live.ticker()),
            _ => None,
        }
    }

    /// Tells why nothing newer is shown.
    fn trouble(&mut self, context: &Context, message: &str) {
        match self {
            Self::People(Followed::Live(live)) => {
                crate::controller::Reporter::notice(live, crate::controller::Level::Warning, message);
            }
            _ => context.output.warn(message),
        }
    }
}

/// Without what changes while nothing happens.
fn timeless(view: &View) -> View {
    let mut view = View { at: Timestamp::UNIX_EPOCH, ..view.clone() };
    for task in &mut view.tasks {
        task.seconds = None;
    }
    view
}

async fn look_on(context: &Context, world: &World, select: Select<'_>, shown: &mut Shown) -> Result<Ended, Report> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut resized = signal(SignalKind::window_change())?;
    let changes = Arc::new(Notify::new());
    let mut background = JoinSet::new();
    let mut watched: Vec<_> = std::iter::once(&*world.plan_file).chain(world.spec.path()).map(Into::into).collect();
    watched.push(world.state_dir().join("journal"));
    background.spawn(watch_files(Arc::clone(&world.files), watched, Arc::clone(&changes)));
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ticker = shown.ticker();
    let mut last: Option<Box<View>> = None;
    let mut told = None;
    loop {
        match survey(context, world).await {
            Ok(mut view) => {
                if last.is_none() {
                    view.warnings.iter().for_each(|warning| context.output.warn(warning));
                }
                let whole = Box::new(view.clone());
                view.tasks = select(&view)?;
                shown.show(context, view)?;
                told = None;
                if whole.is_settled() {
                    return Ok(Ended::Settled(whole));
                }
                last = Some(whole);
            }
            // From the start there is nothing to look at; later somebody may be in the middle of an edit.
            Err(error) => {
                let Some(_) = &last else { return Err(context.fail(world, error)) };
                let message = format!("{}; it is looked at again", crate::act::one_line(&error));
                if told.as_ref() != Some(&message) {
                    shown.trouble(context, &message);
                    told = Some(message);
                }
            }
        }
        let next_look = tokio::time::sleep(LOOK);
        tokio::pin!(next_look);
        let caught = loop {
            tokio::select! {
                () = changes.notified() => break None,
                () = &mut next_look => break None,
                _ = interrupt.recv() => break Some(SignalKind::interrupt()),
                _ = terminate.recv() => break Some(SignalKind::terminate()),
                _ = tick.tick() => ticker.iter().for_each(Ticker::tick),
                _ = resized.recv() => ticker.iter().for_each(Ticker::tick),
            }
        };
        if let Some(kind) = caught
            && let Some(view) = last.take()
        {
            return Ok(Ended::Signal(kind.as_raw_value(), view));
        }
    }
}

async fn survey(context: &Context, world: &World) -> Result<View, RunError> {
    let floor = context.global.disk_floor();
    let snapshot = controller::survey(&world.ports(), &world.plan_file, &world.spec, floor).await?;
    let mut view = View::of(&snapshot, &world.folder);
    view.confinement = world.runtime.isolation().await.ok().flatten();
    Ok(view)
}
