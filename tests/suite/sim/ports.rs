//! The fakes behind a hand that lets calls go wrong, and a process that can die at any of them.

use std::future::{Future, pending};
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use orchestrate::act::Ports;
use orchestrate::git::{
    AccessRequest, BranchResult, BranchSummary, CommitId, GitAccessPlan, GitError, MergeHead, MergeOutcome, Repository,
    RepositoryLayout, ResultRequest, StartOverRequest, WorktreeRequest, WorktreeState,
};
use orchestrate::observe::{ContainerDetail, InstanceId, ObservedContainer};
use orchestrate::record::{FileError, FileLock, Files, Stamp};
use orchestrate::runtime::{
    CreateRequest, EngineInfo, ErrorKind, ImageInfo, LogChunk, LogOptions, Operation, PullSink, Runtime, RuntimeError,
    RuntimeEvent,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::{Sim, lock};
use crate::support::fake_files::{FakeFiles, Op, What, When};
use crate::support::fake_repository::FakeRepository;
use crate::support::fake_runtime::{EventFault, FakeRuntime, Fault};
use crate::support::world::Kind;

/// How long an answer to a question may take.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// How long a change may take.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// A request of a caller that gave up arrives within so long or never: less than the grace.
pub(super) const ON_ITS_WAY: Duration = Duration::from_secs(14);

/// One process of ours.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) sim: Sim,
    pub(super) files: FakeFiles,
    dead: Arc<AtomicBool>,
    died: Arc<Notify>,
    second: bool,
    /// Since when it watches the engine, for each stream.
    watching: Arc<Mutex<Vec<(u64, Instant)>>>,
}

/// A stream of events that is open.
struct Watch {
    process: Process,
    number: u64,
}

impl Watch {
    fn open(process: &Process) -> Self {
        let number = u64::from(process.sim.count());
        lock(&process.watching).push((number, Instant::now()));
        Self { process: process.clone(), number }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.process.watching).retain(|(number, _)| *number != self.number);
    }
}

impl Process {
    pub(super) fn new(sim: &Sim) -> Self {
        let files = sim.files.process();
        Self {
            sim: sim.clone(),
            files,
            dead: Arc::default(),
            died: Arc::default(),
            second: false,
            watching: Arc::default(),
        }
    }

    /// One beside another.
    pub(super) fn second(sim: &Sim) -> Self {
        Self { second: true, ..Self::new(sim) }
    }

    pub(super) fn is_second(&self) -> bool {
        self.second
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn kill(&self) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.files.kill();
            self.sim.engine.hasten(ON_ITS_WAY);
            self.sim.note(&format!("process {} dies", self.files.pid()));
            self.died.notify_one();
        }
    }

    /// Waits for its death.
    pub(super) async fn death(&self) {
        if !self.is_dead() {
            self.died.notified().await;
        }
    }

    /// Since when it has watched the engine without a break.
    pub(super) fn watching_since(&self) -> Option<Instant> {
        lock(&self.watching).iter().map(|(_, since)| *since).min()
    }

    /// A dead process does nothing more.
    async fn alive(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    fn fate(&self, call: &str, kinds: &[Kind]) -> Option<Kind> {
        self.sim.fate(call, kinds)
    }

    pub(super) fn ports(&self) -> Ports {
        Ports {
            runtime: Arc::new(SimRuntime { process: self.clone(), inner: self.sim.engine.clone() }),
            repository: Arc::new(SimRepository { process: self.clone(), inner: self.sim.repository.clone() }),
            files: Arc::new(SimFiles { process: self.clone(), inner: self.files.clone() }),
            clock: Arc::new(self.sim.clock.clone()),
        }
    }
}

struct SimRuntime {
    process: Process,
    inner: FakeRuntime,
}

const ASKING: &[Kind] = &[Kind::CrashBefore, Kind::CrashAfter, Kind::Fail, Kind::Delay, Kind::Hang];
const CHANGING: &[Kind] = &[
    Kind::CrashBefore,
    Kind::CrashAfter,
    Kind::Fail,
    Kind::EffectWithoutAnswer,
    Kind::Late,
    Kind::Delay,
    Kind::Hang,
    Kind::Twice,
];

