//! The port, over folders and supervisors.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use rustix::process::{getegid, geteuid};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::confine::Confinement;
use super::control::{Asked, ask};
use super::facts::{Answer, Ask, Hello};
use super::folder::{Folder, FolderError, Look, Phase, at, name};
use super::hidden::{HIDDEN, mode};
use super::make::Made;
use super::settings::ProcessSettings;
use super::{events, logs, make};
use crate::clock::{Clock as _, SystemClock};
use crate::observe::names::{attempt_of, label, role_of};
use crate::observe::{ContainerDetail, ContainerState, InstanceId, ObservedContainer};
use crate::runtime::{
    ConfinementFacts, CreateRequest, EngineFacts, EngineInfo, ErrorKind, ImageInfo, LogChunk, LogOptions, Operation,
    Runtime, RuntimeError, RuntimeEvent,
};

/// How long a supervisor may take to come up, and how long to start a command.
const LIMIT: Duration = Duration::from_secs(90);
/// How long after its grace a stop may take: the kernel has to end every process.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// How often a stop that was not answered is tried again; it may be repeated without harm.
const STOP_TRIES: u32 = 5;
/// Between two looks at what is being ended.
const LOOK: Duration = Duration::from_millis(20);
/// Version of what stands in the folders and goes over the sockets.
const PROTOCOL: &str = "1.0";

/// Attempts as plain processes of this machine. Cheap to clone; holds nothing that another one over the same folder
/// would not find again.
#[derive(Debug, Clone)]
pub struct ProcessRuntime {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: ProcessSettings,
    root: PathBuf,
    clock: SystemClock,
    confinement: OnceCell<Confinement>,
}

/// Runs what blocks on the file system off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FolderError> + Send + 'static,
) -> Result<T, FolderError> {
    let lost = |_| at("finish work on", Path::new("the attempts' folder"))(io::Error::other("it was cut short"));
    tokio::task::spawn_blocking(work).await.map_err(lost).flatten()
}

pub(super) fn failed(
    operation: Operation,
    target: Option<&str>,
    kind: ErrorKind,
    message: impl Into<String>,
) -> RuntimeError {
    RuntimeError { operation, target: target.map(ToOwned::to_owned), kind, status: None, message: message.into() }
}

/// What a list says of a folder; `None` where it is not of this instance, or as good as not there.
pub(super) fn observed(instance: &InstanceId, look: &Look) -> Option<ObservedContainer> {
    let get = |name: &str| look.spec.labels.get(name).map(String::as_str);
    let key = attempt_of(instance, get)?;
    let state = match look.phase {
        Phase::Husk => return None,
        Phase::Created(_) => ContainerState::Created,
        Phase::Running(_) => ContainerState::Running,
        Phase::Ended(..) => ContainerState::Exited,
    };
    let plan = get(label::PLAN).unwrap_or_default().to_owned();
    Some(ObservedContainer {
        id: look.spec.id.clone(),
        name: look.spec.name.clone(),
        key,
        plan,
        role: role_of(get),
        state,
    })
}

fn detail(container: ObservedContainer, phase: Phase) -> ContainerDetail {
    let mut detail = ContainerDetail {
        container,
        exit_code: 0,
        error: String::new(),
        oom_killed: false,
        interrupted: false,
        started_at: None,
        finished_at: None,
    };
    match phase {
        Phase::Husk | Phase::Created(None) => {}
        Phase::Created(Some(refused)) => (detail.exit_code, detail.error) = (refused.code, refused.error),
        Phase::Running(started) => detail.started_at = Some(started.at),
        Phase::Ended(started, ended) => {
            detail.started_at = Some(started.at);
            detail.finished_at = ended.finished_at;
            detail.exit_code = ended.code;
            detail.oom_killed = ended.oom_killed;
            detail.interrupted = ended.lost.is_some();
            detail.error = ended.lost.map(|lost| lost.as_str().to_owned()).unwrap_or_default();
        }
    }
    detail
}

