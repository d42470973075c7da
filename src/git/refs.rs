//! Reading and moving refs: direct ones only, by compare-and-swap, with a reflog.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gix::refs::transaction::{Change, LogChange, PreviousValue, RefEdit, RefLog};
use gix::refs::{FullName, Target};

use super::contract::{CommitId, GitError};
use super::open::{commit_id, failed, io, object_id};
use super::{admin, identity};

/// Nobody holds a ref's lock for so long.
const STALE_LOCK: Duration = Duration::from_secs(2);

/// What a ref name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RefValue {
    /// No such ref.
    Absent,
    /// A commit, or something else that has an id.
    Direct(gix::ObjectId),
    /// Another ref: never one of ours.
    Symbolic(String),
}

/// Reads a ref by its full name.
pub(super) fn read(repo: &gix::Repository, full_ref: &str) -> Result<RefValue, GitError> {
    let name = full_name(full_ref)?;
    let found = repo.refs.try_find(name.as_ref()).map_err(|error| failed(format!("read `{full_ref}`"), error))?;
    Ok(match found.map(|found| found.target) {
        None => RefValue::Absent,
        Some(Target::Object(id)) => RefValue::Direct(id),
        Some(Target::Symbolic(name)) => RefValue::Symbolic(name.as_bstr().to_string()),
    })
}

/// The commit that a ref of ours names. One that was made symbolic would let a write reach another branch.
pub(super) fn read_direct(repo: &gix::Repository, full_ref: &str) -> Result<Option<gix::ObjectId>, GitError> {
    match read(repo, full_ref)? {
        RefValue::Absent => Ok(None),
        RefValue::Direct(id) => Ok(Some(id)),
        RefValue::Symbolic(target) => {
            Err(GitError::Refused { reason: format!("`{full_ref}` was made a symbolic ref to `{target}`"), kept: None })
        }
    }
}

/// Moves a ref from what it was seen to be to `new`, durably. Whoever moved it meanwhile wins.
pub(super) fn write(
    repo: &gix::Repository,
    full_ref: &str,
    expected: Option<gix::ObjectId>,
    new: gix::ObjectId,
    why: &str,
) -> Result<(), GitError> {
    write_soon(repo, full_ref, expected, new, why)?;
    sync(repo, full_ref)
}

/// Neither git nor gix makes a loose ref durable before others rely on it. One that was packed meanwhile is.
pub(super) fn sync(repo: &gix::Repository, full_ref: &str) -> Result<(), GitError> {
    admin::sync(&repo.common_dir().join(full_ref))
}

/// The same, durable whenever the file system likes: for several in a row, synced together.
pub(super) fn write_soon(
    repo: &gix::Repository,
    full_ref: &str,
    expected: Option<gix::ObjectId>,
    new: gix::ObjectId,
    why: &str,
) -> Result<(), GitError> {
    let previous = match expected {
        Some(old) => PreviousValue::MustExistAndMatch(Target::Object(old)),
        // Where the ref exists with the very same target this succeeds as well; that is as good as having made it.
        None => PreviousValue::MustNotExist,
    };
    let edit = RefEdit {
        name: full_name(full_ref)?,
        deref: false,
        change: Change::Update {
            log: LogChange { mode: RefLog::AndReference, force_create_reflog: false, message: why.into() },
            expected: previous,
            new: Target::Object(new),
        },
    };
    let time = identity::now_as_git();
    let path = repo.common_dir().join(full_ref);
    if repo.edit_references_as([edit.clone()], Some(identity::signature(&time))).is_err() {
        // Perhaps one of us was killed while it held the lock.
        clear_stale_lock(repo.common_dir(), &path)?;
        repo.edit_references_as([edit], Some(identity::signature(&time)))
            .map_err(|error| failed(format!("move `{full_ref}`"), error))?;
    }
    Ok(())
}

/// Points a ref of ours at a commit, whatever it was, and tells whether it was elsewhere.
pub(super) fn ensure(repo: &gix::Repository, full_ref: &str, new: gix::ObjectId, why: &str) -> Result<bool, GitError> {
    match read_direct(repo, full_ref)? {
        Some(old) if old == new => Ok(false),
        old => write_soon(repo, full_ref, old, new, why).map(|()| true),
    }
}

/// Removes a ref that stands at a commit.
pub(super) fn delete(repo: &gix::Repository, full_ref: &str, old: gix::ObjectId) -> Result<(), GitError> {
    let expected = PreviousValue::MustExistAndMatch(Target::Object(old));
    let change = Change::Delete { expected, log: RefLog::AndReference };
    let edit = RefEdit { name: full_name(full_ref)?, deref: false, change };
    let time = identity::now_as_git();
    repo.edit_references_as([edit], Some(identity::signature(&time)))
        .map(drop)
        .map_err(|error| failed(format!("remove `{full_ref}`"), error))
}

