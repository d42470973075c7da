//! Taking over what an attempt wrote into its private git directory.

use std::path::Path;

use gix::{ObjectId, Repository};

use super::admin::Head;
use super::contract::{GitError, ResultRequest};
use super::isolate::PRIVATE;
use super::jail::Jail;
use super::open::{GixRepository, io, refused};
use super::quarantine::Quarantine;
use super::{refs, verify};

/// A ref is one line.
const LINE_LIMIT: u64 = 4096;
/// As many refs as an agent may well have packed.
const PACKED_LIMIT: u64 = 16 * 1024 * 1024;
/// Up to so many new objects are made durable one by one; past it the whole file system is.
const SYNC_ONE_BY_ONE: usize = 64;

/// Where the agent's work ends; every commit named is in the repository, sound and whole.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// Its branch; `None` where it deleted it.
    pub(super) branch: Option<ObjectId>,
    /// Where HEAD was, if not on the branch, and how to call that place.
    pub(super) head: Option<(String, ObjectId)>,
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
    sync(repo, &sound)?;
    Ok(Imported { branch, head })
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
}

/// A ref in `packed-refs`: `<id> <name>` lines; peeled ones and comments name nothing.
fn packed(file: &[u8], full_ref: &str) -> Option<ObjectId> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        (&line[at + 1..] == full_ref.as_bytes()).then(|| ObjectId::from_hex(&line[..at]).ok()).flatten()
    })
}

/// Before a ref names them: gix leaves that to the file system.
fn sync(repo: &Repository, sound: &verify::Sound) -> Result<(), GitError> {
    let objects = repo.common_dir().join("objects");
    if sound.len() > SYNC_ONE_BY_ONE {
        let folder = std::fs::File::open(&objects).map_err(io("open", &objects))?;
        return rustix::fs::syncfs(&folder).map_err(|error| io("make durable", &objects)(error.into()));
    }
    for id in sound.ids() {
        let hex = id.to_hex().to_string();
        let (folder, name) = hex.split_at(2);
        let path = objects.join(folder).join(name);
        match std::fs::File::open(&path) {
            Ok(file) => file.sync_all().map_err(io("make durable", &path))?,
            // It was there before, in a pack.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("open", &path)(error)),
        }
    }
    Ok(())
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
