//! An engine in memory: no threads, no clock but tokio's, the same calls give the same answers.
//!
//! It reproduces what real engines do to a naive caller (a start on an exited container runs it again, a call whose
//! caller gave up still takes effect, an exit during an outage is never told) and is stricter: what our own code must
//! never do is noted as a violation. Tests script its faults and play the people who use the same engine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use orchestrate::observe::names::{self, label};
use orchestrate::observe::{AttemptKey, ContainerDetail, ContainerState, InstanceId, ObservedContainer};
use orchestrate::runtime::{
    CreateRequest, EngineInfo, ErrorKind, ImageInfo, LogChunk, LogOptions, LogStream, Operation, PullProgress,
    PullSink, Runtime, RuntimeError, RuntimeEvent,
};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What the process of an attempt does.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// How long it runs; `None`: until it is stopped.
    pub duration: Option<Duration>,
    /// Its exit code when it ends by itself.
    pub exit_code: i64,
    /// Its exit code when it is asked to end; `None`: it does not listen and is killed (137).
    pub on_term: Option<i64>,
    /// The kernel kills one of its processes for memory.
    pub oom: bool,
    /// What it writes, all at its start.
    pub output: Vec<(LogStream, Vec<u8>)>,
    /// It cannot be started: exit code and text.
    pub start_error: Option<(i64, String)>,
    /// How many starts fail with `start_error` before one succeeds; `None`: all.
    pub start_failures: Option<u32>,
}

impl Default for Behaviour {
    /// Ends well at once.
    fn default() -> Self {
        Self {
            duration: Some(Duration::ZERO),
            exit_code: 0,
            on_term: Some(143),
            oom: false,
            output: Vec::new(),
            start_error: None,
            start_failures: None,
        }
    }
}

impl Behaviour {
    /// Runs for so long, then ends with a code.
    pub fn exits(code: i64, after: Duration) -> Self {
        Self { duration: Some(after), exit_code: code, ..Self::default() }
    }

    /// Runs until it is stopped.
    pub fn endless() -> Self {
        Self { duration: None, ..Self::default() }
    }
}

/// What goes wrong with the next call of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The error, and no effect.
    Fail(ErrorKind),
    /// The effect, and no answer.
    EffectWithoutAnswer,
    /// No answer now, and the effect so much later.
    LateEffect(Duration),
    /// Effect and answer so much later; the effect also where the caller gives up meanwhile.
    Delay(Duration),
    /// Neither, ever.
    Hang,
}

/// What goes wrong with the next event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventFault {
    /// It is not told.
    Lose,
    /// It is told twice.
    Duplicate,
}

/// By whose doing a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// Its own.
    Itself,
    /// A stop of ours.
    Us,
    /// A person's.
    Human,
    /// The engine's or the machine's.
    Engine,
}

/// What a test may know of a container and our code may not.
#[derive(Debug, Clone)]
pub struct Seen {
    pub name: String,
    pub id: String,
    pub labels: BTreeMap<String, String>,
    pub state: ContainerState,
    pub exit_code: i64,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Runs, whoever began them.
    pub starts: u32,
    /// Runs that a person began.
    pub human_starts: u32,
    /// Whether a person renamed, removed, stopped or killed it.
    pub touched: bool,
    pub ended_by: Option<EndedBy>,
    pub removed: bool,
}

#[derive(Debug, Clone)]
struct Container {
    id: String,
    name: String,
    labels: BTreeMap<String, String>,
    state: ContainerState,
    behaviour: Behaviour,
    exit_code: i64,
    error: String,
    oom_killed: bool,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    ends_at: Option<Instant>,
    /// What is left of its run while it is frozen.
    frozen: Option<Duration>,
    starts: u32,
    human_starts: u32,
    touched: bool,
    ended_by: Option<EndedBy>,
    /// Whose stop a process that does not listen is being killed by.
    doomed_by: Option<EndedBy>,
    failed_starts: u32,
    log: Vec<LogChunk>,
}

#[derive(Debug, Clone)]
enum Effect {
    Create(Box<CreateRequest>),
    Start(String),
    Stop(String, Duration),
    Remove(String),
}

#[derive(Debug)]
struct Pending {
    due: Instant,
    ticket: u64,
    effect: Effect,
}

