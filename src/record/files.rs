//! The port through which all of the record room's file effects go, and the real file system behind it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::space::Space;

/// What failed on which path. The system's own words are the source.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// What was tried, as a verb phrase before the path: `read`, `write a temporary file in`.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// An error of `action` on `path`.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }

    /// The kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether no space, quota or file slot was left: passes when someone makes room.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
    }

    /// Whether permissions or a read-only file system stand in the way: passes only when a person changes that.
    pub fn is_denied(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// Tells that a file was replaced or edited: two equal stamps of one path mean the same content.
///
/// Trap: the kernel's file times advance in ticks of some milliseconds, so an edit of equal length in place, within the
/// tick of the stamp, leaves it as it was. Who is about to overwrite a file compares bytes instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Device that the inode belongs to.
    pub device: u64,
    /// Changes when the file is replaced by a rename.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Nanoseconds since the epoch of the last change of content; may be set by anyone.
    pub mtime_ns: i128,
    /// Nanoseconds since the epoch of the last change of content, mode or owner; nobody can set it.
    pub ctime_ns: i128,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Stamp {
    /// Whether it is a regular file: what is read elsewhere could block for ever (a FIFO) or has no end (a device).
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// An exclusive lock on a file, given back when dropped or when the process dies in any way.
pub trait FileLock: fmt::Debug + Send + Sync {
    /// Whether the locked file still stands under its path. If it was deleted or replaced, others may hold "the lock" too.
    fn is_current(&self) -> Result<bool, FileError>;

    /// Replaces the lock file's content, which is for people and never decides anything.
    fn note(&self, content: &[u8]) -> Result<(), FileError>;
}

/// All file effects of the record room. Synchronous: each call is small; whoever may not block runs them elsewhere.
///
/// "Durable" means on stable storage when the call returns. After an error the effect may or may not have taken place.
pub trait Files: Send + Sync {
    /// The whole content. Links are followed.
    fn read(&self, path: &Path) -> Result<Vec<u8>, FileError>;

    /// What identifies the content now; `None` where nothing stands. Links are followed.
    fn stamp(&self, path: &Path) -> Result<Option<Stamp>, FileError>;

    /// The path with every link resolved. Fails where nothing stands at the end.
    fn real_path(&self, path: &Path) -> Result<PathBuf, FileError>;

    /// Names in a folder, sorted; names that are not UTF-8 are left out.
    fn list(&self, dir: &Path) -> Result<Vec<String>, FileError>;

    /// Adds bytes at the end, durably; makes the file (0600) where it is missing.
    ///
    /// After an error the tail is undefined: any part of the bytes may be there. The caller truncates to the length it
    /// knows before it appends again.
    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError>;

    /// The same, durable only with the next [`Files::append`] to that file.
    fn append_soon(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError>;

    /// Cuts the file to `len` bytes, durably.
    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError>;

    /// Writes a fresh file `<prefix><pid>-<n>` in `dir`, its content durable (its name is so after [`Files::sync_dir`]).
    ///
    /// Mode, owner and group are those of `like`, else 0666 less the umask and the process's. Fails where the owner
    /// cannot be kept; a group that cannot be kept loses what it had beyond everybody's rights. Access control lists and
    /// extended attributes are not carried over. After an error nothing is left, as far as that is possible.
    fn write_temp(&self, dir: &Path, prefix: &str, bytes: &[u8], like: Option<&Stamp>) -> Result<PathBuf, FileError>;

    /// Renames over whatever stands at `to`. Durable after [`Files::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError>;

    /// Gives the file at `from` a second name, only where nothing stands at it; `false` where something does. Durable
    /// after [`Files::sync_dir`].
    fn link_new(&self, from: &Path, to: &Path) -> Result<bool, FileError>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> Result<(), FileError>;

    /// Removes a file; nothing there is fine.
    fn remove(&self, path: &Path) -> Result<(), FileError>;

    /// Makes a folder and those above it that are missing (0700), durably.
    fn create_dir_all(&self, dir: &Path) -> Result<(), FileError>;

    /// Takes the exclusive lock on a file, which is made where missing; `None` where someone else has it.
    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FileError>;

    /// Whether another process of this number lives on this machine.
    fn is_other_process(&self, pid: u32) -> bool;

    /// What the file system of a path has left; `None` where that cannot be told.
    fn space(&self, _path: &Path) -> Option<Space> {
        None
    }
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsFiles;

/// How often something that others can undo at once is tried before it counts as failed.
const TRIES: usize = 100;

trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::new(action, path, source))
    }
}

fn stamp_of(meta: &fs::Metadata) -> Stamp {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Stamp {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.len(),
        mtime_ns: nanos(meta.mtime(), meta.mtime_nsec()),
        ctime_ns: nanos(meta.ctime(), meta.ctime_nsec()),
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
    }
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        // ENOTDIR: a part of the path is a file, so nothing can stand below it.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    }
}

/// Gives a file the owner, group and mode of another. The owner first: changing it clears set-id bits.
fn liken(file: &File, like: &Stamp) -> io::Result<()> {
    let mine = file.metadata()?;
    let mut mode = like.mode & 0o7777;
    if mine.uid() != like.uid {
        std::os::unix::fs::fchown(file, Some(like.uid), None)?;
    }
    if mine.gid() != like.gid {
        match std::os::unix::fs::fchown(file, None, Some(like.gid)) {
            // Ours now stands where theirs stood, and may not gain rights by that.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => mode = mode & 0o707 | (mode & 0o007) << 3,
            other => other?,
        }
    }
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Adds bytes at the end; the file, and whether it was made for it.
fn add(path: &Path, bytes: &[u8]) -> Result<(File, bool), FileError> {
    let existing = found(OpenOptions::new().append(true).open(path)).at("open", path)?;
    let is_new = existing.is_none();
    let mut file = match existing {
        Some(file) => file,
        None => OpenOptions::new().append(true).create(true).mode(0o600).open(path).at("create", path)?,
    };
    file.write_all(bytes).at("append to", path)?;
    Ok((file, is_new))
}

impl Files for OsFiles {
    fn space(&self, path: &Path) -> Option<Space> {
        let stat = rustix::fs::statvfs(path).ok()?;
        Some(Space {
            // Without the blocks that are kept for root: an agent is not root.
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_inodes: stat.f_favail,
            total_inodes: stat.f_files,
        })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        fs::read(path).at("read", path)
    }

    fn stamp(&self, path: &Path) -> Result<Option<Stamp>, FileError> {
        Ok(found(fs::metadata(path)).at("look at", path)?.as_ref().map(stamp_of))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, FileError> {
        fs::canonicalize(path).at("resolve", path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FileError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).at("list", dir)? {
            names.extend(entry.at("list", dir)?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let (file, is_new) = add(path, bytes)?;
        file.sync_data().at("sync", path)?;
        if is_new { self.sync_dir(parent(path)) } else { Ok(()) }
    }

    fn append_soon(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        let (_, is_new) = add(path, bytes)?;
        if is_new { self.sync_dir(parent(path)) } else { Ok(()) }
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError> {
        let file = OpenOptions::new().write(true).open(path).at("open", path)?;
        file.set_len(len).at("truncate", path)?;
        file.sync_all().at("sync", path)
    }

    fn write_temp(&self, dir: &Path, prefix: &str, bytes: &[u8], like: Option<&Stamp>) -> Result<PathBuf, FileError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        const ACTION: &str = "write a temporary file in";
        let mut tries = 0;
        let (path, mut file) = loop {
            let name = format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = dir.join(name);
            // Private until it has its owner.
            let mode = if like.is_some() { 0o600 } else { 0o666 };
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
                Ok(file) => break (path, file),
                // Left by a dead process that had our number.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
                Err(e) => return Err(FileError::new(ACTION, dir, e)),
            }
        };
        let written = file
            .write_all(bytes)
            .and_then(|()| like.map_or(Ok(()), |like| liken(&file, like)))
            .and_then(|()| file.sync_all())
            .at(ACTION, dir);
        match written {
            Ok(()) => Ok(path),
            Err(e) => {
                // The write's error is the one that matters; the next start removes what is left.
                drop(fs::remove_file(&path));
                Err(e)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        fs::rename(from, to).at("replace", to)
    }

    fn link_new(&self, from: &Path, to: &Path) -> Result<bool, FileError> {
        match fs::hard_link(from, to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            other => other.at("create", to).map(|()| true),
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FileError> {
        match File::open(dir).and_then(|folder| folder.sync_all()) {
            // Some network and FUSE file systems cannot sync a folder; there is nothing better to be had from them.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            other => other.at("sync the folder", dir),
        }
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        found(fs::remove_file(path)).at("remove", path).map(|_| ())
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), FileError> {
        let missing: Vec<&Path> = dir.ancestors().take_while(|part| *part != Path::new("") && !part.is_dir()).collect();
        for part in missing.into_iter().rev() {
            match fs::DirBuilder::new().mode(0o700).create(part) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && part.is_dir() => {}
                other => other.at("create the folder", part)?,
            }
            self.sync_dir(parent(part))?;
        }
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FileError> {
        for _ in 0..TRIES {
            let lock = OsLock { file: open_lock(path).at("open the lock", path)?, path: path.to_owned() };
            match lock.file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(FileError::new("lock", path, e)),
            }
            // Deleted or replaced between open and lock: what we hold, nobody else will meet.
            if lock.is_current()? {
                return Ok(Some(Box::new(lock)));
            }
        }
        Ok(None)
    }

    fn is_other_process(&self, pid: u32) -> bool {
        let Some(number) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return false };
        pid != std::process::id()
            && rustix::process::test_kill_process(number).map_or_else(|e| e != rustix::io::Errno::SRCH, |()| true)
    }
}

/// Never truncates: the content is the holder's. A lock file of someone else that we may only read can be locked too.
fn open_lock(path: &Path) -> io::Result<File> {
    let open = |writing| {
        let mut options = OpenOptions::new();
        options.read(true).write(writing).create(writing).truncate(false).mode(0o666);
        // No link: a lock that stands elsewhere would be created or overwritten there.
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).open(path)
    };
    match open(true) {
        Err(e) if matches!(e.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) => {
            open(false).map_err(|_| e)
        }
        other => other,
    }
}

#[derive(Debug)]
struct OsLock {
    file: File,
    path: PathBuf,
}

impl FileLock for OsLock {
    fn is_current(&self) -> Result<bool, FileError> {
        let held = self.file.metadata().at("look at", &self.path)?;
        let there = found(fs::symlink_metadata(&self.path)).at("look at", &self.path)?;
        Ok(held.nlink() > 0 && there.is_some_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())))
    }

    fn note(&self, content: &[u8]) -> Result<(), FileError> {
        let mut file = &self.file;
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(content))
            .at("write the holder into", &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder for the test")
    }

    #[test]
    fn append_creates_and_adds_and_truncate_cuts() {
        let dir = folder();
        let path = dir.path().join("journal");
        OsFiles.append(&path, b"one\n").expect("created");
        OsFiles.append(&path, b"two\n").expect("added");
        assert_eq!(OsFiles.read(&path).expect("there"), b"one\ntwo\n");
        OsFiles.truncate(&path, 4).expect("cut");
        OsFiles.append(&path, b"3").expect("added");
        assert_eq!(OsFiles.read(&path).expect("there"), b"one\n3");
    }

    #[test]
    fn a_missing_file_is_no_stamp_and_a_named_error() {
        let dir = folder();
        let path = dir.path().join("none");
        assert_eq!(OsFiles.stamp(&path).expect("looked"), None);
        assert_eq!(OsFiles.stamp(&path.join("below")).expect("looked"), None);
        let error = OsFiles.read(&path).expect_err("nothing there");
        assert_eq!(error.to_string(), format!("cannot read {}", path.display()));
        OsFiles.remove(&path).expect("nothing to remove is fine");
    }

    #[test]
    fn a_stamp_tells_an_edit_and_a_replacement() {
        let dir = folder();
        let path = dir.path().join("a");
        fs::write(&path, "1").expect("written");
        let first = OsFiles.stamp(&path).expect("looked").expect("there");
        assert!(first.is_file());
        fs::write(&path, "12").expect("written");
        let edited = OsFiles.stamp(&path).expect("looked").expect("there");
        assert_ne!(first, edited);
        let temp = OsFiles.write_temp(dir.path(), "t-", b"12", Some(&edited)).expect("written");
        OsFiles.rename(&temp, &path).expect("replaced");
        assert_ne!(OsFiles.stamp(&path).expect("looked"), Some(edited));
        assert!(!OsFiles.stamp(dir.path()).expect("looked").expect("there").is_file());
    }

    #[test]
    fn a_temporary_file_has_the_mode_of_its_model() {
        let dir = folder();
        let path = dir.path().join("a");
        fs::write(&path, "1").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).expect("set");
        let like = OsFiles.stamp(&path).expect("looked").expect("there");
        let temp = OsFiles.write_temp(dir.path(), ".t-", b"2", Some(&like)).expect("written");
        let stamp = OsFiles.stamp(&temp).expect("looked").expect("there");
        assert_eq!((stamp.mode, stamp.uid, stamp.gid), (like.mode, like.uid, like.gid));
        let name = temp.file_name().and_then(|name| name.to_str()).expect("ours");
        assert!(name.starts_with(&format!(".t-{}-", std::process::id())), "{name}");
    }

    #[test]
    fn folders_are_made_private() {
        let dir = folder();
        let deep = dir.path().join("a/b/c");
        OsFiles.create_dir_all(&deep).expect("made");
        OsFiles.create_dir_all(&deep).expect("there already");
        assert_eq!(OsFiles.stamp(&dir.path().join("a")).expect("looked").expect("there").mode & 0o777, 0o700);
    }

    #[test]
    fn a_file_in_the_way_of_a_folder_is_an_error() {
        let dir = folder();
        fs::write(dir.path().join("a"), "").expect("written");
        assert!(OsFiles.create_dir_all(&dir.path().join("a/b")).is_err());
    }

    #[test]
    fn one_holder_at_a_time() {
        let dir = folder();
        let path = dir.path().join("lock");
        let held = OsFiles.try_lock(&path).expect("tried").expect("free");
        assert!(OsFiles.try_lock(&path).expect("tried").is_none());
        held.note(b"first holder").expect("noted");
        held.note(b"second").expect("noted");
        assert_eq!(OsFiles.read(&path).expect("there"), b"second");
        drop(held);
        assert!(OsFiles.try_lock(&path).expect("tried").is_some());
    }

    #[test]
    fn a_deleted_lock_is_no_longer_current() {
        let dir = folder();
        let path = dir.path().join("lock");
        let held = OsFiles.try_lock(&path).expect("tried").expect("free");
        assert!(held.is_current().expect("looked"));
        fs::remove_file(&path).expect("removed");
        assert!(!held.is_current().expect("looked"));
        let second = OsFiles.try_lock(&path).expect("tried").expect("another inode");
        assert!(!held.is_current().expect("looked"));
        assert!(second.is_current().expect("looked"));
    }

    #[test]
    fn a_link_is_no_lock() {
        let dir = folder();
        let path = dir.path().join("lock");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).expect("linked");
        assert!(OsFiles.try_lock(&path).is_err());
        assert!(!dir.path().join("elsewhere").exists());
    }

    #[test]
    fn only_other_living_processes_are_others() {
        assert!(OsFiles.is_other_process(std::os::unix::process::parent_id()));
        assert!(!OsFiles.is_other_process(std::process::id()));
        for none in [0, u32::MAX, 0x7fff_ffff] {
            assert!(!OsFiles.is_other_process(none), "{none}");
        }
    }
}
