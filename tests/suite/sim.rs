//! The real plan, act, record and controller code over a world in memory, all of it driven by one seed.
//!
//! `ORCHESTRATE_SIM_SEEDS` sets how many seeds are run, `ORCHESTRATE_SIM_SEED` runs one and prints what happened.

mod exhaust;
mod hands;
mod model;
mod monitor;
mod ports;
mod scenes;

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use orchestrate::act::SecretSource;
use orchestrate::clock::Clock as _;
use orchestrate::controller::{
    Level, OpenOptions, Reconciler, Reporter, RunEnd, RunOptions, Snapshot, Wakeups, once, run,
};
use orchestrate::record::Holder;
use orchestrate::status::{Reason, Status};
use tokio::time::Instant;

use self::hands::People;
use self::monitor::Monitor;
use self::ports::Process;
use crate::support::fake_clock::FakeClock;
use crate::support::fake_files::FakeFiles;
use crate::support::fake_repository::{Effort, FakeRepository, digest};
use crate::support::fake_runtime::FakeRuntime;
use crate::support::world::{Deed, Kind, Setup, Style, behaviour};

const PLAN: &str = "/repo/.agent-tasks.json";
const JOURNAL: &str = "/repo/.git/orchestrate/journal";
/// By then everything has come to rest, or never will.
const PATIENCE: Duration = Duration::from_hours(6);
/// More calls than this within one instant is a loop that does not wait.
const HOT: u32 = 4_000;

/// Seeds that failed once.
const REGRESSIONS: &[u64] = &[
    10, 24, 113, 234, 397, 434, 595, 614, 632, 764, 943, 1049, 1083, 3838, 4263, 4422, 6043, 8298, 36647, 44476, 97029,
];

/// One seed's world.
#[derive(Clone)]
struct Sim {
    setup: Arc<Setup>,
    engine: FakeRuntime,
    repository: FakeRepository,
    files: FakeFiles,
    clock: FakeClock,
    core: Arc<Mutex<Core>>,
    people: Arc<Mutex<People>>,
    monitor: Arc<Mutex<Monitor>>,
}

struct Core {
    rng: Rng,
    calm: bool,
    /// Which calls go wrong, by number; `None`: as chance has it.
    script: Option<Script>,
    calls: usize,
    left: u32,
    epoch: Instant,
    trace: Vec<String>,
    digest: u64,
    at: (Instant, u32),
    failures: Vec<String>,
    current: Option<(Process, Wakeups)>,
    /// When the engine was stopped in good order, and by which process's eyes.
    outages: Vec<(Timestamp, u32)>,
    count: u32,
    version: u64,
}

/// The world goes on beside us; it ends with the runtime.
#[expect(clippy::disallowed_methods, reason = "nobody waits for the world")]
fn beside(world: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(world)
}

