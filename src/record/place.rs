//! Where a state dir belongs: one that was copied with its repository would give two clones one identity, and each would take
//! the other's containers for its own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::files::{FileError, Files};
use super::journal::NAME as JOURNAL;

/// In the state dir: device and inode of that folder, and its path.
const NAME: &str = "place";

/// Looks whether a state dir is where it was last, and notes where it is. Gives the place of the original, where this is a
/// copy and the original is still there: same content at another path, and another folder. What was moved, or restored over
/// what is gone, is no copy. Without a state dir there is nothing to look at.
///
/// # Errors
/// The folder or its note cannot be read or written.
pub fn copied_from(files: &dyn Files, state_dir: &Path) -> Result<Option<PathBuf>, FileError> {
    let Some(stamp) = files.stamp(state_dir)? else { return Ok(None) };
    let here = files.real_path(state_dir)?;
    let number = format!("{} {}", stamp.device, stamp.inode);
    let note = [number.as_bytes(), b"\n", here.as_os_str().as_bytes()].concat();
    let path = here.join(NAME);
    let known = if files.stamp(&path)?.is_some() { files.read(&path)? } else { Vec::new() };
    if known == note {
        return Ok(None);
    }
    let mut parts = known.splitn(2, |byte| *byte == b'\n');
    if let (Some(old_number), Some(old_path)) = (parts.next(), parts.next()) {
        let original = PathBuf::from(OsString::from_vec(old_path.to_vec()));
        if old_number != number.as_bytes() && original != here && is_same_journal(files, &original, &here) {
            return Ok(Some(original));
        }
    }
    // Its name may be lost with the power: then the next look is the first one.
    let temp = files.write_temp(&here, "place.tmp-", &note, None)?;
    files.rename(&temp, &path)?;
    Ok(None)
}

/// Both journals begin with the same record, which holds the clone's id.
fn is_same_journal(files: &dyn Files, one: &Path, two: &Path) -> bool {
    let first = |dir: &Path| {
        let text = files.read(&dir.join(JOURNAL)).ok()?;
        text.split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec).filter(|line| !line.is_empty())
    };
    first(one).is_some_and(|line| Some(line) == first(two))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::files::OsFiles;
    use super::*;

    fn look(state_dir: &Path) -> Option<PathBuf> {
        copied_from(&OsFiles, state_dir).expect("looked")
    }

    fn state(dir: &Path, name: &str, journal: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(&path).expect("made");
        fs::write(path.join(JOURNAL), journal).expect("written");
        path
    }

    #[test]
    fn a_copy_beside_its_original_is_told_and_what_was_moved_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let a = state(dir.path(), "a", "opened a\nmore\n");
        assert_eq!(look(&a), None);
        assert_eq!(look(&a), None);
        let b = state(dir.path(), "b", "opened a\nmore\nand more\n");
        fs::copy(a.join(NAME), b.join(NAME)).expect("copied");
        let original = fs::canonicalize(&a).expect("there");
        assert_eq!(look(&b), Some(original.clone()));
        assert_eq!(look(&b), Some(original), "for as long as both are there");
        assert_eq!(look(&a), None);
        fs::remove_dir_all(&a).expect("removed");
        assert_eq!(look(&b), None, "moved, or all that is left");
        let c = dir.path().join("c");
        fs::rename(&b, &c).expect("moved");
        assert_eq!(look(&c), None);
        assert!(fs::read(c.join(NAME)).expect("there").ends_with(b"/c"));
        assert_eq!(fs::read_dir(&c).expect("there").count(), 2, "nothing is left over");
    }

    #[test]
    fn another_clone_at_the_old_place_and_no_state_at_all_are_no_originals() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(look(&dir.path().join("none")), None);
        let a = state(dir.path(), "a", "opened a\n");
        assert_eq!(look(&a), None);
        let b = dir.path().join("b");
        fs::rename(&a, &b).expect("moved");
        let _other = state(dir.path(), "a", "opened other\n");
        assert_eq!(look(&b), None);
    }
}
