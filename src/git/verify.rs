//! Judging the objects of an attempt as a server judges a push: each one strictly, and that none is missing.

use std::collections::HashSet;

use gix::bstr::{BStr, ByteSlice};
use gix::objs::tree::{EntryMode, EntryRef};
use gix::objs::{CommitRef, TreeRefIter};
use gix::{ObjectId, Repository};

use super::contract::GitError;
use super::open::{failed, refused};
use super::quarantine::Quarantine;
use super::refs;

/// What is new and sound.
#[derive(Debug, Default)]
pub(super) struct Sound {
    /// Blobs and trees, in the order in which they were met.
    contents: Vec<ObjectId>,
    /// Commits, in the order in which they were met.
    commits: Vec<ObjectId>,
}

/// Walks from the tips to what the repository has already.
pub(super) fn verify(
    repo: &Repository,
    new: &Quarantine,
    tips: &[ObjectId],
    known: &[ObjectId],
) -> Result<Sound, GitError> {
    let mut walk = Walk {
        repo,
        new,
        known,
        seen: HashSet::new(),
        seen_trees: HashSet::new(),
        noted: HashSet::new(),
        sound: Sound::default(),
    };
    let mut open = tips.to_vec();
    while let Some(id) = open.pop() {
        if walk.seen.insert(id) {
            open.extend(walk.commit(id)?);
        }
    }
    Ok(walk.sound)
}

impl Sound {
    /// Stores all of it, parts before what they are part of.
    pub(super) fn store(&self, repo: &Repository, new: &Quarantine) -> Result<(), GitError> {
        for id in self.contents.iter().rev().chain(self.commits.iter().rev()) {
            let Some((kind, bytes)) = new.find(*id)? else { continue };
            let stored = gix::objs::Write::write_buf(&repo.objects, kind, &bytes)
                .map_err(|error| failed(format!("store {id}"), error))?;
            if stored != *id {
                return Err(refused(format!("object {id} holds what {stored} should hold")));
            }
        }
        Ok(())
    }

    /// Whether a commit is the agent's and not among these.
    pub(super) fn lacks(&self, new: &Quarantine, id: ObjectId) -> bool {
        !self.commits.contains(&id) && matches!(new.find(id), Ok(Some((gix::object::Kind::Commit, _))))
    }

    /// Their ids.
    pub(super) fn ids(&self) -> Vec<ObjectId> {
        self.contents.iter().chain(&self.commits).copied().collect()
    }
}

struct Walk<'a> {
    repo: &'a Repository,
    new: &'a Quarantine,
    known: &'a [ObjectId],
    seen: HashSet<ObjectId>,
    /// Trees with what they were judged against: a gitlink may stay where it was, and only there.
    seen_trees: HashSet<(ObjectId, Option<ObjectId>)>,
    noted: HashSet<ObjectId>,
    sound: Sound,
}