impl SimRuntime {
    async fn call<T, F>(
        &self,
        operation: Operation,
        kinds: &[Kind],
        limit: Duration,
        make: impl Fn() -> F + Send,
    ) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, RuntimeError>> + Send,
        T: Send,
    {
        let process = &self.process;
        process.alive().await;
        process.sim.check();
        let fate = process.fate(operation.as_str(), kinds);
        match fate {
            Some(Kind::CrashBefore) => {
                process.kill();
                process.alive().await;
            }
            Some(Kind::Fail) => {
                let kind = process.sim.pick(&[ErrorKind::Unreachable, ErrorKind::Engine]);
                self.inner.fail_next(operation, Fault::Fail(kind));
            }
            Some(Kind::EffectWithoutAnswer) => self.inner.fail_next(operation, Fault::EffectWithoutAnswer),
            Some(Kind::Late) => {
                let late = process.sim.millis(1..14_000);
                self.inner.fail_next(operation, Fault::LateEffect(late));
            }
            Some(Kind::Delay) => {
                let delay = process.sim.millis(1..45_000);
                self.inner.fail_next(operation, Fault::Delay(delay));
            }
            Some(Kind::Hang) => self.inner.fail_next(operation, Fault::Hang),
            _ => {}
        }
        let result = timeout(limit, make()).await;
        if fate == Some(Kind::Twice) {
            drop(timeout(limit, make()).await);
        }
        process.alive().await;
        if fate == Some(Kind::CrashAfter) {
            process.kill();
            process.alive().await;
        }
        let result = result.unwrap_or_else(|_| {
            self.inner.hasten(ON_ITS_WAY);
            Err(RuntimeError {
                operation,
                target: None,
                kind: ErrorKind::Unknown,
                status: None,
                message: "no answer in time".to_owned(),
            })
        });
        let said = result.as_ref().map_or_else(|error| format!("{:?}", error.kind), |_| "ok".to_owned());
        process.sim.note(&format!("{operation} -> {said}"));
        result
    }
}

#[async_trait]
impl Runtime for SimRuntime {
    fn host(&self) -> &str {
        self.inner.host()
    }

    async fn probe(&self) -> Result<EngineInfo, RuntimeError> {
        self.call(Operation::Probe, ASKING, READ_LIMIT, || self.inner.probe()).await
    }

    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError> {
        self.call(Operation::List, ASKING, READ_LIMIT, || self.inner.list(instance)).await
    }

    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError> {
        self.call(Operation::Inspect, ASKING, READ_LIMIT, || self.inner.inspect(instance, id)).await
    }

