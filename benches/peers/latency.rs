//! How long after a dependency's end its dependent starts, by the engine's own clock.

use std::process::Command;

use jiff::Timestamp;

use crate::Extent;
use crate::contest::Who;
use crate::measure::{quantile, run};
use crate::place::Place;
use crate::report::{Report, Row};
use crate::shape::Shape;

/// Milliseconds between each end and the next start.
fn gaps(host: &str) -> Vec<f64> {
    let listed = Command::new("docker").args(["-H", host, "ps", "-aq"]).output().map(|output| output.stdout);
    let ids = String::from_utf8_lossy(&listed.unwrap_or_default()).into_owned();
    let told = Command::new("docker")
        .args(["-H", host, "inspect", "-f", "{{.State.StartedAt}} {{.State.FinishedAt}}"])
        .args(ids.split_whitespace())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let moments = |line: &str| {
        let (from, to) = line.split_once(' ')?;
        Some((from.parse::<Timestamp>().ok()?, to.parse::<Timestamp>().ok()?))
    };
    let mut lives: Vec<(Timestamp, Timestamp)> = told.lines().filter_map(moments).collect();
    lives.sort_unstable();
    lives.windows(2).map(|pair| pair[1].0.duration_since(pair[0].1).as_secs_f64() * 1e3).collect()
}

/// A chain, one after the other.
pub(crate) fn rows(place: &Place, extent: &Extent, report: &mut Report) {
    let Ok(host) = &place.host else { return };
    let shape = Shape::chain(if extent.quick { 15 } else { 40 });
    let who = [Who::Orchestrate, Who::Floor, Who::Bare, Who::Make];
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); who.len()];
    for turn in 0..extent.repeats {
        for i in 0..who.len() {
            let i = (i + turn) % who.len();
            place.clear();
            let ran = who[i].command(place, &shape, 1, "none").and_then(|mut command| run(&mut command));
            match ran {
                Ok(_) => found[i].extend(gaps(host)),
                Err(why) => crate::say(&format!("    {}: {why}", who[i].name())),
            }
        }
    }
    place.clear();
    for (name, at, goal) in [("median", 0.5, 1.1), ("99th percentile", 0.99, 1.5)] {
        let race = format!("from a dependency's end to its dependent's start, {name}");
        let floor = quantile(&found[1], at);
        for (who, gaps) in who.iter().zip(&found) {
            let value = quantile(gaps, at);
            let note = if *who == Who::Orchestrate { format!("goal: ratio <= {goal}") } else { String::new() };
            let mut row = Row::figure(&race, &who.name(), "ms", &[value], &note).against(Some(floor));
            (row.low, row.high) = (Some(quantile(gaps, 0.25)), Some(quantile(gaps, 0.75)));
            report.push(row);
        }
    }
}
