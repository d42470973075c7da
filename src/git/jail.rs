//! Reading a folder that an agent could write: no link is followed on the way or at the end, only regular files are read,
//! nothing waits.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

/// A folder held open.
#[derive(Debug)]
pub(super) struct Jail(OwnedFd);

impl Jail {
    /// Holds a folder open; `None` where it is missing or no folder. The way to it must be ours.
    pub(super) fn open(path: &Path) -> std::io::Result<Option<Self>> {
        folder(openat(CWD, path, FOLDER, Mode::empty()))
    }

    /// A folder below; `None` where a part is missing, a link or no folder.
    pub(super) fn enter(&self, path: &str) -> std::io::Result<Option<Self>> {
        let mut at: Option<Self> = None;
        for part in path.split('/') {
            let fd = at.as_ref().map_or(&self.0, |jail| &jail.0);
            match folder(openat(fd, part, FOLDER, Mode::empty()))? {
                Some(next) => at = Some(next),
                None => return Ok(None),
            }
        }
        Ok(at)
    }

    /// A regular file right here; `None` where it is missing or anything else.
    pub(super) fn file(&self, name: &OsStr) -> std::io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => {
                let file = File::from(fd);
                Ok(file.metadata()?.is_file().then_some(file))
            }
            // A socket gives NXIO; a link LOOP; a path through a file NOTDIR.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of a regular file below; `None` where it is missing, anything else, or longer than `limit`.
    pub(super) fn read(&self, path: &str, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
        let file = match path.rsplit_once('/') {
            Some((folder, name)) => match self.enter(folder)? {
                Some(jail) => jail.file(OsStr::new(name))?,
                None => None,
            },
            None => self.file(OsStr::new(path))?,
        };
        let Some(file) = file else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= limit).then_some(bytes))
    }

    /// Names and kinds right here, at most `limit`.
    pub(super) fn list(&self, limit: usize) -> std::io::Result<Vec<(OsString, FileType)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.push((OsStr::from_bytes(name).to_owned(), entry.file_type()));
            }
            if found.len() == limit {
                break;
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(found)
    }
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

fn folder(opened: rustix::io::Result<OwnedFd>) -> std::io::Result<Option<Jail>> {
    match opened {
        Ok(fd) => Ok(Some(Jail(fd))),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_fifos_are_not_there() {
        let dir = tempfile::tempdir().expect("a temp folder");
        let root = dir.path();
        std::fs::create_dir_all(root.join("in/deep")).expect("made");
        std::fs::write(root.join("in/deep/file"), "text").expect("written");
        std::fs::write(root.join("out"), "secret").expect("written");
        std::os::unix::fs::symlink("../out", root.join("in/link")).expect("linked");
        std::os::unix::fs::symlink("deep", root.join("in/folder")).expect("linked");
        rustix::fs::mknodat(CWD, root.join("in/fifo"), FileType::Fifo, Mode::RUSR, 0).expect("made");
        let jail = Jail::open(&root.join("in")).expect("opened").expect("a folder");
        assert_eq!(jail.read("deep/file", 4).expect("read").as_deref(), Some(&b"text"[..]));
        for (path, limit) in
            [("deep/file", 3), ("link", 99), ("folder/file", 99), ("fifo", 99), ("none", 99), ("deep", 99)]
        {
            assert_eq!(jail.read(path, limit).expect("read"), None, "{path}");
        }
        assert!(jail.enter("folder").expect("tried").is_none());
        assert!(Jail::open(&root.join("in/folder")).expect("tried").is_none());
        assert_eq!(jail.list(99).expect("listed").len(), 4);
    }
}
