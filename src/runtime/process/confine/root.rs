//! The file system as a command sees it: the machine's own, read-only, and over it what an engine would mount.
//!
//! Built as bubblewrap does: a tmpfs becomes the root with the machine's root below it, all is bound together from there,
//! and the machine's root is let go. Nothing is made on the machine itself, so the places need not exist there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use super::super::facts::{Refused, Spec};

/// `HOME` unless the environment sets another: the same place as in a container.
pub(in super::super) const HOME: &str = "/home/agent";
/// Devices that a command may use.
pub(in super::super) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// What is not taken over from the machine's root: made anew, or left out.
const OWN: &[&str] = &["proc", "dev", "tmp", "run", "home", "lost+found"];
/// Of `/run`, which is full of sockets: where some systems keep what names and tools are looked up by.
const OF_RUN: &[&str] = &["/run/systemd/resolve", "/run/resolvconf", "/run/current-system"];

const NEW: &str = "/new";
const OLD: &str = "/old";

struct Builder {
    /// Every place that was decided on, and whether it may be written. What lies below one goes with it.
    places: BTreeMap<PathBuf, bool>,
}

/// Builds the view and moves into it; a refusal leaves this process somewhere unfit to go on. Needs a mount namespace of
/// its own, and a pid namespace for a `/proc` of its own. What did not succeed and matters little is noted.
pub(in super::super) fn build(spec: &Spec, home: &Path, pids: bool) -> Result<Vec<String>, Refused> {
    stage().map_err(|error| Refused::machine(format!("cannot stage a file system: {error}")))?;
    let mut notes = Vec::new();
    let mut builder = Builder { places: BTreeMap::from([(PathBuf::from("/"), false)]) };
    let made = |what: &'static str| move |error: io::Error| Refused::machine(format!("cannot set up {what}: {error}"));
    builder.machine().map_err(made("the machine's folders"))?;
    builder.devices(spec.limits.shm, &mut notes).map_err(made("/dev"))?;
    builder.processes(pids, &mut notes).map_err(made("/proc"))?;
    builder.tmpfs(Path::new("/tmp"), "mode=1777", true).map_err(made("/tmp"))?;
    builder.run().map_err(made("/run"))?;
    for path in &spec.hidden {
        builder.hide(path).map_err(made("what is hidden"))?;
    }
    let taken = spec.binds.iter().any(|bind| bind.target == home);
    if !taken && home.starts_with("/home") {
        let owner = spec.user.map(|(uid, gid)| format!(",uid={uid},gid={gid}")).unwrap_or_default();
        builder.tmpfs(home, &format!("mode=0700{owner}"), true).map_err(made("the home folder"))?;
    }
    for bind in &spec.binds {
        builder.bind(&bind.source, &bind.target, !bind.read_only).map_err(|error| bind_refused(bind, &error))?;
    }
    // An image has its working directory; here it may be nowhere on the machine.
    let workdir = inside(&spec.workdir);
    if !workdir.exists() {
        Builder::folder(&spec.workdir).map_err(made("the working directory"))?;
    }
    builder.seal(&mut notes).map_err(made("read-only mounts"))?;
    settle().map_err(|error| Refused::machine(format!("cannot enter the file system: {error}")))?;
    Ok(notes)
}

fn bind_refused(bind: &super::super::facts::SpecBind, error: &io::Error) -> Refused {
    // As engines number it: a place of the wrong kind.
    let code = if error.kind() == io::ErrorKind::NotADirectory { 127 } else { 128 };
    let what = if code == 127 { "not a directory".to_owned() } else { error.to_string() };
    Refused { code, error: format!("cannot mount {} at {}: {what}", bind.source.display(), bind.target.display()) }
}

fn stage() -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("tmpfs", "/tmp", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755"))?;
    fs::create_dir("/tmp/new")?;
    fs::create_dir("/tmp/old")?;
    mount_bind_recursive("/tmp/new", "/tmp/new")?;
    pivot_root("/tmp", "/tmp/old")?;
    chdir("/")?;
    Ok(())
}

/// Whether a view could be built at all: a user namespace may be allowed and yet mounts in it refused.
pub(in super::super) fn try_out() -> io::Result<()> {
    stage()
}

