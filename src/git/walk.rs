//! The walk over a worktree: it opens regular files only, follows no link, waits for no FIFO, enters no nested repository
//! and runs no filter of the repository's own config.

use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gix::bstr::{BStr, BString, ByteSlice};
use gix::filter::plumbing::pipeline::convert::ToGitOutcome;
use gix::glob::pattern::Case;
use gix::ignore::search::Ignore;
use gix::index::entry::{Flags, Mode, Stat};
use gix::objs::Write as _;
use gix::objs::tree::EntryKind;
use gix::{ObjectId, Repository};

use super::admin::{self, Admin};
use super::contract::GitError;
use super::open::{failed, io};
use super::scan::{Change, Scan};

/// Larger files stay in the worktree: they are hardly meant for a repository.
const LARGEST: u64 = 256 * 1024 * 1024;
/// Larger ignore files are not read.
const IGNORE_LIMIT: u64 = 1024 * 1024;
/// More is not told of.
const NOTES: usize = 20;

/// Whether contents are stored as objects, or only hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Hash,
    Store,
}

/// One walk.
pub(super) struct Walk<'repo> {
    repo: &'repo Repository,
    root: PathBuf,
    keep: Keep,
    /// The commit's files, with what a former index knew of their state on disk.
    tracked: gix::index::File,
    seen: Vec<bool>,
    /// Paths that only the index knows: added by the agent, though perhaps ignored.
    added: Vec<BString>,
    cached: Option<gix::index::File>,
    ignore: gix::ignore::Search,
    filters: gix::filter::Pipeline<'repo>,
    stat_options: gix::index::entry::stat::Options,
    found: Scan,
}

impl<'repo> Walk<'repo> {
    pub(super) fn new(
        repo: &'repo Repository,
        admin: &Admin,
        work_dir: &Path,
        tip: ObjectId,
        keep: Keep,
    ) -> Result<Self, GitError> {
        let reading = |error| failed("compare a worktree with its commit", error);
        let tree = repo.find_commit(tip).map_err(reading)?.tree_id().map_err(reading)?;
        let tracked = repo.index_from_tree(&tree).map_err(reading)?;
        let attributes = repo
            .attributes_only(&tracked, gix::worktree::stack::state::attributes::Source::IdMapping)
            .map_err(reading)?
            .detach();
        let filters = gix::filter::Pipeline::new(repo, attributes).map_err(reading)?;
        let cached = cached_index(repo, admin);
        let mut added = Vec::new();
        if let Some(cached) = &cached {
            for entry in cached.entries() {
                let path = entry.path(cached);
                if entry.stage_raw() == 0 && tracked.entry_by_path(path).is_none() {
                    added.push(path.to_owned());
                }
            }
        }
        let mut buffer = Vec::new();
        let excludes = repo
            .config_snapshot()
            .trusted_path("core.excludesFile")
            .ok()
            .flatten()
            .or_else(|| gix::path::env::home_dir().map(|home| home.join(".config/git/ignore")));
        let ignore = gix::ignore::Search::from_git_dir(repo.common_dir(), excludes, &mut buffer, Ignore::default())
            .map_err(io("read the ignore files of", repo.common_dir()))?;
        Ok(Self {
            repo,
            root: work_dir.to_owned(),
            keep,
            seen: vec![false; tracked.entries().len()],
            tracked,
            added,
            cached,
            ignore,
            filters,
            stat_options: gix::index::entry::stat::Options {
                trust_ctime: true,
                check_stat: true,
                use_nsec: true,
                use_stdev: false,
            },
            found: Scan::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<Scan, GitError> {
        match self.root.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            _ => return Err(GitError::WorktreeLost(self.root)),
        }
        self.folder(BStr::new(""), false)?;
        for (at, entry) in self.tracked.entries().iter().enumerate() {
            let path = entry.path(&self.tracked);
            if self.seen[at] || entry.mode == Mode::COMMIT {
                continue;
            }
            if self.is_skipped(path) {
                self.found.skipped.push(path.to_owned());
            } else {
                self.found.changes.push(Change { path: path.to_owned(), now: None });
            }
        }
        self.found.changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self.found)
    }

    /// Walks one folder. In an ignored one only what is tracked counts.
    fn folder(&mut self, folder: &BStr, ignored: bool) -> Result<(), GitError> {
        let path = self.root.join(to_path(folder));
        let mut entries = Vec::new();
        match path.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(found) => entries.extend(found.into_iter().map(|entry| entry.file_name())),
            // Deeper than a path can be, or another user's: what is tracked there counts as unchanged.
            Err(error) => {
                self.note(format!("`{folder}` could not be read and is left out: {error}"));
                self.spare(folder);
                return Ok(());
            }
        }
        entries.sort();
        let before = self.ignore.patterns.len();
        let own = path.join(".gitignore");
        if let Ok(Some(bytes)) = admin::read_regular(&own, IGNORE_LIMIT) {
            self.ignore
                .add_patterns_buffer(&bytes, own.clone(), Some(&self.root), Ignore::default())
                .map_err(io("read", &own))?;
        }
        for name in entries {
            let name = BString::from(name.into_vec());
            let rela = join(folder, name.as_bstr());
            self.entry(name.as_bstr(), rela.as_bstr(), ignored)?;
        }
        self.ignore.patterns.truncate(before);
        Ok(())
    }