#[derive(Debug)]
struct Subscriber {
    ticket: u64,
    instance: InstanceId,
    queue: VecDeque<RuntimeEvent>,
}

type MountExists = Arc<dyn Fn(&Path) -> bool + Send + Sync>;
type Script = Arc<dyn Fn(&AttemptKey) -> Behaviour + Send + Sync>;
type Answer = Result<String, RuntimeError>;

struct State {
    epoch: (Instant, Timestamp),
    up: bool,
    /// The machine lost its power, and the engine was not started since.
    powerless: bool,
    started_at: Timestamp,
    live_restore: bool,
    mount_exists: MountExists,
    /// Containers that are gone.
    graves: Vec<Seen>,
    script: Script,
    images: BTreeMap<String, ImageInfo>,
    /// What a registry has, and how long it takes to fetch; without an entry, there is no registry.
    registry: BTreeMap<String, (Duration, Result<(), ErrorKind>)>,
    containers: BTreeMap<String, Container>,
    faults: Vec<(Operation, Fault)>,
    event_faults: VecDeque<EventFault>,
    pending: Vec<Pending>,
    answers: BTreeMap<u64, Answer>,
    subscribers: Vec<Subscriber>,
    tickets: u64,
    calls: BTreeMap<&'static str, u32>,
    violations: Vec<String>,
    /// Grows with everything that happens.
    version: u64,
}

/// The engine. Clones are the same engine.
#[derive(Clone)]
pub struct FakeRuntime {
    state: Arc<Mutex<State>>,
    /// Somebody who waits may go on.
    changed: Arc<Notify>,
}

impl FakeRuntime {
    /// An engine with one image, whose tasks end well at once.
    pub fn new() -> Self {
        let image = ImageInfo { id: "sha256:fake".to_owned(), user: String::new(), digest: None };
        let epoch = Timestamp::from_second(1_800_000_000).expect("in range");
        let state = State {
            epoch: (Instant::now(), epoch),
            up: true,
            powerless: false,
            started_at: epoch,
            live_restore: false,
            mount_exists: Arc::new(Path::exists),
            graves: Vec::new(),
            script: Arc::new(|_| Behaviour::default()),
            images: BTreeMap::from([("orchestrate-test:latest".to_owned(), image)]),
            registry: BTreeMap::new(),
            containers: BTreeMap::new(),
            faults: Vec::new(),
            event_faults: VecDeque::new(),
            pending: Vec::new(),
            answers: BTreeMap::new(),
            subscribers: Vec::new(),
            tickets: 0,
            calls: BTreeMap::new(),
            violations: Vec::new(),
            version: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(Notify::new()) }
    }

    /// Decides what attempts do from now on.
    pub fn script(&self, script: impl Fn(&AttemptKey) -> Behaviour + Send + Sync + 'static) {
        self.lock().script = Arc::new(script);
    }

    /// Decides which mount sources are there; without it, those of the real file system.
    pub fn mounts(&self, exists: impl Fn(&Path) -> bool + Send + Sync + 'static) {
        self.lock().mount_exists = Arc::new(exists);
    }

    /// A registry has an image, or answers with an error, after so long.
    pub fn add_to_registry(&self, reference: &str, after: Duration, answer: Result<(), ErrorKind>) {
        self.lock().registry.insert(reference.to_owned(), (after, answer));
    }

