//! Namespaces. A supervisor enters those that its child is to be born into, the cell those that it makes for itself.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySets, LinkNameSpaceType, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    move_into_link_name_space, set_capabilities,
};

/// The namespaces around the cell.
#[derive(Debug)]
pub(in super::super) struct Outer {
    /// The supervisor's own pid namespace.
    own_pids: Option<File>,
    /// Whether there is a pid namespace for the next child; then the cell can make further namespaces, too.
    pub(in super::super) pids: bool,
    /// Whether we may make namespaces only through a user namespace.
    pub(in super::super) user: bool,
    /// Whether no child was made in it yet.
    fresh: bool,
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
        Self { own_pids: None, pids: false, user: false, fresh: true, note }
    }

    /// Makes a pid namespace for the next child, as root or through a user namespace. Only while this process has a
    /// single thread.
    pub(in super::super) fn enter() -> Self {
        let own_pids = File::open("/proc/self/ns/pid").ok();
        match unshare(UnshareFlags::NEWPID) {
            Ok(()) => Self { own_pids, pids: true, user: false, fresh: true, note: None },
            Err(_) => match Self::enter_user() {
                Ok(()) => Self { own_pids, pids: true, user: true, fresh: true, note: None },
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
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        keep_capabilities()
    }

    /// Makes sure of a pid namespace for the next child: one ends with its first process. Only root can make another:
    /// the way back to our own is not a user namespace's to give.
    pub(in super::super) fn renew(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.fresh) {
            return Ok(());
        }
        let Some(own) = self.own_pids.as_ref().filter(|_| self.pids) else { return Ok(()) };
        move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
        unshare(UnshareFlags::NEWPID)
    }
}

/// Who is not root loses by an exec what the user namespace gave; the cell needs it until it gives it up itself.
fn keep_capabilities() -> io::Result<()> {
    let all = capabilities(None)?.permitted;
    set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all })?;
    // Those that this kernel does not know are not among them.
    all.iter().try_for_each(|capability| Ok(configure_capability_in_ambient_set(capability, true)?))
}

/// Makes the namespaces of the cell itself. Only while this process has a single thread.
pub(in super::super) fn enter(no_network: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    if no_network {
        flags |= UnshareFlags::NEWNET;
    }
    unshare(flags)
}
