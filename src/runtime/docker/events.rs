//! The engine's events as a stream.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bollard::models::EventMessage;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::classify::Failure;
use super::convert;
use super::endpoint::Endpoint;
use super::stream::{Body, get};
use crate::observe::InstanceId;
use crate::runtime::RuntimeEvent;

/// No event of an engine is longer; what is longer is no event.
const LINE_LIMIT: usize = 1 << 20;

/// Subscribes. `since` is the engine's own time from just before: an engine sends its headers a moment before it
/// listens to itself, and replays what happened after `since`, so nothing falls between.
pub(super) async fn open(
    endpoint: &Endpoint,
    instance: InstanceId,
    since: Timestamp,
    limit: Duration,
) -> Result<BoxStream<'static, Result<RuntimeEvent, Failure>>, Failure> {
    let body = get(endpoint, &target(since), limit).await?;
    let subscribed = stream::once(async { Ok(RuntimeEvent::Subscribed) });
    Ok(subscribed.chain(events(body, instance)).boxed())
}

/// Images carry no label of ours, so instances are told apart on our side.
fn target(since: Timestamp) -> String {
    let filters = BTreeMap::from([("type", &["container", "image"][..]), ("event", convert::ACTIONS)]);
    let filters = serde_json::to_string(&filters).expect("BUG: a map of texts is JSON");
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("since", &unix_time(since))
        .append_pair("filters", &filters)
        .finish();
    format!("/events?{query}")
}

/// Seconds with nanoseconds, which every engine's API reads.
pub(super) fn unix_time(at: Timestamp) -> String {
    let nanoseconds = at.as_nanosecond().max(0);
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

struct State {
    body: Body,
    lines: Lines,
    ready: VecDeque<RuntimeEvent>,
}

fn events(body: Body, instance: InstanceId) -> BoxStream<'static, Result<RuntimeEvent, Failure>> {
    let state = State { body, lines: Lines::default(), ready: VecDeque::new() };
    stream::try_unfold((state, instance), |(mut state, instance)| async move {
        loop {
            if let Some(event) = state.ready.pop_front() {
                return Ok(Some((event, (state, instance))));
            }
            let Some(piece) = state.body.try_next().await? else {
                return Err(Failure::Connect {
                    kind: std::io::ErrorKind::ConnectionAborted,
                    message: "the engine ended the event stream".to_owned(),
                });
            };
            let lines = state.lines.push(&piece)?;
            state.ready.extend(lines.iter().filter_map(|line| read(&instance, line)));
        }
    })
    .boxed()
}

fn read(instance: &InstanceId, line: &[u8]) -> Option<RuntimeEvent> {
    match serde_json::from_slice::<EventMessage>(line) {
        Ok(message) => convert::event(instance, &message),
        // Something happened that this version cannot read.
        Err(_) => Some(RuntimeEvent::Unclear),
    }
}

/// Cuts the stream into lines.
#[derive(Debug, Default)]
struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut lines = Vec::new();
        let mut parts = piece.split(|byte| *byte == b'\n');
        // The last part has no end yet.
        let last = parts.next_back().unwrap_or_default();
        for part in parts {
            self.partial.extend_from_slice(part);
            let line = std::mem::take(&mut self.partial);
            if !line.trim_ascii().is_empty() {
                lines.push(line);
            }
        }
        self.partial.extend_from_slice(last);
        if self.partial.len() > LINE_LIMIT {
            return Err(Failure::Answer("an event is longer than 1 MiB".to_owned()));
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_again() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"{\"a\":").expect("short"), Vec::<Vec<u8>>::new());
        assert_eq!(lines.push(b"1}\r\n\n{}\n{").expect("short"), [b"{\"a\":1}\r".to_vec(), b"{}".to_vec()]);
        assert_eq!(lines.push(b"}\n").expect("short"), [b"{}".to_vec()]);
        assert!(lines.push(&vec![b'x'; LINE_LIMIT + 1]).is_err());
    }

    #[test]
    fn what_cannot_be_read_calls_for_a_list() {
        let instance = InstanceId("i".into());
        assert_eq!(read(&instance, b"nonsense"), Some(RuntimeEvent::Unclear));
        assert_eq!(read(&instance, br#"{"Type":"marvel","Action":"create"}"#), Some(RuntimeEvent::Unclear));
        assert_eq!(read(&instance, b"{}"), None);
    }

    #[test]
    fn the_engine_replays_from_the_time_asked_for() {
        let target = target("2026-12-01T04:07:11.848069516Z".parse().expect("a time"));
        assert!(target.starts_with("/events?since=1796098031.848069516&filters=%7B%22event%22"), "{target}");
        assert_eq!(unix_time(Timestamp::MIN), "0.000000000");
    }
}
