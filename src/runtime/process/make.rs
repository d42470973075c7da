//! Makes an attempt's folder out of a request.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::process::{getegid, geteuid};

use super::confine::Confinement;
use super::facts::{Limits, Spec, SpecBind};
use super::folder::{self, Folder, FolderError, Phase, at, name};
use super::settings::ProcessSettings;
use crate::runtime::{Bind, CreateRequest, ErrorKind};

/// Why a request cannot be served.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

/// What stands in a path must be one part of it, and a name of ours does not begin with a dot.
pub(super) fn check(id: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.chars().all(good) && id.len() <= 200 {
        return Ok(());
    }
    Err("this is no container's name or id".to_owned())
}

/// An id is sixteen digits and then the name.
fn new_id(name: &str) -> String {
    format!("{:016x}.{name}", fastrand::u64(..))
}

/// The name that an id or a name means.
pub(super) fn name_of(id: &str) -> &str {
    match id.split_once('.') {
        Some((digits, name)) if digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => id,
    }
}

/// Judges a request against what holds here.
pub(super) fn spec(
    request: &CreateRequest,
    settings: &ProcessSettings,
    root: &Path,
    confinement: &Confinement,
    now: Timestamp,
) -> Result<Spec, Refusal> {
    let refuse = |kind, message: String| Refusal { kind, message };
    let invalid = |message: String| refuse(ErrorKind::Invalid, message);
    check(&request.name).map_err(invalid)?;
    let command = request.command.clone().filter(|command| !command.is_empty());
    let command = command.ok_or_else(|| {
        invalid("the process runtime has no images, so a task needs a `command` of its own".to_owned())
    })?;
    if command.iter().any(|word| word.contains('\0')) || request.env.values().any(|value| value.contains('\0')) {
        return Err(invalid("a command or a variable holds a NUL byte".to_owned()));
    }
    if !confinement.confines_writes() && !settings.allow_unconfined {
        let message = format!(
            "nothing here can keep a command from writing outside its worktree ({confinement}); use an engine, or \
             allow it with `--allow-unconfined`"
        );
        return Err(refuse(ErrorKind::Unsupported, message));
    }
    let no_network = match request.network.as_str() {
        "bridge" => false,
        "none" if confinement.network => true,
        "none" => {
            let message = format!("`network: none` cannot be had here ({confinement})");
            return Err(refuse(ErrorKind::Unsupported, message));
        }
        other => {
            let message = format!("the process runtime has no network {other}: `bridge` is this machine's, or `none`");
            return Err(refuse(ErrorKind::Unsupported, message));
        }
    };
    let bind = |bind: &Bind| {
        let target = PathBuf::from(&bind.target);
        fs::metadata(&bind.source)
            .map_err(|error| invalid(format!("mount source {}: {error}", bind.source.display())))?;
        if !target.is_absolute() || bind.source.to_str().is_none() {
            return Err(invalid(format!(
                "mount {} at {}: not an absolute UTF-8 path",
                bind.source.display(),
                bind.target
            )));
        }
        Ok(SpecBind { source: bind.source.clone(), target, read_only: bind.read_only })
    };
    let binds = request.mounts.iter().map(bind).collect::<Result<_, _>>()?;
    let user = request.user.as_deref().map(|text| user(text).map_err(invalid)).transpose()?.flatten();
    let resources = &request.resources;
    let mut hidden = settings.hidden.clone();
    // The sockets of the other attempts' supervisors among it.
    hidden.push(root.to_owned());
    Ok(Spec {
        id: new_id(&request.name),
        name: request.name.clone(),
        key: request.key.clone(),
        labels: request.labels.clone(),
        made_at: now,
        command,
        workdir: request.workdir.clone().into(),
        binds,
        user,
        no_network,
        limits: Limits {
            cpus: resources.cpus,
            memory: resources.memory,
            pids: resources.pids,
            shm: resources.shm,
            file_size: settings.file_size,
        },
        hidden,
        avoid: settings.avoid,
        mounts: confinement.mounts,
    })
}

