//! How to open a repository, how to run, what wakes the loop from outside, and why it ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::slots::Share;
use super::sources::SpecFile;
use crate::act::{Ports, SecretSource};
use crate::plan::DiskFloor;
use crate::record::Holder;

/// How to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// End when nothing can move any more.
    pub until_done: bool,
    /// End after so long, whatever stands.
    pub timeout: Option<Duration>,
    /// List the runtime's containers at least so often.
    pub resync: Duration,
    /// With `until_done`: end when the runtime was away, or launches waited for disk space, for so long.
    pub stall_timeout: Duration,
    /// Make a pass at least so often, for who takes a silent loop for a stuck one; `None`: the loop's own pace.
    pub beat_every: Option<Duration>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            until_done: false,
            timeout: None,
            resync: Duration::from_mins(5),
            stall_timeout: Duration::from_mins(10),
            beat_every: None,
        }
    }
}

/// What wakes the loop from outside.
#[derive(Debug, Clone, Default)]
pub struct Wakeups {
    /// The plan file or the spec may have changed.
    pub changes: Arc<Notify>,
    /// A person wants everything looked at anew: the files, and the runtime's containers.
    pub reload: Arc<Notify>,
    /// Stop: launch nothing more, record, leave containers running.
    pub shutdown: CancellationToken,
    /// This plan's part in slots that others use too; `None`: it has this machine to itself.
    pub share: Option<Arc<Share>>,
}

/// Why the loop ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEnd {
    /// Every task is completed.
    AllCompleted,
    /// Nothing can move any more without a person, and not every task is completed.
    Unfinished,
    /// The plan is suspended and tasks are left.
    Suspended,
    /// The time was up.
    TimedOut,
    /// The runtime was away for too long.
    Stalled {
        /// Its words.
        why: String,
    },
    /// Nothing could be launched for want of disk space for too long.
    DiskLow {
        /// Where, and how little.
        why: String,
    },
    /// We were asked to stop.
    Stopped,
}

/// How to open a repository.
pub struct OpenOptions {
    /// The ports.
    pub ports: Ports,
    /// The plan file.
    pub plan_file: PathBuf,
    /// The YAML spec over it.
    pub spec: SpecFile,
    /// Where secrets come from.
    pub secrets: SecretSource,
    /// The user's home, never mounted whole.
    pub home: Option<PathBuf>,
    /// Sockets that no container may see.
    pub sockets: Vec<PathBuf>,
    /// Who we are, for a second one.
    pub holder: Holder,
    /// Overrides the file's `max_concurrent`.
    pub max_concurrent: Option<std::num::NonZeroU32>,
    /// Below this nothing is launched.
    pub disk_floor: DiskFloor,
    /// Seeds ids and jitter; the simulation's is fixed.
    pub seed: u64,
}
