//! Every code has an invalid fixture whose report is pinned, and nothing of a fixture reaches a terminal raw.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use orchestrate::report::diagnostics::{Files, github, records, text};
use orchestrate::spec::{Accepted, Code, Diagnostic, Origin, Place, ReadOptions, Refused, read_both};
use proptest::prelude::*;

fn fixtures(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind)
}

/// The files of one case: `E0016-x.json`, `E0016-x.yaml`, or both.
#[derive(Debug, Default)]
struct Case {
    plan: Option<Vec<u8>>,
    spec: Option<Vec<u8>>,
}

fn cases(kind: &str) -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for entry in fs::read_dir(fixtures(kind)).expect("the folder is there") {
        let path = entry.expect("readable").path();
        let stem = path.file_stem().and_then(|s| s.to_str()).expect("a plain name").to_owned();
        let bytes = fs::read(&path).expect("readable");
        let case = cases.entry(stem).or_default();
        let extension = path.extension().and_then(|e| e.to_str());
        assert!(matches!(extension, Some("json" | "yaml")), "{}: neither JSON nor YAML", path.display());
        let file = if extension == Some("json") { &mut case.plan } else { &mut case.spec };
        *file = Some(bytes);
    }
    cases
}

impl Case {
    fn judge(&self) -> (Vec<Diagnostic>, usize, Vec<Place>) {
        match read_both(self.plan.as_deref(), self.spec.as_deref(), ReadOptions::default()) {
            Ok(Accepted { warnings, sensitive, .. }) => (warnings, 0, sensitive),
            Err(Refused { diagnostics, untold, sensitive, .. }) => (diagnostics, untold, sensitive),
        }
    }

    fn files<'a>(&'a self, sensitive: &[Place]) -> Files<'a> {
        let plan = self.plan.as_deref().map(|bytes| (Origin::Plan, ".agent-tasks.json", bytes));
        let spec = self.spec.as_deref().map(|bytes| (Origin::Spec, "agent-tasks.yaml", bytes));
        Files::new(plan.into_iter().chain(spec), sensitive)
    }

    fn render(&self, color: bool) -> String {
        let (diagnostics, untold, sensitive) = self.judge();
        text(&self.files(&sensitive), &diagnostics, untold, color, 120)
    }
}

/// What no terminal may be sent: control characters but the line end, and marks that turn the direction of text.
fn raw(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[test]
fn every_fixture_is_told_with_its_code() {
    for (name, case) in cases("invalid") {
        let rendered = case.render(false);
        insta::assert_snapshot!(name.clone(), rendered);
        let (diagnostics, ..) = case.judge();
        let code = name.split('-').next().expect("a code in front");
        assert!(diagnostics.iter().any(|d| d.code.as_str() == code), "{name}:\n{rendered}");
        assert!(!rendered.chars().any(raw), "{name}: {rendered:?}");
        assert!(!rendered.contains("not-to-be-shown"), "{name}:\n{rendered}");
    }
}

#[test]
fn every_code_has_a_fixture() {
    let told: BTreeSet<String> =
        cases("invalid").keys().map(|name| name.split('-').next().unwrap_or_default().to_owned()).collect();
    // 64 MiB do not belong into a repository.
    let generated = Code::TooLarge;
    for code in Code::ALL.iter().filter(|code| **code != generated) {
        assert!(told.contains(code.as_str()), "no fixture for {code}");
    }
    let large = Case { plan: Some(vec![b' '; (64 << 20) + 1]), spec: None };
    let (diagnostics, ..) = large.judge();
    assert_eq!(diagnostics[0].code, generated);
    assert!(large.render(false).len() < 1000);
}

#[test]
fn valid_fixtures_are_accepted_without_a_word() {
    for (name, case) in cases("valid") {
        let (diagnostics, ..) = case.judge();
        assert_eq!(diagnostics, [], "{name}: {}", case.render(false));
    }
}

#[test]
fn other_programs_are_told_the_same() {
    let cases = cases("invalid");
    let case = &cases["E0016-unknown-dependency"];
    let (diagnostics, _, sensitive) = case.judge();
    let files = case.files(&sensitive);
    let json = serde_json::to_string_pretty(&records(&files, &diagnostics)).expect("plain data");
    insta::assert_snapshot!("records", json);
    insta::assert_snapshot!("github", github(&files, &diagnostics));
}

#[test]
fn colour_is_the_only_escape() {
    for (name, case) in cases("invalid") {
        let colored = case.render(true);
        let mut plain = String::new();
        let mut rest = colored.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            plain.push_str(before);
            let end = after.find(|c: char| !(c.is_ascii_digit() || c == ';')).expect("an end");
            assert_eq!(&after[end..=end], "m", "{name}");
            rest = &after[end + 1..];
        }
        plain.push_str(rest);
        assert!(!plain.chars().any(raw), "{name}: {plain:?}");
    }
}

#[test]
fn one_line_of_megabytes_is_shown_in_part() {
    let count = 20_000;
    let task = |i: usize| {
        let on = (i + 1) % count;
        format!("{{\"id\": \"t{i}\", \"prompt\": \"p\", \"dependencies\": [\"t{on}\"]}}")
    };
    let ring = (0..count).map(task).collect::<Vec<_>>().join(",");
    let plan = format!("{{\"tasks\": [{ring}, {{\"id\": \"last\", \"prompt\": \"p\", \"retries\": -1}}]}}");
    let case = Case { plan: Some(plan.into_bytes()), spec: None };
    let rendered = case.render(false);
    assert!(rendered.len() < 6000, "{}", rendered.len());
    assert!(rendered.contains("E0018") && rendered.contains("E0022"), "{rendered}");
}

/// Reads and renders; what it must not do is panic.
fn exercise(plan: Option<Vec<u8>>, spec: Option<Vec<u8>>) -> Result<(), TestCaseError> {
    let case = Case { plan, spec };
    let rendered = case.render(false);
    prop_assert!(!rendered.chars().any(raw), "{rendered:?}");
    let (diagnostics, _, sensitive) = case.judge();
    records(&case.files(&sensitive), &diagnostics);
    Ok(())
}

fn mutated() -> impl Strategy<Value = (Vec<u8>, bool)> {
    let files: Vec<(Vec<u8>, bool)> = cases("valid")
        .into_values()
        .chain(cases("invalid").into_values())
        .flat_map(|case| [case.plan.map(|p| (p, false)), case.spec.map(|s| (s, true))])
        .flatten()
        .filter(|(bytes, _)| bytes.len() < 10_000)
        .collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..6);
    (prop::sample::select(files), edits).prop_map(|((mut bytes, yaml), edits)| {
        for (at, byte, kind) in edits {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match kind {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, byte),
            }
        }
        (bytes, yaml)
    })
}

proptest! {
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200), yaml in any::<bool>()) {
        if yaml { exercise(None, Some(bytes))? } else { exercise(Some(bytes), None)? }
    }

    #[test]
    fn mutated_files_are_judged((bytes, yaml) in mutated(), other in mutated(), merge in any::<bool>()) {
        let other = (merge && other.1 != yaml).then_some(other.0);
        if yaml { exercise(other, Some(bytes))? } else { exercise(Some(bytes), other)? }
    }
}
