//! What an attempt may see and do of git, as mounts and environment.

use std::collections::BTreeMap;
use std::path::Path;

use super::admin::Admin;
use super::contract::{AccessRequest, GitAccessPlan, GitBind, GitError};
use super::open::{GixRepository, Steer, io, object_id};
use super::{admin, identity, isolate, own, scan};
use crate::spec::GitAccess;

/// Prepares an attempt's git.
pub(super) fn open(git: &GixRepository, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
    std::fs::create_dir_all(&request.attempt_dir).map_err(io("make", &request.attempt_dir))?;
    if let Some((uid, gid)) = request.owner
        && own::give(&request.worktree.path, uid, gid)?
    {
        refresh_index(git, request)?;
    }
    match request.access {
        GitAccess::Isolated => isolate::open(git, request),
        GitAccess::Shared => shared(git, request),
        GitAccess::None => none(request),
    }
}

/// Another owner is another state on disk: without this, git would read every file again at its first `status`.
fn refresh_index(git: &GixRepository, request: &AccessRequest) -> Result<(), GitError> {
    let worktree = &request.worktree;
    let Some(admin) = Admin::find(&git.layout.common_dir, &worktree.path)?.filter(Admin::is_ours) else {
        return Err(GitError::WorktreeLost(worktree.path.clone()));
    };
    let repo = super::open::open(&git.layout.common_dir, Steer::Person, Some(&worktree.path))?;
    scan::write_index(&repo, &admin, &worktree.path, object_id(&worktree.tip)?)?;
    own::hand_over(&git.layout, &[&admin.dir])
}

/// The whole common directory at its own path, to which the worktree's `.git` file leads, writable.
fn shared(git: &GixRepository, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
    if let Some((uid, gid)) = request.owner {
        own::give(&request.worktree.git_dir, uid, gid)?;
    }
    // Our journal lies in there as well; the agent finds an empty folder in its place.
    let empty = request.attempt_dir.join("no-state");
    std::fs::create_dir_all(&empty).map_err(io("make", &empty))?;
    let state = GitBind { source: empty, target: git.layout.common_dir.join("orchestrate"), read_only: true };
    Ok(GitAccessPlan { binds: vec![same_path(&git.layout.common_dir, false), state], env: environment(git)? })
}

/// An empty file where the worktree's `.git` file is: git finds no repository, and nothing of the host's paths is told.
fn none(request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
    let empty = request.attempt_dir.join("no-git");
    admin::replace(&empty, b"")?;
    let bind = GitBind { source: empty, target: request.mount_point.join(".git"), read_only: true };
    Ok(GitAccessPlan { binds: vec![bind], env: BTreeMap::new() })
}

pub(super) fn same_path(path: &Path, read_only: bool) -> GitBind {
    GitBind { source: path.to_owned(), target: path.to_owned(), read_only }
}

/// The person's identity where they have one, else ours; and no refusal for a repository whose owner the container does
/// not know.
pub(super) fn environment(git: &GixRepository) -> Result<BTreeMap<String, String>, GitError> {
    let repo = git.common(Steer::Person)?;
    let config = repo.config_snapshot();
    let value = |key: &str| config.string(key).map(|value| value.to_string()).filter(|value| !value.trim().is_empty());
    let (name, email) = match (value("user.name"), value("user.email")) {
        (Some(name), Some(email)) => (name, email),
        _ => (identity::NAME.to_owned(), identity::EMAIL.to_owned()),
    };
    let pairs = [
        ("GIT_AUTHOR_NAME", name.clone()),
        ("GIT_AUTHOR_EMAIL", email.clone()),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
        ("GIT_CONFIG_COUNT", "1".to_owned()),
        ("GIT_CONFIG_KEY_0", "safe.directory".to_owned()),
        ("GIT_CONFIG_VALUE_0", "*".to_owned()),
    ];
    Ok(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}
