//! What `specs/reliability.md` says of tests is true: each one that it names is there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The rows of the tables below a heading: case and named tests.
fn rows(text: &str, heading: &str) -> Vec<(String, Vec<String>)> {
    let (_, below) = text.split_once(heading).expect("the heading is there");
    let rows =
        below.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| case") && !line.contains("---"));
    rows.map(|row| {
        let (case, tests) = row.trim_matches('|').split_once(" | ").expect("two columns");
        let named = tests.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect();
        (case.trim().to_owned(), named)
    })
    .collect()
}

/// The file of a test's modules: below `tests/suite/`, or below `src/` where it stands beside its code.
fn file(modules: &[&str]) -> PathBuf {
    match modules {
        [inner @ .., "tests"] => root().join("src").join(inner.join("/")).with_extension("rs"),
        _ => root().join("tests/suite").join(modules.join("/")).with_extension("rs"),
    }
}

/// Why a name is not that of a test.
fn fault(name: &str) -> Option<String> {
    let parts: Vec<&str> = name.split("::").collect();
    let (function, modules) = parts.split_last()?;
    let path = file(modules);
    let Ok(text) = fs::read_to_string(&path) else { return Some(format!("{name}: no file {}", path.display())) };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declared = |line: &&str| {
        let after = line.split_once("fn ").map_or("", |(_, after)| after);
        after.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let Some(at) = lines.iter().position(declared) else {
        return Some(format!("{name}: no such function in {}", path.display()));
    };
    // Either marked as one above its declaration, or listed in a macro that makes tests of such functions.
    let marks = ["#[test]", "#[tokio::test", "#[rstest"];
    let above = lines[..at].iter().rev().take_while(|line| **line != "}");
    let is_marked = above.into_iter().any(|line| marks.iter().any(|mark| line.starts_with(mark)));
    let is_listed = lines.iter().any(|line| line.strip_suffix(',') == Some(function));
    (!is_marked && !is_listed).then(|| format!("{name}: no test"))
}

#[test]
fn every_test_that_holds_a_case_is_there() {
    let text = fs::read_to_string(root().join("specs/reliability.md")).expect("readable");
    let rows = rows(&text, "## Cases");
    assert!(rows.len() > 50, "only {} rows were read", rows.len());
    let mut faults = Vec::new();
    for (case, tests) in &rows {
        if tests.is_empty() {
            faults.push(format!("{case}: nothing holds it"));
        }
        faults.extend(tests.iter().filter(|name| *name != "sim").filter_map(|name| fault(name)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    assert_eq!(fault("reliability::every_test_that_holds_a_case_is_there"), None);
    assert_eq!(fault("clock::tests::within_a_boot_the_wall_clock_does_not_count"), None);
    for wrong in ["reliability::rows", "reliability::every_test", "clock::tests::nothing", "nowhere::at_all"] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
}
