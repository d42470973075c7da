//! The append-only journal: one checksummed line for each durable fact.
//!
//! A line is eight hex digits of CRC-32, a space, and one JSON object. A torn last line (we died while writing it) is cut
//! off when the journal is opened for writing: its fact was never relied upon, since effects follow their record. Damage
//! anywhere else is told and nothing is written. What a power cut keeps: every record whose `append` returned.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::entry::{Entry, FORMAT};
use super::files::{FileError, Files, Stamp};
use super::ledger::{Ledger, TaskRecord};
use crate::clock::Now;
use crate::observe::InstanceId;

/// The journal's name in the state dir.
pub(super) const NAME: &str = "journal";
/// The journal before its records were last put together, for those who read what happened.
const EARLIER: &str = "journal.1";
/// A journal longer than this many bytes is put together when it is opened, where that halves it.
const LONG: u64 = 4 << 20;

/// The open journal and the ledger that it gives. Whoever writes holds the reconciler's lock.
pub struct Journal {
    files: Arc<dyn Files>,
    path: PathBuf,
    /// Bytes that are known to be whole records.
    len: u64,
    /// What a failed append may have left a part of behind `len`.
    torn: Option<Vec<u8>>,
    ledger: Ledger,
    witness: Option<Arc<dyn Witness>>,
}

/// Sees each fact as it becomes durable: counters, live events. Called with the journal locked: it must not block.
pub trait Witness: Send + Sync {
    /// `entry` is durable; `before` and `after` are what was and is known of its task. A record that changed nothing
    /// leaves them equal.
    fn recorded(&self, entry: &Entry, before: Option<&TaskRecord>, after: Option<&TaskRecord>);
}

/// The journal as it stands, for readers beside a running reconciler.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// Every record, oldest first.
    pub entries: Vec<Entry>,
    /// What they give.
    pub ledger: Ledger,
    /// A newer program wrote it: what this one does not know is left out.
    pub newer: bool,
}

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("the journal cannot be used")]
    File(#[from] FileError),
    /// A record other than the last is damaged.
    #[error("the journal {} is damaged at line {line}; nothing is written", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The first damaged line, from 1.
        line: usize,
    },
    /// Somebody else wrote to it while we had it open.
    #[error("the journal {} was written by another process: only one reconciler may work on a repository", path.display())]
    Foreign {
        /// The journal.
        path: PathBuf,
    },
    /// A newer program wrote it.
    #[error("the journal {} was written by a newer version of this program (line {line})", path.display())]
    Newer {
        /// The journal.
        path: PathBuf,
        /// The first line that is not understood, from 1.
        line: usize,
    },
}

impl Journal {
    /// Opens the journal of a state dir for writing; makes it where it is missing, under a new instance id.
    pub fn open(
        files: Arc<dyn Files>,
        state_dir: &Path,
        now: &Now,
        new_instance: impl FnOnce() -> InstanceId,
    ) -> Result<Self, JournalError> {
        files.create_dir_all(state_dir)?;
        let path = state_dir.join(NAME);
        let (stored, len, total) = load(files.as_ref(), &path)?;
        let mut journal = Self { files, path, len, torn: None, ledger: stored.ledger, witness: None };
        if total > len {
            journal.files.truncate(&journal.path, len)?;
        }
        journal.shorten(state_dir, now);
        if journal.ledger.instance().is_none() {
            journal.append(&Entry::Opened { format: FORMAT, instance: new_instance(), at: now.moment() })?;
        }
        Ok(journal)
    }

    /// What the journal looks like now, for those who read it again and again; `None`: there is none.
    pub fn stamp(files: &dyn Files, state_dir: &Path) -> Result<Option<Stamp>, JournalError> {
        Ok(files.stamp(&state_dir.join(NAME))?)
    }

