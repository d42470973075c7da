//! The loop: woken by the engine's events, by what came of jobs, by changes of the file and by timers; one pass for each
//! wake, whatever woke it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::{RunError, Trouble};
use super::holds::HeldTask;
use super::news::Told;
use super::once::publish;
use super::options::{RunEnd, RunOptions, Wakeups};
use super::publishing::{PublishResult, Publishing};
use super::reconciler::Reconciler;
use super::refresh::Refreshed;
use super::snapshot::{Beat, Level, Reporter, Snapshot};
use super::stream::{Events, next};
use super::timers::{Timers, sleep_until};
use crate::act::{Outcome, has_written, one_line};
use crate::observe::{AttemptKey, ObservedContainer};
use crate::plan::Plan;
use crate::runtime::{RuntimeError, RuntimeEvent};
use crate::spec::{TaskId, TaskSet};
use crate::status::{Reason, Status, TaskStatus};

/// How long changes gather before the plan file is written.
const GATHER: Duration = Duration::from_millis(100);
/// Before the second list that proves an absence.
const LIST_AGAIN: Duration = Duration::from_millis(500);
/// Between two looks at what tasks are held for.
const LOOK_AT_HOLDS: Duration = Duration::from_secs(15);
/// Before something that failed for want of disk or of a lock is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How long it is between two tellings, for each task; under [`TELL_AT_ONCE`] not worth waiting for.
const TELL_A_TASK: Duration = Duration::from_micros(50);
const TELL_AT_ONCE: Duration = Duration::from_millis(6);
const TELL_AT_LEAST: Duration = Duration::from_secs(1);
/// How long jobs may take to end after a signal; what is left is adopted by the next start.
const STOP_PATIENCE: Duration = Duration::from_millis(2_500);

enum Work {
    Done(Outcome),
    Listed(Result<Vec<ObservedContainer>, RuntimeError>),
    Checked(Vec<TaskId>),
    Heard(AttemptKey, Option<bool>),
    Published(Publishing, PublishResult),
}

#[expect(clippy::struct_excessive_bools, reason = "each tells whether one kind of work is under way")]
struct Loop<'a> {
    reconciler: Reconciler,
    options: RunOptions,
    wakeups: Wakeups,
    reporter: &'a mut dyn Reporter,
    work: JoinSet<Work>,
    events: Option<Events>,
    timers: Timers,
    listing: bool,
    checking: bool,
    /// Since the last change, no hold was found to be outdated.
    checked: bool,
    publishing: bool,
    jobs: usize,
    statuses: Vec<TaskStatus>,
    told: Option<Told>,
    /// Something changed since, and was not told yet.
    untold: bool,
    told_at: Instant,
    unpublished: bool,
    reconnects: u32,
    /// The runtime was looked at, or was found away: before that there is nothing to tell.
    looked: bool,
}

/// Reconciles until told to stop, or until done.
pub async fn run(
    reconciler: Reconciler,
    options: RunOptions,
    wakeups: Wakeups,
    reporter: &mut dyn Reporter,
) -> Result<(RunEnd, Snapshot), RunError> {
    let timers = Timers::new(Instant::now(), options.resync);
    let told_at = timers.started;
    let controller = Loop {
        reconciler,
        options,
        wakeups,
        reporter,
        work: JoinSet::new(),
        events: None,
        timers,
        listing: false,
        checking: false,
        checked: false,
        publishing: false,
        jobs: 0,
        statuses: Vec::new(),
        told: None,
        untold: false,
        told_at,
        unpublished: true,
        reconnects: 0,
        looked: false,
    };
    controller.run().await
}

