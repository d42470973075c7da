//! Notices that files were changed by others: at once where the kernel tells, by looking where it does not.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::record::{Files, Stamp};
use crate::runtime::process::Watch;

/// Between two looks where the kernel does not tell: on network file systems, and where no watch can be had. A look is one
/// `stat` for each file.
const LOOK: Duration = Duration::from_millis(500);
/// Between two looks where it does. A link that is put in a file's place, or a folder in a folder's, is seen by these.
const LOOK_BESIDE: Duration = Duration::from_secs(5);
/// How long changes gather: an editor writes, renames and sets the mode in one breath.
const GATHER: Duration = Duration::from_millis(30);

/// File systems on which others write without our kernel's knowing, by the magic number of `statfs(2)`.
const REMOTE: [u32; 9] = [
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF53_4D42, // CIFS
    0xFE53_4D42, // SMB 2
    0x6573_5546, // FUSE
    0x0102_1997, // 9P, also between a virtual machine and its host
    0x00C3_6400, // Ceph
    0x5346_414F, // AFS
    0x7461_636F, // OCFS2
];

/// Tells of each change of any of these files, for as long as it is polled.
pub(super) async fn watch_files(files: Arc<dyn Files>, paths: Vec<PathBuf>, changes: Arc<Notify>) {
    let look = || -> Vec<Option<Stamp>> { paths.iter().map(|path| files.stamp(path).ok().flatten()).collect() };
    let mut seen = look();
    let mut watch = Folders::watch(&paths);
    let mut next_look = Instant::now();
    loop {
        if next_look <= Instant::now() {
            next_look = Instant::now() + if watch.is_some() { LOOK_BESIDE } else { LOOK };
        }
        tokio::select! {
            told = touched(watch.as_ref()) => match told {
                Ok(false) => continue,
                Ok(true) => tokio::time::sleep(GATHER).await,
                // The folder is gone or the kernel lost count: looking goes on, and a new watch is tried with each look.
                Err(_) => watch = None,
            },
            () = tokio::time::sleep_until(next_look) => {
                if watch.is_none() {
                    watch = Folders::watch(&paths);
                }
            }
        }
        let now = look();
        if now != seen {
            seen = now;
            changes.notify_one();
        }
    }
}

/// Watches on the folders of files, since who replaces a file by a rename leaves a watch on the file itself behind.
struct Folders {
    watch: Watch,
    names: Vec<OsString>,
}

impl Folders {
    /// `None`: only looking tells.
    fn watch(paths: &[PathBuf]) -> Option<Self> {
        let watch = Watch::new().ok()?;
        let mut names = Vec::new();
        for path in paths {
            // A link's target may be rewritten where it is, and the link itself be replaced.
            for path in std::iter::once(path.clone()).chain(path.canonicalize()) {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
                if is_remote(folder) {
                    return None;
                }
                watch.add(folder).ok()?;
                names.extend(path.file_name().map(OsStr::to_owned));
            }
        }
        Some(Self { watch, names })
    }
}

/// Whether one of the names was touched. Fails where the watch is good for nothing any more.
async fn touched(folders: Option<&Folders>) -> std::io::Result<bool> {
    let Some(folders) = folders else { return std::future::pending().await };
    let changes = folders.watch.changes().await?;
    let mut is_touched = false;
    for change in changes {
        match change.name {
            Some(name) => is_touched |= folders.names.contains(&name),
            None => return Err(std::io::Error::other("the watch ended")),
        }
    }
    Ok(is_touched)
}

fn is_remote(folder: &Path) -> bool {
    #[expect(
        clippy::cast_sign_loss,
        clippy::cast_possible_truncation,
        reason = "a magic number of 32 bits, whatever type the platform gives it"
    )]
    let kind = |stat: rustix::fs::StatFs| stat.f_type as u32;
    rustix::fs::statfs(folder).map(kind).is_ok_and(|kind| REMOTE.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::OsFiles;

    /// Far below the look beside, so that only the kernel can have told.
    const SOON: Duration = Duration::from_millis(2_500);

    #[tokio::test]
    async fn a_file_that_is_replaced_written_made_or_removed_is_noticed_at_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (plan, spec) = (dir.path().join("plan.json"), dir.path().join("spec.yaml"));
        std::fs::write(&plan, "1").expect("writes");
        let changes = Arc::new(Notify::new());
        let mut work = tokio::task::JoinSet::new();
        work.spawn(watch_files(Arc::new(OsFiles), vec![plan.clone(), spec.clone()], Arc::clone(&changes)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        let replace = || {
            std::fs::write(dir.path().join("other"), "22").expect("writes");
            std::fs::rename(dir.path().join("other"), &plan).expect("renames");
        };
        let steps: [(&str, &dyn Fn()); 5] = [
            ("replaced", &replace),
            ("replaced again", &replace),
            ("written in place", &|| std::fs::write(&plan, "333").expect("writes")),
            ("made", &|| std::fs::write(&spec, "s").expect("writes")),
            ("removed", &|| std::fs::remove_file(&spec).expect("removes")),
        ];
        for (what, step) in steps {
            step();
            tokio::time::timeout(SOON, changes.notified()).await.unwrap_or_else(|_| panic!("{what}: not noticed"));
        }
        std::fs::write(dir.path().join("other"), "x").expect("writes");
        let quiet = tokio::time::timeout(Duration::from_millis(300), changes.notified()).await;
        assert!(quiet.is_err(), "another file is nothing to us");
    }

    #[tokio::test]
    async fn where_there_is_no_folder_to_watch_looking_goes_on_and_finds_the_file() {
        let dir = tempfile::tempdir().expect("temp dir");
        let plan = dir.path().join("later/plan.json");
        let changes = Arc::new(Notify::new());
        let mut work = tokio::task::JoinSet::new();
        work.spawn(watch_files(Arc::new(OsFiles), vec![plan.clone()], Arc::clone(&changes)));
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::create_dir(dir.path().join("later")).expect("makes");
        std::fs::write(&plan, "1").expect("writes");
        tokio::time::timeout(SOON, changes.notified()).await.expect("noticed");
    }
}
