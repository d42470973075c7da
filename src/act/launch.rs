//! Makes an attempt: intent, branch and worktree, container, start. Every step may find its work done already.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::base;
use super::context::Context;
use super::error::{ActError, one_line};
use super::job::{DependencyHead, Job};
use super::mounts::{self, PROJECT, RUN};
use super::secret_files::{self, SECRETS};
use super::secrets::SecretValue;
use super::{pull, report, start};
use crate::git::{
    AccessRequest, CommitId, GitAccessPlan, GitError, RepositoryLayout, StartOverRequest, WorktreeRequest,
    WorktreeState,
};
use crate::observe::{AttemptKey, ContainerDetail, ContainerState, ObservedContainer, names};
use crate::record::{Entry, TaskRecord};
use crate::runtime::{Bind, CreateRequest, ErrorKind, ImageInfo, RuntimeEvent};
use crate::spec::{AttemptSpec, GitAccess, RetryMode, SecretHandOver, TaskSpec, Terms, User};
use crate::status::Reason;

/// What can be known to stand in the way before anything is made.
struct Checked {
    secrets: BTreeMap<String, String>,
    files: BTreeMap<String, SecretValue>,
    mounts: Vec<Bind>,
    image: Option<ImageInfo>,
}

/// Makes an attempt, or goes on with one that was begun.
pub(super) async fn launch(context: &Context, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
    let Some(spec) = &job.spec else {
        return Err(ActError::hold(Reason::InvalidSpec, "the plan file no longer names this task"));
    };
    if spec.is_record {
        let message = "nothing says any more what is to be done: the YAML spec no longer names this task";
        return Err(ActError::hold(Reason::InvalidSpec, message));
    }
    let checked = check(context, job, &spec.attempt).await;
    if context.known(&job.key.task).is_called_off() {
        return Ok(());
    }
    let checked = checked?;
    let mut base = base::resolve(context, job, spec).await?;
    let begun = job.record.attempt == job.key.attempt;
    if !begun || job.record.current.as_ref().is_none_or(|current| current.spec != spec.digest) {
        let intent = Entry::Intent {
            key: job.key.clone(),
            spec: spec.digest.clone(),
            host: context.runtime.host().to_owned(),
            terms: Terms::from(spec.attempt.as_ref()),
            at: context.moment(),
        };
        // A person may have called it off while its image and its base were looked at.
        if !context.record_unless(&job.key.task, &intent, TaskRecord::is_called_off)? {
            return Ok(());
        }
    }
    start_over(context, job, spec, &base).await?;
    let worktree = match worktree(context, job, &base).await {
        // Until a ref holds it, a `git gc --prune=now` may take the merge away; it is made again.
        Err(ActError::Git(GitError::UnknownRevision(_))) if job.heads.len() > 1 => {
            base = base::resolve(context, job, spec).await?;
            worktree(context, job, &base).await?
        }
        made => made?,
    };
    context.record(&Entry::Prepared {
        key: job.key.clone(),
        base: base.clone(),
        start: worktree.tip.clone(),
        image: checked.image.as_ref().map(|image| image.digest.clone().unwrap_or_else(|| image.id.clone())),
        at: context.moment(),
    })?;
    let request = request(context, job, spec, &base, worktree, checked, None).await?;
    run(context, job, &request, events).await
}

/// Makes and starts the container that verifies what the agent left, or goes on with one that was begun.
pub(super) async fn verify(context: &Context, job: &Job, events: &mut Vec<RuntimeEvent>) -> Result<(), ActError> {
    let current = job.record.current.as_ref();
    let verify = current.and_then(|current| Some((current.terms.verify.clone()?, current.base.clone()?)));
    let (Some(spec), Some((command, base))) = (&job.spec, verify) else {
        return Err(ActError::hold(Reason::InvalidSpec, "the plan file no longer names this task"));
    };
    let checked = check(context, job, &spec.attempt).await?;
    let worktree = worktree(context, job, &base).await?;
    let request = request(context, job, spec, &base, worktree, checked, Some(command)).await?;
    run(context, job, &request, events).await
}

