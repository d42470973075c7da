//! Namespaces. A supervisor enters those that its child is to be born into, the cell those that it makes for itself.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;

use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The namespaces around the cell.
#[derive(Debug)]
pub(in super::super) struct Outer {
    /// The supervisor's own pid namespace.
    own_pids: Option<File>,
    /// Whether there is a pid namespace for the next child.
    pub(in super::super) pids: bool,
    /// Whether we may make namespaces only through a user namespace.
    pub(in super::super) user: bool,
    /// Whether the cell can make further ones.
    pub(in super::super) able: bool,
    /// Why not.
    pub(in super::super) note: Option<String>,
}

#[expect(deprecated, reason = "the sound form is unsafe for the sake of FILES alone, which no caller here passes")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    Ok(rustix::thread::unshare(flags)?)
}

impl Outer {
    /// Nothing is made.
    pub(in super::super) fn none(note: Option<String>) -> Self {
        Self { own_pids: None, pids: false, user: false, able: false, note }
    }

    /// Makes a pid namespace for the next child, as root or through a user namespace. Only while this process has a
    /// single thread.
    pub(in super::super) fn enter() -> Self {
        let own_pids = File::open("/proc/self/ns/pid").ok();
        match unshare(UnshareFlags::NEWPID) {
            Ok(()) => Self { own_pids, pids: true, user: false, able: true, note: None },
            Err(_) => match Self::enter_user() {
                Ok(()) => Self { own_pids, pids: true, user: true, able: true, note: None },
                Err(error) => Self::none(Some(format!("namespaces: {error}"))),
            },
        }
    }

    fn enter_user() -> io::Result<()> {
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID)?;
        // Without it the kernel refuses the map of groups.
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// Makes a fresh pid namespace for another child: the first one ends with its first process.
    pub(in super::super) fn renew(&mut self) -> io::Result<()> {
        let Some(own) = self.own_pids.as_ref().filter(|_| self.pids) else { return Ok(()) };
        move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        unshare(UnshareFlags::NEWPID)
    }
}

/// Makes the namespaces of the cell itself. Only while this process has a single thread.
pub(in super::super) fn enter(no_network: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if no_network {
        flags |= UnshareFlags::NEWNET;
    }
    unshare(flags)
}
