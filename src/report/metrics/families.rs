//! Every family, and what moves it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus::proto::{LabelPair, MetricFamily};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::encode::{self, Format};
use crate::clock::{Moment, Now};
use crate::controller::{Beat, Reporter, Snapshot, Trouble};
use crate::record::{Entry, State, TaskRecord, Witness};
use crate::report::time;
use crate::runtime::{Operation, RequestSink};
use crate::status::{Reason, Status};

/// From a second to eight hours: agents work for minutes to hours.
const TASK_BUCKETS: &[f64] =
    &[1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0];
/// An engine needs some tenths of a second for a container, a large checkout seconds.
const LAUNCH_BUCKETS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// A pass is a pure decision.
const PASS_BUCKETS: &[f64] = &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
const REQUEST_BUCKETS: &[f64] =
    &[0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// Words of `result`: how a task can be over.
const RESULTS: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

/// Families that are the process's and not a plan's: they get no `project`.
const OF_PROCESS: [&str; 2] = ["orchestrate_build_info", "orchestrate_runtime_request_duration_seconds"];

/// All families. Every label value is there from the start, so that a rate begins at 0 and an alert has a series.
///
/// Nothing here is labelled with a task's id, title or message: the number of series does not grow with a plan.
pub struct Metrics {
    registry: Registry,
    project: Mutex<String>,
    tasks: IntGaugeVec,
    reasons: IntGaugeVec,
    stale: IntGauge,
    orphans: IntGauge,
    max_concurrent: Gauge,
    suspended: IntGauge,
    backoff: IntGauge,
    spec_valid: IntGauge,
    runtime_up: IntGauge,
    last_pass: Gauge,
    finished: IntCounterVec,
    attempts: IntCounterVec,
    errors: IntCounterVec,
    task_duration: Histogram,
    launch_duration: Histogram,
    pass_duration: Histogram,
    requests: HistogramVec,
}

/// Registration fails for bad or doubled names only, which the first use of any test would show.
const REGISTERS: &str = "BUG: names and labels of metrics are constants and differ";

struct Maker(Registry);

impl Maker {
    fn add<C: prometheus::core::Collector + Clone + 'static>(&self, collector: prometheus::Result<C>) -> C {
        let collector = collector.expect(REGISTERS);
        self.0.register(Box::new(collector.clone())).expect(REGISTERS);
        collector
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), &[label]))
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), &[label]))
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }
}

impl Metrics {
    /// Of a program of this version. `folder` names the plan until the first pass and where the file does not.
    pub fn new(version: &str, folder: &str) -> Self {
        let make = Maker(Registry::new());
        let build: GaugeVec = make.add(GaugeVec::new(
            Opts::new("orchestrate_build_info", "Always 1; the label tells the version."),
            &["version"],
        ));
        build.with_label_values(&[version]).set(1.0);
        let requests = HistogramOpts::new(
            "orchestrate_runtime_request_duration_seconds",
            "Time until the runtime answered a request, by what was asked; failed ones too.",
        );
        let metrics = Self {
            project: Mutex::new(folder.to_owned()),
            tasks: make.gauges("orchestrate_tasks", "Tasks of the plan by status.", "status"),
            reasons: make.gauges(
                "orchestrate_tasks_by_reason",
                "Tasks of the plan by the reason for which they stand where they stand.",
                "reason",
            ),
            stale: make.gauge("orchestrate_stale_containers", "Running tasks that have run longer than stale_after."),
            orphans: make
                .gauge("orchestrate_orphan_containers", "Running containers of ours that no task accounts for."),
            max_concurrent: make
                .add(Gauge::new("orchestrate_max_concurrent", "How many attempts may be live at once.")),
            suspended: make.gauge("orchestrate_suspended", "1 where the plan is suspended: nothing new is launched."),
            backoff: make.gauge("orchestrate_backoff_tasks", "Tasks that wait for a time after something failed."),
            spec_valid: make
                .gauge("orchestrate_spec_valid", "1 where the newest plan file is accepted, 0 where it is invalid."),
            runtime_up: make
                .gauge("orchestrate_runtime_up", "1 where the runtime that containers run in answers, else 0."),
            last_pass: make.add(Gauge::new(
                "orchestrate_last_reconcile_timestamp_seconds",
                "When a pass last succeeded, in seconds since 1970; 0: none has.",
            )),
            finished: make.counters(
                "orchestrate_tasks_finished_total",
                "Tasks that came to their end since the start, by how; one that is retried can end again.",
                "result",
            ),
            attempts: make.counters(
                "orchestrate_attempts_finished_total",
                "Attempts that ended since the start, by why; those that are retried too.",
                "reason",
            ),
            errors: make.counters(
                "orchestrate_reconcile_errors_total",
                "What did not work since the start and is tried again, by what it was.",
                "reason",
            ),
            task_duration: make.histogram(
                "orchestrate_task_duration_seconds",
                "How long attempts ran, from the container's start to its end.",
                TASK_BUCKETS,
            ),
            launch_duration: make.histogram(
                "orchestrate_launch_duration_seconds",
                "Time from a task being ready, with a slot, to its container running.",
                LAUNCH_BUCKETS,
            ),
            pass_duration: make.histogram(
                "orchestrate_reconcile_duration_seconds",
                "How long a pass took to read, decide and begin; effects go on beside it.",
                PASS_BUCKETS,
            ),
            requests: make.add(HistogramVec::new(requests.buckets(REQUEST_BUCKETS.to_vec()), &["operation"])),
            registry: make.0,
        };
        metrics.fill();
        metrics
    }

