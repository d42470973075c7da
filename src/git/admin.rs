//! The admin folders of linked worktrees, `<common dir>/worktrees/<name>`: found by name and by what they record, never
//! by a worktree's own `.git` file, which an agent may have written.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::contract::{GitError, RepositoryLayout};
use super::open::io;

/// In every admin folder that we made; git leaves files that it does not know alone.
const MARKER: &str = "orchestrate";
/// What git itself writes into `locked` while a worktree is in the making.
const INITIALIZING: &[u8] = b"initializing";
/// What every reason of ours for a lock begins with.
const LOCKED_BY_US: &[u8] = b"orchestrate: ";
/// Files of git's that hold one line are never longer.
const LINE_LIMIT: u64 = 64 * 1024;

/// One admin folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admin {
    /// Absolute path.
    pub(super) dir: PathBuf,
}

impl Admin {
    /// The one that is registered for a worktree. Its likely names are tried before all others are read.
    pub(super) fn find(common_dir: &Path, worktree: &Path) -> Result<Option<Self>, GitError> {
        for name in names(worktree) {
            let admin = Self { dir: common_dir.join("worktrees").join(name) };
            match admin.worktree() {
                Some(found) if found == worktree => return Ok(Some(admin)),
                // A power cut left the file empty.
                None if admin.is_ours() => return Ok(Some(admin)),
                _ => {}
            }
        }
        Ok(Self::all(common_dir)?.into_iter().find(|admin| admin.worktree().is_some_and(|found| found == worktree)))
    }

