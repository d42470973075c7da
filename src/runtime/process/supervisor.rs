//! One per attempt: keeps its environment, starts its command at most once, captures its output, ends it when asked, and
//! writes its end before its own. It needs nobody: whoever made it may be gone.
//!
//! A single thread, since namespaces are entered by a process as a whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, set_child_subreaper,
    set_dumpable_behavior, setsid, wait,
};

use super::capture::{FRAME, Sink};
use super::cell::scratch;
use super::cgroup::{self, Groups};
use super::confine::{Confinement, Outer};
use super::facts::{Answer, Ask, Ended, Hello, Order, Prepare, Refused, Report, Spec, Started};
use super::folder::{self, name};
use super::hidden::{HIDDEN, mode};
use super::kin;
use crate::clock::{Clock, SystemClock};
use crate::runtime::LogStream;

/// How long a client may take to say what it wants, and to take the answer.
const CLIENT: Duration = Duration::from_secs(2);
/// How long the confinement may take to be set up: it reads from the file systems that are mounted.
const SET_UP: Duration = Duration::from_mins(1);
/// How long output is waited for once everything that we know of has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two tries to write what must be written.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs the mode: in the attempt's folder, with a socket as standard input and the lock as standard output.
pub(super) fn run() -> ExitCode {
    match Supervisor::begin().and_then(Supervisor::supervise) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::FAILURE
        }
    }
}

struct Supervisor {
    /// Held for as long as we live.
    _lock: File,
    dir: PathBuf,
    spec: Spec,
    /// Until the command has it.
    env: BTreeMap<String, String>,
    outer: Outer,
    listener: UnixListener,
    clock: SystemClock,
    sink: Sink,
    /// Clients that wait for the end.
    waiting: Vec<UnixStream>,
    /// Monotonic time at which it is killed.
    kill_at: Option<Duration>,
}

struct Running {
    cell: Child,
    handle: OwnedFd,
    orders: UnixStream,
    reports: BufReader<UnixStream>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    started: Started,
    groups: Groups,
    /// How the command ended, where that was told.
    code: Option<i64>,
}

/// What a client's question leads to.
enum Next {
    Go,
    Start,
    GiveUp,
}

impl Supervisor {
    fn begin() -> io::Result<Self> {
        let mut lock = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let maker = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let null = File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        // For people who look for it; whether it lives is told by the lock alone.
        writeln!(lock, "{}", getpid().as_raw_pid())?;
        // So that no terminal's hang-up or interrupt reaches us.
        setsid()?;
        let spec: Spec = serde_json::from_slice(&fs::read(name::SPEC)?)?;
        let outer = if spec.avoid.namespaces { Outer::none(None) } else { Outer::enter() };
        set_child_subreaper(Some(getpid()))?;
        // From here on nobody of the same user may read our memory; the kernel lets one write the maps only before.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let mut maker = BufReader::new(maker);
        let mut line = String::new();
        maker.read_line(&mut line)?;
        let Hello { env } = serde_json::from_str(&line)?;
        // A relative address: an absolute one may be too long.
        let listener = UnixListener::bind(name::CONTROL)?;
        let dir = PathBuf::from(".");
        let sink = Sink::new(dir.clone());
        // One that gave up has made us all the same.
        maker.into_inner().write_all(b"ready\n").ok();
        Ok(Self {
            _lock: lock,
            dir,
            spec,
            env,
            outer,
            listener,
            clock: SystemClock::new(),
            sink,
            waiting: Vec::new(),
            kill_at: None,
        })
    }

    fn supervise(mut self) -> io::Result<()> {
        let Some(running) = self.until_started()? else { return Ok(()) };
        self.until_ended(running)
    }

    fn until_started(&mut self) -> io::Result<Option<Running>> {
        loop {
            let (client, _) = self.listener.accept()?;
            let Some((ask, client)) = hear(client) else { continue };
            match self.judge(&ask, client, false) {
                Next::Go => {}
                Next::GiveUp => return Ok(None),
                Next::Start => {
                    let (running, answer) = match self.start() {
                        Ok(running) => (Some(running), Answer::Done),
                        Err(answer) => (None, answer),
                    };
                    if let Some(client) = self.waiting.pop() {
                        tell(client, &answer);
                    }
                    if running.is_some() {
                        return Ok(running);
                    }
                }
            }
        }
    }