    /// Reads the journal without a lock, with the records of before it was put together. A torn tail may be a record that
    /// is being written, and is passed over; so is what only a newer program understands.
    pub fn read(files: &dyn Files, state_dir: &Path) -> Result<Stored, JournalError> {
        let (mut stored, ..) = scan(files, &state_dir.join(NAME), true)?;
        if stored.entries.iter().any(|entry| matches!(entry, Entry::Kept { .. })) {
            let (earlier, ..) = scan(files, &state_dir.join(EARLIER), true)?;
            stored.entries.retain(|entry| !matches!(entry, Entry::Kept { .. } | Entry::Opened { .. }));
            stored.entries.splice(0..0, earlier.entries);
        }
        Ok(stored)
    }

    /// Puts a long journal together: one record for each task in the place of many. What fails leaves it as it is.
    fn shorten(&mut self, dir: &Path, now: &Now) {
        if self.len <= LONG {
            return;
        }
        let short: String = self.ledger.condense(&now.moment()).iter().map(encode).collect();
        if short.len() as u64 > self.len / 2 {
            return;
        }
        let files = Arc::clone(&self.files);
        let put = |name: &str, bytes: &[u8]| {
            let temp = files.write_temp(dir, &format!("{name}.tmp-"), bytes, None)?;
            files.rename(&temp, &dir.join(name))
        };
        let replaced = files.read(&self.path).and_then(|long| put(EARLIER, &long)).and_then(|()| {
            put(NAME, short.as_bytes())?;
            self.len = short.len() as u64;
            files.sync_dir(dir)
        });
        // Long is not wrong: a full disk may keep it so.
        drop(replaced);
    }

    /// What all records give.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// This clone's id.
    pub fn instance(&self) -> &InstanceId {
        self.ledger.instance().expect("BUG: an open journal begins with its instance")
    }

    /// Makes a fact durable, then takes it in; one that may lag (`Entry::may_lag`) is durable with the next that may not.
    /// After an error it is not taken in, and the next call first cuts off what may have been left of it.
    ///
    /// Nobody else may write meanwhile. Where the lock failed to see to that (deleted, or a file system that lies), of two
    /// writers at most one gets its record in without being told, since each looks at the length before and after.
    pub fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let line = encode(entry).into_bytes();
        self.cut_off_torn()?;
        self.expect_len(self.len)?;
        let appended = if entry.may_lag() {
            self.files.append_soon(&self.path, &line)
        } else {
            self.files.append(&self.path, &line)
        };
        if let Err(error) = appended {
            self.torn = Some(line);
            return Err(error.into());
        }
        let len = self.len + line.len() as u64;
        if let Err(error) = self.expect_len(len) {
            self.torn = Some(line);
            return Err(error);
        }
        self.len = len;
        let before = match (&self.witness, entry.task()) {
            (Some(_), Some(task)) => self.ledger.task(task).cloned(),
            _ => None,
        };
        self.ledger.apply(entry);
        if let Some(witness) = &self.witness {
            witness.recorded(entry, before.as_ref(), entry.task().and_then(|task| self.ledger.task(task)));
        }
        Ok(())
    }

    /// Tells somebody of every record from now on.
    pub fn set_witness(&mut self, witness: Arc<dyn Witness>) {
        self.witness = Some(witness);
    }

    fn cut_off_torn(&mut self) -> Result<(), JournalError> {
        let Some(line) = &self.torn else { return Ok(()) };
        if self.files.stamp(&self.path)?.is_some() {
            let bytes = self.files.read(&self.path)?;
            let known = usize::try_from(self.len).unwrap_or(usize::MAX);
            // What somebody else wrote is not cut off.
            if !bytes.get(known..).is_some_and(|tail| line.starts_with(tail)) {
                return Err(JournalError::Foreign { path: self.path.clone() });
            }
            self.files.truncate(&self.path, self.len)?;
        }
        self.torn = None;
        Ok(())
    }

    fn expect_len(&self, len: u64) -> Result<(), JournalError> {
        let found = self.files.stamp(&self.path)?.map_or(0, |stamp| stamp.size);
        if found == len { Ok(()) } else { Err(JournalError::Foreign { path: self.path.clone() }) }
    }
}

