//! The plan file on disk: read while others may be writing it, published into without losing what they wrote.
//!
//! The way of a write: take the file's lock for the moment, read the newest content, set only our fields in it, write a
//! temporary file in the same folder, read the file once more, and only if it is still the same rename over it. What
//! is left is the moment between that comparison and the rename, against writers that do not take the lock.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ask::{Asked, ask};
use super::files::{FileError, Files, Stamp};
use super::lock::{DATA_LOCK_PATIENCE, data_lock};
use super::splice::{SpliceError, Spliced, Wanted, splice};
use crate::spec::TaskId;
use crate::spec::json::{self, SyntaxError};
use crate::spec::text::MAX_FILE_LEN;
use crate::spec::tree::Tree;
use crate::status::TaskStatus;

/// How long a file that is empty or cut off is taken for one that someone is writing.
pub const PARTIAL_PATIENCE: Duration = Duration::from_secs(2);

/// A plan file that says nothing yet.
const EMPTY: &[u8] = b"{\n  \"tasks\": []\n}\n";

/// How often a partial file is looked at meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many times in a row somebody else may write between our reading and our renaming before we give up for now.
const TRIES: usize = 20;

/// Why the plan file could not be read or published into. In no case is a byte of it changed.
#[derive(Debug, thiserror::Error)]
pub enum PlanFileError {
    /// There is none.
    #[error("there is no plan file {}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A folder, FIFO or device stands there.
    #[error("{} is not a file", path.display())]
    NotAFile {
        /// What is no file.
        path: PathBuf,
    },
    /// More bytes than are read.
    #[error("{} has {size} bytes; at most {MAX_FILE_LEN} (64 MiB) are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// A link that leads out of the repository.
    #[error("{} is a link to {}, outside of the repository; put the file itself there", path.display(), target.display())]
    OutsideRepository {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Empty or cut off, for longer than a writer takes.
    #[error("{} is empty or cut off, as if someone were still writing it", path.display())]
    Partial {
        /// The file.
        path: PathBuf,
    },
    /// Nobody may write it.
    #[error("{} is read-only; make it writable (`chmod u+w`) so that status can be published in it", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Not JSON any more.
    #[error("{} cannot be written to before it is valid JSON again", path.display())]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: SyntaxError,
    },
    /// JSON, but not one of whose tasks we could tell where their status stands.
    #[error("{} cannot be written to as it stands", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: SpliceError,
    },
    /// Others wrote it again and again between our reading and our writing.
    #[error("{} was changed by others during each of {TRIES} attempts to write it", path.display())]
    Contended {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

impl PlanFileError {
    /// Whether it can pass by itself, so that trying again later is of use; else a person has to do something.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Partial { .. } | Self::Contended { .. } => true,
            Self::File(error) => !error.is_denied(),
            Self::Missing { .. }
            | Self::NotAFile { .. }
            | Self::TooLarge { .. }
            | Self::OutsideRepository { .. }
            | Self::ReadOnly { .. }
            | Self::NotJson { .. }
            | Self::Ambiguous { .. } => false,
        }
    }
}

/// A content of the plan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// All of it.
    pub bytes: Vec<u8>,
    /// What the file looked like then; a different stamp later means: read again.
    pub stamp: Stamp,
}

impl Snapshot {
    /// Whether it looks like a file that someone is in the middle of writing: empty or cut off. Parses it all, so ask
    /// only of what did not parse.
    pub fn is_partial(&self) -> bool {
        parse(&self.bytes).is_err_and(|error| error.kind.may_be_partial())
    }
}

/// What is to be published.
#[derive(Debug, Clone, Copy)]
pub struct Publish<'a> {
    /// The plan's id.
    pub plan_id: &'a str,
    /// The tasks' statuses. Tasks that are not in the file are passed over.
    pub statuses: &'a HashMap<TaskId, TaskStatus>,
    /// The content that they were decided on; see [`Wanted::seen`].
    pub seen: Option<&'a [u8]>,
    /// Tasks of another spec, whose blocks are added where they are missing.
    pub add: &'a [TaskId],
    /// Tasks that the other spec names no more, whose blocks are removed where they hold nothing but our fields.
    pub drop: &'a [TaskId],
}

