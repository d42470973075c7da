//! The container of a person who looks into what an attempt left: the attempt's image and rules over its worktree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::context::Ports;
use super::error::ActError;
use super::launch;
use super::mounts::{self, PROJECT};
use super::pull;
use crate::git::{AccessRequest, CommitId, WorktreeState};
use crate::observe::{AttemptKey, InstanceId, names};
use crate::runtime::{Bind, CreateRequest};
use crate::spec::TaskSpec;
use crate::status::Reason;

/// An attempt that is over, and whose worktree a person wants to look into.
pub struct Left<'a> {
    /// The clone.
    pub instance: &'a InstanceId,
    /// The attempt.
    pub key: &'a AttemptKey,
    /// The commit that its branch started from.
    pub base: &'a CommitId,
    /// Its branch's tip.
    pub tip: &'a CommitId,
    /// What is asked of the task now.
    pub spec: &'a TaskSpec,
    /// The user's home, never to be mounted whole.
    pub home: Option<&'a Path>,
    /// Sockets that no container may see.
    pub sockets: &'a [PathBuf],
}

/// What makes that container. It bears none of an attempt's labels, so that no list of ours ever holds it; it gets no
/// secret; and git can be read in it and not written, since nothing would take a commit in.
///
/// # Errors
/// Where the worktree or the image is gone, or a mount is refused.
pub async fn shell_request(ports: &Ports, left: &Left<'_>) -> Result<CreateRequest, ActError> {
    let Left { instance, key, base, spec, .. } = left;
    let attempt = &spec.attempt;
    let layout = ports.repository.layout();
    let path = layout.root.join(names::worktree(&key.task));
    if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        let message = format!("the worktree {} is gone", path.display());
        return Err(ActError::hold(Reason::InvalidSpec, message));
    }
    let image = match &attempt.image {
        None => None,
        Some(reference) => {
            let image = ports.runtime.image(reference).await?;
            Some(image.ok_or_else(|| pull::missing(&*ports.runtime, reference, ""))?)
        }
    };
    let worktree = WorktreeState { path: path.clone(), git_dir: layout.common_dir.clone(), tip: left.tip.clone() };
    let access = AccessRequest {
        worktree,
        access: attempt.git_access,
        branch: names::branch_ref(&key.task),
        base: (*base).clone(),
        visible: Vec::new(),
        attempt_dir: names::attempt_dir(&names::state_dir(&layout.common_dir), key),
        mount_point: PROJECT.into(),
        owner: None,
    };
    let access = ports.repository.open_access(&access).await?;
    let mut mounts = vec![Bind { source: path, target: PROJECT.to_owned(), read_only: false }];
    let binds = mounts::of_git(access.binds)?;
    mounts.extend(binds.into_iter().map(|bind| Bind { read_only: true, ..bind }));
    for mount in &attempt.mounts {
        let resolved = mounts::resolve(mount, layout, left.home, left.sockets);
        mounts.push(resolved.map_err(|why| ActError::hold(Reason::MountRefused, why))?);
    }
    let mut env = access.env;
    env.extend(attempt.env.clone());
    env.insert("ORCHESTRATE_TASK".to_owned(), key.task.to_string());
    env.insert("ORCHESTRATE_ATTEMPT".to_owned(), key.attempt.to_string());
    env.insert("ORCHESTRATE_BRANCH".to_owned(), names::branch(&key.task));
    Ok(CreateRequest {
        name: names::shell_container(instance, key, fastrand::u32(..)),
        labels: BTreeMap::from([(names::label::SHELL.to_owned(), key.to_string())]),
        key: (*key).clone(),
        image: attempt.image.clone(),
        command: None,
        env,
        mounts,
        workdir: PROJECT.to_owned(),
        user: launch::owner(layout, attempt, image.as_ref()).user,
        network: attempt.network.as_str().to_owned(),
        resources: attempt.resources,
    })
}