    async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        self.call(Operation::Image, ASKING, READ_LIMIT, || self.inner.image(reference)).await
    }

    async fn pull(&self, reference: &str, progress: &PullSink<'_>) -> Result<(), RuntimeError> {
        self.call(Operation::Pull, ASKING, Duration::from_hours(5), || self.inner.pull(reference, progress)).await
    }

    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError> {
        self.process.sim.note(&format!("create {}", request.name));
        self.call(Operation::Create, CHANGING, CHANGE_LIMIT, || self.inner.create(request)).await
    }

    async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        self.process.sim.note(&format!("start {}", &id[id.len() - 4..]));
        // A transport that delivers a start twice, the second after the end of a short run, defeats everybody.
        let kinds: Vec<Kind> = CHANGING.iter().copied().filter(|kind| *kind != Kind::Twice).collect();
        self.call(Operation::Start, &kinds, CHANGE_LIMIT, || self.inner.start(id)).await
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        self.process.sim.note(&format!("stop {}", &id[id.len() - 4..]));
        self.call(Operation::Stop, CHANGING, CHANGE_LIMIT + grace, || self.inner.stop(id, grace)).await
    }

    async fn remove(&self, id: &str) -> Result<(), RuntimeError> {
        self.process.sim.fail(format!("remove of {id}"));
        self.inner.remove(id).await
    }

    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>> {
        let (process, inner, id) = (self.process.clone(), self.inner.clone(), id.to_owned());
        stream::once(async move {
            process.alive().await;
            match process.fate("logs", &[Kind::CrashBefore, Kind::Fail, Kind::Hang]) {
                Some(Kind::CrashBefore) => {
                    process.kill();
                    process.alive().await;
                }
                Some(Kind::Hang) => inner.fail_next(Operation::Logs, Fault::Hang),
                Some(_) => {
                    let kind = process.sim.pick(&[ErrorKind::Unreachable, ErrorKind::Unknown, ErrorKind::Engine]);
                    inner.fail_next(Operation::Logs, Fault::Fail(kind));
                }
                None => {}
            }
            inner.logs(&id, options)
        })
        .flatten()
        .boxed()
    }

    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        let process = self.process.clone();
        let kinds = [Kind::Fail, Kind::LoseEvent, Kind::RepeatEvent];
        match process.fate("events", &kinds) {
            Some(Kind::Fail) => self.inner.fail_next(Operation::Events, Fault::Fail(ErrorKind::Unreachable)),
            Some(Kind::LoseEvent) => self.inner.fail_next_event(EventFault::Lose),
            Some(Kind::RepeatEvent) => self.inner.fail_next_event(EventFault::Duplicate),
            _ => {}
        }
        let events = self.inner.events(instance);
        let watch = self.process.sim.engine.is_up().then(|| Watch::open(&process));
        stream::unfold((process, watch, Some(events)), |(process, watch, events)| async move {
            let mut events = events?;
            let item = events.next().await;
            process.alive().await;
            let item = item?;
            let watch = watch.filter(|_| item.is_ok());
            if process.fate("event", &[Kind::BreakStream]).is_some() {
                let error = RuntimeError {
                    operation: Operation::Events,
                    target: None,
                    kind: ErrorKind::Unknown,
                    status: None,
                    message: "the stream broke".to_owned(),
                };
                return Some((Err(error), (process, None, None)));
            }
            Some((item, (process, watch, Some(events))))
        })
        .boxed()
    }
}

struct SimRepository {
    process: Process,
    inner: FakeRepository,
}

impl SimRepository {
    async fn call<T, F>(&self, call: &'static str, make: impl FnOnce() -> F + Send) -> Result<T, GitError>
    where
        F: Future<Output = Result<T, GitError>> + Send,
        T: Send,
    {
        let process = &self.process;
        process.alive().await;
        let failed = || GitError::Io { action: call, path: "/repo".into(), source: IoKind::StorageFull.into() };
        let kinds = [Kind::CrashBefore, Kind::CrashAfter, Kind::Fail, Kind::EffectWithoutAnswer, Kind::Delay];
        let fate = process.fate(call, &kinds);
        match fate {
            Some(Kind::CrashBefore) => process.kill(),
            Some(Kind::Fail) => return Err(failed()),
            Some(Kind::Delay) => tokio::time::sleep(process.sim.millis(1..5_000)).await,
            _ => {}
        }
        process.alive().await;
        let result = make().await;
        match fate {
            Some(Kind::CrashAfter) => process.kill(),
            Some(Kind::EffectWithoutAnswer) => return Err(failed()),
            _ => {}
        }
        process.alive().await;
        result
    }
}

#[async_trait]
impl Repository for SimRepository {
    fn layout(&self) -> &RepositoryLayout {
        self.inner.layout()
    }

    async fn resolve(&self, revision: &str) -> Result<CommitId, GitError> {
        self.call("resolve", || self.inner.resolve(revision)).await
    }

    async fn tip(&self, full_ref: &str) -> Result<Option<CommitId>, GitError> {
        self.call("tip", || self.inner.tip(full_ref)).await
    }

    async fn contains(&self, descendant: &CommitId, ancestor: &CommitId) -> Result<bool, GitError> {
        self.call("contains", || self.inner.contains(descendant, ancestor)).await
    }

    async fn merge(&self, heads: &[MergeHead]) -> Result<MergeOutcome, GitError> {
        self.call("merge", || self.inner.merge(heads)).await
    }

    async fn start_over(&self, request: &StartOverRequest) -> Result<Option<String>, GitError> {
        self.call("start_over", || self.inner.start_over(request)).await
    }

    async fn ensure_worktree(&self, request: &WorktreeRequest) -> Result<WorktreeState, GitError> {
        self.call("ensure_worktree", || self.inner.ensure_worktree(request)).await
    }

