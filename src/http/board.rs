//! Where the loop leaves what it sees, and where those who serve take it from. Neither waits for the other: the lock is held
//! for a moment only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::feed::{Change, Feed, Item};
use crate::controller::{Beat, Level, Reporter, Snapshot, Trouble};
use crate::record::{Entry, TaskRecord, Witness};
use crate::report::{EventView, Metrics, View};
use crate::spec::TaskSet;

/// The newest view, the newest events, and when the loop was last seen.
pub struct Board {
    metrics: Arc<Metrics>,
    folder: String,
    stuck_after: Duration,
    state: Mutex<State>,
    newest: watch::Sender<u64>,
}

struct State {
    view: Option<Arc<View>>,
    tasks: Option<Arc<TaskSet>>,
    feed: Feed,
    started: Instant,
    beat: Option<(Instant, Option<Trouble>)>,
}

/// Whether the loop goes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It does; the last pass was so long ago.
    Alive(Duration),
    /// No pass for so long.
    Stuck(Duration),
}

impl Board {
    /// An empty board. `folder` names the plan where the file does not; a loop that makes no pass for `stuck_after` is
    /// stuck (a quiet one makes one every 15 seconds); `epoch` is another one for each process.
    pub fn new(
        metrics: Arc<Metrics>,
        folder: impl Into<String>,
        stuck_after: Duration,
        epoch: impl Into<String>,
    ) -> Self {
        let state =
            State { view: None, tasks: None, feed: Feed::new(epoch.into()), started: Instant::now(), beat: None };
        Self { metrics, folder: folder.into(), stuck_after, state: Mutex::new(state), newest: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is made of single assignments; after a panic in between the next pass sets everything anew.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The newest view; `None` before the first pass.
    pub fn view(&self) -> Option<Arc<View>> {
        self.state().view.clone()
    }

    /// The newest view with the id of the event that led to it.
    pub(super) fn view_and_id(&self) -> Option<(Arc<View>, String)> {
        let state = self.state();
        Some((state.view.clone()?, state.feed.id(state.feed.newest())))
    }

    /// What people ask for.
    pub(super) fn tasks(&self) -> Option<Arc<TaskSet>> {
        self.state().tasks.clone()
    }

    /// Whether the loop goes round.
    pub fn health(&self) -> Health {
        let state = self.state();
        let age = state.beat.as_ref().map_or(state.started, |(at, _)| *at).elapsed();
        if age > self.stuck_after { Health::Stuck(age) } else { Health::Alive(age) }
    }

    /// Why it is not ready: one sentence each; none: it is.
    pub fn unready(&self) -> Vec<String> {
        let mut why = Vec::new();
        if let Health::Stuck(age) = self.health() {
            why.push(format!("no pass was made for {}", crate::report::time::age(age)));
        }
        let state = self.state();
        match (&state.beat, &state.view) {
            (None, _) | (_, None) => why.push("no pass was made yet".to_owned()),
            (Some((_, Some(trouble))), _) => why.push(format!("the last pass failed: {}", trouble.as_str())),
            (Some((_, None)), Some(_)) => {}
        }
        if let Some(view) = &state.view {
            why.extend(view.plan_invalid.iter().map(|fault| format!("the plan file is not accepted: {fault}")));
            why.extend(view.engine_unavailable.iter().map(|error| format!("the engine does not answer: {error}")));
        }
        why
    }

    /// Tells when there is a newer event.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// From where a client that has seen `id` goes on; `None`: it has to begin anew.
    pub(super) fn resume(&self, id: &str) -> Option<u64> {
        self.state().feed.resume(id)
    }

    /// Events after one; `None` where some are not kept any more.
    pub(super) fn after(&self, number: u64) -> Option<Vec<(String, Item)>> {
        let state = self.state();
        let items = state.feed.after(number)?;
        Some(items.into_iter().map(|item| (state.feed.id(item.number), item)).collect())
    }

    /// The whole view as an event, with its number and id.
    pub(super) fn snapshot(&self) -> Option<(u64, String, Arc<View>)> {
        let state = self.state();
        let newest = state.feed.newest();
        Some((newest, state.feed.id(newest), state.view.clone()?))
    }

    /// Puts up a view.
    pub fn publish(&self, view: View, tasks: Arc<TaskSet>) {
        let mut state = self.state();
        let data = serde_json::to_string(&Change::between(state.view.as_deref(), &view));
        let newest = state.feed.push("status", data.expect("BUG: a view is plain data"));
        state.view = Some(Arc::new(view));
        state.tasks = Some(tasks);
        drop(state);
        self.newest.send_replace(newest);
    }

    /// Notes that the loop went round.
    pub fn note(&self, trouble: Option<Trouble>) {
        self.state().beat = Some((Instant::now(), trouble));
    }
}

impl Reporter for Arc<Board> {
    fn pass(&mut self, snapshot: &Snapshot) {
        Arc::clone(&self.metrics).pass(snapshot);
        self.publish(View::of(snapshot, &self.folder), Arc::clone(&snapshot.tasks));
    }

    fn beat(&mut self, beat: &Beat) {
        Arc::clone(&self.metrics).beat(beat);
        self.note(beat.trouble);
    }

    fn trouble(&mut self, trouble: Trouble) {
        Arc::clone(&self.metrics).trouble(trouble);
    }

    fn notice(&mut self, _: Level, _: &str) {}
}

impl Witness for Board {
    fn recorded(&self, entry: &Entry, before: Option<&TaskRecord>, after: Option<&TaskRecord>) {
        self.metrics.recorded(entry, before, after);
        let data = serde_json::to_string(&EventView::of(entry)).expect("BUG: an event is plain data");
        let newest = self.state().feed.push("journal", data);
        self.newest.send_replace(newest);
    }
}
