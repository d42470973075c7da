//! The calls.

use std::collections::HashMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, InspectNetworkOptions, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, StopContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryFutureExt, TryStreamExt};
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::body::create_body;
use super::classify::Failure;
use super::convert::{self, Inspected};
use super::endpoint::{DockerSettings, Endpoint};
use super::{events, logs, look, pull, shell};
use crate::observe::names::label;
use crate::observe::{ContainerDetail, InstanceId, ObservedContainer};
use crate::runtime::{
    CreateRequest, EngineFacts, EngineInfo, ErrorKind, ImageInfo, LogChunk, LogOptions, Operation, PullSink, Runtime,
    RuntimeError, RuntimeEvent, Shell, ShellOptions, ShellPlace,
};

/// How long an answer to a question may take.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(10);
/// How long a change may take; a start waits for the network, and engines under load are slow.
pub(super) const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// bollard's own limit, whose error would not say what timed out: beyond all of ours.
const NO_LIMIT_SECONDS: u64 = 24 * 60 * 60;

/// An engine that speaks Docker's API. Cheap to clone; connects when it is first used, and again whenever it must.
#[derive(Debug, Clone)]
pub struct DockerRuntime {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    host: String,
    /// Where the docker command line keeps what it knows of registries.
    config_dir: Option<PathBuf>,
    client: OnceCell<Docker>,
    /// How many cores the engine has.
    cpus: OnceCell<Option<u32>>,
}

impl DockerRuntime {
    /// Finds out where the engine is, without asking it anything yet.
    ///
    /// # Errors
    /// Those of [`Endpoint::find`].
    pub fn connect(settings: &DockerSettings) -> Result<Self, RuntimeError> {
        Ok(Self::at(Endpoint::find(settings)?, settings.config_dir.clone()))
    }

    /// The engine at an endpoint. `config_dir` is the docker command line's folder, with accounts at registries.
    pub fn at(endpoint: Endpoint, config_dir: Option<PathBuf>) -> Self {
        let host = endpoint.to_string();
        Self { shared: Arc::new(Shared { endpoint, host, config_dir, client: OnceCell::new(), cpus: OnceCell::new() }) }
    }

    /// Where the engine is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// The client, its API version agreed on with the engine.
    async fn client(&self) -> Result<Docker, Failure> {
        let connect = || async {
            let docker = match &self.shared.endpoint {
                Endpoint::Unix(path) => {
                    let path = path.to_str().ok_or_else(|| Failure::Request("the path is not UTF-8".to_owned()))?;
                    Docker::connect_with_unix(path, NO_LIMIT_SECONDS, API_DEFAULT_VERSION)
                }
                Endpoint::Tcp(address) => {
                    Docker::connect_with_http(&format!("tcp://{address}"), NO_LIMIT_SECONDS, API_DEFAULT_VERSION)
                }
            };
            docker?.negotiate_version().await.map_err(Failure::from)
        };
        self.shared.client.get_or_try_init(connect).await.cloned()
    }

    /// Makes one call within a time limit.
    pub(super) async fn call<T, F>(
        &self,
        operation: Operation,
        target: Option<&str>,
        limit: Duration,
        make: impl FnOnce(Docker) -> F + Send,
    ) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, bollard::errors::Error>> + Send,
    {
        let call = async { make(self.client().await?).await.map_err(Failure::from) };
        within(limit, call).await.map_err(|failure| failure.into_error(operation, target))
    }

    async fn info(&self) -> Result<bollard::models::SystemInfo, Failure> {
        within(READ_LIMIT, async { self.client().await?.info().await.map_err(Failure::from) }).await
    }

    /// Since when the engine runs. Its API does not say so, but it makes its default bridge anew at each start that finds
    /// nothing running. An engine without that bridge tells nothing.
    async fn started_at(&self) -> Option<Timestamp> {
        let network = self
            .call(Operation::Probe, Some("bridge"), READ_LIMIT, |docker| async move {
                docker.inspect_network("bridge", None::<InspectNetworkOptions>).await
            })
            .await;
        network.ok()?.created?.parse().ok()
    }

    /// An engine refuses to be asked for more cores than it has. Where it does not say how many, it is asked as is.
    pub(super) async fn cpus(&self) -> Option<u32> {
        let ask = || self.info().map_ok(|info| info.ncpu.and_then(|n| u32::try_from(n).ok()));
        self.shared.cpus.get_or_try_init(ask).await.ok().copied().flatten()
    }

    /// The engine's own time.
    async fn engine_time(&self) -> Result<Timestamp, Failure> {
        let text = self.info().await?.system_time.unwrap_or_default();
        text.parse().map_err(|error| Failure::Answer(format!("the engine's time {text:?}: {error}")))
    }

