//! The first process inside: sets the confinement up, gives all privileges up, starts the command, reaps what it leaves
//! behind and tells how it ended. In a pid namespace it is process 1, and with it ends all that is inside.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal, wait,
};
use serde::Serialize;

use super::cgroup;
use super::confine::{self, Confinement, Outer};
use super::facts::{Order, Prepare, Refused, Report, Spec};
use super::folder::MARK;
use super::settings::Avoid;

/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the mode; the supervisor is at the other end of standard input.
pub(super) fn run() -> ExitCode {
    match inside() {
        Ok(()) => ExitCode::SUCCESS,
        // Standard error is the command's log by now, where it is of use to whoever reads it.
        Err(error) => {
            writeln!(io::stderr(), "orchestrate: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

struct Wire {
    orders: BufReader<UnixStream>,
    reports: UnixStream,
}

impl Wire {
    /// Takes standard input over and leaves nothing in its place.
    fn take() -> io::Result<Self> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdin(fs::File::open("/dev/null")?)?;
        Ok(Self { orders: BufReader::new(stream.try_clone()?), reports: stream })
    }

    /// The next order; `None` where the supervisor is gone.
    fn order(&mut self) -> io::Result<Option<Order>> {
        let mut line = String::new();
        self.orders.read_line(&mut line)?;
        if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&line)?)) }
    }

    fn report(&mut self, report: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.reports.write_all(&line)
    }
}

fn inside() -> io::Result<()> {
    let mut wire = Wire::take()?;
    die_with_parent();
    let Some(Order::Prepare(prepare)) = wire.order()? else { return Ok(()) };
    let ready = match set_up(&prepare) {
        Ok(ready) => ready,
        Err(refused) => return wire.report(&Report::Refused(refused)),
    };
    wire.report(&Report::Ready { confinement: ready.confinement })?;
    let Some(Order::Go) = wire.order()? else { return Ok(()) };
    let mut command = ready.command;
    let code = match command.spawn() {
        Ok(child) => {
            let pid = Pid::from_child(&child);
            let Wire { orders, .. } = wire;
            std::thread::spawn(move || obey(orders, pid));
            let code = reap(pid)?;
            return Wire { orders: BufReader::new(wire.reports.try_clone()?), reports: wire.reports }
                .report(&Report::Ended { code });
        }
        Err(error) => {
            writeln!(io::stderr(), "exec {} failed: {error}", command.get_program().display())?;
            if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
        }
    };
    wire.report(&Report::Ended { code })
}

/// The kernel forgets it whenever privileges change, so it is asked again after.
fn die_with_parent() {
    set_parent_process_death_signal(Some(Signal::KILL)).ok();
}

fn obey(mut orders: BufReader<UnixStream>, command: Pid) {
    let mut line = String::new();
    loop {
        line.clear();
        match orders.read_line(&mut line) {
            Ok(n) if n > 0 => {
                if matches!(serde_json::from_str(&line), Ok(Order::Terminate)) {
                    kill_process_group(command, Signal::TERM).ok();
                }
            }
            // The supervisor is gone, and nobody would record an end.
            _ => {
                kill_process_group(command, Signal::KILL).ok();
                rustix::process::kill_process(getpid(), Signal::KILL).ok();
                return;
            }
        }
    }
}

/// Waits for the command's end, and meanwhile for all that it left to us.
fn reap(command: Pid) -> io::Result<i64> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(code) = code(status) {
                    return Ok(code);
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn code(status: WaitStatus) -> Option<i64> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))?;
    Some(i64::from(code))
}

struct Ready {
    confinement: Confinement,
    command: Command,
}

