//! What it costs to watch containers that only run.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::Extent;
use crate::place::Place;
use crate::report::{Report, Row};
use crate::shape::{Node, Shape};

const LISTEN: &str = "127.0.0.1:19464";

/// A field of `/proc/PID/io`.
fn io(pid: u32, name: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let field = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
    text.lines().find_map(field).unwrap_or(f64::NAN)
}

/// Processor seconds so far.
fn cpu(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<f64> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(1).filter_map(|f| f.parse().ok()).collect();
    // User and system time are fields 14 and 15 of the line, in hundredths of a second.
    fields.get(10).zip(fields.get(11)).map_or(f64::NAN, |(user, system)| (user + system) / 100.0)
}

/// Requests to the engine so far, by the program's own metrics.
fn requests() -> Option<f64> {
    let mut stream = TcpStream::connect(LISTEN).ok()?;
    stream
        .write_all(format!("GET /metrics HTTP/1.1\r\nHost: {LISTEN}\r\nConnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let counts = text.lines().filter(|line| line.starts_with("orchestrate_runtime_request_duration_seconds_count"));
    Some(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

fn running(place: &Place) -> usize {
    let Ok(host) = &place.host else { return 0 };
    let listed = std::process::Command::new("docker").args(["-H", host, "ps", "-q"]).output();
    listed.map_or(0, |output| output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count())
}

#[expect(clippy::disallowed_methods, reason = "time has to pass")]
fn pass(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

fn wait_for(place: &Place, count: usize) -> bool {
    (0..600).any(|_| {
        pass(1);
        running(place) >= count
    })
}

fn end(mut child: Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Containers that sleep, watched for a while.
pub(crate) fn rows(place: &Place, extent: &Extent, report: &mut Report) {
    if place.host.is_err() {
        return;
    }
    let (count, seconds) = if extent.quick { (20, 60) } else { (100, 300) };
    let race = format!("{count} running containers watched for {seconds} s");
    let node = |i: usize| Node { id: format!("t{i}"), needs: Vec::new(), seconds: 3600.0 };
    let shape = Shape { name: race.clone(), tasks: (0..count).map(node).collect() };
    let folder = place.repository(&shape, count, "none", "docker");
    let mut command = place.orchestrate(&folder, &["run", "--quiet", "--listen", LISTEN]);
    let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else { return };
    let pid = child.id();
    if !wait_for(place, count) {
        report.push(Row::absent(&race, "orchestrate", "the containers did not all start"));
        end(child);
        place.clear();
        return;
    }
    // The last of what the starts gave to do.
    pass(5);
    let before = (cpu(pid), io(pid, "write_bytes"), requests());
    pass(seconds);
    let after = (cpu(pid), io(pid, "write_bytes"), requests());
    let asked = before.2.zip(after.2).map_or(f64::NAN, |(before, after)| after - before);
    report.push(Row::figure(&race, "processor seconds", "s", &[after.0 - before.0], ""));
    report.push(Row::figure(&race, "requests to the engine", "calls", &[asked], "goal: those of the resync alone"));
    report.push(Row::figure(&race, "bytes written to disk", "B", &[after.1 - before.1], "goal: 0"));
    end(child);
    place.clear();
}