    async fn open_access(&self, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
        self.call("open_access", || self.inner.open_access(request)).await
    }

    async fn take_result(&self, request: &ResultRequest) -> Result<BranchResult, GitError> {
        self.call("take_result", || self.inner.take_result(request)).await
    }

    async fn summarize(&self, base: &CommitId, head: &CommitId) -> Result<BranchSummary, GitError> {
        self.inner.summarize(base, head).await
    }

    async fn conflicts(&self, target: &CommitId, head: &CommitId) -> Result<Vec<String>, GitError> {
        self.inner.conflicts(target, head).await
    }

    async fn remove_worktree(&self, worktree: &Path) -> Result<(), GitError> {
        self.process.sim.fail(format!("removal of worktree {}", worktree.display()));
        self.inner.remove_worktree(worktree).await
    }
}

struct SimFiles {
    process: Process,
    inner: FakeFiles,
}

impl SimFiles {
    fn noted(&self, bytes: &[u8], result: Result<(), FileError>) -> Result<(), FileError> {
        self.process.sim.note(&String::from_utf8_lossy(&bytes[..bytes.len().min(160)]));
        if result.is_ok() {
            self.process.sim.check();
        }
        result
    }

    fn call<T>(&self, op: Op, call: impl FnOnce() -> T) -> T {
        let process = &self.process;
        let writes = !matches!(op, Op::Read | Op::Stamp | Op::RealPath | Op::List);
        let kinds: &[Kind] = if writes {
            &[Kind::CrashBefore, Kind::CrashAfter, Kind::Fail, Kind::EffectWithoutAnswer, Kind::Late]
        } else {
            &[Kind::CrashBefore, Kind::Fail]
        };
        if !process.is_dead() {
            let sim = &process.sim;
            let io = || sim.pick(&[IoKind::StorageFull, IoKind::QuotaExceeded, IoKind::Other]);
            let what = process.fate(&format!("{op:?}"), kinds).map(|kind| match kind {
                Kind::CrashBefore => What::CrashBefore,
                Kind::CrashAfter => What::CrashAfter,
                Kind::EffectWithoutAnswer => What::FailAfter(io()),
                Kind::Late if sim.chance(2) => What::CrashAmid(sim.below(40)),
                Kind::Late => What::Short(sim.below(40), io()),
                _ => What::Fail(io()),
            });
            if let Some(what) = what {
                self.inner.fault(When::Nth(op, 0), what);
            }
        }
        let result = call();
        if self.inner.is_dead() {
            process.kill();
        }
        result
    }
}

impl Files for SimFiles {
    fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.call(Op::Read, || self.inner.read(path))
    }

    fn stamp(&self, path: &Path) -> Result<Option<Stamp>, FileError> {
        self.call(Op::Stamp, || self.inner.stamp(path))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, FileError> {
        self.call(Op::RealPath, || self.inner.real_path(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FileError> {
        self.call(Op::List, || self.inner.list(dir))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.noted(bytes, self.call(Op::Append, || self.inner.append(path, bytes)))
    }

    fn append_soon(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.noted(bytes, self.call(Op::Append, || self.inner.append_soon(path, bytes)))
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError> {
        self.call(Op::Truncate, || self.inner.truncate(path, len))
    }

    fn write_temp(&self, dir: &Path, prefix: &str, bytes: &[u8], like: Option<&Stamp>) -> Result<PathBuf, FileError> {
        self.call(Op::WriteTemp, || self.inner.write_temp(dir, prefix, bytes, like))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.call(Op::Rename, || self.inner.rename(from, to))
    }

    fn link_new(&self, from: &Path, to: &Path) -> Result<bool, FileError> {
        self.inner.link_new(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FileError> {
        self.call(Op::SyncDir, || self.inner.sync_dir(dir))
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        self.call(Op::Remove, || self.inner.remove(path))
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), FileError> {
        self.call(Op::CreateDirAll, || self.inner.create_dir_all(dir))
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FileError> {
        self.call(Op::TryLock, || self.inner.try_lock(path))
    }

    fn is_other_process(&self, pid: u32) -> bool {
        self.inner.is_other_process(pid)
    }
}
