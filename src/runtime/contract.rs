//! The port to whatever runs attempts. Adapters class their errors here; nothing above them reads an engine's texts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use tokio::io::AsyncWrite;

use crate::observe::{AttemptKey, ContainerDetail, InstanceId, ObservedContainer};
use crate::spec::Resources;

/// Runs attempts and tells about them.
///
/// Every call may take effect although its caller gave up or got an error of kind [`ErrorKind::Unknown`].
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Where attempts run, for the plan file's `host` and for people.
    fn host(&self) -> &str;

    /// Asks the engine who it is.
    async fn probe(&self) -> Result<EngineInfo, RuntimeError>;

    /// What keeps a command from what is not its own, in one line, where that depends on this machine; `None` where it is
    /// an engine's matter.
    async fn isolation(&self) -> Result<Option<String>, RuntimeError> {
        Ok(None)
    }

    /// What the engine can do and how it stands, for `doctor`. Where it tells no more, that is what [`Runtime::probe`] says.
    async fn facts(&self) -> Result<EngineFacts, RuntimeError> {
        Ok(EngineFacts::of(self.probe().await?))
    }

    /// Whether an image (`None`: this machine) has the program that a command begins with, or one of its own where there
    /// is no command. `None`: cannot be told. Starts nothing.
    async fn has_program(
        &self,
        _image: Option<&str>,
        _command: Option<&[String]>,
    ) -> Result<Option<bool>, RuntimeError> {
        Ok(None)
    }

    /// Every container of this instance, running or not. A partial answer is an error.
    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError>;

    /// One container in full, by id or name; `None` where there is none of this instance. A container of that name that
    /// is not of this instance is [`ErrorKind::NotOurs`].
    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError>;

    /// Whether the image is there.
    async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, RuntimeError>;

    /// Fetches an image from its registry, as the docker command line would with what it knows of accounts. `progress` is
    /// told at every step. A caller who gives up ends it.
    async fn pull(&self, reference: &str, _progress: &PullSink<'_>) -> Result<(), RuntimeError> {
        Err(RuntimeError {
            operation: Operation::Pull,
            target: Some(reference.to_owned()),
            kind: ErrorKind::Unsupported,
            status: None,
            message: "it has no images".to_owned(),
        })
    }

    /// Makes a container and returns its id. The name is the mutex: a second one is [`ErrorKind::NameTaken`].
    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError>;

    /// Starts a container that was never started. On one that has run an engine runs it again: never call it for such.
    async fn start(&self, id: &str) -> Result<(), RuntimeError>;

    /// Asks it to end, and makes it end after `grace`.
    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError>;

    /// Removes an ended container. Only `clean` does so.
    async fn remove(&self, id: &str) -> Result<(), RuntimeError>;

    /// The container's output in the order in which it was written, both streams, demultiplexed. A follower may miss
    /// what was written right before the end; read after the end, a log is whole.
    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>>;

    /// Runs a person's command, in a container that runs or in one made for it that goes away with it.
    async fn shell(&self, place: ShellPlace, _options: &ShellOptions) -> Result<Shell, RuntimeError> {
        Err(RuntimeError {
            operation: Operation::Start,
            target: Some(place.name().to_owned()),
            kind: ErrorKind::Unsupported,
            status: None,
            message: "this runtime has no containers to run a shell in".to_owned(),
        })
    }

    /// What happens to containers of this instance from now on. Ends with an error when the connection breaks; the
    /// first item is [`RuntimeEvent::Subscribed`], after which nothing is missed.
    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>>;
}

/// Who the engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineInfo {
    /// `Docker`, `Podman`, `process`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The API version agreed on.
    pub api_version: String,
    /// Its clock; `None` where it does not tell.
    pub time: Option<Timestamp>,
    /// When the engine was last started, where that can be known; maybe some seconds off, and where it let containers run
    /// on maybe an earlier start's.
    pub started_at: Option<Timestamp>,
    /// Whether containers live on while the engine is down; `None` where it does not say.
    pub live_restore: Option<bool>,
}