fn set_up(prepare: &Prepare) -> Result<Ready, Refused> {
    let Prepare { spec, env, confinement } = prepare;
    let mut confinement = confinement.clone();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Refused::machine(format!("prctl: {error}")))?;
    let home = env.get("HOME").map_or(Path::new(confine::HOME), Path::new);
    if confinement.mounts {
        confine::enter(spec.no_network).map_err(|error| Refused::machine(format!("namespaces: {error}")))?;
        if spec.no_network {
            loopback(&mut confinement);
        }
        confinement.notes.extend(confine::build(spec, home, confinement.pids)?);
    }
    let view = if confinement.mounts { View::own(spec, home) } else { View::machine(spec)? };
    if !confinement.pids {
        // What the command leaves behind must come to somebody who ends it.
        set_child_subreaper(Some(getpid())).map_err(|error| Refused::machine(format!("subreaper: {error}")))?;
    }
    let pids = (confinement.user_namespace && !confinement.limits.iter().any(|limit| limit == "pids"))
        .then_some(u64::from(spec.limits.pids));
    confine::limit(spec.limits.file_size, pids).map_err(|error| Refused::machine(format!("limits: {error}")))?;
    let user = spec.user;
    confine::renounce(user).map_err(|error| {
        let who = user.map_or_else(|| "nobody".to_owned(), |(uid, gid)| format!("{uid}:{gid}"));
        Refused::machine(format!("cannot run as {who}: {error}"))
    })?;
    confinement.no_new_privs = true;
    die_with_parent();
    if !spec.avoid.landlock {
        match confine::restrict(&view.writable) {
            Ok(version) => confinement.landlock = version,
            Err(error) => return Err(Refused::machine(format!("Landlock: {error}"))),
        }
    }
    Ok(Ready { command: view.command(spec, env)?, confinement })
}

/// A network namespace begins with its loopback down, and only root's tools can raise it.
fn loopback(confinement: &mut Confinement) {
    let raised = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .env("PATH", DEFAULT_PATH)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !raised.is_ok_and(|status| status.success()) {
        confinement.notes.push("loopback: it is down, since there is no `ip` to raise it".to_owned());
    }
}

/// What the command sees, as far as we have to tell it.
struct View {
    home: PathBuf,
    temp: Option<PathBuf>,
    writable: Vec<PathBuf>,
    /// Where a bind's target is instead; empty where it is at its place.
    places: Vec<(PathBuf, PathBuf)>,
    /// Git's own variables where its files cannot be put in place.
    git: BTreeMap<String, PathBuf>,
}

impl View {
    fn own(spec: &Spec, home: &Path) -> Self {
        let mut writable: Vec<PathBuf> =
            spec.binds.iter().filter(|bind| !bind.read_only).map(|bind| bind.target.clone()).collect();
        writable.extend(["/tmp".into(), home.to_owned()]);
        writable.extend(devices());
        Self { home: home.to_owned(), temp: None, writable, places: Vec::new(), git: BTreeMap::new() }
    }

    /// Without mounts all is where the machine has it.
    fn machine(spec: &Spec) -> Result<Self, Refused> {
        let scratch = scratch(spec);
        let made = |error: io::Error| Refused::machine(format!("cannot make {}: {error}", scratch.display()));
        let (home, temp) = (scratch.join("home"), scratch.join("tmp"));
        for dir in [&scratch, &home, &temp] {
            match fs::DirBuilder::new().mode(0o700).create(dir) {
                // Of an earlier start that was refused; the folder of another user is not ours to enter.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other.map_err(made)?,
            }
            if let Some((uid, gid)) = spec.user {
                chown(dir, Some(uid), Some(gid)).map_err(made)?;
            }
        }
        let places: Vec<_> = spec.binds.iter().map(|bind| (bind.target.clone(), bind.source.clone())).collect();
        for bind in &spec.binds {
            fs::metadata(&bind.source)
                .map_err(|error| Refused::machine(format!("cannot use {}: {error}", bind.source.display())))?;
        }
        let mut writable: Vec<PathBuf> =
            spec.binds.iter().filter(|bind| !bind.read_only).map(|bind| bind.source.clone()).collect();
        writable.extend([home.clone(), temp.clone()]);
        writable.extend(devices());
        let mut view = Self { home, temp: Some(temp), writable, places, git: BTreeMap::new() };
        view.find_git(spec);
        Ok(view)
    }

    /// A file that would lie over the worktree's `.git` is read in git's stead.
    fn find_git(&mut self, spec: &Spec) {
        let Some(bind) = spec.binds.iter().find(|bind| bind.target == spec.workdir.join(".git")) else { return };
        let text = fs::read_to_string(&bind.source).unwrap_or_default();
        let dir = text.trim().strip_prefix("gitdir:").map_or("/dev/null", str::trim);
        self.git.insert("GIT_DIR".to_owned(), self.place(Path::new(dir)));
        self.git.insert("GIT_WORK_TREE".to_owned(), self.place(&spec.workdir));
    }