/// `None` where it is who we are anyway.
fn user(text: &str) -> Result<Option<(u32, u32)>, String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    let Some((uid, gid)) = numbers else {
        return Err(format!("unable to find user {text}: the process runtime knows users by number, `uid:gid`"));
    };
    let own = (geteuid().as_raw(), getegid().as_raw());
    if (uid, gid) == own {
        return Ok(None);
    }
    if own.0 != 0 {
        return Err(format!("only root can run a process as {uid}:{gid}, and this is user {}:{}", own.0, own.1));
    }
    Ok(Some((uid, gid)))
}

/// A folder that has its name, and what its supervisor is to hold.
pub(super) struct Made {
    pub(super) folder: PathBuf,
    pub(super) lock: File,
    pub(super) errors: File,
}

/// Makes an attempt's folder, whole before it has its name. `None` where the name is taken.
pub(super) fn make(root: &Path, spec: &Spec) -> Result<Option<Made>, FolderError> {
    let folder = root.join(&spec.name);
    if let Some(look) = Folder::at(folder.clone()).look()? {
        if look.phase != Phase::Husk {
            return Ok(None);
        }
        clear(root, &folder)?;
    }
    let temp = root.join(format!(".new-{:016x}", fastrand::u64(..)));
    folder::private_dir(&temp).map_err(at("make", &temp))?;
    let filled = fill(root, &temp, &folder, spec);
    if !matches!(filled, Ok(Some(_))) {
        fs::remove_dir_all(&temp).ok();
    }
    filled
}

fn fill(root: &Path, temp: &Path, folder: &Path, spec: &Spec) -> Result<Option<Made>, FolderError> {
    let new = |file: &str| {
        let path = temp.join(file);
        folder::private(&path).map_err(at("make", &path))
    };
    let lock = new(name::LOCK)?;
    lock.try_lock().map_err(|error| at("lock", temp)(error.into()))?;
    let errors = new(name::ERRORS)?;
    folder::write(temp, name::SPEC, spec)?;
    match renameat_with(CWD, temp, CWD, folder, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOTEMPTY) => return Ok(None),
        // Not every file system knows the flag; a plain rename replaces no folder that holds anything, and ours all do.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => match fs::rename(temp, folder) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                return Ok(None);
            }
            Err(error) => return Err(at("rename to", folder)(error)),
        },
        Err(error) => return Err(at("rename to", folder)(error.into())),
    }
    folder::sync(root)?;
    Ok(Some(Made { folder: folder.to_owned(), lock, errors }))
}

/// Takes a folder's name away first, so that nobody sees it half-removed. One that is gone is fine.
pub(super) fn clear(root: &Path, folder: &Path) -> Result<(), FolderError> {
    let old = root.join(format!(".old-{:016x}", fastrand::u64(..)));
    match fs::rename(folder, &old) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at("rename", folder)(error)),
    }
    folder::sync(root)?;
    fs::remove_dir_all(&old).map_err(at("remove", &old))
}

/// Removes what a crash left half-made or half-removed. Whoever is making one holds its lock.
pub(super) fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let text = entry.file_name();
        let text = text.to_string_lossy();
        let left = text.starts_with(".old-")
            || text.starts_with(".new-")
                && File::open(entry.path().join(name::LOCK)).is_ok_and(|lock| lock.try_lock_shared().is_ok());
        if left {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_reach_a_path() {
        for good in ["orch-i-api.v2_x-1", "0123abc"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "../x", "a/b", ".new-1", "a b", "ä"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_id_leads_to_its_name() {
        for name in ["orch-i-a-1", "orch-i-a.b-1", "a.b"] {
            assert_eq!(name_of(&new_id(name)), name);
            assert_eq!(name_of(name), name);
        }
    }
}
