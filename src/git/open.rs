//! Finding and opening the repository, never by way of the environment.

use std::error::Error as StdError;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gix::open::Permissions;
use gix::sec::Permission;

use super::contract::{CommitId, GitError, RepositoryLayout};

/// Which configuration may steer an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Steer {
    /// None but the repository's own format: for refs, objects, merges, diffs. No driver of any kind.
    Nothing,
    /// The person's and the system's too: line endings, ignore files and filters, for what touches a work tree. Filters of
    /// the repository's own config stay off, since an agent with shared access may have written them.
    Person,
}

/// The adapter over gix. Cheap to clone; opens the repository anew for each call, so that it never acts on a stale
/// configuration.
#[derive(Debug, Clone)]
pub struct GixRepository {
    pub(super) layout: RepositoryLayout,
}

impl GixRepository {
    /// Finds the repository that holds `start`.
    pub fn discover(start: &Path) -> Result<Self, GitError> {
        let start = std::fs::canonicalize(start).map_err(|source| GitError::Io {
            action: "resolve",
            path: start.to_owned(),
            source,
        })?;
        let not_found = || GitError::NotARepository(start.clone());
        let (found, work_tree) = start.ancestors().find_map(git_dir_at).ok_or_else(not_found)?;
        let repo = open(&found, Steer::Nothing, None)?;
        let git_dir = resolved(repo.git_dir())?;
        let common_dir = resolved(repo.common_dir())?;
        if repo.submodule_like(&common_dir) {
            return Err(GitError::Unsupported(
                "it is a submodule's checkout; run in the superproject, or in a clone of its own".to_owned(),
            ));
        }
        // The main work tree may keep its git directory anywhere; seen from elsewhere, its parent is the best guess.
        let root = match work_tree {
            Some(work_tree) if git_dir == common_dir => work_tree,
            _ => common_dir.parent().map(Path::to_owned).ok_or_else(not_found)?,
        };
        let meta = std::fs::metadata(&common_dir).map_err(|source| GitError::Io {
            action: "look at",
            path: common_dir.clone(),
            source,
        })?;
        let layout = RepositoryLayout { root, git_dir, common_dir, uid: meta.uid(), gid: meta.gid() };
        refuse_unserved(&repo, &layout)?;
        Ok(Self { layout })
    }

    /// The repository as all worktrees share it.
    pub(super) fn common(&self, steer: Steer) -> Result<gix::Repository, GitError> {
        open(&self.layout.common_dir, steer, None)
    }
}

trait SubmoduleLike {
    fn submodule_like(&self, common_dir: &Path) -> bool;
}

impl SubmoduleLike for gix::Repository {
    /// A submodule's git directory lies below its superproject's `modules`.
    fn submodule_like(&self, common_dir: &Path) -> bool {
        let mut parts = common_dir.components().rev().skip(1);
        parts.any(|part| part.as_os_str() == "modules")
            && common_dir
                .ancestors()
                .skip_while(|dir| dir.file_name().is_none_or(|name| name != "modules"))
                .nth(1)
                .is_some_and(|dir| gix::discover::is_git(dir).is_ok())
    }
}

/// The git directory of a folder that is a work tree, a git directory or a bare repository; and the work tree.
fn git_dir_at(dir: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let dot_git = dir.join(".git");
    if dot_git.is_dir() && gix::discover::is_git(&dot_git).is_ok() {
        return Some((dot_git, Some(dir.to_owned())));
    }
    if dot_git.is_file() {
        // A linked worktree's or a submodule's: the start belongs to the person, so this one is followed.
        let target = gix::discover::path::from_gitdir_file(&dot_git).ok()?;
        return gix::discover::is_git(&target).is_ok().then_some((target, Some(dir.to_owned())));
    }
    let is_git_dir = dir.join("HEAD").exists() && (dir.join("objects").is_dir() || dir.join("commondir").is_file());
    (is_git_dir && gix::discover::is_git(dir).is_ok()).then(|| (dir.to_owned(), None))
}

