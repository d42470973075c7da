//! `orchestrate doctor`: what stands in the way of a launch.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::app::Outcome;
use super::args::TextFormat;
use super::runtime;
use super::world::{Context, World, block_on};
use crate::act::{SecretSource, image_mend};
use crate::controller;
use crate::error::{ExitCode, Report};
use crate::observe::names;
use crate::record::current_holder;
use crate::report::{AgentFact, DiskFact, Doctor, DoctorFacts, EngineAway, Found, PlaceFact, SecretFact};
use crate::runtime::EngineFacts;
use crate::spec::{PullPolicy, RuntimeKind, SecretHandOver, TaskSet, TaskSpec};

/// How long `git --version` may take.
const GIT_LIMIT: Duration = Duration::from_secs(10);
/// Entries of a folder whose owner is looked at; enough to tell that somebody else works there.
const LOOKED_AT: usize = 10_000;

/// Tell what stands in the way of a launch, and how to mend it
///
/// Looks at the engine, its control groups and known-vulnerable versions, at the images, commands and secrets of this
/// plan, at owners, disk space, clocks and the lock. Starts nothing; to look for a command in an image it makes a
/// container and removes it at once. Exits with 4 where something cannot be launched.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate doctor\n  \
                  orchestrate doctor -o json | jq '.checks[] | select(.status != \"ok\")'")]
pub(super) struct DoctorCommand {
    /// How to show it
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        env = "ORCHESTRATE_OUTPUT",
        hide_env_values = true,
        default_value = "text"
    )]
    output: TextFormat,
}

impl DoctorCommand {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let world = context.world()?;
        let facts = block_on(gather(context, &world))?;
        let doctor = Doctor::of(&facts);
        match self.output {
            TextFormat::Text => context.output.data(&doctor.text(context.output.width))?,
            TextFormat::Json => context.output.json(&doctor)?,
            TextFormat::Yaml => context.output.yaml(&doctor)?,
        }
        Ok(if doctor.stops_launches() { ExitCode::Environment } else { ExitCode::Done })
    }
}

async fn gather(context: &Context, world: &World) -> DoctorFacts {
    let layout = world.repository.layout();
    let named = context.global.runtime.map(Into::into);
    let runtime = named.unwrap_or_else(|| runtime::of_files(&world.plan_file, &world.spec));
    let accepted = controller::accepted(&world.ports(), &world.plan_file, &world.spec).await;
    let tasks = accepted.as_ref().ok().map(|accepted| &accepted.tasks);
    let before = world.clock.now().wall;
    let engine = world.runtime.facts().await;
    let after = world.clock.now().wall;
    let engine = engine.map_err(|error| {
        let why = error.to_string();
        EngineAway { why, mend: Report::from(error).hints }
    });
    let skew = engine.as_ref().ok().and_then(|facts| facts.info.time).map(|time| skew(time, before, after));
    let state_dir = world.state_dir();
    let worktrees = layout.root.join(names::WORKTREES);
    let disks = [("worktrees", nearest(&worktrees)), ("state", nearest(&state_dir))].into_iter();
    let disks = disks.map(|(what, path)| DiskFact { what, space: world.files.space(&path), path, is_held: true });
    let mut disks: Vec<DiskFact> = disks.collect();
    disks.extend(engine_disk(world, engine.as_ref().ok()));
    DoctorFacts {
        runtime,
        host: world.runtime.host().to_owned(),
        skew,
        git: git().await,
        uid: rustix::process::geteuid().as_raw(),
        plan: accepted.as_ref().map(|accepted| accepted.tasks.tasks.len()).map_err(ToString::to_string),
        agents: match tasks {
            Some(tasks) if engine.is_ok() => agents(world, tasks, runtime).await,
            _ => Vec::new(),
        },
        secrets: tasks.map(|tasks| secrets(&context.settings.secrets(), tasks)).unwrap_or_default(),
        places: [
            ("the repository", layout.root.clone()),
            (".worktrees", worktrees),
            ("the state dir", state_dir.clone()),
        ]
        .into_iter()
        .map(|(what, path)| PlaceFact { what, found: found(&path), path })
        .collect(),
        disks,
        floor: context.global.disk_floor(),
        holder: current_holder(world.files.as_ref(), &state_dir).map(|holder| holder.to_string()),
        engine,
    }
}