    /// An image appears.
    pub fn add_image(&self, reference: &str, user: &str) {
        let mut state = self.lock();
        let info = ImageInfo { id: format!("sha256:{reference}"), user: user.to_owned(), digest: None };
        state.images.insert(reference.to_owned(), info);
        state.tell_all(&RuntimeEvent::ImageAvailable(reference.to_owned()));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The next call of the operation that has no fault yet goes wrong.
    pub fn fail_next(&self, operation: Operation, fault: Fault) {
        self.lock().faults.push((operation, fault));
    }

    /// The next event that has no fault yet goes wrong.
    pub fn fail_next_event(&self, fault: EventFault) {
        self.lock().event_faults.push_back(fault);
    }

    /// The engine goes away: nobody is told what happens meanwhile, containers run on.
    pub fn go_away(&self) {
        let mut state = self.settled();
        state.up = false;
        state.subscribers.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    /// The engine was started anew. Without live-restore it has asked everything that ran to end.
    pub fn come_back(&self, live_restore: bool) {
        let mut state = self.settled();
        if std::mem::take(&mut state.powerless) || !live_restore {
            for id in state.ids(ContainerState::is_live) {
                state.ask_to_end(&id, EndedBy::Engine);
            }
        }
        state.up = true;
        state.live_restore = live_restore;
        state.started_at = state.wall(Instant::now());
    }

    /// The engine can be reached again, and was there all the time.
    pub fn reconnect(&self) {
        self.settled().up = true;
    }

    /// The engine is stopped in good order: its streams break first, then, without live-restore, all that runs is asked
    /// to end.
    pub fn shut_down(&self, live_restore: bool) {
        self.go_away();
        if !live_restore {
            let mut state = self.settled();
            for id in state.ids(ContainerState::is_live) {
                state.ask_to_end(&id, EndedBy::Engine);
            }
        }
    }

    /// The machine loses power. [`FakeRuntime::come_back`] follows, and finds what ran to have ended with 255.
    pub fn lose_power(&self) {
        self.go_away();
        let mut state = self.settled();
        state.pending.clear();
        state.powerless = true;
        for id in state.ids(ContainerState::is_live) {
            let container = state.containers.get_mut(&id).expect("just listed");
            container.behaviour.on_term = Some(255);
            container.ends_at = None;
            container.frozen = None;
        }
    }

    /// Whatever is on its way arrives within so long: the caller died or gave up.
    pub fn hasten(&self, limit: Duration) {
        let latest = Instant::now() + limit;
        for pending in &mut self.lock().pending {
            pending.due = pending.due.min(latest);
        }
        self.changed.notify_waiters();
    }

    /// Grows with everything that happens to containers.
    pub fn version(&self) -> u64 {
        self.settled().version
    }

    /// Whether the engine answers.
    pub fn is_up(&self) -> bool {
        self.lock().up
    }

    /// Everything that there is or ever was, in the order of creation.
    pub fn seen(&self) -> Vec<Seen> {
        let state = self.settled();
        let here = state.containers.values().map(|container| container.seen(false));
        let mut all: Vec<Seen> = state.graves.iter().cloned().chain(here).collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all
    }

    /// A person removes a container, running or not.
    pub fn human_remove(&self, name: &str) {
        self.human(name, |state, id| {
            state.doom(id, EndedBy::Human);
            state.forget(id);
        });
    }

    /// A person starts a container; one that has run runs again.
    pub fn human_start(&self, name: &str) {
        self.human(name, |state, id| {
            let starts = state.containers[id].starts;
            // What comes of it is the person's own concern.
            drop(state.run(id));
            let container = state.containers.get_mut(id).expect("just found");
            container.human_starts += container.starts - starts;
        });
    }

    /// A person stops a container.
    pub fn human_stop(&self, name: &str) {
        self.human(name, |state, id| state.ask_to_end(id, EndedBy::Human));
    }

    /// A person freezes a container.
    pub fn human_pause(&self, name: &str) {
        self.human(name, State::pause);
    }

    /// A person lets it go on.
    pub fn human_unpause(&self, name: &str) {
        self.human(name, State::unpause);
    }

    /// A person renames a container.
    pub fn human_rename(&self, name: &str, new: &str) {
        self.human(name, |state, id| {
            if let Some(container) = state.containers.get_mut(id) {
                new.clone_into(&mut container.name);
                container.touched = true;
            }
            state.tell(id, |_| RuntimeEvent::Unclear);
        });
    }

    /// The process of a container ends now.
    pub fn exit(&self, name: &str, code: i64) {
        self.human(name, |state, id| state.end(id, code, None, EndedBy::Itself));
    }

    fn human(&self, name: &str, act: impl FnOnce(&mut State, &str)) {
        let mut state = self.settled();
        let id = state.find(name).unwrap_or_else(|| panic!("no container {name}"));
        act(&mut state, &id);
        state.version += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// How often an operation was called.
    pub fn calls(&self, operation: Operation) -> u32 {
        self.lock().calls.get(operation.as_str()).copied().unwrap_or(0)
    }

    /// How often anything was called that changes something.
    pub fn mutations(&self) -> u32 {
        [Operation::Create, Operation::Start, Operation::Stop, Operation::Remove].map(|op| self.calls(op)).iter().sum()
    }

    /// How often each container's process was begun, by name; also of those that are gone only while they are there.
    pub fn starts(&self) -> BTreeMap<String, u32> {
        self.settled().containers.values().map(|c| (c.name.clone(), c.starts)).collect()
    }

    /// What our code did that it never may.
    pub fn violations(&self) -> Vec<String> {
        self.settled().violations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it holds the engine")
    }

    /// The state after all that was due has happened.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.settle() {
            self.changed.notify_waiters();
        }
        state
    }

    /// Waits until something happens.
    async fn tick(&self) {
        let notified = self.changed.notified();
        let next = self.settled().next_due();
        match next {
            Some(due) => {
                // Which of the two it was shows in the state.
                let _ = tokio::time::timeout_at(due, notified).await;
            }
            None => notified.await,
        }
    }

    /// Counts a call and says what goes wrong with it.
    fn begin(&self, operation: Operation) -> Result<Option<Fault>, RuntimeError> {
        let mut state = self.settled();
        *state.calls.entry(operation.as_str()).or_default() += 1;
        let fault = state.faults.iter().position(|(op, _)| *op == operation).map(|at| state.faults.remove(at).1);
        match fault {
            Some(Fault::Fail(kind)) => Err(failed(operation, None, kind, "scripted failure")),
            _ if !state.up => Err(failed(operation, None, ErrorKind::Unreachable, "the engine is away")),
            fault => Ok(fault),
        }
    }

    async fn read<T>(&self, operation: Operation, read: impl FnOnce(&State) -> T + Send) -> Result<T, RuntimeError> {
        match self.begin(operation)? {
            Some(Fault::Hang) => futures::future::pending().await,
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::EffectWithoutAnswer | Fault::LateEffect(_)) => {
                return Err(failed(operation, None, ErrorKind::Unknown, "scripted silence"));
            }
            Some(Fault::Fail(_)) | None => {}
        }
        Ok(read(&self.settled()))
    }

