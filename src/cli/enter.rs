//! `orchestrate shell`: a shell where an attempt runs or ran.

use std::io::{IsTerminal as _, Read as _};
use std::time::Duration;

use clap::Args;
use futures::StreamExt as _;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::app::Outcome;
use super::signals;
use super::world::{Context, World, block_on, require_task};
use crate::act::{self, Left};
use crate::controller::Snapshot;
use crate::error::{ExitCode, Kind, Report};
use crate::observe::{AttemptKey, Role, names};
use crate::record::State;
use crate::runtime::{ErrorKind, LogStream, Shell, ShellOptions, ShellPlace};
use crate::spec::{RuntimeKind, TaskId};

/// Bash where the image has it.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";

/// Open a shell where a task runs, or over what it left
///
/// While an attempt runs, in its container, beside the agent. When it is over, in a container made for it: the task's image
/// and limits over the attempt's worktree, without secrets, removed when you leave it. In that one git can be read but not
/// written: nothing would take a commit in, so commit on your own machine, in the worktree.
///
/// With a command, that runs instead of a shell. Ends with the exit code of what ran. `runtime: process` has no container
/// to open a shell in.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate shell api                 look around\n  \
                  orchestrate shell api -- make test    one command, its exit code passed on\n  \
                  echo 'git log --oneline' | orchestrate shell api")]
pub(super) struct Enter {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,

    /// What to run [default: bash where the image has it, else sh]
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

impl Enter {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let (snapshot, view) = context.survey(&world)?;
        let task = require_task(&view, &self.task)?;
        let id = TaskId::new(&task.id).expect("BUG: the view shows valid ids");
        if world.kind == RuntimeKind::Process {
            let report = Report::new(Kind::Usage, "`runtime: process` has no containers to open a shell in");
            return Err(report.hint(format!(
                "its files are in {}; a shell there is not confined as the attempt is",
                names::worktree(&id).display()
            )));
        }
        if let Some(why) = &snapshot.observed.unavailable {
            let mut report = Report::new(Kind::Environment, "containers cannot be seen");
            report.causes.push(why.clone());
            return Err(report.hint("see whether the engine runs: `orchestrate doctor`"));
        }
        block_on(async {
            let place = place(context, &world, &snapshot, &id).await?;
            let command = match self.command.as_slice() {
                [] => ["/bin/sh", "-c", SHELL].map(ToOwned::to_owned).to_vec(),
                command => command.to_vec(),
            };
            let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
            let terminal = is_terminal.then(size);
            let term = context.settings.term().filter(|_| is_terminal).map(ToOwned::to_owned);
            let options = ShellOptions { command, terminal, term };
            if let ShellPlace::Fresh(request) = &place {
                context.output.note(&format!(
                    "the attempt is over: this is a container of its own ({}), without secrets, over its worktree",
                    request.name
                ));
            }
            let made = matches!(place, ShellPlace::Fresh(_)).then(|| place.name().to_owned());
            // Before anything is made, or what comes while it is made would leave it behind.
            let torn = Torn::listen()?;
            let shell = world.runtime.shell(place, &options).await.map_err(|error| refused(&id, error))?;
            let ended = converse(shell, is_terminal, torn).await;
            if let (Err(_) | Ok(Ended::Signal(_)), Some(name)) = (&ended, made) {
                // It goes away when what runs in it ends, and that may not care that nobody listens any more.
                drop(world.runtime.stop(&name, Duration::ZERO).await);
            }
            match ended? {
                Ended::Code(code) => Ok(code),
                Ended::Signal(kind) => {
                    signals::raise(kind.as_raw_value());
                    Ok(ExitCode::Environment)
                }
            }
        })?
    }
}

fn refused(id: &TaskId, error: crate::runtime::RuntimeError) -> Report {
    match error.kind {
        ErrorKind::Conflict | ErrorKind::NotFound => {
            let mut report = Report::new(Kind::Environment, format!("`{id}` does not run any more"));
            report.causes.push(error.to_string());
            report.hint("try again in a moment: what it left is looked into when its result was taken in")
        }
        ErrorKind::StartRefused | ErrorKind::Invalid => {
            let mut report = Report::new(Kind::Environment, "the command could not be started");
            report.causes.push(error.to_string());
            report.hint("does the image have it? without a command `sh` is run")
        }
        _ => error.into(),
    }
}