/// What publishing came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a foreign content has to be judged"]
pub struct Publication {
    /// What stands in the file now.
    pub content: Snapshot,
    /// Whether the file was written; not, where it said all of it already.
    pub written: bool,
    /// Whether others changed the file since the content that the statuses were decided on. `content` then has to be
    /// judged as if newly read: it may hold edits, and requests that were left standing.
    pub foreign: bool,
}

/// The plan file of a repository.
#[derive(Clone)]
pub struct PlanFile {
    files: Arc<dyn Files>,
    path: PathBuf,
    root: PathBuf,
}

impl std::fmt::Debug for PlanFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlanFile").field("path", &self.path).field("root", &self.root).finish_non_exhaustive()
    }
}

/// Where the file really stands, and the names beside it.
struct Place {
    real: PathBuf,
    dir: PathBuf,
    lock: PathBuf,
    temp_prefix: String,
}

impl Place {
    fn of(real: PathBuf) -> Self {
        let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let dir = real.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let lock = dir.join(format!("{name}.lock"));
        let temp_prefix = format!(".{}.tmp-", name.trim_start_matches('.'));
        Self { real, dir, lock, temp_prefix }
    }
}

impl PlanFile {
    /// The file at `path`, of the repository whose work tree begins at `root`. Touches nothing.
    pub fn new(files: Arc<dyn Files>, path: PathBuf, root: PathBuf) -> Self {
        Self { files, path, root }
    }

    /// Where it was asked for; a link is not followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names that appear beside the file while it is written, as patterns for `info/exclude`, relative to the folder
    /// that it really stands in.
    pub fn excludes(&self) -> Result<[String; 2], PlanFileError> {
        let place = self.place()?;
        let lock = place.lock.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok([lock, format!("{}*", place.temp_prefix)])
    }

    /// Whether the file is no longer the one that had this stamp. `true` where nothing stands there.
    pub fn has_changed(&self, since: &Stamp) -> Result<bool, PlanFileError> {
        Ok(self.files.stamp(&self.path)?.as_ref() != Some(since))
    }

    /// What the file looks like now; `None` where nothing stands there.
    pub fn stamp(&self) -> Result<Option<Stamp>, PlanFileError> {
        Ok(self.files.stamp(&self.path)?)
    }

    /// Reads the newest content, whatever it is worth. What does not parse may be [`Snapshot::is_partial`].
    pub fn read(&self) -> Result<Snapshot, PlanFileError> {
        self.read_at(&self.place()?.real)
    }

