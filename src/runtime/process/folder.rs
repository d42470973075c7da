//! An attempt's folder: what is written into it and how it is judged.
//!
//! | file | written by | meaning |
//! | --- | --- | --- |
//! | `spec.json` | the maker, before the folder gets its name | what it was made with |
//! | `lock` | the supervisor | its pid, for people; `flock`ed for it from before the folder gets its name until its end |
//! | `ctl` | the supervisor | the socket that it listens on |
//! | `refused.json` | the supervisor | the last start could not be made |
//! | `started.json` | the supervisor | the once-fence |
//! | `exit.json` | the supervisor, or whoever finds it killed | the end; never changed |
//! | `log.N` | the supervisor | output |

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cgroup;
use super::facts::{Ended, Lost, Refused, Spec, Started};
use super::kin;

/// Names of the files.
pub(super) mod name {
    pub(crate) const SPEC: &str = "spec.json";
    pub(crate) const LOCK: &str = "lock";
    pub(crate) const CONTROL: &str = "ctl";
    pub(crate) const REFUSED: &str = "refused.json";
    pub(crate) const STARTED: &str = "started.json";
    pub(crate) const ENDED: &str = "exit.json";
    pub(crate) const ERRORS: &str = "supervisor.log";
}

/// Marks the processes of an attempt where nothing else holds them together.
pub(super) const MARK: &str = "ORCHESTRATE_CONTAINER";

/// What failed on which path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub(super) struct FolderError {
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

/// Ties an io error to its path.
pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |source| FolderError { action, path: path.to_owned(), source }
}

/// Where an attempt stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Phase {
    /// Made, not started, and its supervisor is dead: as if it had never been made, since nothing else knows its
    /// environment.
    Husk,
    /// Made; a start may have been refused.
    Created(Option<Refused>),
    /// Runs, or is being ended after its supervisor's death.
    Running(Started),
    /// Ended; it may have been seen by nobody.
    Ended(Started, Ended),
}

/// A folder that was read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Look {
    pub(super) spec: Spec,
    pub(super) phase: Phase,
    /// The supervisor is dead and something that it ran still lives: to be looked at again soon.
    pub(super) dying: bool,
}

/// An attempt's folder.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The names of all attempts under a root.
    pub(super) fn names(root: &Path) -> Result<Vec<String>, FolderError> {
        let entries = fs::read_dir(root).map_err(at("read", root))?;
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(at("read", root))?.file_name();
            names.extend(name.to_str().filter(|name| !name.starts_with('.')).map(ToOwned::to_owned));
        }
        Ok(names)
    }

    /// Reads and judges it; `None` where there is none. Where the supervisor is dead, ends what it ran and writes the end
    /// in its place.
    pub(super) fn look(&self) -> Result<Option<Look>, FolderError> {
        let Some(spec) = read::<Spec>(&self.path.join(name::SPEC))? else { return Ok(None) };
        if let Some(phase) = self.ended()? {
            return Ok(Some(Look { spec, phase, dying: false }));
        }
        let Some(alive) = self.supervisor_lives()? else { return Ok(None) };
        if alive {
            // Its end may have been written since.
            let phase = match (self.ended()?, self.started()?) {
                (Some(ended), _) => ended,
                (None, Some(started)) => Phase::Running(started),
                (None, None) => Phase::Created(read(&self.path.join(name::REFUSED))?),
            };
            return Ok(Some(Look { spec, phase, dying: false }));
        }
        // Nothing is written any more but by whoever settles it.
        let (phase, dying) = match (self.ended()?, self.started()?) {
            (Some(ended), _) => (ended, false),
            (None, None) => (Phase::Husk, false),
            (None, Some(started)) => match self.settle(&spec, &started)? {
                Some(ended) => (Phase::Ended(started, ended), false),
                None => (Phase::Running(started), true),
            },
        };
        Ok(Some(Look { spec, phase, dying }))
    }

    fn started(&self) -> Result<Option<Started>, FolderError> {
        read(&self.path.join(name::STARTED))
    }

    fn ended(&self) -> Result<Option<Phase>, FolderError> {
        let Some(ended) = read::<Ended>(&self.path.join(name::ENDED))? else { return Ok(None) };
        let path = self.path.join(name::STARTED);
        let started = read(&path)?.ok_or_else(|| at("find", &path)(io::ErrorKind::NotFound.into()))?;
        Ok(Some(Phase::Ended(started, ended)))
    }

    /// Whether the supervisor lives; `None` where the folder has gone.
    fn supervisor_lives(&self) -> Result<Option<bool>, FolderError> {
        let path = self.path.join(name::LOCK);
        // Shared, so that those who look do not meet; the lock falls with the file.
        match File::open(&path) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(Some(false)),
                Err(TryLockError::WouldBlock) => Ok(Some(true)),
                Err(TryLockError::Error(error)) => Err(at("lock", &path)(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at("open", &path)(error)),
        }
    }

    /// Ends what a dead supervisor has left, then writes the end; `None` while something lives.
    fn settle(&self, spec: &Spec, started: &Started) -> Result<Option<Ended>, FolderError> {
        let boot = kin::boot_id().map_err(at("read", Path::new("/proc/sys/kernel/random/boot_id")))?;
        let lost = if boot == started.boot_id { Lost::SupervisorKilled } else { Lost::Reboot };
        if lost == Lost::SupervisorKilled {
            let mut left = kin::marked(MARK, &spec.id);
            if kin::lives(started.cell) {
                left.push(started.cell);
            }
            let in_groups = cgroup::kill(&started.cgroups);
            if !left.is_empty() || in_groups {
                for process in left {
                    // One that may not be signalled lives on and is met again.
                    kin::signal(process, Signal::KILL).ok();
                }
                return Ok(None);
            }
            cgroup::remove(&started.cgroups);
        }
        let ended = Ended::lost(lost);
        // Two that settle at once write the same.
        write(&self.path, name::ENDED, &ended)?;
        Ok(Some(ended))
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, FolderError> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| at("understand", path)(error.into())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(at("read", path)(error)),
    }
}

/// Writes a fact durably: whoever sees the name sees the whole content, also after a power loss.
pub(super) fn write<T: Serialize>(dir: &Path, name: &str, fact: &T) -> Result<(), FolderError> {
    let temp = dir.join(format!(".{name}.{:016x}", fastrand::u64(..)));
    let written = (|| {
        let mut file = private(&temp).map_err(at("make", &temp))?;
        let bytes = serde_json::to_vec(fact).map_err(|error| at("write", &temp)(error.into()))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(at("write", &temp))?;
        let path = dir.join(name);
        fs::rename(&temp, &path).map_err(at("rename to", &path))
    })();
    if written.is_err() {
        fs::remove_file(&temp).ok();
    }
    written?;
    sync(dir)
}

/// Makes the names in a folder durable.
pub(super) fn sync(dir: &Path) -> Result<(), FolderError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at("sync", dir))
}

/// A new file that only we may read.
pub(super) fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// A new folder that only we may enter.
pub(super) fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}
