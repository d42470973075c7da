//! What an agent leaves for people and for the tasks after it: `/run/orchestrate/result.md`, a file of ours that it may
//! fill.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::ActError;
use super::redact::Secrets;
use crate::observe::AttemptKey;

/// Its name, in the attempt's folder and in the container.
pub(super) const NAME: &str = "result.md";
/// How much of it is kept, in bytes.
const KEPT: usize = 64 << 10;
/// How much of it the journal has, for those who show it, in bytes.
const SHOWN: usize = 2 << 10;

/// Makes the empty file where it is missing, for `owner` to write.
pub(super) fn make(context: &Context, key: &AttemptKey, owner: Option<(u32, u32)>) -> Result<PathBuf, ActError> {
    let dir = context.attempt_dir(key);
    let path = dir.join(NAME);
    context.files.create_dir_all(&dir)?;
    if context.files.stamp(&path)?.is_none() {
        let temp = context.files.write_temp(&dir, "result.tmp-", b"", None)?;
        // Only a user whom we cannot name needs the file open to all; the folder above is not.
        let is_theirs = owner.is_some_and(|(uid, gid)| std::os::unix::fs::chown(&temp, Some(uid), Some(gid)).is_ok());
        let mode = if is_theirs { 0o644 } else { 0o666 };
        drop(fs::set_permissions(&temp, fs::Permissions::from_mode(mode)));
        context.files.rename(&temp, &path)?;
    }
    Ok(path)
}

/// Takes in what was written: capped, secrets masked, and from then on nobody's but ours. Gives its beginning.
pub(super) fn take(context: &Context, key: &AttemptKey, secrets: &Secrets) -> Result<Option<String>, ActError> {
    let dir = context.attempt_dir(key);
    let path = dir.join(NAME);
    let Some((bytes, is_whole)) = read(&path) else { return Ok(None) };
    let mut text = String::from_utf8_lossy(&secrets.mask(&bytes)).into_owned();
    if text.trim().is_empty() {
        return Ok(None);
    }
    if !is_whole {
        text.push_str("\n[the rest is left out]\n");
    }
    let temp = context.files.write_temp(&dir, "result.tmp-", text.as_bytes(), None)?;
    drop(fs::set_permissions(&temp, fs::Permissions::from_mode(0o644)));
    context.files.rename(&temp, &path)?;
    context.files.sync_dir(&dir)?;
    Ok(Some(beginning(text.trim(), SHOWN)))
}

/// An attempt's kept file, where there is one that holds anything.
pub(super) fn kept(context: &Context, key: &AttemptKey) -> Option<PathBuf> {
    let path = context.attempt_dir(key).join(NAME);
    let meta = path.symlink_metadata().ok()?;
    (meta.is_file() && meta.len() > 0).then_some(path)
}

/// Reads as much as is kept, and tells whether that is all.
fn read(path: &Path) -> Option<(Vec<u8>, bool)> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).ok()?;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(KEPT as u64 + 1).read_to_end(&mut bytes).ok()?;
    let is_whole = bytes.len() <= KEPT;
    bytes.truncate(KEPT);
    Some((bytes, is_whole))
}

fn beginning(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_between_characters() {
        assert_eq!(beginning("äöü", 6), "äöü");
        assert_eq!(beginning("äöü", 5), "äö…");
    }

    #[test]
    fn of_a_huge_file_only_the_beginning_is_read_and_of_a_link_nothing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("r");
        let file = fs::File::create(&path).expect("made");
        file.set_len(1 << 40).expect("sparse");
        let (bytes, is_whole) = read(&path).expect("read");
        assert_eq!((bytes.len(), is_whole), (KEPT, false));
        let link = dir.path().join("l");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert_eq!(read(&link), None);
    }
}