/// Faults that were chosen, not thrown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Script {
    faults: BTreeMap<usize, Kind>,
    /// At this call somebody deletes the lock and starts a second reconciler.
    second_at: Option<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self::with(Setup::new(seed))
    }

    fn with(setup: Setup) -> Self {
        let seed = setup.seed;
        let engine = FakeRuntime::new();
        engine.mounts(|_| true);
        engine.come_back(setup.live_restore);
        engine.script(move |key| behaviour(seed, key));
        let repository = FakeRepository::new("/repo");
        repository.script(move |path| {
            let mut rng = Rng::with_seed(digest(&[&seed.to_string(), &path.to_string_lossy()]));
            Effort { commits: rng.u64(..3), dirty: rng.u8(..5) == 0 }
        });
        if seed.is_multiple_of(7) {
            repository.conflict("t0", "t1");
        }
        let files = FakeFiles::default();
        files.folder("/repo/.git");
        let now = Instant::now();
        let core = Core {
            rng: Rng::with_seed(seed),
            calm: false,
            script: None,
            calls: 0,
            left: setup.budget,
            epoch: now,
            trace: Vec::new(),
            digest: seed,
            at: (now, 0),
            failures: Vec::new(),
            current: None,
            outages: Vec::new(),
            count: 0,
            version: 0,
        };
        let sim = Self {
            setup: Arc::new(setup),
            engine,
            repository,
            files,
            clock: FakeClock::new(),
            core: Arc::new(Mutex::new(core)),
            people: Arc::default(),
            monitor: Arc::default(),
        };
        sim.first_save(&sim.setup.plan.clone());
        sim
    }

    fn people(&self) -> MutexGuard<'_, People> {
        lock(&self.people)
    }

    fn random<T>(&self, f: impl FnOnce(&mut Rng) -> T) -> T {
        f(&mut lock(&self.core).rng)
    }

    fn below(&self, limit: usize) -> usize {
        self.random(|rng| rng.usize(..limit.max(1)))
    }

    fn chance(&self, one_in: u32) -> bool {
        self.random(|rng| rng.u32(..one_in) == 0)
    }

    fn millis(&self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.random(|rng| rng.u64(range)))
    }

    fn pick<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn count(&self) -> u32 {
        let mut core = lock(&self.core);
        core.count += 1;
        core.count
    }

    /// Adds a line to the trace.
    fn note(&self, line: &str) {
        let mut core = lock(&self.core);
        let now = Instant::now();
        let line = format!("{:>9.3} {line}", (now - core.epoch).as_secs_f64());
        core.digest = digest(&[&core.digest.to_string(), &line]);
        core.trace.push(line);
        core.at = if core.at.0 == now { (now, core.at.1 + 1) } else { (now, 0) };
        let is_hot = core.at.1 > HOT;
        drop(core);
        assert!(!is_hot, "a loop that does not wait");
    }

    /// Something is wrong.
    fn fail(&self, what: String) {
        self.note(&format!("WRONG: {what}"));
        lock(&self.core).failures.push(what);
    }

    /// What becomes of a call.
    fn fate(&self, call: &str, kinds: &[Kind]) -> Option<Kind> {
        let mut core = lock(&self.core);
        if core.calm {
            return None;
        }
        let number = core.calls;
        core.calls += 1;
        if let Some(script) = &core.script {
            let kind = script.faults.get(&number).copied().filter(|kind| kinds.contains(kind));
            let is_second = script.second_at == Some(number);
            drop(core);
            if is_second {
                let sim = self.clone();
                beside(async move { hands::second(&sim, true).await });
            }
            if let Some(kind) = kind {
                self.note(&format!("{call}: {kind:?}"));
            }
            return kind;
        }
        if core.left == 0 {
            return None;
        }
        let rate = self.setup.rate;
        if core.rng.u32(..rate) != 0 {
            return None;
        }
        let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| self.setup.kinds.contains(kind)).collect();
        if kinds.is_empty() {
            return None;
        }
        let kind = kinds[core.rng.usize(..kinds.len())];
        core.left -= 1;
        drop(core);
        self.note(&format!("{call}: {kind:?}"));
        Some(kind)
    }

    /// Looks for what must never be.
    fn check(&self) {
        let version = self.engine.version();
        let is_new = std::mem::replace(&mut lock(&self.core).version, version) != version;
        let mut wrong = if is_new { monitor::judge_engine(self) } else { Vec::new() };
        let journal = self.files.content(JOURNAL).unwrap_or_default();
        wrong.extend(lock(&self.monitor).read(journal, self));
        let known = lock(&self.core).failures.clone();
        for one in wrong {
            if !known.contains(&one) {
                self.fail(one);
            }
        }
    }

    fn did(&self, deed: Deed) -> bool {
        self.people().done.contains(&deed)
    }

    fn wake(&self) {
        if let Some((_, wakeups)) = &lock(&self.core).current {
            wakeups.changes.notify_one();
        }
    }

    fn kill_current(&self) {
        let current = lock(&self.core).current.clone();
        if let Some((process, _)) = current {
            process.kill();
        }
    }

    fn terminate_current(&self) {
        if let Some((_, wakeups)) = &lock(&self.core).current {
            wakeups.shutdown.cancel();
        }
    }

    fn note_outage(&self) {
        let wall = self.clock.now().wall;
        let mut core = lock(&self.core);
        let Some((process, _)) = &core.current else { return };
        // It must have had the time to list what is there.
        let is_long = process.watching_since().is_some_and(|since| since + Duration::from_secs(5) < Instant::now());
        if is_long {
            let pid = process.files.pid();
            core.outages.push((wall, pid));
        }
    }

    /// Whether the process of now saw the stop of the engine that ended something, and by clocks that tell the time.
    fn saw_the_outage(&self, finished: Timestamp) -> bool {
        let core = lock(&self.core);
        let pid = core.current.as_ref().map(|(process, _)| process.files.pid());
        let is_of_then = |lost: Timestamp| (0..=20).contains(&finished.duration_since(lost).as_secs());
        let saw = core.outages.iter().any(|(lost, by)| pid == Some(*by) && is_of_then(*lost));
        drop(core);
        saw && self.setup.style == Style::Run && !self.did(Deed::ClockJump)
    }
}

