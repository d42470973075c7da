//! Files of a new worktree: copied from a template as far as there is one, else checked out from the repository.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::{ObjectId, Repository};

use super::admin::Admin;
use super::contract::GitError;
use super::copy::is_known;
use super::open::{GixRepository, Steer, failed, missing, open};
use super::template::{self, Copied, Templates};

/// Bytes of unpacked objects that each thread keeps, as others are packed as differences to them.
const DELTA_BASES: usize = 24 * 1024 * 1024;

/// Puts a commit's files into a worktree and writes its index. `is_new`: the folder was made just now, for this.
/// `is_empty`: nothing is in it, so that nothing is overwritten.
pub(super) fn fill(
    git: &GixRepository,
    admin: &Admin,
    path: &Path,
    tip: ObjectId,
    is_new: bool,
    is_empty: bool,
) -> Result<(), GitError> {
    let common_dir = &git.layout.common_dir;
    let repo = open(common_dir, Steer::Person, Some(path))?;
    let templates = if is_new { Templates::open(git, &repo) } else { None };
    // A filter that is missing or fails should not keep the task from starting: then files are as git stores them.
    if as_the_person_has_it(&repo, admin, path, tip, templates.as_ref(), is_empty).is_err() {
        let repo = open(common_dir, Steer::Nothing, Some(path))?;
        check_out(&repo, path, tip, false)
            .and_then(|mut index| write(&mut index, admin))
            .map_err(|error| missing(&repo, &tip.to_string(), error))?;
    }
    Ok(())
}

fn as_the_person_has_it(
    repo: &Repository,
    admin: &Admin,
    path: &Path,
    tip: ObjectId,
    templates: Option<&Templates>,
    mut is_empty: bool,
) -> Result<(), GitError> {
    let checking = |error| failed(format!("check out {}", path.display()), error);
    let tree = repo.find_commit(tip).map_err(checking)?.tree_id().map_err(checking)?.detach();
    if let Some(templates) = templates {
        match templates.copy(repo, tree, path).and_then(|copied| rest(repo, path, copied)) {
            Ok(Some(mut index)) => return write(&mut index, admin),
            Ok(None) => {}
            // A template that was removed or damaged, or a disk that is full: whatever was copied is made anew.
            Err(_) => is_empty = false,
        }
    }
    let mut index = check_out(repo, path, tip, is_empty)?;
    if let Some(templates) = templates {
        // Before the index is written: then its files are older than itself, and `git status` need not read them.
        let _only_slower = templates.learn(repo, tree, &index, path);
    }
    write(&mut index, admin)
}

/// Checks out what a template did not have.
fn rest(repo: &Repository, path: &Path, copied: Option<Copied>) -> Result<Option<gix::index::File>, GitError> {
    let Some(Copied { mut index, is_partial }) = copied else { return Ok(None) };
    if !is_partial {
        return Ok(Some(index));
    }
    let mut rest = index.clone();
    // Attributes say how the others are checked out, so they come along.
    rest.remove_entries(|_, of, entry| {
        entry.mode == gix::index::entry::Mode::COMMIT || (is_known(entry) && !template::is_attributes(of))
    });
    if rest.entries().iter().all(is_known) {
        return Ok(Some(index));
    }
    put(repo, path, &mut rest, false)?;
    let made = rest.entries();
    let mut made = made.iter().map(|entry| (entry.path(&rest), entry.stat)).peekable();
    for (entry, of) in index.entries_mut_with_paths() {
        if let Some((_, stat)) = made.next_if(|(path, _)| *path == of) {
            entry.stat = stat;
        }
    }
    Ok(Some(index))
}

fn check_out(repo: &Repository, path: &Path, tip: ObjectId, is_empty: bool) -> Result<gix::index::File, GitError> {
    let checking = |error| failed(format!("check out {}", path.display()), error);
    let tree = repo.find_commit(tip).map_err(checking)?.tree_id().map_err(checking)?;
    let mut index = repo.index_from_tree(&tree).map_err(checking)?;
    put(repo, path, &mut index, is_empty)?;
    Ok(index)
}

fn put(repo: &Repository, path: &Path, index: &mut gix::index::File, is_empty: bool) -> Result<(), GitError> {
    let checking = |error| failed(format!("check out {}", path.display()), error);
    let mut options =
        repo.checkout_options(gix::worktree::stack::state::attributes::Source::IdMapping).map_err(checking)?;
    options.destination_is_initially_empty = is_empty;
    options.overwrite_existing = !is_empty;
    let mut objects = repo.objects.clone();
    objects.set_pack_cache(|| Box::new(gix_pack::cache::lru::MemoryCappedHashmap::new(DELTA_BASES)));
    let objects = objects.into_arc().map_err(|error| failed("read objects", error))?;
    let outcome = gix::worktree::state::checkout(
        index,
        path,
        objects,
        &gix::progress::Discard,
        &gix::progress::Discard,
        &AtomicBool::new(false),
        options,
    )
    .map_err(checking)?;
    if let Some(first) = outcome.errors.first() {
        return Err(failed(format!("check out {}", first.path), std::io::Error::other(first.error.to_string())));
    }
    if let Some(first) = outcome.collisions.first() {
        return Err(failed(format!("check out {}", first.path), std::io::Error::from(first.error_kind)));
    }
    Ok(())
}

fn write(index: &mut gix::index::File, admin: &Admin) -> Result<(), GitError> {
    index.set_path(admin.dir.join("index"));
    index
        .write(gix::index::write::Options::default())
        .map_err(|error| failed(format!("write the index of {}", admin.dir.display()), error))
}
