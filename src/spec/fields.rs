//! People's fields as they stand in a file: everything optional, nothing resolved. The JSON Schema is made from these
//! types, so their documentation is what editors show.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;

use super::diagnostic::Place;
use super::id::TaskId;
use super::model::{
    EmptyPolicy, GitAccess, Leftovers, MountSpec, Network, PullPolicy, RateLimit, RetryMode, RuntimeKind, SecretSpec,
    User,
};
use super::schema;
use super::text::Span;
use crate::status::Published;

/// How an attempt is run. The same fields stand in a task, in a profile of `agents` and in `defaults`: the task's own
/// value stands over its profile's, that over `defaults`, that over the built-in profile. `env` is merged by name,
/// `secrets` by `env`, `mounts` by `target`, `resources` and `retry_backoff` by member; every other field is replaced.
#[derive(Debug, Clone, PartialEq, Default, JsonSchema)]
pub struct Settings {
    /// Who works on it: `claude` (default), `codex`, `gemini`, `opencode`, `shell`, or a profile from `agents`.
    #[schemars(example = &"claude")]
    pub agent: Option<String>,
    /// Where `agent` stands, for faults that only show when the profiles are known.
    #[schemars(skip)]
    pub agent_place: Option<Place>,
    /// Image that the attempt runs in.
    #[schemars(example = &"orchestrate/claude:latest")]
    pub image: Option<String>,
    /// When the image is fetched from its registry: `if-missing`, `always`, `never`. Those of the built-in agents
    /// (`orchestrate/…`) only where this is said.
    #[schemars(extend("default" = "if-missing"))]
    pub pull: Option<PullPolicy>,
    /// Program and arguments; no shell. `{{prompt}}`, `{{prompt_file}}`, `{{task_id}}` and `{{branch}}` are replaced.
    /// Absent: the image's own.
    #[schemars(length(min = 1), example = schema::example_command())]
    pub command: Option<Vec<String>>,
    /// Variables with plain values; never for secrets.
    #[schemars(example = schema::example_env())]
    pub env: Option<BTreeMap<String, String>>,
    /// Secrets to hand over. Values are read at launch, never from this file.
    pub secrets: Option<Vec<SecretSpec>>,
    /// Limits.
    pub resources: Option<ResourceFields>,
    /// Files and folders of the host to show in the container.
    pub mounts: Option<Vec<MountSpec>>,
    /// `bridge`, `none`, or a network that you made.
    #[schemars(with = "Option<String>", extend("default" = "bridge"))]
    pub network: Option<Network>,
    /// `auto` (the repository's owner; where that is root, the image's own), `image`, or `uid:gid`.
    #[schemars(with = "Option<String>", extend("default" = "auto"), regex(pattern = r"^(auto|image|[0-9]+:[0-9]+)$"))]
    pub user: Option<User>,
    /// Past this age the attempt is stopped and has failed. Absent: never.
    #[schemars(with = "Option<schema::DurationText>")]
    pub timeout: Option<Duration>,
    /// Past this age the attempt is flagged; nothing else happens.
    #[schemars(with = "Option<schema::DurationText>", extend("default" = "30m"))]
    pub stale_after: Option<Duration>,
    /// After so long without output the attempt is flagged; nothing else happens. Absent: never.
    #[schemars(with = "Option<schema::DurationText>")]
    pub silent_after: Option<Duration>,
    /// Further attempts after a failed one.
    #[schemars(extend("default" = 0))]
    pub retries: Option<u32>,
    /// Pause between attempts: doubles from `initial` up to `max`.
    pub retry_backoff: Option<BackoffFields>,
    /// What the next attempt goes on from: `resume`, the branch as it is, or `fresh`, the base again.
    #[schemars(extend("default" = "resume"))]
    pub retry_mode: Option<RetryMode>,
    /// Higher starts first among the tasks that are ready.
    #[schemars(extend("default" = 0))]
    pub priority: Option<i64>,
    /// Git revision that a task without dependencies starts from.
    #[schemars(extend("default" = "HEAD"), example = &"main")]
    pub base: Option<String>,
    /// What happens to uncommitted changes when the agent exits: `commit` adds one commit, `keep` leaves them in the
    /// worktree, `fail` fails the task.
    #[schemars(extend("default" = "commit"))]
    pub leftovers: Option<Leftovers>,
    /// Program and arguments that are run over the result after exit 0; not 0: the task has failed.
    #[schemars(length(min = 1), example = schema::example_command())]
    pub verify: Option<Vec<String>>,
    /// What exit 0 without a commit means: `ok` or `fail`.
    #[schemars(extend("default" = "ok"))]
    pub empty: Option<EmptyPolicy>,
    /// When an exit means that the provider's limit was reached, which is no failure.
    pub rate_limit: Option<RateLimit>,
    /// How much of git the container is given: `isolated`, a private git directory; `shared`, the repository's own,
    /// writable; `none`.
    #[schemars(extend("default" = "isolated"))]
    pub git_access: Option<GitAccess>,
}

