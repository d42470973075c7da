//! Where a state dir belongs: one that was copied with its repository would give two clones one identity, and each would take
//! the other's containers for its own.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// In the state dir: device and inode of that folder, and its path.
const NAME: &str = "place";

/// Looks whether a state dir is where it was last, and notes where it is. Gives the place of the original, where this is a
/// copy and the original is still there: same content at another path, and another folder. What was moved, or restored over
/// what is gone, is no copy. Without a state dir there is nothing to look at.
///
/// # Errors
/// The folder or its note cannot be read or written.
pub fn copied_from(state_dir: &Path) -> io::Result<Option<PathBuf>> {
    let meta = match fs::metadata(state_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        meta => meta?,
    };
    let here = fs::canonicalize(state_dir)?;
    let number = format!("{} {}", meta.dev(), meta.ino());
    let note = [number.as_bytes(), b"\n", here.as_os_str().as_bytes()].concat();
    let known = match fs::read(here.join(NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        known => known?,
    };
    if known == note {
        return Ok(None);
    }
    let mut parts = known.splitn(2, |byte| *byte == b'\n');
    if let (Some(old_number), Some(old_path)) = (parts.next(), parts.next()) {
        let original = PathBuf::from(std::ffi::OsString::from_vec(old_path.to_vec()));
        if old_number != number.as_bytes() && original != here && is_same_journal(&original, &here) {
            return Ok(Some(original));
        }
    }
    // Whole or not at all; that it may be lost with the power only makes the next look the first one.
    let mut temp = tempfile_in(&here)?;
    temp.1.write_all(&note)?;
    fs::rename(&temp.0, here.join(NAME))?;
    Ok(None)
}

/// A fresh file beside the note.
fn tempfile_in(dir: &Path) -> io::Result<(PathBuf, fs::File)> {
    let path = dir.join(format!("{NAME}.tmp-{}", std::process::id()));
    let file = fs::File::create(&path)?;
    Ok((path, file))
}

/// Both journals begin with the same record, which holds the clone's id.
fn is_same_journal(one: &Path, two: &Path) -> bool {
    let first = |dir: &Path| {
        let text = fs::read(dir.join("journal")).ok()?;
        text.split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec).filter(|line| !line.is_empty())
    };
    first(one).is_some_and(|line| Some(line) == first(two))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(dir: &Path, name: &str, journal: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join("journal"), journal).expect("written");
        path
    }

    #[test]
    fn a_copy_beside_its_original_is_told_and_what_was_moved_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let a = state(dir.path(), "a", "opened a\nmore\n");
        assert_eq!(copied_from(&a).expect("looked"), None);
        assert_eq!(copied_from(&a).expect("looked"), None);
        let b = state(dir.path(), "b", "opened a\nmore\nand more\n");
        fs::copy(a.join(NAME), b.join(NAME)).expect("copied");
        let original = fs::canonicalize(&a).expect("there");
        assert_eq!(copied_from(&b).expect("looked"), Some(original.clone()));
        assert_eq!(copied_from(&b).expect("looked"), Some(original), "for as long as both are there");
        assert_eq!(copied_from(&a).expect("looked"), None);
        fs::remove_dir_all(&a).expect("removed");
        assert_eq!(copied_from(&b).expect("looked"), None, "moved, or all that is left");
        let c = dir.path().join("c");
        fs::rename(&b, &c).expect("moved");
        assert_eq!(copied_from(&c).expect("looked"), None);
        assert!(fs::read(c.join(NAME)).expect("there").ends_with(b"/c"));
    }

    #[test]
    fn another_clone_at_the_old_place_and_no_state_at_all_are_no_originals() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(copied_from(&dir.path().join("none")).expect("looked"), None);
        let a = state(dir.path(), "a", "opened a\n");
        assert_eq!(copied_from(&a).expect("looked"), None);
        let b = dir.path().join("b");
        fs::rename(&a, &b).expect("moved");
        let _other = state(dir.path(), "a", "opened other\n");
        assert_eq!(copied_from(&b).expect("looked"), None);
    }
}
