//! What happens to attempts, seen by the files that come and go in their folders.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

use super::adapter::{blocking, failed, observed};
use super::folder::{Folder, FolderError, Look, at};
use super::watch::{Change, Watch};
use crate::observe::{ContainerState, InstanceId, ObservedContainer};
use crate::runtime::{ErrorKind, Operation, RuntimeError, RuntimeEvent};

/// Until another look at what is being ended after its supervisor's death.
const DYING: Duration = Duration::from_millis(20);

struct Watcher {
    root: PathBuf,
    instance: InstanceId,
    watch: Watch,
    root_watch: i32,
    /// Which attempt a watch is on.
    names: BTreeMap<i32, String>,
    known: BTreeMap<String, ObservedContainer>,
    dying: bool,
    queue: VecDeque<RuntimeEvent>,
}

/// Subscribes to what happens under a root.
pub(super) fn open(root: PathBuf, instance: InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
    let first = stream::once(async move { Watcher::begin(root, instance).await });
    first
        .flat_map(|begun| match begun {
            Ok(watcher) => stream::unfold(Some(watcher), next).boxed(),
            Err(error) => stream::iter([Err(broken(&error))]).boxed(),
        })
        .boxed()
}

fn broken(error: &FolderError) -> RuntimeError {
    failed(Operation::Events, None, ErrorKind::Unreachable, error.to_string())
}

async fn next(watcher: Option<Watcher>) -> Option<(Result<RuntimeEvent, RuntimeError>, Option<Watcher>)> {
    let mut watcher = watcher?;
    loop {
        if let Some(event) = watcher.queue.pop_front() {
            return Some((Ok(event), Some(watcher)));
        }
        if let Err(error) = watcher.wait().await {
            return Some((Err(broken(&error)), None));
        }
    }
}

impl Watcher {
    async fn begin(root: PathBuf, instance: InstanceId) -> Result<Self, FolderError> {
        let watch = Watch::new().map_err(at("watch", &root))?;
        let root_watch = watch.add(&root).map_err(at("watch", &root))?;
        let (names, known, queue) = Default::default();
        let mut watcher = Self { root, instance, watch, root_watch, names, known, dying: false, queue };
        watcher.look_at_all().await?;
        // What was there before is for the list to tell.
        watcher.queue = VecDeque::from([RuntimeEvent::Subscribed]);
        Ok(watcher)
    }

    async fn wait(&mut self) -> Result<(), FolderError> {
        let changes = if self.dying {
            match tokio::time::timeout(DYING, self.watch.changes()).await {
                Ok(changes) => changes,
                Err(_) => return self.look_at_all().await,
            }
        } else {
            self.watch.changes().await
        };
        let changes = changes.map_err(at("watch", &self.root))?;
        if changes.iter().any(|change| change.overflow) {
            self.queue.push_back(RuntimeEvent::Unclear);
            return self.look_at_all().await;
        }
        let mut names: Vec<String> = changes.iter().filter_map(|change| self.concerned(change)).collect();
        names.dedup();
        for name in names {
            self.look_at(name).await?;
        }
        Ok(())
    }

    fn concerned(&self, change: &Change) -> Option<String> {
        if change.watch == self.root_watch {
            return change.name.as_ref()?.to_str().filter(|name| !name.starts_with('.')).map(ToOwned::to_owned);
        }
        self.names.get(&change.watch).cloned()
    }

    async fn look_at_all(&mut self) -> Result<(), FolderError> {
        self.dying = false;
        let root = self.root.clone();
        let mut names = blocking(move || Folder::names(&root)).await?;
        names.extend(self.known.keys().cloned());
        names.sort_unstable();
        names.dedup();
        for name in names {
            self.look_at(name).await?;
        }
        Ok(())
    }

    async fn look_at(&mut self, name: String) -> Result<(), FolderError> {
        let folder = Folder::at(self.root.join(&name));
        // Watched before it is looked at, so that nothing is missed in between; what is gone cannot be.
        let ended = self.known.get(&name).is_some_and(|known| known.state == ContainerState::Exited);
        let watch = if ended { None } else { self.watch.add(&folder.path).ok() };
        if let Some(watch) = watch {
            self.names.insert(watch, name.clone());
        }
        let look = blocking(move || folder.look()).await?;
        self.dying |= look.as_ref().is_some_and(|look| look.dying);
        self.take(&name, watch, look.as_ref());
        Ok(())
    }

    fn take(&mut self, name: &str, watch: Option<i32>, look: Option<&Look>) {
        let now = look.and_then(|look| observed(&self.instance, look));
        let before = self.known.get(name).cloned();
        if let Some(before) = before.as_ref().filter(|before| now.as_ref().is_none_or(|now| now.id != before.id)) {
            self.known.remove(name);
            self.names.retain(|known, other| other != name || Some(*known) == watch);
            self.queue
                .push_back(RuntimeEvent::Removed(ObservedContainer { state: ContainerState::Dead, ..before.clone() }));
        }
        let Some(now) = now else { return self.forget(watch) };
        let before = before.filter(|before| before.id == now.id).map(|before| before.state);
        self.queue.extend(between(before, &now));
        if now.state == ContainerState::Exited {
            self.forget(watch);
        }
        self.known.insert(name.to_owned(), now);
    }

    fn forget(&mut self, watch: Option<i32>) {
        if let Some(watch) = watch {
            self.watch.remove(watch);
            self.names.remove(&watch);
        }
    }
}

/// The steps from one state to another, none left out.
fn between(before: Option<ContainerState>, now: &ObservedContainer) -> Vec<RuntimeEvent> {
    let rank = |state| match state {
        ContainerState::Created => 1,
        ContainerState::Running | ContainerState::Paused => 2,
        ContainerState::Exited | ContainerState::Dead => 3,
    };
    let (from, to) = (before.map_or(0, rank), rank(now.state));
    let at = |state| ObservedContainer { state, ..now.clone() };
    let steps = [
        RuntimeEvent::Created(at(ContainerState::Created)),
        RuntimeEvent::Started(at(ContainerState::Running)),
        RuntimeEvent::Exited(at(ContainerState::Exited)),
    ];
    steps.into_iter().take(to).skip(from).collect()
}