async fn run(
    context: &Context,
    job: &Job,
    request: &CreateRequest,
    events: &mut Vec<RuntimeEvent>,
) -> Result<(), ActError> {
    let container = create(context, job, request, events).await?;
    if container.has_run {
        return start::note_running(context, &job.key);
    }
    start::start(context, &job.key, &container.container, events).await
}

async fn check(context: &Context, job: &Job, spec: &AttemptSpec) -> Result<Checked, ActError> {
    let (mut secrets, mut files) = (BTreeMap::new(), BTreeMap::new());
    for secret in &spec.secrets {
        let value = context.secrets.find(secret).map_err(|missing| {
            let message =
                format!("secret {} has no value: {}; set it where orchestrate runs", missing.name, missing.tried);
            ActError::hold(Reason::SecretMissing, message)
        })?;
        match secret.hand_over {
            SecretHandOver::Env => drop(secrets.insert(secret.env.clone(), value.expose().to_owned())),
            SecretHandOver::File => drop(files.insert(secret.env.clone(), value)),
        }
    }
    let layout = context.repository.layout();
    let resolve = |mount| mounts::resolve(mount, layout, context.home.as_deref(), &context.sockets);
    let mounts: Vec<Bind> = spec
        .mounts
        .iter()
        .map(resolve)
        .collect::<Result<_, _>>()
        .map_err(|why| ActError::hold(Reason::MountRefused, why))?;
    let image = pull::image(context, job, spec).await?;
    Ok(Checked { secrets, files, mounts, image })
}

/// What makes a missing image be there: for those of the built-in agents the command that builds it.
pub fn image_mend(reference: &str) -> String {
    let built_in = reference.strip_prefix("orchestrate/").and_then(|rest| rest.split([':', '@']).next());
    match built_in.filter(|name| crate::spec::BUILT_IN_AGENTS.contains(name)) {
        Some(name) => format!("`docker build -t {reference} deploy/agents/{name}` in orchestrate's sources builds it"),
        None => format!("build it (`docker build -t {reference} …`) or `docker pull {reference}`"),
    }
}

/// With `retry_mode: fresh`, a further attempt begins at the base. Only before the attempt is known to be prepared: what
/// stands there later is its own.
async fn start_over(context: &Context, job: &Job, spec: &TaskSpec, base: &CommitId) -> Result<(), ActError> {
    let is_prepared = || {
        let known = context.known(&job.key.task);
        known.attempt == job.key.attempt && known.current.is_some_and(|current| current.start.is_some())
    };
    if spec.attempt.retry_mode != RetryMode::Fresh || !job.record.owns_branch || is_prepared() {
        return Ok(());
    }
    let task = &job.key.task;
    let before = AttemptKey { task: task.clone(), attempt: job.key.attempt.saturating_sub(1) };
    let request = StartOverRequest {
        path: names::worktree(task),
        branch: names::branch_ref(task),
        base: base.clone(),
        kept_ref: names::kept_ref(&job.plan_id, &before),
        subject: format!("{task}: uncommitted changes of attempt {}", before.attempt),
    };
    context.repository.start_over(&request).await?;
    Ok(())
}