/// The engine's clock less ours; what the question itself took is not held against it.
fn skew(engine: Timestamp, before: Timestamp, after: Timestamp) -> jiff::SignedDuration {
    if engine < before {
        engine.duration_since(before)
    } else if engine > after {
        engine.duration_since(after)
    } else {
        jiff::SignedDuration::ZERO
    }
}

/// Where the engine of this machine keeps images and containers.
fn engine_disk(world: &World, engine: Option<&EngineFacts>) -> Option<DiskFact> {
    let engine = engine.filter(|engine| engine.is_local)?;
    let path = engine.data_root.clone().filter(|path| path.is_dir())?;
    Some(DiskFact { what: "images and containers", space: world.files.space(&path), path, is_held: false })
}

async fn git() -> Option<String> {
    let mut command = tokio::process::Command::new("git");
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(GIT_LIMIT, command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// An agent, its image, when that is fetched, and the first word of its command.
type Form = (String, Option<String>, PullPolicy, Option<Vec<String>>);

/// What the tasks run, each once.
async fn agents(world: &World, tasks: &TaskSet, runtime: RuntimeKind) -> Vec<AgentFact> {
    let mut forms: BTreeMap<Form, Vec<String>> = BTreeMap::new();
    for TaskSpec { id, attempt, .. } in &tasks.tasks {
        let image = attempt.image.clone().filter(|_| runtime == RuntimeKind::Docker);
        // Only the first word matters here, and prompts differ.
        let program = attempt.command.as_ref().map(|words| words.iter().take(1).cloned().collect());
        forms.entry((attempt.agent.clone(), image, attempt.pull, program)).or_default().push(id.to_string());
    }
    let mut facts = Vec::new();
    for ((agent, image, pull, command), tasks) in forms {
        let has_image = match &image {
            Some(image) => world.runtime.image(image).await.ok().map(|found| found.is_some()),
            None => None,
        };
        let looks = image.is_none() || has_image == Some(true);
        let has_program = if looks {
            world.runtime.has_program(image.as_deref(), command.as_deref()).await.ok().flatten()
        } else {
            None
        };
        let mend = image.as_deref().map(image_mend).unwrap_or_default();
        let program = command.and_then(|words| words.into_iter().next());
        let is_pulled = pull != PullPolicy::Never;
        facts.push(AgentFact { agent, tasks, image, program, has_image, is_pulled, has_program, mend });
    }
    facts
}

fn secrets(source: &SecretSource, tasks: &TaskSet) -> Vec<SecretFact> {
    let mut facts: Vec<SecretFact> = Vec::new();
    for TaskSpec { id, attempt, .. } in &tasks.tasks {
        for secret in &attempt.secrets {
            let fact = SecretFact {
                name: secret.env.clone(),
                tasks: vec![id.to_string()],
                missing: source.find(secret).err().map(|missing| missing.tried),
                warnings: source.warnings([secret]),
                is_visible: secret.hand_over == SecretHandOver::Env,
            };
            let same = |known: &&mut SecretFact| {
                (&known.name, &known.missing, &known.warnings, known.is_visible)
                    == (&fact.name, &fact.missing, &fact.warnings, fact.is_visible)
            };
            match facts.iter_mut().find(same) {
                Some(known) => known.tasks.extend(fact.tasks),
                None => facts.push(fact),
            }
        }
    }
    facts
}

fn found(path: &Path) -> Option<Found> {
    let meta = path.symlink_metadata().ok()?;
    let (uid, is_folder) = (meta.uid(), meta.is_dir());
    let is_writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().take(LOOKED_AT);
    let foreign = entries.filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() != uid)).count();
    Some(Found { uid, is_folder, is_writable, foreign })
}

/// The path, or the nearest folder above it that is there.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.exists()).unwrap_or(path).to_owned()
}
