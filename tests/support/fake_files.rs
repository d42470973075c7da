//! A file system in memory, as strict as the real one and deterministic: several processes over one disk, a script of
//! faults by call, crashes of a process and of the machine.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orchestrate::record::{FileError, FileLock, Files, Stamp};

/// The calls of the port that can fail or crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Read,
    Stamp,
    RealPath,
    List,
    Append,
    Truncate,
    WriteTemp,
    Rename,
    LinkNew,
    SyncDir,
    Remove,
    CreateDirAll,
    TryLock,
    IsCurrent,
    Note,
}

/// Which call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The process's call of that number, from 0.
    Call(u64),
    /// The next call of that kind after `.1` others of it.
    Nth(Op, u64),
    /// Every call of that kind, until [`FakeFiles::heal`].
    Each(Op),
}

/// In what way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// An error, and nothing happened.
    Fail(ErrorKind),
    /// An error, though it happened.
    FailAfter(ErrorKind),
    /// An error after so many bytes; the same as `Fail` for a call that writes none.
    Short(usize, ErrorKind),
    /// The process dies, and nothing happened.
    CrashBefore,
    /// The process dies after so many bytes; the same as `CrashBefore` for a call that writes none.
    CrashAmid(usize),
    /// The process dies after it happened.
    CrashAfter,
}

type Hook = Box<dyn FnOnce() + Send>;

/// One process's view of the disk.
#[derive(Clone)]
pub(crate) struct FakeFiles {
    world: Arc<Mutex<World>>,
    pid: u32,
}

#[derive(Default)]
struct World {
    names: BTreeMap<PathBuf, Entry>,
    durable_names: BTreeMap<PathBuf, Entry>,
    inodes: BTreeMap<u64, Inode>,
    processes: BTreeMap<u32, Process>,
    locks: BTreeMap<u64, (u32, u64)>,
    /// Source of inode numbers, times and lock tokens: never the same twice.
    tick: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File(u64),
    Dir,
    Link(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    data: Vec<u8>,
    durable: Vec<u8>,
    mode: u32,
    mtime: u64,
    ctime: u64,
}

#[derive(Default)]
struct Process {
    is_dead: bool,
    calls: Vec<(Op, PathBuf)>,
    faults: Vec<(When, What)>,
    hooks: BTreeMap<u64, Hook>,
    temps: u64,
}

fn error(kind: ErrorKind) -> io::Error {
    kind.into()
}

impl Default for FakeFiles {
    fn default() -> Self {
        let mut world = World::default();
        world.names.insert("/".into(), Entry::Dir);
        world.durable_names.insert("/".into(), Entry::Dir);
        let files = Self { world: Arc::new(Mutex::new(world)), pid: 0 };
        files.process()
    }
}

impl FakeFiles {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A further process over the same disk.
    pub(crate) fn process(&self) -> Self {
        let mut world = self.world();
        let pid = 100 + u32::try_from(world.processes.len()).expect("few");
        world.processes.insert(pid, Process::default());
        drop(world);
        Self { world: Arc::clone(&self.world), pid }
    }

    /// The process's number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends the process: its locks are given up, all its later calls fail.
    pub(crate) fn kill(&self) {
        self.world().kill(self.pid);
    }

    /// The machine loses power: what was not made durable is gone, and every process with it.
    pub(crate) fn power_loss(&self) {
        let mut world = self.world();
        let pids: Vec<u32> = world.processes.keys().copied().collect();
        for pid in pids {
            world.kill(pid);
        }
        world.names = world.durable_names.clone();
        for inode in world.inodes.values_mut() {
            inode.data = inode.durable.clone();
        }
    }

    /// Whether the process died.
    pub(crate) fn is_dead(&self) -> bool {
        self.world().processes[&self.pid].is_dead
    }

    /// Adds a fault to the script; each but [`When::Each`] strikes once.
    pub(crate) fn fault(&self, when: When, what: What) {
        self.mine(|process| process.faults.push((when, what)));
    }