    async fn open_logs(
        &self,
        id: &str,
        options: LogOptions,
    ) -> Result<BoxStream<'static, Result<LogChunk, Failure>>, Failure> {
        check(id)?;
        // Only the container's settings tell whether its log has frames; before version 1.42 the answer does not.
        let terminal = within(READ_LIMIT, async {
            self.client().await?.inspect_container(id, None::<InspectContainerOptions>).await.map_err(Failure::from)
        })
        .await?
        .config
        .and_then(|config| config.tty)
        .unwrap_or(false);
        logs::open(&self.shared.endpoint, id, terminal, options, READ_LIMIT).await
    }

    async fn open_events(
        &self,
        instance: InstanceId,
    ) -> Result<BoxStream<'static, Result<RuntimeEvent, Failure>>, Failure> {
        let since = self.engine_time().await?;
        events::open(&self.shared.endpoint, instance, since, READ_LIMIT).await
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>> + Send) -> Result<T, Failure> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(Failure::TimedOut(limit)))
}

/// What stands in a path of the API must be one part of it.
pub(super) fn check(id: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.chars().all(good) {
        return Ok(());
    }
    Err(Failure::Request("this is no container's name or id".to_owned()))
}

pub(super) fn check_image(reference: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    let starts = reference.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts && reference.chars().all(good) && !reference.contains("..") && !reference.contains("//") {
        return Ok(());
    }
    Err(Failure::Request("this is no image reference".to_owned()))
}

#[async_trait]
impl Runtime for DockerRuntime {
    fn host(&self) -> &str {
        &self.shared.host
    }

    async fn probe(&self) -> Result<EngineInfo, RuntimeError> {
        let answer = self
            .call(Operation::Probe, Some(&self.shared.host), READ_LIMIT, |docker| async move {
                Ok((docker.client_version(), docker.version().await?, docker.info().await?))
            })
            .await?;
        let (agreed, version, info) = answer;
        let components = version.components.unwrap_or_default();
        let podman = components.iter().any(|component| component.name.to_ascii_lowercase().contains("podman"));
        let time = info.system_time.and_then(|time| time.parse().ok());
        Ok(EngineInfo {
            name: if podman { "Podman" } else { "Docker" }.to_owned(),
            version: version.version.unwrap_or_default(),
            api_version: format!("{}.{}", agreed.major_version, agreed.minor_version),
            time,
            // Both may be too early: a socket that systemd holds open, a bridge that was in use.
            started_at: if podman { None } else { self.shared.endpoint.engine_started().max(self.started_at().await) },
            // Podman's containers are no children of the service that answers.
            live_restore: if podman { Some(true) } else { info.live_restore_enabled },
        })
    }

    async fn facts(&self) -> Result<EngineFacts, RuntimeError> {
        let info = self.probe().await?;
        look::facts(self, info).await
    }

    async fn has_program(&self, image: Option<&str>, command: Option<&[String]>) -> Result<Option<bool>, RuntimeError> {
        let Some(image) = image else { return Ok(None) };
        look::has_program(self, image, command).await
    }

