//! Reading 100,000 tasks of about 500 bytes: `cargo bench --bench read`. Prints milliseconds and peak memory; the goals are
//! 500 ms and 250 MiB. Smaller plans come first, so that memory can be seen to grow with the file and no faster.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and says what it found"
)]

use std::fs;
use std::time::Instant;

use orchestrate::spec::{ReadOptions, read_both};

const TASKS: usize = 100_000;

fn plan(count: usize, dependency: impl Fn(usize) -> Option<usize>, more: impl Fn(usize) -> String) -> String {
    let description = "Implement the part with care. ".repeat(9);
    let task = |i: usize| {
        let on = dependency(i).map_or_else(String::new, |on| format!("\"task-{on}\""));
        let more = more(i);
        format!(
            "    {{\"id\": \"task-{i}\", \"title\": \"Task number {i}\", \"description\": \"{description}\", {more}\
             \"dependencies\": [{on}], \"status\": \"pending\", \"reason\": \"WaitingForDependencies\"}}"
        )
    };
    let tasks: Vec<String> = (0..count).map(task).collect();
    format!("{{\n  \"max_concurrent\": 8,\n  \"tasks\": [\n{}\n  ]\n}}\n", tasks.join(",\n"))
}

/// In MiB; the kernel's count for this process so far.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn yaml(count: usize) -> String {
    let description = "Implement the part with care. ".repeat(9);
    let task = |i: usize| {
        let on = i.checked_sub(1).map_or_else(String::new, |on| format!("task-{on}"));
        format!(
            "  - id: task-{i}\n    title: Task number {i}\n    description: {description}.\n    dependencies: [{on}]\n"
        )
    };
    format!("max_concurrent: 8\ntasks:\n{}", (0..count).map(task).collect::<String>())
}

fn measure(name: &str, count: usize, plan: Option<&str>, spec: Option<&str>) {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        let outcome = read_both(plan.map(str::as_bytes), spec.map(str::as_bytes), ReadOptions::default());
        let time = start.elapsed();
        if let Ok(accepted) = &outcome {
            assert_eq!(accepted.tasks.graph.topological().len(), count, "read, judged and ordered");
        }
        drop(outcome);
        time
    });
    let best = times.min().unwrap_or_default();
    let size: usize = plan.into_iter().chain(spec).map(str::len).sum();
    println!("{name:>9} {count:>7}: {:>4} ms, peak {} MiB, file {} MiB", best.as_millis(), peak(), size >> 20);
}

fn main() {
    let nothing = |_| String::new();
    for count in [TASKS / 4, TASKS / 2, TASKS] {
        measure("chain", count, Some(&plan(count, |i| i.checked_sub(1), nothing)), None);
        measure("star", count, Some(&plan(count, |i| (i > 0).then_some(0), nothing)), None);
    }
    let settings = |i: usize| format!("\"timeout\": \"{}m\", \"retries\": 2, ", i % 60 + 1);
    for (name, text) in [
        ("ring", plan(TASKS, |i| Some((i + 1) % TASKS), nothing)),
        ("unknown", plan(TASKS, |i| Some(TASKS + i), nothing)),
        ("settings", plan(TASKS, |i| i.checked_sub(1), settings)),
    ] {
        measure(name, TASKS, Some(&text), None);
    }
    let chain = plan(TASKS, |i| i.checked_sub(1), nothing);
    measure("yaml", TASKS, None, Some(&yaml(TASKS)));
    measure("both", TASKS, Some(&chain), Some(&yaml(TASKS)));
}
