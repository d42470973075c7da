//! The body of a create call: what a container is given and what it is denied. Pure.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{
    ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use crate::runtime::{Bind, CreateRequest};

/// `HOME` inside the container unless the request's environment sets one. A folder that no image has: runc gives a tmpfs
/// the mode of the folder that it covers, whatever it was told, and `/home/agent` of an image may be closed to all but a
/// user whom only its `passwd` knows.
pub const HOME: &str = "/home/orchestrate";

/// Why no body can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Nothing to run.
    #[error("a container needs an image")]
    NoImage,
    /// The API's JSON cannot name it.
    #[error("the mount source {} is not valid UTF-8, which the engine's API cannot express", .0.display())]
    Path(PathBuf),
    /// Beyond the API's integers.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// Makes the body. `engine_cpus` is how many the engine has where that is known: it refuses to be asked for more.
pub fn create_body(request: &CreateRequest, engine_cpus: Option<u32>) -> Result<ContainerCreateBody, BodyError> {
    let image = request.image.clone().ok_or(BodyError::NoImage)?;
    let mut env = request.env.clone();
    env.entry("HOME".to_owned()).or_insert_with(|| HOME.to_owned());
    let env = env.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(ContainerCreateBody {
        image: Some(image),
        cmd: request.command.clone(),
        env: Some(env),
        labels: Some(request.labels.clone().into_iter().collect()),
        working_dir: Some(request.workdir.clone()),
        user: request.user.clone(),
        tty: Some(false),
        open_stdin: Some(false),
        host_config: Some(host_config(request, engine_cpus)?),
        ..ContainerCreateBody::default()
    })
}

fn host_config(request: &CreateRequest, engine_cpus: Option<u32>) -> Result<HostConfig, BodyError> {
    let resources = &request.resources;
    let memory = i64::try_from(resources.memory).map_err(|_| BodyError::Range("memory"))?;
    let shm_size = resources.shm.map(i64::try_from).transpose().map_err(|_| BodyError::Range("shm"))?;
    let mounts = request.mounts.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    Ok(HostConfig {
        // Whatever it is started as, it gains nothing: no capability, no setuid binary.
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        privileged: Some(false),
        // Agents leave children behind; somebody must reap them.
        init: Some(true),
        pids_limit: Some(i64::from(resources.pids)),
        memory: Some(memory),
        // Memory and swap together: no swap, so that the limit is one.
        memory_swap: Some(memory),
        nano_cpus: Some(nano_cpus(resources.cpus, engine_cpus)),
        shm_size,
        ulimits: Some(vec![ResourcesUlimits { name: Some("core".to_owned()), soft: Some(0), hard: Some(0) }]),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".to_owned()),
            config: Some(HashMap::from([
                ("max-size".to_owned(), "10m".to_owned()),
                ("max-file".to_owned(), "3".to_owned()),
            ])),
        }),
        // Both would run or lose an attempt behind our back.
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: Some(0) }),
        auto_remove: Some(false),
        network_mode: Some(request.network.clone()),
        mounts: Some(mounts),
        tmpfs: Some(tmpfs(request)),
        ..HostConfig::default()
    })
}

fn bind(bind: &Bind) -> Result<Mount, BodyError> {
    let source = bind.source.to_str().ok_or_else(|| BodyError::Path(bind.source.clone()))?;
    Ok(Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_owned()),
        target: Some(bind.target.clone()),
        read_only: Some(bind.read_only),
        ..Mount::default()
    })
}

/// `/tmp` and `HOME` in memory, with exec since agents build and run there, and open to whatever user it runs as: an
/// image's may be a name, and Podman knows no `uid` for a tmpfs.
fn tmpfs(request: &CreateRequest) -> HashMap<String, String> {
    let taken = |path: &str| request.mounts.iter().any(|mount| mount.target.trim_end_matches('/') == path);
    let home = (!request.env.contains_key("HOME")).then_some(HOME);
    [Some("/tmp"), home]
        .into_iter()
        .flatten()
        .filter(|path| !taken(path))
        .map(|path| (path.to_owned(), "rw,exec,nosuid,nodev,mode=1777".to_owned()))
        .collect()
}

