//! What the runtime says now, as plain data.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::names::{AttemptKey, Role};

/// A container of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedContainer {
    /// The engine's id.
    pub id: String,
    /// Its name, without the leading slash.
    pub name: String,
    /// The attempt that its labels name.
    pub key: AttemptKey,
    /// The plan that its labels name.
    pub plan: String,
    /// What its labels say that it is for; its name may have been changed by a person.
    pub role: Role,
    /// What it does.
    pub state: ContainerState,
}

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Made; does not mean that no start was tried.
    Created,
    /// Runs.
    Running,
    /// Runs, frozen by a person.
    Paused,
    /// Ended; keeps its exit code and log.
    Exited,
    /// Being removed, or broken beyond use.
    Dead,
}

impl ContainerState {
    /// Whether it has or may have living processes.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

/// What an inspection adds to the list: facts of one container that a decision needs only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerDetail {
    /// The container.
    pub container: ObservedContainer,
    /// Exit code; also set on a start that failed.
    pub exit_code: i64,
    /// The engine's error text of a failed start; empty otherwise.
    pub error: String,
    /// The kernel killed one of its processes for memory.
    pub oom_killed: bool,
    /// The runtime knows that it did not come to its own end: `error` says what ended it.
    pub interrupted: bool,
    /// When it last started; `None`: never.
    pub started_at: Option<Timestamp>,
    /// When it last ended; `None`: never.
    pub finished_at: Option<Timestamp>,
}

/// One snapshot of the runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observed {
    /// Why the runtime could not be observed; nothing is decided about absence then.
    pub unavailable: Option<String>,
    /// Every container of this instance, by attempt.
    pub containers: BTreeMap<AttemptKey, ObservedContainer>,
    /// Every container that verifies an attempt's result, by attempt.
    pub verifies: BTreeMap<AttemptKey, ObservedContainer>,
    /// How many complete lists in a row lacked a container that the journal expects.
    pub absent: BTreeMap<AttemptKey, u32>,
}

impl Observed {
    /// A snapshot of a runtime that does not answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { unavailable: Some(message.into()), ..Self::default() }
    }

    /// An attempt's container: its agent's, or the one that verifies its result.
    pub fn find(&self, key: &AttemptKey, role: Role) -> Option<&ObservedContainer> {
        match role {
            Role::Agent => self.containers.get(key),
            Role::Verify => self.verifies.get(key),
        }
    }
}
