//! Looks whether an attempt has written anything of late: one short read, not a stream.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;

use super::context::Context;
use crate::runtime::LogOptions;

/// Longer than this no answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a container has written anything since; `None` where nobody can tell.
pub async fn has_written(context: &Context, container: &str, since: Timestamp) -> Option<bool> {
    let options = LogOptions { follow: false, tail: Some(1), since: Some(since) };
    let mut log = context.runtime.logs(container, options);
    match tokio::time::timeout(PATIENCE, log.next()).await {
        Ok(Some(Ok(_))) => Some(true),
        Ok(None) => Some(false),
        Ok(Some(Err(_))) | Err(_) => None,
    }
}