    fn fill(&self) {
        for status in Status::ALL {
            let _zero = self.tasks.with_label_values(&[status.as_str()]);
        }
        for reason in Reason::ALL {
            let _zero = self.reasons.with_label_values(&[reason.as_str()]);
            let _zero = self.attempts.with_label_values(&[reason.as_str()]);
        }
        for result in RESULTS {
            let _zero = self.finished.with_label_values(&[result.as_str()]);
        }
        for trouble in Trouble::ALL {
            let _zero = self.errors.with_label_values(&[trouble.as_str()]);
        }
        for operation in Operation::ALL {
            let _zero = self.requests.with_label_values(&[operation.as_str()]);
        }
    }

    /// Sets all gauges from one pass.
    pub fn set(&self, snapshot: &Snapshot) {
        let tasks = &snapshot.plan.tasks;
        let count = |is: &dyn Fn(&crate::status::TaskStatus) -> bool| {
            i64::try_from(tasks.iter().filter(|task| is(task)).count()).unwrap_or(i64::MAX)
        };
        for status in Status::ALL {
            self.tasks.with_label_values(&[status.as_str()]).set(count(&|task| task.status == status));
        }
        let mut reasons = std::collections::BTreeMap::new();
        for reason in tasks.iter().filter_map(|task| task.reason) {
            *reasons.entry(reason).or_insert(0i64) += 1;
        }
        for reason in Reason::ALL {
            let tasks = reasons.get(reason).copied().unwrap_or(0);
            self.reasons.with_label_values(&[reason.as_str()]).set(tasks);
        }
        self.stale.set(count(&|task| task.stale == Some(true)));
        self.backoff.set(count(&|task| {
            !task.status.is_final()
                && matches!(
                    task.reason,
                    Some(Reason::BackOff | Reason::RateLimited | Reason::Interrupted | Reason::TransientError)
                )
        }));
        self.orphans.set(i64::try_from(snapshot.plan.orphans.len()).unwrap_or(i64::MAX));
        self.max_concurrent.set(snapshot.tasks.max_concurrent.get().into());
        self.suspended.set(i64::from(snapshot.tasks.suspend));
        self.spec_valid.set(i64::from(snapshot.fault.is_none()));
        self.runtime_up.set(i64::from(snapshot.observed.unavailable.is_none()));
        if let Some(project) = &snapshot.tasks.project {
            self.project.lock().unwrap_or_else(PoisonError::into_inner).clone_from(project);
        }
    }