/// Limits of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Default, JsonSchema)]
#[schemars(rename = "Resources")]
pub struct ResourceFields {
    /// Cores; a fraction is fine.
    #[schemars(extend("default" = 2), range(min = 0.01, max = 1024.0))]
    pub cpus: Option<f64>,
    /// Memory.
    #[schemars(with = "Option<schema::SizeText>", extend("default" = "4GiB"))]
    pub memory: Option<u64>,
    /// Processes and threads.
    #[schemars(extend("default" = 512), range(min = 1))]
    pub pids: Option<u32>,
    /// Size of `/dev/shm`. Absent: the engine's default.
    #[schemars(with = "Option<schema::SizeText>")]
    pub shm: Option<u64>,
}

/// Pause between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema)]
#[schemars(rename = "RetryBackoff")]
pub struct BackoffFields {
    /// Before the second attempt.
    #[schemars(with = "Option<schema::DurationText>", extend("default" = "10s"))]
    pub initial: Option<Duration>,
    /// At most.
    #[schemars(with = "Option<schema::DurationText>", extend("default" = "5m"))]
    pub max: Option<Duration>,
}

impl Settings {
    /// Names of all of them, in the order of the reference.
    pub const FIELDS: [&'static str; 23] = [
        "agent",
        "image",
        "pull",
        "command",
        "env",
        "secrets",
        "resources",
        "mounts",
        "network",
        "user",
        "timeout",
        "stale_after",
        "silent_after",
        "retries",
        "retry_backoff",
        "retry_mode",
        "priority",
        "base",
        "leftovers",
        "verify",
        "empty",
        "rate_limit",
        "git_access",
    ];
}

/// Names of the fields that only a task has.
pub(crate) const TASK_FIELDS: [&str; 6] = ["id", "title", "description", "prompt", "dependencies", "depends_on"];
/// Names of the fields at the top of a file.
pub(crate) const PLAN_FIELDS: [&str; 11] = [
    "$schema",
    "version",
    "project",
    "plan_id",
    "max_concurrent",
    "suspend",
    "runtime",
    "agents",
    "defaults",
    "secrets",
    "tasks",
];

/// One task as a file asks for it.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct TaskFields {
    pub(crate) id: TaskId,
    /// Where the id stands.
    pub(crate) place: Place,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) prompt: Option<String>,
    /// Each with the place of its text. `None`: the field is absent.
    pub(crate) dependencies: Option<Vec<(Box<str>, Place)>>,
    /// `None`: nothing but the above is asked for, as with most tasks of a large plan.
    pub(crate) settings: Option<Box<Settings>>,
    pub(crate) published: Published,
    /// Whether it holds nothing but an id and our fields: the block that keeps the status of a task of the YAML spec.
    pub(crate) status_only: bool,
    /// Whether it may be no more than the record of what ran: it is, unless defaults and profile say all that is to be done.
    pub(crate) is_record: bool,
    /// Whether a YAML spec is there and does not name it.
    pub(crate) is_unnamed: bool,
    /// Whether an error was told while it was read, so that what is missing may only seem so.
    pub(crate) at_fault: bool,
}

/// A profile of `agents`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProfileFields {
    pub(crate) settings: Settings,
    pub(crate) place: Place,
}

/// One whole file as it stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct PlanFields {
    pub(crate) project: Option<(String, Span)>,
    pub(crate) plan_id: Option<String>,
    pub(crate) max_concurrent: Option<(NonZeroU32, Span)>,
    pub(crate) suspend: Option<(bool, Span)>,
    pub(crate) runtime: Option<(RuntimeKind, Span)>,
    pub(crate) agents: BTreeMap<String, ProfileFields>,
    pub(crate) defaults: Settings,
    pub(crate) defaults_place: Option<Place>,
    pub(crate) secrets: Vec<SecretSpec>,
    pub(crate) tasks: Vec<TaskFields>,
    /// Whether the field is there at all.
    pub(crate) has_tasks: bool,
    /// The same of what tasks take their settings from.
    pub(crate) at_fault: bool,
    /// Texts that were meant as ids and are told to be none.
    pub(crate) refused: HashSet<Box<str>>,
}