    async fn change(&self, operation: Operation, effect: Effect) -> Answer {
        let silence = || failed(operation, None, ErrorKind::Unknown, "scripted silence");
        let fault = self.begin(operation)?;
        // Another task may run between any call and its effect.
        tokio::task::yield_now().await;
        match fault {
            Some(Fault::Hang) => futures::future::pending().await,
            Some(Fault::LateEffect(time)) => {
                self.lock().enqueue(time, effect);
                self.changed.notify_waiters();
                Err(silence())
            }
            Some(Fault::Delay(time)) => {
                let ticket = self.lock().enqueue(time, effect);
                self.changed.notify_waiters();
                loop {
                    if let Some(answer) = self.settled().answers.remove(&ticket) {
                        return answer;
                    }
                    self.tick().await;
                }
            }
            Some(Fault::EffectWithoutAnswer) => {
                // Told to nobody.
                drop(self.settled().apply(effect));
                self.changed.notify_waiters();
                Err(silence())
            }
            Some(Fault::Fail(_)) | None => {
                let answer = self.settled().apply(effect);
                self.changed.notify_waiters();
                answer
            }
        }
    }
}

fn failed(operation: Operation, target: Option<&str>, kind: ErrorKind, message: &str) -> RuntimeError {
    RuntimeError { operation, target: target.map(str::to_owned), kind, status: None, message: message.to_owned() }
}

impl State {
    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn enqueue(&mut self, after: Duration, effect: Effect) -> u64 {
        let ticket = self.ticket();
        self.pending.push(Pending { due: Instant::now() + after, ticket, effect });
        ticket
    }

    fn wall(&self, at: Instant) -> Timestamp {
        let elapsed = SignedDuration::try_from(at - self.epoch.0).expect("in range");
        self.epoch.1 + elapsed
    }

    fn ids(&self, which: impl Fn(ContainerState) -> bool) -> Vec<String> {
        self.containers.values().filter(|c| which(c.state)).map(|c| c.id.clone()).collect()
    }

