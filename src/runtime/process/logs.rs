//! Reads a command's output back, and goes on while it is written.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::adapter::blocking;
use super::capture::{HEAD, Head, SEGMENT, segment};
use super::folder::{Folder, FolderError, Phase, at};
use super::watch::Watch;
use crate::runtime::{LogChunk, LogOptions, LogStream};

/// Bytes that are read at a time.
const BATCH: usize = 256 << 10;
/// Between two looks where the folder cannot be watched, and in any case now and then.
const LOOK: Duration = Duration::from_millis(500);

/// A place in the output.
#[derive(Debug, Clone)]
struct Cursor {
    dir: PathBuf,
    segment: u64,
    offset: u64,
    /// Lines that are still to be passed over.
    skip: u64,
    /// Microseconds since the epoch.
    since: i64,
}

/// Opens the output of an attempt.
pub(super) fn open(folder: Folder, options: LogOptions) -> BoxStream<'static, Result<LogChunk, FolderError>> {
    let since = options.since.map_or(i64::MIN, jiff::Timestamp::as_microsecond);
    let cursor = Cursor { dir: folder.path.clone(), segment: 0, offset: 0, skip: 0, since };
    let begin = async move {
        let mut cursor = cursor;
        if let Some(tail) = options.tail {
            let counted = cursor.clone();
            let lines = blocking(move || count(counted)).await?;
            cursor.skip = lines.saturating_sub(u64::from(tail));
        }
        let watch = options.follow.then(|| follow(&folder.path)).flatten();
        Ok(stream::try_unfold(Some(Reading { folder, cursor, watch, follow: options.follow }), step).try_flatten())
    };
    stream::once(begin).try_flatten().boxed()
}

fn follow(dir: &Path) -> Option<Watch> {
    let watch = Watch::new().ok()?;
    watch.add_with_writes(dir).ok()?;
    Some(watch)
}

struct Reading {
    folder: Folder,
    cursor: Cursor,
    watch: Option<Watch>,
    follow: bool,
}

type Chunks = BoxStream<'static, Result<LogChunk, FolderError>>;

/// Reads on; `None` at the end.
async fn step(reading: Option<Reading>) -> Result<Option<(Chunks, Option<Reading>)>, FolderError> {
    let Some(mut reading) = reading else { return Ok(None) };
    loop {
        let (folder, cursor) = (reading.folder.clone(), reading.cursor.clone());
        let follow = reading.follow;
        let (cursor, chunks, over) = blocking(move || {
            // Whether more can come is asked before reading, so that nothing is written in between.
            let over =
                !follow || folder.look()?.is_none_or(|look| matches!(look.phase, Phase::Ended(..) | Phase::Husk));
            let mut cursor = cursor;
            let (chunks, exhausted) = cursor.read()?;
            Ok((cursor, chunks, over && exhausted))
        })
        .await?;
        reading.cursor = cursor;
        if over || !chunks.is_empty() {
            let chunks = stream::iter(chunks.into_iter().map(Ok)).boxed();
            return Ok(Some((chunks, (!over).then_some(reading))));
        }
        match &reading.watch {
            // A watch that fails is made up for by looking now and then.
            Some(watch) => drop(tokio::time::timeout(LOOK, watch.changes()).await),
            None => tokio::time::sleep(LOOK / 10).await,
        }
    }
}

impl Cursor {
    /// Reads some; whether that was all that is there.
    fn read(&mut self) -> Result<(Vec<LogChunk>, bool), FolderError> {
        let mut chunks = Vec::new();
        let mut size = 0;
        while size < BATCH {
            let Some((head, bytes)) = self.next(&mut chunks)? else { return Ok((chunks, true)) };
            size += bytes.len();
            let bytes = self.pass_over(bytes);
            if head.micros >= self.since && !bytes.is_empty() {
                chunks.push(LogChunk { stream: head.stream, bytes });
            }
        }
        Ok((chunks, false))
    }

    fn pass_over(&mut self, mut bytes: Bytes) -> Bytes {
        while self.skip > 0 {
            match memchr::memchr(b'\n', &bytes) {
                Some(end) => {
                    self.skip -= 1;
                    bytes = bytes.split_off(end + 1);
                }
                None => return Bytes::new(),
            }
        }
        bytes
    }

