//! Copies files that stand in an index from one folder to another, on all cores, and brings the index's times in line.
//!
//! Never by hard links: what an agent writes into its copy must not reach the other one. Where the file system shares
//! blocks (btrfs, XFS) a clone costs no data; else the kernel copies.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::bstr::{BStr, ByteSlice};
use gix::index::entry::{Mode, Stat};
use gix::index::{Entry, PathStorageRef};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

/// Fewer files are not worth a further thread.
const FOR_EACH_THREAD: usize = 256;

/// Up to so many bytes, a read and a write are faster than a copy by the kernel.
const SMALL: u64 = 64 * 1024;

/// One copy of a whole folder.
pub(super) struct Copy<'a> {
    from: &'a Path,
    to: &'a Path,
    /// Who is to own the copies.
    owner: Option<(u32, u32)>,
    /// Until the file system has said that it cannot.
    clones: AtomicBool,
}

impl<'a> Copy<'a> {
    pub(super) fn new(from: &'a Path, to: &'a Path, owner: Option<(u32, u32)>) -> Self {
        Self { from, to, owner, clones: AtomicBool::new(true) }
    }

    /// Copies every file whose entry knows its state in `from`, and leaves in the entry the state of the copy. A file
    /// that is not as its entry says is an error: then the source is not what it was.
    pub(super) fn run(&self, entries: &mut [Entry], paths: &PathStorageRef) -> io::Result<()> {
        self.make_folders(entries, paths)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(entries.len() / FOR_EACH_THREAD).max(1);
        let size = entries.len().div_ceil(threads).max(1);
        if threads == 1 {
            return self.part(entries, paths);
        }
        std::thread::scope(|scope| {
            let parts: Vec<_> =
                entries.chunks_mut(size).map(|part| scope.spawn(move || self.part(part, paths))).collect();
            parts.into_iter().try_for_each(|part| {
                part.join().unwrap_or_else(|_| Err(io::Error::other("BUG: a thread that copies files panicked")))
            })
        })
    }

    /// Folders first, since threads would race for those that their parts share.
    fn make_folders(&self, entries: &[Entry], paths: &PathStorageRef) -> io::Result<()> {
        let mut last: &[u8] = b"";
        for entry in entries {
            let path = entry.path_in(paths);
            let folder = match entry.mode {
                // An empty folder stands for a submodule.
                Mode::COMMIT => path.as_bytes(),
                _ if is_known(entry) => folder_and_name(path).0,
                _ => continue,
            };
            if folder == last {
                continue;
            }
            // In an index, all that is below one folder stands together.
            let ends = folder.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            for end in ends.chain([folder.len()]).filter(|end| *end > 0) {
                let part = &folder[..end];
                if last.starts_with(part) && last.get(end).is_none_or(|byte| *byte == b'/') {
                    continue;
                }
                match std::fs::create_dir(self.to.join(to_path(part))) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            last = folder;
        }
        Ok(())
    }

    fn part(&self, entries: &mut [Entry], paths: &PathStorageRef) -> io::Result<()> {
        let mut open: Option<(&[u8], OwnedFd, OwnedFd)> = None;
        for entry in entries {
            if entry.mode == Mode::COMMIT || !is_known(entry) {
                continue;
            }
            let (folder, name) = folder_and_name(entry.path_in(paths));
            if open.as_ref().is_none_or(|(opened, ..)| *opened != folder) {
                let at = |root: &Path| {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    rustix::fs::open(root.join(to_path(folder)), flags, rustix::fs::Mode::empty())
                };
                open = Some((folder, at(self.from)?, at(self.to)?));
            }
            let Some((_, from, to)) = &open else { continue };
            entry.stat = self.one(from, to, to_path(name), entry)?;
        }
        Ok(())
    }

    fn one(&self, from: &OwnedFd, to: &OwnedFd, name: &Path, entry: &Entry) -> io::Result<Stat> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = match rustix::fs::openat(from, name, flags, rustix::fs::Mode::empty()) {
            Ok(source) => File::from(source),
            Err(Errno::LOOP) if entry.mode == Mode::SYMLINK => return self.link(from, to, name, entry),
            Err(error) => return Err(error.into()),
        };
        let meta = gix::index::fs::Metadata::from_file(&source)?;
        expect_unchanged(entry, stat(&meta)?)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // As git makes files: what the umask leaves of it.
        let mode = rustix::fs::Mode::from_raw_mode(if meta.is_executable() { 0o777 } else { 0o666 });
        let copy = File::from(rustix::fs::openat(to, name, flags, mode)?);
        let size = meta.len();
        if size > 0 && !self.cloned(&copy, &source)? {
            if size <= SMALL { copy_small(&source, &copy, size)? } else { copy_bytes(&source, &copy, size)? }
        }
        if let Some((uid, gid)) = self.owner {
            std::os::unix::fs::fchown(&copy, Some(uid), Some(gid))?;
        }
        stat_of(&copy)
    }

    fn link(&self, from: &OwnedFd, to: &OwnedFd, name: &Path, entry: &Entry) -> io::Result<Stat> {
        let lstat = |folder: &OwnedFd| -> io::Result<Stat> {
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(folder));
            stat(&gix::index::fs::Metadata::from_path_no_follow(&Path::new(&path).join(name))?)
        };
        expect_unchanged(entry, lstat(from)?)?;
        let target = rustix::fs::readlinkat(from, name, Vec::new())?;
        rustix::fs::symlinkat(&target, to, name)?;
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        lstat(to)
    }

    /// Whether the copy shares the source's blocks now.
    fn cloned(&self, copy: &File, source: &File) -> io::Result<bool> {
        if !self.clones.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match rustix::fs::ioctl_ficlone(copy.as_fd(), source.as_fd()) {
            Ok(()) => Ok(true),
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(error.into()),
            // Another file system, or one that cannot.
            Err(_) => {
                self.clones.store(false, Ordering::Relaxed);
                Ok(false)
            }
        }
    }
}

/// Whether an entry says in which state its file is on disk.
pub(super) fn is_known(entry: &Entry) -> bool {
    entry.stat != Stat::default()
}

fn copy_small(source: &File, mut copy: &File, size: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1);
    rustix::io::retry_on_intr(|| rustix::io::read(source, rustix::buffer::spare_capacity(&mut bytes)))?;
    if bytes.len() as u64 == size { copy.write_all(&bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn copy_bytes(mut source: &File, mut copy: &File, size: u64) -> io::Result<()> {
    let mut done = 0;
    while done < size {
        let left = usize::try_from(size - done).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(source, None, copy, None, left) {
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(Errno::INTR) => {}
            // Between file systems that know no such call, or of one that has no such thing.
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                done += io::copy(&mut source, &mut copy)?;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if done == size { Ok(()) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof)) }
}

fn expect_unchanged(entry: &Entry, now: Stat) -> io::Result<()> {
    if entry.stat == now { Ok(()) } else { Err(io::Error::other("the file to copy was changed")) }
}

fn stat_of(file: &File) -> io::Result<Stat> {
    stat(&gix::index::fs::Metadata::from_file(file)?)
}

fn stat(meta: &gix::index::fs::Metadata) -> io::Result<Stat> {
    Stat::from_fs(meta).map_err(io::Error::other)
}

fn folder_and_name(path: &BStr) -> (&[u8], &[u8]) {
    match path.rfind_byte(b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn to_path(bytes: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
