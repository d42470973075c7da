//! The runtime's events, where they come in.

use std::future::pending;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::runtime::{RuntimeError, RuntimeEvent};

/// What the runtime tells.
pub(super) type Events = BoxStream<'static, Result<RuntimeEvent, RuntimeError>>;

/// The next of them; never, where none come in.
pub(super) async fn next(events: &mut Option<Events>) -> Option<Result<RuntimeEvent, RuntimeError>> {
    match events {
        Some(events) => events.next().await,
        None => pending().await,
    }
}
