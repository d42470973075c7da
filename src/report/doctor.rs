//! What stands in the way of a launch, and what is only not as it should be: judged from facts that were gathered. Pure.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use bytesize::ByteSize;
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Serialize;

use super::doctor_engine as engine;
use super::{escape, plural};
use crate::plan::DiskFloor;
use crate::record::Space;
use crate::runtime::EngineFacts;
use crate::spec::RuntimeKind;

/// Number of the form of `doctor -o json`.
const FORMAT: u32 = 1;

/// Everything that was looked at.
#[derive(Debug, Clone)]
pub struct DoctorFacts {
    /// Where attempts run.
    pub runtime: RuntimeKind,
    /// The engine's address.
    pub host: String,
    /// What the engine tells, or why it does not answer and what to do about it.
    pub engine: Result<EngineFacts, EngineAway>,
    /// The engine's clock less ours, where it tells its time.
    pub skew: Option<SignedDuration>,
    /// `git --version`; `None`: there is no git here.
    pub git: Option<String>,
    /// Our user.
    pub uid: u32,
    /// The plan file, where it is accepted: how many tasks; else what is wrong.
    pub plan: Result<usize, String>,
    /// What the tasks run, each once.
    pub agents: Vec<AgentFact>,
    /// Secrets, each once.
    pub secrets: Vec<SecretFact>,
    /// Folders that are ours or the repository's.
    pub places: Vec<PlaceFact>,
    /// File systems that are written to.
    pub disks: Vec<DiskFact>,
    /// Below this nothing is launched.
    pub floor: DiskFloor,
    /// Who holds the repository's lock.
    pub holder: Option<String>,
}

/// An engine that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineAway {
    /// Its or the transport's words.
    pub why: String,
    /// What to do.
    pub mend: Vec<String>,
}

/// An image and a command that tasks ask for.
#[derive(Debug, Clone)]
pub struct AgentFact {
    /// The profile.
    pub agent: String,
    /// The tasks.
    pub tasks: Vec<String>,
    /// The image; `None` for a runtime without.
    pub image: Option<String>,
    /// The first word of the command; `None`: the image's own.
    pub program: Option<String>,
    /// Whether the image is there; `None`: could not be asked.
    pub has_image: Option<bool>,
    /// Whether it is fetched at launch where it is missing.
    pub is_pulled: bool,
    /// Whether the command is in it; `None`: could not be told.
    pub has_program: Option<bool>,
    /// The command that makes a missing image be there.
    pub mend: String,
}

/// A secret that tasks ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFact {
    /// Its variable.
    pub name: String,
    /// The tasks.
    pub tasks: Vec<String>,
    /// Why it has no value.
    pub missing: Option<String>,
    /// What is unsafe about where it comes from.
    pub warnings: Vec<String>,
    /// Handed over as a variable of the container, which an inspection shows.
    pub is_visible: bool,
}

/// A folder or file and whom it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceFact {
    /// What it is, for people.
    pub what: &'static str,
    /// Where.
    pub path: PathBuf,
    /// `None`: it is not there yet.
    pub found: Option<Found>,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its owner.
    pub uid: u32,
    /// Whether it is a folder, no link to one.
    pub is_folder: bool,
    /// Whether we may write into it.
    pub is_writable: bool,
    /// How many of the entries right in it belong to someone else than its owner.
    pub foreign: usize,
}

/// A file system that is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFact {
    /// What is written there.
    pub what: &'static str,
    /// Where.
    pub path: PathBuf,
    /// What it has; `None`: cannot be told.
    pub space: Option<Space>,
    /// Whether launches wait while it is low.
    pub is_held: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// As it should be.
    Ok,
    /// Not as it should be; attempts are launched all the same.
    Warn,
    /// Something cannot be launched.
    Fail,
}

impl CheckStatus {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// What was looked at; one word of a closed set: `engine`, `runc`, `live-restore`, `limits`, `seccomp`, `clock`, `git`,
    /// `plan`, `image`, `command`, `secret`, `ownership`, `disk`, `lock`, `confinement`.
    pub check: &'static str,
    /// How it came out.
    pub status: CheckStatus,
    /// What was found, in one sentence.
    pub what: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

impl Check {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Ok, what: what.into(), mend: None }
    }

    pub(super) fn warn(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Warn, what: what.into(), mend: Some(mend.into()) }
    }

    pub(super) fn fail(check: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, status: CheckStatus::Fail, what: what.into(), mend: Some(mend.into()) }
    }
}

