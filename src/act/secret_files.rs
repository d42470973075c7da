//! Secrets that are handed over as files: in memory while the attempt lives, and nowhere on a disk.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::observe::{AttemptKey, InstanceId};

/// Where they are in the container.
pub(super) const SECRETS: &str = "/run/secrets";

/// File systems that live in memory.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why a secret cannot be handed over.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// No candidate is a folder in memory.
    #[error(
        "no folder in memory to hand secrets over from: neither XDG_RUNTIME_DIR nor /dev/shm is one; use `as: env`"
    )]
    NoFolder,
    /// Somebody else made it.
    #[error("{} is not a folder of ours alone", .0.display())]
    Foreign(PathBuf),
    /// The system's words.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn at<T>(result: io::Result<T>, action: &'static str, path: &Path) -> Result<T, PlaceError> {
    result.map_err(|source| PlaceError::Io { action, path: path.to_owned(), source })
}

/// Writes one secret's file and gives its path. `owner` is the container's user where that is known and may be given the
/// file; else every user of the container can read it, and of the host none, as the folder is ours alone.
pub(super) fn write(
    candidates: &[PathBuf],
    instance: &InstanceId,
    key: &AttemptKey,
    name: &str,
    value: &str,
    owner: Option<(u32, u32)>,
) -> Result<PathBuf, PlaceError> {
    let folder = folder(candidates)?.join(&*instance.0).join(key.to_string());
    let mut builder = fs::DirBuilder::new();
    at(builder.recursive(true).mode(0o700).create(&folder), "make", &folder)?;
    let path = folder.join(name);
    let fresh = folder.join(format!(".{name}.new"));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return at(Err(error), "remove", &fresh),
        _ => {}
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&fresh);
    let mut file = at(file, "write", &fresh)?;
    at(file.write_all(value.as_bytes()), "write", &fresh)?;
    let is_theirs = match owner {
        Some((uid, gid)) => {
            let ours = rustix::process::geteuid().as_raw() == uid;
            ours || std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).is_ok()
        }
        None => false,
    };
    let mode = if is_theirs { 0o400 } else { 0o444 };
    at(file.set_permissions(fs::Permissions::from_mode(mode)), "write", &fresh)?;
    at(fs::rename(&fresh, &path), "write", &path)?;
    Ok(path)
}

/// Removes an attempt's files; none is fine.
pub(super) fn remove(candidates: &[PathBuf], instance: &InstanceId, key: &AttemptKey) {
    for root in candidates {
        // What cannot be removed now is swept at the next start.
        drop(fs::remove_dir_all(named(root).join(&*instance.0).join(key.to_string())));
    }
}

/// Removes the files of every attempt of this instance that is not live.
pub(super) fn sweep(candidates: &[PathBuf], instance: &InstanceId, is_live: impl Fn(&str) -> bool) {
    for root in candidates {
        let Ok(entries) = fs::read_dir(named(root).join(&*instance.0)) else { continue };
        for entry in entries.flatten() {
            if !entry.file_name().to_str().is_some_and(&is_live) {
                drop(fs::remove_dir_all(entry.path()));
            }
        }
    }
}

fn named(root: &Path) -> PathBuf {
    root.join(format!("orchestrate-{}", rustix::process::geteuid().as_raw()))
}

/// Our folder in the first candidate that lives in memory. `/dev/shm` is open to all, so what is there already must be ours.
fn folder(candidates: &[PathBuf]) -> Result<PathBuf, PlaceError> {
    let root = candidates.iter().find(|root| is_in_memory(root)).ok_or(PlaceError::NoFolder)?;
    let path = named(root);
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return at(Err(error), "make", &path),
        _ => {}
    }
    let meta = at(path.symlink_metadata(), "look at", &path)?;
    let is_ours = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0;
    if is_ours { Ok(path) } else { Err(PlaceError::Foreign(path)) }
}

#[expect(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the field's type differs between machines")]
fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TaskId;

    fn shm() -> Option<tempfile::TempDir> {
        is_in_memory(Path::new("/dev/shm")).then(|| tempfile::tempdir_in("/dev/shm").expect("a folder"))
    }

    fn key(attempt: u32) -> AttemptKey {
        AttemptKey { task: TaskId::new("a").expect("valid"), attempt }
    }

    #[test]
    fn a_file_is_for_its_user_alone_and_goes_with_its_attempt() {
        let Some(root) = shm() else { return };
        let roots = [root.path().join("absent"), root.path().to_owned()];
        let instance = InstanceId("i".into());
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for _ in 0..2 {
            let path = write(&roots, &instance, &key(1), "TOKEN", "hunter2", Some(me)).expect("written");
            let meta = path.metadata().expect("there");
            assert_eq!((meta.mode() & 0o777, meta.uid()), (0o400, me.0));
            assert_eq!(fs::read_to_string(&path).expect("ours"), "hunter2");
        }
        let path = write(&roots, &instance, &key(2), "TOKEN", "x", None).expect("written");
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o444);
        assert_eq!(named(root.path()).metadata().expect("there").mode() & 0o777, 0o700);
        sweep(&roots, &instance, |name| name == "a-2");
        let left = |n| named(root.path()).join("i").join(format!("a-{n}")).exists();
        assert_eq!([left(1), left(2)], [false, true]);
        remove(&roots, &instance, &key(2));
        assert!(!left(2));
    }

    #[test]
    fn neither_a_disk_nor_what_others_may_enter_is_used() {
        assert!(matches!(folder(&[PathBuf::from("/proc"), "/nowhere".into()]), Err(PlaceError::NoFolder)));
        let Some(root) = shm() else { return };
        fs::create_dir(named(root.path())).expect("made");
        fs::set_permissions(named(root.path()), fs::Permissions::from_mode(0o755)).expect("set");
        assert!(matches!(folder(&[root.path().to_owned()]), Err(PlaceError::Foreign(_))));
    }
}
