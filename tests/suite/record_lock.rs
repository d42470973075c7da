//! The reconciler's lock.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use orchestrate::record::{Files as _, Holder, LockError, StateLock};

use crate::support::fake_files::{FakeFiles, Op, What, When};

const STATE: &str = "/work/.git/orchestrate";
const LOCK: &str = "/work/.git/orchestrate/lock";

fn holder(files: &FakeFiles) -> Holder {
    Holder {
        pid: files.pid(),
        host: "here".into(),
        command: "orchestrate run\u{1b}[2J".into(),
        since: "2026-05-01T10:00:00Z".parse().expect("a time"),
    }
}

fn take(files: &FakeFiles) -> Result<StateLock, LockError> {
    StateLock::take(Arc::new(files.clone()), Path::new(STATE), holder(files))
}

#[test]
fn the_second_is_told_who_has_it() {
    let first = FakeFiles::default();
    let held = take(&first).expect("free");
    let second = first.process();
    let error = take(&second).expect_err("held");
    assert_eq!(
        error.to_string(),
        format!(
            "the lock {LOCK} is held by process {} on here (`orchestrate run\\u{{1b}}[2J`, since 2026-05-01T10:00:00Z)",
            first.pid()
        )
    );
    drop(held);
    assert!(take(&second).is_ok());
}

#[test]
fn a_dead_holder_holds_nothing_and_its_name_is_not_told() {
    let first = FakeFiles::default();
    let lost = take(&first).expect("free");
    first.kill();
    let second = first.process();
    // Whoever has it has not left its name yet: what stands there is the dead one's.
    let unnamed = second.try_lock(Path::new(LOCK)).expect("tried").expect("given back by the kernel");
    assert!(matches!(take(&first.process()), Err(LockError::Held { holder: None, .. })));
    drop((unnamed, lost));
    assert!(take(&second).is_ok());
}

#[test]
fn a_lock_file_that_is_deleted_while_held_is_taken_again_or_lost_to_another() {
    let first = FakeFiles::default();
    let mut held = take(&first).expect("free");
    held.ensure_current().expect("ours");
    first.delete(LOCK);
    held.ensure_current().expect("nobody was faster");
    let second = first.process();
    assert!(matches!(take(&second), Err(LockError::Held { .. })));

    first.delete(LOCK);
    let theirs = take(&second).expect("another file");
    match held.ensure_current() {
        Err(LockError::Held { holder: Some(by), .. }) => assert_eq!(by.pid, second.pid()),
        other => panic!("both would hold it: {other:?}"),
    }
    drop(theirs);
    held.ensure_current().expect("free again");
}

#[test]
fn a_full_disk_does_not_keep_the_lock_from_us() {
    let files = FakeFiles::default();
    files.fault(When::Each(Op::Note), What::Short(3, ErrorKind::StorageFull));
    let held = take(&files).expect("free");
    assert!(matches!(take(&files.process()), Err(LockError::Held { holder: None, .. })));
    drop(held);
}

#[test]
fn faults_of_the_file_system_are_told_apart() {
    let files = FakeFiles::default();
    files.fault(When::Nth(Op::TryLock, 0), What::Fail(ErrorKind::PermissionDenied));
    assert!(matches!(take(&files), Err(LockError::File(error)) if error.is_denied()));
    files.fault(When::Nth(Op::CreateDirAll, 0), What::Fail(ErrorKind::ReadOnlyFilesystem));
    assert!(matches!(take(&files), Err(LockError::File(error)) if error.is_denied()));
}
