//! What happens around us: people, the engine, the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use orchestrate::observe::ContainerState;
use serde_json::{Value, json};

use super::ports::Process;
use super::{PLAN, Sim, life};
use crate::support::world::{self, Deed};

/// What people did, as far as it matters for judging us.
#[derive(Default)]
pub(super) struct People {
    /// Every good content that people wrote, oldest first.
    pub(super) plans: Vec<Value>,
    pub(super) retried: BTreeSet<String>,
    pub(super) cancelled: BTreeSet<String>,
    pub(super) rolled_back: bool,
    pub(super) highest_cap: usize,
    pub(super) done: BTreeSet<Deed>,
    /// The newest note of each task, which must stand in the file.
    notes: BTreeMap<String, String>,
    /// The file is not as it should be, and this is what it should be.
    good: Option<Vec<u8>>,
}

fn tasks(plan: &mut Value) -> &mut Vec<Value> {
    plan["tasks"].as_array_mut().expect("a list")
}

fn note_of(task: &Value) -> Option<(String, String)> {
    Some((task["id"].as_str()?.to_owned(), task["note"].as_str()?.to_owned()))
}

impl Sim {
    /// The plan file's content, where it is good.
    fn plan(&self) -> Option<Value> {
        if self.people().good.is_some() {
            return None;
        }
        serde_json::from_slice(&self.files.content(PLAN)?).ok()
    }

    /// A person saves the file.
    fn save(&self, plan: &Value) {
        let text = serde_json::to_vec_pretty(plan).expect("plain data");
        if self.chance(2) {
            self.files.put(PLAN, &text);
        } else {
            self.files.overwrite(PLAN, &text);
        }
        let mut people = self.people();
        people.notes = plan["tasks"].as_array().into_iter().flatten().filter_map(note_of).collect();
        let cap = usize::try_from(plan["max_concurrent"].as_u64().unwrap_or(3)).expect("small");
        people.highest_cap = people.highest_cap.max(cap);
        people.plans.push(plan.clone());
        drop(people);
        if !self.chance(5) {
            self.wake();
        }
    }

    pub(super) fn first_save(&self, plan: &Value) {
        let text = serde_json::to_vec_pretty(plan).expect("plain data");
        self.files.put(PLAN, text);
        let mut people = self.people();
        people.highest_cap = usize::try_from(plan["max_concurrent"].as_u64().unwrap_or(3)).expect("small");
        people.plans.push(plan.clone());
    }

    /// I8: what people wrote is there.
    pub(super) fn judge_notes(&self) {
        let people = self.people();
        if people.good.is_some() {
            return;
        }
        let content = self.files.content(PLAN).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(plan) = content else {
            drop(people);
            return self.fail("the plan file is no JSON, and nobody broke it".to_owned());
        };
        let found: BTreeMap<String, String> =
            plan["tasks"].as_array().into_iter().flatten().filter_map(note_of).collect();
        let lost = people.notes != found;
        let expected = people.notes.clone();
        drop(people);
        if lost {
            self.fail(format!("I8: people wrote {expected:?}, the file has {found:?}"));
        }
    }

    fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.judge_notes();
        let Some(mut plan) = self.plan() else { return };
        change(&mut plan);
        self.save(&plan);
    }

    fn some_task<'a>(&self, plan: &'a mut Value) -> Option<&'a mut Value> {
        let tasks = tasks(plan);
        if tasks.is_empty() {
            return None;
        }
        let at = self.below(tasks.len());
        tasks.get_mut(at)
    }

    /// Some container's name, of those in such a state.
    fn some_container(&self, which: impl Fn(ContainerState) -> bool) -> Option<String> {
        let seen = self.engine.seen();
        let names: Vec<String> = seen.into_iter().filter(|c| !c.removed && which(c.state)).map(|c| c.name).collect();
        if names.is_empty() { None } else { Some(names[self.below(names.len())].clone()) }
    }

    pub(super) fn ask(&self, status: &str) {
        self.edit(|plan| {
            let Some(task) = self.some_task(plan) else { return };
            let id = task["id"].as_str().unwrap_or_default().to_owned();
            task["status"] = status.into();
            let mut people = self.people();
            if status == "pending" {
                people.retried.insert(id)
            } else {
                people.cancelled.insert(id)
            };
        });
    }
}