/// Judges what everyone is told.
struct Judge<'a> {
    sim: &'a Sim,
}

impl Reporter for Judge<'_> {
    fn pass(&mut self, snapshot: &Snapshot) {
        for (spec, status) in snapshot.tasks.tasks.iter().zip(&snapshot.plan.tasks) {
            let explained = status.reason.is_some_and(|reason| {
                reason == Reason::Started || status.message.as_ref().is_some_and(|message| !message.is_empty())
            });
            if !explained {
                self.sim.fail(format!("I7: nothing explains {} ({status:?})", spec.id));
            }
        }
        self.sim.check();
    }

    fn notice(&mut self, _level: Level, message: &str) {
        self.sim.note(message);
    }
}

/// How one life of ours ended.
#[derive(Debug)]
enum End {
    Ended(RunEnd),
    Passed,
    Failed(String),
}

fn open(process: &Process) -> Result<Reconciler, String> {
    let sim = &process.sim;
    let options = OpenOptions {
        disk_floor: orchestrate::plan::DiskFloor::default(),
        ports: process.ports(),
        plan_file: PLAN.into(),
        spec: orchestrate::controller::SpecFile::None,
        secrets: SecretSource::default(),
        home: None,
        sockets: Vec::new(),
        holder: Holder {
            pid: process.files.pid(),
            host: "sim".to_owned(),
            command: "orchestrate run".to_owned(),
            since: sim.clock.now().wall,
        },
        max_concurrent: None,
        seed: sim.random(|rng| rng.u64(..)),
    };
    Reconciler::open(options).map_err(|error| orchestrate::act::one_line(&error))
}

/// One life, from opening to an end.
async fn life(sim: &Sim, process: &Process, until_done: bool) -> End {
    let mut reporter = Judge { sim };
    let mut reconciler = match open(process) {
        Ok(reconciler) => reconciler,
        Err(error) => return End::Failed(error),
    };
    let result = if sim.setup.style == Style::Once && !until_done {
        once(&mut reconciler, &mut reporter).await.map(|_| End::Passed)
    } else {
        let wakeups = Wakeups::default();
        let timeout = until_done.then_some(PATIENCE);
        let options = RunOptions { until_done, timeout, ..RunOptions::default() };
        if !process.is_second() {
            lock(&sim.core).current = Some((process.clone(), wakeups.clone()));
        }
        run(reconciler, options, wakeups, &mut reporter).await.map(|(end, _)| End::Ended(end))
    };
    result.unwrap_or_else(|error| End::Failed(orchestrate::act::one_line(&error)))
}

async fn live_until_dead(sim: &Sim, until_done: bool) -> Option<End> {
    let process = Process::new(sim);
    sim.note(&format!("process {} begins", process.files.pid()));
    let end = tokio::select! {
        biased;
        () = process.death() => None,
        end = life(sim, &process, until_done) => (!process.is_dead()).then_some(end),
    };
    process.kill();
    lock(&sim.core).current = None;
    sim.note(&format!("ended: {end:?}"));
    sim.check();
    end
}

async fn simulate(sim: &Sim) {
    let chaos = beside(hands::chaos(sim.clone()));
    let over = Instant::now() + sim.setup.chaos;
    while Instant::now() < over {
        // What still lives when people go home dies once more.
        let lived = tokio::time::timeout_at(over, live_until_dead(sim, false)).await;
        if lived.is_err() {
            sim.kill_current();
            lock(&sim.core).current = None;
        }
        tokio::time::sleep(sim.millis(1..8_000)).await;
    }
    chaos.abort();
    drop(chaos.await);
    lock(&sim.core).calm = true;
    sim.note("calm");
    sim.calm_down();
    sim.engine.hasten(ports::ON_ITS_WAY);
    settle(sim).await;
}

