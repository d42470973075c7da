//! Keeps the beginning and the end of a log of any size, in memory of a fixed size.

use std::collections::VecDeque;
use std::time::Duration;

use futures::{Stream, StreamExt};

use super::redact::{Redactor, Secrets};
use crate::runtime::{LogChunk, LogStream};

/// How much of a log's beginning is kept, in bytes.
pub const HEAD: usize = 256 << 10;
/// How much of its end.
pub const TAIL: usize = 8 << 20;
/// An engine that sends nothing for so long has hung: the log of an ended container waits for nobody.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// Keeps the first and the last bytes of what is written to it.
#[derive(Debug)]
pub struct Capture {
    head_limit: usize,
    tail_limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// What was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The bytes; where some were left out, a line in their place says how many.
    pub bytes: Vec<u8>,
    /// Whether some were left out.
    pub truncated: bool,
    /// How many there were.
    pub total: u64,
}

impl Capture {
    /// Keeps so many bytes of the beginning and of the end.
    pub fn new(head: usize, tail: usize) -> Self {
        Self { head_limit: head, tail_limit: tail, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        // Makes room first, so that the memory never grows beyond the limit.
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        let needed = self.tail.len() + rest.len();
        if needed > self.tail.capacity() {
            let capacity = self.tail.capacity().saturating_mul(2).min(self.tail_limit).max(needed);
            self.tail.reserve_exact(capacity - self.tail.len());
        }
        self.tail.extend(rest);
    }

    /// What was kept. Where something was left out, half a character at each cut goes with it.
    pub fn finish(mut self) -> Captured {
        let kept = u64::try_from(self.head.len() + self.tail.len()).unwrap_or(u64::MAX);
        let truncated = kept < self.total;
        let mut bytes = self.head;
        let tail = self.tail.make_contiguous();
        if truncated {
            bytes.truncate(bytes.len() - cut_character(&bytes));
            let tail = &tail[continuation(tail)..];
            let left_out = self.total - u64::try_from(bytes.len() + tail.len()).unwrap_or(u64::MAX);
            bytes.extend_from_slice(format!("\n[{left_out} bytes left out]\n").as_bytes());
            bytes.extend_from_slice(tail);
        } else {
            bytes.extend_from_slice(tail);
        }
        Captured { bytes, truncated, total: self.total }
    }
}

/// How many bytes at the end begin a character of UTF-8 that does not end there.
fn cut_character(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let wanted = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if back < wanted { back } else { 0 };
    }
    0
}

/// How many bytes at the beginning go on with a character that began before.
fn continuation(bytes: &[u8]) -> usize {
    let count = bytes.iter().take(4).take_while(|byte| matches!(byte, 0x80..=0xbf)).count();
    // More than three are no text.
    if count > 3 { 0 } else { count }
}

/// Captures a container's log with its secrets masked. The streams are looked at apart, so that a secret is found
/// although the other stream's output came between its parts.
#[derive(Debug)]
pub struct LogCapture<'a> {
    stdout: Redactor<'a>,
    stderr: Redactor<'a>,
    capture: Capture,
    masked: Vec<u8>,
}

impl<'a> LogCapture<'a> {
    /// With the default limits.
    pub fn new(secrets: &'a Secrets) -> Self {
        Self {
            stdout: Redactor::new(secrets),
            stderr: Redactor::new(secrets),
            capture: Capture::new(HEAD, TAIL),
            masked: Vec::new(),
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, chunk: &LogChunk) {
        self.masked.clear();
        match chunk.stream {
            LogStream::Stdout => self.stdout.push(&chunk.bytes, &mut self.masked),
            LogStream::Stderr => self.stderr.push(&chunk.bytes, &mut self.masked),
        }
        self.capture.push(&self.masked);
    }

    /// What was kept.
    pub fn finish(mut self) -> Captured {
        self.masked.clear();
        self.stdout.finish(&mut self.masked);
        self.stderr.finish(&mut self.masked);
        self.capture.push(&self.masked);
        self.capture.finish()
    }
}

/// A captured log, whole or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogResult<E> {
    /// What could be read.
    pub captured: Captured,
    /// Why there is no more.
    pub failed: Option<LogFailure<E>>,
}

/// Why a log could not be read to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogFailure<E> {
    /// The runtime said so.
    #[error("the log could not be read to its end")]
    Runtime(#[source] E),
    /// Nothing came.
    #[error("the log stopped coming: nothing for {} s", .0.as_secs())]
    Silent(Duration),
}

