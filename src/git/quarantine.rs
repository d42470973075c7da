//! Objects that an agent wrote, brought to a place of ours within bounds before anything looks into them.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::objs::Find as _;
use gix_pack::data::entry::Header;

use super::admin;
use super::contract::GitError;
use super::jail::Jail;
use super::open::{failed, io, refused};

/// No object may be larger when inflated.
pub(super) const OBJECT_LIMIT: u64 = 256 * 1024 * 1024;
/// Nor all that is looked at together; what is taken is looked at twice.
const TOTAL_LIMIT: u64 = 8 * 1024 * 1024 * 1024;
/// Nor one pack as it is on disk.
const PACK_LIMIT: u64 = 1024 * 1024 * 1024;
/// More packs than a person's git makes before it joins them.
const PACKS: usize = 200;
const ENTRIES: u32 = 5_000_000;
/// What a person does about something too large.
const LARGE: &str =
    "leave files that large out of its commits (`.gitignore`, Git LFS or a mount), then `orchestrate retry` the task";

/// The private objects of an attempt.
pub(super) struct Quarantine {
    source: Option<Jail>,
    dir: PathBuf,
    objects: gix::odb::Handle,
    hash: gix::hash::Kind,
    left: Cell<u64>,
}

impl Quarantine {
    /// Takes the packs over and makes indexes of our own for them; loose objects come when they are asked for.
    pub(super) fn open(private: &Jail, dir: PathBuf, hash: gix::hash::Kind) -> Result<Self, GitError> {
        admin::remove_tree(&dir)?;
        let packs = dir.join("pack");
        std::fs::create_dir_all(&packs).map_err(io("make", &packs))?;
        let options = gix::odb::store::init::Options {
            alloc_limit_bytes: usize::try_from(OBJECT_LIMIT).ok(),
            use_multi_pack_index: false,
            ..gix::odb::store::init::Options::default()
        };
        let mut objects = gix::odb::at_opts(&dir, hash, None, options).map_err(io("open", &dir))?;
        // Nobody else adds packs; a miss, which is the usual answer, should not look for them.
        objects.refresh_never();
        let source = private.enter("objects").map_err(io("open the objects for", &dir))?;
        let this = Self { source, dir, objects, hash, left: Cell::new(TOTAL_LIMIT) };
        this.take_packs(&packs)?;
        Ok(this)
    }

    /// An object that the agent wrote, whose content gives the id that it is named by; `None` where it wrote none.
    pub(super) fn find(&self, id: ObjectId) -> Result<Option<(gix::object::Kind, Vec<u8>)>, GitError> {
        self.take_loose(id)?;
        let mut buffer = Vec::new();
        let found =
            self.objects.try_find(&id, &mut buffer).map_err(|error| unreadable(&format!("object {id}"), &error))?;
        let Some(kind) = found.map(|data| data.kind) else { return Ok(None) };
        self.spend(buffer.len() as u64)?;
        let real =
            gix::objs::compute_hash(self.hash, kind, &buffer).map_err(|error| failed("hash an object", error))?;
        if real != id {
            return Err(refused(format!("object {id} holds what {real} should hold")));
        }
        Ok(Some((kind, buffer)))
    }

