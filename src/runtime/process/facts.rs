//! What stands in an attempt's folder and what goes over its wires. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::confine::Confinement;
use super::settings::Avoid;
use crate::observe::AttemptKey;

/// What an attempt was made with. No value of its environment: those are only in the supervisor's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Spec {
    /// Tells this folder from an earlier one of the same name.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) key: AttemptKey,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) made_at: Timestamp,
    pub(super) command: Vec<String>,
    pub(super) workdir: PathBuf,
    pub(super) binds: Vec<SpecBind>,
    /// Uid and gid to run as; `None`: ours.
    pub(super) user: Option<(u32, u32)>,
    /// Whether it gets no network but its own loopback.
    pub(super) no_network: bool,
    pub(super) limits: Limits,
    /// What it must not see.
    pub(super) hidden: Vec<PathBuf>,
    pub(super) avoid: Avoid,
    /// Whether a file system view of its own can be built here.
    pub(super) mounts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpecBind {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    pub(super) read_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Limits {
    pub(super) cpus: f64,
    pub(super) memory: u64,
    pub(super) pids: u32,
    pub(super) shm: Option<u64>,
    /// Bytes of the largest file that it may write.
    pub(super) file_size: u64,
}

/// A process, told from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    /// Clock ticks between the boot and its start.
    pub(super) start_ticks: u64,
}

/// The once-fence: durable before the command is let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) at: Timestamp,
    pub(super) boot_id: String,
    pub(super) supervisor: ProcessId,
    /// The first process inside, whose end ends all that is inside where there is a pid namespace.
    pub(super) cell: ProcessId,
    pub(super) confinement: Confinement,
    /// Its cgroups, absolute.
    pub(super) cgroups: Vec<PathBuf>,
}

/// A start that could not be made; the attempt stays `created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    pub(super) code: i64,
    pub(super) error: String,
}

impl Refused {
    /// Something that the machine would not do: as an engine's own failure.
    pub(super) fn machine(error: impl Into<String>) -> Self {
        Self { code: 128, error: error.into() }
    }
}

/// The end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) code: i64,
    /// `None` where nobody saw it.
    pub(super) finished_at: Option<Timestamp>,
    pub(super) oom_killed: bool,
    pub(super) lost: Option<Lost>,
}

/// Why the end of a command was not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lost {
    /// Its supervisor was killed; the command with it.
    SupervisorKilled,
    /// The machine was restarted.
    Reboot,
}

impl Lost {
    /// Words for the attempt's error text.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SupervisorKilled => "its supervisor was killed, and it was ended with it; its exit code is not known",
            Self::Reboot => "the machine was restarted while it ran; its exit code is not known",
        }
    }
}

impl Ended {
    /// As an engine reports what ran when the machine lost power.
    pub(super) const LOST_CODE: i64 = 255;

    pub(super) fn lost(lost: Lost) -> Self {
        Self { code: Self::LOST_CODE, finished_at: None, oom_killed: false, lost: Some(lost) }
    }
}

/// What a client asks of a supervisor, one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(super) enum Ask {
    Start,
    /// Answered when it has ended, at once where it never started.
    Stop {
        grace_ms: u64,
    },
    /// Gives a never started attempt up.
    Dismiss,
}

/// What a supervisor answers, one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub(super) enum Answer {
    Done,
    Refused(Refused),
    /// It has run; it runs only once.
    HasRun,
    /// It runs, and cannot be given up.
    Runs,
    Failed {
        message: String,
    },
}

/// The first that a supervisor is told. It goes over its standard input, so that it is on no disk and in no argument.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) env: BTreeMap<String, String>,
}

/// From the supervisor to the cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub(super) enum Order {
    Prepare(Box<Prepare>),
    /// Let the command go.
    Go,
    /// Ask the command to end.
    Terminate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Prepare {
    pub(super) spec: Spec,
    pub(super) env: BTreeMap<String, String>,
    /// What the supervisor has set up around the cell.
    pub(super) confinement: Confinement,
}

/// From the cell to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "report")]
pub(super) enum Report {
    /// All is set up; the command waits for [`Order::Go`].
    Ready {
        confinement: Confinement,
    },
    Refused(Refused),
    Ended {
        code: i64,
    },
}