    fn find(&self, name_or_id: &str) -> Option<String> {
        let found = self.containers.values().find(|c| c.id == name_or_id || c.name == name_or_id)?;
        Some(found.id.clone())
    }

    fn next_due(&self) -> Option<Instant> {
        let ends = self.containers.values().filter_map(|c| c.ends_at);
        ends.chain(self.pending.iter().map(|p| p.due)).min()
    }

    /// Lets happen what is due, in the order of its time.
    fn settle(&mut self) -> bool {
        let now = Instant::now();
        let mut any = false;
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            any = true;
            if let Some(at) = self.pending.iter().position(|p| p.due == due) {
                let pending = self.pending.remove(at);
                let answer = self.apply(pending.effect);
                self.answers.insert(pending.ticket, answer);
                continue;
            }
            let ended = self.containers.values().find(|c| c.ends_at == Some(due));
            let ended = ended.map(|c| (c.id.clone(), c.behaviour.exit_code, c.doomed_by.unwrap_or(EndedBy::Itself)));
            let (id, code, by) = ended.expect("the earliest is one of both");
            self.end(&id, code, Some(due), by);
        }
        any
    }

    fn apply(&mut self, effect: Effect) -> Answer {
        self.version += 1;
        match effect {
            Effect::Create(request) => self.create(&request),
            Effect::Start(id) => self.start(&id).map(|()| id),
            Effect::Stop(id, grace) => self.stop(&id, grace).map(|()| id),
            Effect::Remove(id) => self.remove(&id).map(|()| id),
        }
    }

    fn create(&mut self, request: &CreateRequest) -> Answer {
        let refused = |kind, message: &str| Err(failed(Operation::Create, Some(&request.name), kind, message));
        self.judge_create(request);
        if self.find(&request.name).is_some() {
            return refused(ErrorKind::NameTaken, "the name is already in use");
        }
        match &request.image {
            Some(image) if self.images.contains_key(image) => {}
            Some(_) => return refused(ErrorKind::ImageMissing, "no such image"),
            None => return refused(ErrorKind::Invalid, "a container needs an image"),
        }
        if let Some(mount) = request.mounts.iter().find(|mount| !(self.mount_exists)(&mount.source)) {
            let message = format!("bind source path does not exist: {}", mount.source.display());
            return refused(ErrorKind::Invalid, &message);
        }
        let id = format!("{:064x}", self.ticket());
        let container = Container {
            id: id.clone(),
            name: request.name.clone(),
            labels: request.labels.clone(),
            state: ContainerState::Created,
            behaviour: (self.script)(&request.key),
            exit_code: 0,
            error: String::new(),
            oom_killed: false,
            started_at: None,
            finished_at: None,
            ends_at: None,
            frozen: None,
            starts: 0,
            human_starts: 0,
            touched: false,
            ended_by: None,
            doomed_by: None,
            failed_starts: 0,
            log: Vec::new(),
        };
        self.containers.insert(id.clone(), container);
        self.tell(&id, RuntimeEvent::Created);
        Ok(id)
    }

    fn judge_create(&mut self, request: &CreateRequest) {
        let get = |name: &str| request.labels.get(name).map(String::as_str);
        let Some(instance) = get(label::INSTANCE).map(|text| InstanceId(text.into())) else {
            self.violations.push(format!("create of {} without an instance label", request.name));
            return;
        };
        if names::attempt_of(&instance, get).as_ref() != Some(&request.key) {
            self.violations.push(format!("create of {} with labels of another attempt", request.name));
        }
        if request.name != names::container(&instance, &request.key) {
            self.violations.push(format!("create of {} under a name of its own", request.name));
        }
        for name in [label::PLAN, label::SPEC, label::BASE] {
            if get(name).is_none() {
                self.violations.push(format!("create of {} without the label {name}", request.name));
            }
        }
    }

    fn start(&mut self, id: &str) -> Result<(), RuntimeError> {
        let Some(found) = self.find(id) else {
            return Err(failed(Operation::Start, Some(id), ErrorKind::NotFound, "no such container"));
        };
        let container = &self.containers[&found];
        if container.starts > container.human_starts {
            self.violations.push(format!("start of {}, which has run already", container.name));
        }
        let task = container.labels.get(label::TASK).zip(container.labels.get(label::INSTANCE));
        let twin = self.containers.values().find(|other| {
            let same = other.labels.get(label::TASK).zip(other.labels.get(label::INSTANCE)) == task && task.is_some();
            same && other.id != found && other.state.is_live() && other.human_starts == 0
        });
        if let Some(twin) = twin {
            self.violations.push(format!("start of {} while {} lives", container.name, twin.name));
        }
        self.run(&found)
    }

    /// What the engine does, whoever asks.
    fn run(&mut self, id: &str) -> Result<(), RuntimeError> {
        let now = Instant::now();
        let wall = self.wall(now);
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        if container.state.is_live() {
            return Ok(());
        }
        let fails = container.behaviour.start_failures.is_none_or(|times| container.failed_starts < times);
        if let Some((code, text)) = container.behaviour.start_error.clone().filter(|_| fails) {
            container.failed_starts += 1;
            container.exit_code = code;
            container.error.clone_from(&text);
            return Err(failed(Operation::Start, Some(id), ErrorKind::StartRefused, &text));
        }
        container.state = ContainerState::Running;
        container.starts += 1;
        container.exit_code = 0;
        container.error.clear();
        container.oom_killed = false;
        container.started_at = Some(wall);
        container.ends_at = container.behaviour.duration.map(|duration| now + duration);
        let written = container.behaviour.output.iter();
        container.log.extend(written.map(|(stream, bytes)| LogChunk { stream: *stream, bytes: bytes.clone().into() }));
        self.tell(id, RuntimeEvent::Started);
        Ok(())
    }

    fn stop(&mut self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let Some(found) = self.find(id) else {
            return Err(failed(Operation::Stop, Some(id), ErrorKind::NotFound, "no such container"));
        };
        let container = self.containers.get_mut(&found).expect("just found");
        if !container.state.is_live() {
            return Ok(());
        }
        if container.behaviour.on_term.is_none() && !grace.is_zero() {
            // Killed when its time is up.
            let killed = Instant::now() + grace;
            // One that would end before ends by itself; one that is frozen or endless ends by nothing else.
            if container.ends_at.is_none_or(|at| at > killed) {
                container.behaviour.exit_code = 137;
                container.doomed_by = Some(EndedBy::Us);
                container.ends_at = Some(killed);
            }
            container.frozen = None;
            return Ok(());
        }
        self.ask_to_end(&found, EndedBy::Us);
        Ok(())
    }

    fn remove(&mut self, id: &str) -> Result<(), RuntimeError> {
        let Some(found) = self.find(id) else {
            return Err(failed(Operation::Remove, Some(id), ErrorKind::NotFound, "no such container"));
        };
        if self.containers[&found].state.is_live() {
            self.violations.push(format!("remove of {}, which lives", self.containers[&found].name));
            return Err(failed(Operation::Remove, Some(id), ErrorKind::Conflict, "cannot remove a running container"));
        }
        self.forget(&found);
        Ok(())
    }

    fn ask_to_end(&mut self, id: &str, by: EndedBy) {
        let code = self.containers.get(id).and_then(|c| c.behaviour.on_term).unwrap_or(137);
        self.end(id, code, None, by);
    }

    fn doom(&mut self, id: &str, by: EndedBy) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.doomed_by = Some(by);
        container.touched |= by == EndedBy::Human;
    }

    fn end(&mut self, id: &str, code: i64, at: Option<Instant>, by: EndedBy) {
        let wall = self.wall(at.unwrap_or_else(Instant::now));
        self.version += 1;
        let Some(container) = self.containers.get_mut(id) else { return };
        container.ends_at = None;
        container.frozen = None;
        if !container.state.is_live() {
            return;
        }
        container.state = ContainerState::Exited;
        container.ended_by = Some(by);
        container.touched |= by == EndedBy::Human;
        container.doomed_by = None;
        container.exit_code = code;
        container.oom_killed = container.behaviour.oom;
        container.finished_at = Some(wall);
        self.tell(id, RuntimeEvent::Exited);
    }

    fn pause(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.state == ContainerState::Running {
            container.state = ContainerState::Paused;
            container.frozen = container.ends_at.take().map(|at| at - Instant::now());
            self.tell(id, RuntimeEvent::Paused);
        }
    }

    fn unpause(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.state == ContainerState::Paused {
            container.state = ContainerState::Running;
            container.ends_at = container.frozen.take().map(|left| Instant::now() + left);
            self.tell(id, RuntimeEvent::Unpaused);
        }
    }

    fn forget(&mut self, id: &str) {
        if let Some(container) = self.containers.get(id).filter(|c| c.state.is_live()) {
            let by = container.doomed_by.unwrap_or(EndedBy::Us);
            self.end(id, 137, None, by);
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.state = ContainerState::Dead;
        }
        self.tell(id, RuntimeEvent::Removed);
        if let Some(container) = self.containers.remove(id) {
            self.graves.push(container.seen(true));
        }
    }

    fn tell(&mut self, id: &str, make: impl Fn(ObservedContainer) -> RuntimeEvent) {
        // What happens while it is away is never told.
        if !self.up {
            return;
        }
        let Some(container) = self.containers.get(id) else { return };
        let instances: BTreeSet<String> = self.subscribers.iter().map(|s| s.instance.to_string()).collect();
        for instance in instances {
            let instance = InstanceId(instance.into());
            if let Some(observed) = container.observed(&instance) {
                let event = make(observed);
                let times = match self.event_faults.pop_front() {
                    Some(EventFault::Lose) => 0,
                    Some(EventFault::Duplicate) => 2,
                    None => 1,
                };
                for subscriber in self.subscribers.iter_mut().filter(|s| s.instance == instance) {
                    subscriber.queue.extend(std::iter::repeat_n(event.clone(), times));
                }
            }
        }
    }

    fn tell_all(&mut self, event: &RuntimeEvent) {
        for subscriber in &mut self.subscribers {
            subscriber.queue.push_back(event.clone());
        }
    }
}

