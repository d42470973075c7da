//! What a run of a program costs: wall time, processor time and peak memory of all its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

/// Between two looks at the memory of what runs.
const LOOK: Duration = Duration::from_millis(10);

/// What one run cost.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Cost {
    /// Seconds.
    pub(crate) wall: f64,
    /// Processor seconds of it and of its children, without the engine's.
    pub(crate) cpu: f64,
    /// MiB resident of all its processes together, at most.
    pub(crate) memory: f64,
}

fn children_cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("asked for what is there");
    let seconds = |time: nix::sys::time::TimeVal| {
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a benchmark")]
        let all = time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        all
    };
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Runs it to its end; an exit code other than 0 is told with the end of what it said.
pub(crate) fn run(command: &mut Command) -> Result<Cost, String> {
    let before = children_cpu();
    let name = command.get_program().to_string_lossy().into_owned();
    let output = tempfile::tempfile().map_err(|error| error.to_string())?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(output.try_clone().map_err(|error| error.to_string())?).stderr(errors);
    let began = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let over = AtomicBool::new(false);
    let pid = child.id();
    let (status, wall, memory) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| peak(pid, &over));
        let status = child.wait();
        let wall = began.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        (status, wall, looks.join().unwrap_or_default())
    });
    let status = status.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{name}: {status}: {}", last_words(output)));
    }
    Ok(Cost { wall, cpu: children_cpu() - before, memory })
}

fn last_words(mut output: fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut text = Vec::new();
    if output.rewind().and_then(|()| output.read_to_end(&mut text)).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

#[expect(clippy::disallowed_methods, reason = "a thread of its own looks now and then")]
fn peak(root: u32, over: &AtomicBool) -> f64 {
    let mut most: f64 = 0.0;
    while !over.load(Ordering::Relaxed) {
        most = most.max(resident(root));
        std::thread::sleep(LOOK);
    }
    most
}

/// MiB of a process and all its descendants. Pages that they share count for each.
fn resident(root: u32) -> f64 {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut pages: BTreeMap<u32, f64> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let Some(parent) = fields.get(1).and_then(|field| field.parse().ok()) else { continue };
        children.entry(parent).or_default().push(pid);
        pages.insert(pid, fields.get(21).and_then(|field| field.parse().ok()).unwrap_or(0.0));
    }
    let (mut todo, mut seen) = (vec![root], BTreeSet::new());
    let mut sum = 0.0;
    while let Some(pid) = todo.pop() {
        if seen.insert(pid) {
            sum += pages.get(&pid).copied().unwrap_or(0.0);
            todo.extend(children.get(&pid).into_iter().flatten());
        }
    }
    sum * 4096.0 / f64::from(1 << 20)
}

/// The middle one; the mean of both where there are two.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// By linear interpolation.
pub(crate) fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "few values"
    )]
    let (place, low) = (at * last as f64, (at * last as f64).floor() as usize);
    let rest = place.fract();
    sorted[low] + rest * (sorted[(low + 1).min(last)] - sorted[low])
}
