//! What holds of every plan, whatever is asked, seen and recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use orchestrate::clock::{Moment, Now};
use orchestrate::observe::{AttemptKey, ContainerState, InstanceId, Observed, ObservedContainer, Role};
use orchestrate::plan::{Action, BackOff, Disk, Inputs, Memory, Plan, plan};
use orchestrate::record::{AttemptEnd, Entry, Hold, Ledger, Next, Space, State};
use orchestrate::spec::{ReadOptions, TaskId, TaskSet, Terms, read};
use orchestrate::status::{Reason, Request, Status};
use proptest::prelude::*;
use serde_json::json;

/// How far a task got, and what the engine shows of it.
#[derive(Debug, Clone)]
struct Fate {
    record: u8,
    container: Option<ContainerState>,
    absent: u32,
    cancel: bool,
    backing_off: bool,
    unsettled: bool,
    dependencies: Vec<bool>,
    priority: i64,
}

#[derive(Debug, Clone)]
struct Case {
    fates: Vec<Fate>,
    cap: u32,
    suspend: bool,
    away: bool,
}

/// Nothing is known of it, and nothing asked.
fn idle() -> Fate {
    Fate {
        record: 0,
        container: None,
        absent: 0,
        cancel: false,
        backing_off: false,
        unsettled: false,
        dependencies: vec![false; 8],
        priority: 0,
    }
}