    /// Answers what can be answered at once.
    fn judge(&mut self, ask: &Ask, client: UnixStream, runs: bool) -> Next {
        match (ask, runs) {
            (Ask::Start, false) => {
                self.waiting.push(client);
                return Next::Start;
            }
            (Ask::Start, true) | (Ask::Stop { .. }, false) => tell(client, &Answer::Done),
            (Ask::Stop { grace_ms }, true) => {
                let at = self.clock.now().monotonic.saturating_add(Duration::from_millis(*grace_ms));
                // Of several the shortest patience counts.
                self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
                self.waiting.push(client);
            }
            (Ask::Dismiss, true) => tell(client, &Answer::Runs),
            (Ask::Dismiss, false) => {
                tell(client, &Answer::Done);
                return Next::GiveUp;
            }
        }
        Next::Go
    }

    /// Sets up the cell, sets the fence, lets the command go; in this order, so that what can be refused is refused
    /// before anything counts as started.
    fn start(&mut self) -> Result<Running, Answer> {
        let failed =
            |what: &'static str| move |error: io::Error| Answer::Failed { message: format!("{what}: {error}") };
        self.outer.renew().map_err(failed("cannot make a pid namespace"))?;
        let groups =
            if self.spec.avoid.cgroups { Groups::default() } else { cgroup::make(&self.spec.id, &self.spec.limits) };
        let begun = self.begin_cell(groups);
        let mut running = begun.map_err(failed("cannot make the first process"))?;
        let prepared = self.prepare(&mut running).and_then(|()| self.fence(&mut running));
        if let Err(answer) = prepared {
            self.abandon(running);
            if let Answer::Refused(refused) = &answer {
                folder::write(&self.dir, name::REFUSED, refused)
                    .map_err(|error| Answer::Failed { message: error.to_string() })?;
            }
            return Err(answer);
        }
        // From here on it has started, whatever comes of it: one that cannot be told to go has died, and its end follows.
        order(&mut running.orders, &Order::Go).ok();
        self.env.clear();
        Ok(running)
    }

    fn begin_cell(&self, groups: Groups) -> io::Result<Running> {
        let (ours, theirs) = UnixStream::pair()?;
        let spawned = Command::new("/proc/self/exe")
            .arg0("orchestrate")
            .args([HIDDEN, mode::CELL])
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut cell = match spawned {
            Ok(cell) => cell,
            Err(error) => {
                cgroup::remove(&groups.paths);
                return Err(error);
            }
        };
        let handle = pidfd_open(Pid::from_child(&cell), PidfdFlags::empty())?;
        let pid = i32::try_from(cell.id()).map_err(io::Error::other)?;
        let gone = || io::Error::other("it ended at once");
        let started = Started {
            at: self.clock.now().wall,
            boot_id: kin::boot_id()?,
            supervisor: kin::identify(getpid().as_raw_pid()).ok_or_else(gone)?,
            cell: kin::identify(pid).ok_or_else(gone)?,
            confinement: Confinement::default(),
            cgroups: groups.paths.clone(),
        };
        Ok(Running {
            output: cell.stdout.take(),
            errors: cell.stderr.take(),
            cell,
            handle,
            reports: BufReader::new(ours.try_clone()?),
            orders: ours,
            started,
            groups,
            code: None,
        })
    }

    fn prepare(&self, running: &mut Running) -> Result<(), Answer> {
        let failed = |message: String| Answer::Failed { message };
        let joined = cgroup::join(&running.groups.paths, running.started.cell.pid);
        joined.map_err(|error| failed(format!("cannot limit it: {error}")))?;
        let confinement = Confinement {
            mounts: self.outer.pids && self.spec.mounts,
            pids: self.outer.pids,
            network: self.spec.no_network,
            user_namespace: self.outer.user,
            limits: running.groups.limited.clone(),
            notes: self.outer.note.clone().into_iter().collect(),
            ..Confinement::default()
        };
        let prepare = Prepare { spec: self.spec.clone(), env: self.env.clone(), confinement };
        let told = order(&mut running.orders, &Order::Prepare(Box::new(prepare)));
        told.map_err(|error| failed(format!("cannot tell its first process: {error}")))?;
        running.orders.set_read_timeout(Some(SET_UP)).map_err(|error| failed(error.to_string()))?;
        match report(&mut running.reports) {
            Ok(Some(Report::Ready { confinement })) => {
                running.started.confinement = confinement;
                Ok(())
            }
            Ok(Some(Report::Refused(refused))) => Err(Answer::Refused(refused)),
            other => {
                let why = match other {
                    Err(error) => error.to_string(),
                    _ => "it ended at once".to_owned(),
                };
                let words = running.errors.as_mut().map(words).unwrap_or_default();
                Err(Answer::Refused(Refused::machine(format!("its first process failed: {why} {words}"))))
            }
        }
    }