/// What an engine can do and how it stands. What it does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Who it is.
    pub info: EngineInfo,
    /// Version of the program that makes its containers, `runc`.
    pub runc: Option<String>,
    /// Which control groups it uses: `1` or `2`.
    pub cgroup_version: Option<String>,
    /// Whether limits on memory take effect.
    pub memory_limit: Option<bool>,
    /// Whether limits on cores take effect.
    pub cpu_limit: Option<bool>,
    /// Whether limits on processes take effect.
    pub pids_limit: Option<bool>,
    /// Whether it filters system calls.
    pub seccomp: Option<bool>,
    /// Whether it runs without root.
    pub rootless: Option<bool>,
    /// Where it keeps images and containers, on its own machine.
    pub data_root: Option<PathBuf>,
    /// Whether that machine is this one.
    pub is_local: bool,
    /// What holds an attempt, for a runtime that is no engine.
    pub confinement: Option<ConfinementFacts>,
}

/// What holds an attempt of a runtime that is no engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfinementFacts {
    /// In one line.
    pub summary: String,
    /// Whether writes outside of what is its own are refused.
    pub confines_writes: bool,
    /// Whether it is run all the same where they are not.
    pub allow_unconfined: bool,
    /// What does not hold, and why.
    pub lacks: Vec<String>,
}

impl EngineFacts {
    /// Nothing known but who it is.
    pub fn of(info: EngineInfo) -> Self {
        Self {
            info,
            runc: None,
            cgroup_version: None,
            memory_limit: None,
            cpu_limit: None,
            pids_limit: None,
            seccomp: None,
            rootless: None,
            data_root: None,
            is_local: false,
            confinement: None,
        }
    }
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Its content id.
    pub id: String,
    /// The user that it runs as; empty: root.
    pub user: String,
    /// What its registry knows it by, `sha256:…`; `None` where it was built here.
    pub digest: Option<String>,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PullProgress {
    /// Layers that are named so far.
    pub layers: usize,
    /// Those of them that are there.
    pub done: usize,
    /// Bytes fetched so far.
    pub bytes: u64,
    /// Bytes to fetch, of the layers that told.
    pub total: u64,
}

/// Is told how far a pull is.
pub type PullSink<'s> = dyn Fn(PullProgress) + Send + Sync + 's;

/// Everything that makes a container; resolved, nothing left to look up.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRequest {
    /// The attempt.
    pub key: AttemptKey,
    /// The container's name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Image reference.
    pub image: Option<String>,
    /// Argument vector; `None`: the image's own.
    pub command: Option<Vec<String>>,
    /// Whole environment, secrets included.
    pub env: BTreeMap<String, String>,
    /// Bind mounts, sources resolved.
    pub mounts: Vec<Bind>,
    /// Working directory.
    pub workdir: String,
    /// `uid:gid`; `None`: the image's own.
    pub user: Option<String>,
    /// Network name.
    pub network: String,
    /// Limits.
    pub resources: Resources,
}

/// Where a person's command runs.
#[derive(Debug, Clone, PartialEq)]
pub enum ShellPlace {
    /// In this container, which runs; its id.
    Running(String),
    /// In one that is made for it, under the same rules as an attempt's, and goes away with it. Its labels are for the
    /// caller to choose so that nobody takes it for an attempt.
    Fresh(Box<CreateRequest>),
}

impl ShellPlace {
    /// The container's name or id.
    pub fn name(&self) -> &str {
        match self {
            Self::Running(id) => id,
            Self::Fresh(request) => &request.name,
        }
    }
}

/// How a person's command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellOptions {
    /// Argument vector.
    pub command: Vec<String>,
    /// Columns and rows of the terminal that it gets; `None`: pipes.
    pub terminal: Option<(u16, u16)>,
    /// The terminal's kind, `TERM`.
    pub term: Option<String>,
}

/// A person's command that runs.
pub struct Shell {
    /// Its standard input; closing it ends the input.
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
    /// What it writes.
    pub output: BoxStream<'static, Result<LogChunk, RuntimeError>>,
    /// Tells it the terminal's columns and rows. What cannot be told changes only how it looks.
    pub resize: Box<dyn Fn(u16, u16) -> BoxFuture<'static, ()> + Send + Sync>,
    /// Its exit code, once its output has ended.
    pub exit: BoxFuture<'static, Result<i64, RuntimeError>>,
}

