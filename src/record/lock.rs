//! The two locks: one reconciler per repository, and one writer of the plan file at a time.
//!
//! Both are `flock`s, given up by the kernel however their holder dies; that a lock file exists means nothing. Both are
//! advisory: names, intents and compare-before-rename hold without them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::files::{FileError, FileLock, Files};

/// Who holds the reconciler's lock: the lock file's content, as JSON. For people only; nothing is decided by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process number on `host`.
    pub pid: u32,
    /// Name of the machine.
    pub host: String,
    /// The command line, without anything secret.
    pub command: String,
    /// When it took the lock.
    pub since: Timestamp,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, command, since } = self;
        write!(f, "process {pid} on {host} (`{}`, since {since})", command.escape_debug())
    }
}

/// Why the reconciler's lock was not taken or is no longer held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another reconciler works on this repository.
    #[error("the lock {} is held by {}", path.display(), Name(holder.as_ref()))]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who has it, where that could be read.
        holder: Option<Holder>,
    },
    /// The file system has no `flock` (some network mounts).
    #[error("the file system of {} has no file locks; keep the repository's git directory on one that has", path.display())]
    Unsupported {
        /// The lock file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: FileError,
    },
    /// The lock file or its folder could not be made or read.
    #[error(transparent)]
    File(#[from] FileError),
}

struct Name<'a>(Option<&'a Holder>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) => holder.fmt(f),
            None => f.write_str("a process that did not leave its name"),
        }
    }
}

/// The reconciler's lock, `lock` in the state dir. Given back on drop.
#[must_use = "dropping it gives the lock back"]
pub struct StateLock {
    files: Arc<dyn Files>,
    path: PathBuf,
    me: Holder,
    held: Box<dyn FileLock>,
}

impl fmt::Debug for StateLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateLock").field("path", &self.path).field("me", &self.me).finish_non_exhaustive()
    }
}

impl StateLock {
    /// Takes the lock at once or says who has it; makes the state dir where it is missing.
    pub fn take(files: Arc<dyn Files>, state_dir: &Path, me: Holder) -> Result<Self, LockError> {
        files.create_dir_all(state_dir)?;
        let path = state_dir.join("lock");
        let held = acquire(&*files, &path, &me)?;
        Ok(Self { files, path, me, held })
    }

    /// Makes sure that nobody else can hold the lock too. To be called at the start of each pass: where someone deleted
    /// the lock file, the new one is taken; if another reconciler was faster, this one has to stop.
    pub fn ensure_current(&mut self) -> Result<(), LockError> {
        if !self.held.is_current()? {
            self.files.create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
            self.held = acquire(&*self.files, &self.path, &self.me)?;
        }
        Ok(())
    }
}

/// Who holds the reconciler's lock now, for people; `None` where nobody does, or where that cannot be told. The lock is
/// touched only where the note's process lives, so that a starting reconciler is hardly ever disturbed.
pub fn current_holder(files: &dyn Files, state_dir: &Path) -> Option<Holder> {
    let path = state_dir.join("lock");
    let holder: Holder = serde_json::from_slice(&files.read(&path).ok()?).ok()?;
    if !files.is_other_process(holder.pid) {
        return None;
    }
    match files.try_lock(&path) {
        Ok(Some(_free)) => None,
        Ok(None) => Some(holder),
        Err(_) => None,
    }
}

fn acquire(files: &dyn Files, path: &Path, me: &Holder) -> Result<Box<dyn FileLock>, LockError> {
    let lock = files.try_lock(path).map_err(|source| {
        if is_unsupported(&source) {
            LockError::Unsupported { path: path.to_owned(), source }
        } else {
            LockError::File(source)
        }
    })?;
    let Some(lock) = lock else {
        return Err(LockError::Held { path: path.to_owned(), holder: holder(files, path, me) });
    };
    // A full disk may not keep us from working: the note is for people.
    drop(lock.note(&serde_json::to_vec(me).unwrap_or_default()));
    Ok(lock)
}

/// Reads the note of the process that has the lock. A note whose process is dead was left by an earlier holder.
fn holder(files: &dyn Files, path: &Path, me: &Holder) -> Option<Holder> {
    let holder: Holder = serde_json::from_slice(&files.read(path).ok()?).ok()?;
    let is_alive = holder.host != me.host || holder.pid == me.pid || files.is_other_process(holder.pid);
    is_alive.then_some(holder)
}

fn is_unsupported(error: &FileError) -> bool {
    let code = error.source.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL))
}

/// How long the plan file's lock is waited for before a write goes on without it.
pub const DATA_LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Takes the plan file's lock, waiting for it on tokio's clock. `None`: someone held it for all of `patience`, or it
/// cannot be had here; the write is then guarded by its comparison alone.
pub async fn data_lock(files: &dyn Files, path: &Path, patience: Duration) -> Option<Box<dyn FileLock>> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        match files.try_lock(path) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) if Instant::now() < deadline => {}
            Ok(None) | Err(_) => return None,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
