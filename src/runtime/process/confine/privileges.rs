//! What a process may, beside what the file system says.

use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// Gives up every capability for good and becomes `user`, where one is named; only to be called while this process has
/// a single thread. Whoever stays root is a root that may nothing but what its files' modes allow.
pub(in super::super) fn renounce(user: Option<(u32, u32)>) -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Beyond what this kernel knows, or not ours to drop: the empty sets below hold all the same with the next line.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability).ok();
        }
    }
    if let Some((uid, gid)) = user {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    set_no_new_privs(true)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

/// Limits of this process and its children. `pids` only where they are counted for this attempt alone: elsewhere the
/// kernel counts all of a user's processes.
pub(in super::super) fn limit(file_size: u64, pids: Option<u64>) -> io::Result<()> {
    let set = |resource, most: u64| {
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
    };
    set(Resource::Core, 0)?;
    set(Resource::Fsize, file_size)?;
    if let Some(pids) = pids {
        set(Resource::Nproc, pids)?;
    }
    Ok(())
}