    /// Reads like [`PlanFile::read`], but waits (at most `patience`, on tokio's clock) for a writer to finish. What is
    /// partial even then is given as it is.
    pub async fn read_settled(&self, patience: Duration) -> Result<Snapshot, PlanFileError> {
        let deadline = Instant::now() + patience;
        loop {
            let snapshot = self.read()?;
            if Instant::now() >= deadline || !snapshot.is_partial() {
                return Ok(snapshot);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Removes temporary files that writers left when they died. For the start, before the first publishing.
    ///
    /// Only with the file's lock, so that those who take it are not disturbed; who goes on without it writes again.
    pub fn sweep(&self) -> Result<(), PlanFileError> {
        let place = self.place()?;
        let mut stale = self.files.list(&place.dir)?;
        stale.retain(|name| {
            let pid = name.strip_prefix(&place.temp_prefix).and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
            pid.and_then(|pid| pid.parse().ok()).is_some_and(|pid| !self.files.is_other_process(pid))
        });
        if stale.is_empty() {
            return Ok(());
        }
        let Some(_lock) = self.files.try_lock(&place.lock)? else { return Ok(()) };
        for name in stale {
            self.files.remove(&place.dir.join(name))?;
        }
        Ok(())
    }

    /// Makes a file without tasks where there is none, for plans that another spec describes; whether it was missing.
    pub fn ensure_exists(&self) -> Result<bool, PlanFileError> {
        let files = &*self.files;
        if files.stamp(&self.path)?.is_some() {
            return Ok(false);
        }
        let Place { real, dir, temp_prefix, .. } = Place::of(self.path.clone());
        let temp = files.write_temp(&dir, &temp_prefix, EMPTY, None)?;
        let made = files.link_new(&temp, &real);
        files.remove(&temp)?;
        let made = made?;
        files.sync_dir(&dir)?;
        Ok(made)
    }

    /// Makes the file say these statuses and this plan id, and changes nothing else in it. Writes nothing where it says
    /// so already.
    ///
    /// Waits on tokio's clock for the file's lock and for a partial file, 2 s for each at most.
    pub async fn publish(
        &self,
        plan_id: &str,
        statuses: &HashMap<TaskId, TaskStatus>,
        seen: Option<&[u8]>,
    ) -> Result<Publication, PlanFileError> {
        self.publish_with(Publish { plan_id, statuses, seen, add: &[], drop: &[] }).await
    }

    /// Like [`PlanFile::publish`], and adds and removes the blocks of tasks that another spec describes.
    pub async fn publish_with(&self, publish: Publish<'_>) -> Result<Publication, PlanFileError> {
        let mut lock = None;
        for _ in 0..TRIES {
            let newest = self.read_settled(PARTIAL_PATIENCE).await?;
            let changed = publish.seen.filter(|seen| *seen != newest.bytes);
            let foreign = changed.is_some();
            let Spliced { text, unseen: _ } = self.merge(&newest.bytes, &Publish { seen: changed, ..publish })?;
            let Some(text) = text else { return Ok(Publication { content: newest, written: false, foreign }) };
            // Not before there is something to write, so that a quiet pass leaves no trace. What others wrote before we had
            // the lock is found by the comparison.
            if lock.is_none() {
                lock = Some(data_lock(&*self.files, &self.place()?.lock, DATA_LOCK_PATIENCE).await);
                if self.has_changed(&newest.stamp)? {
                    continue;
                }
            }
            if let Some(content) = self.replace(&newest, text.into_bytes())? {
                return Ok(Publication { content, written: true, foreign });
            }
        }
        Err(PlanFileError::Contended { path: self.path.clone() })
    }

    /// Makes the file say what a person asks for, and changes nothing else in it. Waits as [`PlanFile::publish`] does.
    /// Whoever reconciles takes it for the person's edit that it is.
    pub async fn ask(&self, asked: &Asked) -> Result<(), PlanFileError> {
        let mut lock = None;
        for _ in 0..TRIES {
            let newest = self.read_settled(PARTIAL_PATIENCE).await?;
            let path = || self.path.clone();
            let tree = parse(&newest.bytes).map_err(|source| PlanFileError::NotJson { path: path(), source })?;
            let text = ask(&tree, asked).map_err(|source| PlanFileError::Ambiguous { path: path(), source })?;
            let Some(text) = text else { return Ok(()) };
            if lock.is_none() {
                lock = Some(data_lock(&*self.files, &self.place()?.lock, DATA_LOCK_PATIENCE).await);
                if self.has_changed(&newest.stamp)? {
                    continue;
                }
            }
            if self.replace(&newest, text.into_bytes())?.is_some() {
                return Ok(());
            }
        }
        Err(PlanFileError::Contended { path: self.path.clone() })
    }

    fn merge(&self, newest: &[u8], publish: &Publish<'_>) -> Result<Spliced, PlanFileError> {
        let Publish { plan_id, statuses, seen, add, drop } = *publish;
        let path = || self.path.clone();
        let tree = parse(newest).map_err(|source| {
            let is_partial = source.kind.may_be_partial();
            if is_partial {
                PlanFileError::Partial { path: path() }
            } else {
                PlanFileError::NotJson { path: path(), source }
            }
        })?;
        // What was seen and did not parse held no request either; everything in it counts as not seen.
        let seen = seen.map(|seen| parse(seen).or_else(|_| json::parse("{}"))).transpose();
        let seen = seen.map_err(|source| PlanFileError::NotJson { path: path(), source })?;
        let wanted = Wanted { plan_id, status_of: |id: &str| statuses.get(id), seen: seen.as_ref(), add, drop };
        splice(&tree, &wanted).map_err(|source| PlanFileError::Ambiguous { path: path(), source })
    }

    /// Puts `bytes` in the place of `newest`; `None` where the file was changed meanwhile and stays as it is.
    fn replace(&self, newest: &Snapshot, bytes: Vec<u8>) -> Result<Option<Snapshot>, PlanFileError> {
        let files = &*self.files;
        if newest.stamp.mode & 0o222 == 0 {
            return Err(PlanFileError::ReadOnly { path: self.path.clone() });
        }
        let Place { real, dir, temp_prefix, .. } = self.place()?;
        let temp = files.write_temp(&dir, &temp_prefix, &bytes, Some(&newest.stamp))?;
        let replaced = self.rename_if_same(newest, &temp, &real);
        match replaced {
            Ok(Some(written)) => {
                files.sync_dir(&dir)?;
                // Renaming changes the inode's own time only. Where more differs, somebody was faster than this look, and the
                // older stamp makes the caller read again.
                let is_ours = |now: &Stamp| *now == Stamp { ctime_ns: now.ctime_ns, ..written.clone() };
                let now = files.stamp(&real)?.filter(is_ours);
                Ok(Some(Snapshot { bytes, stamp: now.unwrap_or(written) }))
            }
            Ok(None) => {
                files.remove(&temp)?;
                Ok(None)
            }
            Err(error) => {
                // The first error is the one to tell; the next start sweeps what is left.
                drop(files.remove(&temp));
                Err(error)
            }
        }
    }

    /// Gives the stamp of what now stands there; `None` where it was not the same any more.
    fn rename_if_same(&self, newest: &Snapshot, temp: &Path, real: &Path) -> Result<Option<Stamp>, PlanFileError> {
        let files = &*self.files;
        // Swept away by someone who takes us for dead.
        let Some(written) = files.stamp(temp)? else { return Ok(None) };
        // The bytes, since times are coarse; then the stamp once more, since a look is shorter than a read, and what is
        // written between here and the rename is lost.
        let is_same = self.place()?.real == real && files.read(real)? == newest.bytes;
        if !is_same || files.stamp(real)?.as_ref() != Some(&newest.stamp) {
            return Ok(None);
        }
        files.rename(temp, real)?;
        Ok(Some(written))
    }

    fn read_at(&self, real: &Path) -> Result<Snapshot, PlanFileError> {
        let path = || self.path.clone();
        let look = || self.files.stamp(real)?.ok_or_else(|| PlanFileError::Missing { path: path() });
        let mut before = look()?;
        for _ in 0..TRIES {
            if !before.is_file() {
                return Err(PlanFileError::NotAFile { path: path() });
            }
            if before.size > MAX_FILE_LEN as u64 {
                return Err(PlanFileError::TooLarge { path: path(), size: before.size });
            }
            let bytes = self.files.read(real)?;
            let after = look()?;
            if before == after && bytes.len() as u64 == after.size {
                return Ok(Snapshot { bytes, stamp: after });
            }
            before = after;
        }
        Err(PlanFileError::Contended { path: path() })
    }

    /// A link is followed inside the repository, so that it stays one; never out of it.
    fn place(&self) -> Result<Place, PlanFileError> {
        let missing = |error: FileError| match error.kind() {
            std::io::ErrorKind::NotFound => PlanFileError::Missing { path: self.path.clone() },
            _ => PlanFileError::File(error),
        };
        let real = self.files.real_path(&self.path).map_err(missing)?;
        let folder = self.path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        let is_link =
            real.parent() != Some(&*self.files.real_path(folder)?) || real.file_name() != self.path.file_name();
        if is_link && !real.starts_with(self.files.real_path(&self.root)?) {
            return Err(PlanFileError::OutsideRepository { path: self.path.clone(), target: real });
        }
        Ok(Place::of(real))
    }
}

fn parse(bytes: &[u8]) -> Result<Tree<'_>, SyntaxError> {
    json::decode(bytes).and_then(json::parse)
}