/// One bind mount with a resolved source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: String,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// What part of a log is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogOptions {
    /// Go on until the container ends.
    pub follow: bool,
    /// Only the last so many lines.
    pub tail: Option<u32>,
    /// Only what was written since.
    pub since: Option<Timestamp>,
}

/// A piece of output, at any byte border.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// The stream that it was written to.
    pub stream: LogStream,
    /// The bytes.
    pub bytes: Bytes,
}

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output, and all of a terminal's.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something happened to a container of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// The stream is up: what happens from now on is told.
    Subscribed,
    /// A container was made.
    Created(ObservedContainer),
    /// It runs.
    Started(ObservedContainer),
    /// It was frozen.
    Paused(ObservedContainer),
    /// It goes on.
    Unpaused(ObservedContainer),
    /// It ended.
    Exited(ObservedContainer),
    /// It is gone.
    Removed(ObservedContainer),
    /// An image became available under this name or id.
    ImageAvailable(String),
    /// Something else that calls for a fresh list.
    Unclear,
}

/// A call that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed{}: {message}", target.as_ref().map(|t| format!(" for {t}")).unwrap_or_default())]
pub struct RuntimeError {
    /// What was tried.
    pub operation: Operation,
    /// On what: a container's name or id, an image.
    pub target: Option<String>,
    /// What it means for the caller.
    pub kind: ErrorKind,
    /// HTTP status where the engine answered.
    pub status: Option<u16>,
    /// The engine's or the transport's words, one line.
    pub message: String,
}

/// What was asked of a runtime; also a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the name of the trait's method")]
pub enum Operation {
    Connect,
    Probe,
    List,
    Inspect,
    Image,
    Pull,
    Create,
    Start,
    Stop,
    Remove,
    Logs,
    Events,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Connect,
        Self::Probe,
        Self::List,
        Self::Inspect,
        Self::Image,
        Self::Pull,
        Self::Create,
        Self::Start,
        Self::Stop,
        Self::Remove,
        Self::Logs,
        Self::Events,
    ];

    /// The word in messages and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Probe => "probe",
            Self::List => "list",
            Self::Inspect => "inspect",
            Self::Image => "image",
            Self::Pull => "pull",
            Self::Create => "create",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Remove => "remove",
            Self::Logs => "logs",
            Self::Events => "events",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The engine cannot be reached; the call had no effect.
    Unreachable,
    /// No answer in time or a broken connection: the call may have taken or may yet take effect.
    Unknown,
    /// The engine failed (5xx); no effect that lasts, worth another try.
    Engine,
    /// No such container.
    NotFound,
    /// No such image.
    ImageMissing,
    /// A container of that name exists.
    NameTaken,
    /// A container of that name exists and is not of this instance.
    NotOurs,
    /// A registry wants to know who asks, or does not let them.
    RegistryDenied,
    /// A registry cannot be reached, or says nothing of use.
    RegistryAway,
    /// The engine refuses the settings (400): another try gives the same.
    Invalid,
    /// The container could not be started: its command, its user, its network or a mount is at fault. It stays
    /// `created`. An engine does not always keep the reason (a mount that vanished leaves code 0 and no text), so this
    /// answer is the only sure word of it.
    StartRefused,
    /// The state of the container forbids it.
    Conflict,
    /// We may not (permission on the socket).
    Denied,
    /// This runtime cannot do it.
    Unsupported,
}

impl ErrorKind {
    /// Whether the same call may succeed later without anybody's doing.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Unreachable | Self::Unknown | Self::Engine | Self::RegistryAway | Self::Conflict => true,
            Self::NotFound
            | Self::ImageMissing
            | Self::RegistryDenied
            | Self::NameTaken
            | Self::NotOurs
            | Self::Invalid
            | Self::StartRefused
            | Self::Denied
            | Self::Unsupported => false,
        }
    }
}