/// Cores in billionths; at least the engine's least, at most what it has.
#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of u32 before")]
fn nano_cpus(cpus: f64, engine_cpus: Option<u32>) -> i64 {
    let most = f64::from(engine_cpus.filter(|n| *n > 0).unwrap_or(u32::MAX));
    // A NaN falls to the least.
    let cpus = if cpus >= 0.01 { cpus.min(most) } else { 0.01 };
    (cpus * 1e9).round() as i64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::observe::AttemptKey;
    use crate::spec::{Resources, TaskId};

    fn request() -> CreateRequest {
        CreateRequest {
            key: AttemptKey { task: TaskId::new("api").expect("valid"), attempt: 2 },
            name: "orch-i-api-2".to_owned(),
            labels: BTreeMap::from([("dev.orchestrate.task".to_owned(), "api".to_owned())]),
            image: Some("agent:1".to_owned()),
            command: Some(vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()]),
            env: BTreeMap::from([("B".to_owned(), "x=y".to_owned()), ("A".to_owned(), String::new())]),
            mounts: vec![Bind { source: "/a b:c,d".into(), target: "/project".to_owned(), read_only: false }],
            workdir: "/project".to_owned(),
            user: Some("1000:1001".to_owned()),
            network: "bridge".to_owned(),
            resources: Resources::default(),
        }
    }

    /// The models' maps are unordered.
    fn sorted(value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Object(map) => {
                let map: BTreeMap<String, Value> = map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
                Value::Object(map.into_iter().collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
            other => other,
        }
    }

    #[test]
    fn the_whole_body() {
        let body = create_body(&request(), Some(8)).expect("valid");
        let value = sorted(serde_json::to_value(body).expect("plain data"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&value).expect("plain data"));
    }

    #[test]
    fn a_home_that_the_request_sets_is_its_own_affair() {
        let mut request = request();
        assert!(tmpfs(&request).contains_key(HOME));
        request.env.insert("HOME".to_owned(), "/root".to_owned());
        assert!(!tmpfs(&request).contains_key(HOME));
        let env = create_body(&request, None).expect("valid").env.expect("set");
        assert!(env.contains(&"HOME=/root".to_owned()) && !env.contains(&format!("HOME={HOME}")));
    }

    #[test]
    fn a_mount_takes_the_place_of_a_tmpfs() {
        let mut request = request();
        request.mounts = ["/tmp", "/home/orchestrate/"]
            .map(|target| Bind { source: "/x".into(), target: target.to_owned(), read_only: true })
            .to_vec();
        assert_eq!(tmpfs(&request), HashMap::new());
    }

    #[test]
    fn cores_stay_within_what_the_engine_has() {
        assert_eq!(nano_cpus(2.0, Some(1)), 1_000_000_000);
        assert_eq!(nano_cpus(0.5, Some(1)), 500_000_000);
        assert_eq!(nano_cpus(2.0, None), 2_000_000_000);
        assert_eq!(nano_cpus(2.0, Some(0)), 2_000_000_000);
        assert_eq!(nano_cpus(0.0, None), 10_000_000);
        assert_eq!(nano_cpus(f64::NAN, None), 10_000_000);
        assert!(nano_cpus(f64::INFINITY, None) > 0);
    }

    #[test]
    fn what_the_api_cannot_express_is_refused() {
        let mut request = request();
        request.mounts[0].source = PathBuf::from(OsStr::from_bytes(b"/a\xff"));
        assert!(matches!(create_body(&request, None), Err(BodyError::Path(_))));
        request.mounts.clear();
        request.resources.memory = u64::MAX;
        assert_eq!(create_body(&request, None), Err(BodyError::Range("memory")));
        request.image = None;
        assert_eq!(create_body(&request, None), Err(BodyError::NoImage));
    }
}