/// All checks: the JSON of `orchestrate doctor -o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Doctor {
    /// Number of this form.
    pub format: u32,
    /// The worst that was found.
    pub status: CheckStatus,
    /// The checks, in the order in which a launch meets them.
    pub checks: Vec<Check>,
}

impl Doctor {
    /// Judges.
    pub fn of(facts: &DoctorFacts) -> Self {
        let mut checks = engine::checks(facts);
        checks.push(engine::git(facts.git.as_deref()));
        checks.push(plan(facts));
        facts.agents.iter().for_each(|agent| agent_checks(agent, &mut checks));
        checks.extend(facts.secrets.iter().map(secret));
        checks.extend(facts.places.iter().map(|place| ownership(place, facts.uid)));
        checks.extend(facts.disks.iter().filter_map(|disk| disk_check(disk, facts.floor)));
        checks.push(lock(facts.holder.as_deref()));
        let status = checks.iter().map(|check| check.status).max().unwrap_or(CheckStatus::Ok);
        Self { format: FORMAT, status, checks }
    }

    /// Whether something cannot be launched.
    pub fn stops_launches(&self) -> bool {
        self.status == CheckStatus::Fail
    }

    /// For people, styled; lines are broken at `width` columns where there is one.
    pub fn text(&self, width: Option<u16>) -> String {
        let mut text = String::new();
        let mut put = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("BUG: writing to a string cannot fail");
        };
        let column = self.checks.iter().map(|check| check.check.len()).max().unwrap_or(0);
        let indent = 6 + column + 2;
        let room = width.map(|width| usize::from(width).saturating_sub(indent).max(24));
        for check in &self.checks {
            let style = style(check.status);
            let mut what = wrapped(&escape::line(&check.what), room).into_iter();
            let first = what.next().unwrap_or_default();
            put(format_args!("{style}{:4}{style:#}  {:column$}  {first}\n", check.status.as_str(), check.check));
            for line in what {
                put(format_args!("{:indent$}{line}\n", ""));
            }
            for (at, line) in check.mend.iter().flat_map(|mend| wrapped(&escape::line(mend), room)).enumerate() {
                put(format_args!("{:indent$}{}{line}\n", "", if at == 0 { "→ " } else { "  " }));
            }
        }
        let count = |status| self.checks.iter().filter(|check| check.status == status).count();
        let (warnings, failures) = (count(CheckStatus::Warn), count(CheckStatus::Fail));
        put(format_args!(
            "\n{} checks: {}, {}\n",
            self.checks.len(),
            match failures {
                0 => "nothing stops a launch".to_owned(),
                n => format!("{} in the way of a launch", plural(n, "fault", "faults")),
            },
            plural(warnings, "warning", "warnings"),
        ));
        text
    }
}

fn style(status: CheckStatus) -> Style {
    match status {
        CheckStatus::Ok => AnsiColor::Green.on_default(),
        CheckStatus::Warn => AnsiColor::Yellow.on_default().bold(),
        CheckStatus::Fail => AnsiColor::Red.on_default().bold(),
    }
}

fn wrapped(text: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("BUG: never empty");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}

/// A few of the tasks by name.
fn named(tasks: &[String]) -> String {
    let shown: Vec<&str> = tasks.iter().take(3).map(String::as_str).collect();
    let more = tasks.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if more > 0 { format!("{list} and {more} more") } else { list }
}

fn plan(facts: &DoctorFacts) -> Check {
    match &facts.plan {
        Ok(tasks) => Check::ok("plan", format!("the plan file is accepted: {}", plural(*tasks, "task", "tasks"))),
        Err(why) => Check::fail("plan", why, "`orchestrate validate` shows every fault with its line"),
    }
}

