//! The floor: a program that knows every step in advance and does nothing but ask the engine, woken by its events.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptionsBuilder, EventsOptionsBuilder, StartContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::StreamExt as _;
use orchestrate::observe::{AttemptKey, InstanceId, names};
use orchestrate::runtime::docker::{DockerRuntime, DockerSettings};
use orchestrate::runtime::{Bind, CreateRequest, Runtime as _, RuntimeEvent};
use orchestrate::spec::{Resources, TaskId};
use tokio::sync::mpsc;

use crate::place::IMAGE;

struct Step {
    id: String,
    needs: Vec<usize>,
    command: Vec<String>,
}

/// How containers are made.
#[derive(Clone)]
enum Engine {
    /// By our own adapter, with what orchestrate asks for.
    Same(DockerRuntime, InstanceId),
    /// With nothing set.
    Bare(Docker),
}

/// `HOST NETWORK ORDER KIND SLOTS`, in a folder with the plan.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let done = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(race(arguments)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            crate::say(&error);
            ExitCode::FAILURE
        }
    }
}

fn steps() -> Result<Vec<Step>, String> {
    let text = fs::read_to_string("plan.tsv").map_err(|error| error.to_string())?;
    let step = |line: &str| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().unwrap_or_default();
        let (id, needs, command) = (field(), field(), field());
        Step {
            id: id.to_owned(),
            needs: needs.split(',').filter_map(|need| need.parse().ok()).collect(),
            command: command.split(' ').map(ToOwned::to_owned).collect(),
        }
    };
    Ok(text.lines().map(step).collect())
}

/// Of the ready ones the one that the longest chain waits for, or the first of the file.
fn rank(steps: &[Step], order: &str) -> Vec<usize> {
    let mut below = vec![0; steps.len()];
    if order == "chain" {
        for (i, step) in steps.iter().enumerate().rev() {
            for need in &step.needs {
                below[*need] = below[*need].max(below[i] + 1);
            }
        }
    }
    below
}

async fn race(arguments: &[String]) -> Result<(), String> {
    let [host, network, order, kind, slots] = arguments else { return Err("five arguments".to_owned()) };
    let slots: usize = slots.parse().map_err(|_| "slots")?;
    let steps = Arc::new(steps()?);
    let below = rank(&steps, order);
    let (tell, mut ended) = mpsc::unbounded_channel();
    let engine = connect(host, kind, tell).await?;
    let mut left: Vec<usize> = steps.iter().map(|step| step.needs.len()).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (i, step) in steps.iter().enumerate() {
        for need in &step.needs {
            behind[*need].push(i);
        }
    }
    let index: BTreeMap<String, usize> = steps.iter().enumerate().map(|(i, step)| (step.id.clone(), i)).collect();
    let mut ready: Vec<usize> = (0..steps.len()).filter(|i| left[*i] == 0).collect();
    let (mut running, mut over) = (0, 0);
    let mut starts = tokio::task::JoinSet::new();
    while over < steps.len() {
        ready.sort_by_key(|i| (usize::MAX - below[*i], *i));
        while running < slots && !ready.is_empty() {
            let i = ready.remove(0);
            running += 1;
            let (engine, steps, network) = (engine.clone(), Arc::clone(&steps), network.clone());
            starts.spawn(async move { engine.run(&steps[i], &network).await });
        }
        tokio::select! {
            id = ended.recv() => {
                let id = id.ok_or("the engine's events ended")?;
                let Some(i) = index.get(&id) else { continue };
                running -= 1;
                over += 1;
                for next in &behind[*i] {
                    left[*next] -= 1;
                    if left[*next] == 0 {
                        ready.push(*next);
                    }
                }
            }
            Some(started) = starts.join_next() => started.map_err(|error| error.to_string())??,
        }
    }
    Ok(())
}

async fn connect(host: &str, kind: &str, tell: mpsc::UnboundedSender<String>) -> Result<Engine, String> {
    if kind == "bare" {
        let path = host.strip_prefix("unix://").unwrap_or(host);
        let docker = Docker::connect_with_unix(path, 120, API_DEFAULT_VERSION).map_err(|error| error.to_string())?;
        let docker = docker.negotiate_version().await.map_err(|error| error.to_string())?;
        let filters = std::collections::HashMap::from([("event", vec!["die"])]);
        let mut events = docker.events(Some(EventsOptionsBuilder::default().filters(&filters).build()));
        let watch = async move {
            while let Some(Ok(event)) = events.next().await {
                let name = event.actor.and_then(|actor| actor.attributes).and_then(|mut all| all.remove("name"));
                if let Some(name) = name {
                    drop(tell.send(name));
                }
            }
        };
        #[expect(clippy::disallowed_methods, reason = "it lives as long as the program")]
        tokio::spawn(watch);
        return Ok(Engine::Bare(docker));
    }
    let settings = DockerSettings { host: Some(host.to_owned()), ..DockerSettings::default() };
    let runtime = DockerRuntime::connect(&settings).map_err(|error| error.to_string())?;
    let instance = InstanceId(format!("floor{}", std::process::id()).into());
    let mut events = runtime.events(&instance);
    if !matches!(events.next().await, Some(Ok(RuntimeEvent::Subscribed))) {
        return Err("no events".to_owned());
    }
    let watch = async move {
        while let Some(Ok(event)) = events.next().await {
            if let RuntimeEvent::Exited(container) = event {
                drop(tell.send(container.key.task.to_string()));
            }
        }
    };
    #[expect(clippy::disallowed_methods, reason = "it lives as long as the program")]
    tokio::spawn(watch);
    Ok(Engine::Same(runtime, instance))
}

impl Engine {
    async fn run(&self, step: &Step, network: &str) -> Result<(), String> {
        match self {
            Self::Bare(docker) => {
                let body = ContainerCreateBody {
                    image: Some(IMAGE.to_owned()),
                    cmd: Some(step.command.clone()),
                    host_config: Some(HostConfig { network_mode: Some(network.to_owned()), ..HostConfig::default() }),
                    ..ContainerCreateBody::default()
                };
                let options = CreateContainerOptionsBuilder::default().name(&step.id).build();
                let made = docker.create_container(Some(options), body).await.map_err(|error| error.to_string())?;
                let started = docker.start_container(&made.id, None::<StartContainerOptions>).await;
                started.map_err(|error| error.to_string())
            }
            Self::Same(runtime, instance) => {
                let key = AttemptKey { task: TaskId::new(&step.id).map_err(|_| "an id")?, attempt: 1 };
                let here = std::env::current_dir().map_err(|error| error.to_string())?;
                let request = CreateRequest {
                    name: names::container(instance, &key),
                    labels: names::labels(instance, "plan", &key, "digest", "base"),
                    key,
                    image: Some(IMAGE.to_owned()),
                    command: Some(step.command.clone()),
                    env: BTreeMap::new(),
                    mounts: vec![Bind { source: here, target: "/project".to_owned(), read_only: false }],
                    workdir: "/project".to_owned(),
                    user: None,
                    network: network.to_owned(),
                    resources: Resources::default(),
                };
                let id = runtime.create(&request).await.map_err(|error| error.to_string())?;
                runtime.start(&id).await.map_err(|error| error.to_string())
            }
        }
    }
}