    fn fence(&self, running: &mut Running) -> Result<(), Answer> {
        running.started.at = self.clock.now().wall;
        folder::write(&self.dir, name::STARTED, &running.started).map_err(|error| {
            // One that cannot be written for sure may have been: it is taken back before anybody believes it.
            fs::remove_file(self.dir.join(name::STARTED)).ok();
            Answer::Failed { message: error.to_string() }
        })
    }

    /// Undoes what a start made before its fence.
    fn abandon(&self, mut running: Running) {
        running.cell.kill().ok();
        running.cell.wait().ok();
        cgroup::remove(&running.groups.paths);
        self.clear_scratch();
    }

    fn until_ended(&mut self, mut running: Running) -> io::Result<()> {
        let mut asked = false;
        let mut buffer = vec![0; FRAME];
        loop {
            let ready = self.wait(&running)?;
            if ready.contains(&Source::Output) {
                self.copy(&mut running.output, LogStream::Stdout, &mut buffer);
            }
            if ready.contains(&Source::Errors) {
                self.copy(&mut running.errors, LogStream::Stderr, &mut buffer);
            }
            if ready.contains(&Source::Cell) {
                break;
            }
            if ready.contains(&Source::Client)
                && let Ok((client, _)) = self.listener.accept()
                && let Some((ask, client)) = hear(client)
            {
                self.judge(&ask, client, true);
            }
            if let Some(at) = self.kill_at {
                if !asked {
                    order(&mut running.orders, &Order::Terminate).ok();
                    asked = true;
                }
                if self.clock.now().monotonic >= at {
                    running.cell.kill()?;
                }
            }
        }
        self.end(running, &mut buffer)
    }

    /// Waits until something is to be done.
    fn wait(&self, running: &Running) -> io::Result<Vec<Source>> {
        let timeout =
            self.kill_at.map(|at| at.saturating_sub(self.clock.now().monotonic).max(Duration::from_millis(1)));
        let mut sources = vec![(running.handle.as_fd(), Source::Cell), (self.listener.as_fd(), Source::Client)];
        sources.extend(running.output.as_ref().map(|pipe| (pipe.as_fd(), Source::Output)));
        sources.extend(running.errors.as_ref().map(|pipe| (pipe.as_fd(), Source::Errors)));
        let ready = wait_for(&sources.iter().map(|(fd, _)| *fd).collect::<Vec<_>>(), timeout)?;
        Ok(sources.iter().zip(ready).filter(|(_, ready)| *ready).map(|((_, source), _)| *source).collect())
    }