/// The attempt's container where it runs, else what makes one over its worktree.
async fn place(context: &Context, world: &World, snapshot: &Snapshot, id: &TaskId) -> Result<ShellPlace, Report> {
    let record = snapshot.ledger.task(id);
    let key = record.and_then(|record| record.key(id));
    let (Some(record), Some(key), Some(instance)) = (record, key, snapshot.ledger.instance()) else {
        let report = Report::new(Kind::Usage, format!("`{id}` was never launched, so there is nothing to look into"));
        return Err(report.hint("`orchestrate plan` shows when it will be"));
    };
    let live = |key: &AttemptKey| {
        [Role::Agent, Role::Verify]
            .into_iter()
            .filter_map(|role| snapshot.observed.find(key, role))
            .find(|container| container.state.is_live())
    };
    if let Some(container) = live(&key) {
        return Ok(ShellPlace::Running(container.id.clone()));
    }
    if record.state == State::Live {
        let report = Report::new(Kind::Environment, format!("`{id}` is between two states: no container of it runs"));
        return Err(report.hint("try again when it runs or its result was taken in; `orchestrate status` tells"));
    }
    let ix = snapshot.tasks.find(id.as_str()).expect("BUG: the view shows the set's tasks");
    let base = record.current.as_ref().and_then(|current| current.base.as_ref());
    let tip = world.repository.tip(&names::branch_ref(id)).await?;
    let (Some(base), Some(tip)) = (base, tip) else {
        return Err(Report::new(Kind::Environment, format!("the branch of `{id}` is gone, and its work with it"))
            .hint(format!("`orchestrate describe {id}` tells what became of it")));
    };
    let left = Left {
        instance,
        key: &key,
        base,
        tip: &tip,
        spec: snapshot.tasks.task(ix),
        home: context.settings.home.as_deref(),
        sockets: world.sockets(),
    };
    let request = act::shell_request(&world.ports(), &left).await.map_err(|error| {
        let mut report = Report::new(Kind::Environment, format!("no shell can be opened over what `{id}` left"));
        report.causes.push(act::one_line(&error));
        report.hint(format!(
            "`orchestrate describe {id}` tells what became of it, `orchestrate diff {id}` what it changed"
        ))
    })?;
    Ok(ShellPlace::Fresh(Box::new(request)))
}

/// Columns and rows; a usual size where the terminal does not tell.
fn size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.filter(|size| size.ws_col > 0 && size.ws_row > 0).map_or((80, 24), |size| (size.ws_col, size.ws_row))
}

/// A terminal that gives every key on as it is, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn set() -> std::io::Result<Self> {
        // What was typed already is for the shell.
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Nothing is left to do where it fails: the terminal is gone.
        tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.0).ok();
    }
}

/// How a person's command came to its end.
enum Ended {
    Code(ExitCode),
    /// This signal is to take its own effect on us.
    Signal(SignalKind),
}

/// The signals by which a person, or whoever started us, wants us to end.
struct Torn {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Torn {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        }
    }
}

/// Carries input in and output out until it ends.
async fn converse(shell: Shell, is_terminal: bool, mut torn: Torn) -> Result<Ended, Report> {
    let Shell { mut input, mut output, resize, exit } = shell;
    let mut resized = signal(SignalKind::window_change())?;
    let raw = if is_terminal { Some(Raw::set()?) } else { None };
    let mut keys = keys();
    let mut open = true;
    let mut told = (0, 0);
    let ended = loop {
        tokio::select! {
            chunk = output.next() => match chunk {
                Some(Ok(chunk)) => {
                    let written = match chunk.stream {
                        LogStream::Stdout => put(std::io::stdout(), &chunk.bytes),
                        LogStream::Stderr => put(std::io::stderr(), &chunk.bytes),
                    };
                    if let Err(error) = written {
                        break Err(error.into());
                    }
                }
                Some(Err(error)) => break Err(Report::from(error)),
                None => break Ok(None),
            },
            read = keys.recv(), if open => {
                if let Some(bytes) = read {
                    // What it no longer reads is nobody's; its output says when it ends.
                    open = input.write_all(&bytes).await.is_ok() && input.flush().await.is_ok();
                } else {
                    open = false;
                    drop(input.shutdown().await);
                }
            }
            _ = resized.recv(), if is_terminal => {
                let now = size();
                if now != told {
                    told = now;
                    resize(now.0, now.1).await;
                }
            }
            kind = torn.next() => break Ok(Some(kind)),
        }
    };
    drop(raw);
    if let Some(kind) = ended? {
        return Ok(Ended::Signal(kind));
    }
    let code = tokio::select! {
        code = exit => code?,
        kind = torn.next() => return Ok(Ended::Signal(kind)),
    };
    Ok(Ended::Code(match u8::try_from(code).unwrap_or(u8::MAX) {
        0 => ExitCode::Done,
        code => ExitCode::Passed(code),
    }))
}

/// Standard input as it comes. A read cannot be called off, so it has a thread of its own, which ends with us.
fn keys() -> tokio::sync::mpsc::Receiver<Vec<u8>> {
    let (send, receive) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 8 * 1024];
        let mut stdin = std::io::stdin();
        while let Ok(count) = stdin.read(&mut buffer) {
            if count == 0 || send.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receive
}

fn put(mut to: impl std::io::Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
