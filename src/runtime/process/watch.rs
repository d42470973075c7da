//! inotify for async code.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::unix::AsyncFd;

/// Something happened to what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which watch; -1 where the kernel lost some.
    pub watch: i32,
    /// The name inside the watched folder.
    pub name: Option<OsString>,
    /// The kernel lost some: anything may have changed.
    pub overflow: bool,
}

/// A set of watches.
#[derive(Debug)]
pub struct Watch {
    fd: AsyncFd<OwnedFd>,
}

impl Watch {
    /// No watch yet; needs the asynchronous runtime.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        #[expect(deprecated, reason = "unsound only for types that may give another descriptor later; this owns one")]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd })
    }

    /// Watches names that come and go, and files that were written and closed: a lock that its holder's death closes.
    pub fn add(&self, folder: &Path) -> io::Result<i32> {
        let flags = WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(self.fd.get_ref(), folder, flags)?)
    }

    /// Watches every write too.
    pub fn add_with_writes(&self, folder: &Path) -> io::Result<i32> {
        let flags = WatchFlags::MOVE | WatchFlags::CLOSE_WRITE | WatchFlags::MODIFY | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(self.fd.get_ref(), folder, flags)?)
    }

    /// Watches no more; one that is gone already is fine.
    pub fn remove(&self, watch: i32) {
        inotify::remove_watch(self.fd.get_ref(), watch).ok();
    }

    /// What has changed since; waits until something has.
    pub async fn changes(&self) -> io::Result<Vec<Change>> {
        loop {
            let mut guard = self.fd.readable().await?;
            if let Ok(changes) = guard.try_io(|fd| read(fd.get_ref())) {
                return changes;
            }
        }
    }
}

fn read(fd: &OwnedFd) -> io::Result<Vec<Change>> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(fd, &mut buffer);
    let mut changes = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => changes.push(Change {
                watch: event.wd(),
                name: event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned()),
                overflow: event.events().contains(ReadFlags::QUEUE_OVERFLOW),
            }),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) if changes.is_empty() => return Err(error.into()),
            Err(_) => return Ok(changes),
        }
    }
}