    /// Every admin folder.
    pub(super) fn all(common_dir: &Path) -> Result<Vec<Self>, GitError> {
        let folder = common_dir.join("worktrees");
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io("list", &folder)(error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io("list", &folder))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                all.push(Self { dir: entry.path() });
            }
        }
        Ok(all)
    }

    /// Makes one for a worktree, locked as being in the making. It appears all at once: a half-written admin folder makes
    /// other tools fail.
    pub(super) fn create(common_dir: &Path, worktree: &Path, branch: &str) -> Result<Self, GitError> {
        let staging = common_dir.join("orchestrate").join("tmp");
        std::fs::create_dir_all(&staging).map_err(io("make", &staging))?;
        let worktrees = common_dir.join("worktrees");
        std::fs::create_dir_all(&worktrees).map_err(io("make", &worktrees))?;
        for name in names(worktree) {
            let made = staging.join(&name);
            remove_tree(&made)?;
            std::fs::create_dir(&made).map_err(io("make", &made))?;
            // The one file that must not be found empty after a power cut: the others are written anew while it stands.
            write_new(&made.join("locked"), INITIALIZING)?;
            sync(&made.join("locked"))?;
            write_new(&made.join(MARKER), format!("{branch}\n").as_bytes())?;
            Self { dir: made.clone() }.point_at(worktree)?;
            write_new(&made.join("HEAD"), format!("ref: {branch}\n").as_bytes())?;
            let dir = worktrees.join(&name);
            // Renaming onto a folder works only where it is empty, so a foreign one is never replaced.
            match std::fs::rename(&made, &dir) {
                Ok(()) => return Ok(Self { dir }),
                Err(_) if dir.exists() => remove_tree(&made)?,
                Err(error) => return Err(io("make", &dir)(error)),
            }
        }
        Err(GitError::ForeignPath { path: worktrees, what: "admin folders of other worktrees have all names of ours" })
    }

    /// Says which worktree it is for.
    pub(super) fn point_at(&self, worktree: &Path) -> Result<(), GitError> {
        let common = read_small(&self.dir.join("commondir")).ok().flatten();
        let is_common = common.is_some_and(|line| line.trim_ascii() == b"../..");
        if is_common && self.worktree().is_some_and(|found| found == worktree) {
            return Ok(());
        }
        let mut gitdir = worktree.join(".git").into_os_string().into_vec();
        gitdir.push(b'\n');
        replace(&self.dir.join("commondir"), b"../..\n")?;
        replace(&self.dir.join("gitdir"), &gitdir)
    }

    /// The worktree that it is registered for.
    pub(super) fn worktree(&self) -> Option<PathBuf> {
        let line = read_small(&self.dir.join("gitdir")).ok()??;
        let path = PathBuf::from(std::ffi::OsString::from_vec(line.trim_ascii_end().to_vec()));
        path.parent().map(Path::to_owned)
    }

    /// Whether we made it.
    pub(super) fn is_ours(&self) -> bool {
        self.dir.join(MARKER).symlink_metadata().is_ok_and(|meta| meta.is_file())
    }

    /// Takes over one that the person or an earlier tool made for our branch.
    pub(super) fn adopt(&self, branch: &str) -> Result<(), GitError> {
        replace(&self.dir.join(MARKER), format!("{branch}\n").as_bytes())
    }

    /// Whether it was never finished.
    pub(super) fn is_in_the_making(&self) -> bool {
        read_small(&self.dir.join("locked")).ok().flatten().is_some_and(|text| text.trim_ascii() == INITIALIZING)
    }

    /// Says that its worktree is whole, and why it is locked. A lock of somebody else's stays.
    pub(super) fn lock(&self, reason: &str) -> Result<(), GitError> {
        let path = self.dir.join("locked");
        let present = read_small(&path).ok().flatten();
        if present.is_some_and(|present| present == reason.as_bytes() || is_foreign_lock(&present)) {
            return Ok(());
        }
        replace(&path, reason.as_bytes())
    }

    /// Refuses where somebody else has locked the worktree, as `git worktree remove` does.
    pub(super) fn refuse_locked(&self, worktree: &Path) -> Result<(), GitError> {
        match read_small(&self.dir.join("locked")) {
            Ok(Some(text)) if is_foreign_lock(&text) => {
                let text = String::from_utf8_lossy(text.trim_ascii()).into_owned();
                let reason = if text.is_empty() { text } else { format!(" ({text})") };
                Err(GitError::Locked { path: worktree.to_owned(), reason })
            }
            _ => Ok(()),
        }
    }

    /// Says again that its worktree is in the making.
    pub(super) fn reopen(&self) -> Result<(), GitError> {
        replace(&self.dir.join("locked"), INITIALIZING)
    }

    /// What its HEAD holds.
    pub(super) fn head(&self) -> Option<Head> {
        let line = read_small(&self.dir.join("HEAD")).ok()??;
        Head::parse(&line)
    }

    /// Puts its HEAD on a branch.
    pub(super) fn attach(&self, branch: &str) -> Result<(), GitError> {
        replace(&self.dir.join("HEAD"), format!("ref: {branch}\n").as_bytes())
    }

    /// Branches that it keeps others from checking out: HEAD's, and that of a rebase under way.
    fn holds(git_dir: &Path, branch: &str) -> bool {
        let on_head = read_small(&git_dir.join("HEAD")).ok().flatten().and_then(|line| Head::parse(&line));
        on_head == Some(Head::Branch(branch.to_owned()))
            || ["rebase-merge/head-name", "rebase-apply/head-name"].iter().any(|name| {
                let line = read_small(&git_dir.join(name)).ok().flatten();
                line.is_some_and(|line| line.trim_ascii() == branch.as_bytes())
            })
    }

    /// Where a branch is checked out beside `but`.
    pub(super) fn holder(layout: &RepositoryLayout, branch: &str, but: &Path) -> Result<Option<PathBuf>, GitError> {
        if Self::holds(&layout.common_dir, branch) {
            return Ok(Some(layout.root.clone()));
        }
        for admin in Self::all(&layout.common_dir)? {
            let worktree = admin.worktree().unwrap_or_else(|| admin.dir.clone());
            if worktree != but && Self::holds(&admin.dir, branch) {
                return Ok(Some(worktree));
            }
        }
        Ok(None)
    }

    /// A lock that a killed git left on the index. Nothing runs in a worktree of ours when we come to it.
    pub(super) fn clear_index_lock(&self) -> Result<(), GitError> {
        remove_file(&self.dir.join("index.lock"))
    }

    /// Makes the worktree's `.git` file say what it should, and tells whether it did not. Its content is compared, not
    /// followed.
    pub(super) fn ensure_link(&self, worktree: &Path) -> Result<(), GitError> {
        let path = worktree.join(".git");
        let wanted = link(&self.dir);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => Err(GitError::ForeignPath { path, what: "a folder where a file belongs" }),
            Ok(meta) if meta.is_file() && read_small(&path).ok().flatten().is_some_and(|present| present == wanted) => {
                Ok(())
            }
            Ok(_) => replace(&path, &wanted),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => write_new(&path, &wanted),
            Err(error) => Err(io("look at", &path)(error)),
        }
    }

    /// Forgets the worktree.
    pub(super) fn remove(&self) -> Result<(), GitError> {
        remove_tree(&self.dir)
    }
}

