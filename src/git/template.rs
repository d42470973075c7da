//! Templates: private copies of trees as they were checked out, from which further worktrees are copied.
//!
//! Tasks of one plan mostly start from the same tree or from nearly the same, and copying a file costs a fraction of
//! unpacking and filtering it. A template is a cache and no more: whatever is wrong with it, the files come from the
//! repository. It is taken from a worktree of ours before anybody else sees that, stands in the state dir, where no agent
//! writes, and each of its files is copied only where it is still as it was made. It is trusted only as long as the
//! machine has not been started anew, so that it need not be made durable: a power cut leaves empty files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gix::index::entry::Mode;
use gix::{ObjectId, Repository};

use super::admin;
use super::contract::GitError;
use super::copy::{Copy, is_known};
use super::open::{GixRepository, failed, io};

/// Fewer files are checked out as fast as they are copied.
const FEWEST: usize = 256;
/// A larger tree gets no template.
const LARGEST: u64 = 8 * 1024 * 1024 * 1024;
/// A template may take this part of what is free.
const PART_OF_FREE: u64 = 8;
/// Templates of other settings that are kept beside the newest.
const OTHERS: usize = 1;
/// Larger files of settings are not looked at; then there are no templates.
const SETTINGS_LIMIT: u64 = 1024 * 1024;
/// Changes with each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Folders in which a template is being made: one at a time, and who comes meanwhile does without.
static MAKING: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The templates of a repository, for those settings that hold now.
pub(super) struct Templates {
    folder: PathBuf,
    /// Stands for all settings of the person's that decide how a tree's files look on disk.
    key: String,
    boot: String,
    owner: Option<(u32, u32)>,
}

/// A tree that was copied.
pub(super) struct Copied {
    /// The tree's, with the states of the files that were copied.
    pub(super) index: gix::index::File,
    /// Some files are not in the template: their entries know of no state.
    pub(super) is_partial: bool,
}

