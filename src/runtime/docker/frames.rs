//! Takes apart the engine's log format: frames of an 8-byte header (stream, three zeros, big-endian length) and so many
//! bytes. Pure. What a frame holds is handed on as it comes, so a frame of any length costs no memory.

use bytes::{Buf, Bytes};

use crate::runtime::{LogChunk, LogStream};

/// The stream is not what the engine's format allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    /// A header names a stream that does not exist.
    #[error("a log frame names the unknown stream {0}")]
    UnknownStream(u8),
    /// The connection ended within a frame.
    #[error("the log ended within a frame")]
    Cut,
    /// The engine could not read its log any further.
    #[error("the engine could not read the log: {0}")]
    Engine(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output(LogStream),
    /// The engine's own word about a log that it cannot read.
    EngineError,
}

/// The state between two pieces of the connection.
#[derive(Debug)]
pub(super) struct Frames {
    /// A terminal's log has no frames.
    raw: bool,
    header: [u8; HEADER],
    filled: usize,
    /// The frame that we are in and what is left of it.
    current: Option<(Stream, usize)>,
    engine_error: Vec<u8>,
}

const HEADER: usize = 8;
/// An engine's error text is short; a longer one is cut.
const ENGINE_ERROR_LIMIT: usize = 4096;

impl Frames {
    pub(super) fn new(raw: bool) -> Self {
        Self { raw, header: [0; HEADER], filled: 0, current: None, engine_error: Vec::new() }
    }

    /// Takes the next piece of the connection and appends what it holds to `out`.
    pub(super) fn push(&mut self, mut piece: Bytes, out: &mut Vec<LogChunk>) -> Result<(), FrameError> {
        if self.raw {
            if !piece.is_empty() {
                out.push(LogChunk { stream: LogStream::Stdout, bytes: piece });
            }
            return Ok(());
        }
        while !piece.is_empty() {
            let Some((stream, left)) = self.current else {
                self.read_header(&mut piece)?;
                continue;
            };
            let bytes = piece.split_to(left.min(piece.len()));
            let left = left - bytes.len();
            match stream {
                Stream::Output(stream) => out.push(LogChunk { stream, bytes }),
                Stream::EngineError => {
                    let room = ENGINE_ERROR_LIMIT - self.engine_error.len();
                    self.engine_error.extend_from_slice(&bytes[..bytes.len().min(room)]);
                    if left == 0 {
                        return Err(FrameError::Engine(String::from_utf8_lossy(&self.engine_error).into_owned()));
                    }
                }
            }
            self.current = (left > 0).then_some((stream, left));
        }
        Ok(())
    }

    /// The connection ended.
    pub(super) fn finish(&self) -> Result<(), FrameError> {
        if self.current.is_some() || self.filled > 0 { Err(FrameError::Cut) } else { Ok(()) }
    }

    fn read_header(&mut self, piece: &mut Bytes) -> Result<(), FrameError> {
        let wanted = (HEADER - self.filled).min(piece.len());
        piece.copy_to_slice(&mut self.header[self.filled..self.filled + wanted]);
        self.filled += wanted;
        if self.filled < HEADER {
            return Ok(());
        }
        self.filled = 0;
        let [kind, _, _, _, length @ ..] = self.header;
        let stream = match kind {
            // Standard input is shown where a terminal would have shown it.
            0 | 1 => Stream::Output(LogStream::Stdout),
            2 => Stream::Output(LogStream::Stderr),
            3 => Stream::EngineError,
            other => return Err(FrameError::UnknownStream(other)),
        };
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        self.current = (length > 0).then_some((stream, length));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).expect("short").to_be_bytes();
        [&[kind, 0, 0, 0], &length[..], bytes].concat()
    }

    /// All output of the same stream in a row joined.
    fn joined(chunks: Vec<LogChunk>) -> Vec<(LogStream, Vec<u8>)> {
        let mut all: Vec<(LogStream, Vec<u8>)> = Vec::new();
        for chunk in chunks {
            match all.last_mut() {
                Some((stream, bytes)) if *stream == chunk.stream => bytes.extend_from_slice(&chunk.bytes),
                _ => all.push((chunk.stream, chunk.bytes.to_vec())),
            }
        }
        all
    }

    proptest! {
        #[test]
        fn pieces_at_any_border_give_the_same_output(
            frames in prop::collection::vec((1_u8..=2, prop::collection::vec(any::<u8>(), 0..20)), 0..8),
            size in 1_usize..30,
        ) {
            let whole: Vec<u8> = frames.iter().flat_map(|(kind, bytes)| frame(*kind, bytes)).collect();
            let mut reader = Frames::new(false);
            let mut chunks = Vec::new();
            for piece in whole.chunks(size) {
                reader.push(Bytes::copy_from_slice(piece), &mut chunks).expect("well formed");
            }
            prop_assert_eq!(reader.finish(), Ok(()));
            let expected = frames
                .into_iter()
                .filter(|(_, bytes)| !bytes.is_empty())
                .map(|(kind, bytes)| LogChunk {
                    stream: if kind == 1 { LogStream::Stdout } else { LogStream::Stderr },
                    bytes: bytes.into(),
                })
                .collect();
            prop_assert_eq!(joined(chunks), joined(expected));
        }
    }

    #[test]
    fn a_frame_that_is_longer_than_memory_is_handed_on_piece_by_piece() {
        let mut reader = Frames::new(false);
        let mut chunks = Vec::new();
        reader.push(Bytes::from_static(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, b'a']), &mut chunks).expect("begins");
        reader.push(Bytes::from_static(b"bc"), &mut chunks).expect("goes on");
        assert_eq!(joined(chunks), [(LogStream::Stdout, b"abc".to_vec())]);
        assert_eq!(reader.finish(), Err(FrameError::Cut));
    }

    #[test]
    fn a_terminals_log_is_taken_as_it_is() {
        let mut reader = Frames::new(true);
        let mut chunks = Vec::new();
        reader.push(Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 9]), &mut chunks).expect("anything goes");
        reader.push(Bytes::new(), &mut chunks).expect("anything goes");
        assert_eq!(joined(chunks), [(LogStream::Stdout, vec![1, 0, 0, 0, 0, 0, 0, 9])]);
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn the_engines_own_error_is_no_output() {
        let mut reader = Frames::new(false);
        let mut chunks = Vec::new();
        let error = reader.push(frame(3, b"disk gone").into(), &mut chunks);
        assert_eq!(error, Err(FrameError::Engine("disk gone".to_owned())));
        assert_eq!(chunks, []);
        let error = Frames::new(false).push(frame(4, b"").into(), &mut chunks);
        assert_eq!(error, Err(FrameError::UnknownStream(4)));
        let mut cut = Frames::new(false);
        cut.push(Bytes::from_static(&[1, 0]), &mut chunks).expect("half a header");
        assert_eq!(cut.finish(), Err(FrameError::Cut));
    }
}