impl Walk<'_> {
    /// Judges a commit and its tree, and gives its parents.
    fn commit(&mut self, id: ObjectId) -> Result<Vec<ObjectId>, GitError> {
        let Some((kind, bytes)) = self.new.find(id)? else {
            return if self.is_reachable(id)? {
                Ok(Vec::new())
            } else {
                Err(refused(format!("commit {id} is missing, or no ref of the repository has it")))
            };
        };
        let bad = |why: &str| refused(format!("commit {id} is malformed: {why}"));
        if kind != gix::object::Kind::Commit {
            return Err(bad("it is no commit"));
        }
        let commit = CommitRef::from_bytes(&bytes, id.kind()).map_err(|error| bad(&error.to_string()))?;
        let header_end = bytes.find(b"\n\n").unwrap_or(bytes.len());
        if bytes[..header_end].contains(&0) {
            return Err(bad("a NUL in its header"));
        }
        for actor in [commit.author, commit.committer] {
            if !is_sound_actor(actor) {
                return Err(bad("an author or committer that git would not write"));
            }
        }
        let parents: Vec<_> = commit.parents().collect();
        let reference = match parents.first() {
            Some(parent) => self.tree_of(*parent)?,
            None => None,
        };
        self.sound.commits.push(id);
        self.tree(commit.tree(), reference, true)?;
        Ok(parents)
    }

    /// Whether a commit that the agent did not write is one that the repository will keep.
    fn is_reachable(&self, id: ObjectId) -> Result<bool, GitError> {
        let is_commit = self.repo.try_find_header(id).ok().flatten().is_some_and(|header| header.kind().is_commit());
        if !is_commit {
            return Ok(false);
        }
        for tip in self.known {
            if refs::contains(self.repo, *tip, id)? {
                return Ok(true);
            }
        }
        refs::is_reachable(self.repo, id, None)
    }

    fn tree_of(&self, commit: ObjectId) -> Result<Option<ObjectId>, GitError> {
        let bytes = match self.new.find(commit)? {
            Some((gix::object::Kind::Commit, bytes)) => bytes,
            Some(_) => return Ok(None),
            None => match self.repo.try_find_object(commit) {
                Ok(Some(object)) if object.kind.is_commit() => object.detach().data,
                _ => return Ok(None),
            },
        };
        Ok(CommitRef::from_bytes(&bytes, commit.kind()).ok().map(|commit| commit.tree()))
    }

    /// Judges a tree and what is below, but for what stood at the same place in the first parent. Without recursion: an
    /// agent can nest deeper than a stack.
    fn tree(&mut self, id: ObjectId, reference: Option<ObjectId>, at_root: bool) -> Result<(), GitError> {
        let mut open = vec![(id, reference, at_root)];
        while let Some((id, reference, at_root)) = open.pop() {
            if Some(id) == reference || !self.seen_trees.insert((id, reference)) {
                continue;
            }
            let bytes = self.content(id, gix::object::Kind::Tree)?;
            let before = match reference {
                Some(reference) => self.content(reference, gix::object::Kind::Tree).ok(),
                None => None,
            };
            let mut previous: Option<EntryRef<'_>> = None;
            for entry in TreeRefIter::from_bytes(&bytes, id.kind()) {
                let entry = entry.map_err(|error| refused(format!("tree {id} is malformed: {error}")))?;
                if previous.is_some_and(|previous| previous >= entry) {
                    return Err(refused(format!("tree {id} is not sorted")));
                }
                previous = Some(entry);
                let was = before.as_deref().and_then(|bytes| entry_named(bytes, entry.filename, id.kind()));
                if was.is_some_and(|(mode, oid)| mode == entry.mode && oid == entry.oid) {
                    continue;
                }
                judge(&entry, was.map(|(mode, _)| mode))?;
                if entry.mode.is_tree() {
                    let reference = was.filter(|(mode, _)| mode.is_tree()).map(|(_, oid)| oid);
                    open.push((entry.oid.to_owned(), reference, false));
                } else if !entry.mode.is_commit() {
                    self.blob(entry.oid.to_owned(), at_root && entry.filename == ".gitmodules")
                        .map_err(|error| about(entry.filename, error))?;
                }
            }
            judge_whole(&bytes, id)?;
        }
        Ok(())
    }

    fn blob(&mut self, id: ObjectId, is_modules: bool) -> Result<(), GitError> {
        if !self.seen.insert(id) && !is_modules {
            return Ok(());
        }
        if !is_modules && self.repo.try_find_header(id).ok().flatten().is_some_and(|header| header.kind().is_blob()) {
            return Ok(());
        }
        let bytes = self.content(id, gix::object::Kind::Blob)?;
        if is_modules { judge_modules(&bytes) } else { Ok(()) }
    }

    /// The content of an object, noted as new where the agent wrote it.
    fn content(&mut self, id: ObjectId, wanted: gix::object::Kind) -> Result<Vec<u8>, GitError> {
        let (kind, bytes) = match self.new.find(id)? {
            Some(found) => {
                if self.noted.insert(id) {
                    self.sound.contents.push(id);
                }
                found
            }
            None => match self.repo.try_find_object(id) {
                Ok(Some(object)) => (object.kind, object.detach().data),
                Ok(None) => return Err(refused(format!("object {id} is missing"))),
                Err(error) => return Err(failed(format!("read {id}"), error)),
            },
        };
        if kind == wanted { Ok(bytes) } else { Err(refused(format!("object {id} is no {wanted}"))) }
    }
}

/// Names the file that something is refused for; an object's id tells a person little.
fn about(name: &BStr, error: GitError) -> GitError {
    match error {
        GitError::Refused { reason, kept } if !reason.starts_with('`') => {
            GitError::Refused { reason: format!("`{name}`: {reason}"), kept }
        }
        other => other,
    }
}

/// What single entries do not show. A folder sorts behind a file of its name with something between, so neighbours do not
/// show all repeated names; a mode with leading zeros reads as the same mode.
fn judge_whole(bytes: &[u8], id: ObjectId) -> Result<(), GitError> {
    let mut names = HashSet::new();
    let mut length = 0;
    for entry in TreeRefIter::from_bytes(bytes, id.kind()).flatten() {
        if !names.insert(entry.filename) {
            return Err(refused(format!("tree {id} has `{}` twice", entry.filename)));
        }
        let mut mode = [0; 6];
        length += entry.mode.as_bytes(&mut mode).len() + entry.filename.len() + entry.oid.as_bytes().len() + 2;
    }
    if length == bytes.len() { Ok(()) } else { Err(refused(format!("tree {id} has modes that git would not write"))) }
}