fn refuse_unserved(repo: &gix::Repository, layout: &RepositoryLayout) -> Result<(), GitError> {
    let config = repo.config_snapshot();
    if let Some(format) = config.string("extensions.refStorage").filter(|format| *format != "files") {
        return Err(GitError::Unsupported(format!(
            "its refs are stored as `{format}`; `git refs migrate --ref-format=files` makes it usable"
        )));
    }
    let euid = rustix::process::geteuid().as_raw();
    if euid != 0 && euid != layout.uid && !is_called_safe(layout) {
        return Err(GitError::Unsupported(format!(
            "it belongs to user {}; run as that user, or `git config --global --add safe.directory {}`",
            layout.uid,
            layout.root.display()
        )));
    }
    Ok(())
}

/// Whether the person's configuration lists this repository under `safe.directory`.
fn is_called_safe(layout: &RepositoryLayout) -> bool {
    options(Steer::Person).with(gix::sec::Trust::Reduced).bail_if_untrusted(true).open(&layout.git_dir).is_ok()
}

/// Opens a git directory as it is: no search, no environment.
pub(super) fn open(git_dir: &Path, steer: Steer, work_dir: Option<&Path>) -> Result<gix::Repository, GitError> {
    let mut repo = options(steer)
        .with(gix::sec::Trust::Full)
        .open_path_as_is(true)
        .open(git_dir)
        .map_err(|error| failed(format!("open {}", git_dir.display()), error))?
        .to_thread_local();
    if let Some(work_dir) = work_dir {
        repo.set_workdir(work_dir.to_owned()).map_err(|error| failed("set the work tree", error))?;
    }
    repo.object_cache_size_if_unset(4 * 1024 * 1024);
    Ok(repo)
}

fn options(steer: Steer) -> gix::open::Options {
    let person = steer == Steer::Person;
    let mut permissions = Permissions::isolated();
    if person {
        permissions.env.home = Permission::Allow;
        permissions.env.xdg_config_home = Permission::Allow;
        permissions.config.system = true;
        permissions.config.git = true;
        permissions.config.user = true;
        permissions.config.includes = true;
        permissions.attributes.system = true;
        permissions.attributes.git = true;
    }
    gix::open::Options::default()
        .permissions(permissions)
        .filter_config_section(|section| !matches!(section.source.kind(), gix::config::source::Kind::Repository))
}

/// Resolves every link, so that a path compares equal however it was reached.
pub(super) fn resolved(path: &Path) -> Result<PathBuf, GitError> {
    std::fs::canonicalize(path).map_err(|source| GitError::Io { action: "resolve", path: path.to_owned(), source })
}

/// Git's own machinery failed.
pub(super) fn failed(action: impl Into<String>, error: impl Into<Box<dyn StdError + Send + Sync>>) -> GitError {
    GitError::Git { action: action.into(), source: error.into() }
}

/// Something of an agent's breaks a rule.
pub(super) fn refused(reason: String) -> GitError {
    GitError::Refused { reason, kept: None }
}

/// An error of the file system with its path.
pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> GitError {
    let path = path.to_owned();
    move |source| GitError::Io { action, path, source }
}

/// A commit's id as gix has it.
pub(super) fn object_id(commit: &CommitId) -> Result<gix::ObjectId, GitError> {
    gix::ObjectId::from_hex(commit.0.as_bytes()).map_err(|_| GitError::UnknownRevision(commit.0.clone()))
}

/// A commit's id as the contract has it.
pub(super) fn commit_id(id: impl AsRef<gix::oid>) -> CommitId {
    CommitId(id.as_ref().to_hex().to_string())
}

/// What a failure means where the clone is a partial one: an object that was never fetched, which no retry brings.
pub(super) fn missing(repo: &gix::Repository, what: &str, error: GitError) -> GitError {
    let config = repo.config_snapshot();
    let is_partial = config.string("extensions.partialClone").is_some()
        || config.sections_by_name("remote").into_iter().flatten().any(|remote| remote.value("promisor").is_some());
    if !is_partial {
        return error;
    }
    GitError::Unsupported(format!(
        "a partial clone that lacks objects of `{what}`; `git fetch --refetch --no-filter` brings them"
    ))
}
