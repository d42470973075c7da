//! Merging heads in memory, as `git merge-octopus` folds them.

use std::collections::BTreeSet;

use gix::merge::tree::TreatAsUnresolved;
use gix::objs::{Find, FindHeader as _, TreeRefIter, Write as _};
use gix::{ObjectId, Repository};

use super::contract::{CommitId, GitError, MergeHead, MergeOutcome, Merged};
use super::identity;
use super::open::{commit_id, failed};
use super::refs;

/// What folding gave.
enum Folded {
    Tree(ObjectId),
    /// Paths in conflict, and the place of the head that could not be added. No paths: unrelated histories.
    Conflict(Vec<String>, usize),
}

/// Merges heads and stores the result where there is one.
pub(super) fn merge(repo: &Repository, heads: &[MergeHead]) -> Result<MergeOutcome, GitError> {
    let mut commits: Vec<(ObjectId, &MergeHead)> = Vec::new();
    for head in heads {
        let id = refs::commit_of(repo, &head.commit)?;
        if commits.iter().all(|(known, _)| *known != id) {
            commits.push((id, head));
        }
    }
    let independent = independent(repo, &commits)?;
    match independent.as_slice() {
        [] => Err(GitError::UnknownRevision("no heads to merge".to_owned())),
        [(id, _)] => Ok(MergeOutcome::Commit(commit_id(id))),
        several => {
            let memory = repo.clone().with_object_memory();
            let ids: Vec<_> = several.iter().map(|(id, _)| *id).collect();
            match fold(&memory, &ids)? {
                Folded::Conflict(paths, at) => Ok(MergeOutcome::Conflict {
                    paths,
                    task: several[at].1.task.clone(),
                    with: several[..at].iter().map(|(_, head)| head.task.clone()).collect(),
                }),
                Folded::Tree(tree) => {
                    store_tree(repo, &memory, tree)?;
                    store_commit(repo, tree, several).map(MergeOutcome::Commit)
                }
            }
        }
    }
}

/// Paths in conflict if `head` were merged into `target`.
pub(super) fn conflicts(repo: &Repository, target: &CommitId, head: &CommitId) -> Result<Vec<String>, GitError> {
    let (target_id, head_id) = (refs::commit_of(repo, target)?, refs::commit_of(repo, head)?);
    if refs::contains(repo, target_id, head_id)? || refs::contains(repo, head_id, target_id)? {
        return Ok(Vec::new());
    }
    match fold(&repo.clone().with_object_memory(), &[target_id, head_id])? {
        Folded::Tree(_) => Ok(Vec::new()),
        Folded::Conflict(paths, _) if paths.is_empty() => Err(GitError::Unrelated(target.clone(), head.clone())),
        Folded::Conflict(paths, _) => Ok(paths),
    }
}

/// Whether a head's work is in `target`: its commits, or all that merging it would change.
pub(super) fn merged(repo: &Repository, target: &CommitId, head: &CommitId) -> Result<Merged, GitError> {
    let (target_id, head_id) = (refs::commit_of(repo, target)?, refs::commit_of(repo, head)?);
    if refs::contains(repo, target_id, head_id)? {
        return Ok(Merged::Commits);
    }
    let memory = repo.clone().with_object_memory();
    Ok(match fold(&memory, &[target_id, head_id])? {
        Folded::Tree(tree) if tree == tree_of(&memory, target_id)? => Merged::Content,
        Folded::Tree(_) | Folded::Conflict(..) => Merged::No,
    })
}