    fn spend(&self, bytes: u64) -> Result<(), GitError> {
        if bytes > OBJECT_LIMIT {
            return Err(refused(format!(
                "an object has {} MiB, and no more than {} MiB are taken; {LARGE}",
                bytes.div_ceil(1 << 20),
                OBJECT_LIMIT >> 20
            )));
        }
        let limit = TOTAL_LIMIT >> 30;
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            refused(format!("its objects have more than {limit} GiB together, the most that is taken; {LARGE}"))
        })?;
        self.left.set(left);
        Ok(())
    }

    fn take_loose(&self, id: ObjectId) -> Result<(), GitError> {
        let hex = id.to_hex().to_string();
        let (folder, name) = hex.split_at(2);
        let target = self.dir.join(folder).join(name);
        if target.exists() {
            return Ok(());
        }
        let taking = |error| io("take over", &target)(error);
        let Some(source) = &self.source else { return Ok(()) };
        let Some(jail) = source.enter(folder).map_err(taking)? else { return Ok(()) };
        let Some(file) = jail.file(OsStr::new(name)).map_err(taking)? else { return Ok(()) };
        std::fs::create_dir_all(self.dir.join(folder)).map_err(taking)?;
        copy(file, &target, OBJECT_LIMIT)?;
        // A file of a few bytes can claim gigabytes; told by its size here, and not as something that cannot be read.
        let header = gix::objs::FindHeader::try_header(&self.objects, &id)
            .map_err(|error| unreadable(&format!("object {id}"), &error))?;
        match header {
            Some(header) if header.size > OBJECT_LIMIT => self.spend(header.size),
            _ => Ok(()),
        }
    }

    fn take_packs(&self, packs: &Path) -> Result<(), GitError> {
        let listing = |error| io("list the packs for", packs)(error);
        let Some(source) = &self.source else { return Ok(()) };
        let Some(jail) = source.enter("pack").map_err(listing)? else { return Ok(()) };
        let names = jail.list(PACKS * 8).map_err(listing)?;
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).filter(|name| is_pack(name)).collect();
        if names.len() > PACKS {
            return Err(refused(format!("it left more than {PACKS} packs")));
        }
        for name in names {
            let Some(file) = jail.file(&name).map_err(listing)? else { continue };
            let target = self.dir.join("taken.pack");
            admin::remove_file(&target)?;
            copy(file, &target, PACK_LIMIT)?;
            self.measure(&target)?;
            let file = std::fs::File::open(&target).map_err(io("open", &target))?;
            let options = gix_pack::bundle::write::Options {
                alloc_limit_bytes: usize::try_from(OBJECT_LIMIT).ok(),
                ..gix_pack::bundle::write::Options::default()
            };
            gix_pack::Bundle::write_to_directory(
                &mut BufReader::new(file),
                Some(packs),
                &mut gix::progress::Discard,
                &AtomicBool::new(false),
                None::<gix::odb::Handle>,
                self.hash,
                options,
            )
            .map_err(|error| unreadable("a pack", &error))?;
            admin::remove_file(&target)?;
        }
        Ok(())
    }

    /// Adds up what a pack inflates to, deltas applied, before anything is allocated for it: a few bytes can claim to be
    /// gigabytes.
    fn measure(&self, pack: &Path) -> Result<(), GitError> {
        let bad = |error: gix::Error| unreadable("a pack", &error);
        let file = gix_pack::data::File::at(pack, self.hash).map_err(bad)?;
        if file.num_objects() > ENTRIES {
            return Err(refused(format!("a pack has more than {ENTRIES} objects")));
        }
        let mut inflate = gix::zlib::Inflate::default();
        let mut buffer = Vec::new();
        // Past the signature, the version and the count.
        let mut offset = 12;
        for _ in 0..file.num_objects() {
            let entry = file.entry(offset).map_err(bad)?;
            self.spend(entry.decompressed_size)?;
            let size = usize::try_from(entry.decompressed_size).unwrap_or(usize::MAX);
            buffer.resize(size, 0);
            let consumed = file.decompress_entry(&entry, &mut inflate, &mut buffer).map_err(bad)?;
            if matches!(entry.header, Header::OfsDelta { .. } | Header::RefDelta { .. }) {
                self.spend(delta_result_size(&buffer).unwrap_or(u64::MAX))?;
            }
            offset = entry.data_offset + consumed as u64;
        }
        Ok(())
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        // What stays is removed by the next one of this name.
        let _best_effort = std::fs::remove_dir_all(&self.dir);
    }
}

fn is_pack(name: &OsStr) -> bool {
    name.to_str()
        .and_then(|name| name.strip_prefix("pack-")?.strip_suffix(".pack"))
        .is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Refused with all that is known of why: the outermost error often says no more than what was tried.
fn unreadable(what: &str, error: &(dyn std::error::Error + 'static)) -> GitError {
    let mut text = format!("{what} cannot be read");
    let mut next = Some(error);
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    refused(text)
}

/// The second of the two sizes that a delta starts with.
fn delta_result_size(delta: &[u8]) -> Option<u64> {
    let mut bytes = delta.iter();
    let mut size = 0;
    for _ in 0..2 {
        size = 0;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.next()?;
            size |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    Some(size)
}

fn copy(from: std::fs::File, to: &Path, limit: u64) -> Result<(), GitError> {
    let mut target = std::fs::File::create_new(to).map_err(io("take over", to))?;
    let copied = std::io::copy(&mut from.take(limit + 1), &mut target).map_err(io("take over", to))?;
    if copied > limit {
        let limit = limit >> 20;
        return Err(refused(format!(
            "a file of its objects has more than {limit} MiB, the most that is taken; {LARGE}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_tells_its_result() {
        assert_eq!(delta_result_size(&[0x05, 0x07]), Some(7));
        assert_eq!(delta_result_size(&[0x85, 0x01, 0x80, 0x80, 0x80, 0x80, 0x04]), Some(1 << 30));
        assert_eq!(delta_result_size(&[0x85]), None);
    }

    #[test]
    fn what_cannot_be_read_is_told_down_to_its_cause() {
        #[derive(Debug, thiserror::Error)]
        #[error("find it")]
        struct Outer(#[source] std::io::Error);
        let error = unreadable("object 1", &Outer(std::io::Error::other("too large")));
        assert!(
            matches!(error, GitError::Refused { reason, .. } if reason == "object 1 cannot be read: find it: too large")
        );
    }

    #[test]
    fn only_packs_are_packs() {
        assert!(is_pack(OsStr::new("pack-0a1b.pack")));
        for name in ["pack-0a1b.idx", "pack-../x.pack", "x.pack", "pack-0a1b.pack.tmp", "tmp_pack_x"] {
            assert!(!is_pack(OsStr::new(name)), "{name}");
        }
    }
}