    /// Empties the script.
    pub(crate) fn heal(&self) {
        self.mine(|process| process.faults.clear());
    }

    /// Runs something right before the process's call of that number, from 0.
    pub(crate) fn before_call(&self, number: u64, hook: impl FnOnce() + Send + 'static) {
        self.mine(|process| drop(process.hooks.insert(number, Box::new(hook))));
    }

    /// The process's calls until now.
    pub(crate) fn calls(&self) -> Vec<(Op, PathBuf)> {
        self.mine(|process| process.calls.clone())
    }

    fn mine<T>(&self, f: impl FnOnce(&mut Process) -> T) -> T {
        let mut world = self.world();
        f(world.processes.get_mut(&self.pid).expect("made with the handle"))
    }

    // What people and other programs do: durable, never fails, not counted.

    /// Puts a file (0644) in place as a rename does: a new inode.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let mut world = self.world();
        let inode = world.create(content.as_ref(), 0o644);
        world.set_name(Path::new(path), Entry::File(inode));
    }

    /// Overwrites a file in place: the same inode.
    pub(crate) fn overwrite(&self, path: &str, content: impl AsRef<[u8]>) {
        let mut world = self.world();
        let inode = world.file(Path::new(path)).expect("there");
        world.write(inode, |data| content.as_ref().clone_into(data));
        world.sync(inode);
        // Who syncs a file also makes its name durable, by journal order.
        let dir = Path::new(path).parent().expect("absolute").to_owned();
        world.sync_dir(&dir).expect("there");
    }

    /// Makes a folder and those above it.
    pub(crate) fn folder(&self, path: &str) {
        let mut world = self.world();
        for path in Path::new(path).ancestors() {
            world.set_name(path, Entry::Dir);
        }
    }

    /// Makes a link.
    pub(crate) fn link(&self, path: &str, target: &str) {
        self.world().set_name(Path::new(path), Entry::Link(target.into()));
    }

    /// Deletes a name.
    pub(crate) fn delete(&self, path: &str) {
        let mut world = self.world();
        world.names.remove(Path::new(path));
        world.durable_names.remove(Path::new(path));
    }

    /// Sets the permission bits.
    pub(crate) fn chmod(&self, path: &str, mode: u32) {
        let mut world = self.world();
        let inode = world.file(Path::new(path)).expect("there");
        world.inodes.get_mut(&inode).expect("there").mode = mode | 0o100_000;
    }

    /// The content, links followed; `None` where nothing stands.
    pub(crate) fn content(&self, path: &str) -> Option<Vec<u8>> {
        let world = self.world();
        world.file(Path::new(path)).ok().map(|inode| world.inodes[&inode].data.clone())
    }

    /// All names but folders.
    pub(crate) fn names(&self) -> Vec<String> {
        let world = self.world();
        let files = world.names.iter().filter(|(_, entry)| **entry != Entry::Dir);
        files.map(|(path, _)| path.to_string_lossy().into_owned()).collect()
    }

    fn call<T>(
        &self,
        op: Op,
        action: &'static str,
        path: &Path,
        effect: impl FnOnce(&mut World, Option<usize>) -> io::Result<T>,
    ) -> Result<T, FileError> {
        self.strike(op, path, effect).map_err(|source| FileError::new(action, path, source))
    }