fn encode(entry: &Entry) -> String {
    let json = serde_json::to_string(entry).expect("BUG: a journal record is plain data");
    format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
}

/// Reads all whole records; gives the length that they take and the file's length.
fn load(files: &dyn Files, path: &Path) -> Result<(Stored, u64, u64), JournalError> {
    scan(files, path, false)
}

/// `lenient`: passes over what only a newer program understands, for those who only look.
fn scan(files: &dyn Files, path: &Path, lenient: bool) -> Result<(Stored, u64, u64), JournalError> {
    let mut stored = Stored::default();
    if files.stamp(path)?.is_none() {
        return Ok((stored, 0, 0));
    }
    let bytes = files.read(path)?;
    let mut len = 0;
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let at = number + 1;
        let Some(json) = checked(line) else {
            if len + line.len() == bytes.len() {
                break;
            }
            return Err(JournalError::Damaged { path: path.to_owned(), line: at });
        };
        len += line.len();
        // The checksum held, so what does not parse was written on purpose by a program that knows more.
        let entry = serde_json::from_slice::<Entry>(json).ok();
        let is_newer = match &entry {
            None => true,
            Some(Entry::Opened { format, .. }) => *format > FORMAT,
            Some(_) => false,
        };
        if is_newer && !lenient {
            return Err(JournalError::Newer { path: path.to_owned(), line: at });
        }
        stored.newer |= is_newer;
        if let Some(entry) = entry {
            stored.ledger.apply(&entry);
            stored.entries.push(entry);
        }
    }
    Ok((stored, len as u64, bytes.len() as u64))
}