    fn beaten(&self, beat: &Beat) {
        self.pass_duration.observe(beat.took.as_secs_f64());
        match beat.trouble {
            None => self.last_pass.set(seconds(beat.at.wall)),
            Some(trouble) => self.count(trouble),
        }
    }

    fn count(&self, trouble: Trouble) {
        self.errors.with_label_values(&[trouble.as_str()]).inc();
    }

    /// What a scrape is told.
    pub fn text(&self, format: Format) -> String {
        encode::encode(&self.families(), format)
    }

    fn families(&self) -> Vec<MetricFamily> {
        self.families_as(&self.project())
    }

    fn project(&self) -> String {
        self.project.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn families_as(&self, project: &str) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        for family in families.iter_mut().filter(|family| !OF_PROCESS.contains(&family.name())) {
            for metric in family.mut_metric() {
                let mut labels = metric.take_label();
                let mut label = LabelPair::default();
                label.set_name("project".to_owned());
                label.set_value(project.to_owned());
                labels.insert(0, label);
                metric.set_label(labels);
            }
        }
        families
    }
}

/// What a scrape is told of several plans: the families of the process from `process`, all others from each plan. Plans of
/// one name get a number behind it, since two series of one name are none.
pub fn merged_text(process: &Metrics, plans: &[&Metrics], format: Format) -> String {
    let mut merged: std::collections::BTreeMap<String, MetricFamily> = std::collections::BTreeMap::new();
    for family in process.registry.gather().into_iter().filter(|family| OF_PROCESS.contains(&family.name())) {
        merged.insert(family.name().to_owned(), family);
    }
    let mut names: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    for plan in plans {
        let project = plan.project();
        let count = names.entry(project.clone()).or_default();
        *count += 1;
        let project = if *count == 1 { project } else { format!("{project} ({count})") };
        for mut family in plan.families_as(&project).into_iter().filter(|family| !OF_PROCESS.contains(&family.name())) {
            match merged.entry(family.name().to_owned()) {
                std::collections::btree_map::Entry::Vacant(entry) => drop(entry.insert(family)),
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().mut_metric().extend(family.take_metric());
                }
            }
        }
    }
    encode::encode(&merged.into_values().collect::<Vec<_>>(), format)
}

fn seconds(at: Timestamp) -> f64 {
    at.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64()
}

impl Witness for Metrics {
    /// Counts what a record changed, so that each end counts once however often it is told, and nothing that was in the
    /// journal at the start counts at all.
    fn recorded(&self, entry: &Entry, before: Option<&TaskRecord>, after: Option<&TaskRecord>) {
        let Some(after) = after else { return };
        if let (State::Done(status), false) = (&after.state, before.is_some_and(|before| before.state == after.state))
            && !matches!(entry, Entry::Taken { .. })
        {
            self.finished.with_label_values(&[status.as_str()]).inc();
        }
        let same_attempt = before.filter(|before| before.attempt == after.attempt);
        let was = same_attempt.and_then(|before| before.current.as_ref());
        let Some(current) = &after.current else { return };
        if let (Some(started), None) = (&current.started, was.and_then(|was| was.started.as_ref())) {
            self.launch_duration.observe(between(&current.intended, started).as_secs_f64());
        }
        if let (Some(end), None) = (&current.end, was.and_then(|was| was.end.as_ref())) {
            self.attempts.with_label_values(&[end.reason.as_str()]).inc();
            if let Some(started) = end.started_at.or(current.started.as_ref().map(|at| at.wall)) {
                self.task_duration.observe(time::between(started, end.finished_at).as_secs_f64());
            }
        }
    }
}

/// The time from one moment to another, monotonic within a boot.
fn between(from: &Moment, to: &Moment) -> Duration {
    let monotonic = Duration::from_millis(to.monotonic_ms);
    from.age(&Now { wall: to.wall, monotonic, boot_id: to.boot_id.clone() })
}

impl RequestSink for Metrics {
    fn requested(&self, operation: Operation, took: Duration) {
        self.requests.with_label_values(&[operation.as_str()]).observe(took.as_secs_f64());
    }
}

