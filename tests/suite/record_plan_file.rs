//! Publishing into the plan file while disks fail, processes die and others write.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orchestrate::record::{Files as _, OsFiles, PlanFile, PlanFileError, Publication, Publish};
use orchestrate::spec::TaskId;
use orchestrate::status::{Status, TaskStatus};
use rstest::rstest;
use tokio::time::Instant;

use crate::support::fake_files::{FakeFiles, Op, What, When};

const PATH: &str = "/work/.agent-tasks.json";
const LOCK: &str = "/work/.agent-tasks.json.lock";
const OLD: &str = r#"{"plan_id": "p", "note": 1E5, "tasks": [{"id": "a", "status": "pending"}, {"id": "b"}]}"#;
const NEW: &str = r#"{"plan_id": "p", "note": 1E5, "tasks": [{"id": "a", "status": "running"}, {"id": "b"}]}"#;

type Statuses = HashMap<TaskId, TaskStatus>;

fn statuses(of: &[(&str, Status)]) -> Statuses {
    of.iter().map(|(id, status)| (TaskId::new(id).expect("valid"), TaskStatus::new(*status))).collect()
}

fn a_runs() -> Statuses {
    statuses(&[("a", Status::Running)])
}

fn work() -> FakeFiles {
    let files = FakeFiles::default();
    files.folder("/work");
    files.put(PATH, OLD);
    files
}

fn plan(files: &FakeFiles) -> PlanFile {
    PlanFile::new(Arc::new(files.clone()), PATH.into(), "/work".into())
}

async fn publish(files: &FakeFiles) -> Result<Publication, PlanFileError> {
    plan(files).publish("p", &a_runs(), Some(OLD.as_bytes())).await
}

fn text(files: &FakeFiles) -> String {
    String::from_utf8(files.content(PATH).expect("there")).expect("text")
}

