//! What needs no engine: how fast commands answer, and plans over processes.

use std::fs;
use std::process::Command;

use crate::Extent;
use crate::measure::{Cost, run};
use crate::place::{PROGRAM, Place};
use crate::report::{Report, Row};
use crate::shape::Shape;

/// Takes turns over commands that are made anew each time.
fn turns(names: &[&str], repeats: usize, make: impl Fn(usize) -> Command) -> Vec<Result<Vec<Cost>, String>> {
    let mut costs: Vec<Result<Vec<Cost>, String>> = vec![Ok(Vec::new()); names.len()];
    for _ in 0..repeats {
        for (i, costs) in costs.iter_mut().enumerate() {
            let Ok(so_far) = costs else { continue };
            match run(&mut make(i)) {
                Ok(cost) => so_far.push(cost),
                Err(why) => *costs = Err(why),
            }
        }
    }
    costs
}

fn report_all(
    report: &mut Report,
    race: &str,
    names: &[&str],
    costs: &[Result<Vec<Cost>, String>],
    first: usize,
    note: &str,
) {
    let against = costs[first].as_ref().map_or(&[][..], |costs| costs);
    for (i, (name, result)) in names.iter().zip(costs).enumerate() {
        match result {
            Ok(these) => report.push(Row::costs(race, name, these, against, if i == 0 { note } else { "" })),
            Err(why) => report.push(Row::absent(race, name, why)),
        }
    }
}

/// Whole commands, from their start to their end.
pub(crate) fn startup(place: &Place, extent: &Extent, report: &mut Report) {
    let hundred = place.repository(&Shape::layers(10, 10), 4, "none", "docker");
    let many = place.repository(&Shape::flat(10_000), 4, "none", "docker");
    let host = place.host.clone().unwrap_or_default();
    let names = ["docker ps", "status of 100 tasks", "validate 10,000 tasks", "git status", "--version"];
    let repeats = extent.repeats * 10;
    let costs = turns(&names, repeats, |i| match i {
        0 => {
            let mut command = Command::new("docker");
            command.args(["-H", &host, "ps"]);
            command
        }
        1 => place.orchestrate(&hundred, &["status"]),
        2 => place.orchestrate(&many, &["validate"]),
        3 => {
            let mut command = Command::new("git");
            command.arg("status").current_dir(&hundred);
            command
        }
        _ => place.orchestrate(&hundred, &["--version"]),
    });
    report_all(report, "whole commands", &names, &costs, 0, "goal for --version: <= 0.015 s");
    let size = fs::metadata(PROGRAM).map_or(f64::NAN, |meta| {
        #[expect(clippy::cast_precision_loss, reason = "a file's size")]
        let bytes = meta.len() as f64;
        bytes / f64::from(1 << 20)
    });
    report.push(Row::figure("the program's file", "orchestrate", "MiB", &[size], "goal: <= 20 MiB"));
}

/// Tasks of `true` as processes, against what starts processes and nothing else, and against what gives each a worktree too.
pub(crate) fn process(place: &Place, extent: &Extent, report: &mut Report) {
    let count = if extent.quick { 200 } else { 1_000 };
    let (shape, slots) = (Shape::flat(count), 8);
    let jobs = format!("-j{slots}");
    let make_in = |rule: &dyn Fn(usize) -> String| {
        let folder = place.folder();
        let names: Vec<String> = (0..count).map(|i| format!("t{i}")).collect();
        let rules: Vec<String> = (0..count).map(|i| format!("t{i}:\n\t@{}\n", rule(i))).collect();
        fs::write(folder.join("Makefile"), format!(".PHONY: all {0}\nall: {0}\n{1}", names.join(" "), rules.concat()))
            .expect("written");
        let mut command = Command::new("make");
        command.args(["-s", &jobs]).current_dir(folder);
        command
    };
    let names = [
        "orchestrate",
        "make, one process each",
        "make, as many processes as orchestrate",
        "make, git worktree add, true, commit",
    ];
    let costs = turns(&names, extent.repeats.min(3), |i| match i {
        0 => {
            let folder = place.repository(&shape, slots, "bridge", "process");
            place.orchestrate(&folder, &["run", "--until-done", "--quiet"])
        }
        1 => make_in(&|_| "/bin/true".to_owned()),
        // A supervisor, the first process inside, and the command.
        2 => make_in(&|_| "/bin/true; /bin/true; /bin/true".to_owned()),
        _ => {
            let repository = place.repository(&Shape::flat(1), 1, "bridge", "process");
            let repository = repository.display().to_string();
            make_in(&move |i| {
                format!(
                    "git -C {repository} worktree add -q -b agent/t{i} .worktrees/t{i} && cd {repository}/.worktrees/t{i} && true && \
                     git -c user.name=b -c user.email=b@b commit -q --allow-empty -m t{i}"
                )
            })
        }
    });
    let race = format!("{count} tasks of `true` as processes, {slots} at a time");
    report_all(report, &race, &names, &costs, 1, "goal: ratio <= 3");
}