impl Container {
    fn seen(&self, removed: bool) -> Seen {
        Seen {
            name: self.name.clone(),
            id: self.id.clone(),
            labels: self.labels.clone(),
            state: self.state,
            exit_code: self.exit_code,
            started_at: self.started_at,
            finished_at: self.finished_at,
            starts: self.starts,
            human_starts: self.human_starts,
            touched: self.touched,
            ended_by: self.ended_by,
            removed,
        }
    }

    fn observed(&self, instance: &InstanceId) -> Option<ObservedContainer> {
        let get = |name: &str| self.labels.get(name).map(String::as_str);
        Some(ObservedContainer {
            id: self.id.clone(),
            name: self.name.clone(),
            key: names::attempt_of(instance, get)?,
            plan: get(label::PLAN).unwrap_or_default().to_owned(),
            role: names::role_of(get),
            state: self.state,
        })
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn host(&self) -> &'static str {
        "fake://engine"
    }

    async fn probe(&self) -> Result<EngineInfo, RuntimeError> {
        self.read(Operation::Probe, |state| EngineInfo {
            name: "Fake".to_owned(),
            version: "1".to_owned(),
            api_version: "1.41".to_owned(),
            time: Some(state.wall(Instant::now())),
            started_at: Some(state.started_at),
            live_restore: Some(state.live_restore),
        })
        .await
    }

    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.read(Operation::List, |state| state.containers.values().filter_map(|c| c.observed(instance)).collect())
            .await
    }

    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError> {
        let found = self.read(Operation::Inspect, |state| {
            state.find(id).map(|found| {
                let c = &state.containers[&found];
                c.observed(instance).map(|container| ContainerDetail {
                    container,
                    exit_code: c.exit_code,
                    error: c.error.clone(),
                    oom_killed: c.oom_killed,
                    interrupted: false,
                    started_at: c.started_at,
                    finished_at: c.finished_at,
                })
            })
        });
        match found.await? {
            None => Ok(None),
            Some(None) => Err(failed(Operation::Inspect, Some(id), ErrorKind::NotOurs, "not ours")),
            Some(detail) => Ok(detail),
        }
    }

    async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        self.read(Operation::Image, |state| state.images.get(reference).cloned()).await
    }

    async fn pull(&self, reference: &str, progress: &PullSink<'_>) -> Result<(), RuntimeError> {
        let found = self.read(Operation::Pull, |state| state.registry.get(reference).copied()).await?;
        let (after, answer) = found.unwrap_or((Duration::ZERO, Err(ErrorKind::RegistryAway)));
        progress(PullProgress { layers: 1, done: 0, bytes: 0, total: 1 });
        tokio::time::sleep(after).await;
        if let Err(kind) = answer {
            let message = "dial tcp: lookup registry: no such host".to_owned();
            let target = Some(reference.to_owned());
            return Err(RuntimeError { operation: Operation::Pull, target, kind, status: Some(500), message });
        }
        progress(PullProgress { layers: 1, done: 1, bytes: 1, total: 1 });
        self.add_image(reference, "");
        Ok(())
    }

    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError> {
        self.change(Operation::Create, Effect::Create(Box::new(request.clone()))).await
    }

    async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.change(Operation::Start, Effect::Start(id.to_owned())).await.map(drop)
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        self.change(Operation::Stop, Effect::Stop(id.to_owned(), grace)).await?;
        // An engine answers when the container has ended.
        loop {
            let live = {
                let state = self.settled();
                state.find(id).is_some_and(|found| state.containers[&found].state.is_live())
            };
            if !live {
                return Ok(());
            }
            self.tick().await;
        }
    }

    async fn remove(&self, id: &str) -> Result<(), RuntimeError> {
        self.change(Operation::Remove, Effect::Remove(id.to_owned())).await.map(drop)
    }

    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>> {
        let (engine, id) = (self.clone(), id.to_owned());
        let chunks = async move {
            if let Err(error) = engine.read(Operation::Logs, |_| ()).await {
                return vec![Err(error)];
            }
            loop {
                let found = {
                    let state = engine.settled();
                    state.find(&id).map(|found| {
                        let container = &state.containers[&found];
                        (container.log.clone(), container.state.is_live())
                    })
                };
                match found {
                    None => {
                        return vec![Err(failed(Operation::Logs, Some(&id), ErrorKind::NotFound, "no such container"))];
                    }
                    Some((_, true)) if options.follow => engine.tick().await,
                    Some((log, _)) => return last_lines(log, options.tail).into_iter().map(Ok).collect(),
                }
            }
        };
        chunks.into_stream().flat_map(stream::iter).boxed()
    }

    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        let (engine, instance) = (self.clone(), instance.clone());
        stream::unfold((engine, instance, None, false), |(engine, instance, ticket, ended)| async move {
            if ended {
                return None;
            }
            let Some(ticket) = ticket else {
                return Some(match engine.begin(Operation::Events) {
                    Ok(Some(Fault::Hang)) => futures::future::pending().await,
                    Ok(_) => {
                        let mut state = engine.lock();
                        let ticket = state.ticket();
                        let queue = VecDeque::new();
                        state.subscribers.push(Subscriber { ticket, instance: instance.clone(), queue });
                        drop(state);
                        (Ok(RuntimeEvent::Subscribed), (engine, instance, Some(ticket), false))
                    }
                    Err(error) => (Err(error), (engine, instance, None, true)),
                });
            };
            loop {
                let next = {
                    let mut state = engine.settled();
                    state.subscribers.iter_mut().find(|s| s.ticket == ticket).map(|s| s.queue.pop_front())
                };
                match next {
                    None => {
                        let error = failed(Operation::Events, None, ErrorKind::Unreachable, "the stream ended");
                        return Some((Err(error), (engine, instance, Some(ticket), true)));
                    }
                    Some(Some(event)) => return Some((Ok(event), (engine, instance, Some(ticket), false))),
                    Some(None) => engine.tick().await,
                }
            }
        })
        .boxed()
    }
}

/// The last lines of a log, over both streams.
fn last_lines(log: Vec<LogChunk>, tail: Option<u32>) -> Vec<LogChunk> {
    let Some(wanted) = tail else { return log };
    let mut lines = Vec::new();
    for chunk in log {
        for line in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            lines.push(LogChunk { stream: chunk.stream, bytes: Bytes::copy_from_slice(line) });
        }
    }
    let skip = lines.len().saturating_sub(usize::try_from(wanted).expect("small"));
    lines.split_off(skip)
}