impl ProcessRuntime {
    /// Makes the folder where it is missing, and clears what was left half-made in it.
    pub fn new(settings: ProcessSettings) -> Result<Self, RuntimeError> {
        let refused = |error: io::Error| {
            let message = format!("cannot use {}: {error}", settings.dir.display());
            failed(Operation::Connect, None, ErrorKind::Denied, message)
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.dir).map_err(refused)?;
        let root = settings.dir.canonicalize().map_err(refused)?;
        make::sweep(&root);
        let shared = Shared { settings, root, clock: SystemClock::new(), confinement: OnceCell::new() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What holds a command here, found out by trying it in a child process, once. What held a single attempt stands in
    /// its `started.json`.
    pub async fn confinement(&self) -> Result<&Confinement, RuntimeError> {
        let probe = || async {
            let unknown =
                |message: String| failed(Operation::Probe, None, ErrorKind::Engine, format!("cannot probe: {message}"));
            let avoid =
                serde_json::to_string(&self.shared.settings.avoid).map_err(|error| unknown(error.to_string()))?;
            let output = self
                .program(mode::PROBE)
                .arg(avoid)
                .stdin(Stdio::null())
                .output()
                .await
                .map_err(|error| unknown(error.to_string()))?;
            serde_json::from_slice(&output.stdout)
                .map_err(|_| unknown(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
        };
        self.shared.confinement.get_or_try_init(probe).await
    }

    fn program(&self, mode: &str) -> Command {
        let mut command = Command::new(&self.shared.settings.executable);
        command.as_std_mut().env_clear().arg0("orchestrate");
        command.args([HIDDEN, mode]);
        command
    }

    /// Looks at the attempt that an id or a name means; `None` where there is none, or as good as none.
    async fn look(&self, operation: Operation, id: &str) -> Result<Option<(Folder, Look)>, RuntimeError> {
        make::check(id).map_err(|message| failed(operation, Some(id), ErrorKind::Invalid, message))?;
        let folder = Folder::at(self.shared.root.join(make::name_of(id)));
        let looked = folder.clone();
        let look = blocking(move || looked.look())
            .await
            .map_err(|error| failed(operation, Some(id), ErrorKind::Engine, error.to_string()))?;
        Ok(look.filter(|look| look.spec.id == id || look.spec.name == id).map(|look| (folder, look)))
    }

    async fn known(&self, operation: Operation, id: &str) -> Result<(Folder, Look), RuntimeError> {
        let found = self.look(operation, id).await?.filter(|(_, look)| look.phase != Phase::Husk);
        found.ok_or_else(|| {
            failed(operation, Some(id), ErrorKind::NotFound, format!("no attempt of that name in {}", self.host()))
        })
    }

    /// Brings the supervisor of a folder up and gives it the environment.
    async fn bring_up(&self, made: Made, request: &CreateRequest) -> io::Result<()> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let mut child = self
            .program(mode::RUN)
            .arg(&request.name)
            .current_dir(&made.folder)
            .stdin(OwnedFd::from(theirs))
            .stdout(made.lock)
            .stderr(made.errors)
            .spawn()?;
        ours.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(ours)?;
        let mut env = self.shared.settings.env.clone();
        env.extend(request.env.clone());
        let mut hello = serde_json::to_vec(&Hello { env })?;
        hello.push(b'\n');
        let greet = async {
            stream.write_all(&hello).await?;
            let mut answer = String::new();
            BufReader::new(&mut stream).read_line(&mut answer).await?;
            if answer == "ready\n" { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
        };
        match tokio::time::timeout(LIMIT, greet).await {
            Ok(Ok(())) => Ok(()),
            other => {
                child.kill().await.ok();
                let words = fs::read_to_string(made.folder.join(name::ERRORS)).unwrap_or_default();
                let why = match other {
                    Ok(Err(error)) => error.to_string(),
                    _ => format!("no answer within {} s", LIMIT.as_secs()),
                };
                Err(io::Error::other(format!("its supervisor did not come up: {why} {}", words.trim())))
            }
        }
    }

    async fn open_logs(&self, id: &str) -> Result<Folder, RuntimeError> {
        self.known(Operation::Logs, id).await.map(|(folder, _)| folder)
    }
}

#[async_trait]
impl Runtime for ProcessRuntime {
    fn host(&self) -> &'static str {
        "process"
    }

    async fn probe(&self) -> Result<EngineInfo, RuntimeError> {
        self.confinement().await?;
        Ok(EngineInfo {
            name: "process".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_version: PROTOCOL.to_owned(),
            // There is no engine that could be away: a supervisor needs none of us.
            time: None,
            started_at: None,
            live_restore: Some(true),
        })
    }

    async fn isolation(&self) -> Result<Option<String>, RuntimeError> {
        Ok(Some(self.confinement().await?.to_string()))
    }

    async fn facts(&self) -> Result<EngineFacts, RuntimeError> {
        let confinement = self.confinement().await?;
        let limits = |what: &str| Some(confinement.limits.iter().any(|limit| limit == what));
        Ok(EngineFacts {
            memory_limit: limits("memory"),
            cpu_limit: limits("cpus"),
            pids_limit: limits("pids"),
            is_local: true,
            confinement: Some(ConfinementFacts {
                summary: confinement.to_string(),
                confines_writes: confinement.confines_writes(),
                allow_unconfined: self.shared.settings.allow_unconfined,
                lacks: confinement.notes.clone(),
            }),
            ..EngineFacts::of(self.probe().await?)
        })
    }

    async fn has_program(&self, _: Option<&str>, command: Option<&[String]>) -> Result<Option<bool>, RuntimeError> {
        let Some(program) = command.and_then(<[String]>::first) else { return Ok(Some(false)) };
        if program.contains('/') {
            // One of the worktree's is made by its checkout.
            return Ok(program.starts_with('/').then(|| Path::new(program).is_file()));
        }
        let path = self.shared.settings.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        Ok(Some(std::env::split_paths(path).any(|folder| folder.join(program).is_file())))
    }

    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError> {
        let (root, instance) = (self.shared.root.clone(), instance.clone());
        let list = move || {
            let looks =
                Folder::names(&root)?.into_iter().filter_map(|name| Folder::at(root.join(name)).look().transpose());
            looks.filter_map(|look| look.map(|look| observed(&instance, &look)).transpose()).collect()
        };
        blocking(list).await.map_err(|error| failed(Operation::List, None, ErrorKind::Engine, error.to_string()))
    }

    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError> {
        let Some((_, look)) = self.look(Operation::Inspect, id).await? else { return Ok(None) };
        if look.phase == Phase::Husk {
            return Ok(None);
        }
        let container = observed(instance, &look).ok_or_else(|| {
            let message = "its labels are not those of this repository's containers";
            failed(Operation::Inspect, Some(id), ErrorKind::NotOurs, message)
        })?;
        Ok(Some(detail(container, look.phase)))
    }

    /// There are no images: any reference is there, and is run as whoever we are.
    async fn image(&self, _: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        let user = format!("{}:{}", geteuid().as_raw(), getegid().as_raw());
        Ok(Some(ImageInfo { id: "none".to_owned(), user, digest: None }))
    }

    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError> {
        let confinement = self.confinement().await?;
        let spec =
            make::spec(request, &self.shared.settings, &self.shared.root, confinement, self.shared.clock.now().wall)
                .map_err(|refusal| failed(Operation::Create, Some(&request.name), refusal.kind, refusal.message))?;
        let failed = |kind, message: String| failed(Operation::Create, Some(&request.name), kind, message);
        let (id, root) = (spec.id.clone(), self.shared.root.clone());
        let made = blocking(move || make::make(&root, &spec))
            .await
            .map_err(|error| failed(ErrorKind::Engine, error.to_string()))?;
        let made = made.ok_or_else(|| failed(ErrorKind::NameTaken, "the name is taken".to_owned()))?;
        // Where it does not come up, the folder is left without a supervisor: as if it had never been made.
        self.bring_up(made, request).await.map_err(|error| failed(ErrorKind::Engine, error.to_string()))?;
        Ok(id)
    }

    async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        let (folder, look) = self.known(Operation::Start, id).await?;
        let failed = |kind, message: &str| failed(Operation::Start, Some(id), kind, message);
        let has_run = || failed(ErrorKind::Conflict, "it has run; an attempt is started only once");
        match look.phase {
            Phase::Running(_) => return Ok(()),
            Phase::Ended(..) => return Err(has_run()),
            Phase::Husk | Phase::Created(_) => {}
        }
        match ask(&folder.path, &Ask::Start, LIMIT).await {
            Asked::Answered(Answer::Done | Answer::Runs) => Ok(()),
            Asked::Answered(Answer::HasRun) => Err(has_run()),
            Asked::Answered(Answer::Refused(refused)) => Err(failed(ErrorKind::StartRefused, &refused.error)),
            Asked::Answered(Answer::Failed { message }) => Err(failed(ErrorKind::Engine, &message)),
            Asked::Unknown(message) => Err(failed(ErrorKind::Unknown, &message)),
            // It has ended since, or was killed.
            Asked::NobodyThere => match self.known(Operation::Start, id).await?.1.phase {
                Phase::Running(_) => Ok(()),
                Phase::Ended(..) => Err(has_run()),
                Phase::Husk | Phase::Created(_) => Err(failed(ErrorKind::Engine, "its supervisor does not listen")),
            },
        }
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let failed = |kind, message: &str| failed(Operation::Stop, Some(id), kind, message);
        let question = Ask::Stop { grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) };
        let mut broken = 0;
        loop {
            let (folder, look) = self.known(Operation::Stop, id).await?;
            match look.phase {
                Phase::Husk | Phase::Created(_) | Phase::Ended(..) => return Ok(()),
                Phase::Running(_) if look.dying => tokio::time::sleep(LOOK).await,
                Phase::Running(_) => match ask(&folder.path, &question, grace.saturating_add(STOP_LIMIT)).await {
                    Asked::Answered(Answer::Failed { message }) => return Err(failed(ErrorKind::Engine, &message)),
                    Asked::Answered(_) => return Ok(()),
                    Asked::Unknown(message) if broken == STOP_TRIES => {
                        return Err(failed(ErrorKind::Unknown, &message));
                    }
                    // It is about to end, or was killed as we spoke: the next look tells.
                    Asked::Unknown(_) | Asked::NobodyThere => {
                        broken += 1;
                        tokio::time::sleep(LOOK).await;
                    }
                },
            }
        }
    }

    async fn remove(&self, id: &str) -> Result<(), RuntimeError> {
        let failed = |kind, message: &str| failed(Operation::Remove, Some(id), kind, message);
        let (folder, look) = self.known(Operation::Remove, id).await?;
        let runs = || failed(ErrorKind::Conflict, "it runs; stop it first");
        match look.phase {
            Phase::Running(_) => return Err(runs()),
            Phase::Husk | Phase::Ended(..) => {}
            Phase::Created(_) => match ask(&folder.path, &Ask::Dismiss, LIMIT).await {
                Asked::Answered(Answer::Done) => {}
                Asked::Answered(_) => return Err(runs()),
                Asked::NobodyThere | Asked::Unknown(_) => {
                    return Err(failed(ErrorKind::Unknown, "its supervisor did not answer"));
                }
            },
        }
        let root = self.shared.root.clone();
        blocking(move || make::clear(&root, &folder.path))
            .await
            .map_err(|error| failed(ErrorKind::Engine, &error.to_string()))
    }

    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>> {
        let (runtime, id) = (self.clone(), id.to_owned());
        let target = id.clone();
        stream::once(async move { runtime.open_logs(&id).await })
            .map_ok(move |folder| {
                let target = target.clone();
                logs::open(folder, options)
                    .map_err(move |error| failed(Operation::Logs, Some(&target), ErrorKind::Engine, error.to_string()))
            })
            .try_flatten()
            .boxed()
    }

    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        events::open(self.shared.root.clone(), instance.clone())
    }
}
