//! Judges extra mounts against the file system: links are resolved first, and what would give the host away is refused.

use std::path::{Component, Path, PathBuf};

use super::error::ActError;
use crate::git::{GitBind, RepositoryLayout};
use crate::runtime::Bind;
use crate::spec::MountSpec;
use crate::status::Reason;

/// Where the worktree is in the container.
pub(super) const PROJECT: &str = "/project";
/// Where our own files are in the container.
pub(super) const RUN: &str = "/run/orchestrate";

/// Folders whose content is the machine itself.
const MACHINE: &[&str] = &["/proc", "/sys", "/dev", "/boot"];
/// Places in the container that are taken.
const TAKEN: &[&str] = &["/", PROJECT, RUN, "/run/secrets", "/proc", "/sys", "/dev", "/tmp"];

/// The mounts that git asks for, as an engine wants them.
pub(super) fn of_git(binds: Vec<GitBind>) -> Result<Vec<Bind>, ActError> {
    let bind = |bind: GitBind| {
        let target = bind.target.to_str().map(ToOwned::to_owned);
        let target =
            target.ok_or_else(|| ActError::hold(Reason::MountRefused, "the repository's path is not UTF-8"))?;
        Ok(Bind { source: bind.source, target, read_only: bind.read_only })
    };
    binds.into_iter().map(bind).collect()
}

/// Resolves a mount.
///
/// # Errors
/// One sentence that says why it is refused.
pub(super) fn resolve(
    mount: &MountSpec,
    layout: &RepositoryLayout,
    home: Option<&Path>,
    sockets: &[PathBuf],
) -> Result<Bind, String> {
    let target = mount.target.to_str().ok_or("the target is not UTF-8")?.trim_end_matches('/');
    let target = if target.is_empty() { "/" } else { target };
    if TAKEN.contains(&target) {
        return Err(format!("mount target {target} is taken"));
    }
    let shown = mount.source.display();
    if mount.source.components().any(|part| part == Component::ParentDir) {
        return Err(format!("mount source {shown} may not hold `..`"));
    }
    let relative = mount.source.is_relative();
    let source = layout.root.join(&mount.source);
    let source = source.canonicalize().map_err(|error| format!("mount source {shown} cannot be used: {error}"))?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let root = real(&layout.root);
    if relative && !source.starts_with(&root) {
        return Err(format!("mount source {shown} leads out of the repository, to {}", source.display()));
    }
    if source == Path::new("/") || MACHINE.iter().any(|folder| source.starts_with(folder)) {
        return Err(format!("mount source {shown} is the machine itself"));
    }
    if home.map(real).is_some_and(|home| home.starts_with(&source)) {
        return Err(format!("mount source {shown} holds your whole home; name a folder inside"));
    }
    for git in [&layout.common_dir, &layout.git_dir].map(|dir| real(dir)) {
        if source.starts_with(&git) || git.starts_with(&source) {
            return Err(format!("mount source {shown} holds the repository's git directory; see `git_access`"));
        }
    }
    if sockets.iter().map(|socket| real(socket)).any(|socket| socket.starts_with(&source)) {
        return Err(format!("mount source {shown} gives the engine's socket away, and with it the machine"));
    }
    Ok(Bind { source, target: target.to_owned(), read_only: mount.read_only })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn layout(root: &Path) -> RepositoryLayout {
        fs::create_dir_all(root.join(".git")).expect("makes");
        fs::create_dir_all(root.join("data")).expect("makes");
        RepositoryLayout {
            root: root.to_owned(),
            git_dir: root.join(".git"),
            common_dir: root.join(".git"),
            uid: 0,
            gid: 0,
        }
    }

    fn mount(source: impl Into<PathBuf>, target: &str) -> MountSpec {
        MountSpec { source: source.into(), target: target.into(), read_only: true }
    }

    #[test]
    fn a_folder_of_the_repository_is_resolved() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path().canonicalize().expect("real");
        let bind = resolve(&mount("data", "/data/"), &layout(&root), None, &[]).expect("fine");
        assert_eq!(bind, Bind { source: root.join("data"), target: "/data".into(), read_only: true });
    }

    #[test]
    fn what_gives_the_host_away_is_refused() {
        let dir = tempfile::tempdir().expect("temp dir");
        let home = dir.path().join("home");
        let root = home.join("repo");
        fs::create_dir_all(&root).expect("makes");
        let layout = layout(&root);
        symlink("/etc", root.join("out")).expect("links");
        let socket = dir.path().join("run/docker.sock");
        fs::create_dir_all(dir.path().join("run")).expect("makes");
        fs::write(&socket, "").expect("writes");
        for source in [
            PathBuf::from("/"),
            "/proc/1".into(),
            home.clone(),
            "..".into(),
            "data/../..".into(),
            "out".into(),
            ".git".into(),
            root.join(".git/hooks"),
            root.clone(),
            socket.clone(),
            dir.path().join("run"),
            "nowhere".into(),
        ] {
            let refused = resolve(&mount(&source, "/x"), &layout, Some(&home), std::slice::from_ref(&socket));
            assert!(refused.is_err(), "{} was let through: {refused:?}", source.display());
        }
        for target in ["/", "/project", "/run/orchestrate/", "/proc"] {
            assert!(resolve(&mount("data", target), &layout, None, &[]).is_err(), "{target}");
        }
    }
}