fn temps(files: &FakeFiles) -> Vec<String> {
    files.names().into_iter().filter(|name| name.contains(".tmp-")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_published_is_what_stands_there() {
    let files = work();
    let done = publish(&files).await.expect("published");
    assert_eq!(text(&files), NEW);
    assert!(done.written && !done.foreign);
    assert_eq!(done.content, plan(&files).read().expect("readable"));
    assert!(!plan(&files).has_changed(&done.content.stamp).expect("looked"));
    assert_eq!(files.names(), [PATH, LOCK]);
    files.power_loss();
    assert_eq!(text(&files), NEW);
}

#[tokio::test(start_paused = true)]
async fn nothing_changed_nothing_touched() {
    let files = work();
    files.put(PATH, NEW);
    let before = plan(&files).read().expect("readable");
    let calls = files.calls().len();
    let done = plan(&files).publish("p", &a_runs(), Some(NEW.as_bytes())).await.expect("nothing to do");
    assert_eq!(done, Publication { content: before, written: false, foreign: false });
    let effects = [Op::WriteTemp, Op::Rename, Op::Remove, Op::TryLock, Op::SyncDir];
    assert!(!files.calls()[calls..].iter().any(|(op, _)| effects.contains(op)));
    assert_eq!(files.names(), [PATH]);
}

/// F1, F2, F3, 30, 31: every call of a publishing goes wrong in every way.
#[rstest]
#[case::no_space(What::Fail(ErrorKind::StorageFull))]
#[case::short(What::Short(20, ErrorKind::StorageFull))]
#[case::quota(What::Short(0, ErrorKind::QuotaExceeded))]
#[case::denied(What::Fail(ErrorKind::PermissionDenied))]
#[case::read_only(What::Fail(ErrorKind::ReadOnlyFilesystem))]
#[case::io(What::FailAfter(ErrorKind::Other))]
#[case::interrupted(What::Fail(ErrorKind::Interrupted))]
#[case::late_interrupt(What::FailAfter(ErrorKind::Interrupted))]
#[case::crash_before(What::CrashBefore)]
#[case::crash_amid(What::CrashAmid(30))]
#[case::crash_after(What::CrashAfter)]
#[tokio::test(start_paused = true)]
async fn old_or_new_never_less(#[case] what: What, #[values(false, true)] power_fails: bool) {
    let clean = work();
    drop(publish(&clean).await.expect("without faults"));
    let calls = clean.calls().len() as u64;
    assert!(calls > 10, "{:?}", clean.calls());
    for call in 0..calls {
        let files = work();
        files.fault(When::Call(call), what);
        let result = publish(&files).await;
        let found = text(&files);
        assert!(found == OLD || found == NEW, "call {call}: {found}");
        assert!(found == NEW || result.is_err(), "call {call} was passed over");
        if !files.is_dead() {
            assert_eq!(temps(&files), [""; 0], "call {call}");
        }
        if power_fails {
            files.power_loss();
            let found = text(&files);
            assert!(found == OLD || found == NEW, "call {call}, after a power cut: {found}");
        }
        // The next start, as the same process that lives on or as another.
        let next = if files.is_dead() { files.process() } else { files };
        plan(&next).sweep().expect("no fault any more");
        assert_eq!(temps(&next), [""; 0], "call {call}");
        drop(publish(&next).await.expect("no fault any more"));
        assert_eq!(text(&next), NEW);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_always_fails_leaves_the_old_content() {
    for op in [Op::Read, Op::Stamp, Op::RealPath, Op::WriteTemp, Op::Rename] {
        let files = work();
        files.fault(When::Each(op), What::Fail(ErrorKind::StorageFull));
        let error = publish(&files).await.expect_err("cannot be");
        assert!(matches!(&error, PlanFileError::File(error) if error.is_full()), "{error}");
        assert!(error.is_transient());
        assert_eq!((text(&files).as_str(), temps(&files)), (OLD, vec![]), "{op:?}");
    }
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn an_edit_before_the_rename_is_merged(#[values(false, true)] in_place: bool) {
    edits_at_every_call(in_place, false).await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn with_the_lock_there_is_no_gap(#[values(false, true)] in_place: bool) {
    edits_at_every_call(in_place, true).await;
}

/// 24, F15: somebody's edit lands right before each of our calls.
async fn edits_at_every_call(in_place: bool, with_lock: bool) {
    for (number, op) in calls_of_a_publishing().await.into_iter().enumerate() {
        let files = work();
        let other = files.process();
        let edited = Arc::new(AtomicBool::new(false));
        let is_edited = Arc::clone(&edited);
        files.before_call(number as u64, move || {
            let lock = other.try_lock(Path::new(LOCK)).expect("tried");
            if with_lock && lock.is_none() {
                return;
            }
            let content = String::from_utf8(other.content(PATH).expect("there")).expect("text").replace("1E5", "2E5");
            if in_place {
                other.overwrite(PATH, content);
            } else {
                other.put(PATH, content);
            }
            edited.store(true, Ordering::Relaxed);
        });
        let done = publish(&files).await.expect("published");
        // The moment that is left to those who do not take the lock.
        let is_the_gap = op == Op::Rename && !with_lock;
        let is_kept = is_edited.load(Ordering::Relaxed) && !is_the_gap;
        let expected = if is_kept { NEW.replace("1E5", "2E5") } else { NEW.to_owned() };
        assert_eq!(text(&files), expected, "before call {number}, {op:?}");
        let is_told = done.foreign || plan(&files).has_changed(&done.content.stamp).expect("looked");
        assert_eq!(is_told, is_kept, "before call {number}, {op:?}");
        assert_eq!(temps(&files), [""; 0]);
    }
}

async fn calls_of_a_publishing() -> Vec<Op> {
    let files = work();
    drop(publish(&files).await.expect("undisturbed"));
    files.calls().into_iter().map(|(op, _)| op).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_made_meanwhile_is_left_and_told() {
    let calls = calls_of_a_publishing().await;
    let rename = calls.iter().position(|op| *op == Op::Rename).expect("one") as u64;
    for number in 0..rename {
        let files = work();
        let other = files.process();
        files.before_call(number, move || other.put(PATH, OLD.replace("pending", "cancelled")));
        let done = publish(&files).await.expect("judged");
        assert_eq!(text(&files), OLD.replace("pending", "cancelled"));
        assert!(done.foreign && !done.written, "before call {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_keeps_changing_is_given_up_for_now() {
    let files = work();
    for number in 0..2000 {
        let other = files.process();
        files.before_call(number, move || other.put(PATH, OLD.replace("1E5", &number.to_string())));
    }
    let error = publish(&files).await.expect_err("never the same twice");
    assert!(matches!(error, PlanFileError::Contended { .. }) && error.is_transient(), "{error}");
    assert_eq!(temps(&files), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_waited_for_and_then_done_without() {
    let files = work();
    let other = files.process();
    let held = other.try_lock(Path::new(LOCK)).expect("tried").expect("free");
    let start = Instant::now();
    drop(publish(&files).await.expect("without the lock"));
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(text(&files), NEW);

    files.put(PATH, OLD);
    let (done, ()) = tokio::join!(publish(&files), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Written before the lock is given back, so it has to be seen.
        other.put(PATH, OLD.replace("1E5", "2E5"));
        drop(held);
    });
    assert!(done.expect("published").foreign);
    assert_eq!(text(&files), NEW.replace("1E5", "2E5"));
}

#[tokio::test(start_paused = true)]
async fn a_partial_file_is_waited_out() {
    for partial in ["", "\n", &OLD[..40]] {
        let files = work();
        files.overwrite(PATH, partial);
        assert!(plan(&files).read().expect("readable").is_partial());
        let (done, ()) = tokio::join!(publish(&files), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            files.overwrite(PATH, OLD);
        });
        drop(done.expect("whole in time"));
        assert_eq!(text(&files), NEW);

        files.overwrite(PATH, partial);
        let start = Instant::now();
        let error = publish(&files).await.expect_err("still partial");
        assert!(matches!(error, PlanFileError::Partial { .. }) && error.is_transient());
        assert!(start.elapsed() >= Duration::from_secs(2));
        let settled = plan(&files).read_settled(Duration::from_secs(2)).await.expect("readable");
        assert!(settled.is_partial());
        assert_eq!(text(&files), partial);
    }
}

/// 25: what is not ours to understand is not ours to write.
#[rstest]
#[case::conflict("{\n<<<<<<< HEAD\n\"tasks\": []\n=======\n\"tasks\": [1]\n>>>>>>> other\n}")]
#[case::no_json(r#"{"tasks": [{"id": "a",}]}"#)]
#[case::no_tasks(r#"{"task": [{"id": "a"}]}"#)]
#[case::two_keys(r#"{"tasks": [], "tasks": [{"id": "a"}]}"#)]
#[case::two_ids(r#"{"plan_id": "p", "tasks": [{"id": "a"}, {"id": "a"}]}"#)]
#[tokio::test(start_paused = true)]
async fn an_invalid_file_keeps_its_bytes(#[case] content: &str) {
    let files = work();
    files.put(PATH, content);
    let error = publish(&files).await.expect_err("not writable");
    assert!(matches!(error, PlanFileError::NotJson { .. } | PlanFileError::Ambiguous { .. }), "{error}");
    assert!(!error.is_transient());
    assert_eq!(text(&files), content);
    assert!(!files.calls().iter().any(|(op, _)| *op == Op::WriteTemp));
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_read_only_is_told() {
    let files = work();
    files.chmod(PATH, 0o444);
    assert!(matches!(publish(&files).await, Err(PlanFileError::ReadOnly { .. })));
    assert_eq!((text(&files).as_str(), temps(&files)), (OLD, vec![]));
    files.delete(PATH);
    assert!(matches!(publish(&files).await, Err(PlanFileError::Missing { .. })));
    assert!(matches!(plan(&files).read(), Err(PlanFileError::Missing { .. })));
    files.folder(PATH);
    assert!(matches!(plan(&files).read(), Err(PlanFileError::NotAFile { .. })));
}

/// 32.
#[tokio::test(start_paused = true)]
async fn a_link_is_followed_inside_and_refused_outside() {
    let files = work();
    files.folder("/work/conf");
    files.put("/work/conf/plan.json", OLD);
    files.link(PATH, "conf/plan.json");
    drop(publish(&files).await.expect("inside"));
    assert_eq!(files.content("/work/conf/plan.json").as_deref(), Some(NEW.as_bytes()));
    assert_eq!(files.names(), [PATH, "/work/conf/plan.json", "/work/conf/plan.json.lock"]);
    assert_eq!(plan(&files).excludes().expect("there"), ["plan.json.lock", ".plan.json.tmp-*"]);

    files.folder("/home");
    files.put("/home/plan.json", OLD);
    files.link(PATH, "/home/plan.json");
    assert!(matches!(publish(&files).await, Err(PlanFileError::OutsideRepository { .. })));
    assert!(matches!(plan(&files).read(), Err(PlanFileError::OutsideRepository { .. })));
    assert_eq!(files.content("/home/plan.json").as_deref(), Some(OLD.as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn only_what_dead_writers_left_is_swept() {
    let files = work();
    let dead = files.process();
    dead.kill();
    let living = files.process();
    let temp = |pid: u32| format!("/work/.agent-tasks.json.tmp-{pid}-1");
    let theirs =
        ["/work/.agent-tasks.json.tmp-x-1", "/work/.agent-tasks.json.tmp-", "/work/tmp-7-1"].map(str::to_owned);
    for path in theirs.iter().chain(&[temp(dead.pid()), temp(living.pid()), temp(files.pid())]) {
        files.put(path, "");
    }
    let held = living.try_lock(Path::new(LOCK)).expect("tried").expect("free");
    plan(&files).sweep().expect("left for later");
    assert!(files.content(&temp(dead.pid())).is_some());
    drop(held);
    plan(&files).sweep().expect("swept");
    assert!(files.content(&temp(dead.pid())).is_none() && files.content(&temp(files.pid())).is_none());
    assert!(files.content(&temp(living.pid())).is_some());
    assert!(theirs.iter().all(|path| files.content(path).is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_temporary_file_that_is_swept_from_under_us_is_written_again() {
    let calls = calls_of_a_publishing().await;
    let write = calls.iter().position(|op| *op == Op::WriteTemp).expect("one") as u64;
    let files = work();
    let other = files.clone();
    files.before_call(write + 1, move || {
        let temp = temps(&other).pop().expect("just written");
        other.delete(&temp);
    });
    drop(publish(&files).await.expect("written again"));
    assert_eq!(text(&files), NEW);
}

/// A plan that only another spec describes.
#[rstest]
#[case::no_space(What::Short(5, ErrorKind::StorageFull))]
#[case::io(What::FailAfter(ErrorKind::Other))]
#[case::crash_before(What::CrashBefore)]
#[case::crash_amid(What::CrashAmid(5))]
#[case::crash_after(What::CrashAfter)]
#[tokio::test(start_paused = true)]
async fn a_file_is_made_for_the_status_of_another_specs_tasks(#[case] what: What) {
    let ids = [TaskId::new("a").expect("valid")];
    let made = "{\n  \"tasks\": []\n}\n";
    for call in 0..12 {
        let files = FakeFiles::default();
        files.folder("/work");
        files.fault(When::Call(call), what);
        let first = plan(&files).ensure_exists();
        assert!(first.is_err() || text(&files) == made);
        assert!(files.content(PATH).is_none_or(|content| content == made.as_bytes()));
        let next = if files.is_dead() { files.process() } else { files };
        next.heal();
        plan(&next).ensure_exists().expect("no fault any more");
        plan(&next).sweep().expect("no fault any more");
        assert_eq!(temps(&next), [""; 0], "call {call}");

        let statuses = a_runs();
        let publish = Publish { plan_id: "p", statuses: &statuses, seen: None, add: &ids, drop: &[] };
        drop(plan(&next).publish_with(publish).await.expect("published"));
        let block = "{\n  \"tasks\": [\n    {\n      \"id\": \"a\",\n      \"status\": \"running\"\n    }\n  ],\n  \"plan_id\": \"p\"\n}\n";
        assert_eq!(text(&next), block);
        let publish = Publish { add: &[], drop: &ids, ..publish };
        drop(plan(&next).publish_with(publish).await.expect("published"));
        assert!(!text(&next).contains("\"id\""));
        assert!(!plan(&next).ensure_exists().expect("looked"));
    }
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let files = FakeFiles::default();
    files.folder("/work");
    let other = files.process();
    files.before_call(2, move || other.put(PATH, OLD));
    assert!(!plan(&files).ensure_exists().expect("looked"));
    assert_eq!((text(&files).as_str(), temps(&files)), (OLD, vec![]));
}

/// The document for other tools names every field that is not theirs.
#[test]
fn the_protocol_names_all_our_fields() {
    let protocol = include_str!("../../specs/plan-file-writing.md");
    let unnamed: Vec<_> = TaskStatus::FIELDS
        .iter()
        .chain(&["plan_id"])
        .filter(|field| !protocol.contains(&format!("`{field}`")))
        .collect();
    assert_eq!(unnamed, [&""; 0]);
}

// ----- on the real file system -----

struct Real {
    _dir: tempfile::TempDir,
    root: PathBuf,
    path: PathBuf,
}

fn real() -> Real {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let root = dir.path().join("täsk 1: \"x\"");
    fs::create_dir(&root).expect("made");
    let path = root.join(".agent-tasks.json");
    fs::write(&path, OLD).expect("written");
    Real { _dir: dir, root, path }
}

impl Real {
    fn plan(&self) -> PlanFile {
        PlanFile::new(Arc::new(OsFiles), self.path.clone(), self.root.clone())
    }

    async fn publish(&self) -> Result<Publication, PlanFileError> {
        self.plan().publish("p", &a_runs(), None).await
    }
}

#[tokio::test]
async fn mode_and_link_stay_and_a_second_time_touches_nothing() {
    let real = real();
    let target = real.root.join("plan.json");
    fs::rename(&real.path, &target).expect("moved");
    symlink("plan.json", &real.path).expect("linked");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("set");
    let done = real.publish().await.expect("published");
    assert!(fs::symlink_metadata(&real.path).expect("there").is_symlink());
    let meta = fs::metadata(&target).expect("there");
    assert_eq!((meta.mode() & 0o777, fs::read_to_string(&target).expect("text")), (0o640, NEW.to_owned()));
    assert!(!real.plan().has_changed(&done.content.stamp).expect("looked"));
    assert!(!real.publish().await.expect("nothing to do").written);
    assert_eq!(OsFiles.stamp(&target).expect("looked"), Some(done.content.stamp));
}

#[tokio::test]
async fn links_that_lead_out_fifos_and_giants_are_refused() {
    let real = real();
    fs::remove_file(&real.path).expect("removed");
    let outside = tempfile::NamedTempFile::new().expect("made");
    fs::write(outside.path(), OLD).expect("written");
    symlink(outside.path(), &real.path).expect("linked");
    assert!(matches!(real.publish().await, Err(PlanFileError::OutsideRepository { .. })));
    assert_eq!(fs::read_to_string(outside.path()).expect("text"), OLD);

    fs::remove_file(&real.path).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &real.path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("made");
    assert!(matches!(real.plan().read(), Err(PlanFileError::NotAFile { .. })));

    fs::remove_file(&real.path).expect("removed");
    fs::File::create(&real.path).and_then(|file| file.set_len((64 << 20) + 1)).expect("made");
    assert!(matches!(real.plan().read(), Err(PlanFileError::TooLarge { .. })));
}

/// A program that adds numbers to the list `edits`, one at a time.
fn edit(path: &Path, number: usize, with_lock: bool) {
    let lock = with_lock.then(|| {
        let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(lock_of(path)).expect("opened");
        lock.lock().expect("locked");
        lock
    });
    let mut content: serde_json::Value = serde_json::from_slice(&fs::read(path).expect("there")).expect("always whole");
    content["edits"].as_array_mut().expect("a list").push(number.into());
    let temp = path.with_extension(format!("theirs-{with_lock}"));
    fs::write(&temp, content.to_string()).and_then(|()| fs::rename(&temp, path)).expect("replaced");
    drop(lock);
}

fn lock_of(path: &Path) -> PathBuf {
    path.with_extension("json.lock")
}

/// Publishes changing statuses for as long as somebody edits, each with a pause after; gives the numbers that are in the
/// file at the end.
async fn hammer(edits: usize, with_lock: bool, theirs: Duration, ours: Duration) -> Vec<u64> {
    let real = real();
    fs::write(&real.path, OLD.replace("{\"plan_id\"", "{\"edits\": [], \"plan_id\"")).expect("written");
    let path = real.path.clone();
    let writer = std::thread::spawn(move || {
        for number in 0..edits {
            edit(&path, number, with_lock);
            std::thread::park_timeout(theirs);
        }
    });
    let (mut round, mut written) = (0u32, 0u32);
    while !writer.is_finished() {
        round += 1;
        let mut wanted = a_runs();
        for status in wanted.values_mut() {
            status.attempt = Some(round);
        }
        match real.plan().publish("p", &wanted, None).await {
            Ok(done) => written += u32::from(done.written),
            Err(error) => assert!(matches!(error, PlanFileError::Contended { .. }), "{error}"),
        }
        tokio::time::sleep(ours).await;
    }
    writer.join().expect("no edit failed");
    assert!(written > 10, "{written} of {round} written");
    let content: serde_json::Value = serde_json::from_slice(&fs::read(&real.path).expect("there")).expect("whole");
    content["edits"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_u64).collect()
}

#[tokio::test]
async fn no_edit_of_a_careful_writer_is_lost() {
    let edits = hammer(2000, true, Duration::ZERO, Duration::ZERO).await;
    assert_eq!(edits, (0..2000).collect::<Vec<u64>>());
}

#[tokio::test]
async fn hardly_an_edit_of_a_careless_writer_is_lost() {
    let edits = hammer(300, false, Duration::from_micros(3300), Duration::from_millis(10)).await;
    // What is lost fell between comparison and rename; without the comparison it would be one in twenty.
    assert!(edits.len() >= 294, "{} of 300", edits.len());
}

/// The file as it stands with `a` running in that attempt.
fn in_attempt(attempt: u32) -> String {
    NEW.replace("\"running\"", &format!("\"running\", \"attempt\": {attempt}"))
}

/// The victim of the test below: publishes in the folder that it is started in.
#[tokio::test]
#[ignore = "a process of its own, to be killed"]
async fn publishes_until_it_is_killed() {
    let root = std::env::current_dir().expect("there");
    let plan = PlanFile::new(Arc::new(OsFiles), root.join(".agent-tasks.json"), root);
    for attempt in 1..20_000 {
        let mut wanted = a_runs();
        for status in wanted.values_mut() {
            status.attempt = Some(attempt);
        }
        drop(plan.publish("p", &wanted, None).await.expect("published"));
    }
}

#[tokio::test]
async fn a_kill_at_any_time_leaves_a_whole_file() {
    let real = real();
    let mut orphans = 0;
    // On a disk that syncs in no time it takes more kills to hit a write.
    for round in 0..1000u64 {
        if round >= 30 && orphans > 0 {
            break;
        }
        fs::write(&real.path, OLD).expect("written");
        let mut victim = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "--ignored", "record_plan_file::publishes_until_it_is_killed"])
            .current_dir(&real.root)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("started");
        while fs::read_to_string(&real.path).expect("always there") == OLD {
            assert_eq!(victim.try_wait().expect("ours"), None, "it publishes until it is killed");
            std::thread::park_timeout(Duration::from_micros(200));
        }
        std::thread::park_timeout(Duration::from_micros(round % 30 * 97));
        victim.kill().and_then(|()| victim.wait()).expect("killed");

        let found = fs::read_to_string(&real.path).expect("text");
        let content: serde_json::Value = serde_json::from_str(&found).expect("whole");
        let attempt = content["tasks"][0]["attempt"].as_u64().and_then(|n| u32::try_from(n).ok()).expect("a number");
        assert_eq!(found, in_attempt(attempt));
        let names = OsFiles.list(&real.root).expect("listed");
        orphans += names.iter().filter(|name| name.contains(".tmp-")).count();
        real.plan().sweep().expect("swept");
        assert_eq!(OsFiles.list(&real.root).expect("listed"), [".agent-tasks.json", ".agent-tasks.json.lock"]);
    }
    assert!(orphans > 0, "no kill fell into a write: the test shows nothing");
}
