//! Taking over what an attempt wrote into its private git directory.

use std::collections::BTreeMap;
use std::path::Path;

use gix::bstr::ByteSlice;
use gix::{ObjectId, Repository};

use super::admin::Head;
use super::contract::{GitError, ResultRequest};
use super::isolate::PRIVATE;
use super::jail::Jail;
use super::open::{GixRepository, io, refused};
use super::quarantine::Quarantine;
use super::{durable, refs, verify};

/// A ref is one line.
const LINE_LIMIT: u64 = 4096;
/// As many refs as an agent may well have packed.
const PACKED_LIMIT: u64 = 16 * 1024 * 1024;
/// More refs of an agent are not looked at to tell of them.
const REFS: usize = 1000;

/// Where the agent's work ends; every commit named is in the repository, sound and whole.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// Its branch; `None` where it deleted it.
    pub(super) branch: Option<ObjectId>,
    /// Where HEAD was, if not on the branch, and how to call that place.
    pub(super) head: Option<(String, ObjectId)>,
    /// Refs of the agent's with commits that are not taken: they stay in its private git directory.
    pub(super) left: Vec<String>,
}

/// Reads the refs, judges all new objects they reach and stores these. Moves no ref. May be repeated.
pub(super) fn import(
    git: &GixRepository,
    repo: &Repository,
    request: &ResultRequest,
    attempt_dir: &Path,
    known: &[ObjectId],
) -> Result<Imported, GitError> {
    let path = attempt_dir.join(PRIVATE);
    let reading = |error| io("read", &path)(error);
    let Some(jail) = Jail::open(&path).map_err(reading)? else {
        return Err(refused("its private git directory is gone".to_owned()));
    };
    let packed = jail.read("packed-refs", PACKED_LIMIT).map_err(reading)?.unwrap_or_default();
    let refs = PrivateRefs { jail: &jail, packed: &packed, path: &path };
    let branch = refs.read(&request.branch)?;
    let head = match jail.read("HEAD", LINE_LIMIT).map_err(reading)?.as_deref().and_then(Head::parse) {
        Some(Head::Branch(name)) if name == request.branch => None,
        Some(Head::Branch(name)) => refs.read(&name)?.map(|id| (refs::short(&name), id)),
        Some(Head::Detached(id)) => Some(("a detached HEAD".to_owned(), id)),
        None => None,
    };
    let tips: Vec<_> = branch.iter().chain(head.iter().map(|(_, id)| id)).copied().collect();
    if let Some(other) = tips.iter().find(|id| id.kind() != repo.object_hash()) {
        return Err(refused(format!("{other} is an id of another kind than the repository's")));
    }
    let name = request.path.file_name().unwrap_or_default();
    let quarantine_dir = git.layout.common_dir.join("orchestrate").join("tmp").join("import").join(name);
    let quarantine = Quarantine::open(&jail, quarantine_dir, repo.object_hash())?;
    let sound = verify::verify(repo, &quarantine, &tips, known)?;
    sound.store(repo, &quarantine)?;
    durable::sync(repo, &sound.ids())?;
    let left = refs.all()?.into_iter().filter(|(_, id)| sound.lacks(&quarantine, *id)).map(|(name, _)| name).collect();
    Ok(Imported { branch, head, left })
}

struct PrivateRefs<'a> {
    jail: &'a Jail,
    packed: &'a [u8],
    path: &'a Path,
}

impl PrivateRefs<'_> {
    /// The id that a ref holds. A symbolic one is refused: it is no branch of the agent's.
    fn read(&self, full_ref: &str) -> Result<Option<ObjectId>, GitError> {
        let is_branch = full_ref.starts_with("refs/heads/") && gix::refs::FullName::try_from(full_ref).is_ok();
        if !is_branch {
            return Ok(None);
        }
        if let Some(line) = self.jail.read(full_ref, LINE_LIMIT).map_err(io("read", self.path))? {
            return match Head::parse(&line) {
                Some(Head::Detached(id)) => Ok(Some(id)),
                Some(Head::Branch(target)) => {
                    Err(refused(format!("`{full_ref}` was made a symbolic ref to `{target}`")))
                }
                None => Err(refused(format!("`{full_ref}` holds no id"))),
            };
        }
        Ok(packed(self.packed, full_ref))
    }

    /// Branches and the stash, as many as are worth telling of.
    fn all(&self) -> Result<BTreeMap<String, ObjectId>, GitError> {
        let reading = |error| io("read", self.path)(error);
        let mut all = BTreeMap::new();
        for line in self.packed.split(|byte| *byte == b'\n').take(REFS) {
            if let Some((id, name)) = line.split_once_str(b" ")
                && name.starts_with(b"refs/heads/")
                && let (Ok(id), Ok(name)) = (ObjectId::from_hex(id), std::str::from_utf8(name))
            {
                all.insert(name.to_owned(), id);
            }
        }
        let mut open = vec!["refs/heads".to_owned(), "refs/stash".to_owned()];
        let mut looked_at = 0;
        while let Some(name) = open.pop().filter(|_| looked_at < REFS) {
            looked_at += 1;
            if let Some(folder) = self.jail.enter(&name).map_err(reading)? {
                let entries = folder.list(REFS).map_err(reading)?;
                open.extend(entries.iter().filter_map(|(part, _)| Some(format!("{name}/{}", part.to_str()?))));
            } else if let Some(line) = self.jail.read(&name, LINE_LIMIT).map_err(reading)?
                && let Some(Head::Detached(id)) = Head::parse(&line)
            {
                all.insert(name, id);
            }
        }
        Ok(all)
    }
}

/// A ref in `packed-refs`: `<id> <name>` lines; peeled ones and comments name nothing.
fn packed(file: &[u8], full_ref: &str) -> Option<ObjectId> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        (&line[at + 1..] == full_ref.as_bytes()).then(|| ObjectId::from_hex(&line[..at]).ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_refs_are_found_by_their_whole_name() {
        let id = "0123456789012345678901234567890123456789";
        let file =
            format!("# pack-refs with: peeled\n{id} refs/heads/agent/ab\n^{id}\n{id} refs/tags/v 1\nx refs/heads/b\n");
        assert!(packed(file.as_bytes(), "refs/heads/agent/ab").is_some());
        for none in ["refs/heads/agent/a", "refs/heads/b", "agent/ab"] {
            assert!(packed(file.as_bytes(), none).is_none(), "{none}");
        }
    }
}