    async fn list(&self, instance: &InstanceId) -> Result<Vec<ObservedContainer>, RuntimeError> {
        let filters = HashMap::from([("label", vec![format!("{}={instance}", label::INSTANCE)])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let summaries =
            self.call(Operation::List, None, READ_LIMIT, |docker| async move {
                docker.list_containers(Some(options)).await
            })
            .await?;
        summaries
            .iter()
            .filter_map(|summary| convert::listed(instance, summary).transpose())
            .collect::<Result<_, _>>()
            .map_err(|incomplete| Failure::Answer(incomplete.to_string()).into_error(Operation::List, None))
    }

    async fn inspect(&self, instance: &InstanceId, id: &str) -> Result<Option<ContainerDetail>, RuntimeError> {
        let failed = |failure: Failure| failure.into_error(Operation::Inspect, Some(id));
        check(id).map_err(failed)?;
        let inspect = self.call(Operation::Inspect, Some(id), READ_LIMIT, |docker| async move {
            docker.inspect_container(id, None::<InspectContainerOptions>).await
        });
        let answer = match inspect.await {
            Ok(answer) => answer,
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match convert::inspected(instance, &answer) {
            Ok(Inspected::Ours(detail)) => Ok(Some(detail)),
            Ok(Inspected::NotOurs) => Err(RuntimeError {
                operation: Operation::Inspect,
                target: Some(id.to_owned()),
                kind: ErrorKind::NotOurs,
                status: None,
                message: "its labels are not those of this repository's containers".to_owned(),
            }),
            Err(incomplete) => Err(failed(Failure::Answer(incomplete.to_string()))),
        }
    }

    async fn image(&self, reference: &str) -> Result<Option<ImageInfo>, RuntimeError> {
        let failed = |failure: Failure| failure.into_error(Operation::Image, Some(reference));
        check_image(reference).map_err(failed)?;
        let inspect = self.call(Operation::Image, Some(reference), READ_LIMIT, |docker| async move {
            docker.inspect_image(reference).await
        });
        match inspect.await {
            Ok(image) => {
                let id = image.id.ok_or_else(|| failed(Failure::Answer("the answer lacks an id".to_owned())))?;
                let user = image.config.and_then(|config| config.user).unwrap_or_default();
                let digest = pull::digest(image.repo_digests.as_deref().unwrap_or_default(), reference);
                Ok(Some(ImageInfo { id, user, digest }))
            }
            Err(error) if error.kind == ErrorKind::ImageMissing => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pull(&self, reference: &str, progress: &PullSink<'_>) -> Result<(), RuntimeError> {
        let failed = |failure: Failure| failure.into_error(Operation::Pull, Some(reference));
        check_image(reference).map_err(failed)?;
        let client = within(READ_LIMIT, self.client()).await.map_err(failed)?;
        pull::pull(&client, reference, self.shared.config_dir.as_deref(), progress).await.map_err(failed)
    }

    async fn create(&self, request: &CreateRequest) -> Result<String, RuntimeError> {
        let failed = |failure: Failure| failure.into_error(Operation::Create, Some(&request.name));
        check(&request.name).map_err(failed)?;
        let body = create_body(request, self.cpus().await)
            .map(Box::new)
            .map_err(|error| failed(Failure::Request(error.to_string())))?;
        let options = CreateContainerOptionsBuilder::new().name(&request.name).build();
        self.call(Operation::Create, Some(&request.name), CHANGE_LIMIT, |docker| {
            // Boxed, since the body is large.
            Box::pin(async move { docker.create_container(Some(options), *body).await })
        })
        .await
        .map(|answer| answer.id)
    }

    async fn start(&self, id: &str) -> Result<(), RuntimeError> {
        check(id).map_err(|failure| failure.into_error(Operation::Start, Some(id)))?;
        self.call(Operation::Start, Some(id), CHANGE_LIMIT, |docker| async move {
            docker.start_container(id, None::<StartContainerOptions>).await
        })
        .await
    }

    async fn stop(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        check(id).map_err(|failure| failure.into_error(Operation::Stop, Some(id)))?;
        // Whole seconds, no less than asked for.
        let seconds = grace.as_secs() + u64::from(grace.subsec_nanos() > 0);
        let options = StopContainerOptionsBuilder::new().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
        let limit = CHANGE_LIMIT.saturating_add(grace);
        self.call(
            Operation::Stop,
            Some(id),
            limit,
            |docker| async move { docker.stop_container(id, Some(options)).await },
        )
        .await
    }

    async fn remove(&self, id: &str) -> Result<(), RuntimeError> {
        check(id).map_err(|failure| failure.into_error(Operation::Remove, Some(id)))?;
        // With the nameless volumes that its image declares; without force, so that nothing that lives is removed.
        let options = RemoveContainerOptionsBuilder::new().v(true).force(false).build();
        self.call(Operation::Remove, Some(id), CHANGE_LIMIT, |docker| async move {
            docker.remove_container(id, Some(options)).await
        })
        .await
    }

    fn logs(&self, id: &str, options: LogOptions) -> BoxStream<'static, Result<LogChunk, RuntimeError>> {
        let (runtime, id) = (self.clone(), id.to_owned());
        let target = id.clone();
        stream::once(async move { runtime.open_logs(&id, options).await })
            .try_flatten()
            .map_err(move |failure| failure.into_error(Operation::Logs, Some(&target)))
            .boxed()
    }

    async fn shell(&self, place: ShellPlace, options: &ShellOptions) -> Result<Shell, RuntimeError> {
        shell::run(self, place, options).await
    }

    fn events(&self, instance: &InstanceId) -> BoxStream<'static, Result<RuntimeEvent, RuntimeError>> {
        let (runtime, instance) = (self.clone(), instance.clone());
        stream::once(async move { runtime.open_events(instance).await })
            .try_flatten()
            .map_err(|failure| failure.into_error(Operation::Events, None))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_reach_a_path() {
        for good in ["orch-i-api.v2_x-1", "0123abc"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "-x", "../x", "a/b", "a?force=1", "a#", "a%2f", "a b", "ä"] {
            assert!(check(bad).is_err(), "{bad}");
        }
        for good in ["busybox", "registry.example:5000/a/b:tag", "a@sha256:00ff"] {
            assert!(check_image(good).is_ok(), "{good}");
        }
        for bad in ["", "-v", "a/../b", "http://x", "a b", "a?x"] {
            assert!(check_image(bad).is_err(), "{bad}");
        }
    }
}
