//! A real Prometheus with the configuration that we ship, over a running daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::project::Project;
use crate::support::web::{Daemon, Running, call, free_port, program, succeeds, wait_for};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// All queries of the dashboards, with their panels.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for entry in fs::read_dir(deploy().join("grafana/dashboards")).expect("readable") {
        let text = fs::read_to_string(entry.expect("readable").path()).expect("reads");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        for panel in dashboard["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().expect("a query").replace("$project", ".*");
                queries.push((panel["title"].as_str().expect("a title").to_owned(), expression));
            }
        }
    }
    assert!(queries.len() > 15, "{queries:?}");
    queries
}

fn alerts() -> BTreeSet<String> {
    let text = fs::read_to_string(deploy().join("prometheus/alerts.yml")).expect("reads");
    text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

#[test]
fn configuration_and_rules_are_good_and_every_rule_does_what_its_test_says() {
    let Some(promtool) = program("promtool") else { return };
    let run =
        |arguments: &[&str]| succeeds(Command::new(&promtool).args(arguments).current_dir(deploy().join("prometheus")));
    run(&["check", "config", "prometheus.yml"]);
    run(&["check", "rules", "rules.yml", "alerts.yml"]);
    run(&["test", "rules", "tests.yml"]);
}

#[test]
fn every_rule_has_a_test_and_every_alert_a_section_in_the_runbook() {
    let read = |path: &str| fs::read_to_string(deploy().join(path)).expect("reads");
    let tests = read("prometheus/tests.yml");
    let runbook = read("../specs/runbook.md");
    let sections: BTreeSet<String> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## Orchestrate"))
        .map(|rest| format!("Orchestrate{rest}"))
        .collect();
    assert_eq!(sections, alerts());
    for alert in alerts() {
        assert!(tests.matches(&format!("alertname: {alert}\n")).count() >= 2, "{alert} is tested quiet and firing");
        assert!(
            read("prometheus/alerts.yml").contains(&format!("runbook: specs/runbook.md#{}\n", alert.to_lowercase()))
        );
    }
    for record in read("prometheus/rules.yml").lines().filter_map(|line| line.trim().strip_prefix("- record: ")) {
        assert!(tests.contains(record), "{record}");
    }
}

/// Prometheus with our configuration, its target and its haste changed.
struct Prometheus {
    address: String,
    _process: Running,
    _dir: TempDir,
}

impl Prometheus {
    fn over(daemon: &Daemon) -> Option<Self> {
        let prometheus = program("prometheus")?;
        let dir = tempfile::tempdir().expect("temp dir");
        for entry in fs::read_dir(deploy().join("prometheus")).expect("readable") {
            let path = entry.expect("readable").path();
            let text = fs::read_to_string(&path).expect("reads");
            let text = text.replace("127.0.0.1:9464", &daemon.address).replace("_interval: 15s", "_interval: 1s");
            fs::write(dir.path().join(path.file_name().expect("a name")), text).expect("writes");
        }
        let address = format!("127.0.0.1:{}", free_port());
        let process = Command::new(prometheus)
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        Some(Self { address, _process: Running(process), _dir: dir }.await_ready())
    }

    fn api(&self, path: &str) -> Option<Value> {
        let answer = call(&self.address, "GET", &format!("/api/v1/{path}"), None).ok()?;
        if answer["status"] == "success" { Some(answer["data"].clone()) } else { None }
    }

    /// Waits until it takes queries.
    fn await_ready(self) -> Self {
        wait_for("Prometheus", || self.api("query?query=1"));
        self
    }

    /// The series that a query gives now; fails where it is refused.
    #[track_caller]
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = call(&self.address, "GET", &format!("/api/v1/query?query={encoded}"), None).expect("answers");
        assert_eq!(answer["status"], "success", "{query}: {answer:#}");
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn prometheus_scrapes_a_daemon_and_answers_for_every_family_rule_and_panel() {
    let Some(promtool) = program("promtool") else { return };
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    project
        .plan(json!([{ "id": "a", "command": ["true"] }, { "id": "b", "dependencies": ["a"], "command": ["true"] }]));
    let daemon = Daemon::start(&project, &[]);
    wait_for("the first pass", || (daemon.get("/api/v1/status").status == 200).then_some(()));
    let Some(prometheus) = Prometheus::over(&daemon) else { return };
    wait_for("a good scrape", || (prometheus.query("up{job=\"orchestrate\"} == 1").len() == 1).then_some(()));
    let target = &prometheus.api("targets").expect("targets")["activeTargets"][0];
    assert_eq!((target["health"].as_str(), target["lastError"].as_str()), (Some("up"), Some("")), "{target:#}");
    let text = daemon.get("/metrics").body;
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').expect("a type");
        let series = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        assert!(!prometheus.query(&series).is_empty(), "{series}");
        let metadata =
            prometheus.api(&format!("metadata?metric={}", name.trim_end_matches("_total"))).expect("metadata");
        let known = metadata.as_object().into_iter().flat_map(|all| all.values()).next();
        // Its own answer for counters depends on the format that it scraped.
        if let Some(known) = known {
            assert_eq!(known[0]["type"], kind, "{name}");
        }
    }
    assert_eq!(prometheus.query("orchestrate_tasks{status=\"pending\"} == 2").len(), 1);
    let rules = wait_for("the rules to be evaluated", || {
        let rules = prometheus.api("rules")?;
        let all: Vec<Value> = rules["groups"]
            .as_array()?
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect();
        all.iter().all(|rule| rule["health"] == "ok").then_some(all)
    });
    assert!(rules.len() > alerts().len());
    for rule in &rules {
        assert!(rule["lastError"].is_null(), "{rule:#}");
    }
    wait_for("the engine's absence to be noticed", || {
        (!prometheus.query("ALERTS{alertname=\"OrchestrateEngineAway\"}").is_empty()).then_some(())
    });
    for (panel, query) in queries() {
        let found = prometheus.query(&query);
        // Without an engine nothing ever ends or is asked, so quantiles and failures have nothing to show.
        let may_be_empty = ["quantile", "_p", ":p", "increase", "rate", "> 0"].iter().any(|word| query.contains(word));
        assert!(may_be_empty || !found.is_empty(), "{panel}: {query} gives nothing");
    }
    drop(promtool);
}