    fn entry(&mut self, name: &BStr, rela: &BStr, ignored: bool) -> Result<(), GitError> {
        let path = self.root.join(to_path(rela));
        if rela == ".git" {
            return Ok(());
        }
        let Ok(meta) = path.symlink_metadata() else { return Ok(()) };
        if !is_allowed(name, &meta) {
            self.note(format!("`{rela}` is left out: git takes its name for one of its own"));
            return Ok(());
        }
        if meta.is_dir() {
            let is_tracked = self.tracked.path_is_directory(rela) || self.added.iter().any(|path| is_below(path, rela));
            let ignored = ignored || self.is_ignored(rela, true);
            if path.join(".git").symlink_metadata().is_ok() {
                if self.tracked.entry_by_path(rela).is_none_or(|entry| entry.mode != Mode::COMMIT) && !ignored {
                    self.note(format!("the nested repository `{rela}` is left out"));
                }
                self.spare(rela);
                return Ok(());
            }
            return if ignored && !is_tracked { Ok(()) } else { self.folder(rela, ignored) };
        }
        let tracked = self.tracked.entry_index_by_path(rela).ok();
        if tracked.is_none()
            && (ignored || self.is_ignored(rela, false))
            && !self.added.iter().any(|path| path.as_bstr() == rela)
        {
            return Ok(());
        }
        if meta.is_file() || meta.is_symlink() { self.file(&path, rela, &meta, tracked) } else { Ok(()) }
    }

    fn file(&mut self, path: &Path, rela: &BStr, meta: &Metadata, tracked: Option<usize>) -> Result<(), GitError> {
        let stat = stat(path)?;
        let (mode, kind) = if meta.is_symlink() {
            (Mode::SYMLINK, EntryKind::Link)
        } else if meta.mode() & 0o100 != 0 {
            (Mode::FILE_EXECUTABLE, EntryKind::BlobExecutable)
        } else {
            (Mode::FILE, EntryKind::Blob)
        };
        if let Some(at) = tracked {
            self.seen[at] = true;
        }
        let was = tracked.map(|at| (self.tracked.entry(at).mode, self.tracked.entry(at).id));
        let id = match self.known(rela, mode, &stat) {
            Some(id) => id,
            None if meta.len() > LARGEST => {
                self.note(format!("`{rela}` is left out: it has more than {} MiB", LARGEST / 1024 / 1024));
                return Ok(());
            }
            None => match self.hash(path, rela, meta, was.map(|(_, id)| id)) {
                Ok(Some(id)) => id,
                Ok(None) => return Ok(()),
                Err(error @ GitError::Git { .. }) => return Err(error),
                Err(error) => {
                    self.note(format!("`{rela}` could not be read and is left out: {error}"));
                    return Ok(());
                }
            },
        };
        self.found.on_disk.insert(rela.to_owned(), (mode, id, stat));
        if was != Some((mode, id)) {
            self.found.changes.push(Change { path: rela.to_owned(), now: Some((kind, id)) });
        }
        Ok(())
    }

    /// The id that a former index gives to a file whose state on disk is still the same.
    fn known(&self, rela: &BStr, mode: Mode, stat: &Stat) -> Option<ObjectId> {
        let cached = self.cached.as_ref()?;
        let entry = cached.entry_by_path(rela)?;
        let same = entry.mode == mode
            && entry.stat.matches(stat, self.stat_options)
            && !entry.stat.is_racy(cached.timestamp(), self.stat_options);
        // An agent may have written this index: an id that is no blob of ours would break the tree.
        (same && self.repo.find_header(entry.id).is_ok_and(|header| header.kind() == gix::object::Kind::Blob))
            .then_some(entry.id)
    }

