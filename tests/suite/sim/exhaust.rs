//! One task, and every place where it can go wrong: a fault at each call of its launch and its end, two crashes at each
//! pair of them, a second reconciler without the lock from each of them on.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{Script, Sim, lock, simulate};
use crate::support::fake_runtime::Behaviour;
use crate::support::world::{Kind, Setup, Style};

const FAULTS: [Kind; 7] =
    [Kind::CrashBefore, Kind::CrashAfter, Kind::Fail, Kind::EffectWithoutAnswer, Kind::Late, Kind::Delay, Kind::Hang];
const CRASHES: [Kind; 2] = [Kind::CrashBefore, Kind::CrashAfter];

fn setup() -> Setup {
    let task = json!({ "id": "t0", "agent": "shell", "image": "orchestrate-test:latest", "command": ["work"] });
    Setup {
        seed: 1,
        style: Style::Run,
        live_restore: true,
        kinds: Vec::new(),
        rate: 1,
        budget: 0,
        deeds: Vec::new(),
        between: Duration::from_secs(1),
        chaos: Duration::from_secs(40),
        plan: json!({ "version": 1, "max_concurrent": 1, "tasks": [task] }),
    }
}

/// Runs one script; gives how many calls there were, and what was wrong.
pub(super) fn walk(script: &Script) -> (usize, Vec<String>, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let sim = Sim::with(setup());
        sim.engine.script(|_| Behaviour::exits(0, Duration::from_secs(3)));
        lock(&sim.core).script = Some(script.clone());
        simulate(&sim).await;
        let core = lock(&sim.core);
        (core.calls, core.failures.clone(), core.trace.clone())
    })
}

fn faults(faults: &[(usize, Kind)]) -> Script {
    Script { faults: faults.iter().copied().collect::<BTreeMap<_, _>>(), second_at: None }
}

fn expect_good(script: &Script) {
    let (_, failures, trace) = walk(script);
    assert!(failures.is_empty(), "{script:?}\n{}\n{failures:#?}", trace.join("\n"));
}

/// Calls until the result is recorded, when nothing goes wrong.
fn calls() -> usize {
    let (calls, failures, _) = walk(&faults(&[]));
    assert_eq!(failures, Vec::<String>::new());
    calls
}

#[test]
fn one_fault_at_any_call() {
    for at in 0..calls() {
        for kind in FAULTS {
            expect_good(&faults(&[(at, kind)]));
        }
    }
}

#[test]
fn two_crashes_at_any_two_calls() {
    // All pairs where time allows, else a part of them that moves with the first.
    let step = if super::number("ORCHESTRATE_SIM_SEEDS").is_some() { 1 } else { 53 };
    let calls = calls();
    for first in 0..calls {
        for second in (first + 1..calls + 20).skip(first % step).step_by(step) {
            for one in CRASHES {
                for two in CRASHES {
                    expect_good(&faults(&[(first, one), (second, two)]));
                }
            }
        }
    }
}

#[test]
fn a_second_reconciler_without_the_lock_from_any_call_on() {
    for at in 0..calls() {
        for slow in [None, Some(Kind::Delay), Some(Kind::Late), Some(Kind::CrashAfter)] {
            let faults = slow.map(|kind| (at, kind)).into_iter().collect();
            expect_good(&Script { faults, second_at: Some(at) });
        }
    }
}