async fn worktree(context: &Context, job: &Job, base: &CommitId) -> Result<WorktreeState, ActError> {
    let task = &job.key.task;
    // A branch that stands exactly where a person merged all heads is taken over as the base (see `base`).
    let request = WorktreeRequest {
        path: names::worktree(task),
        branch: names::branch_ref(task),
        base: base.clone(),
        base_ref: names::base_ref(&job.plan_id, task),
        branch_is_ours: job.record.owns_branch,
        lock_reason: format!("orchestrate: task {task}"),
    };
    match context.repository.ensure_worktree(&request).await {
        Err(GitError::ForeignBranch { tip, .. }) if is_untouched(context, &request, &tip).await? => {
            // We died between making it and recording so, and what it is to begin from has changed since.
            let kept_ref = names::kept_ref(&job.plan_id, &job.key);
            let subject = format!("{task}: uncommitted changes before attempt {}", job.key.attempt);
            let (path, branch) = (request.path.clone(), request.branch.clone());
            let over = StartOverRequest { path, branch, base: base.clone(), kept_ref, subject };
            context.repository.start_over(&over).await?;
            Ok(context.repository.ensure_worktree(&request).await?)
        }
        other => Ok(other?),
    }
}

/// Whether a branch stands where we made it: a base ref, which only we write and write first, says so.
async fn is_untouched(context: &Context, request: &WorktreeRequest, tip: &CommitId) -> Result<bool, GitError> {
    Ok(context.repository.tip(&request.base_ref).await?.as_ref() == Some(tip))
}

async fn request(
    context: &Context,
    job: &Job,
    spec: &TaskSpec,
    base: &CommitId,
    worktree: WorktreeState,
    checked: Checked,
    verify: Option<Vec<String>>,
) -> Result<CreateRequest, ActError> {
    let attempt = &spec.attempt;
    let instance = context.instance();
    let mut labels = names::labels(&instance, &job.plan_id, &job.key, spec.digest.as_str(), &base.0);
    let mut dir = context.attempt_dir(&job.key);
    let name = if verify.is_some() {
        labels.insert(names::label::ROLE.to_owned(), names::VERIFY.to_owned());
        dir.push("verify");
        names::verify_container(&instance, &job.key)
    } else {
        names::container(&instance, &job.key)
    };
    let owner = owner(context.repository.layout(), attempt, checked.image.as_ref());
    let access = access(context, job, attempt, base, &worktree, owner.writes, dir).await?;
    let prompt = prompt(context, job, spec)?;
    let mut env = access.env;
    env.extend(task_env(context, job, base).await?);
    env.extend(attempt.env.clone());
    env.extend(checked.secrets);
    let secrets = secret_binds(context, job, &checked.files, owner.writes)?;
    env.extend(checked.files.keys().map(|name| (format!("{name}_FILE"), format!("{SECRETS}/{name}"))));
    let mut mounts = vec![Bind { source: worktree.path, target: PROJECT.to_owned(), read_only: false }];
    mounts.extend(mounts::of_git(access.binds)?);
    mounts.extend(prompt);
    if verify.is_none() {
        let source = report::make(context, &job.key, owner.writes)?;
        mounts.push(Bind { source, target: format!("{RUN}/{}", report::NAME), read_only: false });
    }
    mounts.extend(dependency_reports(context, job));
    mounts.extend(secrets);
    mounts.extend(checked.mounts);
    let text = spec.effective_prompt().unwrap_or_default();
    Ok(CreateRequest {
        name,
        labels,
        key: job.key.clone(),
        image: attempt.image.clone(),
        command: verify.or_else(|| attempt.command.as_ref().map(|words| fill(words, job, text))),
        env,
        mounts,
        workdir: PROJECT.to_owned(),
        user: owner.user,
        network: attempt.network.as_str().to_owned(),
        resources: attempt.resources,
    })
}

async fn access(
    context: &Context,
    job: &Job,
    spec: &AttemptSpec,
    base: &CommitId,
    worktree: &WorktreeState,
    owner: Option<(u32, u32)>,
    attempt_dir: PathBuf,
) -> Result<GitAccessPlan, ActError> {
    let request = AccessRequest {
        worktree: worktree.clone(),
        access: spec.git_access,
        branch: names::branch_ref(&job.key.task),
        base: base.clone(),
        visible: job.heads.iter().map(|head| head.branch.clone()).collect(),
        attempt_dir,
        mount_point: PROJECT.into(),
        owner,
    };
    Ok(context.repository.open_access(&request).await?)
}

