//! One seed, one world: a plan, what its tasks do, which faults and which human hands there are.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use orchestrate::observe::AttemptKey;
use serde_json::{Value, json};

use super::fake_repository::digest;
use super::fake_runtime::Behaviour;

/// A way in which one call of a port goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    CrashBefore,
    CrashAfter,
    Fail,
    EffectWithoutAnswer,
    Late,
    Delay,
    Hang,
    Twice,
    BreakStream,
    LoseEvent,
    RepeatEvent,
}

impl Kind {
    pub const ALL: [Self; 11] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Fail,
        Self::EffectWithoutAnswer,
        Self::Late,
        Self::Delay,
        Self::Hang,
        Self::Twice,
        Self::BreakStream,
        Self::LoseEvent,
        Self::RepeatEvent,
    ];
}

/// Something that happens to us or around us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    Kill,
    Terminate,
    Remove,
    Prune,
    Rename,
    Start,
    Stop,
    Pause,
    Unpause,
    Note,
    Retry,
    Cancel,
    AddTask,
    DropTask,
    RenameTask,
    ChangeSpec,
    ChangeCap,
    Suspend,
    RollBack,
    BreakFile,
    DeleteWorktree,
    Commit,
    SocketGone,
    EngineKilled,
    EngineStopped,
    PowerLoss,
    ClockJump,
    SecondWithLock,
    SecondWithoutLock,
}

impl Deed {
    pub const ALL: [Self; 29] = [
        Self::Kill,
        Self::Terminate,
        Self::Remove,
        Self::Prune,
        Self::Rename,
        Self::Start,
        Self::Stop,
        Self::Pause,
        Self::Unpause,
        Self::Note,
        Self::Retry,
        Self::Cancel,
        Self::AddTask,
        Self::DropTask,
        Self::RenameTask,
        Self::ChangeSpec,
        Self::ChangeCap,
        Self::Suspend,
        Self::RollBack,
        Self::BreakFile,
        Self::DeleteWorktree,
        Self::Commit,
        Self::SocketGone,
        Self::EngineKilled,
        Self::EngineStopped,
        Self::PowerLoss,
        Self::ClockJump,
        Self::SecondWithLock,
        Self::SecondWithoutLock,
    ];
}

/// How the reconciler is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As a daemon.
    Run,
    /// By a timer, one pass at a time.
    Once,
}

/// What one seed gives.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    pub style: Style,
    pub live_restore: bool,
    /// The faults that this seed has, and one call in so many goes wrong.
    pub kinds: Vec<Kind>,
    pub rate: u32,
    pub budget: u32,
    /// What happens around, and how long between.
    pub deeds: Vec<Deed>,
    pub between: Duration,
    pub chaos: Duration,
    pub plan: Value,
}

fn some<T: Copy>(rng: &mut Rng, all: &[T]) -> Vec<T> {
    // Swarm: many faults at once hide what a few would show.
    match rng.u8(..8) {
        0 => Vec::new(),
        1 => vec![all[rng.usize(..all.len())]],
        2 => all.to_vec(),
        n => all.iter().copied().filter(|_| rng.u8(..8) < n).collect(),
    }
}

impl Setup {
    /// Everything follows from the seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        let kinds = some(&mut rng, &Kind::ALL);
        let deeds = some(&mut rng, &Deed::ALL);
        Self {
            seed,
            style: if rng.u8(..4) == 0 { Style::Once } else { Style::Run },
            live_restore: rng.bool(),
            kinds,
            rate: rng.u32(4..60),
            budget: rng.u32(1..20),
            deeds,
            between: Duration::from_millis(rng.u64(200..15_000)),
            chaos: Duration::from_secs(rng.u64(20..300)),
            plan: plan(&mut rng),
        }
    }
}

fn plan(rng: &mut Rng) -> Value {
    let count = rng.usize(1..7);
    let tasks: Vec<Value> = (0..count).map(|n| task(rng, &format!("t{n}"), n)).collect();
    json!({ "version": 1, "max_concurrent": rng.u32(1..4), "tasks": tasks })
}

/// A task that may depend on the first `before` ones.
pub fn task(rng: &mut Rng, id: &str, before: usize) -> Value {
    let dependencies: Vec<String> = (0..before).filter(|_| rng.u8(..3) == 0).map(|n| format!("t{n}")).collect();
    let mut task = json!({
        "id": id,
        "agent": "shell",
        "image": "orchestrate-test:latest",
        "command": ["work"],
        "prompt": format!("do {id}"),
        "dependencies": dependencies,
    });
    if rng.bool() {
        task["retries"] = rng.u32(..3).into();
        task["retry_backoff"] = json!({ "initial": format!("{}s", rng.u32(1..15)), "max": "30s" });
    }
    if rng.u8(..4) == 0 {
        task["timeout"] = format!("{}s", rng.u32(5..90)).into();
    }
    if rng.u8(..4) == 0 {
        task["priority"] = rng.i32(-2..3).into();
    }
    if rng.u8(..6) == 0 {
        task["leftovers"] = (*["keep", "fail"].get(rng.usize(..2)).expect("two")).into();
    }
    if rng.u8(..8) == 0 {
        task["empty"] = "fail".into();
    }
    task
}

/// What an attempt does; the same for the same seed and key.
pub fn behaviour(seed: u64, key: &AttemptKey) -> Behaviour {
    let mut rng = Rng::with_seed(digest(&[&seed.to_string(), key.task.as_str(), &key.attempt.to_string()]));
    let duration = match rng.u8(..6) {
        0 => Duration::ZERO,
        1 => Duration::from_millis(rng.u64(1..50)),
        5 => Duration::from_secs(rng.u64(40..200)),
        _ => Duration::from_millis(rng.u64(500..30_000)),
    };
    let mut behaviour = Behaviour::exits(0, duration);
    match rng.u8(..12) {
        0 | 1 => behaviour.exit_code = rng.i64(1..10),
        2 => (behaviour.exit_code, behaviour.oom) = (137, true),
        3 => behaviour.oom = true,
        4 => behaviour.start_error = Some((127, "executable file not found".to_owned())),
        5 => {
            behaviour.start_error = Some((128, "driver failed programming external connectivity".to_owned()));
            behaviour.start_failures = if rng.bool() { Some(rng.u32(1..5)) } else { None };
        }
        _ => {}
    }
    behaviour.on_term = match rng.u8(..4) {
        0 => Some(0),
        1 => None,
        2 => Some(1),
        _ => Some(143),
    };
    behaviour
}

/// The tasks of a plan by id, each with its dependencies.
pub fn dependencies(plan: &Value) -> BTreeMap<String, Vec<String>> {
    let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
    let one = |task: &Value| {
        let on = task["dependencies"].as_array().cloned().unwrap_or_default();
        let on = on.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect();
        Some((task["id"].as_str()?.to_owned(), on))
    };
    tasks.iter().filter_map(one).collect()
}