/// Whether a folder's `.git` file names an admin folder of ours for it that is gone: then it was made by us.
pub(super) fn is_orphan_of_ours(common_dir: &Path, worktree: &Path) -> bool {
    let Some(present) = read_small(&worktree.join(".git")).ok().flatten() else { return false };
    names(worktree).iter().any(|name| {
        let dir = common_dir.join("worktrees").join(name);
        present == link(&dir) && !dir.exists()
    })
}

/// What a HEAD file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Head {
    /// A full ref.
    Branch(String),
    /// A commit.
    Detached(gix::ObjectId),
}

impl Head {
    /// Reads a HEAD file's content.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let line = line.trim_ascii();
        if let Some(name) = line.strip_prefix(b"ref:") {
            return Some(Self::Branch(String::from_utf8(name.trim_ascii().to_vec()).ok()?));
        }
        gix::ObjectId::from_hex(line).ok().map(Self::Detached)
    }
}

/// A worktree's `.git` file.
fn link(admin: &Path) -> Vec<u8> {
    [b"gitdir: ", admin.as_os_str().as_bytes(), b"\n"].concat()
}

/// Whether the text of a lock is neither git's own nor ours.
fn is_foreign_lock(text: &[u8]) -> bool {
    text.trim_ascii() != INITIALIZING && !text.starts_with(LOCKED_BY_US)
}

/// Names that an admin folder of ours can have.
fn names(worktree: &Path) -> [std::ffi::OsString; 2] {
    let name = worktree.file_name().unwrap_or(OsStr::new("worktree"));
    let mut prefixed = std::ffi::OsString::from("orchestrate-");
    prefixed.push(name);
    [name.to_owned(), prefixed]
}

/// Reads a small regular file; never a link's target, never a FIFO, which would block for ever.
pub(super) fn read_small(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    read_regular(path, LINE_LIMIT)
}

/// Reads a regular file of at most `limit` bytes without following a link or waiting for a FIFO's writer; `None` where it
/// is something else or larger.
pub(super) fn read_regular(path: &Path, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    let Some(file) = open_regular(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// Opens a regular file for reading; `None` where it is anything else.
pub(super) fn open_regular(path: &Path) -> std::io::Result<Option<File>> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(std::io::Error::other)?;
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file that must not be there.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(io("write", path))?;
    file.write_all(bytes).map_err(io("write", path))
}

/// Makes a file outlive a power cut; one that is gone is fine.
pub(super) fn sync(path: &Path) -> Result<(), GitError> {
    match File::open(path) {
        Ok(file) => file.sync_all().map_err(io("make durable", path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("make durable", path)(error)),
    }
}

/// Puts a file in another's place at once.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".orchestrate-new");
    let fresh = path.with_file_name(name);
    remove_file(&fresh)?;
    write_new(&fresh, bytes)?;
    std::fs::rename(&fresh, path).map_err(io("replace", path))
}

/// Removes a file; one that is gone is fine.
pub(super) fn remove_file(path: &Path) -> Result<(), GitError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("remove", path)(error)),
    }
}

/// Bytes on disk below a folder, links themselves and not their targets. What cannot be read counts nothing.
pub fn disk_usage(path: &Path) -> u64 {
    let mut bytes = 0;
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        bytes += meta.blocks() * 512;
        if meta.is_dir() {
            let entries = path.read_dir().into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()));
        }
    }
    bytes
}

/// Removes a folder with what is in it, links themselves and not their targets; one that is gone is fine.
pub(super) fn remove_tree(path: &Path) -> Result<(), GitError> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io("remove", path)(error)),
    }
}