/// Keeps a commit under a ref; a second and third one under a numbered name beside it, so that none pushes out another.
pub(super) fn keep(repo: &gix::Repository, kept_ref: &str, id: gix::ObjectId, why: &str) -> Result<String, GitError> {
    for number in 1_u32.. {
        let name = if number == 1 { kept_ref.to_owned() } else { format!("{kept_ref}-{number}") };
        match read_direct(repo, &name)? {
            Some(old) if old == id => return Ok(name),
            Some(_) => {}
            None => {
                write(repo, &name, None, id, why)?;
                return Ok(name);
            }
        }
    }
    Err(GitError::Unsupported(format!("`{kept_ref}` has too many siblings")))
}

/// Every local branch and ref of ours is a commit that exists; anything else names nothing.
pub(super) fn commit_of(repo: &gix::Repository, commit: &CommitId) -> Result<gix::ObjectId, GitError> {
    let id = object_id(commit)?;
    match repo.try_find_header(id) {
        Ok(Some(header)) if header.kind() == gix::object::Kind::Commit => Ok(id),
        Ok(_) => Err(GitError::UnknownRevision(commit.0.clone())),
        Err(error) => Err(failed(format!("read {commit}"), error)),
    }
}

/// Whether `descendant` contains `ancestor`.
pub(super) fn contains(
    repo: &gix::Repository,
    descendant: gix::ObjectId,
    ancestor: gix::ObjectId,
) -> Result<bool, GitError> {
    if descendant == ancestor {
        return Ok(true);
    }
    let base = repo.merge_base(descendant, ancestor).map_err(|error| failed("compare two histories", error))?;
    Ok(base.is_some_and(|base| base == ancestor))
}

/// Whether a branch, tag or ref of ours, other than `but`, contains a commit.
pub(super) fn is_reachable(repo: &gix::Repository, id: gix::ObjectId, but: Option<&str>) -> Result<bool, GitError> {
    let listing = |error| failed("list refs", error);
    let platform = repo.references().map_err(listing)?;
    let mut tips = BTreeSet::new();
    for reference in platform.all().map_err(listing)? {
        let Ok(reference) = reference else { continue };
        if but.is_some_and(|but| reference.name().as_bstr() == but) {
            continue;
        }
        if let Some(tip) = reference.try_id()
            && (tips.contains(&tip.detach())
                || tip.header().is_ok_and(|header| header.kind() == gix::object::Kind::Commit))
        {
            tips.insert(tip.detach());
        }
    }
    // One walk for all of them: some repositories have tens of thousands.
    if tips.contains(&id) {
        return Ok(true);
    }
    let walking = |error| failed("walk the history", error);
    let mut walk = repo.rev_walk([id]).with_hidden(tips).all().map_err(walking)?;
    Ok(walk.next().transpose().map_err(walking)?.is_none_or(|first| first.id != id))
}

/// Direct refs below a prefix that name a commit.
pub(super) fn below(repo: &gix::Repository, prefix: &str) -> Result<Vec<(String, CommitId)>, GitError> {
    let listing = |error| failed("list refs", error);
    let platform = repo.references().map_err(listing)?;
    let mut found = Vec::new();
    for reference in platform.prefixed(prefix).map_err(listing)? {
        let Ok(reference) = reference else { continue };
        if let Some(tip) = reference.try_id()
            && tip.header().is_ok_and(|header| header.kind() == gix::object::Kind::Commit)
        {
            found.push((reference.name().as_bstr().to_string(), commit_id(tip)));
        }
    }
    found.sort();
    Ok(found)
}

/// Number of commits that `head` has and `base` has not.
pub(super) fn count(repo: &gix::Repository, base: gix::ObjectId, head: gix::ObjectId) -> Result<u64, GitError> {
    let walk = repo.rev_walk([head]).with_hidden([base]).all().map_err(|error| failed("walk the history", error))?;
    let mut commits = 0;
    for commit in walk {
        commit.map_err(|error| failed("walk the history", error))?;
        commits += 1;
    }
    Ok(commits)
}

/// The branch's short name, for people.
pub(super) fn short(full_ref: &str) -> String {
    full_ref.strip_prefix("refs/heads/").unwrap_or(full_ref).to_owned()
}

/// The tip that the contract tells of.
pub(super) fn tip(repo: &gix::Repository, full_ref: &str) -> Result<Option<CommitId>, GitError> {
    Ok(read_direct(repo, full_ref)?.map(commit_id))
}

fn full_name(full_ref: &str) -> Result<FullName, GitError> {
    FullName::try_from(full_ref).map_err(|_| GitError::UnknownRevision(full_ref.to_owned()))
}

/// Removes a ref's lock that nobody can still hold: git holds one for milliseconds. Ages are told by the file system's own
/// clock.
fn clear_stale_lock(common_dir: &Path, path: &Path) -> Result<(), GitError> {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    let lock = Path::new(&lock);
    let Ok(made) = lock.symlink_metadata().and_then(|meta| meta.modified()) else { return Ok(()) };
    let folder = common_dir.join("orchestrate").join("tmp");
    std::fs::create_dir_all(&folder).map_err(io("make", &folder))?;
    let probe = folder.join("clock");
    std::fs::write(&probe, b"").map_err(io("write", &probe))?;
    let now = probe.metadata().and_then(|meta| meta.modified()).map_err(io("look at", &probe))?;
    if now.duration_since(made).is_ok_and(|age| age > STALE_LOCK) { admin::remove_file(lock) } else { Ok(()) }
}
