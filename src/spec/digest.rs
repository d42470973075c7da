//! The digest of what is asked of a task.
//!
//! It covers what people wrote, merged over the layers, and not what this program fills in: a new version with another
//! default image, another flag for an agent or a new field changes no digest, so finished work stays finished. What is
//! for people only (`title`, `description` beside a `prompt`) and our status fields are left out too.

use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::fields::Settings;
use super::id::TaskId;
use super::model::{Network, SpecDigest};

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
        pull,
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
    let mut form = Form { text: String::from("{") };
    // In the order of the alphabet, so that no map is needed to sort them.
    form.put("base", base.as_ref());
    form.put("command", command.as_ref());
    form.put("empty", empty.as_ref());
    form.put("env", env.as_ref().filter(|env| !env.is_empty()));
    form.put("git_access", git_access.as_ref());
    form.put("image", image.as_ref());
    form.put("leftovers", leftovers.as_ref());
    form.put("mounts", mounts.as_ref().filter(|mounts| !mounts.is_empty()));
    form.put("network", network.as_ref().map(Network::as_str));
    form.put("priority", priority.as_ref());
    form.put("pull", pull.as_ref());
    form.put("rate_limit", rate_limit.as_ref());
    let resources = resources.unwrap_or_default();
    form.put("resources.cpus", resources.cpus);
    form.put("resources.memory", resources.memory);
    form.put("resources.pids", resources.pids);
    form.put("resources.shm", resources.shm);
    form.put("retries", retries.as_ref());
    let backoff = retry_backoff.unwrap_or_default();
    form.put("retry_backoff.initial", backoff.initial.map(millis));
    form.put("retry_backoff.max", backoff.max.map(millis));
    form.put("retry_mode", retry_mode.as_ref());
    form.put("secrets", secrets.as_ref().filter(|secrets| !secrets.is_empty()));
    form.put("silent_after", silent_after.map(millis));
    form.put("stale_after", stale_after.map(millis));
    form.put("timeout", timeout.map(millis));
    form.put("user", user.map(|user| user.to_string()));
    form.put("verify", verify.as_ref());
    form.text.push('}');
    form.text
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

struct Form {
    text: String,
}

impl Form {
    fn put(&mut self, name: &str, value: Option<impl Serialize>) {
        let Some(value) = value else { return };
        if self.text.len() > 1 {
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(name);
        self.text.push_str("\":");
        self.text.push_str(&serde_json::to_string(&value).expect("BUG: plain data is JSON"));
    }
}

/// The digest of a task, given the canonical form of its settings, which many tasks share.
pub(crate) fn digest(agent: &str, settings: &str, prompt: Option<&str>, dependencies: &[TaskId]) -> SpecDigest {
    let mut sorted: Vec<&str> = dependencies.iter().map(TaskId::as_str).collect();
    sorted.sort_unstable();
    let mut hash = Sha256::new();
    let mut part = |name: &str, text: &str| {
        // Lengths keep one part from running into the next.
        hash.update(name.as_bytes());
        hash.update((text.len() as u64).to_le_bytes());
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
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    SpecDigest(format!("{:016x}", u64::from_be_bytes(first)).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::fields::ResourceFields;
    use crate::spec::model::{MountSpec, RetryMode};

    #[test]
    fn the_form_is_pinned() {
        // These texts are stored in journals and labels: a change here makes every finished task look changed.
        assert_eq!(digest("claude", &canonical(&Settings::default()), Some("Do it"), &[]).as_str(), "bd42877088f05180");
        let full = Settings {
            image: Some("a:1".into()),
            env: Some([("A".to_owned(), "1".to_owned())].into()),
            mounts: Some(vec![MountSpec { source: "s".into(), target: "/t".into(), read_only: true }]),
            timeout: Some(Duration::from_mins(1)),
            retry_mode: Some(RetryMode::Fresh),
            secrets: Some(Vec::new()),
            resources: Some(ResourceFields { pids: Some(9), ..ResourceFields::default() }),
            ..Settings::default()
        };
        assert_eq!(
            canonical(&full),
            r#"{"env":{"A":"1"},"image":"a:1","mounts":[{"source":"s","target":"/t","read_only":true}],"resources.pids":9,"retry_mode":"fresh","timeout":60000}"#
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