impl Templates {
    /// `None` where templates cannot be used.
    pub(super) fn open(git: &GixRepository, repo: &Repository) -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        let owner =
            (git.layout.uid != 0 && rustix::process::geteuid().is_root()).then_some((git.layout.uid, git.layout.gid));
        Some(Self { folder: folder(&git.layout.common_dir), key: settings(repo)?, boot, owner })
    }

    /// Copies what the template has of a tree into an empty folder. `None`: there is none that would do.
    pub(super) fn copy(&self, repo: &Repository, tree: ObjectId, to: &Path) -> Result<Option<Copied>, GitError> {
        let dir = self.folder.join(&self.key);
        let Some(of) = self.tree_of(&dir) else { return Ok(None) };
        let Ok(template) =
            gix::index::File::at(dir.join("index"), repo.object_hash(), false, gix::index::decode::Options::default())
        else {
            return Ok(None);
        };
        let (mut index, is_partial) = if of == tree {
            (template, false)
        } else {
            let reading = |error| failed("read a tree", error);
            let mut index = repo.index_from_tree(&tree).map_err(reading)?;
            if !share(&mut index, &template) {
                return Ok(None);
            }
            (index, true)
        };
        let files = dir.join("files");
        let (entries, paths) = index.entries_mut_and_pathbacking();
        Copy::new(&files, to, self.owner).run(entries, paths).map_err(io("copy", &files))?;
        // Which of several is the oldest.
        let now = rustix::fs::Timestamps { last_access: NOW, last_modification: NOW };
        let _only_a_hint = rustix::fs::utimensat(rustix::fs::CWD, &dir, &now, rustix::fs::AtFlags::empty());
        Ok(Some(Copied { index, is_partial }))
    }

    /// Learns from a checkout that was made without a template: the first one only leaves a word, so that a plan of one
    /// task pays nothing; a later one is copied.
    pub(super) fn learn(
        &self,
        repo: &Repository,
        tree: ObjectId,
        index: &gix::index::File,
        from: &Path,
    ) -> Result<(), GitError> {
        let Some(_turn) = Turn::take(&self.folder) else { return Ok(()) };
        if index.entries().len() < FEWEST {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder).map_err(io("make", &self.folder))?;
        let dir = self.folder.join(&self.key);
        let asked = self.folder.join(format!("{}.asked", self.key));
        let before = admin::read_small(&asked).ok().flatten();
        let is_due = match self.tree_of(&dir) {
            // Beside one that is of little use: only for a tree that is wanted again and again.
            Some(_) => before.is_some_and(|before| before == tree.to_hex().to_string().as_bytes()),
            None => before.is_some(),
        };
        if !is_due || !self.has_room(index) || is_filtered(repo, index) {
            return admin::replace(&asked, tree.to_hex().to_string().as_bytes());
        }
        self.make(&dir, tree, index, from)
    }

    fn make(&self, dir: &Path, tree: ObjectId, index: &gix::index::File, from: &Path) -> Result<(), GitError> {
        let fresh = self.folder.join("new");
        admin::remove_tree(&fresh)?;
        let made = self.fill(&fresh, tree, index, from).and_then(|()| {
            let old = self.folder.join("old");
            admin::remove_tree(&old)?;
            match std::fs::rename(dir, &old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io("replace", dir)(error)),
                _ => {}
            }
            std::fs::rename(&fresh, dir).map_err(io("make", dir))?;
            admin::remove_tree(&old)
        });
        if made.is_err() {
            admin::remove_tree(&fresh)?;
        }
        self.drop_others();
        made
    }

    fn fill(&self, fresh: &Path, tree: ObjectId, index: &gix::index::File, from: &Path) -> Result<(), GitError> {
        let files = fresh.join("files");
        std::fs::create_dir_all(&files).map_err(io("make", &files))?;
        let mut index = index.clone();
        let (entries, paths) = index.entries_mut_and_pathbacking();
        Copy::new(from, &files, None).run(entries, paths).map_err(io("copy", &files))?;
        index.set_path(fresh.join("index"));
        index
            .write(gix::index::write::Options::default())
            .map_err(|error| failed("write a template's index", error))?;
        admin::write_new(&fresh.join("made"), format!("{} {}\n", tree.to_hex(), self.boot).as_bytes())
    }

    /// The tree that a template is of, where it was made since the machine was started.
    fn tree_of(&self, dir: &Path) -> Option<ObjectId> {
        let line = admin::read_small(&dir.join("made")).ok()??;
        let line = String::from_utf8(line).ok()?;
        let (tree, boot) = line.trim().split_once(' ')?;
        (boot == self.boot).then(|| ObjectId::from_hex(tree.as_bytes()).ok()).flatten()
    }

    fn has_room(&self, index: &gix::index::File) -> bool {
        let size: u64 = index.entries().iter().map(|entry| u64::from(entry.stat.size)).sum();
        let free = rustix::fs::statvfs(&self.folder).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        size <= LARGEST && size <= free / PART_OF_FREE
    }

    /// Templates of settings that held before, but for the newest.
    fn drop_others(&self) {
        let mut others: Vec<_> = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| *entry.file_name() != *self.key && entry.path().join("made").exists())
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        others.sort();
        others.truncate(others.len().saturating_sub(OTHERS));
        for (_, path) in others {
            // It is a cache: what stays is removed the next time.
            let _still_there = admin::remove_tree(&path);
        }
    }
}

/// The right to make a template in a folder.
struct Turn<'a>(&'a Path);

impl<'a> Turn<'a> {
    fn take(folder: &'a Path) -> Option<Self> {
        let is_free = MAKING.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
        is_free.then_some(Self(folder))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        MAKING.lock().unwrap_or_else(PoisonError::into_inner).remove(self.0);
    }
}

const NOW: rustix::fs::Timespec = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };

/// Bytes on disk of all templates.
pub(super) fn disk_usage(common_dir: &Path) -> u64 {
    let folder = folder(common_dir);
    if folder.exists() { admin::disk_usage(&folder) } else { 0 }
}