    /// Takes what a pipe holds; a pipe that ended is dropped.
    fn copy(&mut self, pipe: &mut Option<impl Read>, stream: LogStream, buffer: &mut [u8]) {
        match pipe.as_mut().map(|pipe| pipe.read(buffer)) {
            Some(Ok(n)) if n > 0 => {
                if let Err(error) = self.sink.write(stream, self.clock.now().wall, &buffer[..n]) {
                    writeln!(io::stderr(), "output is lost: {error}").ok();
                }
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => *pipe = None,
        }
    }

    fn end(&mut self, mut running: Running, buffer: &mut [u8]) -> io::Result<()> {
        // It reports before it ends; one that was killed has reported nothing.
        while let Ok(Some(told)) = report(&mut running.reports) {
            if let Report::Ended { code } = told {
                running.code = Some(code);
            }
        }
        running.cell.wait()?;
        end_all(&running.groups.paths);
        self.drain(&mut running, buffer)?;
        let ended = Ended {
            code: running.code.unwrap_or(137),
            finished_at: Some(self.clock.now().wall),
            oom_killed: cgroup::oom_killed(&running.groups.paths),
            lost: None,
        };
        // An end that is not on disk has not happened for anybody else: wait for a full disk to be cleared.
        while let Err(error) = folder::write(&self.dir, name::ENDED, &ended) {
            if !Path::new(name::SPEC).exists() {
                break;
            }
            writeln!(io::stderr(), "{error}").ok();
            wait_for(&[], Some(AGAIN))?;
        }
        cgroup::remove(&running.groups.paths);
        self.clear_scratch();
        for client in self.waiting.drain(..) {
            tell(client, &Answer::Done);
        }
        Ok(())
    }

    /// Takes the rest of the output. All writers are dead, except one that got out of everything that we know of.
    fn drain(&mut self, running: &mut Running, buffer: &mut [u8]) -> io::Result<()> {
        let until = self.clock.now().monotonic + DRAIN;
        while running.output.is_some() || running.errors.is_some() {
            let pipes = [running.output.as_ref().map(AsFd::as_fd), running.errors.as_ref().map(AsFd::as_fd)];
            let left = until.saturating_sub(self.clock.now().monotonic);
            let ready = wait_for(&pipes.into_iter().flatten().collect::<Vec<_>>(), Some(left))?;
            if !ready.iter().any(|ready| *ready) {
                break;
            }
            let errors_ready = ready.last().copied().unwrap_or(false) && running.errors.is_some();
            if running.output.is_some() && ready.first().copied().unwrap_or(false) {
                self.copy(&mut running.output, LogStream::Stdout, buffer);
            }
            if errors_ready {
                self.copy(&mut running.errors, LogStream::Stderr, buffer);
            }
        }
        Ok(())
    }

    fn clear_scratch(&self) {
        if !(self.outer.pids && self.spec.mounts) {
            fs::remove_dir_all(scratch(&self.spec)).ok();
        }
    }
}

/// What has something for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Cell,
    Client,
    Output,
    Errors,
}

/// Which of the descriptors has something, after at most `timeout`.
fn wait_for(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Ends all that is left, when the cell has ended: without a pid namespace its orphans have come to us.
fn end_all(groups: &[PathBuf]) {
    loop {
        // Whoever is left descends from a child of ours, since all orphans come to us: without one there is nobody, and
        // nobody has to be looked for among all processes of the machine. A pid namespace ends as a whole with its first.
        let childless = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break false,
                Err(error) => break error == rustix::io::Errno::CHILD,
            }
        };
        if childless && !cgroup::kill(groups) {
            return;
        }
        for process in kin::descendants(getpid().as_raw_pid()) {
            kin::signal(process, Signal::KILL).ok();
        }
        wait_for(&[], Some(Duration::from_millis(1))).ok();
    }
}

/// What a client wants.
fn hear(client: UnixStream) -> Option<(Ask, UnixStream)> {
    client.set_read_timeout(Some(CLIENT)).ok()?;
    client.set_write_timeout(Some(CLIENT)).ok()?;
    let mut line = String::new();
    BufReader::new((&client).take(4096)).read_line(&mut line).ok()?;
    Some((serde_json::from_str(&line).ok()?, client))
}

/// Answers a client; one that has gone will look for itself.
fn tell(mut client: UnixStream, answer: &Answer) {
    if let Ok(mut line) = serde_json::to_vec(answer) {
        line.push(b'\n');
        client.write_all(&line).ok();
    }
}

fn order(cell: &mut UnixStream, order: &Order) -> io::Result<()> {
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    cell.write_all(&line)
}

/// The cell's next report; `None` where it has ended.
fn report(reports: &mut BufReader<UnixStream>) -> io::Result<Option<Report>> {
    let mut line = String::new();
    reports.read_line(&mut line)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&line)?)) }
}

/// What a process that has ended wrote last.
fn words(errors: &mut ChildStderr) -> String {
    let mut text = Vec::new();
    errors.take(4096).read_to_end(&mut text).ok();
    String::from_utf8_lossy(&text).trim().to_owned()
}