/// Shared by those who report and the one who serves.
impl Reporter for std::sync::Arc<Metrics> {
    fn pass(&mut self, snapshot: &Snapshot) {
        self.set(snapshot);
    }

    fn beat(&mut self, beat: &Beat) {
        self.beaten(beat);
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.count(trouble);
    }

    fn notice(&mut self, _: crate::controller::Level, _: &str) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observe::AttemptKey;
    use crate::record::{AttemptEnd, Ledger, Next};
    use crate::spec::TaskId;
    use crate::status::Request;

    fn moment(seconds: u64) -> Moment {
        let wall = Timestamp::from_second(i64::try_from(seconds).expect("small")).expect("in range");
        Moment { wall, monotonic_ms: seconds * 1_000, boot_id: "b".into() }
    }

    /// Applies records and tells them, as the journal does.
    fn tell(metrics: &Metrics, ledger: &mut Ledger, entry: &Entry) {
        let before = entry.task().and_then(|task| ledger.task(task)).cloned();
        ledger.apply(entry);
        metrics.recorded(entry, before.as_ref(), entry.task().and_then(|task| ledger.task(task)));
    }

    fn value(metrics: &Metrics, sample: &str) -> String {
        let text = metrics.text(Format::Text);
        let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no sample {sample} in\n{text}")).to_owned()
    }

    fn attempt(task: &str, attempt: u32) -> AttemptKey {
        AttemptKey { task: TaskId::new(task).expect("valid"), attempt }
    }

    fn ended(key: AttemptKey, reason: Reason, next: Next, started: Option<i64>) -> Entry {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let end = AttemptEnd {
            reason,
            message: String::new(),
            exit_code: Some(0),
            oom_killed: false,
            head: None,
            result: None,
            started_at: started.map(at),
            finished_at: at(100),
            log: None,
            log_error: None,
            verify_log: None,
            report: None,
        };
        Entry::Ended { key, end, next, at: moment(101) }
    }

    fn intent(key: &AttemptKey) -> Entry {
        let entry = serde_json::json!({
            "type": "intent", "key": key, "spec": "d", "host": "h", "at": moment(10),
            "terms": { "stale_after_ms": 1, "retry_initial_ms": 1, "retry_max_ms": 1 },
        });
        serde_json::from_value(entry).expect("a record")
    }

