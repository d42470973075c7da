//! A container's log as a stream.

use std::collections::VecDeque;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::classify::Failure;
use super::endpoint::Endpoint;
use super::frames::{FrameError, Frames};
use super::stream::{Body, get};
use crate::runtime::{LogChunk, LogOptions};

/// Opens the log of a container; `raw` where it has a terminal.
pub(super) async fn open(
    endpoint: &Endpoint,
    id: &str,
    raw: bool,
    options: LogOptions,
    limit: Duration,
) -> Result<BoxStream<'static, Result<LogChunk, Failure>>, Failure> {
    let body = get(endpoint, &target(id, options), limit).await?;
    Ok(chunks(body, Frames::new(raw)))
}

fn target(id: &str, options: LogOptions) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("stdout", "1").append_pair("stderr", "1");
    if options.follow {
        query.append_pair("follow", "1");
    }
    if let Some(lines) = options.tail {
        query.append_pair("tail", &lines.to_string());
    }
    if let Some(since) = options.since {
        query.append_pair("since", &super::events::unix_time(since));
    }
    format!("/containers/{id}/logs?{}", query.finish())
}

struct State {
    body: Body,
    frames: Frames,
    ready: VecDeque<LogChunk>,
    /// An error that comes after what is ready.
    failed: Option<Failure>,
    ended: bool,
}

fn chunks(body: Body, frames: Frames) -> BoxStream<'static, Result<LogChunk, Failure>> {
    let state = State { body, frames, ready: VecDeque::new(), failed: None, ended: false };
    stream::try_unfold(state, |mut state| async move {
        loop {
            if let Some(chunk) = state.ready.pop_front() {
                return Ok(Some((chunk, state)));
            }
            if let Some(failure) = state.failed.take() {
                return Err(failure);
            }
            if state.ended {
                return Ok(None);
            }
            let mut out = Vec::new();
            let result = if let Some(piece) = state.body.try_next().await? {
                state.frames.push(piece, &mut out)
            } else {
                state.ended = true;
                state.frames.finish()
            };
            state.ready.extend(out);
            state.failed = result.err().map(Failure::from);
        }
    })
    .boxed()
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        let message = error.to_string();
        match error {
            FrameError::Cut => Self::Broken(message),
            FrameError::UnknownStream(_) => Self::Answer(message),
            FrameError::Engine(_) => Self::Status { code: 500, message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        assert_eq!(target("abc", LogOptions::default()), "/containers/abc/logs?stdout=1&stderr=1");
        let options = LogOptions { follow: true, tail: Some(5), since: "1970-01-01T00:00:01.5Z".parse().ok() };
        assert_eq!(target("abc", options), "/containers/abc/logs?stdout=1&stderr=1&follow=1&tail=5&since=1.500000000");
    }
}
