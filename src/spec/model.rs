//! The validated desired state: what people ask for, after defaults and profiles are applied.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::graph::{Graph, TaskIx};
use super::id::TaskId;

/// `max_concurrent` where a plan file does not say.
pub const DEFAULT_MAX_CONCURRENT: NonZeroU32 = NonZeroU32::new(3).expect("three is not zero");
/// `stale_after` where a plan file does not say.
pub const DEFAULT_STALE_AFTER: Duration = Duration::from_mins(30);

/// The validated content of a plan file merged with the optional YAML spec.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSet {
    /// Name for people and metrics; the repository folder's name unless the file says.
    pub project: Option<String>,
    /// The plan's id where the file has one already.
    pub plan_id: Option<String>,
    /// How many attempts may be live at once.
    pub max_concurrent: NonZeroU32,
    /// Launch nothing new.
    pub suspend: bool,
    /// Where attempts run.
    pub runtime: RuntimeKind,
    /// The tasks in the file's order; indexed by [`TaskIx`].
    pub tasks: Vec<TaskSpec>,
    /// The dependencies among `tasks`; acyclic and complete.
    pub graph: Graph,
}

impl TaskSet {
    /// The task at an index of this set's graph.
    pub fn task(&self, ix: TaskIx) -> &TaskSpec {
        &self.tasks[ix.index()]
    }

    /// Every task with its index, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (TaskIx, &TaskSpec)> {
        self.tasks.iter().enumerate().map(|(i, task)| (TaskIx::new(i), task))
    }

    /// Finds a task by its exact id.
    pub fn find(&self, id: &str) -> Option<TaskIx> {
        self.graph.find(id)
    }
}

/// One task as people asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// Names branch, worktree and container.
    pub id: TaskId,
    /// One line for people.
    pub title: Option<String>,
    /// Longer text for people; the prompt where there is none.
    pub description: Option<String>,
    /// What the agent is told.
    pub prompt: Option<String>,
    /// Tasks that must be completed first, without repetition, in the file's order.
    pub dependencies: Vec<TaskId>,
    /// How an attempt of it is run; shared by the tasks that ask for the same.
    pub attempt: Arc<AttemptSpec>,
    /// Identifies what is asked: all of the above but what is for people only; see [`super::digest`].
    pub digest: SpecDigest,
    /// Nothing says any more what is to be done: its block in the plan file only records what ran, so it is not launched.
    pub is_record: bool,
}

impl TaskSpec {
    /// The text that reaches the agent.
    pub fn effective_prompt(&self) -> Option<&str> {
        self.prompt.as_deref().or(self.description.as_deref())
    }
}

/// Hex digest of a task's spec; equal digests mean that nothing that was asked differs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct SpecDigest(pub Arc<str>);

impl SpecDigest {
    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How an attempt is run: the task's own fields over its agent profile's over the plan's defaults over the built-in ones.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptSpec {
    /// Name of the profile that was applied.
    pub agent: String,
    /// Image reference; validated grammar. `None` only for runtimes without images.
    pub image: Option<String>,
    /// When its image is fetched from a registry.
    pub pull: PullPolicy,
    /// Argument vector, templates not yet filled in; `None`: the image's own.
    pub command: Option<Vec<String>>,
    /// Plain environment.
    pub env: BTreeMap<String, String>,
    /// Secrets to hand over.
    pub secrets: Vec<SecretSpec>,
    /// Limits.
    pub resources: Resources,
    /// Extra mounts, not yet resolved against the file system.
    pub mounts: Vec<MountSpec>,
    /// Network of the container.
    pub network: Network,
    /// Identity inside the container.
    pub user: User,
    /// Stop the attempt past this age.
    pub timeout: Option<Duration>,
    /// Flag the attempt past this age.
    pub stale_after: Duration,
    /// Flag the attempt after so long without output.
    pub silent_after: Option<Duration>,
    /// Further attempts after a failed one.
    pub retries: u32,
    /// Pause between attempts.
    pub retry_backoff: RetryBackoff,
    /// What the next attempt goes on from.
    pub retry_mode: RetryMode,
    /// Higher first among the ready.
    pub priority: i64,
    /// Git revision for tasks without dependencies.
    pub base: String,
    /// What to do with uncommitted changes at exit.
    pub leftovers: Leftovers,
    /// Argument vector run after exit 0.
    pub verify: Option<Vec<String>>,
    /// What exit 0 without a commit means.
    pub empty: EmptyPolicy,
    /// When an exit means that the provider's limit was reached.
    pub rate_limit: Option<RateLimit>,
    /// How much of git the container is given.
    pub git_access: GitAccess,
}