/// Removes all templates. Who copies from one meanwhile checks out anew.
pub(super) fn remove(common_dir: &Path) -> Result<(), GitError> {
    admin::remove_tree(&folder(common_dir))
}

fn folder(common_dir: &Path) -> PathBuf {
    common_dir.join("orchestrate").join("templates")
}

/// Takes over the states of those files that a template has with the same content and mode; tells whether that is worth
/// it. Attributes decide how files look, so all of them must be the same.
fn share(index: &mut gix::index::File, template: &gix::index::File) -> bool {
    let mut known = template.entries().iter().map(|entry| (entry.path(template), entry)).peekable();
    let mut shared = 0;
    let total = index.entries().len();
    let mut attributes = 0;
    for (entry, path) in index.entries_mut_with_paths() {
        while known.next_if(|(of, _)| *of < path).is_some() {}
        let is_attributes = is_attributes(path);
        attributes += usize::from(is_attributes);
        if let Some((_, was)) = known.next_if(|(of, _)| *of == path)
            && (was.id, was.mode) == (entry.id, entry.mode)
        {
            entry.stat = was.stat;
            shared += 1;
        } else if is_attributes {
            return false;
        }
    }
    let of_template = template.entries().iter().filter(|entry| is_attributes(entry.path(template))).count();
    attributes == of_template && shared * 4 >= total * 3
}

/// Whether a path holds attributes, by which files around it are to be checked out.
pub(super) fn is_attributes(path: &[u8]) -> bool {
    path == b".gitattributes" || path.ends_with(b"/.gitattributes")
}

/// Whether a filter program may have a hand in the files: its output may differ from time to time.
fn is_filtered(repo: &Repository, index: &gix::index::File) -> bool {
    let is_suspect = |bytes: &[u8]| gix::bstr::ByteSlice::contains_str(bytes, "filter");
    let in_tree = index.entries().iter().filter(|entry| is_attributes(entry.path(index)));
    attribute_files(repo).iter().any(|file| {
        let found = admin::read_regular(file, SETTINGS_LIMIT);
        !matches!(found, Ok(Some(bytes)) if !is_suspect(&bytes)) && file.exists()
    }) || in_tree
        .into_iter()
        .any(|entry| entry.mode == Mode::SYMLINK || !repo.find_blob(entry.id).is_ok_and(|blob| !is_suspect(&blob.data)))
        || index.entries().iter().any(|entry| entry.mode != Mode::COMMIT && !is_known(entry))
}

/// Attributes beside those of the tree.
fn attribute_files(repo: &Repository) -> Vec<PathBuf> {
    let own = repo.config_snapshot().trusted_path("core.attributesFile").ok().flatten();
    let own = own.or_else(|| {
        let config = gix::path::env::var("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.or_else(|| gix::path::env::home_dir().map(|home| home.join(".config")));
        config.map(|config| config.join("git/attributes"))
    });
    [Some(repo.common_dir().join("info/attributes")), own, Some(PathBuf::from("/etc/gitattributes"))]
        .into_iter()
        .flatten()
        .collect()
}

/// A name for the settings that decide how files look on disk.
fn settings(repo: &Repository) -> Option<String> {
    let mut text = Vec::new();
    let snapshot = repo.config_snapshot();
    for name in ["core", "filter", "extensions"] {
        for section in snapshot.plumbing().sections_by_name(name).into_iter().flatten() {
            text.extend_from_slice(&section.to_bstring());
        }
    }
    for file in attribute_files(repo) {
        text.push(0);
        match admin::read_regular(&file, SETTINGS_LIMIT) {
            Ok(Some(bytes)) => text.extend_from_slice(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            _ => return None,
        }
    }
    let id = gix::objs::compute_hash(repo.object_hash(), gix::object::Kind::Blob, &text).ok()?;
    Some(id.to_hex().to_string())
}