/// Whether the agent works on a private git directory that is to be imported from.
pub(super) fn is_isolated(access: GitAccess) -> bool {
    access == GitAccess::Isolated
}

/// Who an attempt runs as.
pub(super) struct Owner {
    /// For the engine; `None`: the image's own.
    pub(super) user: Option<String>,
    /// Who must be able to write what it writes, where that is known.
    writes: Option<(u32, u32)>,
}

pub(super) fn owner(layout: &RepositoryLayout, spec: &AttemptSpec, image: Option<&ImageInfo>) -> Owner {
    let ids = |uid, gid| Owner { user: Some(format!("{uid}:{gid}")), writes: Some((uid, gid)) };
    let image_user = || {
        let text = image.map(|image| image.user.as_str()).unwrap_or_default();
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        let numbers = uid.parse().ok().zip(gid.parse().ok());
        Owner { user: None, writes: if text.is_empty() { Some((0, 0)) } else { numbers } }
    };
    match spec.user {
        User::Ids { uid, gid } => ids(uid, gid),
        // Root's repository says nothing about who the agent should be.
        User::Auto if layout.uid != 0 => ids(layout.uid, layout.gid),
        User::Auto | User::Image => image_user(),
    }
}

/// Writes the prompt into the attempt's folder and mounts it; nothing is written into the worktree, where an agent could
/// have planted a link.
fn prompt(context: &Context, job: &Job, spec: &TaskSpec) -> Result<Option<Bind>, ActError> {
    let Some(text) = spec.effective_prompt() else { return Ok(None) };
    let dir = context.attempt_dir(&job.key);
    context.files.create_dir_all(&dir)?;
    let path = dir.join("prompt");
    let temp = context.files.write_temp(&dir, "prompt.tmp-", text.as_bytes(), None)?;
    context.files.rename(&temp, &path)?;
    Ok(Some(Bind { source: path, target: format!("{RUN}/prompt"), read_only: true }))
}

/// Writes the secrets that are handed over as files, and mounts them.
fn secret_binds(
    context: &Context,
    job: &Job,
    files: &BTreeMap<String, SecretValue>,
    owner: Option<(u32, u32)>,
) -> Result<Vec<Bind>, ActError> {
    let instance = context.instance();
    let bind = |(name, value): (&String, &SecretValue)| {
        let folders = context.secrets.folders();
        let source = secret_files::write(folders, &instance, &job.key, name, value.expose(), owner)
            .map_err(|error| ActError::hold(Reason::InvalidSpec, format!("secret {name}: {}", one_line(&error))))?;
        Ok(Bind { source, target: format!("{SECRETS}/{name}"), read_only: true })
    };
    files.iter().map(bind).collect()
}

/// What the agents of the dependencies left, for this one to read.
fn dependency_reports(context: &Context, job: &Job) -> Vec<Bind> {
    let bind = |head: &DependencyHead| {
        let key = context.known(&head.task).key(&head.task)?;
        let target = format!("{RUN}/dependencies/{}/{}", head.task, report::NAME);
        Some(Bind { source: report::kept(context, &key)?, target, read_only: true })
    };
    job.heads.iter().filter_map(bind).collect()
}