/// Does things until it is dropped.
pub(super) async fn chaos(sim: Sim) {
    let deeds = sim.setup.deeds.clone();
    if deeds.is_empty() {
        return;
    }
    loop {
        let most = u64::try_from(sim.setup.between.as_millis()).expect("short") + 2;
        tokio::time::sleep(sim.millis(1..most)).await;
        let deed = deeds[sim.below(deeds.len())];
        sim.note(&format!("{deed:?}"));
        sim.people().done.insert(deed);
        act(&sim, deed).await;
    }
}

async fn act(sim: &Sim, deed: Deed) {
    match deed {
        Deed::Kill => sim.kill_current(),
        Deed::Terminate => sim.terminate_current(),
        Deed::Remove => with(sim.some_container(|_| true), |name| sim.engine.human_remove(name)),
        Deed::Prune => {
            while let Some(name) = sim.some_container(|state| !state.is_live()) {
                sim.engine.human_remove(&name);
            }
        }
        Deed::Rename => rename(sim),
        Deed::Start => with(sim.some_container(|state| !state.is_live()), |name| sim.engine.human_start(name)),
        Deed::Stop => with(sim.some_container(ContainerState::is_live), |name| sim.engine.human_stop(name)),
        Deed::Pause => with(sim.some_container(|s| s == ContainerState::Running), |n| sim.engine.human_pause(n)),
        Deed::Unpause => with(sim.some_container(|s| s == ContainerState::Paused), |n| sim.engine.human_unpause(n)),
        Deed::DeleteWorktree => {
            let task = format!("t{}", sim.below(6));
            sim.repository.human_delete_worktree(&task);
        }
        Deed::Commit => {
            let count = sim.count();
            sim.repository.human_commit(&format!("main {count}"));
        }
        Deed::SocketGone | Deed::EngineKilled | Deed::EngineStopped | Deed::PowerLoss => outage(sim, deed).await,
        Deed::ClockJump => {
            let seconds = [-31_536_000, -3_600, -1, 1, 3_600, 31_536_000];
            sim.clock.jump(SignedDuration::from_secs(seconds[sim.below(seconds.len())]));
        }
        Deed::SecondWithLock => second(sim, false).await,
        Deed::SecondWithoutLock => second(sim, true).await,
        Deed::BreakFile => break_file(sim).await,
        _ => edit(sim, deed),
    }
}

fn with(name: Option<String>, act: impl FnOnce(&str)) {
    if let Some(name) = name {
        act(&name);
    }
}

fn rename(sim: &Sim) {
    let Some(name) = sim.some_container(|_| true) else { return };
    let taken = sim.engine.seen();
    let count = sim.count();
    // Also to the name that another attempt will want.
    let next = name.rsplit_once('-').map(|(head, n)| format!("{head}-{}", n.parse::<u32>().unwrap_or(0) + 1));
    let new = if sim.chance(2) { format!("foo{count}") } else { next.unwrap_or_else(|| format!("bar{count}")) };
    if !taken.iter().any(|c| !c.removed && c.name == new) {
        sim.engine.human_rename(&name, &new);
    }
}

fn edit(sim: &Sim, deed: Deed) {
    let count = sim.count();
    match deed {
        Deed::Note => sim.edit(|plan| {
            if let Some(task) = sim.some_task(plan) {
                task["note"] = format!("n{count}").into();
            }
        }),
        Deed::Retry => sim.ask("pending"),
        Deed::Cancel => sim.ask("cancelled"),
        Deed::AddTask => sim.edit(|plan| {
            if tasks(plan).len() < 9 {
                let task = sim.random(|rng| world::task(rng, &format!("x{count}"), 0));
                tasks(plan).push(task);
            }
        }),
        Deed::DropTask => sim.edit(|plan| {
            if tasks(plan).len() < 2 {
                return;
            }
            let at = sim.below(tasks(plan).len());
            let gone = tasks(plan).remove(at)["id"].clone();
            for task in tasks(plan) {
                if let Some(on) = task["dependencies"].as_array_mut() {
                    on.retain(|id| *id != gone);
                }
            }
        }),
        Deed::RenameTask => sim.edit(|plan| {
            let Some(task) = sim.some_task(plan) else { return };
            let old = task["id"].clone();
            let new: Value = format!("r{count}").into();
            task["id"] = new.clone();
            let mut guard = sim.people();
            let people = &mut *guard;
            for asked in [&mut people.retried, &mut people.cancelled] {
                if asked.contains(old.as_str().unwrap_or_default()) {
                    asked.insert(new.as_str().unwrap_or_default().to_owned());
                }
            }
            drop(guard);
            for task in tasks(plan) {
                for id in task["dependencies"].as_array_mut().into_iter().flatten().filter(|id| **id == old) {
                    *id = new.clone();
                }
            }
        }),
        Deed::ChangeSpec => sim.edit(|plan| {
            if let Some(task) = sim.some_task(plan) {
                task["prompt"] = format!("do it otherwise, {count}").into();
            }
        }),
        Deed::ChangeCap => {
            let cap = sim.below(4) + 1;
            sim.edit(|plan| plan["max_concurrent"] = cap.into());
        }
        Deed::Suspend => sim.edit(|plan| {
            let suspended = plan["suspend"] == json!(true);
            plan["suspend"] = (!suspended).into();
        }),
        Deed::RollBack => {
            if sim.plan().is_none() {
                return;
            }
            let old = {
                let mut people = sim.people();
                people.rolled_back = true;
                people.plans.clone()
            };
            sim.save(&old[sim.below(old.len())]);
        }
        _ => {}
    }
}

