//! Processes as `/proc` tells them: who they are, whose children, and how to end a whole tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::facts::ProcessId;

/// What one line of `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    start_ticks: u64,
}

/// The name of the program stands in parentheses and may itself hold any byte, so fields are counted from the last one.
fn parse(line: &str) -> Option<Stat> {
    let rest = line.get(line.rfind(')')? + 1..)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of the whole line; `state` is field 3.
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start_ticks })
}

fn stat(pid: i32) -> Option<Stat> {
    // A program's name need not be UTF-8.
    parse(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// A living process by its number.
pub(super) fn identify(pid: i32) -> Option<ProcessId> {
    stat(pid).map(|stat| ProcessId { pid, start_ticks: stat.start_ticks })
}

/// Whether that very process lives; a zombie does not.
pub(super) fn lives(process: ProcessId) -> bool {
    stat(process.pid).is_some_and(|stat| stat.start_ticks == process.start_ticks && !matches!(stat.state, 'Z' | 'X'))
}

/// Sends a signal to that very process; to one that is gone, nothing.
pub(super) fn signal(process: ProcessId, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(process.pid) else { return Ok(()) };
    let gone = |error: rustix::io::Errno| if error == rustix::io::Errno::SRCH { Ok(()) } else { Err(error.into()) };
    // The descriptor is for whoever has the number now; who that is, is looked at afterwards, when it cannot change.
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(error) => return gone(error),
    };
    if !lives(process) {
        return Ok(());
    }
    pidfd_send_signal(&handle, signal).or_else(gone)
}

fn all() -> BTreeMap<i32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?))).collect()
}

/// Every living descendant of a process.
pub(super) fn descendants(root: i32) -> Vec<ProcessId> {
    let all = all();
    let mut known = BTreeSet::from([root]);
    loop {
        let before = known.len();
        known.extend(
            all.iter().filter(|(_, stat)| known.contains(&stat.parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
        );
        if known.len() == before {
            break;
        }
    }
    known.remove(&root);
    let living = |pid: &i32| all.get(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X'));
    known.iter().filter_map(|pid| Some(ProcessId { pid: *pid, start_ticks: living(pid)?.start_ticks })).collect()
}

/// Every living process whose environment at its start held `NAME=value`. One that has cleared it is not found.
pub(super) fn marked(name: &str, value: &str) -> Vec<ProcessId> {
    let mark = format!("{name}={value}").into_bytes();
    let has = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == mark)
    };
    let all = all();
    let living = all.iter().filter(|(_, stat)| !matches!(stat.state, 'Z' | 'X'));
    living
        .filter(|(pid, _)| has(pid))
        .map(|(pid, stat)| ProcessId { pid: *pid, start_ticks: stat.start_ticks })
        .collect()
}

/// This boot.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_may_hold_anything() {
        let line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1";
        assert_eq!(parse(line), Some(Stat { state: 'S', parent: 7, start_ticks: 12345 }));
        assert_eq!(parse("42 (a"), None);
        assert_eq!(parse("42 (a) S 7"), None);
    }

    #[test]
    fn a_number_alone_is_no_process() {
        let me = identify(i32::try_from(std::process::id()).expect("a pid")).expect("lives");
        assert!(lives(me));
        let other = ProcessId { start_ticks: me.start_ticks + 1, ..me };
        assert!(!lives(other));
        // A KILL that must not reach us.
        signal(other, Signal::KILL).expect("nothing to do");
    }
}
