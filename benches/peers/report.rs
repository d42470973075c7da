//! What was found: one table for people, JSON for programs, a page with drawings.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::measure::{Cost, median, quantile};
use crate::{Extent, draw};

/// Everything of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    quick: bool,
    repeats: usize,
    cores: usize,
    version: &'static str,
    rows: Vec<Row>,
}

/// One who raced, in one race.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Which race.
    pub(crate) race: String,
    /// Who.
    pub(crate) who: String,
    /// What is counted, with its unit: `s`, `ms`, `MiB`, `calls`.
    pub(crate) unit: &'static str,
    /// The middle, the lower and the upper quarter of all runs.
    pub(crate) median: Option<f64>,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    /// Processor seconds and MiB, where they were measured.
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
    /// Against the first of the race: the median of the ratios of runs that were made in the same turn.
    pub(crate) ratio: Option<f64>,
    /// What is aimed at, and anything else that is to be known.
    pub(crate) note: String,
}

impl Row {
    /// A plain figure.
    pub(crate) fn figure(race: &str, who: &str, unit: &'static str, values: &[f64], note: &str) -> Self {
        let some = |value: f64| value.is_finite().then_some(value);
        Self {
            race: race.to_owned(),
            who: who.to_owned(),
            unit,
            median: some(median(values)),
            low: some(quantile(values, 0.25)),
            high: some(quantile(values, 0.75)),
            cpu: None,
            memory: None,
            ratio: None,
            note: note.to_owned(),
        }
    }

    /// One who could not race.
    pub(crate) fn absent(race: &str, who: &str, why: &str) -> Self {
        let line = why.lines().next().unwrap_or_default();
        Self::figure(race, who, "s", &[], &format!("did not run: {line}"))
    }

    /// Runs with their costs.
    pub(crate) fn costs(race: &str, who: &str, costs: &[Cost], against: &[Cost], note: &str) -> Self {
        let wall: Vec<f64> = costs.iter().map(|cost| cost.wall).collect();
        let of = |part: fn(&Cost) -> f64| {
            Some(median(&costs.iter().map(part).collect::<Vec<_>>())).filter(|v| v.is_finite())
        };
        let ratios: Vec<f64> = costs.iter().zip(against).map(|(cost, first)| cost.wall / first.wall).collect();
        Self {
            cpu: of(|cost| cost.cpu),
            memory: of(|cost| cost.memory),
            ratio: Some(median(&ratios)).filter(|ratio| ratio.is_finite()),
            ..Self::figure(race, who, "s", &wall, note)
        }
    }

    /// With its ratio to another figure.
    pub(crate) fn against(mut self, other: Option<f64>) -> Self {
        self.ratio = self.median.zip(other).map(|(mine, other)| mine / other);
        self
    }
}

impl Report {
    pub(crate) fn new(extent: &Extent) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let version = env!("CARGO_PKG_VERSION");
        Self { quick: extent.quick, repeats: extent.repeats, cores, version, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Row) {
        crate::say(&line(&row));
        self.rows.push(row);
    }

    /// For a terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut race = "";
        for row in &self.rows {
            if row.race != race {
                race = &row.race;
                writeln!(text, "\n{race}").expect("a string");
            }
            writeln!(text, "{}", line(row)).expect("a string");
        }
        text
    }

    /// Keeps it in a folder.
    pub(crate) fn write(&self, out: &Path) {
        let json = serde_json::to_string_pretty(self).expect("plain data");
        fs::write(out.join("report.json"), json).expect("the target folder is ours");
        let mut races: Vec<&str> = self.rows.iter().map(|row| &*row.race).collect();
        races.dedup();
        let mut page = format!("{} runs of each, in turns, on {} cores.\n", self.repeats, self.cores);
        for (i, race) in races.into_iter().enumerate() {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.race == race).collect();
            write!(page, "\n### {race}\n\n").expect("a string");
            let timed: Vec<&Row> = rows.iter().copied().filter(|row| row.unit == rows[0].unit).collect();
            if timed.iter().filter(|row| row.median.is_some()).count() > 2 {
                let name = format!("race-{i}.svg");
                draw::bars(&out.join(&name), race, &timed);
                writeln!(page, "![{race}]({name})\n").expect("a string");
            }
            page.push_str(
                "| | median | quarters | ratio | CPU s | MiB | |\n| --- | --- | --- | --- | --- | --- | --- |\n",
            );
            for row in rows {
                let unit = row.unit;
                let figure = |value: Option<f64>, unit: &str| {
                    value.map_or_else(|| "–".to_owned(), |value| format!("{} {unit}", short(value)))
                };
                let spread = row
                    .low
                    .zip(row.high)
                    .map_or_else(|| "–".to_owned(), |(low, high)| format!("{}–{}", short(low), short(high)));
                writeln!(
                    page,
                    "| {} | {} | {spread} | {} | {} | {} | {} |",
                    row.who,
                    figure(row.median, unit),
                    figure(row.ratio, ""),
                    figure(row.cpu, ""),
                    figure(row.memory, ""),
                    row.note
                )
                .expect("a string");
            }
        }
        fs::write(out.join("report.md"), page).expect("the target folder is ours");
    }
}

/// Three digits that matter.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn line(row: &Row) -> String {
    let or = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{}{unit}", short(value)))
    };
    let spread =
        row.low.zip(row.high).map_or_else(String::new, |(low, high)| format!("{}..{}", short(low), short(high)));
    format!(
        "  {:<34} {:>10} {:>16} {:>7} {:>9} {:>9}  {}",
        row.who,
        or(row.median, &format!(" {}", row.unit)),
        spread,
        or(row.ratio, "x"),
        or(row.cpu, " cpu"),
        or(row.memory, " MiB"),
        row.note
    )
}