    /// Where a path inside really is.
    fn place(&self, path: &Path) -> PathBuf {
        let nearest =
            self.places.iter().filter_map(|(target, source)| Some((target, source, path.strip_prefix(target).ok()?)));
        match nearest.max_by_key(|(target, ..)| target.components().count()) {
            Some((_, source, rest)) if rest.as_os_str().is_empty() => source.clone(),
            Some((_, source, rest)) => source.join(rest),
            None => path.to_owned(),
        }
    }

    /// A word that is a path inside, as the path that it really is.
    fn word(&self, word: &str) -> std::ffi::OsString {
        if word.starts_with('/') { self.place(Path::new(word)).into_os_string() } else { OsStr::new(word).to_owned() }
    }

    fn command(&self, spec: &Spec, env: &BTreeMap<String, String>) -> Result<Command, Refused> {
        let Some((program, arguments)) = spec.command.split_first() else {
            return Err(Refused::machine("there is no command"));
        };
        let workdir = self.place(&spec.workdir);
        if !workdir.is_dir() {
            return Err(Refused { code: 127, error: format!("{} is not a directory", workdir.display()) });
        }
        let mut command = Command::new(self.word(program));
        command.args(arguments.iter().map(|word| self.word(word))).current_dir(&workdir).env_clear();
        command.env("PATH", DEFAULT_PATH).env("HOME", &self.home);
        if let Some(temp) = &self.temp {
            command.env("TMPDIR", temp);
        }
        command.envs(env.iter().map(|(name, value)| (name, self.word(value)))).envs(&self.git);
        if self.temp.is_some() {
            // Whatever home was asked for lies outside of what may be written.
            command.env("HOME", &self.home);
        }
        command.env(MARK, &spec.id).stdin(Stdio::null()).process_group(0);
        Ok(command)
    }
}

fn devices() -> impl Iterator<Item = PathBuf> {
    confine::DEVICES.iter().chain(&["shm", "pts", "ptmx"]).map(|name| Path::new("/dev").join(name))
}

/// Home and tmp of a command where none can be mounted.
pub(super) fn scratch(spec: &Spec) -> PathBuf {
    let (tag, _) = spec.id.split_once('.').unwrap_or((&spec.id, ""));
    Path::new("/tmp").join(format!("orchestrate-{tag}"))
}

/// Finds out what holds here by doing it, and prints it as JSON.
pub(super) fn probe(avoid: Option<&OsStr>) -> ExitCode {
    let avoid: Avoid =
        avoid.and_then(OsStr::to_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let told = serde_json::to_vec(&probed(avoid)).map_err(io::Error::from);
    match told.and_then(|told| io::stdout().write_all(&told)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn probed(avoid: Avoid) -> Confinement {
    let mut found = Confinement::default();
    if avoid.cgroups {
        found.notes.push("limits: not wanted".to_owned());
    } else {
        found.limits =
            cgroup::possible(&super::facts::Limits { cpus: 1.0, memory: 1 << 30, pids: 100, shm: None, file_size: 0 });
        for limit in ["cpus", "memory", "pids"].iter().filter(|limit| !found.limits.iter().any(|has| has == *limit)) {
            found.notes.push(format!("limit on {limit}: no control group of ours can be made here"));
        }
    }
    let outer = if avoid.namespaces { Outer::none(Some("namespaces: not wanted".to_owned())) } else { Outer::enter() };
    (found.pids, found.user_namespace) = (outer.pids, outer.user);
    found.notes.extend(outer.note);
    if outer.pids {
        match confine::enter(true).and_then(|()| confine::try_out()) {
            Ok(()) => (found.mounts, found.network) = (true, true),
            Err(error) => found.notes.push(format!("own file system view: {error}")),
        }
    }
    match confine::renounce(None) {
        Ok(()) => found.no_new_privs = true,
        Err(error) => found.notes.push(format!("no new privileges: {error}")),
    }
    match confine::restrict(&[]) {
        _ if avoid.landlock => found.notes.push("Landlock: not wanted".to_owned()),
        Ok(Some(version)) => found.landlock = Some(version),
        Ok(None) => found.notes.push("Landlock: this kernel has none, or it is switched off".to_owned()),
        Err(error) => found.notes.push(format!("Landlock: {error}")),
    }
    found
}
