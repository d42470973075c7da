//! The families as a scrape sees them: names, types and labels are a contract with dashboards and alerts.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use orchestrate::report::{Metrics, MetricsFormat};

use crate::support::web::program;

/// For each family its type, its labels and how many series it has.
fn families(text: &str) -> BTreeMap<String, (String, Vec<String>, usize)> {
    let mut families = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a type");
        families.insert(name.to_owned(), (kind.to_owned(), Vec::new(), 0));
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let of = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let family = of.filter(|name| families.contains_key(*name)).unwrap_or(name);
        let (_, labels, series) = families.get_mut(family).expect("a typed family");
        *series += 1;
        for pair in line.split(['{', '}']).nth(1).unwrap_or_default().split("\",") {
            let label = pair.split('=').next().unwrap_or_default().to_owned();
            if !label.is_empty() && label != "le" && !labels.contains(&label) {
                labels.push(label);
            }
        }
    }
    families
}

fn text() -> String {
    Metrics::new("1.2.3", "shop").text(MetricsFormat::Text)
}

#[test]
fn names_types_labels_and_numbers_of_series_stay() {
    let lines: Vec<String> = families(&text())
        .into_iter()
        .map(|(name, (kind, labels, series))| format!("{name} {kind} {{{}}} {series}", labels.join(",")))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn specs_metrics_md_lists_every_family_with_its_type_and_labels() {
    let specs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("specs/metrics.md")).expect("reads");
    let rows: BTreeMap<String, (String, String)> = specs
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `orchestrate_")?.split('|').map(str::trim);
            let name = format!("orchestrate_{}", cells.next()?.trim_end_matches('`'));
            Some((name, (cells.next()?.to_owned(), cells.next()?.replace('`', ""))))
        })
        .collect();
    let found: BTreeMap<String, (String, String)> =
        families(&text()).into_iter().map(|(name, (kind, labels, _))| (name, (kind, labels.join(", ")))).collect();
    assert_eq!(rows, found);
}

#[test]
fn promtool_has_nothing_to_say() {
    let Some(promtool) = program("promtool") else { return };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(text().as_bytes()).expect("takes it");
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
