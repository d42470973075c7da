//! The digest of what is asked of a task.
//!
//! It covers what people wrote, merged over the layers, and not what this program fills in: a new version with another
//! default image, another flag for an agent or a new field changes no digest, so finished work stays finished. What is
//! for people only (`title`, `description` beside a `prompt`) and our status fields are left out too.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::fields::Settings;
use super::id::TaskId;
use super::model::SpecDigest;

/// Changed only when the meaning of a field in the canonical form changes.
const FORM: &str = "orchestrate-task-1";

/// The canonical form of settings: names and values as in the file, durations in milliseconds, sizes in bytes, absent
/// and empty ones left out, keys sorted.
pub(crate) fn canonical(settings: &Settings) -> String {
    // Named one by one, so that a field that is added without a thought for its digest does not compile.
    let Settings {
        agent: _,
        agent_place: _,
        image,
        command,
        env,
        secrets,
        resources,
        mounts,
        network,
        user,
        timeout,
        stale_after,
        silent_after,
        retries,
        retry_backoff,
        retry_mode,
        priority,
        base,
        leftovers,
        verify,
        empty,
        rate_limit,
        git_access,
    } = settings;
    let millis = |d: &std::time::Duration| json!(u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let mut form = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        let value =
            value.filter(|v| !v.as_array().is_some_and(Vec::is_empty) && !v.as_object().is_some_and(Map::is_empty));
        if let Some(value) = value {
            form.insert(name.to_owned(), value);
        }
    };
    put("image", image.as_ref().map(|v| json!(v)));
    put("command", command.as_ref().map(|v| json!(v)));
    put("env", env.as_ref().map(|v| json!(v)));
    put("secrets", secrets.as_ref().map(|v| json!(v)));
    if let Some(r) = resources {
        put("resources.cpus", r.cpus.map(|v| json!(v)));
        put("resources.memory", r.memory.map(|v| json!(v)));
        put("resources.pids", r.pids.map(|v| json!(v)));
        put("resources.shm", r.shm.map(|v| json!(v)));
    }
    put("mounts", mounts.as_ref().map(|v| json!(v)));
    put("network", network.as_ref().map(|v| json!(v.as_str())));
    put("user", user.map(|v| json!(v.to_string())));
    put("timeout", timeout.as_ref().map(millis));
    put("stale_after", stale_after.as_ref().map(millis));
    put("silent_after", silent_after.as_ref().map(millis));
    put("retries", retries.map(|v| json!(v)));
    if let Some(b) = retry_backoff {
        put("retry_backoff.initial", b.initial.as_ref().map(millis));
        put("retry_backoff.max", b.max.as_ref().map(millis));
    }
    put("retry_mode", retry_mode.map(|v| json!(v)));
    put("priority", priority.map(|v| json!(v)));
    put("base", base.as_ref().map(|v| json!(v)));
    put("leftovers", leftovers.map(|v| json!(v)));
    put("verify", verify.as_ref().map(|v| json!(v)));
    put("empty", empty.map(|v| json!(v)));
    put("rate_limit", rate_limit.as_ref().map(|v| json!(v)));
    put("git_access", git_access.map(|v| json!(v)));
    form.sort_keys();
    Value::Object(form).to_string()
}

/// The digest of a task, given the canonical form of its settings, which many tasks share.
pub(crate) fn digest(agent: &str, settings: &str, prompt: Option<&str>, dependencies: &[TaskId]) -> SpecDigest {
    let mut sorted: Vec<&str> = dependencies.iter().map(TaskId::as_str).collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    let mut part = |name: &str, text: &str| {
        // Lengths keep one part from running into the next.
        hash.update(format!("{name}:{}:", text.len()).as_bytes());
        hash.update(text.as_bytes());
    };
    part("form", FORM);
    part("agent", agent);
    part("settings", settings);
    if let Some(prompt) = prompt {
        part("prompt", prompt);
    }
    for dependency in sorted {
        part("dependency", dependency);
    }
    let mut hex = String::with_capacity(16);
    for byte in hash.finalize().iter().take(8) {
        let _ = write!(hex, "{byte:02x}");
    }
    SpecDigest(hex.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::model::{MountSpec, RetryMode};

    #[test]
    fn the_form_is_pinned() {
        // These texts are stored in journals and labels: a change here makes every finished task look changed.
        assert_eq!(digest("claude", &canonical(&Settings::default()), Some("Do it"), &[]).as_str(), "6491422a6ab74761");
        let full = Settings {
            image: Some("a:1".into()),
            env: Some([("A".to_owned(), "1".to_owned())].into()),
            mounts: Some(vec![MountSpec { source: "s".into(), target: "/t".into(), read_only: true }]),
            timeout: Some(std::time::Duration::from_mins(1)),
            retry_mode: Some(RetryMode::Fresh),
            secrets: Some(Vec::new()),
            ..Settings::default()
        };
        assert_eq!(
            canonical(&full),
            r#"{"env":{"A":"1"},"image":"a:1","mounts":[{"source":"s","target":"/t","read_only":true}],"retry_mode":"fresh","timeout":60000}"#
        );
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let id = |text| TaskId::new(text).expect("valid");
        let base = digest("a", "{}", Some("p"), &[id("x"), id("y")]);
        assert_eq!(base, digest("a", "{}", Some("p"), &[id("y"), id("x")]));
        assert_ne!(base, digest("a", "{}", Some("p"), &[id("xy")]));
        assert_ne!(base, digest("a", "{}", Some("px"), &[id("y")]));
        assert_ne!(digest("a", "{}", None, &[]), digest("a", "{}", Some(""), &[]));
    }
}
