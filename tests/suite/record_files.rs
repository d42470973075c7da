//! The port's promises, kept alike by the real file system and by the one in memory, so that the fake cannot drift.

use std::io::ErrorKind;
use std::path::Path;

use orchestrate::record::{FileError, Files, OsFiles};

use crate::support::fake_files::{FakeFiles, Op, What, When};

/// Runs a check over both.
fn on_both(check: impl Fn(&dyn Files, &Path)) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    check(&OsFiles, &dir.path().canonicalize().expect("there"));
    let fake = FakeFiles::default();
    fake.folder("/work");
    check(&fake, Path::new("/work"));
}

fn kind<T>(result: Result<T, FileError>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn append_makes_adds_and_is_cut() {
    on_both(|files, dir| {
        let path = dir.join("a");
        files.append(&path, b"one").expect("made");
        files.append(&path, b"two").expect("added");
        files.truncate(&path, 4).expect("cut");
        assert_eq!(files.read(&path).expect("there"), b"onet");
        assert_eq!(files.stamp(&path).expect("looked").expect("there").mode & 0o777, 0o600);
        assert_eq!(kind(files.append(&dir.join("none/a"), b"")), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.truncate(&dir.join("b"), 0)), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_temporary_file_replaces_another_and_keeps_its_mode() {
    on_both(|files, dir| {
        let path = dir.join("a");
        files.append(&path, b"old").expect("made");
        let before = files.stamp(&path).expect("looked").expect("there");
        let temp = files.write_temp(dir, "t-", b"new", Some(&before)).expect("written");
        let other = files.write_temp(dir, "t-", b"other", None).expect("written");
        assert_ne!(temp, other);
        files.rename(&temp, &path).expect("replaced");
        files.sync_dir(dir).expect("synced");
        files.remove(&other).expect("removed");
        files.remove(&other).expect("nothing to remove is fine");
        assert_eq!(files.list(dir).expect("listed"), ["a"]);
        let after = files.stamp(&path).expect("looked").expect("there");
        assert_eq!((after.mode, after.uid, after.gid, after.size), (before.mode, before.uid, before.gid, 3));
        assert_ne!(after.inode, before.inode);
        assert_eq!(kind(files.rename(&temp, &path)), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.write_temp(&dir.join("none"), "t-", b"", None)), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_second_name_never_replaces_anything() {
    on_both(|files, dir| {
        let temp = files.write_temp(dir, "t-", b"1", None).expect("written");
        assert!(files.link_new(&temp, &dir.join("a")).expect("free"));
        files.remove(&temp).expect("removed");
        assert_eq!(files.read(&dir.join("a")).expect("there"), b"1");
        let temp = files.write_temp(dir, "t-", b"2", None).expect("written");
        assert!(!files.link_new(&temp, &dir.join("a")).expect("taken"));
        assert_eq!(files.read(&dir.join("a")).expect("there"), b"1");
        assert_eq!(kind(files.link_new(&dir.join("none"), &dir.join("b"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn what_is_missing_or_no_file_is_told() {
    on_both(|files, dir| {
        let none = dir.join("none");
        assert_eq!(files.stamp(&none).expect("looked"), None);
        assert_eq!(kind(files.read(&none)), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.real_path(&none)), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.list(&none)), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.sync_dir(&none)), Some(ErrorKind::NotFound));
        assert_eq!(kind(files.read(dir)), Some(ErrorKind::IsADirectory));
        assert!(!files.stamp(dir).expect("looked").expect("there").is_file());
        files.append(&dir.join("file"), b"").expect("made");
        assert!(files.create_dir_all(&dir.join("file/below")).is_err());
        files.create_dir_all(&dir.join("a/b")).expect("made");
        files.create_dir_all(&dir.join("a/b")).expect("there already");
        assert_eq!(files.list(&dir.join("a")).expect("listed"), ["b"]);
        assert_eq!(files.real_path(&dir.join("file")).expect("there"), dir.join("file"));
    });
}

#[test]
fn a_lock_has_one_holder_and_follows_its_file() {
    on_both(|files, dir| {
        let path = dir.join("lock");
        let first = files.try_lock(&path).expect("tried").expect("free");
        assert!(files.try_lock(&path).expect("tried").is_none());
        first.note(b"me and more").expect("noted");
        first.note(b"me").expect("noted");
        assert_eq!(files.read(&path).expect("there"), b"me");
        assert!(first.is_current().expect("looked"));
        files.remove(&path).expect("removed");
        assert!(!first.is_current().expect("looked"));
        let second = files.try_lock(&path).expect("tried").expect("another file");
        assert!(!first.is_current().expect("looked"));
        drop(first);
        assert!(files.try_lock(&path).expect("tried").is_none());
        drop(second);
        assert!(files.try_lock(&path).expect("tried").is_some());
    });
}

#[test]
fn the_fake_forgets_in_a_power_cut_what_was_not_synced() {
    let files = FakeFiles::default();
    files.folder("/work");
    files.put("/work/a", "old");
    let temp = files.write_temp(Path::new("/work"), "t-", b"new", None).expect("written");
    files.rename(&temp, Path::new("/work/a")).expect("renamed");
    files.power_loss();
    assert_eq!(files.content("/work/a").as_deref(), Some(&b"old"[..]));
    assert!(files.is_dead());

    let files = files.process();
    let temp = files.write_temp(Path::new("/work"), "t-", b"new", None).expect("written");
    files.rename(&temp, Path::new("/work/a")).expect("renamed");
    files.sync_dir(Path::new("/work")).expect("synced");
    files.power_loss();
    assert_eq!(files.content("/work/a").as_deref(), Some(&b"new"[..]));
}

#[test]
fn the_fake_follows_its_script() {
    let files = FakeFiles::default();
    files.folder("/work");
    let path = Path::new("/work/a");
    files.fault(When::Nth(Op::Append, 1), What::Short(1, ErrorKind::StorageFull));
    files.append(path, b"ab").expect("the first one is well");
    assert_eq!(kind(files.append(path, b"cd")), Some(ErrorKind::StorageFull));
    assert_eq!(files.content("/work/a").as_deref(), Some(&b"abc"[..]));

    files.fault(When::Each(Op::Stamp), What::Fail(ErrorKind::Other));
    assert!(files.stamp(path).is_err() && files.stamp(path).is_err());
    files.heal();
    assert!(files.stamp(path).is_ok());

    let lock = files.try_lock(Path::new("/work/lock")).expect("tried").expect("free");
    files.fault(When::Each(Op::Read), What::CrashAfter);
    assert!(files.read(path).is_err());
    assert!(files.is_dead() && files.stamp(path).is_err());
    // The kernel gives a dead process's locks back, whatever becomes of its memory.
    let next = files.process();
    let theirs = next.try_lock(Path::new("/work/lock")).expect("tried").expect("given back");
    drop(lock);
    assert!(files.process().try_lock(Path::new("/work/lock")).expect("tried").is_none());
    drop(theirs);
    assert!(!next.is_other_process(files.pid()));
}