/// The JSON of a line whose checksum holds.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let (sum, json) = line.split_at_checked(8)?;
    let json = json.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32fast::hash(json) == sum).then_some(json)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::record::{OsFiles, State, TaskRecord};
    use crate::spec::TaskId;
    use crate::status::Request;

    fn now() -> Now {
        Now { wall: jiff::Timestamp::UNIX_EPOCH, monotonic: Duration::from_secs(1), boot_id: "boot".into() }
    }

    fn requested(task: &str) -> Entry {
        let task = TaskId::new(task).expect("valid");
        Entry::Requested { task, request: Request::Cancel, at: now().moment() }
    }

    fn open(dir: &Path) -> Result<Journal, JournalError> {
        Journal::open(Arc::new(OsFiles), dir, &now(), || InstanceId("one".into()))
    }

    fn written(dir: &Path) -> PathBuf {
        let mut journal = open(dir).expect("opens");
        for task in ["a", "b"] {
            journal.append(&requested(task)).expect("appends");
        }
        dir.join(NAME)
    }

    #[test]
    fn what_was_appended_is_there_after_a_restart_under_the_same_instance() {
        let dir = tempfile::tempdir().expect("temp dir");
        written(dir.path());
        let again = Journal::open(Arc::new(OsFiles), dir.path(), &now(), || InstanceId("two".into())).expect("opens");
        assert_eq!(again.instance().to_string(), "one");
        assert_eq!(again.ledger().tasks().count(), 2);
    }

    #[test]
    fn a_tail_torn_at_any_byte_is_cut_off_and_the_rest_stands() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = written(dir.path());
        let whole = fs::read(&path).expect("reads");
        let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').expect("lines") + 1;
        for cut in last..whole.len() {
            fs::write(&path, &whole[..cut]).expect("writes");
            let mut journal = open(dir.path()).expect("opens");
            assert_eq!(journal.ledger().tasks().count(), 1, "cut at {cut}");
            journal.append(&requested("b")).expect("appends");
            assert_eq!(fs::read(&path).expect("reads"), whole, "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_the_tail_is_told_and_nothing_is_written() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = written(dir.path());
        let mut bytes = fs::read(&path).expect("reads");
        bytes[12] ^= 1;
        fs::write(&path, &bytes).expect("writes");
        assert!(matches!(open(dir.path()), Err(JournalError::Damaged { line: 1, .. })));
        assert_eq!(fs::read(&path).expect("reads"), bytes);
    }

    #[test]
    fn of_two_writers_neither_goes_on_unaware_of_the_other() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut one = open(dir.path()).expect("opens");
        let mut two = open(dir.path()).expect("opens");
        one.append(&requested("a")).expect("the first is in");
        assert!(matches!(two.append(&requested("b")), Err(JournalError::Foreign { .. })));
        two.append(&requested("b")).expect_err("and stays out");
        one.append(&requested("c")).expect("the first goes on");
        assert_eq!(Journal::read(&OsFiles, dir.path()).expect("reads").entries.len(), 3);
    }

    #[test]
    fn what_another_writer_added_is_never_cut_off() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut one = open(dir.path()).expect("opens");
        one.torn = Some(b"mine".to_vec());
        let path = dir.path().join(NAME);
        let mut bytes = fs::read(&path).expect("reads");
        bytes.extend_from_slice(b"theirs");
        fs::write(&path, &bytes).expect("writes");
        assert!(matches!(one.append(&requested("a")), Err(JournalError::Foreign { .. })));
        assert_eq!(fs::read(&path).expect("reads"), bytes);
    }

    #[test]
    fn a_long_journal_is_put_together_and_gives_the_same_and_its_history_stays_readable() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = written(dir.path());
        let mut text = fs::read_to_string(&path).expect("reads");
        while text.len() as u64 <= LONG {
            text.extend(std::iter::repeat_n(encode(&requested("a")), 1_000));
        }
        fs::write(&path, &text).expect("writes");
        let before = Journal::read(&OsFiles, dir.path()).expect("reads");
        let mut journal = open(dir.path()).expect("opens");
        assert_eq!(journal.ledger(), &before.ledger);
        journal.append(&requested("c")).expect("appends");
        assert!(fs::metadata(&path).expect("there").len() < 10_000);
        let after = Journal::read(&OsFiles, dir.path()).expect("reads");
        assert_eq!(after.ledger, *open(dir.path()).expect("opens").ledger());
        assert!(after.entries.len() > before.entries.len());
    }

    #[test]
    fn every_task_record_survives_being_put_together() {
        let at = now().moment();
        let task = TaskId::new("a").expect("valid");
        let hold = crate::record::Hold {
            reason: crate::status::Reason::ImageMissing,
            message: "no image".into(),
            key: "k".into(),
        };
        let waiting = State::Waiting {
            reason: crate::status::Reason::BackOff,
            since: at.clone(),
            pause: Duration::from_millis(1_500),
        };
        for state in [State::Idle, waiting, State::Held(hold), State::Done(crate::status::Status::Failed)] {
            let record = TaskRecord { state, attempt: 3, failures: 2, owns_branch: true, ..TaskRecord::default() };
            let kept = Entry::Kept { task: task.clone(), record: Box::new(record.clone()), at: at.clone() };
            let text = serde_json::to_string(&kept).expect("plain data");
            assert_eq!(serde_json::from_str::<Entry>(&text).expect("reads"), kept);
            let mut ledger = Ledger::default();
            ledger.apply(&kept);
            assert_eq!(ledger.task(&task), Some(&record));
        }
    }

    #[test]
    fn a_record_of_a_newer_program_is_not_passed_over() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = written(dir.path());
        let json = r#"{"type":"teleported","task":"a"}"#;
        let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let mut bytes = fs::read(&path).expect("reads");
        bytes.extend_from_slice(line.as_bytes());
        fs::write(&path, bytes).expect("writes");
        assert!(matches!(open(dir.path()), Err(JournalError::Newer { line: 4, .. })));
        let seen = Journal::read(&OsFiles, dir.path()).expect("who only looks sees what there is");
        assert!(seen.newer && seen.entries.len() == 3);
    }
}
