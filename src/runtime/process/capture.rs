//! A command's output on disk: frames in numbered segments, the first and the last ones kept.
//!
//! A frame is 16 bytes of head (a mark, the stream, two zeros, the length, and microseconds since the epoch, little
//! endian) and then its bytes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::folder;
use crate::runtime::LogStream;

/// Bytes after which a segment is full.
pub(super) const SEGMENT: u64 = 8 << 20;
/// Segments that are kept: the first, and the newest of the others.
pub(super) const KEPT: u64 = 8;
pub(super) const HEAD: usize = 16;
/// Most bytes of one frame.
pub(super) const FRAME: usize = 64 << 10;
const MARK: u8 = b'L';

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) stream: LogStream,
    pub(super) len: usize,
    pub(super) micros: i64,
}

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[0] = MARK;
        bytes[1] = match self.stream {
            LogStream::Stdout => 1,
            LogStream::Stderr => 2,
        };
        bytes[4..8].copy_from_slice(&u32::try_from(self.len).unwrap_or(u32::MAX).to_le_bytes());
        bytes[8..].copy_from_slice(&self.micros.to_le_bytes());
        bytes
    }

    /// `None`: no head of ours.
    pub(super) fn parse(bytes: [u8; HEAD]) -> Option<Self> {
        let [mark, stream, 0, 0, l0, l1, l2, l3, micros @ ..] = bytes else { return None };
        let stream = match stream {
            1 => LogStream::Stdout,
            2 => LogStream::Stderr,
            _ => return None,
        };
        let len = usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
        (mark == MARK && len <= FRAME).then_some(Self { stream, len, micros: i64::from_le_bytes(micros) })
    }
}

/// The file of a segment.
pub(super) fn segment(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log.{number}"))
}

/// Writes output.
#[derive(Debug)]
pub(super) struct Sink {
    dir: PathBuf,
    number: u64,
    file: Option<File>,
    size: u64,
    frame: Vec<u8>,
}

impl Sink {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, number: 0, file: None, size: 0, frame: Vec::new() }
    }

    /// Adds output, at most [`FRAME`] bytes. Where it cannot be written it is lost: a full disk must not stop a command.
    pub(super) fn write(&mut self, stream: LogStream, at: Timestamp, bytes: &[u8]) -> io::Result<()> {
        if self.size >= SEGMENT {
            self.file = None;
            self.number += 1;
            self.size = 0;
            if let Some(old) = self.number.checked_sub(KEPT - 1).filter(|old| *old > 0) {
                fs::remove_file(segment(&self.dir, old)).ok();
            }
        }
        self.frame.clear();
        self.frame.extend(Head { stream, len: bytes.len(), micros: at.as_microsecond() }.bytes());
        self.frame.extend(bytes);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(folder::private(&segment(&self.dir, self.number))?),
        };
        // In one write, so that a reader meets few halves; one that is left by a full disk is cut off again.
        if let Err(error) = file.write_all(&self.frame) {
            file.set_len(self.size)?;
            io::Seek::seek(file, io::SeekFrom::Start(self.size))?;
            return Err(error);
        }
        self.size += u64::try_from(self.frame.len()).unwrap_or(u64::MAX);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives() {
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            let head = Head { stream, len: FRAME, micros: -5 };
            assert_eq!(Head::parse(head.bytes()), Some(head));
        }
        assert_eq!(Head::parse([0; HEAD]), None);
        assert_eq!(Head::parse([b'L', 1, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn the_first_and_the_last_are_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut sink = Sink::new(dir.path().to_owned());
        let frame = vec![b'x'; FRAME];
        let mut written = 0;
        while written < 3 * KEPT * SEGMENT {
            sink.write(LogStream::Stdout, Timestamp::UNIX_EPOCH, &frame).expect("written");
            written += u64::try_from(FRAME).expect("small");
        }
        let sizes: Vec<u64> = fs::read_dir(dir.path())
            .expect("listed")
            .map(|entry| entry.expect("read").metadata().expect("read").len())
            .collect();
        assert_eq!(sizes.len() as u64, KEPT);
        assert!(sizes.iter().sum::<u64>() <= KEPT * (SEGMENT + FRAME as u64 + 16));
        assert!(segment(dir.path(), 0).exists());
    }
}