    fn strike<T>(
        &self,
        op: Op,
        path: &Path,
        effect: impl FnOnce(&mut World, Option<usize>) -> io::Result<T>,
    ) -> io::Result<T> {
        let (fault, hook) = self.mine(|process| {
            if process.is_dead {
                return (Some(What::CrashBefore), None);
            }
            let number = process.calls.len() as u64;
            process.calls.push((op, path.to_owned()));
            (process.next_fault(op, number), process.hooks.remove(&number))
        });
        // Not under the lock: it calls us.
        if let Some(hook) = hook {
            hook();
        }
        // What runs (with which limit), what is answered instead of its result, and whether the process dies of it.
        let (runs, answer, dies) = match fault {
            None => (Some(None), None, false),
            Some(What::Fail(kind)) => (None, Some(kind), false),
            Some(What::FailAfter(kind)) => (Some(None), Some(kind), false),
            Some(What::Short(limit, kind)) => (op.writes().then_some(Some(limit)), Some(kind), false),
            Some(What::CrashBefore) => (None, Some(ErrorKind::BrokenPipe), true),
            Some(What::CrashAmid(limit)) => (op.writes().then_some(Some(limit)), Some(ErrorKind::BrokenPipe), true),
            Some(What::CrashAfter) => (Some(None), Some(ErrorKind::BrokenPipe), true),
        };
        let mut world = self.world();
        let result = runs.map(|limit| effect(&mut world, limit));
        if dies {
            world.kill(self.pid);
        }
        // A lock among the results gives itself back when it is dropped, and needs the world for that.
        drop(world);
        match (answer, result) {
            (None, Some(result)) => result,
            (Some(kind), _) => Err(error(kind)),
            (None, None) => unreachable!("what does not run is answered"),
        }
    }
}

impl Op {
    fn writes(self) -> bool {
        matches!(self, Self::Append | Self::WriteTemp | Self::Note)
    }
}

impl Process {
    fn next_fault(&mut self, op: Op, number: u64) -> Option<What> {
        let mut hit = None;
        for (at, (when, what)) in self.faults.iter_mut().enumerate() {
            let strikes = match when {
                When::Call(call) => *call == number,
                When::Each(each) => *each == op,
                When::Nth(each, left) if *each == op => {
                    let strikes = *left == 0;
                    *left = left.saturating_sub(1);
                    strikes
                }
                When::Nth(..) => false,
            };
            if strikes && hit.is_none() {
                hit = Some((at, *when, *what));
            }
        }
        let (at, when, what) = hit?;
        if !matches!(when, When::Each(_)) {
            self.faults.remove(at);
        }
        Some(what)
    }
}

impl World {
    fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    fn kill(&mut self, pid: u32) {
        self.locks.retain(|_, (holder, _)| *holder != pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.is_dead = true;
        }
    }

    /// Content durable, name not yet.
    fn create(&mut self, content: &[u8], mode: u32) -> u64 {
        let number = self.tick();
        let inode = Inode {
            data: content.to_owned(),
            durable: content.to_owned(),
            mode: mode & 0o7777 | 0o100_000,
            mtime: number,
            ctime: number,
        };
        self.inodes.insert(number, inode);
        number
    }

    fn set_name(&mut self, path: &Path, entry: Entry) {
        self.names.insert(path.to_owned(), entry.clone());
        self.durable_names.insert(path.to_owned(), entry);
    }

    fn write(&mut self, inode: u64, f: impl FnOnce(&mut Vec<u8>)) {
        let now = self.tick();
        let inode = self.inodes.get_mut(&inode).expect("never forgotten");
        f(&mut inode.data);
        (inode.mtime, inode.ctime) = (now, now);
    }

    fn sync(&mut self, inode: u64) {
        let inode = self.inodes.get_mut(&inode).expect("never forgotten");
        inode.durable = inode.data.clone();
    }

    /// Follows links at the end of the path; `..` and links to folders are not needed yet.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..40 {
            match self.names.get(&path) {
                None => return Err(error(ErrorKind::NotFound)),
                Some(Entry::Link(target)) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                Some(_) => return Ok(path),
            }
        }
        Err(error(ErrorKind::InvalidInput))
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.names.get(&self.resolve(path)?) {
            Some(Entry::File(inode)) => Ok(*inode),
            _ => Err(error(ErrorKind::IsADirectory)),
        }
    }

    fn has_folder(&self, path: &Path) -> io::Result<()> {
        match self.names.get(path) {
            Some(Entry::Dir) => Ok(()),
            Some(_) => Err(error(ErrorKind::NotADirectory)),
            None => Err(error(ErrorKind::NotFound)),
        }
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.has_folder(dir)?;
        let is_in = |path: &Path| path.parent() == Some(dir);
        self.durable_names.retain(|path, _| !is_in(path));
        let names = self.names.iter().filter(|(path, _)| is_in(path));
        self.durable_names.extend(names.map(|(path, entry)| (path.clone(), entry.clone())));
        Ok(())
    }
}