/// Conflict markers, a half-written file or none, for a while.
async fn break_file(sim: &Sim) {
    sim.judge_notes();
    let Some(good) = sim.plan() else { return };
    let good = serde_json::to_vec_pretty(&good).expect("plain data");
    sim.people().good = Some(good.clone());
    match sim.below(4) {
        0 => sim.files.overwrite(PLAN, &good[..sim.below(good.len())]),
        1 => sim.files.put(PLAN, [b"<<<<<<< ours\n".as_slice(), &good, b"=======\n>>>>>>> theirs\n"].concat()),
        2 => sim.files.put(PLAN, b"{\"tasks\": [{\"id\": \"t0\", \"dependencies\": [\"nowhere\"]}]}"),
        _ => sim.files.delete(PLAN),
    }
    sim.wake();
    tokio::time::sleep(sim.millis(1..20_000)).await;
    sim.mend_file();
}

impl Sim {
    /// Whoever broke the file is done.
    pub(super) fn mend_file(&self) {
        let good = self.people().good.take();
        if let Some(good) = good {
            self.files.put(PLAN, good);
            self.wake();
        }
    }

    /// Everybody stops and leaves things so that work can go on.
    pub(super) fn calm_down(&self) {
        self.mend_file();
        if !self.engine.is_up() {
            self.people().done.insert(Deed::EngineKilled);
            self.engine.come_back(self.setup.live_restore);
        }
        while let Some(name) = self.some_container(|state| state == ContainerState::Paused) {
            self.engine.human_unpause(&name);
        }
        if let Some(mut plan) = self.plan()
            && plan["suspend"] == json!(true)
        {
            plan["suspend"] = false.into();
            self.save(&plan);
        }
    }
}

async fn outage(sim: &Sim, deed: Deed) {
    let live_restore = sim.setup.live_restore;
    if !sim.engine.is_up() {
        return;
    }
    match deed {
        Deed::SocketGone | Deed::EngineKilled => sim.engine.go_away(),
        Deed::EngineStopped => {
            // Noted first: with its streams the watch of it ends.
            sim.note_outage();
            sim.engine.shut_down(live_restore);
        }
        _ => {
            sim.engine.lose_power();
            sim.kill_current();
            sim.files.power_loss();
            sim.clock.reboot();
        }
    }
    tokio::time::sleep(sim.millis(1..100_000)).await;
    match deed {
        Deed::SocketGone => sim.engine.reconnect(),
        Deed::PowerLoss => sim.engine.come_back(false),
        _ => sim.engine.come_back(live_restore),
    }
}

/// Somebody starts a second reconciler.
pub(super) async fn second(sim: &Sim, without_lock: bool) {
    if without_lock {
        sim.files.delete("/repo/.git/orchestrate/lock");
    }
    let process = Process::second(sim);
    let limit = Duration::from_secs(1) + sim.millis(1..20_000);
    let end = tokio::select! {
        biased;
        () = process.death() => None,
        () = tokio::time::sleep(limit) => None,
        end = life(sim, &process, false) => Some(end),
    };
    process.kill();
    sim.note(&format!("the second ends: {end:?}"));
}