    #[test]
    fn an_end_is_counted_once_however_often_it_is_told_and_a_retry_is_no_end_of_the_task() {
        let metrics = Metrics::new("1", "p");
        let mut ledger = Ledger::default();
        let first = attempt("a", 1);
        tell(&metrics, &mut ledger, &intent(&first));
        tell(&metrics, &mut ledger, &Entry::Started { key: first.clone(), at: moment(12) });
        tell(&metrics, &mut ledger, &Entry::Started { key: first.clone(), at: moment(60) });
        let retry = Next::Retry { reason: Reason::BackOff, pause_ms: 0 };
        let end = ended(first, Reason::NonZeroExit, retry, Some(40));
        tell(&metrics, &mut ledger, &end);
        tell(&metrics, &mut ledger, &end);
        assert_eq!(value(&metrics, r#"orchestrate_attempts_finished_total{project="p",reason="NonZeroExit"}"#), "1");
        assert_eq!(value(&metrics, r#"orchestrate_tasks_finished_total{project="p",result="failed"}"#), "0");
        let second = attempt("a", 2);
        tell(&metrics, &mut ledger, &intent(&second));
        let end = ended(second, Reason::Succeeded, Next::Complete, None);
        tell(&metrics, &mut ledger, &end);
        tell(&metrics, &mut ledger, &end);
        assert_eq!(value(&metrics, r#"orchestrate_tasks_finished_total{project="p",result="completed"}"#), "1");
        assert_eq!(value(&metrics, r#"orchestrate_task_duration_seconds_sum{project="p"}"#), "60");
        assert_eq!(value(&metrics, r#"orchestrate_task_duration_seconds_count{project="p"}"#), "1");
        assert_eq!(value(&metrics, r#"orchestrate_launch_duration_seconds_sum{project="p"}"#), "2");
        assert_eq!(value(&metrics, r#"orchestrate_launch_duration_seconds_count{project="p"}"#), "1");
    }

    #[test]
    fn several_plans_are_one_exposition_without_a_doubled_series() {
        let (process, a, b, c) =
            (Metrics::new("1", ""), Metrics::new("1", "a"), Metrics::new("1", "b"), Metrics::new("1", "a"));
        process.requested(Operation::ALL[0], Duration::from_secs(1));
        let text = merged_text(&process, &[&a, &b, &c], Format::Text);
        let series: Vec<&str> =
            text.lines().filter(|l| !l.starts_with('#')).map(|l| l.rsplit_once(' ').expect("a sample").0).collect();
        let unique: std::collections::BTreeSet<&&str> = series.iter().collect();
        assert_eq!(unique.len(), series.len());
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        assert_eq!(heads.iter().collect::<std::collections::BTreeSet<_>>().len(), heads.len());
        for project in ["a", "b", "a (2)"] {
            assert!(text.contains(&format!("orchestrate_spec_valid{{project=\"{project}\"}} ")), "{text}");
        }
        assert_eq!(text.matches("orchestrate_build_info{").count(), 1);
    }

    #[test]
    fn what_is_cancelled_before_it_ran_counts_and_what_the_file_said_does_not() {
        let metrics = Metrics::new("1", "p");
        let mut ledger = Ledger::default();
        let task = TaskId::new("a").expect("valid");
        tell(&metrics, &mut ledger, &Entry::Taken { task: TaskId::new("b").expect("valid"), at: moment(1) });
        let cancel = Entry::Requested { task, request: Request::Cancel, at: moment(1) };
        tell(&metrics, &mut ledger, &cancel);
        tell(&metrics, &mut ledger, &cancel);
        assert_eq!(value(&metrics, r#"orchestrate_tasks_finished_total{project="p",result="cancelled"}"#), "1");
        assert_eq!(value(&metrics, r#"orchestrate_tasks_finished_total{project="p",result="completed"}"#), "0");
    }

    #[test]
    fn every_label_value_is_there_before_anything_happened() {
        let text = Metrics::new("1", "p").text(Format::Text);
        for status in Status::ALL {
            assert!(text.contains(&format!("orchestrate_tasks{{project=\"p\",status=\"{status}\"}} 0\n")), "{status}");
        }
        for reason in Reason::ALL {
            assert!(
                text.contains(&format!("orchestrate_attempts_finished_total{{project=\"p\",reason=\"{reason}\"}} 0\n"))
            );
        }
        for operation in Operation::ALL {
            let sample = format!("orchestrate_runtime_request_duration_seconds_count{{operation=\"{operation}\"}} 0\n");
            assert!(text.contains(&sample), "{operation}");
        }
    }

    #[test]
    fn a_pass_that_failed_is_no_success_and_is_counted() {
        let metrics = Arc::new(Metrics::new("1", "p"));
        let at =
            Now { wall: Timestamp::from_second(7).expect("in range"), monotonic: Duration::ZERO, boot_id: "b".into() };
        let mut reporter = Arc::clone(&metrics);
        let took = Duration::from_millis(2);
        reporter.beat(&Beat { at: at.clone(), took, trouble: None });
        let at = Now { wall: Timestamp::from_second(9).expect("in range"), ..at };
        reporter.beat(&Beat { at, took, trouble: Some(Trouble::PlanFile) });
        assert_eq!(value(&metrics, r#"orchestrate_last_reconcile_timestamp_seconds{project="p"}"#), "7");
        assert_eq!(value(&metrics, r#"orchestrate_reconcile_errors_total{project="p",reason="plan_file"}"#), "1");
        assert_eq!(value(&metrics, r#"orchestrate_reconcile_duration_seconds_count{project="p"}"#), "2");
    }
}
