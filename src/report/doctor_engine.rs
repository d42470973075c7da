//! The part of `doctor` that judges the engine, the programs under it and git. Pure.

use super::doctor::{Check, DoctorFacts, MOST_SKEW};
use crate::runtime::EngineFacts;
use crate::spec::RuntimeKind;

/// A version, as far as it counts: three numbers, and whether it is a candidate of them.
type Version = (u32, u32, u32, bool);

/// Versions of a program that have a known way out or in: from which on, the first that has it mended.
type Range = (Version, Version);

/// runc before these lets a container reach its host: CVE-2024-21626 (before 1.1.12), and CVE-2025-31133, CVE-2025-52565
/// and CVE-2025-52881 (before 1.2.8, 1.3.3 and 1.4.0-rc.3).
const RUNC: [Range; 4] = [
    ((0, 0, 0, false), (1, 2, 0, false)),
    ((1, 2, 0, false), (1, 2, 8, false)),
    ((1, 3, 0, true), (1, 3, 3, false)),
    ((1, 4, 0, true), (1, 4, 0, false)),
];

/// git before these runs code of a hostile repository or lets it write elsewhere: CVE-2024-32002 and its kin, then
/// CVE-2025-48384 and its kin.
const GIT: [Range; 8] = [
    ((0, 0, 0, false), (2, 43, 7, false)),
    ((2, 44, 0, false), (2, 44, 4, false)),
    ((2, 45, 0, false), (2, 45, 4, false)),
    ((2, 46, 0, false), (2, 46, 4, false)),
    ((2, 47, 0, false), (2, 47, 3, false)),
    ((2, 48, 0, false), (2, 48, 2, false)),
    ((2, 49, 0, false), (2, 49, 1, false)),
    ((2, 50, 0, false), (2, 50, 1, false)),
];

/// Where a distribution mends an old number, the number does not say so.
const BACKPORTS: &str = "a distribution's package may carry the fix under an older number: its changelog tells";

pub(super) fn checks(facts: &DoctorFacts) -> Vec<Check> {
    let engine = match &facts.engine {
        Ok(engine) => engine,
        Err(away) => {
            let what = format!("the engine at {} does not answer: {}", facts.host, away.why);
            return vec![Check::fail("engine", what, away.mend.join("; or "))];
        }
    };
    let mut checks = vec![identity(facts, engine)];
    if facts.runtime == RuntimeKind::Process {
        checks.extend(confinement(engine));
    } else {
        checks.extend(engine.runc.as_deref().map(runc));
        checks.extend(live_restore(engine));
        checks.extend(seccomp(engine));
        checks.extend(rootless(engine));
    }
    checks.push(limits(engine));
    checks.extend(clock(facts));
    checks
}

fn identity(facts: &DoctorFacts, engine: &EngineFacts) -> Check {
    let info = &engine.info;
    let what = format!("{} {} at {}, API {}", info.name, info.version, facts.host, info.api_version);
    let api =
        info.api_version.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    match api {
        Some(api) if facts.runtime == RuntimeKind::Docker && api < (1u32, 41u32) => {
            Check::fail("engine", what, "API 1.41 is needed: Docker 20.10 or newer, Podman 4 or newer")
        }
        _ if info.name == "Podman" => {
            Check::warn("engine", what, "Podman's socket is used as it is; the tests are passed on Docker's engine")
        }
        _ => Check::ok("engine", what),
    }
}

fn runc(version: &str) -> Check {
    let what = format!("runc {version}");
    match parse(version) {
        None => Check::warn("runc", format!("{what}: no version that can be judged"), BACKPORTS),
        Some(found) if is_in(&RUNC, found) => Check::warn(
            "runc",
            format!(
                "{what} has known ways out of a container (CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881)"
            ),
            format!("update it to 1.2.8, 1.3.3 or newer; {BACKPORTS}"),
        ),
        Some(_) => Check::ok("runc", what),
    }
}

pub(super) fn git(version: Option<&str>) -> Check {
    let Some(text) = version else {
        return Check::warn("git", "there is no git here", "install it to look at and merge what the agents leave");
    };
    let number = text.trim().strip_prefix("git version ").unwrap_or(text.trim());
    match parse(number) {
        None => Check::warn("git", format!("git {number}: no version that can be judged"), BACKPORTS),
        Some(found) if is_in(&GIT, found) => Check::warn(
            "git",
            format!("git {number} may run code of a hostile repository (CVE-2024-32002, CVE-2025-48384)"),
            format!("update it before you clone or merge what an agent made; {BACKPORTS}"),
        ),
        Some(_) => Check::ok("git", format!("git {number}")),
    }
}

fn live_restore(engine: &EngineFacts) -> Option<Check> {
    Some(if engine.info.live_restore? {
        Check::ok("live-restore", "containers live on while the engine is down or updated")
    } else {
        Check::warn(
            "live-restore",
            "a restart of the engine ends every agent (its task is run again, and its unfinished work is kept)",
            "put `{ \"live-restore\": true }` into /etc/docker/daemon.json and reload the engine",
        )
    })
}