fn settle() -> io::Result<()> {
    chdir(NEW)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    chdir("/")?;
    Ok(())
}

fn inside(path: &Path) -> PathBuf {
    under(NEW, path)
}

fn outside(path: &Path) -> PathBuf {
    under(OLD, path)
}

fn under(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

impl Builder {
    fn machine(&mut self) -> io::Result<()> {
        self.children(Path::new("/"), OWN)?;
        // By its parts, so that a home can be added.
        fs::create_dir(inside(Path::new("/home")))?;
        self.children(Path::new("/home"), &["agent"])
    }

    /// Binds what is in a folder of the machine, each by itself.
    fn children(&mut self, folder: &Path, without: &[&str]) -> io::Result<()> {
        let entries = match fs::read_dir(outside(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if without.iter().any(|name| entry.file_name() == OsStr::new(name)) {
                continue;
            }
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            if kind.is_symlink() {
                symlink(fs::read_link(entry.path())?, inside(&path))?;
            } else if kind.is_dir() {
                fs::create_dir(inside(&path))?;
                mount_bind_recursive(entry.path(), inside(&path))?;
                self.places.insert(path, false);
            }
        }
        Ok(())
    }

    fn tmpfs(&mut self, path: &Path, data: &str, writable: bool) -> io::Result<()> {
        Self::folder(path)?;
        let data = std::ffi::CString::new(data)?;
        mount("tmpfs", inside(path), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(data.as_c_str()))?;
        self.places.insert(path.to_owned(), writable);
        Ok(())
    }

    fn devices(&mut self, shm: Option<u64>, notes: &mut Vec<String>) -> io::Result<()> {
        let dev = Path::new("/dev");
        self.tmpfs(dev, "mode=0755", false)?;
        for name in DEVICES {
            let path = dev.join(name);
            if outside(&path).exists() {
                self.bind(&path, &path, true)?;
            }
        }
        for (name, target) in
            [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"), ("ptmx", "pts/ptmx")]
        {
            symlink(target, inside(&dev.join(name)))?;
        }
        let size = shm.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
        self.tmpfs(&dev.join("shm"), &format!("mode=1777{size}"), true)?;
        let pts = dev.join("pts");
        Self::folder(&pts)?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        match mount("devpts", inside(&pts), "devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620")) {
            Ok(()) => {
                self.places.insert(pts, true);
            }
            Err(error) => notes.push(format!("terminals: {error}")),
        }
        Ok(())
    }

    fn processes(&mut self, pids: bool, notes: &mut Vec<String>) -> io::Result<()> {
        let path = Path::new("/proc");
        Self::folder(path)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let own = if pids { mount("proc", inside(path), "proc", flags, None) } else { Err(rustix::io::Errno::PERM) };
        if let Err(error) = own {
            // An engine's container shows no whole `/proc`, and then none may be mounted.
            notes.push(format!("own /proc: {error}"));
            mount_bind_recursive(outside(path), inside(path))?;
        }
        // Parts of it that change the machine are root's alone to write, and a root without capabilities is still its
        // owner; Landlock refuses them, and this.
        self.places.insert(path.to_owned(), true);
        for part in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"] {
            let part = Path::new(part);
            if inside(part).exists() {
                mount_bind_recursive(inside(part), inside(part))?;
                self.places.insert(part.to_owned(), false);
            }
        }
        Ok(())
    }

    fn run(&mut self) -> io::Result<()> {
        Self::folder(Path::new("/run"))?;
        for path in OF_RUN.iter().map(Path::new) {
            if outside(path).is_dir() {
                self.bind(path, path, false)?;
            }
        }
        Ok(())
    }

    /// Covers a folder by an empty one and a file by nothing.
    fn hide(&mut self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(outside(path)) {
            Ok(metadata) if metadata.is_dir() && inside(path).exists() => self.tmpfs(path, "mode=0755", false),
            Ok(metadata) if metadata.is_file() && inside(path).exists() => {
                self.bind(Path::new("/dev/null"), path, false)
            }
            // A link's target is hidden under its own name where that is asked for.
            _ => Ok(()),
        }
    }

    fn bind(&mut self, source: &Path, target: &Path, writable: bool) -> io::Result<()> {
        let source = outside(source);
        if fs::metadata(&source)?.is_dir() { Self::folder(target) } else { Self::file(target) }?;
        mount_bind_recursive(&source, inside(target))?;
        self.places.insert(target.to_owned(), writable);
        Ok(())
    }

    /// Makes sure of a folder to mount on.
    fn folder(path: &Path) -> io::Result<()> {
        Self::plain(path)?;
        let place = inside(path);
        if fs::symlink_metadata(&place).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        fs::DirBuilder::new().recursive(true).mode(0o755).create(place)
    }

    /// Makes sure of a file to mount on.
    fn file(path: &Path) -> io::Result<()> {
        Self::plain(path)?;
        let place = inside(path);
        match fs::symlink_metadata(&place) {
            Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
            Ok(_) => Ok(()),
            Err(_) => {
                if let Some(parent) = path.parent() {
                    Self::folder(parent)?;
                }
                fs::File::create_new(place).map(drop)
            }
        }
    }

    /// Refuses a place to which a link leads: it could lead out of the view while this is staged.
    fn plain(path: &Path) -> io::Result<()> {
        let mut walked = PathBuf::from(NEW);
        for part in path.components() {
            match part {
                Component::Normal(name) => walked.push(name),
                Component::RootDir => continue,
                _ => return Err(io::Error::other("not a plain absolute path")),
            }
            if fs::symlink_metadata(&walked).is_ok_and(|metadata| metadata.is_symlink()) {
                return Err(io::Error::other("a part of the path is a link"));
            }
        }
        Ok(())
    }

    /// Makes every mount read-only that was not decided to be writable.
    fn seal(&self, notes: &mut Vec<String>) -> io::Result<()> {
        let table = fs::read("/old/proc/self/mountinfo")?;
        for (place, flags) in table.split(|byte| *byte == b'\n').filter_map(mounted) {
            let Ok(path) = place.strip_prefix(NEW) else { continue };
            let path = Path::new("/").join(path);
            if self.is_writable(&path) {
                continue;
            }
            match mount_remount(&place, MountFlags::BIND | MountFlags::RDONLY | flags, c"") {
                Ok(()) => {}
                // Covered by a later mount (then the path is no mount any more), or another user's FUSE: a command that
                // could reach it is still held by Landlock where that is.
                Err(error @ (rustix::io::Errno::NOENT | rustix::io::Errno::INVAL | rustix::io::Errno::ACCESS)) => {
                    notes.push(format!("read-only {}: {error}", path.display()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_writable(&self, path: &Path) -> bool {
        path.ancestors().find_map(|place| self.places.get(place)).copied().unwrap_or(false)
    }
}

/// A mount's place, and the flags that a remount must keep: within a user namespace the kernel refuses to drop them.
fn mounted(line: &[u8]) -> Option<(PathBuf, MountFlags)> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let (place, options) = (unescape(fields.next()?), fields.next()?);
    let flag = |option: &[u8]| match option {
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"noatime" => MountFlags::NOATIME,
        b"nodiratime" => MountFlags::NODIRATIME,
        b"relatime" => MountFlags::RELATIME,
        _ => MountFlags::empty(),
    };
    let flags = options.split(|byte| *byte == b',').map(flag).fold(MountFlags::empty(), MountFlags::union);
    Some((place, flags))
}

/// The kernel writes blanks and backslashes as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        match digits {
            Some(digits) if first == b'\\' => {
                let value = digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0'));
                bytes.push(value);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_mounts_line() {
        let line = br"36 35 98:0 /m /new/a\040b\134 rw,nosuid,noatime shared:1 - ext3 /dev/root rw,errors=continue";
        let (place, flags) = mounted(line).expect("a mount");
        assert_eq!(place.as_os_str().as_bytes(), br"/new/a b\");
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NOATIME);
    }

    #[test]
    fn the_nearest_place_decides() {
        let places = [("/", false), ("/project", true), ("/project/.git", false), ("/tmp", true)];
        let builder = Builder { places: places.map(|(path, writable)| (PathBuf::from(path), writable)).into() };
        for (path, writable) in
            [("/usr", false), ("/project", true), ("/project/sub", true), ("/project/.git", false), ("/tmp/x", true)]
        {
            assert_eq!(builder.is_writable(Path::new(path)), writable, "{path}");
        }
    }
}
