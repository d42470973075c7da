//! Lays settings over each other: the task's over its profile's over the plan's defaults over the built-in ones.

use super::fields::{BackoffFields, ResourceFields, Settings};
use super::model::{
    AttemptSpec, DEFAULT_STALE_AFTER, MountSpec, Network, PullPolicy, Resources, RetryBackoff, SecretSpec, User,
};

impl Settings {
    /// Takes from `under` what is not said here.
    pub(crate) fn over(&mut self, under: &Self) {
        macro_rules! replace {
            ($($field:ident)+) => { $(if self.$field.is_none() { self.$field.clone_from(&under.$field); })+ };
        }
        if self.agent.is_none() {
            self.agent_place = under.agent_place;
        }
        replace!(agent image command network user timeout stale_after silent_after retries retry_mode priority base);
        replace!(pull leftovers verify empty rate_limit git_access);
        if let Some(under) = &under.env {
            let env = self.env.get_or_insert_default();
            for (name, value) in under {
                env.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if let Some(under) = &under.secrets {
            self.add_secrets(under);
        }
        if let Some(under) = &under.mounts {
            let mounts = self.mounts.get_or_insert_default();
            let missing: Vec<MountSpec> =
                under.iter().filter(|u| !mounts.iter().any(|m| m.target == u.target)).cloned().collect();
            mounts.extend(missing);
        }
        if let Some(under) = under.resources {
            let own = self.resources.unwrap_or_default();
            self.resources = Some(ResourceFields {
                cpus: own.cpus.or(under.cpus),
                memory: own.memory.or(under.memory),
                pids: own.pids.or(under.pids),
                shm: own.shm.or(under.shm),
            });
        }
        if let Some(under) = under.retry_backoff {
            let own = self.retry_backoff.unwrap_or_default();
            self.retry_backoff =
                Some(BackoffFields { initial: own.initial.or(under.initial), max: own.max.or(under.max) });
        }
    }

    /// Names of the fields that both give, with different values.
    pub(crate) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let mut names = Vec::new();
        macro_rules! compare {
            ($($field:ident)+) => { $(
                if self.$field.is_some() && other.$field.is_some() && self.$field != other.$field {
                    names.push(stringify!($field));
                }
            )+ };
        }
        compare!(agent image command env secrets resources mounts network user timeout stale_after silent_after retries);
        compare!(pull retry_backoff retry_mode priority base leftovers verify empty rate_limit git_access);
        names
    }

    /// Adds secrets whose variable is not named yet.
    pub(crate) fn add_secrets(&mut self, under: &[SecretSpec]) {
        if under.is_empty() {
            return;
        }
        let secrets = self.secrets.get_or_insert_default();
        let missing: Vec<SecretSpec> =
            under.iter().filter(|u| !secrets.iter().any(|s| s.env == u.env)).cloned().collect();
        secrets.extend(missing);
    }

    /// Fills in what nobody said.
    pub(crate) fn resolve(self, agent: &str) -> AttemptSpec {
        let resources = Resources::default();
        let asked = self.resources.unwrap_or_default();
        let backoff = RetryBackoff::default();
        let pause = self.retry_backoff.unwrap_or_default();
        AttemptSpec {
            agent: agent.to_owned(),
            pull: self.pull.unwrap_or_else(|| PullPolicy::of(self.image.as_deref())),
            image: self.image,
            command: self.command,
            env: self.env.unwrap_or_default(),
            secrets: self.secrets.unwrap_or_default(),
            resources: Resources {
                cpus: asked.cpus.unwrap_or(resources.cpus),
                memory: asked.memory.unwrap_or(resources.memory),
                pids: asked.pids.unwrap_or(resources.pids),
                shm: asked.shm,
            },
            mounts: self.mounts.unwrap_or_default(),
            network: self.network.unwrap_or(Network::Bridge),
            user: self.user.unwrap_or(User::Auto),
            timeout: self.timeout,
            stale_after: self.stale_after.unwrap_or(DEFAULT_STALE_AFTER),
            silent_after: self.silent_after,
            retries: self.retries.unwrap_or(0),
            retry_backoff: RetryBackoff {
                initial: pause.initial.unwrap_or(backoff.initial),
                max: pause.max.unwrap_or(backoff.max),
            },
            retry_mode: self.retry_mode.unwrap_or_default(),
            priority: self.priority.unwrap_or(0),
            base: self.base.unwrap_or_else(|| DEFAULT_BASE.to_owned()),
            leftovers: self.leftovers.unwrap_or_default(),
            verify: self.verify,
            empty: self.empty.unwrap_or_default(),
            rate_limit: self.rate_limit,
            git_access: self.git_access.unwrap_or_default(),
        }
    }
}

/// `base` where nobody says.
pub const DEFAULT_BASE: &str = "HEAD";