fn seccomp(engine: &EngineFacts) -> Option<Check> {
    Some(if engine.seccomp? {
        Check::ok("seccomp", "system calls are filtered")
    } else {
        Check::warn(
            "seccomp",
            "the engine filters no system calls: a container reaches more of the kernel",
            "use a kernel and an engine with seccomp",
        )
    })
}

fn rootless(engine: &EngineFacts) -> Option<Check> {
    engine.rootless?.then(|| {
        Check::warn(
            "engine",
            "it runs without root: users inside of a container are others outside, and limits need delegated control groups",
            "set `\"user\": \"0:0\"`, which is you outside, where files get a foreign owner",
        )
    })
}

fn limits(engine: &EngineFacts) -> Check {
    let all = [("memory", engine.memory_limit), ("pids", engine.pids_limit), ("cpus", engine.cpu_limit)];
    let of = |wanted: bool| -> Vec<&str> {
        all.iter().filter(|(_, found)| *found == Some(wanted)).map(|(name, _)| *name).collect()
    };
    let (held, lacking) = (of(true), of(false));
    let groups = engine.cgroup_version.as_ref().map(|version| format!(" (control groups v{version})"));
    let groups = groups.unwrap_or_default();
    if !lacking.is_empty() {
        let what = format!("limits on {} take no effect{groups}: an agent can take all there is", lacking.join(", "));
        return Check::warn("limits", what, "delegate these controllers to the engine, or turn them on at boot");
    }
    if held.is_empty() {
        return Check::warn(
            "limits",
            "the engine does not tell whether limits take effect",
            "`docker info` shows what it knows",
        );
    }
    Check::ok("limits", format!("limits on {} take effect{groups}", held.join(", ")))
}

fn clock(facts: &DoctorFacts) -> Option<Check> {
    let skew = facts.skew?;
    let seconds = skew.abs().as_secs();
    Some(if skew.unsigned_abs() <= MOST_SKEW {
        Check::ok("clock", "the engine's clock is ours")
    } else {
        let way = if skew.is_negative() { "behind" } else { "ahead of" };
        Check::warn(
            "clock",
            format!("the engine's clock is {seconds} s {way} ours: ages and times of its containers are off by that"),
            "set both clocks by NTP",
        )
    })
}

fn confinement(engine: &EngineFacts) -> Option<Check> {
    let held = engine.confinement.as_ref()?;
    let what = format!("{} (no container)", held.summary);
    Some(if !held.confines_writes && !held.allow_unconfined {
        let mend = "use a kernel with Landlock or user namespaces, an engine, or --allow-unconfined where the agent is trusted";
        Check::fail("confinement", what, mend)
    } else if held.confines_writes && held.lacks.is_empty() {
        Check::ok("confinement", what)
    } else {
        Check::warn("confinement", what, "where that is too little, use an engine: `\"runtime\": \"docker\"`")
    })
}

fn is_in(ranges: &[Range], found: Version) -> bool {
    // A candidate comes before its release.
    let order = |(major, minor, patch, candidate): Version| (major, minor, patch, !candidate);
    ranges.iter().any(|(from, to)| order(*from) <= order(found) && order(found) < order(*to))
}

/// The first three numbers of a version; what follows matters only where it marks a candidate.
fn parse(text: &str) -> Option<Version> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts = numbers.trim_end_matches('.').split('.').map(str::parse::<u32>);
    let major = parts.next()?.ok()?;
    let minor = parts.next()?.ok()?;
    let patch = parts.next().and_then(Result::ok).unwrap_or(0);
    Some((major, minor, patch, rest.trim_start_matches(['-', '~', '.']).starts_with("rc")))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::doctor::CheckStatus;
    use super::*;

    #[rstest]
    #[case("1.1.5", CheckStatus::Warn)]
    #[case("1.1.12+ds1-5", CheckStatus::Warn)]
    #[case("1.2.7", CheckStatus::Warn)]
    #[case("1.2.8", CheckStatus::Ok)]
    #[case("1.3.2", CheckStatus::Warn)]
    #[case("1.3.3", CheckStatus::Ok)]
    #[case("1.4.0-rc.1", CheckStatus::Warn)]
    #[case("1.4.0", CheckStatus::Ok)]
    #[case("spc", CheckStatus::Warn)]
    fn runc_versions(#[case] version: &str, #[case] status: CheckStatus) {
        assert_eq!(runc(version).status, status);
    }

    #[rstest]
    #[case(Some("git version 2.39.5"), CheckStatus::Warn)]
    #[case(Some("git version 2.43.7"), CheckStatus::Ok)]
    #[case(Some("git version 2.47.2.windows.1"), CheckStatus::Warn)]
    #[case(Some("git version 2.47.3"), CheckStatus::Ok)]
    #[case(Some("git version 2.50.1 (Apple Git-155)"), CheckStatus::Ok)]
    #[case(Some("git version 2.52.0.rc1"), CheckStatus::Ok)]
    #[case(None, CheckStatus::Warn)]
    fn git_versions(#[case] version: Option<&str>, #[case] status: CheckStatus) {
        assert_eq!(git(version).status, status);
    }
}
