//! Which attempts are to be listened to, where silence is to be noticed.

use std::time::Duration;

use jiff::Timestamp;

use super::plan::Inputs;
use crate::observe::AttemptKey;

/// Whether an attempt has written anything of late is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The attempt.
    pub key: AttemptKey,
    /// Its container's id.
    pub container_id: String,
    /// Since when.
    pub since: Timestamp,
}

/// Which attempts' output is to be looked for: first when `silent_after` has passed, then twice in each such span. And when the
/// next look is due.
pub(super) fn listens(inputs: &Inputs<'_>) -> (Vec<Listen>, Option<Duration>) {
    let mut wake: Option<Duration> = None;
    let mut listens = Vec::new();
    for (key, current) in inputs.ledger.live() {
        let Some(span) = current.terms.silent_after() else { continue };
        let Some(container) = inputs.observed.find(&key, current.role()) else { continue };
        if !container.state.is_live() || inputs.observed.unavailable.is_some() || inputs.memory.listening.contains(&key)
        {
            continue;
        }
        let left = match inputs.memory.heard.get(&key) {
            Some(heard) => heard.at.remaining((span / 2).max(Duration::from_secs(1)), inputs.now),
            None => current.running_since().map_or(span, |since| since.remaining(span, inputs.now)),
        };
        if left.is_zero() {
            let since = inputs.now.wall.checked_sub(span).unwrap_or(Timestamp::MIN);
            listens.push(Listen { key, container_id: container.id.clone(), since });
        } else {
            wake = Some(wake.map_or(left, |wake| wake.min(left)));
        }
    }
    listens.sort_by(|a, b| a.key.cmp(&b.key));
    (listens, wake)
}
