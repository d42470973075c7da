//! Making objects outlive a power cut before a ref names them: gix leaves that to the file system.

use std::ops::ControlFlow;

use gix::{ObjectId, Repository};

use super::admin;
use super::contract::GitError;
use super::open::{failed, io};

/// Up to so many objects one by one; past it the whole file system at once.
const ONE_BY_ONE: usize = 64;

/// Makes loose objects durable.
pub(super) fn sync(repo: &Repository, ids: &[ObjectId]) -> Result<(), GitError> {
    let objects = repo.common_dir().join("objects");
    if ids.len() > ONE_BY_ONE {
        let folder = std::fs::File::open(&objects).map_err(io("open", &objects))?;
        return rustix::fs::syncfs(&folder).map_err(|error| io("make durable", &objects)(error.into()));
    }
    for id in ids {
        let hex = id.to_hex().to_string();
        let (folder, name) = hex.split_at(2);
        let path = objects.join(folder).join(name);
        // One that is gone was there before, in a pack.
        admin::sync(&path)?;
    }
    Ok(())
}

/// Makes a commit durable with what its tree has and its parent's has not.
pub(super) fn sync_commit(repo: &Repository, commit: ObjectId, parent: ObjectId) -> Result<(), GitError> {
    let comparing = |error| failed("compare two commits", error);
    let tree = |id| repo.find_commit(id).and_then(|commit| commit.tree()).map_err(comparing);
    let (old, new) = (tree(parent)?, tree(commit)?);
    let mut ids = vec![new.id, commit];
    let mut platform = old.changes().map_err(comparing)?;
    platform.options(|options| {
        options.track_rewrites(None);
    });
    platform
        .for_each_to_obtain_tree(&new, |change| {
            ids.push(change.id().detach());
            Ok(ControlFlow::Continue(()))
        })
        .map_err(comparing)?;
    sync(repo, &ids)
}