impl Loop<'_> {
    async fn run(mut self) -> Result<(RunEnd, Snapshot), RunError> {
        self.reconciler.sweep()?;
        let _anew = self.reconciler.refresh(crate::record::PARTIAL_PATIENCE).await?;
        self.reconciler.require_desired()?;
        self.reconciler.require_commit().await?;
        loop {
            let began = Instant::now();
            let pass = self.pass().await;
            let trouble = pass.as_ref().err().map(Trouble::from);
            self.reporter.beat(&Beat { at: self.reconciler.now(), took: began.elapsed(), trouble });
            let wake = match pass {
                Ok(Pass::Wait(wake)) => wake,
                Ok(Pass::End(end)) => return self.end(end).await,
                Err(error) => {
                    self.bear(error)?;
                    None
                }
            };
            if let Err(error) = self.wait(wake).await {
                self.bear(error)?;
            }
        }
    }

    /// Goes on after what may pass by itself, such as a full disk.
    fn bear(&mut self, error: RunError) -> Result<(), RunError> {
        if !error.is_transient() {
            return Err(error);
        }
        self.reporter.notice(Level::Warning, &one_line(&error));
        self.timers.retry = Some(Instant::now() + TRY_AGAIN);
        Ok(())
    }

    async fn pass(&mut self) -> Result<Pass, RunError> {
        self.reconciler.ensure_lock()?;
        match self.reconciler.refresh(Duration::ZERO).await? {
            Refreshed::Same => {}
            // What is not as we published it is repaired, whether or not anything else moves.
            Refreshed::Anew => self.unpublished = true,
            Refreshed::Settling(pause) => self.timers.look = Some(Instant::now() + pause),
        }
        self.fire_timers();
        self.reconciler.look_at_disks();
        self.reconciler.memory.allowance = self.wakeups.share.as_ref().map(|share| share.allowance());
        let now = self.reconciler.now();
        let Some((tasks, plan)) = self.reconciler.decide(&now) else { return Ok(Pass::Wait(None)) };
        // With jobs begun, slots and statuses are others.
        let (tasks, plan) = if self.begin(&plan, &tasks) {
            let Some(anew) = self.reconciler.decide(&now) else { return Ok(Pass::Wait(None)) };
            anew
        } else {
            (tasks, plan)
        };
        if let Some(share) = &self.wakeups.share {
            share.tell(&plan, self.timers.stop.is_none() && self.reconciler.unavailable().is_none());
        }
        let moved = self.statuses != plan.tasks;
        if self.looked && moved {
            self.statuses.clone_from(&plan.tasks);
            self.unpublished = true;
            self.checked = false;
        }
        self.untold |= self.looked && (self.is_news(&tasks, &plan) || moved);
        self.timers.note_low(&plan);
        // Before it is asked whether this is the end: a list that is due is one to wait for.
        if !self.listing && self.timers.list.is_none() && self.reconciler.wants_another_list() {
            self.timers.list = Some(Instant::now() + LIST_AGAIN);
        }
        let end = self.ended(&tasks, &plan);
        if self.untold && (end.is_some() || self.may_tell(tasks.tasks.len())) {
            (self.untold, self.told_at) = (false, Instant::now());
            let snapshot = self.reconciler.snapshot(Arc::clone(&tasks), plan.clone(), now);
            self.reporter.pass(&snapshot);
        }
        if self.looked && self.unpublished && self.timers.publish.is_none() && !self.publishing {
            self.timers.publish = Some(Instant::now() + GATHER);
        }
        Ok(match end {
            Some(end) => Pass::End(end),
            None => Pass::Wait(plan.wake),
        })
    }

    /// Whether those who only read may be told now; where not, when. What they are told costs some microseconds a task,
    /// so of a large plan they are told less often.
    fn may_tell(&mut self, tasks: usize) -> bool {
        let pause = TELL_A_TASK.saturating_mul(u32::try_from(tasks).unwrap_or(u32::MAX)).min(TELL_AT_LEAST);
        let due = self.told_at + pause;
        let may = pause < TELL_AT_ONCE || due <= Instant::now();
        if !may {
            self.timers.tell = Some(due);
        }
        may
    }

    /// Whether something that is shown beside the statuses is another than was told last.
    fn is_news(&mut self, tasks: &Arc<TaskSet>, plan: &Plan) -> bool {
        let told = Told {
            tasks: Arc::as_ptr(tasks).addr(),
            orphans: plan.orphans.clone(),
            unavailable: self.reconciler.unavailable().map(str::to_owned),
            fault: self.reconciler.fault(),
        };
        if told.has_new_fault(self.told.as_ref()) {
            self.reporter.trouble(Trouble::InvalidPlan);
        }
        let is_news = self.told.as_ref() != Some(&told);
        self.told = Some(told);
        is_news
    }

    /// Whether anything was begun.
    fn begin(&mut self, plan: &Plan, tasks: &Arc<TaskSet>) -> bool {
        if self.timers.stop.is_some() || self.reconciler.unavailable().is_some() {
            return false;
        }
        for action in &plan.actions {
            let job = self.reconciler.begin(action.clone(), tasks);
            let executor = self.reconciler.executor();
            self.jobs += 1;
            self.work.spawn(async move { Work::Done(executor.perform(job).await) });
        }
        for listen in &plan.listen {
            self.reconciler.begin_listen(listen);
            let context = Arc::clone(self.reconciler.context());
            let listen = listen.clone();
            self.work.spawn(async move {
                let written = has_written(&context, &listen.container_id, listen.since).await;
                Work::Heard(listen.key, written)
            });
        }
        !plan.actions.is_empty() || !plan.listen.is_empty()
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        let due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        due(&mut self.timers.retry);
        due(&mut self.timers.look);
        due(&mut self.timers.tell);
        if due(&mut self.timers.connect) {
            let instance = self.reconciler.context().instance();
            self.events = Some(self.reconciler.context().runtime.events(&instance));
        }
        if due(&mut self.timers.list) || self.timers.resync <= now {
            self.timers.resync = now + self.options.resync;
            self.list();
        }
        // What is due is put off in any case: a timer in the past would wake the loop for ever.
        if self.timers.holds <= now {
            self.timers.holds = now + LOOK_AT_HOLDS;
            let holds = self.reconciler.holds();
            if holds.is_empty() {
                self.checked = true;
            } else if !self.checking && self.reconciler.unavailable().is_none() {
                self.checking = true;
                let context = Arc::clone(self.reconciler.context());
                self.work.spawn(async move { Work::Checked(HeldTask::outdated(context, holds).await) });
            }
        }
        if due(&mut self.timers.publish) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let now = self.reconciler.now();
        let Some((tasks, plan)) = self.reconciler.decide(&now) else { return };
        self.unpublished = false;
        if let Some(publishing) = self.reconciler.unpublished(&tasks, &plan) {
            self.publishing = true;
            self.work.spawn(async move {
                let (publishing, result) = publishing.write().await;
                Work::Published(publishing, result)
            });
        }
    }

    fn list(&mut self) {
        if self.listing {
            // The one in flight may be older than what this one is wanted for.
            self.timers.list = Some(Instant::now() + LIST_AGAIN);
            return;
        }
        self.listing = true;
        self.reconciler.begin_list();
        let context = Arc::clone(self.reconciler.context());
        self.work.spawn(async move { Work::Listed(Reconciler::list(&context).await) });
    }

    /// Waits for the first reason to look again, then takes in everything else that is there already.
    async fn wait(&mut self, wake: Option<Duration>) -> Result<(), RunError> {
        let until = self.until(wake);
        let stopping = self.timers.stop.is_some();
        let notices = self.reconciler.context().notices();
        // In a fixed order, so that a simulation replays; nothing starves, since all that is there is taken in below.
        tokio::select! {
            biased;
            () = self.wakeups.shutdown.cancelled(), if !stopping => {
                self.reporter.notice(Level::Info, "stopping: nothing more is launched; containers go on running");
                self.timers.stop = Some(Instant::now() + STOP_PATIENCE);
            }
            Some(work) = self.work.join_next() => self.take(work)?,
            event = next(&mut self.events) => self.take_event(event),
            text = notices.next() => self.reporter.notice(Level::Info, &text),
            () = self.wakeups.changes.notified() => {}
            () = self.wakeups.reload.notified() => self.timers.list = Some(Instant::now()),
            () = sleep_until(until) => {}
        }
        while let Some(work) = self.work.try_join_next() {
            self.take(work)?;
        }
        while let Some(event) = futures::FutureExt::now_or_never(next(&mut self.events)) {
            self.take_event(event);
        }
        Ok(())
    }

    fn until(&self, wake: Option<Duration>) -> Option<Instant> {
        let timers = &self.timers;
        let stalls = self.options.until_done && self.jobs == 0 && self.reconciler.is_desired_valid();
        let stall = timers.away.or(timers.low).filter(|_| stalls).map(|since| since + self.options.stall_timeout);
        let timeout = self.options.timeout.map(|timeout| timers.started + timeout);
        let wake = wake.map(|wake| Instant::now() + wake);
        let beat = self.options.beat_every.map(|every| Instant::now() + every);
        [wake, stall, timeout, beat].into_iter().flatten().chain([timers.next()]).min()
    }

    fn take(&mut self, work: Result<Work, tokio::task::JoinError>) -> Result<(), RunError> {
        match work {
            Ok(Work::Done(outcome)) => {
                self.jobs -= 1;
                if outcome.failure.is_some() {
                    self.reporter.trouble(Trouble::Step);
                }
                if self.reconciler.finish(outcome, self.listing)? {
                    self.timers.list.get_or_insert_with(Instant::now);
                }
                self.note_away();
            }
            Ok(Work::Listed(listed)) => {
                self.listing = false;
                self.looked = true;
                match self.reconciler.take_list(listed) {
                    Ok(relist) => {
                        if relist {
                            self.timers.list = Some(Instant::now());
                        }
                        self.note_back();
                    }
                    Err(error) => self.lose(&one_line(&error)),
                }
            }
            Ok(Work::Heard(key, written)) => self.reconciler.finish_listen(key, written),
            Ok(Work::Checked(outdated)) => {
                self.checking = false;
                self.checked = outdated.is_empty();
                self.reconciler.release(outdated)?;
            }
            Ok(Work::Published(publishing, result)) => {
                self.publishing = false;
                if let Err(error) = self.reconciler.take_published(publishing, result) {
                    if !error.is_transient() && !matches!(error, RunError::PlanFile(_)) {
                        return Err(error);
                    }
                    self.reporter.trouble(Trouble::from(&error));
                    self.reporter.notice(Level::Warning, &one_line(&error));
                    self.unpublished = true;
                    self.timers.publish = Some(Instant::now() + TRY_AGAIN);
                }
            }
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
        Ok(())
    }

    fn take_event(&mut self, event: Option<Result<RuntimeEvent, RuntimeError>>) {
        match event {
            Some(Ok(RuntimeEvent::Subscribed)) => {
                self.list();
                self.timers.list_again_soon();
            }
            Some(Ok(RuntimeEvent::ImageAvailable(_))) => self.timers.holds = Instant::now(),
            Some(Ok(event)) => {
                if self.reconciler.take_event(event) {
                    self.timers.list = Some(Instant::now());
                }
            }
            Some(Err(error)) => self.lose(&one_line(&error)),
            None => self.lose("the engine closed its event stream"),
        }
    }

    /// The runtime does not answer: look again after a pause that grows.
    fn lose(&mut self, message: &str) {
        self.events = None;
        self.reporter.trouble(Trouble::Runtime);
        self.looked = true;
        self.reconciler.lose_runtime(message);
        self.note_away();
        let pause = self.reconciler.pause(self.reconnects);
        self.reconnects += 1;
        self.timers.connect = Some(Instant::now() + pause);
        self.timers.list = None;
    }

    fn note_away(&mut self) {
        let Some(why) = self.reconciler.unavailable() else { return };
        if self.timers.away.is_none() {
            self.reporter.notice(Level::Warning, &format!("the runtime does not answer: {why}"));
            self.timers.away = Some(Instant::now());
        }
        if self.events.is_none() && self.timers.connect.is_none() {
            self.timers.connect = Some(Instant::now());
        }
        // A job found it away while the stream still stands: only a list tells.
        if self.events.is_some() && self.timers.list.is_none() && !self.listing {
            self.timers.list = Some(Instant::now() + LIST_AGAIN);
        }
    }

    fn note_back(&mut self) {
        self.reconnects = 0;
        if self.timers.away.take().is_some() && self.statuses.iter().any(|status| status.started_at.is_some()) {
            self.reporter.notice(Level::Info, "the runtime answers again");
        }
    }

    fn ended(&mut self, tasks: &TaskSet, plan: &Plan) -> Option<RunEnd> {
        let now = Instant::now();
        if let Some(stop) = self.timers.stop {
            return (self.jobs == 0 || stop <= now).then_some(RunEnd::Stopped);
        }
        if self.options.timeout.is_some_and(|timeout| self.timers.started + timeout <= now) {
            return Some(RunEnd::TimedOut);
        }
        if !self.looked || !self.options.until_done || self.jobs > 0 || !self.reconciler.is_desired_valid() {
            return None;
        }
        let looking =
            self.listing || self.checking || self.timers.list.is_some() || self.reconciler.unavailable().is_some();
        // What a task left that the file no longer names is taken in before we go, where the runtime answers.
        let untaken = looking && self.timers.away.is_none() && self.reconciler.has_live();
        if plan.tasks.iter().all(|status| status.status == Status::Completed) && !untaken {
            return Some(RunEnd::AllCompleted);
        }
        if let Some(since) = self.timers.away {
            let why = self.reconciler.unavailable().unwrap_or_default().to_owned();
            return (since + self.options.stall_timeout <= now).then_some(RunEnd::Stalled { why });
        }
        if let Some(end) = self.timers.low_for(self.options.stall_timeout, plan).filter(|_| !looking) {
            return Some(end);
        }
        if looking || plan.can_move {
            return None;
        }
        if !self.checked {
            self.timers.holds = now;
            return None;
        }
        let waits = plan.tasks.iter().any(|status| status.reason == Some(Reason::Suspended));
        Some(if tasks.suspend && waits { RunEnd::Suspended } else { RunEnd::Unfinished })
    }

    async fn end(mut self, end: RunEnd) -> Result<(RunEnd, Snapshot), RunError> {
        while self.publishing && !matches!(end, RunEnd::Stopped) {
            if let Some(work) = self.work.join_next().await {
                self.take(work)?;
            }
        }
        self.work.shutdown().await;
        self.reconciler.forget_jobs();
        publish(&mut self.reconciler).await?;
        let now = self.reconciler.now();
        let Some((tasks, plan)) = self.reconciler.decide(&now) else {
            return Err(self.reconciler.no_desired());
        };
        let snapshot = self.reconciler.snapshot(tasks, plan, now);
        self.reporter.pass(&snapshot);
        Ok((end, snapshot))
    }
}

enum Pass {
    Wait(Option<Duration>),
    End(RunEnd),
}
