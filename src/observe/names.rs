//! Names that tie a task to what exists outside: container, labels, branch, refs, paths. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::spec::TaskId;

/// Identifies one clone on one machine: random, made once in the state dir, so that two clones with the same committed
/// plan file never meet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(pub Arc<str>);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Identifies exactly one container: a task and the number of the attempt, from 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptKey {
    /// The task.
    pub task: TaskId,
    /// The attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.task, self.attempt)
    }
}

/// What a container of an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The agent runs in it.
    Agent,
    /// It verifies what the agent left.
    Verify,
}

/// Label keys on our containers.
pub mod label {
    /// The clone; ours means that it matches.
    pub const INSTANCE: &str = "dev.orchestrate.instance";
    /// The plan's id.
    pub const PLAN: &str = "dev.orchestrate.plan";
    /// The task's id.
    pub const TASK: &str = "dev.orchestrate.task";
    /// The attempt's number.
    pub const ATTEMPT: &str = "dev.orchestrate.attempt";
    /// Digest of the spec that was launched.
    pub const SPEC: &str = "dev.orchestrate.spec";
    /// The commit that the branch started from.
    pub const BASE: &str = "dev.orchestrate.base";
    /// What the container is for, where it is not the agent's.
    pub const ROLE: &str = "dev.orchestrate.role";
    /// On a container that is a person's and no attempt's: the attempt whose worktree it looks into. It has no other label.
    pub const SHELL: &str = "dev.orchestrate.shell";
}

/// Folder of all worktrees, relative to the repository.
pub const WORKTREES: &str = ".worktrees";

/// The container's name, which the engine lets exist only once: the mutex of a launch.
pub fn container(instance: &InstanceId, key: &AttemptKey) -> String {
    format!("orch-{instance}-{key}")
}

/// The name of the container that verifies an attempt's result. No attempt's own name ends like this, since those end in a
/// number.
pub fn verify_container(instance: &InstanceId, key: &AttemptKey) -> String {
    format!("orch-{instance}-{key}-verify")
}

/// The name of a person's container over what an attempt left; no attempt's own name ends like this.
pub fn shell_container(instance: &InstanceId, key: &AttemptKey, chance: u32) -> String {
    format!("orch-{instance}-{key}-{chance:08x}-shell")
}

/// The value of [`label::ROLE`] on a container that verifies a result.
pub const VERIFY: &str = "verify";

/// The labels of an attempt's container.
pub fn labels(instance: &InstanceId, plan: &str, key: &AttemptKey, spec: &str, base: &str) -> BTreeMap<String, String> {
    [
        (label::INSTANCE, instance.to_string()),
        (label::PLAN, plan.to_owned()),
        (label::TASK, key.task.to_string()),
        (label::ATTEMPT, key.attempt.to_string()),
        (label::SPEC, spec.to_owned()),
        (label::BASE, base.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The attempt that a container's labels name, where they are of this instance and well formed.
pub fn attempt_of<'a>(instance: &InstanceId, get: impl Fn(&str) -> Option<&'a str>) -> Option<AttemptKey> {
    if get(label::INSTANCE)? != &*instance.0 {
        return None;
    }
    let task = TaskId::new(get(label::TASK)?).ok()?;
    let attempt = get(label::ATTEMPT)?.parse().ok().filter(|n| *n > 0)?;
    Some(AttemptKey { task, attempt })
}

/// What a container's labels say that it is for.
pub fn role_of<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Role {
    match get(label::ROLE) {
        Some(VERIFY) => Role::Verify,
        _ => Role::Agent,
    }
}

/// Short name of the task's branch.
pub fn branch(task: &TaskId) -> String {
    format!("agent/{task}")
}

/// Full name of the task's branch.
pub fn branch_ref(task: &TaskId) -> String {
    format!("refs/heads/agent/{task}")
}

/// Ref that keeps a task's base alive.
pub fn base_ref(plan: &str, task: &TaskId) -> String {
    format!("refs/orchestrate/{plan}/{task}/base")
}

/// Ref that keeps the tip that a fresh retry gave up.
pub fn kept_ref(plan: &str, key: &AttemptKey) -> String {
    format!("refs/orchestrate/{plan}/{}/kept/{}", key.task, key.attempt)
}

/// What all refs of a plan's tasks begin with.
pub fn plan_refs(plan: &str) -> String {
    format!("refs/orchestrate/{plan}/")
}

/// The task of a ref that [`kept_ref`] made, also where a number was put behind its name.
pub fn task_of_kept(full_ref: &str) -> Option<&str> {
    let mut parts = full_ref.strip_prefix("refs/orchestrate/")?.splitn(4, '/');
    let (_plan, task, kept, _attempt) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    (kept == "kept").then_some(task)
}

/// The task's worktree, relative to the repository.
pub fn worktree(task: &TaskId) -> PathBuf {
    Path::new(WORKTREES).join(task.as_str())
}

/// The state dir under a repository's common git directory.
pub fn state_dir(common_dir: &Path) -> PathBuf {
    common_dir.join("orchestrate")
}

/// An attempt's folder under the state dir: prompt, log, result.
pub fn attempt_dir(state_dir: &Path, key: &AttemptKey) -> PathBuf {
    state_dir.join("attempts").join(key.task.as_str()).join(key.attempt.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_lead_back_to_the_attempt_and_to_no_other_instance() {
        let instance = InstanceId("5f3a9c01".into());
        let key = AttemptKey { task: TaskId::new("api.v2-x").expect("valid"), attempt: 12 };
        let labels = labels(&instance, "p", &key, "d", "b");
        let get = |name: &str| labels.get(name).map(String::as_str);
        assert_eq!(attempt_of(&instance, get), Some(key.clone()));
        assert_eq!(attempt_of(&InstanceId("other".into()), get), None);
        assert_eq!(container(&instance, &key), "orch-5f3a9c01-api.v2-x-12");
    }

    #[test]
    fn malformed_labels_are_not_ours() {
        let instance = InstanceId("i".into());
        for (task, attempt) in [("../x", "1"), ("a", "0"), ("a", "-1"), ("a", "x")] {
            let get = |name: &str| match name {
                label::INSTANCE => Some("i"),
                label::TASK => Some(task),
                label::ATTEMPT => Some(attempt),
                _ => None,
            };
            assert_eq!(attempt_of(&instance, get), None, "{task} {attempt}");
        }
    }
}