/// Nothing goes wrong any more: everything comes to rest, and then nothing is left to do.
async fn settle(sim: &Sim) {
    for _ in 0..5 {
        match live_until_dead(sim, true).await {
            Some(End::Ended(RunEnd::AllCompleted | RunEnd::Unfinished)) => {
                sim.judge_notes();
                let journal = sim.files.content(JOURNAL).unwrap_or_default();
                let wrong = monitor::judge_rest(sim, &lock(&sim.monitor), &sim.clock.now());
                for one in wrong {
                    sim.fail(one);
                }
                let (calls, file) = (sim.engine.mutations(), sim.files.content(PLAN));
                let process = Process::new(sim);
                let mut reconciler = match open(&process) {
                    Ok(reconciler) => reconciler,
                    Err(error) => return sim.fail(format!("cannot be opened again: {error}")),
                };
                match once(&mut reconciler, &mut Judge { sim }).await {
                    Ok(snapshot) => judge_rested(sim, &snapshot),
                    Err(error) => sim.fail(format!("cannot be passed again: {}", orchestrate::act::one_line(&error))),
                }
                let same = calls == sim.engine.mutations()
                    && file == sim.files.content(PLAN)
                    && journal == sim.files.content(JOURNAL).unwrap_or_default();
                if !same {
                    sim.fail("I6: a pass at rest changed something".to_owned());
                }
                return;
            }
            // Somebody else's lock, given up meanwhile.
            Some(End::Failed(error)) if error.contains("lock") => tokio::time::sleep(Duration::from_secs(1)).await,
            end => return sim.fail(format!("does not come to rest: {end:?}")),
        }
    }
    sim.fail("does not even begin".to_owned());
}

fn judge_rested(sim: &Sim, snapshot: &Snapshot) {
    for (spec, status) in snapshot.tasks.tasks.iter().zip(&snapshot.plan.tasks) {
        if matches!(status.status, Status::Pending | Status::Running) {
            sim.fail(format!("{} is left {}: {:?} {:?}", spec.id, status.status, status.reason, status.message));
        }
    }
    if !snapshot.plan.actions.is_empty() {
        sim.fail(format!("I6: at rest there is still to do: {:?}", snapshot.plan.actions));
    }
}

/// What a seed came to.
struct Outcome {
    digest: u64,
    failures: Vec<String>,
    trace: Vec<String>,
}

fn run_seed(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let sim = runtime.block_on(async move { Sim::new(seed) });
    let panicked = catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulate(&sim)))).err();
    let mut core = lock(&sim.core);
    if let Some(panic) = panicked {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        core.failures.push(format!("panic: {}", text.unwrap_or_default()));
    }
    Outcome { digest: core.digest, failures: core.failures.clone(), trace: core.trace.clone() }
}

fn report(seed: u64, result: &Outcome) -> String {
    let wrong = result.trace.iter().position(|line| line.contains("WRONG")).unwrap_or(result.trace.len());
    let from = wrong.saturating_sub(60);
    let setup = Setup::new(seed);
    format!(
        "seed {seed} ({:?}, {:?}, {:?})\n{}\n  {}",
        setup.style,
        setup.kinds,
        setup.deeds,
        result.trace[from..result.trace.len().min(wrong + 2)].join("\n"),
        result.failures.join("\n  ")
    )
}

#[expect(clippy::disallowed_methods, reason = "what a test is to do comes from outside")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn nothing_is_lost_and_nothing_is_done_twice_whatever_fails() {
    if let Some(seed) = number("ORCHESTRATE_SIM_SEED") {
        let result = run_seed(seed);
        let all = result.trace.join("\n");
        assert!(result.failures.is_empty(), "{all}\n{}", report(seed, &result));
        return;
    }
    let count = number("ORCHESTRATE_SIM_SEEDS").unwrap_or(200);
    let first = number("ORCHESTRATE_SIM_FIRST").unwrap_or(0);
    let mut failed = Vec::new();
    let mut shown = String::new();
    for seed in REGRESSIONS.iter().copied().chain(first..first + count) {
        let result = run_seed(seed);
        if !result.failures.is_empty() {
            failed.push((seed, result.failures[0].clone()));
            if shown.is_empty() {
                shown = report(seed, &result);
            }
        }
    }
    let list: Vec<String> = failed.iter().take(40).map(|(seed, why)| format!("{seed}: {why}")).collect();
    assert!(failed.is_empty(), "{} of {count} seeds failed\n{shown}\n\n{}", failed.len(), list.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..20 {
        let (one, two) = (run_seed(seed), run_seed(seed));
        let differs = one.trace.iter().zip(&two.trace).position(|(a, b)| a != b);
        let at = differs.map(|at| (&one.trace[at.saturating_sub(5)..=at], &two.trace[at]));
        assert!(one.digest == two.digest, "seed {seed} differs at {at:#?}");
    }
}