fn fate() -> impl Strategy<Value = Fate> {
    let states = prop_oneof![
        3 => Just(None),
        1 => Just(Some(ContainerState::Created)),
        2 => Just(Some(ContainerState::Running)),
        1 => Just(Some(ContainerState::Paused)),
        1 => Just(Some(ContainerState::Exited)),
        1 => Just(Some(ContainerState::Dead)),
    ];
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    let rest = (prop::collection::vec(prop::bool::weighted(0.4), 8), -1..2i64);
    (0..10u8, states, 0..3u32, flags, rest).prop_map(
        |(record, container, absent, (cancel, backing_off, unsettled), (dependencies, priority))| Fate {
            record,
            container,
            absent,
            cancel,
            backing_off,
            unsettled,
            dependencies,
            priority,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    (prop::collection::vec(fate(), 1..9), 1..5u32, prop::bool::weighted(0.1), prop::bool::weighted(0.1))
        .prop_map(|(fates, cap, suspend, away)| Case { fates, cap, suspend, away })
}

fn now() -> Now {
    let wall = jiff::Timestamp::from_second(1_800_000_000).expect("in range");
    Now { wall, monotonic: Duration::from_secs(1_000), boot_id: "boot".into() }
}

fn ago(seconds: u64) -> Moment {
    let now = now();
    Now { monotonic: now.monotonic.saturating_sub(Duration::from_secs(seconds)), ..now }.moment()
}

struct World {
    tasks: TaskSet,
    ledger: Ledger,
    observed: Observed,
    memory: Memory,
}

impl World {
    fn plan(&self) -> Plan {
        let Self { tasks, ledger, observed, memory } = self;
        plan(&Inputs { tasks, observed, ledger, memory, now: &now(), frozen: false })
    }

    fn state(&self, task: &TaskId) -> State {
        self.ledger.task(task).map(|record| record.state.clone()).unwrap_or_default()
    }
}

fn end(reason: Reason) -> AttemptEnd {
    AttemptEnd {
        reason,
        message: "over".to_owned(),
        exit_code: Some(0),
        oom_killed: false,
        head: None,
        result: None,
        started_at: None,
        finished_at: now().wall,
        log: None,
        log_error: None,
        verify_log: None,
        report: None,
    }
}

fn entries(task: &TaskId, terms: &Terms, spec: &orchestrate::spec::SpecDigest, fate: &Fate) -> Vec<Entry> {
    let key = AttemptKey { task: task.clone(), attempt: 1 };
    let intent = Entry::Intent {
        key: key.clone(),
        spec: spec.clone(),
        host: "h".to_owned(),
        terms: terms.clone(),
        at: ago(300),
    };
    let start = Entry::StartIntent { key: key.clone(), at: ago(200) };
    let closed = |next: Next, reason: Reason, ago_seconds: u64| Entry::Ended {
        key: key.clone(),
        end: end(reason),
        next,
        at: ago(ago_seconds),
    };
    let retry = Next::Retry { reason: Reason::BackOff, pause_ms: 60_000 };
    let hold = Hold { reason: Reason::ImageMissing, message: "no image".to_owned(), key: String::new() };
    let stuck = Entry::Held { task: task.clone(), hold, at: ago(100) };
    let mut all = match fate.record {
        0 => vec![],
        1 => vec![intent],
        2 | 3 => vec![intent, start],
        4 => vec![intent, start, closed(retry, Reason::NonZeroExit, 10)],
        5 => vec![intent, start, closed(retry, Reason::NonZeroExit, 90)],
        6 => vec![intent, stuck],
        7 => vec![intent, start, closed(Next::Fail, Reason::NonZeroExit, 50)],
        8 => vec![Entry::Requested { task: task.clone(), request: Request::Cancel, at: ago(9) }],
        _ => vec![intent, start, closed(Next::Complete, Reason::Succeeded, 50)],
    };
    if fate.cancel && (1..=3).contains(&fate.record) {
        all.push(Entry::Requested { task: task.clone(), request: Request::Cancel, at: ago(5) });
    }
    all
}

fn world(case: &Case) -> World {
    let tasks: Vec<serde_json::Value> = case
        .fates
        .iter()
        .enumerate()
        .map(|(n, fate)| {
            let on: Vec<String> = (0..n).filter(|at| fate.dependencies[*at % 8]).map(|at| format!("t{at}")).collect();
            json!({
                "id": format!("t{n}"), "agent": "shell", "image": "i", "command": ["x"], "dependencies": on,
                "priority": fate.priority, "timeout": if n % 3 == 0 { "1m" } else { "1h" },
            })
        })
        .collect();
    let plan = json!({ "max_concurrent": case.cap, "suspend": case.suspend, "tasks": tasks });
    let text = serde_json::to_vec(&plan).expect("plain data");
    let tasks = read(&text, ReadOptions::default()).expect("valid").tasks;
    let mut ledger = Ledger::default();
    ledger.apply(&Entry::Opened { format: 1, instance: InstanceId("i".into()), at: ago(900) });
    ledger.apply(&Entry::Plan { plan_id: "p".to_owned(), at: ago(900) });
    let mut containers = BTreeMap::new();
    let mut absent = BTreeMap::new();
    let mut memory = Memory::new();
    for (n, fate) in case.fates.iter().enumerate() {
        let spec = &tasks.tasks[n];
        for entry in entries(&spec.id, &Terms::from(spec.attempt.as_ref()), &spec.digest, fate) {
            ledger.apply(&entry);
        }
        let key = AttemptKey { task: spec.id.clone(), attempt: 1 };
        match fate.container {
            Some(state) if fate.record > 0 => {
                let container = ObservedContainer {
                    id: format!("c{n}"),
                    name: format!("orch-i-{key}"),
                    key: key.clone(),
                    plan: "p".to_owned(),
                    role: Role::Agent,
                    state,
                };
                containers.insert(key.clone(), container);
            }
            _ => {
                absent.insert(key.clone(), fate.absent);
            }
        }
        if fate.backing_off {
            let (since, pause) = (ago(1), Duration::from_secs(5));
            let message = "the disk is full".to_owned();
            memory.backoff.insert(spec.id.clone(), BackOff { since, pause, failures: 1, message });
        }
        if fate.unsettled && fate.record == 3 {
            memory.unsettled.insert(key, ago(2));
        }
    }
    let unavailable = case.away.then(|| "no answer".to_owned());
    World { tasks, ledger, observed: Observed { unavailable, containers, absent, ..Observed::default() }, memory }
}

fn is_completed(world: &World, task: &TaskId) -> bool {
    world.state(task) == State::Done(Status::Completed)
}

proptest! {
    #[test]
    fn nothing_is_launched_before_its_dependencies_or_without_a_slot(case in case()) {
        let world = world(&case);
        let plan = world.plan();
        let mut starting = 0;
        for action in &plan.actions {
            let Some(ix) = action.ix else { continue };
            let spec = world.tasks.task(ix);
            prop_assert_eq!(&spec.id, &action.key.task);
            match action.action {
                Action::Launch { resume: false } => {
                    prop_assert!(spec.dependencies.iter().all(|on| is_completed(&world, on)), "{}", spec.id);
                    prop_assert!(!case.suspend && !case.away);
                    starting += 1;
                }
                Action::Launch { resume: true } | Action::Start => starting += 1,
                _ => {}
            }
        }
        let live = world.observed.containers.values().filter(|container| container.state.is_live()).count();
        prop_assert!(starting == 0 || starting + live <= usize::try_from(case.cap).expect("small"));
    }

    #[test]
    fn what_is_over_is_left_alone_and_everything_else_is_explained(case in case()) {
        let world = world(&case);
        let plan = world.plan();
        for (spec, status) in world.tasks.tasks.iter().zip(&plan.tasks) {
            let acts = plan.actions.iter().filter(|action| action.key.task == spec.id).count();
            prop_assert!(acts <= 1);
            if let State::Done(done) = world.state(&spec.id) {
                prop_assert_eq!(acts, 0);
                prop_assert_eq!(status.status, done);
                continue;
            }
            let reason = status.reason.expect("a reason");
            // A request is told from a file that lags behind by it.
            prop_assert!(status.status != Status::Pending || reason.is_of_pending(), "{}: {:?}", spec.id, status);
            let told = reason == Reason::Started || status.message.as_ref().is_some_and(|m| !m.is_empty());
            prop_assert!(told, "{}: {:?}", spec.id, status);
            if acts == 0 && status.status == Status::Pending && !case.away && !case.suspend {
                let waits = matches!(reason, Reason::WaitingForDependencies | Reason::WaitingForSlot);
                prop_assert!(waits || plan.wake.is_some(), "{}: {:?}", spec.id, status);
            }
        }
    }

    #[test]
    fn equal_inputs_give_equal_plans(case in case()) {
        prop_assert_eq!(world(&case).plan(), world(&case).plan());
    }

    #[test]
    fn a_low_disk_makes_nothing_that_would_fill_it_and_says_so(case in case()) {
        let mut world = world(&case);
        let free = world.plan();
        let space = Space { free_bytes: 1, total_bytes: 1 << 40, free_inodes: 1 << 20, total_inodes: 1 << 20 };
        world.memory.disks = vec![Disk { path: "/r".to_owned(), space }];
        let low = world.plan();
        let makes = |plan: &Plan| plan.actions.iter().any(|action| matches!(action.action, Action::Launch { .. }));
        prop_assert!(!makes(&low));
        let others = |plan: &Plan| -> Vec<_> {
            plan.actions.iter().filter(|action| !matches!(action.action, Action::Launch { .. } | Action::Start)).cloned().collect()
        };
        prop_assert_eq!(others(&free), others(&low), "what is there is stopped and taken in all the same");
        let waits = low.tasks.iter().any(|task| task.reason == Some(Reason::DiskLow));
        prop_assert!(waits || !makes(&free));
        if waits {
            prop_assert!(low.can_move && low.wake.is_some_and(|wake| wake <= Duration::from_secs(5)));
        }
        world.memory.disk_floor.bytes = 1;
        prop_assert_eq!(free, world.plan());
    }

    #[test]
    fn slots_go_to_what_was_begun_then_by_priority_then_to_the_longest_chain(case in case()) {
        let world = world(&case);
        let plan = world.plan();
        let rank = |action: &orchestrate::plan::PlannedAction| {
            let ix = action.ix?;
            let begun = match action.action {
                Action::Launch { resume } => resume,
                Action::Start => true,
                _ => return None,
            };
            let priority = world.tasks.task(ix).attempt.priority;
            Some((!begun, std::cmp::Reverse(priority), std::cmp::Reverse(world.tasks.graph.chain_behind(ix)), ix))
        };
        let ranks: Vec<_> = plan.actions.iter().filter_map(rank).collect();
        prop_assert!(ranks.is_sorted());
        // Nobody with a better claim is left waiting for a slot.
        let chosen = plan.actions.iter().filter_map(rank).next_back();
        if let Some(worst) = chosen {
            for (ix, spec) in world.tasks.iter() {
                let status = &plan.tasks[ix.index()];
                if status.reason == Some(Reason::WaitingForSlot) {
                    let begun = world.state(&spec.id) == State::Live;
                    let chain = std::cmp::Reverse(world.tasks.graph.chain_behind(ix));
                    let claim = (!begun, std::cmp::Reverse(spec.attempt.priority), chain, ix);
                    prop_assert!(claim > worst, "{} waits", spec.id);
                }
            }
        }
    }

    #[test]
    fn with_all_its_actions_under_way_a_plan_asks_for_nothing_more(case in case()) {
        let mut world = world(&case);
        let first = world.plan();
        for action in &first.actions {
            world.memory.in_flight.insert(action.key.task.clone(), action.action);
        }
        prop_assert_eq!(world.plan().actions, vec![]);
    }

    #[test]
    fn results_are_taken_in_and_losses_recorded_only_where_the_engine_says_so(case in case()) {
        let world = world(&case);
        for action in world.plan().actions {
            let container = world.observed.containers.get(&action.key);
            prop_assert!(world.observed.unavailable.is_none());
            match action.action {
                Action::Harvest => prop_assert!(container.is_some_and(|container| !container.state.is_live())),
                Action::Lose => {
                    prop_assert!(container.is_none() && world.observed.absent.get(&action.key) >= Some(&2));
                }
                Action::Stop(_) => prop_assert!(container.is_some_and(|container| container.state.is_live())),
                _ => {}
            }
        }
    }
}

/// The job that takes a result in records that it is to be verified, and is still under way when the next pass decides.
#[test]
fn what_verifies_keeps_the_slot_while_the_result_is_being_taken_in() {
    let fate = |record| Fate { record, container: (record == 3).then_some(ContainerState::Exited), ..idle() };
    let mut world = world(&Case { fates: vec![fate(3), fate(0)], cap: 1, suspend: false, away: false });
    let key = AttemptKey { task: world.tasks.tasks[0].id.clone(), attempt: 1 };
    world.ledger.apply(&Entry::Verifying { key: key.clone(), end: end(Reason::Succeeded), at: ago(0) });
    world.memory.in_flight.insert(key.task.clone(), Action::Harvest);
    let meanwhile = world.plan();
    assert_eq!(meanwhile.actions, []);
    assert_eq!(meanwhile.tasks[1].reason, Some(Reason::WaitingForSlot));
    world.memory.in_flight.clear();
    let then = world.plan();
    let begun: Vec<_> = then.actions.iter().map(|action| (&action.key, action.action)).collect();
    assert_eq!(begun, [(&key, Action::Launch { resume: true })]);
}

/// One task in each state of its record and its container, with one more fact at a time: what is done, told and waited for.
#[test]
fn every_state_of_one_task_is_decided_and_told() {
    let idle = idle();
    let containers = [
        None,
        Some(ContainerState::Created),
        Some(ContainerState::Running),
        Some(ContainerState::Paused),
        Some(ContainerState::Exited),
    ];
    let mut lines = String::new();
    let mut tell = |name: &str, fate: &Fate, suspend: bool, away: bool| {
        let world = world(&Case { fates: vec![fate.clone()], cap: 1, suspend, away });
        let plan = world.plan();
        let task = &plan.tasks[0];
        let actions: Vec<String> =
            plan.actions.iter().map(|planned| format!("{:?} {}", planned.action, planned.cause)).collect();
        let container = fate.container.map_or("no container".to_owned(), |state| format!("{state:?}"));
        writeln!(
            lines,
            "record {} {container}{name}: {} {:?} ({}) not before {:?}; does {actions:?}; wakes {:?}, slots {}+{}, moves {}, orphans {}",
            fate.record,
            task.status,
            task.reason,
            task.message.as_deref().unwrap_or_default(),
            task.not_before.map(|at| at.duration_since(now().wall).as_secs()),
            plan.wake,
            plan.slots_used,
            plan.slots_wanted,
            plan.can_move,
            plan.orphans.len(),
        )
        .expect("text");
    };
    for record in 0..10 {
        for container in containers {
            let fate = Fate { record, container, ..idle.clone() };
            tell("", &fate, false, false);
            if (1..=3).contains(&record) {
                tell(", cancelled", &Fate { cancel: true, ..fate.clone() }, false, false);
                tell(", backing off", &Fate { backing_off: true, ..fate.clone() }, false, false);
                tell(", gone", &Fate { absent: 2, ..fate.clone() }, false, false);
                tell(", a start on its way", &Fate { unsettled: true, ..fate.clone() }, false, false);
                tell(", engine away", &fate, false, true);
            }
        }
        let fate = Fate { record, ..idle.clone() };
        tell(", suspended", &fate, true, false);
        tell(", engine away", &fate, false, true);
        tell(", backing off", &Fate { backing_off: true, ..fate.clone() }, false, false);
    }
    insta::assert_snapshot!(lines);
}

/// What tasks are told that depend on one in each state, and on two; while the newest file is invalid, where slots are
/// shared with other plans, while a result is verified, where a start waits for its answer.
#[test]
fn what_waits_is_told_what_for() {
    let idle = idle();
    let after = |on: &[usize]| {
        let mut dependencies = vec![false; 8];
        for on in on {
            dependencies[*on] = true;
        }
        Fate { dependencies, ..idle.clone() }
    };
    let mut lines = String::new();
    let mut tell = |name: &str, plan: &Plan| {
        for (n, task) in plan.tasks.iter().enumerate() {
            let (reason, message) = (task.reason, task.message.as_deref().unwrap_or_default());
            let attempt = task.attempt.map_or("-".to_owned(), |attempt| attempt.to_string());
            writeln!(lines, "{name}: t{n} {attempt} {} {reason:?} ({message})", task.status).expect("text");
        }
        let actions: Vec<_> = plan.actions.iter().map(|action| (action.key.to_string(), action.action)).collect();
        writeln!(
            lines,
            "{name}: {actions:?}, moves {}, slots {}+{}",
            plan.can_move, plan.slots_used, plan.slots_wanted
        )
        .expect("text");
    };
    let of = |fates: Vec<Fate>, cap| world(&Case { fates, cap, suspend: false, away: false });
    for record in 0..10 {
        let container = (record == 3).then_some(ContainerState::Running);
        let first = Fate { record, container, ..idle.clone() };
        let fates = vec![first, idle.clone(), after(&[0]), after(&[0, 1]), after(&[2])];
        tell(&format!("record {record}"), &of(fates, 1).plan());
    }
    let many: Vec<Fate> = (0..6).map(|_| idle.clone()).chain([after(&[0, 1, 2, 3, 4, 5])]).collect();
    tell("many", &of(many, 2).plan());

    let mut shared = of(vec![idle.clone(), idle.clone(), idle.clone()], 3);
    for allowance in [0, 1, 3, 4] {
        shared.memory.allowance = Some(allowance);
        tell(&format!("allowed {allowance}"), &shared.plan());
    }
    shared.memory.allowance = None;
    let World { tasks, ledger, observed, memory } = &shared;
    let now = now();
    tell("frozen", &plan(&Inputs { tasks, observed, ledger, memory, now: &now, frozen: true }));

    let ended = Fate { record: 3, container: Some(ContainerState::Exited), ..idle.clone() };
    let mut verifying = of(vec![ended.clone(), after(&[0])], 1);
    let key = AttemptKey { task: verifying.tasks.tasks[0].id.clone(), attempt: 1 };
    verifying.ledger.apply(&Entry::Verifying { key: key.clone(), end: end(Reason::Succeeded), at: ago(5) });
    tell("to be verified", &verifying.plan());
    verifying.ledger.apply(&Entry::StartIntent { key: key.clone(), at: ago(4) });
    verifying.ledger.apply(&Entry::Started { key: key.clone(), at: ago(4) });
    let agent = verifying.observed.containers[&key].clone();
    let verify = ObservedContainer { id: "v".to_owned(), role: Role::Verify, state: ContainerState::Running, ..agent };
    verifying.observed.verifies.insert(key.clone(), verify);
    tell("verified", &verifying.plan());

    for action in [Action::Launch { resume: false }, Action::Start, Action::Harvest, Action::Lose] {
        let mut busy = of(vec![ended.clone(), idle.clone()], 1);
        busy.memory.in_flight.insert(key.task.clone(), action);
        tell(&format!("{action:?} under way"), &busy.plan());
    }
    insta::assert_snapshot!(lines);
}

/// A process that begins waits for a start of its predecessor, for as long as one can be on its way.
#[test]
fn the_grace_after_a_restart_is_counted_from_the_start_that_was_sent() {
    let fate = Fate { record: 2, ..idle() };
    let mut world = world(&Case { fates: vec![fate], cap: 1, suspend: false, away: false });
    let key = AttemptKey { task: world.tasks.tasks[0].id.clone(), attempt: 1 };
    let seconds = Duration::from_secs;
    for (age, left) in
        [(0, Some(45)), (10, Some(35)), (30, Some(15)), (44, Some(15)), (59, Some(15)), (60, None), (200, None)]
    {
        world.ledger.apply(&Entry::StartIntent { key: key.clone(), at: ago(age) });
        let resumed = Memory::resumed(&world.ledger, &now());
        assert_eq!(resumed.settling(&key, &now()), left.map(|left| seconds(left).min(resumed.grace)), "{age} s");
        let later = Now { monotonic: now().monotonic + seconds(left.unwrap_or(0)), ..now() };
        assert_eq!(resumed.settling(&key, &later), None, "{age} s");
        if let Some(left) = left {
            let before = Now { monotonic: now().monotonic + seconds(left - 1), ..now() };
            assert_eq!(resumed.settling(&key, &before), Some(seconds(1)), "{age} s");
        }
        let other = Now { boot_id: "another".into(), ..now() };
        assert_eq!(Memory::resumed(&world.ledger, &other).settling(&key, &other), None, "after a reboot");
    }
}