    /// The next whole frame. Where segments are gone, says so in the output itself.
    fn next(&mut self, chunks: &mut Vec<LogChunk>) -> Result<Option<(Head, Bytes)>, FolderError> {
        loop {
            if let Some(found) = self.frame()? {
                return Ok(Some(found));
            }
            // A segment is only begun when the one before is full.
            let Some(next) = following(&self.dir, self.segment)? else { return Ok(None) };
            // Its last frame may have been written since we looked.
            if let Some(found) = self.frame()? {
                return Ok(Some(found));
            }
            let missing = next - self.segment - 1;
            if missing > 0 {
                let text = format!("\n[orchestrate: {} MiB of output are left out here]\n", missing * (SEGMENT >> 20));
                chunks.push(LogChunk { stream: LogStream::Stderr, bytes: text.into() });
            }
            (self.segment, self.offset) = (next, 0);
        }
    }

    fn frame(&mut self) -> Result<Option<(Head, Bytes)>, FolderError> {
        let path = segment(&self.dir, self.segment);
        let mut file = match File::open(&path) {
            Ok(file) => BufReader::with_capacity(4096, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at("open", &path)(error)),
        };
        file.seek(SeekFrom::Start(self.offset)).map_err(at("read", &path))?;
        let mut head = [0; HEAD];
        if !whole(&mut file, &mut head).map_err(at("read", &path))? {
            return Ok(None);
        }
        let head = Head::parse(head).ok_or_else(|| at("understand", &path)(io::ErrorKind::InvalidData.into()))?;
        let mut bytes = vec![0; head.len];
        if !whole(&mut file, &mut bytes).map_err(at("read", &path))? {
            return Ok(None);
        }
        self.offset += u64::try_from(HEAD + head.len).unwrap_or(u64::MAX);
        Ok(Some((head, bytes.into())))
    }
}

/// Fills the buffer; false where the file ends before, as it does while a frame is being written.
fn whole(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// The first segment after one.
fn following(dir: &Path, number: u64) -> Result<Option<u64>, FolderError> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(at("read", dir))?,
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("log.")?.parse().ok());
    Ok(numbers.filter(|other| *other > number).min())
}

/// How many lines there are from here on; one without an end counts.
fn count(mut cursor: Cursor) -> Result<u64, FolderError> {
    let (mut lines, mut open) = (0, false);
    loop {
        let (chunks, exhausted) = cursor.read()?;
        for chunk in &chunks {
            lines += u64::try_from(memchr::memchr_iter(b'\n', &chunk.bytes).count()).unwrap_or(u64::MAX);
            open = chunk.bytes.last().is_some_and(|last| *last != b'\n');
        }
        if exhausted {
            return Ok(lines + u64::from(open));
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::capture::{FRAME, KEPT, Sink};
    use super::*;

    fn cursor(dir: &Path, skip: u64) -> Cursor {
        Cursor { dir: dir.to_owned(), segment: 0, offset: 0, skip, since: i64::MIN }
    }

    fn text(mut cursor: Cursor) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (chunks, exhausted) = cursor.read().expect("read");
            all.extend(chunks.iter().flat_map(|chunk| chunk.bytes.to_vec()));
            if exhausted {
                return all;
            }
        }
    }

    #[test]
    fn lines_are_counted_over_frames_and_streams() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut sink = Sink::new(dir.path().to_owned());
        for (stream, bytes) in [(LogStream::Stdout, "a\nb"), (LogStream::Stderr, "c\nd\n"), (LogStream::Stdout, "e")] {
            sink.write(stream, Timestamp::UNIX_EPOCH, bytes.as_bytes()).expect("written");
        }
        assert_eq!(count(cursor(dir.path(), 0)).expect("counted"), 4);
        assert_eq!(text(cursor(dir.path(), 2)), b"d\ne");
        assert_eq!(text(cursor(dir.path(), 4)), b"");
    }

    #[test]
    fn half_a_frame_is_none_yet() {
        let dir = tempfile::tempdir().expect("temp dir");
        Sink::new(dir.path().to_owned()).write(LogStream::Stdout, Timestamp::UNIX_EPOCH, b"whole").expect("written");
        let path = segment(dir.path(), 0);
        let whole = std::fs::read(&path).expect("read");
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).expect("cut");
            let mut cursor = cursor(dir.path(), 0);
            assert_eq!(cursor.read().expect("read"), (Vec::new(), true), "{len}");
            std::fs::write(&path, &whole).expect("made whole");
            assert_eq!(text(cursor), b"whole", "{len}");
        }
    }

    #[test]
    fn what_is_left_out_is_told() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut sink = Sink::new(dir.path().to_owned());
        let frame = vec![b'x'; FRAME];
        let mut written = 0;
        while written < (KEPT + 3) * SEGMENT {
            sink.write(LogStream::Stdout, Timestamp::UNIX_EPOCH, &frame).expect("written");
            written += FRAME as u64;
        }
        let text = text(cursor(dir.path(), 0));
        let notes = String::from_utf8_lossy(&text).matches("MiB of output are left out here").count();
        assert_eq!(notes, 1);
    }
}