fn agent_checks(agent: &AgentFact, checks: &mut Vec<Check>) {
    let tasks = named(&agent.tasks);
    let place = agent.image.as_ref().map_or_else(|| "this machine".to_owned(), |image| format!("image {image}"));
    if let Some(image) = &agent.image {
        match agent.has_image {
            Some(true) => checks.push(Check::ok("image", format!("{image} is there ({}: {tasks})", agent.agent))),
            Some(false) if agent.is_pulled => {
                let what = format!("{image} is missing; it is pulled when {tasks} is launched");
                checks.push(Check::warn("image", what, &agent.mend));
                return;
            }
            Some(false) => {
                checks.push(Check::fail("image", format!("{image} is missing; {tasks} cannot run"), &agent.mend));
                return;
            }
            None => return,
        }
    }
    let program = agent.program.as_deref().unwrap_or("a command of its own");
    match agent.has_program {
        Some(true) => checks.push(Check::ok("command", format!("{place} has {program}"))),
        Some(false) => checks.push(Check::fail(
            "command",
            format!("{place} has not {program}, which {tasks} would run"),
            "put it into the image, or set `command`",
        )),
        None => {}
    }
}

fn secret(secret: &SecretFact) -> Check {
    let tasks = named(&secret.tasks);
    if let Some(why) = &secret.missing {
        let what = format!("{} has no value, so that {tasks} cannot run: {why}", secret.name);
        return Check::fail("secret", what, format!("set {} where orchestrate runs, or write its file", secret.name));
    }
    if let Some(warning) = secret.warnings.first() {
        let (what, mend) = warning.split_once("; ").unwrap_or((warning, "`chmod 600` it"));
        return Check::warn("secret", what, mend);
    }
    if secret.is_visible {
        let what = format!("{} is a variable of its containers: whoever may use the engine can see it", secret.name);
        let mend = "where the agent can read a file, hand it over with `\"as\": \"file\"`";
        return Check { mend: Some(mend.to_owned()), ..Check::ok("secret", what) };
    }
    Check::ok("secret", format!("{} is there and handed over as a file", secret.name))
}

fn ownership(place: &PlaceFact, uid: u32) -> Check {
    let path = place.path.display();
    let Some(found) = place.found else { return Check::ok("ownership", format!("{} is not made yet", place.what)) };
    if !found.is_folder {
        let what = format!("{} {path} is no folder of its own (a link, or a file)", place.what);
        return Check::fail("ownership", what, "move it away");
    }
    if !found.is_writable {
        let what = format!("user {uid} may not write into {} {path}, which belongs to user {}", place.what, found.uid);
        return Check::fail("ownership", what, "run as that user, or give the folder to yours");
    }
    if found.foreign > 0 {
        let things = plural(found.foreign, "entry", "entries");
        let what = format!("in {} {path}: {things} of somebody else than its user {}", place.what, found.uid);
        return Check::warn("ownership", what, format!("`sudo chown -R {} {path}`", found.uid));
    }
    Check::ok("ownership", format!("{} belongs to user {} and can be written", place.what, found.uid))
}

fn disk_check(disk: &DiskFact, floor: DiskFloor) -> Option<Check> {
    let space = disk.space?;
    let path = disk.path.display();
    let free = format!("{} free", ByteSize(space.free_bytes));
    let inodes = if space.has_inodes() { format!(" and {} inodes", space.free_inodes) } else { String::new() };
    let what = format!("{} ({path}): {free}{inodes}", disk.what);
    Some(match floor.shortage(&space) {
        Some(_) if !disk.is_held => Check::warn("disk", what, "make room there (`docker image prune`)"),
        Some(_) => {
            let mend = format!("make room there; launches wait while less than {floor} is free (`--disk-floor`)");
            Check::fail("disk", what, mend)
        }
        None if space.free_bytes < floor.bytes.saturating_mul(3) => {
            Check::warn("disk", what, format!("make room there: below {floor} nothing is launched"))
        }
        None => Check::ok("disk", what),
    })
}

fn lock(holder: Option<&str>) -> Check {
    match holder {
        Some(holder) => Check::ok("lock", format!("held by {holder}: it launches, another one cannot")),
        None => Check::ok("lock", "nobody reconciles this repository now"),
    }
}

/// How far a clock may be off before it matters to what is recorded and shown.
pub(super) const MOST_SKEW: Duration = Duration::from_secs(5);
