//! Tells when what a task is held for may have changed: a fingerprint of exactly that, compared now and then.

use super::base;
use super::context::Context;
use super::job::DependencyHead;
use crate::observe::names;
use crate::spec::TaskSpec;
use crate::status::Reason;

/// What a hold of this reason depends on, as a text to compare. The spec is always part of it.
pub async fn fingerprint(context: &Context, spec: &TaskSpec, heads: &[DependencyHead], reason: Reason) -> String {
    let facts = match reason {
        Reason::ImageMissing => image(context, spec).await,
        Reason::SecretMissing => secrets(context, spec),
        Reason::BranchConflict | Reason::WorktreeConflict => branch(context, spec).await,
        Reason::MergeConflict => format!("{} {}", branch(context, spec).await, merge(context, heads).await),
        Reason::BaseMissing => {
            context.repository.resolve(&spec.attempt.base).await.map_or_else(|_| String::new(), |commit| commit.0)
        }
        _ => String::new(),
    };
    format!("{} {facts}", spec.digest.as_str())
}

async fn image(context: &Context, spec: &TaskSpec) -> String {
    let Some(reference) = &spec.attempt.image else { return String::new() };
    match context.runtime.image(reference).await {
        Ok(Some(image)) => image.id,
        // Time to ask a registry again that was away.
        Ok(None) if context.pulls.due(reference, &context.clock.now()) => "due".to_owned(),
        // An engine that does not answer has not changed anything.
        Ok(None) | Err(_) => String::new(),
    }
}

fn secrets(context: &Context, spec: &TaskSpec) -> String {
    let missing = spec.attempt.secrets.iter().filter(|secret| context.secrets.find(secret).is_err());
    missing.map(|secret| secret.env.as_str()).collect::<Vec<_>>().join(",")
}

async fn branch(context: &Context, spec: &TaskSpec) -> String {
    let tip = context.repository.tip(&names::branch_ref(&spec.id)).await.ok().flatten();
    let path = context.repository.layout().root.join(names::worktree(&spec.id));
    let worktree = context.files.stamp(&path).ok().flatten().map(|stamp| stamp.inode);
    let agent = context.repository.tip("refs/heads/agent").await.ok().flatten();
    format!("{tip:?} {worktree:?} {agent:?}")
}

async fn merge(context: &Context, heads: &[DependencyHead]) -> String {
    let heads = base::heads(context, heads).await.unwrap_or_default();
    heads.iter().map(|head| head.commit.0.as_str()).collect::<Vec<_>>().join(",")
}