/// Where attempts run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// Containers of a Docker-compatible engine.
    #[default]
    Docker,
    /// Local child processes; no container.
    Process,
}

/// A secret and the way it is handed over. The value is read at launch and never stored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSpec {
    /// Variable that the agent reads; also the file's name under `/run/secrets`.
    pub env: String,
    /// Variable of our environment that holds the value; default: the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_env: Option<String>,
    /// File that holds the value; `~` is the user's home. Tried when the variable is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_file: Option<String>,
    /// As a variable or as a file.
    #[serde(default, rename = "as")]
    pub hand_over: SecretHandOver,
}

impl SecretSpec {
    /// The variable of our environment that holds the value.
    pub fn variable(&self) -> &str {
        self.from_env.as_deref().unwrap_or(&self.env)
    }
}

/// How a secret reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretHandOver {
    /// As an environment variable, which `docker inspect` shows.
    #[default]
    Env,
    /// As a file under `/run/secrets`.
    File,
}

/// Limits of one attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// Cores; fractions allowed.
    pub cpus: f64,
    /// Bytes.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of `/dev/shm`; `None`: the engine's default.
    pub shm: Option<u64>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpus: 2.0, memory: 4 << 30, pids: 512, shm: None }
    }
}

/// A bind mount as asked for; resolved and judged at launch.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountSpec {
    /// Absolute, or relative to the repository.
    pub source: PathBuf,
    /// Absolute path inside the container.
    pub target: PathBuf,
    /// Default true.
    #[serde(default = "yes")]
    pub read_only: bool,
}

fn yes() -> bool {
    true
}

/// Network of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Network {
    /// The engine's default bridge.
    #[default]
    Bridge,
    /// Loopback only.
    None,
    /// A network that the user made.
    Named(String),
}

impl Network {
    /// The engine's name for it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Bridge => "bridge",
            Self::None => "none",
            Self::Named(name) => name,
        }
    }
}

/// Identity inside the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum User {
    /// The repository's owner; where that is root, the image's own.
    #[default]
    Auto,
    /// The image's own.
    Image,
    /// These numbers.
    Ids {
        /// Numeric user id.
        uid: u32,
        /// Numeric group id.
        gid: u32,
    },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Image => f.pad("image"),
            Self::Ids { uid, gid } => write!(f, "{uid}:{gid}"),
        }
    }
}

/// Pause between attempts: doubles from `initial` up to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryBackoff {
    /// Before the second attempt.
    pub initial: Duration,
    /// At most.
    pub max: Duration,
}

impl Default for RetryBackoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(10), max: Duration::from_mins(5) }
    }
}

impl RetryBackoff {
    /// The pause after `failures` failed attempts in a row (from 1).
    pub fn pause(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.max.max(self.initial))
    }
}

/// What the next attempt goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetryMode {
    /// The branch as the last attempt left it.
    #[default]
    Resume,
    /// The base again; the old tip keeps a ref.
    Fresh,
}

/// What to do with uncommitted changes when the agent exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// One commit on the agent's branch.
    #[default]
    Commit,
    /// Leave them in the worktree and say so.
    Keep,
    /// Fail the task.
    Fail,
}

/// What exit 0 without a commit of its own means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmptyPolicy {
    /// Completed, with result `empty`.
    #[default]
    Ok,
    /// Failed.
    Fail,
}

/// When an image is fetched from its registry.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Where the engine does not have it.
    #[default]
    IfMissing,
    /// Before each attempt.
    Always,
    /// Not at all.
    Never,
}

impl PullPolicy {
    /// What holds where nobody says. The images of the built-in agents are built on the spot and published nowhere:
    /// whoever took that name in a public registry would be handed the agents' tokens.
    pub fn of(image: Option<&str>) -> Self {
        match image {
            Some(image) if image.starts_with("orchestrate/") => Self::Never,
            _ => Self::IfMissing,
        }
    }
}

/// How much of git the container is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GitAccess {
    /// A private git directory per attempt.
    #[default]
    Isolated,
    /// The repository's whole git directory, writable.
    Shared,
    /// Nothing.
    None,
}

/// When an exit means that the provider's limit was reached.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Exit codes that mean it.
    #[serde(default)]
    pub exit_codes: Vec<i32>,
    /// Regular expression over the log's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Whom it stops.
    #[serde(default)]
    pub scope: RateLimitScope,
}

/// Whom a reached limit stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RateLimitScope {
    /// This task only.
    #[default]
    Task,
    /// Every task of the same agent.
    Provider,
}