impl FakeFiles {
    fn add(&self, path: &Path, bytes: &[u8], durably: bool) -> Result<(), FileError> {
        self.call(Op::Append, "append to", path, |world, limit| {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let inode = match world.file(path) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    world.has_folder(parent)?;
                    let inode = world.create(b"", 0o600);
                    world.names.insert(path.to_owned(), Entry::File(inode));
                    inode
                }
                found => found?,
            };
            world.write(inode, |data| data.extend_from_slice(&bytes[..limit.unwrap_or(bytes.len()).min(bytes.len())]));
            if limit.is_none() {
                if durably {
                    world.sync(inode);
                }
                world.sync_dir(parent)?;
            }
            Ok(())
        })
    }
}

impl Files for FakeFiles {
    fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.call(Op::Read, "read", path, |world, _| Ok(world.inodes[&world.file(path)?].data.clone()))
    }

    fn stamp(&self, path: &Path) -> Result<Option<Stamp>, FileError> {
        self.call(Op::Stamp, "look at", path, |world, _| {
            let Ok(real) = world.resolve(path) else { return Ok(None) };
            let Some(Entry::File(number)) = world.names.get(&real) else {
                let folder = Stamp {
                    device: 1,
                    inode: 0,
                    size: 0,
                    mtime_ns: 0,
                    ctime_ns: 0,
                    mode: 0o040_755,
                    uid: 1000,
                    gid: 1000,
                };
                return Ok(Some(folder));
            };
            let inode = &world.inodes[number];
            Ok(Some(Stamp {
                device: 1,
                inode: *number,
                size: inode.data.len() as u64,
                mtime_ns: inode.mtime.into(),
                ctime_ns: inode.ctime.into(),
                mode: inode.mode,
                uid: 1000,
                gid: 1000,
            }))
        })
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf, FileError> {
        self.call(Op::RealPath, "resolve", path, |world, _| world.resolve(path))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, FileError> {
        self.call(Op::List, "list", dir, |world, _| {
            world.has_folder(dir)?;
            let names = world.names.keys().filter(|path| path.parent() == Some(dir));
            Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
        })
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.add(path, bytes, true)
    }

    fn append_soon(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.add(path, bytes, false)
    }

    fn truncate(&self, path: &Path, len: u64) -> Result<(), FileError> {
        self.call(Op::Truncate, "truncate", path, |world, _| {
            let inode = world.file(path)?;
            let len = usize::try_from(len).expect("small");
            world.write(inode, |data| data.resize(len, 0));
            world.sync(inode);
            Ok(())
        })
    }

    fn write_temp(&self, dir: &Path, prefix: &str, bytes: &[u8], like: Option<&Stamp>) -> Result<PathBuf, FileError> {
        let mut made = None;
        let result = self.call(Op::WriteTemp, "write a temporary file in", dir, |world, limit| {
            world.has_folder(dir)?;
            let process = world.processes.get_mut(&self.pid).expect("made with the handle");
            process.temps += 1;
            let path = dir.join(format!("{prefix}{}-{}", self.pid, process.temps));
            let len = limit.unwrap_or(bytes.len()).min(bytes.len());
            let inode = world.create(&bytes[..len], like.map_or(0o644, |like| like.mode));
            world.names.insert(path.clone(), Entry::File(inode));
            made = Some(path.clone());
            Ok(path)
        });
        // An error is cleaned up after; a dead process cleans nothing.
        if let (Err(_), Some(path), false) = (&result, made, self.is_dead()) {
            self.world().names.remove(&path);
        }
        result
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FileError> {
        self.call(Op::Rename, "replace", to, |world, _| {
            world.has_folder(to.parent().unwrap_or(Path::new("/")))?;
            if world.names.get(to) == Some(&Entry::Dir) {
                return Err(error(ErrorKind::IsADirectory));
            }
            let entry = world.names.remove(from).ok_or(error(ErrorKind::NotFound))?;
            let now = world.tick();
            if let Entry::File(inode) = entry {
                world.inodes.get_mut(&inode).expect("never forgotten").ctime = now;
            }
            world.names.insert(to.to_owned(), entry);
            Ok(())
        })
    }

    fn link_new(&self, from: &Path, to: &Path) -> Result<bool, FileError> {
        self.call(Op::LinkNew, "create", to, |world, _| {
            world.has_folder(to.parent().unwrap_or(Path::new("/")))?;
            let entry = world.names.get(from).cloned().ok_or(error(ErrorKind::NotFound))?;
            let is_new = !world.names.contains_key(to);
            if is_new {
                world.names.insert(to.to_owned(), entry);
            }
            Ok(is_new)
        })
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), FileError> {
        self.call(Op::SyncDir, "sync the folder", dir, |world, _| world.sync_dir(dir))
    }

    fn remove(&self, path: &Path) -> Result<(), FileError> {
        self.call(Op::Remove, "remove", path, |world, _| {
            if world.names.get(path) == Some(&Entry::Dir) {
                return Err(error(ErrorKind::IsADirectory));
            }
            world.names.remove(path);
            Ok(())
        })
    }

    fn create_dir_all(&self, dir: &Path) -> Result<(), FileError> {
        self.call(Op::CreateDirAll, "create the folder", dir, |world, _| {
            let parts: VecDeque<&Path> = dir.ancestors().collect();
            for part in parts.into_iter().rev() {
                match world.names.get(part) {
                    Some(Entry::Dir) => {}
                    Some(_) => return Err(error(ErrorKind::NotADirectory)),
                    None => world.set_name(part, Entry::Dir),
                }
            }
            Ok(())
        })
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, FileError> {
        self.call(Op::TryLock, "lock", path, |world, _| {
            let inode = match world.names.get(path) {
                Some(Entry::File(inode)) => *inode,
                Some(_) => return Err(error(ErrorKind::InvalidInput)),
                None => {
                    world.has_folder(path.parent().unwrap_or(Path::new("/")))?;
                    let inode = world.create(b"", 0o644);
                    world.names.insert(path.to_owned(), Entry::File(inode));
                    inode
                }
            };
            if world.locks.contains_key(&inode) {
                return Ok(None);
            }
            let token = world.tick();
            world.locks.insert(inode, (self.pid, token));
            let lock = FakeLock { files: self.clone(), path: path.to_owned(), inode, token };
            Ok(Some(Box::new(lock) as Box<dyn FileLock>))
        })
    }

    fn is_other_process(&self, pid: u32) -> bool {
        pid != self.pid && self.world().processes.get(&pid).is_some_and(|process| !process.is_dead)
    }
}

struct FakeLock {
    files: FakeFiles,
    path: PathBuf,
    inode: u64,
    token: u64,
}

impl std::fmt::Debug for FakeLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeLock").field("path", &self.path).field("inode", &self.inode).finish_non_exhaustive()
    }
}

impl FileLock for FakeLock {
    fn is_current(&self) -> Result<bool, FileError> {
        self.files.call(Op::IsCurrent, "look at", &self.path, |world, _| {
            Ok(world.names.get(&self.path) == Some(&Entry::File(self.inode)))
        })
    }

    fn note(&self, content: &[u8]) -> Result<(), FileError> {
        self.files.call(Op::Note, "write the holder into", &self.path, |world, limit| {
            let len = limit.unwrap_or(content.len()).min(content.len());
            world.write(self.inode, |data| content[..len].clone_into(data));
            Ok(())
        })
    }
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        let mut world = self.files.world();
        if world.locks.get(&self.inode).is_some_and(|(_, token)| *token == self.token) {
            world.locks.remove(&self.inode);
        }
    }
}
