//! The part of a spec that still matters once an attempt runs. It is kept with the attempt, so that an edit of a running
//! task changes nothing before its next attempt, and a task that the file no longer names can still be taken in.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::{AttemptSpec, EmptyPolicy, GitAccess, Leftovers, RateLimit, RetryBackoff};

/// The part of a spec that still matters once an attempt runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Stop past this age, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// Flag past this age, milliseconds.
    stale_after_ms: u64,
    /// Flag after so long without output, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    silent_after_ms: Option<u64>,
    /// Name of the agent's profile; tasks of one agent share a provider's limit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Further attempts after a failed one.
    #[serde(default)]
    pub retries: u32,
    retry_initial_ms: u64,
    retry_max_ms: u64,
    /// What to do with uncommitted changes.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// What exit 0 without a commit means.
    #[serde(default)]
    pub empty: EmptyPolicy,
    /// How much of git the container was given, and with it where its result is.
    #[serde(default)]
    pub git_access: GitAccess,
    /// When an exit means that the provider's limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// What is run over the result after exit 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Vec<String>>,
}

impl Terms {
    /// Stop past this age.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(Duration::from_millis)
    }

    /// Flag past this age.
    pub fn stale_after(&self) -> Duration {
        Duration::from_millis(self.stale_after_ms)
    }

    /// Flag after so long without output.
    pub fn silent_after(&self) -> Option<Duration> {
        self.silent_after_ms.map(Duration::from_millis)
    }

    /// Pause between attempts.
    pub fn retry_backoff(&self) -> RetryBackoff {
        RetryBackoff {
            initial: Duration::from_millis(self.retry_initial_ms),
            max: Duration::from_millis(self.retry_max_ms),
        }
    }
}

impl From<&AttemptSpec> for Terms {
    fn from(spec: &AttemptSpec) -> Self {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            timeout_ms: spec.timeout.map(ms),
            stale_after_ms: ms(spec.stale_after),
            silent_after_ms: spec.silent_after.map(ms),
            agent: spec.agent.clone(),
            retries: spec.retries,
            retry_initial_ms: ms(spec.retry_backoff.initial),
            retry_max_ms: ms(spec.retry_backoff.max),
            leftovers: spec.leftovers,
            empty: spec.empty,
            git_access: spec.git_access,
            rate_limit: spec.rate_limit.clone(),
            verify: spec.verify.clone(),
        }
    }
}
