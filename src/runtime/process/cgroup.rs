//! Limits by control groups, version 2 or 1, where we may make some.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::facts::Limits;
use super::kin;

/// What was made for an attempt.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) paths: Vec<PathBuf>,
    /// What is limited.
    pub(super) limited: Vec<String>,
}

/// Where a hierarchy is mounted.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// `None`: version 2, which has all controllers.
    controllers: Option<Vec<String>>,
    mount: PathBuf,
    /// Which part of the hierarchy the mount shows.
    root: PathBuf,
}

/// Makes the groups of an attempt. What cannot be made is left out.
pub(super) fn make(id: &str, limits: &Limits) -> Groups {
    let mut groups = Groups::default();
    for own in own_groups() {
        let path = own.join(format!("orchestrate-{id}"));
        if fs::create_dir(&path).is_err() {
            continue;
        }
        let limited = limit(&path, limits);
        // A group of version 1 that limits nothing serves nothing.
        if limited.is_empty() && !path.join("cgroup.kill").exists() {
            fs::remove_dir(&path).ok();
            continue;
        }
        groups.limited.extend(limited);
        groups.paths.push(path);
    }
    groups
}

/// What could be limited here, by making and removing a group.
pub(super) fn possible(limits: &Limits) -> Vec<String> {
    let groups = make(&format!("probe-{:016x}", fastrand::u64(..)), limits);
    remove(&groups.paths);
    groups.limited
}

/// Our own place in each hierarchy.
fn own_groups() -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    places(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

fn places(mountinfo: &str, own: &str) -> Vec<PathBuf> {
    let hierarchies: Vec<Hierarchy> = mountinfo.lines().filter_map(hierarchy).collect();
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = hierarchies.iter().find(|hierarchy| match &hierarchy.controllers {
            None => names.is_empty(),
            Some(has) => names.split(',').any(|name| WANTED.contains(&name) && has.iter().any(|h| h == name)),
        })?;
        let inside = Path::new(path).strip_prefix(&found.root).ok()?;
        Some(found.mount.join(inside))
    };
    own.lines().filter_map(place).collect()
}

const WANTED: &[&str] = &["pids", "memory", "cpu"];

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let controllers = match after.next()? {
        "cgroup2" => None,
        "cgroup" => Some(after.nth(1)?.split(',').map(ToOwned::to_owned).collect()),
        _ => return None,
    };
    Some(Hierarchy { controllers, mount: mount.into(), root: root.into() })
}

/// Sets what can be set; the names of what is limited.
fn limit(group: &Path, limits: &Limits) -> Vec<String> {
    const PERIOD: u32 = 100_000;
    #[expect(clippy::cast_possible_truncation, reason = "a share of a period for any sensible number of cores")]
    let quota = ((limits.cpus * f64::from(PERIOD)) as i64).max(1_000);
    let (memory, pids) = (limits.memory.to_string(), limits.pids.to_string());
    let settings = [
        ("pids", "pids.max", pids),
        ("memory", "memory.max", memory.clone()),
        ("", "memory.swap.max", "0".to_owned()),
        ("memory", "memory.limit_in_bytes", memory.clone()),
        ("", "memory.memsw.limit_in_bytes", memory),
        ("cpus", "cpu.max", format!("{quota} {PERIOD}")),
        ("", "cpu.cfs_period_us", PERIOD.to_string()),
        ("cpus", "cpu.cfs_quota_us", quota.to_string()),
    ];
    let set = |(name, file, value): (&str, &str, String)| {
        let path = group.join(file);
        (path.exists() && fs::write(path, value).is_ok() && !name.is_empty()).then(|| name.to_owned())
    };
    settings.into_iter().filter_map(set).collect()
}

/// Moves a process into the groups.
pub(super) fn join(groups: &[PathBuf], pid: i32) -> io::Result<()> {
    groups.iter().try_for_each(|group| fs::write(group.join("cgroup.procs"), pid.to_string()))
}

/// Kills all that is in the groups; whether anything was.
pub(super) fn kill(groups: &[PathBuf]) -> bool {
    let mut any = false;
    for group in groups {
        let inside = members(group);
        any |= !inside.is_empty();
        if !inside.is_empty() && fs::write(group.join("cgroup.kill"), "1").is_err() {
            for process in inside {
                kin::signal(process, Signal::KILL).ok();
            }
        }
    }
    any
}

fn members(group: &Path) -> Vec<super::facts::ProcessId> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.parse().ok());
    pids.filter_map(kin::identify).filter(|process| kin::lives(*process)).collect()
}

/// Removes the groups; they are empty by then.
pub(super) fn remove(groups: &[PathBuf]) {
    for group in groups {
        fs::remove_dir(group).ok();
    }
}

/// Whether the kernel killed a process of the groups for memory.
pub(super) fn oom_killed(groups: &[PathBuf]) -> bool {
    let told = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
    };
    groups.iter().any(|group| told(group.join("memory.events")) || told(group.join("memory.oom_control")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_place_in_each_hierarchy() {
        let hybrid = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      42 31 0:39 / /tmp rw - tmpfs tmpfs rw,memory";
        let own = "6:freezer:/\n4:memory:/a/b\n0::/x\n1:name=systemd:/y";
        assert_eq!(
            places(hybrid, own),
            [PathBuf::from("/sys/fs/cgroup/memory/a/b"), "/sys/fs/cgroup/unified/x".into()]
        );
        // In a container the mount shows only the part below its root.
        let part = "41 31 0:38 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(places(part, "0::/docker/1/sub"), [PathBuf::from("/sys/fs/cgroup/sub")]);
        assert_eq!(places(part, "0::/elsewhere"), Vec::<PathBuf>::new());
    }
}