/// Reads a log to its end.
pub async fn capture_log<E>(log: impl Stream<Item = Result<LogChunk, E>> + Unpin, secrets: &Secrets) -> LogResult<E> {
    let mut log = log;
    let mut capture = LogCapture::new(secrets);
    let failed = loop {
        match tokio::time::timeout(IDLE_LIMIT, log.next()).await {
            Ok(Some(Ok(chunk))) => capture.push(&chunk),
            Ok(Some(Err(error))) => break Some(LogFailure::Runtime(error)),
            Ok(None) => break None,
            Err(_) => break Some(LogFailure::Silent(IDLE_LIMIT)),
        }
    };
    LogResult { captured: capture.finish(), failed }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use proptest::prelude::*;

    use super::*;

    fn captured(head: usize, tail: usize, pieces: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(head, tail);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish()
    }

    proptest! {
        #[test]
        fn the_beginning_and_the_end_are_kept_however_it_comes(
            bytes in prop::collection::vec(0_u8..0x80, 0..200),
            head in 0_usize..40,
            tail in 0_usize..40,
            size in 1_usize..50,
        ) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            let captured = captured(head, tail, &pieces);
            prop_assert_eq!(captured.total, bytes.len() as u64);
            prop_assert_eq!(captured.truncated, bytes.len() > head + tail);
            let expected = if captured.truncated {
                let left_out = bytes.len() - head - tail;
                let mark = format!("\n[{left_out} bytes left out]\n");
                [&bytes[..head], mark.as_bytes(), &bytes[bytes.len() - tail..]].concat()
            } else {
                bytes
            };
            prop_assert_eq!(captured.bytes, expected);
        }

        #[test]
        fn text_stays_text(text in "\\PC{0,60}", head in 0_usize..20, tail in 0_usize..20) {
            let captured = captured(head, tail, &[text.as_bytes()]);
            prop_assert!(String::from_utf8(captured.bytes).is_ok());
        }

        #[test]
        fn memory_stays_within_the_limits(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..30),
        ) {
            let mut capture = Capture::new(16, 64);
            for piece in pieces {
                capture.push(&piece);
                prop_assert!(capture.head.len() <= 16 && capture.tail.len() <= 64);
                prop_assert!(capture.tail.capacity() <= 64);
            }
        }
    }

    #[test]
    fn what_is_no_text_loses_at_most_half_a_character_at_each_cut() {
        let bytes = [0xff_u8; 10];
        assert_eq!(captured(2, 2, &[&bytes]).bytes, b"\xff\xff\n[6 bytes left out]\n\xff\xff");
        let bytes = [0x80_u8; 20];
        let kept = captured(5, 5, &[&bytes]).bytes;
        assert_eq!(kept, [&[0x80; 5][..], b"\n[10 bytes left out]\n", &[0x80; 5]].concat());
    }

    fn chunk(stream: LogStream, text: &'static str) -> LogChunk {
        LogChunk { stream, bytes: text.as_bytes().into() }
    }

    #[tokio::test]
    async fn a_secret_is_found_across_frames_with_the_other_stream_between() {
        let secrets = Secrets::new([&b"hunter2hunter2"[..]]);
        let log = stream::iter([
            chunk(LogStream::Stdout, "a hunter2"),
            chunk(LogStream::Stderr, "b"),
            chunk(LogStream::Stdout, "hunter2 c hunt"),
        ]);
        let result = capture_log(log.map(Ok::<_, &str>), &secrets).await;
        assert_eq!(String::from_utf8_lossy(&result.captured.bytes), "a b*** c hunt");
        assert_eq!(result.failed, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_be_read_is_kept_where_the_rest_could_not() {
        let secrets = Secrets::new([]);
        let log = stream::iter([Ok(chunk(LogStream::Stdout, "a")), Err("gone"), Ok(chunk(LogStream::Stdout, "b"))]);
        let result = capture_log(log, &secrets).await;
        assert_eq!((&result.captured.bytes[..], result.failed), (&b"a"[..], Some(LogFailure::Runtime("gone"))));
        let hung = stream::iter([Ok(chunk(LogStream::Stdout, "a"))]).chain(stream::pending());
        let result = capture_log(hung, &secrets).await;
        assert_eq!(
            (&result.captured.bytes[..], result.failed),
            (&b"a"[..], Some(LogFailure::<&str>::Silent(IDLE_LIMIT)))
        );
    }
}