/// Heads that no other head contains, in the given order.
fn independent<'a>(
    repo: &Repository,
    commits: &[(ObjectId, &'a MergeHead)],
) -> Result<Vec<(ObjectId, &'a MergeHead)>, GitError> {
    let mut left = Vec::new();
    for (at, (id, head)) in commits.iter().enumerate() {
        let mut contained = false;
        for (other_at, (other, _)) in commits.iter().enumerate() {
            contained = contained || (other_at != at && refs::contains(repo, *other, *id)?);
        }
        if !contained {
            left.push((*id, *head));
        }
    }
    Ok(left)
}

fn fold(memory: &Repository, heads: &[ObjectId]) -> Result<Folded, GitError> {
    let merging = |error| failed("merge", error);
    let mut tree = tree_of(memory, heads[0])?;
    for (at, head) in heads.iter().enumerate().skip(1) {
        let bases = memory.merge_bases_many(*head, &heads[..at]).map_err(merging)?;
        if bases.is_empty() {
            return Ok(Folded::Conflict(Vec::new(), at));
        }
        let options = memory.tree_merge_options().map_err(merging)?;
        // Criss-cross histories have several best bases; they are merged into one as `merge-ort` does.
        let base = memory.virtual_merge_base(bases, options.clone()).map_err(merging)?.tree_id.detach();
        let theirs = tree_of(memory, *head)?;
        let mut outcome = memory
            .merge_trees(base, tree, theirs, gix::merge::blob::builtin_driver::text::Labels::default(), options)
            .map_err(merging)?;
        let how = TreatAsUnresolved::git();
        if outcome.has_unresolved_conflicts(how) {
            let paths: BTreeSet<_> = outcome
                .conflicts
                .iter()
                .filter(|conflict| conflict.is_unresolved(how))
                .map(|conflict| conflict.ours.location().to_string())
                .collect();
            return Ok(Folded::Conflict(paths.into_iter().collect(), at));
        }
        tree = outcome.tree.write().map_err(merging)?.detach();
    }
    Ok(Folded::Tree(tree))
}

fn tree_of(repo: &Repository, commit: ObjectId) -> Result<ObjectId, GitError> {
    let commit = repo.find_commit(commit).map_err(|error| failed(format!("read {commit}"), error))?;
    Ok(commit.tree_id().map_err(|error| failed("read a commit", error))?.detach())
}

/// Stores what the merge made in memory and the result reaches, children first, so that nothing stored lacks a part.
fn store_tree(repo: &Repository, memory: &Repository, id: ObjectId) -> Result<(), GitError> {
    let storing = |error| failed("store a merge", error);
    let known = |id: ObjectId| repo.objects.try_header(&id).map(|header| header.is_some()).map_err(storing);
    // (tree, expanded): depth first without recursion.
    let mut open = vec![(id, false)];
    let mut buffer = Vec::new();
    while let Some((id, expanded)) = open.pop() {
        if known(id)? {
            continue;
        }
        let Some(object) = memory.objects.try_find(&id, &mut buffer).map_err(storing)? else {
            return Err(GitError::UnknownRevision(id.to_string()));
        };
        let kind = object.kind;
        if kind == gix::object::Kind::Tree && !expanded {
            open.push((id, true));
            for entry in TreeRefIter::from_bytes(object.data, id.kind()) {
                let entry = entry.map_err(|error| failed("store a merge", error))?;
                if !entry.mode.is_commit() {
                    open.push((entry.oid.to_owned(), false));
                }
            }
            continue;
        }
        repo.objects.write_buf(kind, object.data).map_err(storing)?;
    }
    Ok(())
}

/// The same heads give the same commit wherever and whenever it is made: its date is the newest input's.
fn store_commit(repo: &Repository, tree: ObjectId, heads: &[(ObjectId, &MergeHead)]) -> Result<CommitId, GitError> {
    let mut newest = i64::MIN;
    for (id, _) in heads {
        let commit = repo.find_commit(*id).map_err(|error| failed(format!("read {id}"), error))?;
        newest = newest.max(commit.time().map_err(|error| failed("read a commit", error))?.seconds);
    }
    let time = identity::at(newest);
    let signature = identity::signature(&time);
    let names: Vec<_> = heads.iter().map(|(_, head)| head.task.as_str()).collect();
    let message = match names.split_last() {
        Some((last, rest)) => format!("Merge {} and {last}\n", rest.join(", ")),
        None => String::new(),
    };
    let commit = repo
        .new_commit_as(signature, signature, message, tree, heads.iter().map(|(id, _)| *id))
        .map_err(|error| failed("store a merge", error))?;
    Ok(commit_id(commit.id))
}
