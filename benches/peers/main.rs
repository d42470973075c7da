//! Orchestrate against what people would use in its place and against the engine's own floor, on one machine, in turns:
//! `make bench` or `make bench-quick`. Prints a table; writes `report.json`, `report.md` and drawings to `target/bench`.
//!
//! Every number is a median over runs that alternate between those who race, so that what the machine does beside falls
//! on all of them. What cannot run here is a row that says so.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and says what it found"
)]

mod contest;
mod draw;
mod floor;
mod idle;
mod latency;
mod local;
mod measure;
mod place;
mod races;
mod report;
mod shape;

use std::process::ExitCode;

use place::Place;
use report::Report;

/// How much is run.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// Minutes instead of hours.
    pub(crate) quick: bool,
    /// Runs of each.
    pub(crate) repeats: usize,
    /// Which groups of rows; empty: all.
    only: Vec<String>,
}

/// Words for whoever waits.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

type Group = (&'static str, fn(&Place, &Extent, &mut Report));

const GROUPS: [Group; 7] = [
    ("startup", local::startup),
    ("process", local::process),
    ("latency", latency::rows),
    ("races", races::rows),
    ("makespan", races::makespan),
    ("floors", races::floors),
    ("idle", idle::rows),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if arguments.first().is_some_and(|first| first == "__floor") {
        return floor::main(&arguments[1..]);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let number = arguments.iter().find_map(|argument| argument.strip_prefix("--repeats=")?.parse().ok());
    let only = arguments.iter().find_map(|argument| argument.strip_prefix("--only="));
    let extent = Extent {
        quick,
        repeats: number.unwrap_or(if quick { 3 } else { 5 }),
        only: only.map(|only| only.split(',').map(ToOwned::to_owned).collect()).unwrap_or_default(),
    };
    let place = Place::new();
    if let Err(why) = &place.host {
        say(&format!("no engine, so its rows are left out: {why}"));
    }
    let mut report = Report::new(&extent);
    for (name, group) in GROUPS {
        if extent.only.is_empty() || extent.only.iter().any(|only| only == name) {
            say(&format!("== {name}"));
            group(&place, &extent, &mut report);
            // What was found so far is kept, whatever becomes of the rest.
            report.write(&place.out);
        }
    }
    println!("{}", report.table());
    say(&format!("written to {}", place.out.display()));
    ExitCode::SUCCESS
}
