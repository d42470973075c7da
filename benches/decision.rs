//! What deciding costs, by the number of tasks: read, plan, a pass without change, one event and the plan after it, and
//! the write of the plan file. `cargo bench --bench decision`. Goals: linear growth; at 100,000 tasks a pass without
//! change within 150 ms; one event within 1 ms beside the file's write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use orchestrate::clock::{Clock as _, Now, SystemClock};
use orchestrate::observe::{AttemptKey, Observed, Observer};
use orchestrate::plan::{Inputs, Memory, Plan, plan};
use orchestrate::record::{Ledger, OsFiles, PlanFile};
use orchestrate::spec::{ReadOptions, TaskId, TaskSet, read};
use orchestrate::status::TaskStatus;

const COUNTS: [usize; 3] = [1_000, 10_000, 100_000];

/// About 500 bytes a task; each waits for two of a hundred earlier ones.
fn text(count: usize) -> String {
    let description = "Implement the part with care. ".repeat(10);
    let task = |i: usize| {
        let needs: BTreeSet<usize> = [i.checked_sub(100), i.checked_sub(101)].into_iter().flatten().collect();
        let needs: Vec<String> = needs.into_iter().map(|need| format!("\"t{need}\"")).collect();
        format!(
            "    {{\"id\": \"t{i}\", \"title\": \"Task number {i}\", \"description\": \"{description}\", \
             \"dependencies\": [{}], \"command\": [\"true\"]}}",
            needs.join(", ")
        )
    };
    let tasks: Vec<String> = (0..count).map(task).collect();
    format!("{{\n  \"max_concurrent\": 8,\n  \"tasks\": [\n{}\n  ]\n}}\n", tasks.join(",\n"))
}

struct World {
    text: String,
    tasks: Arc<TaskSet>,
    observed: Observed,
    ledger: Ledger,
    memory: Memory,
    now: Now,
}

impl World {
    fn new(count: usize) -> Self {
        let text = text(count);
        let tasks = read(text.as_bytes(), ReadOptions::default()).expect("valid").tasks;
        let mut observer = Observer::default();
        let _relist = observer.apply_list(Vec::new(), &BTreeSet::<AttemptKey>::new());
        Self {
            text,
            tasks: Arc::new(tasks),
            observed: observer.observed().clone(),
            ledger: Ledger::default(),
            memory: Memory::new(),
            now: SystemClock::new().now(),
        }
    }

    fn plan(&self) -> Plan {
        let Self { tasks, observed, ledger, memory, now, .. } = self;
        plan(&Inputs { tasks, observed, ledger, memory, frozen: false, now })
    }

    fn statuses(&self) -> HashMap<TaskId, TaskStatus> {
        let plan = self.plan();
        self.tasks.tasks.iter().zip(plan.tasks).map(|(spec, status)| (spec.id.clone(), status)).collect()
    }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decision");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    for count in COUNTS {
        let world = World::new(count);
        group.throughput(Throughput::Elements(u64::try_from(count).expect("few")));
        group.bench_with_input(BenchmarkId::new("read", count), &world, |bencher, world| {
            bencher.iter(|| black_box(read(world.text.as_bytes(), ReadOptions::default()).expect("valid")));
        });
        group.bench_with_input(BenchmarkId::new("plan", count), &world, |bencher, world| {
            bencher.iter(|| black_box(world.plan()));
        });
        // What the loop does when it is woken and nothing has changed: plans, and compares with what was told.
        let before = world.plan().tasks;
        group.bench_with_input(BenchmarkId::new("pass without change", count), &world, |bencher, world| {
            bencher.iter(|| black_box(world.plan().tasks == before));
        });
        publish(&mut group, &world, count);
    }
    group.finish();
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

fn publish(group: &mut Group<'_>, world: &World, count: usize) {
    let dir = tempfile::tempdir().expect("a temp folder");
    let path = dir.path().join(".agent-tasks.json");
    let statuses = world.statuses();
    let file = || PlanFile::new(Arc::new(OsFiles), path.clone(), dir.path().to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    group.bench_function(BenchmarkId::new("write", count), |bencher| {
        bencher.iter_batched(
            || write(&path, &world.text),
            |()| runtime.block_on(file().publish("p-1", &statuses, None)).expect("written"),
            BatchSize::PerIteration,
        );
    });
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a temp folder");
}

/// One event in a large plan: what the picture takes to hold it.
fn events(criterion: &mut Criterion) {
    use orchestrate::observe::{ContainerState, InstanceId, ObservedContainer, names};
    use orchestrate::runtime::RuntimeEvent;
    let mut group = criterion.benchmark_group("event");
    group.sample_size(20).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    for count in COUNTS {
        let instance = InstanceId("0123abcd".into());
        let container = |i: usize| {
            let key = AttemptKey { task: TaskId::new(&format!("t{i}")).expect("valid"), attempt: 1 };
            let labels: BTreeMap<String, String> = names::labels(&instance, "p-1", &key, "digest", "base");
            let state = ContainerState::Running;
            let get = |name: &str| labels.get(name).map(String::as_str);
            let role = names::role_of(get);
            ObservedContainer {
                id: format!("{i:064x}"),
                name: names::container(&instance, &key),
                key,
                plan: "p-1".into(),
                role,
                state,
            }
        };
        let mut observer = Observer::default();
        let _relist = observer.apply_list((0..count).map(container).collect(), &BTreeSet::new());
        let one = ObservedContainer { state: ContainerState::Exited, ..container(count / 2) };
        group.bench_function(BenchmarkId::new("taken in", count), |bencher| {
            bencher.iter(|| black_box(observer.apply_event(RuntimeEvent::Exited(one.clone()))));
        });
    }
    group.finish();
}

criterion_group!(benches, decisions, events);
criterion_main!(benches);