    fn hash(
        &mut self,
        path: &Path,
        rela: &BStr,
        meta: &Metadata,
        was: Option<ObjectId>,
    ) -> Result<Option<ObjectId>, GitError> {
        if meta.is_symlink() {
            let target = std::fs::read_link(path).map_err(io("read", path))?.into_os_string().into_vec();
            return blob(self.repo, self.keep, &target, was).map(Some);
        }
        // A file that was checked out without its filter is unchanged as it is; a new one is better kept than lost.
        let failure = match self.filtered(path, rela) {
            Ok(Some(bytes)) => return blob(self.repo, self.keep, &bytes, was).map(Some),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let Some(file) = admin::open_regular(path).map_err(io("open", path))? else { return Ok(None) };
        let id = stream(self.repo, self.keep, file, path)?;
        if let Some(error) = failure
            && was != Some(id)
        {
            self.note(format!("`{rela}` is taken as it is, without its filter: {error}"));
        }
        Ok(Some(id))
    }

    /// A file's content as its attributes have it stored; `None` where that is as it is.
    fn filtered(&mut self, path: &Path, rela: &BStr) -> Result<Option<Vec<u8>>, GitError> {
        let Some(file) = admin::open_regular(path).map_err(io("open", path))? else { return Ok(None) };
        let outcome = self
            .filters
            .convert_to_git(file, &to_path(rela), &self.tracked)
            .map_err(|error| failed(format!("filter {rela}"), error))?;
        Ok(match outcome {
            ToGitOutcome::Unchanged(_) => None,
            ToGitOutcome::Buffer(bytes) => Some(bytes.to_vec()),
            ToGitOutcome::Process(mut stream) => {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).map_err(io("filter", path))?;
                Some(bytes)
            }
        })
    }

    fn is_ignored(&self, rela: &BStr, is_dir: bool) -> bool {
        self.ignore
            .pattern_matching_relative_path(rela, Some(is_dir), Case::Sensitive)
            .is_some_and(|found| !found.pattern.is_negative())
    }

    /// Whether a former index says that this path is not checked out.
    fn is_skipped(&self, path: &BStr) -> bool {
        let entry = self.cached.as_ref().and_then(|cached| cached.entry_by_path(path));
        entry.is_some_and(|entry| entry.flags.contains(Flags::SKIP_WORKTREE))
    }

    /// Takes everything that is tracked at or below a path for unchanged.
    fn spare(&mut self, folder: &BStr) {
        for (at, entry) in self.tracked.entries().iter().enumerate() {
            let path = entry.path(&self.tracked);
            if path == folder || is_below(path, folder) || folder.is_empty() {
                self.seen[at] = true;
            }
        }
    }

    fn note(&mut self, note: String) {
        if self.found.notes.len() < NOTES {
            self.found.notes.push(note);
        }
    }
}

/// Hashes a file without holding it in memory.
fn stream(repo: &Repository, keep: Keep, mut file: std::fs::File, path: &Path) -> Result<ObjectId, GitError> {
    let size = file.metadata().map_err(io("look at", path))?.len();
    let kind = gix::object::Kind::Blob;
    let hashed = if keep == Keep::Store {
        repo.objects.write_stream(kind, size, &mut file)
    } else {
        let never = std::sync::atomic::AtomicBool::new(false);
        gix::objs::compute_stream_hash(repo.object_hash(), kind, &mut file, size, &mut gix::progress::Discard, &never)
    };
    hashed.map_err(|error| failed(format!("hash {}", path.display()), error))
}

fn blob(repo: &Repository, keep: Keep, bytes: &[u8], was: Option<ObjectId>) -> Result<ObjectId, GitError> {
    let id = gix::objs::compute_hash(repo.object_hash(), gix::object::Kind::Blob, bytes)
        .map_err(|error| failed("hash a file", error))?;
    if keep == Keep::Store && was != Some(id) {
        repo.write_blob(bytes).map_err(|error| failed("store a file", error))?;
    }
    Ok(id)
}

/// The worktree's index, where it can be read as a regular file.
fn cached_index(repo: &Repository, admin: &Admin) -> Option<gix::index::File> {
    let path = admin.dir.join("index");
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return None;
    }
    gix::index::File::at(path, repo.object_hash(), false, gix::index::decode::Options::default()).ok()
}

/// Whether git would take the name for its own, on any file system.
fn is_allowed(name: &BStr, meta: &Metadata) -> bool {
    let options =
        gix::validate::path::component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let mode = meta.is_symlink().then_some(gix::validate::path::component::Mode::Symlink);
    gix::validate::path::component(name, mode, options).is_ok()
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn join(folder: &BStr, name: &BStr) -> BString {
    let mut path = folder.to_owned();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

fn to_path(rela: &BStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(rela))
}

fn stat(path: &Path) -> Result<Stat, GitError> {
    let meta = gix::index::fs::Metadata::from_path_no_follow(path).map_err(io("look at", path))?;
    Stat::from_fs(&meta).map_err(|error| failed("read a file's times", error))
}