fn entry_named(tree: &[u8], name: &BStr, hash: gix::hash::Kind) -> Option<(EntryMode, ObjectId)> {
    TreeRefIter::from_bytes(tree, hash)
        .flatten()
        .find(|entry| entry.filename == name)
        .map(|entry| (entry.mode, entry.oid.to_owned()))
}

/// Names and modes that git would take for its own, or that lead out of the tree.
fn judge(entry: &EntryRef<'_>, was: Option<EntryMode>) -> Result<(), GitError> {
    let name = entry.filename;
    let bad = |why: &str| refused(format!("`{name}`: {why}"));
    let options =
        gix::validate::path::component::Options { protect_windows: false, protect_hfs: true, protect_ntfs: true };
    let mode = entry.mode.is_link().then_some(gix::validate::path::component::Mode::Symlink);
    if let Err(error) = gix::validate::path::component(name, mode, options) {
        return Err(bad(&error.to_string().to_lowercase()));
    }
    if ![0o040_000, 0o100_644, 0o100_755, 0o120_000, 0o160_000].contains(&entry.mode.value()) {
        return Err(bad("a mode that git would not write"));
    }
    if name.contains(&b'/') {
        return Err(bad("a slash in a name"));
    }
    if entry.mode.is_link()
        && [".gitattributes", ".gitignore", ".mailmap"].iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
    {
        return Err(bad("a link where git expects a file of its own"));
    }
    if entry.mode.is_commit() && !was.is_some_and(|was| was.is_commit()) {
        return Err(bad("a new gitlink; nested repositories are not taken"));
    }
    Ok(())
}

/// What a submodule's settings may not say: git ran them as options or commands once.
fn judge_modules(bytes: &[u8]) -> Result<(), GitError> {
    let bad = |why: &str| refused(format!("`.gitmodules`: {why}"));
    let config = gix::config::File::try_from(bytes.to_str().map_err(|_| bad("not text"))?)
        .map_err(|_| bad("not what git can read"))?;
    for section in config.sections_by_name("submodule").into_iter().flatten() {
        if section
            .header()
            .subsection_name()
            .is_some_and(|name| name.split(|byte| *byte == b'/').any(|part| part == b".."))
        {
            return Err(bad("a name that leads out"));
        }
        for key in ["path", "url"] {
            if section.value(key).is_some_and(|value| value.trim().first() == Some(&b'-')) {
                return Err(bad("a value that would be an option"));
            }
        }
        if section.value("update").is_some_and(|value| value.trim().first() == Some(&b'!')) {
            return Err(bad("a command"));
        }
    }
    Ok(())
}

/// `name <address> seconds zone`, as git itself writes it.
fn is_sound_actor(actor: &BStr) -> bool {
    let Some((name, rest)) = actor.split_once_str(b" <") else { return false };
    let Some((email, time)) = rest.split_once_str(b"> ") else { return false };
    let no_marks = |text: &[u8]| !text.iter().any(|byte| matches!(byte, b'<' | b'>' | b'\n' | 0));
    let Some((seconds, zone)) = time.split_once_str(b" ") else { return false };
    no_marks(name)
        && no_marks(email)
        && (1..=19).contains(&seconds.len())
        && seconds.iter().all(u8::is_ascii_digit)
        && (seconds.len() == 1 || seconds[0] != b'0')
        && zone.len() == 5
        && matches!(zone[0], b'+' | b'-')
        && zone[1..].iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_are_as_git_writes_them() {
        for good in ["A B <a@b> 0 +0000", "A <> 1700000000 -0130", " <a@b> 12 +0000"] {
            assert!(is_sound_actor(good.into()), "{good}");
        }
        for bad in [
            "A a@b 1 +0000",
            "A <a@b>1 +0000",
            "A <a<b> 1 +0000",
            "A <a@b> -1 +0000",
            "A <a@b> 1 0000",
            "A <a@b> 01 +0000",
            "A <a@b> 99999999999999999999 +0000",
        ] {
            assert!(!is_sound_actor(bad.into()), "{bad}");
        }
    }

    #[test]
    fn modules_may_not_hold_options_or_commands() {
        let with =
            |line: &str| judge_modules(format!("[submodule \"a\"]\n\tpath = a\n\turl = ../a\n{line}\n").as_bytes());
        assert!(with("").is_ok());
        assert!(with("update = rebase").is_ok());
        for bad in ["url = -u./x", "path = --x", "update = !touch x"] {
            assert!(with(bad).is_err(), "{bad}");
        }
        assert!(judge_modules(b"[submodule \"../a\"]\n").is_err());
        assert!(judge_modules(b"[submodule\n").is_err());
    }
}