async fn task_env(context: &Context, job: &Job, base: &CommitId) -> Result<BTreeMap<String, String>, ActError> {
    let heads = base::heads(context, &job.heads).await?;
    let heads: Vec<String> = heads.iter().map(|head| format!("{}={}", head.task, head.commit)).collect();
    let dependencies: Vec<&str> = job.heads.iter().map(|head| head.task.as_str()).collect();
    let variables = [
        ("ORCHESTRATE_TASK", job.key.task.to_string()),
        ("ORCHESTRATE_ATTEMPT", job.key.attempt.to_string()),
        ("ORCHESTRATE_BRANCH", names::branch(&job.key.task)),
        ("ORCHESTRATE_BASE", base.to_string()),
        ("ORCHESTRATE_DEPENDENCIES", dependencies.join(" ")),
        ("ORCHESTRATE_DEPENDENCY_HEADS", heads.join(" ")),
        ("ORCHESTRATE_PROMPT_FILE", format!("{RUN}/prompt")),
        ("ORCHESTRATE_RESULT_FILE", format!("{RUN}/{}", report::NAME)),
    ];
    Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Fills the template words in one go, so that a prompt that holds a template word is not filled again.
fn fill(words: &[String], job: &Job, prompt: &str) -> Vec<String> {
    let value = |name: &str| match name {
        "prompt" => Some(prompt.to_owned()),
        "prompt_file" => Some(format!("{RUN}/prompt")),
        "task_id" => Some(job.key.task.to_string()),
        "branch" => Some(names::branch(&job.key.task)),
        _ => None,
    };
    words.iter().map(|word| fill_word(word, value)).collect()
}

fn fill_word(word: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(open) = rest.find("{{") {
        let (before, after) = rest.split_at(open);
        filled.push_str(before);
        let inner = &after[2..];
        let known = inner.find("}}").and_then(|close| Some((value(inner[..close].trim())?, close)));
        let (text, after) = known.map_or(("{{".to_owned(), 0), |(text, close)| (text, close + 2));
        filled.push_str(&text);
        rest = &inner[after..];
    }
    filled.push_str(rest);
    filled
}

struct Made {
    container: ObservedContainer,
    has_run: bool,
}

/// Makes the container. Where its name exists, the engine has made it before for us or somebody else has it.
async fn create(
    context: &Context,
    job: &Job,
    request: &CreateRequest,
    events: &mut Vec<RuntimeEvent>,
) -> Result<Made, ActError> {
    let made = match context.runtime.create(request).await {
        Ok(id) => Made {
            container: ObservedContainer {
                id,
                name: request.name.clone(),
                key: job.key.clone(),
                plan: job.plan_id.clone(),
                role: names::role_of(|name| request.labels.get(name).map(String::as_str)),
                state: ContainerState::Created,
            },
            has_run: false,
        },
        Err(error) if error.kind == ErrorKind::NameTaken => {
            match context.runtime.inspect(&context.instance(), &request.name).await? {
                Some(detail) if detail.container.key != job.key => {
                    let message = format!(
                        "{} is the name of the container of {}, which somebody renamed; rename it back, then \
                         `orchestrate retry`",
                        request.name, detail.container.key
                    );
                    return Err(ActError::hold(Reason::NameConflict, message));
                }
                Some(detail) => adopted(detail),
                // Gone between the two calls; the next pass makes it again.
                None => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    context.record(&Entry::Created {
        key: job.key.clone(),
        container_id: made.container.id.clone(),
        container: made.container.name.clone(),
        at: context.moment(),
    })?;
    events.push(RuntimeEvent::Created(made.container.clone()));
    if made.has_run {
        events.push(match made.container.state {
            ContainerState::Exited | ContainerState::Dead => RuntimeEvent::Exited(made.container.clone()),
            _ => RuntimeEvent::Started(made.container.clone()),
        });
    }
    Ok(made)
}

fn adopted(detail: ContainerDetail) -> Made {
    let has_run = detail.started_at.is_some() || detail.container.state != ContainerState::Created;
    Made { container: detail.container, has_run }
}

#[cfg(test)]
mod tests {
    use super::fill_word;

    #[test]
    fn template_words_are_filled_once_and_unknown_ones_stay() {
        let value = |name: &str| match name {
            "prompt" => Some("say {{task_id}}".to_owned()),
            "task_id" => Some("a".to_owned()),
            _ => None,
        };
        assert_eq!(fill_word("{{prompt}}: {{ task_id }} {{x}} {{", value), "say {{task_id}}: a {{x}} {{");
    }
}
