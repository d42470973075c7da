//! Whole plans against time, on the real engine.

use std::collections::BTreeMap;
use std::process::Command;

use crate::Extent;
use crate::contest::{Race, Who};
use crate::measure::{Cost, median, run};
use crate::place::Place;
use crate::report::{Report, Row};
use crate::shape::Shape;

/// What a run begins from: the network that the facts of the engine's own cost hang on.
const NETWORK: &str = "none";

/// Runs each once a turn, in an order that turns with it; a failure takes who failed out of the race.
fn take_turns(
    place: &Place,
    extent: &Extent,
    names: &[String],
    make: impl Fn(usize) -> Result<Command, String>,
) -> Vec<Result<Vec<Cost>, String>> {
    let mut costs: Vec<Result<Vec<Cost>, String>> = vec![Ok(Vec::new()); names.len()];
    for turn in 0..extent.repeats {
        for i in 0..names.len() {
            let i = (i + turn) % names.len();
            let Ok(so_far) = &mut costs[i] else { continue };
            place.clear();
            match make(i).and_then(|mut command| run(&mut command)) {
                Ok(cost) => {
                    crate::say(&format!("    {}: {:.2} s", names[i], cost.wall));
                    so_far.push(cost);
                }
                Err(why) => costs[i] = Err(why),
            }
        }
    }
    place.clear();
    costs
}

fn race(place: &Place, extent: &Extent, report: &mut Report, shape: &Shape, slots: usize, who: &[Who]) {
    let title = format!("{}, {slots} at a time", shape.name);
    let names: Vec<String> = who.iter().map(|who| who.name()).collect();
    let costs = take_turns(place, extent, &names, |i| who[i].command(place, shape, slots, NETWORK));
    let floor = who.iter().position(|who| *who == Who::Floor).and_then(|i| costs[i].as_ref().ok());
    let peers: BTreeMap<&str, f64> = who
        .iter()
        .zip(&names)
        .zip(&costs)
        .filter(|((who, _), _)| who.is_peer())
        .filter_map(|((_, name), costs)| {
            Some((&**name, median(&costs.as_ref().ok()?.iter().map(|c| c.wall).collect::<Vec<_>>())))
        })
        .collect();
    let best = peers.values().copied().fold(f64::INFINITY, f64::min);
    for (i, result) in costs.iter().enumerate() {
        match result {
            Ok(costs) => {
                let note = match who[i] {
                    Who::Orchestrate => format!("goal: ratio <= 1.05, best peer {best:.2} s"),
                    Who::Compose => "has no limit of how many run".to_owned(),
                    _ => String::new(),
                };
                report.push(Row::costs(&title, &names[i], costs, floor.map_or(&[], |costs| &**costs), &note));
            }
            Err(why) => report.push(Row::absent(&title, &names[i], why)),
        }
    }
}

/// The plans of the main job, against everybody.
pub(crate) fn rows(place: &Place, extent: &Extent, report: &mut Report) {
    let layers = Shape::layers(10, 10);
    let all = Who::ALL;
    // What a run of a hundred minutes would add is told by fewer racers.
    let few = [Who::Orchestrate, Who::Floor, Who::Bare, Who::Make, Who::Ninja, Who::GoTask];
    race(place, extent, report, &layers, 8, &all);
    race(place, extent, report, &layers, 4, if extent.quick { &few } else { &all });
    if !extent.quick {
        race(place, extent, report, &layers, 1, &few);
        let random = Shape::random(200, 20);
        for slots in [8, 4, 1] {
            race(place, extent, report, &random, slots, &few);
        }
    }
}

/// Tasks of unequal length: what the order of starts is worth.
pub(crate) fn makespan(place: &Place, extent: &Extent, report: &mut Report) {
    let slots = 4;
    for seed in 1..=if extent.quick { 2 } else { 5 } {
        let shape = Shape::unequal(40, seed);
        let title = format!("{} (plan {seed}), {slots} at a time", shape.name);
        #[expect(clippy::cast_precision_loss, reason = "few slots")]
        let bound = shape.critical_path().max(shape.work() / slots as f64);
        let names = ["orchestrate", "floor, in the file's order"].map(ToOwned::to_owned);
        let costs = take_turns(place, extent, &names, |i| {
            if i == 0 {
                return Who::Orchestrate.command(place, &shape, slots, NETWORK);
            }
            let folder = place.folder();
            let host = place.host.as_ref().map_err(Clone::clone)?;
            Race { shape: &shape, slots, host, network: NETWORK, folder: &folder }.floor(false, "file")
        });
        for (name, result) in names.iter().zip(&costs) {
            match result {
                Ok(these) => {
                    let against = costs[1].as_ref().map_or(&[][..], |costs| costs);
                    let note = format!("bound by lengths alone: {bound:.2} s; goal: ratio <= 0.9");
                    report.push(Row::costs(&title, name, these, against, &note));
                }
                Err(why) => report.push(Row::absent(&title, name, why)),
            }
        }
    }
}

/// What would move the floor itself.
pub(crate) fn floors(place: &Place, extent: &Extent, report: &mut Report) {
    let (shape, slots) = (Shape::flat(if extent.quick { 24 } else { 60 }), 4);
    let title = format!("the floor by network, {}, {slots} at a time", shape.name);
    let kinds = [("bridge", false), ("none", false), ("host", false), ("none", true)];
    let names = ["bridge", "none", "host", "none, nothing set"].map(ToOwned::to_owned);
    let costs = take_turns(place, extent, &names, |i| {
        let folder = place.folder();
        let host = place.host.as_ref().map_err(Clone::clone)?;
        let (network, bare) = kinds[i];
        Race { shape: &shape, slots, host, network, folder: &folder }.floor(bare, "file")
    });
    for (name, result) in names.iter().zip(&costs) {
        match result {
            Ok(these) => {
                let against = costs[0].as_ref().map_or(&[][..], |costs| costs);
                report.push(Row::costs(&title, name, these, against, ""));
            }
            Err(why) => report.push(Row::absent(&title, name, why)),
        }
    }
}
