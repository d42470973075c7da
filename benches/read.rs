//! Reading 100,000 tasks of about 500 bytes: `cargo bench --bench read`. Prints milliseconds and peak memory; the goals are
//! 500 ms and 250 MiB.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and says what it found"
)]

use std::fs;
use std::time::Instant;

use orchestrate::spec::{ReadOptions, read};

const TASKS: usize = 100_000;

fn plan(dependency: impl Fn(usize) -> Option<usize>, more: impl Fn(usize) -> String) -> String {
    let description = "Implement the part with care. ".repeat(9);
    let task = |i: usize| {
        let on = dependency(i).map_or_else(String::new, |on| format!("\"task-{on}\""));
        let more = more(i);
        format!(
            "    {{\"id\": \"task-{i}\", \"title\": \"Task number {i}\", \"description\": \"{description}\", {more}\
             \"dependencies\": [{on}], \"status\": \"pending\", \"reason\": \"WaitingForDependencies\"}}"
        )
    };
    let tasks: Vec<String> = (0..TASKS).map(task).collect();
    format!("{{\n  \"max_concurrent\": 8,\n  \"tasks\": [\n{}\n  ]\n}}\n", tasks.join(",\n"))
}

/// In MiB; the kernel's count for this process so far.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn measure(name: &str, text: &str) {
    let times = (0..5).map(|_| {
        let start = Instant::now();
        let outcome = read(text.as_bytes(), ReadOptions::default());
        let time = start.elapsed();
        drop(outcome);
        time
    });
    let best = times.min().unwrap_or_default();
    println!("{name:>10}: {:>4} ms, peak {} MiB, file {} MiB", best.as_millis(), peak(), text.len() >> 20);
}

fn main() {
    let nothing = |_| String::new();
    measure("chain", &plan(|i| i.checked_sub(1), nothing));
    measure("star", &plan(|i| (i > 0).then_some(0), nothing));
    measure("ring", &plan(|i| Some((i + 1) % TASKS), nothing));
    measure("unknown", &plan(|i| Some(TASKS + i), nothing));
    measure("settings", &plan(|i| i.checked_sub(1), |i| format!("\"timeout\": \"{}m\", \"retries\": 2, ", i % 60 + 1)));
}
