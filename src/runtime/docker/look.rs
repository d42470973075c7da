//! What `doctor` asks of an engine beside what every pass does. Starts nothing; a container that is made to look into an
//! image is removed at once, and carries no label of a repository's.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{ContainerCreateBody, HostConfig, SystemInfo, SystemVersion};
use bollard::query_parameters::{
    ContainerArchiveInfoOptionsBuilder, CreateContainerOptions, RemoveContainerOptionsBuilder,
};

use super::client::{CHANGE_LIMIT, DockerRuntime, READ_LIMIT, check_image};
use super::endpoint::Endpoint;
use crate::runtime::{EngineFacts, EngineInfo, ErrorKind, Operation, RuntimeError};

/// Where programs are looked for in an image that sets no `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Marks a container that only serves to look into an image.
const LOOK: &str = "dev.orchestrate.look";

pub(super) async fn facts(runtime: &DockerRuntime, info: EngineInfo) -> Result<EngineFacts, RuntimeError> {
    let (version, system) = runtime
        .call(Operation::Probe, None, READ_LIMIT, |docker| async move {
            Ok((docker.version().await?, docker.info().await?))
        })
        .await?;
    Ok(judge(info, &version, system, matches!(runtime.endpoint(), Endpoint::Unix(_))))
}

fn judge(info: EngineInfo, version: &SystemVersion, system: SystemInfo, is_local: bool) -> EngineFacts {
    let runc = version.components.iter().flatten().find(|part| part.name == "runc").map(|part| part.version.clone());
    let options = system.security_options.unwrap_or_default();
    let has = |name: &str| {
        let named = |option: &String| option.split(',').any(|part| part == format!("name={name}") || part == name);
        (!options.is_empty()).then(|| options.iter().any(named))
    };
    EngineFacts {
        runc: runc.filter(|version| !version.is_empty()),
        cgroup_version: system.cgroup_version.map(|version| version.to_string()).filter(|version| !version.is_empty()),
        memory_limit: system.memory_limit,
        cpu_limit: system.cpu_cfs_quota,
        pids_limit: system.pids_limit,
        seccomp: has("seccomp"),
        rootless: has("rootless"),
        data_root: system.docker_root_dir.map(PathBuf::from),
        is_local,
        ..EngineFacts::of(info)
    }
}

pub(super) async fn has_program(
    runtime: &DockerRuntime,
    image: &str,
    command: Option<&[String]>,
) -> Result<Option<bool>, RuntimeError> {
    check_image(image).map_err(|failure| failure.into_error(Operation::Image, Some(image)))?;
    let found = runtime
        .call(Operation::Image, Some(image), READ_LIMIT, |docker| async move { docker.inspect_image(image).await })
        .await?;
    let config = found.config.unwrap_or_default();
    // An entry point is what runs, and the command is its arguments.
    let words = config.entrypoint.filter(|words| !words.is_empty());
    let words = words.or_else(|| command.map(<[String]>::to_vec)).or(config.cmd).unwrap_or_default();
    let Some(program) = words.first() else { return Ok(Some(false)) };
    let env = config.env.unwrap_or_default();
    let path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or(PATH);
    let candidates: Vec<String> = match program.strip_prefix('/') {
        Some(_) => vec![program.clone()],
        // One of the worktree's is made by its checkout.
        None if program.contains('/') => return Ok(None),
        None => path.split(':').map(|folder| format!("{}/{program}", folder.trim_end_matches('/'))).collect(),
    };
    let id = make(runtime, image).await?;
    let mut has = Ok(Some(false));
    for candidate in &candidates {
        match is_there(runtime, &id, candidate).await {
            Ok(false) => {}
            Ok(true) => {
                has = Ok(Some(true));
                break;
            }
            Err(error) => {
                has = Err(error);
                break;
            }
        }
    }
    let options = RemoveContainerOptionsBuilder::new().v(true).force(false).build();
    let remove = runtime.call(Operation::Remove, Some(&id), CHANGE_LIMIT, |docker| {
        let id = id.clone();
        async move { docker.remove_container(&id, Some(options)).await }
    });
    remove.await?;
    has
}

async fn make(runtime: &DockerRuntime, image: &str) -> Result<String, RuntimeError> {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(vec!["true".to_owned()]),
        labels: Some(HashMap::from([(LOOK.to_owned(), "1".to_owned())])),
        host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let body = Box::new(body);
    let create = runtime.call(Operation::Create, Some(image), CHANGE_LIMIT, |docker| {
        Box::pin(async move { docker.create_container(None::<CreateContainerOptions>, *body).await })
    });
    Ok(create.await?.id)
}

async fn is_there(runtime: &DockerRuntime, id: &str, path: &str) -> Result<bool, RuntimeError> {
    let options = ContainerArchiveInfoOptionsBuilder::new().path(path).build();
    let look = runtime.call(Operation::Inspect, Some(id), READ_LIMIT, |docker| async move {
        docker.get_container_archive_info(id, Some(options)).await
    });
    match look.await {
        Ok(_) => Ok(true),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::SystemVersionComponents;

    use super::*;

    fn info() -> EngineInfo {
        EngineInfo {
            name: "Docker".to_owned(),
            version: "20.10.24".to_owned(),
            api_version: "1.41".to_owned(),
            time: None,
            started_at: None,
            live_restore: Some(false),
        }
    }

    #[test]
    fn what_an_engine_tells_is_read_and_what_it_does_not_stays_unknown() {
        let part = |name: &str, version: &str| SystemVersionComponents {
            name: name.to_owned(),
            version: version.to_owned(),
            details: None,
        };
        let version = SystemVersion {
            components: Some(vec![part("Engine", "20.10.24"), part("runc", "1.1.5")]),
            ..SystemVersion::default()
        };
        let system = SystemInfo {
            security_options: Some(vec!["name=seccomp,profile=default".to_owned(), "name=rootless".to_owned()]),
            pids_limit: Some(false),
            ..SystemInfo::default()
        };
        let facts = judge(info(), &version, system, true);
        assert_eq!(facts.runc.as_deref(), Some("1.1.5"));
        assert_eq!((facts.seccomp, facts.rootless), (Some(true), Some(true)));
        assert_eq!((facts.pids_limit, facts.memory_limit), (Some(false), None));
        let silent = judge(info(), &SystemVersion::default(), SystemInfo::default(), false);
        assert_eq!(silent, EngineFacts::of(info()));
    }
}
