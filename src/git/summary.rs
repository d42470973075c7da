//! What a branch holds beside its base, for people.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use gix::Repository;

use super::contract::{BranchSummary, CommitId, GitError};
use super::open::failed;
use super::{refs, trust};

/// More paths are not listed.
const PATHS: usize = 1000;

/// Counts commits, files and lines.
pub(super) fn summarize(repo: &Repository, base: &CommitId, head: &CommitId) -> Result<BranchSummary, GitError> {
    let comparing = |error| failed("compare two commits", error);
    let (base, head) = (refs::commit_of(repo, base)?, refs::commit_of(repo, head)?);
    let commits = refs::count(repo, base, head)?;
    // What the branch did, not what its base did meanwhile.
    let from = repo.merge_base(base, head).map_err(comparing)?.map_or(base, gix::Id::detach);
    let old = repo.find_commit(from).and_then(|commit| commit.tree()).map_err(comparing)?;
    let new = repo.find_commit(head).and_then(|commit| commit.tree()).map_err(comparing)?;
    let mut cache = repo.diff_resource_cache_for_tree_diff().map_err(comparing)?;
    let mut summary = BranchSummary { commits, ..BranchSummary::default() };
    let (mut paths, mut trusted) = (BTreeSet::new(), BTreeSet::new());
    let mut platform = old.changes().map_err(comparing)?;
    platform.options(|options| {
        options.track_path().track_rewrites(None);
    });
    platform
        .for_each_to_obtain_tree(&new, |change| {
            if change.entry_mode().is_tree() {
                return Ok(ControlFlow::Continue(()));
            }
            summary.files += 1;
            let path = change.location().to_string();
            if trust::runner(&path).is_some() {
                insert(&mut trusted, path.clone());
            }
            insert(&mut paths, path);
            // Binary files and submodules have no lines.
            if let Ok(Some(lines)) = change.diff(&mut cache).and_then(|mut diff| diff.line_counts()) {
                summary.insertions += u64::from(lines.insertions);
                summary.deletions += u64::from(lines.removals);
            }
            cache.clear_resource_cache_keep_allocation();
            Ok(ControlFlow::Continue(()))
        })
        .map_err(comparing)?;
    summary.paths = paths.into_iter().collect();
    summary.trusted = trusted.into_iter().collect();
    Ok(summary)
}

fn insert(paths: &mut BTreeSet<String>, path: String) {
    paths.insert(path);
    if paths.len() > PATHS {
        paths.pop_last();
    }
}
