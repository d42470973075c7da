//! Where the engine is: found as the docker command line finds it.

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::runtime::{ErrorKind, Operation, RuntimeError};

/// What the caller's settings say about the engine. All of it comes from flags and environment; nothing is read here
/// but the docker client's own files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DockerSettings {
    /// The endpoint asked for, or `DOCKER_HOST`: `unix:///path`, `tcp://host:port`.
    pub host: Option<String>,
    /// Name of a docker context, or `DOCKER_CONTEXT`. Used only without `host`.
    pub context: Option<String>,
    /// `DOCKER_CONFIG`, or `.docker` in the user's home.
    pub config_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, where rootless engines have their socket.
    pub runtime_dir: Option<PathBuf>,
    /// `DOCKER_TLS_VERIFY` is set: a `tcp` endpoint is meant to be encrypted.
    pub tls: bool,
}

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// Plain HTTP: `host:port`.
    Tcp(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// The socket of an engine that root runs.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The port of a `tcp` endpoint that names none.
const DEFAULT_PORT: &str = "2375";

impl Endpoint {
    /// Finds the endpoint: what was asked for, the docker context, the default socket, a rootless engine's, Podman's.
    /// Where no socket exists it is the default one, so that the error names what a person expects.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for ssh, TLS and named pipes; [`ErrorKind::Invalid`] for what is no endpoint and for
    /// a context that does not exist or cannot be read.
    pub fn find(settings: &DockerSettings) -> Result<Self, RuntimeError> {
        if let Some(host) = settings.host.as_deref().filter(|host| !host.trim().is_empty()) {
            return Self::parse(host.trim(), settings.tls);
        }
        if let Some(directory) = &settings.config_dir {
            let name = match settings.context.as_deref().filter(|name| !name.is_empty()) {
                Some(name) => Some(name.to_owned()),
                None => current_context(directory)?,
            };
            if let Some(name) = name.filter(|name| name != "default") {
                return from_context(directory, &name);
            }
        }
        let sockets = [
            Some(PathBuf::from(DEFAULT_SOCKET)),
            settings.runtime_dir.as_ref().map(|dir| dir.join("docker.sock")),
            settings.runtime_dir.as_ref().map(|dir| dir.join("podman/podman.sock")),
            Some(PathBuf::from("/run/podman/podman.sock")),
        ];
        let found = sockets.into_iter().flatten().find(|path| path.exists());
        Ok(Self::Unix(found.unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET))))
    }

    /// When the engine was started: it writes its socket and, beside it, its pid file anew. Neither is told by the API.
    /// A socket that systemd holds open is older than the engine, so the answer may be too early, never too late.
    pub(super) fn engine_started(&self) -> Option<Timestamp> {
        let Self::Unix(socket) = self else { return None };
        [socket.clone(), socket.with_extension("pid")]
            .iter()
            .filter_map(|path| std::fs::metadata(path).ok()?.modified().ok())
            .filter_map(|at| Timestamp::try_from(at).ok())
            .max()
    }

    fn parse(text: &str, tls: bool) -> Result<Self, RuntimeError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(failed(ErrorKind::Invalid, text, "an endpoint begins with unix:// or tcp://"));
        };
        match scheme {
            "unix" if rest.starts_with('/') => Ok(Self::Unix(PathBuf::from(rest))),
            "unix" => Err(failed(ErrorKind::Invalid, text, "the path of a unix endpoint is absolute")),
            "tcp" | "http" if tls => Err(failed(
                ErrorKind::Unsupported,
                text,
                "TLS is not supported yet: forward the engine's socket with ssh -L and name it as unix://",
            )),
            "tcp" | "http" => {
                let address = rest.trim_end_matches('/');
                if address.is_empty() || address.contains(['/', '@', '?', '#']) {
                    return Err(failed(ErrorKind::Invalid, text, "a tcp endpoint is tcp://host:port"));
                }
                let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                Ok(Self::Tcp(if has_port { address.to_owned() } else { format!("{address}:{DEFAULT_PORT}") }))
            }
            "ssh" => Err(failed(
                ErrorKind::Unsupported,
                text,
                "ssh is not supported yet: forward the engine's socket with ssh -L and name it as unix://",
            )),
            "https" | "npipe" | "fd" => {
                Err(failed(ErrorKind::Unsupported, text, "only unix:// and tcp:// endpoints are supported"))
            }
            _ => Err(failed(ErrorKind::Invalid, text, "an endpoint begins with unix:// or tcp://")),
        }
    }
}

fn failed(kind: ErrorKind, target: &str, message: impl Into<String>) -> RuntimeError {
    RuntimeError {
        operation: Operation::Connect,
        target: Some(target.to_owned()),
        kind,
        status: None,
        message: message.into(),
    }
}

/// The part of the client's `config.json` that matters here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientConfig {
    #[serde(default)]
    current_context: Option<String>,
}

/// The part of a context's `meta.json` that matters here.
#[derive(Deserialize)]
struct ContextMeta {
    #[serde(rename = "Endpoints", default)]
    endpoints: ContextEndpoints,
}

#[derive(Deserialize, Default)]
struct ContextEndpoints {
    docker: Option<ContextEndpoint>,
}

#[derive(Deserialize)]
struct ContextEndpoint {
    #[serde(rename = "Host", default)]
    host: String,
}

fn current_context(directory: &Path) -> Result<Option<String>, RuntimeError> {
    let path = directory.join("config.json");
    // Not there, or not ours to read: the command line goes on with its defaults too.
    let Ok(text) = std::fs::read(&path) else { return Ok(None) };
    let config: ClientConfig = serde_json::from_slice(&text)
        .map_err(|error| failed(ErrorKind::Invalid, &path.display().to_string(), error.to_string()))?;
    Ok(config.current_context.filter(|name| !name.is_empty()))
}

fn from_context(directory: &Path, name: &str) -> Result<Endpoint, RuntimeError> {
    let digest = Sha256::digest(name.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        use fmt::Write;
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let path = directory.join("contexts/meta").join(&digest).join("meta.json");
    let target = format!("docker context {name}");
    let text = std::fs::read(&path)
        .map_err(|error| failed(ErrorKind::Invalid, &target, format!("{}: {error}", path.display())))?;
    let meta: ContextMeta = serde_json::from_slice(&text)
        .map_err(|error| failed(ErrorKind::Invalid, &target, format!("{}: {error}", path.display())))?;
    let host = meta.endpoints.docker.map(|endpoint| endpoint.host).unwrap_or_default();
    if host.is_empty() {
        return Err(failed(ErrorKind::Invalid, &target, "it names no docker endpoint"));
    }
    let tls = directory.join("contexts/tls").join(&digest).join("docker").exists();
    Endpoint::parse(&host, tls)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn with_host(host: &str) -> DockerSettings {
        DockerSettings { host: Some(host.to_owned()), ..DockerSettings::default() }
    }

    #[rstest]
    #[case("unix:///run/x.sock", "unix:///run/x.sock")]
    #[case(" tcp://127.0.0.1:9999/ ", "tcp://127.0.0.1:9999")]
    #[case("tcp://engine", "tcp://engine:2375")]
    #[case("tcp://[::1]:4000", "tcp://[::1]:4000")]
    #[case("tcp://[::1]", "tcp://[::1]:2375")]
    #[case("http://engine:1", "tcp://engine:1")]
    fn endpoints(#[case] text: &str, #[case] found: &str) {
        assert_eq!(Endpoint::find(&with_host(text)).expect("valid").to_string(), found);
    }

    #[rstest]
    #[case("ssh://me@host", ErrorKind::Unsupported)]
    #[case("https://host:2376", ErrorKind::Unsupported)]
    #[case("npipe:////./pipe/docker_engine", ErrorKind::Unsupported)]
    #[case("unix://relative", ErrorKind::Invalid)]
    #[case("/run/x.sock", ErrorKind::Invalid)]
    #[case("tcp://", ErrorKind::Invalid)]
    #[case("tcp://a/b", ErrorKind::Invalid)]
    #[case("gopher://a", ErrorKind::Invalid)]
    fn refusals(#[case] text: &str, #[case] kind: ErrorKind) {
        assert_eq!(Endpoint::find(&with_host(text)).expect_err("refused").kind, kind);
    }

    #[test]
    fn a_tcp_endpoint_that_is_meant_to_be_encrypted_is_not_spoken_to_in_the_clear() {
        let settings = DockerSettings { tls: true, ..with_host("tcp://host:2376") };
        assert_eq!(Endpoint::find(&settings).expect_err("refused").kind, ErrorKind::Unsupported);
        let settings = DockerSettings { tls: true, ..with_host("unix:///s") };
        assert!(Endpoint::find(&settings).is_ok());
    }

    /// The name that the docker command line gives the folder of a context called `remote`.
    const REMOTE: &str = "b71199ebd070b36beab7317920c2c2f1d777df8d05e5527d8458fda57cb17a7a";

    fn client_dir(host: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("temp dir");
        let meta = dir.path().join("contexts/meta").join(REMOTE);
        std::fs::create_dir_all(&meta).expect("created");
        let text = format!(r#"{{"Name":"remote","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}"}}}}}}"#);
        std::fs::write(meta.join("meta.json"), text).expect("written");
        dir
    }

    #[test]
    fn the_current_context_names_the_endpoint_and_a_host_beats_it() {
        let dir = client_dir("unix:///run/remote.sock");
        std::fs::write(dir.path().join("config.json"), r#"{"auths":{},"currentContext":"remote"}"#).expect("written");
        let mut settings = DockerSettings { config_dir: Some(dir.path().to_owned()), ..DockerSettings::default() };
        assert_eq!(Endpoint::find(&settings).expect("found"), Endpoint::Unix("/run/remote.sock".into()));
        settings.context = Some("absent".to_owned());
        assert_eq!(Endpoint::find(&settings).expect_err("no such context").kind, ErrorKind::Invalid);
        settings.host = Some("unix:///mine".to_owned());
        assert_eq!(Endpoint::find(&settings).expect("found"), Endpoint::Unix("/mine".into()));
    }

    #[test]
    fn a_context_with_certificates_is_not_spoken_to_in_the_clear() {
        let dir = client_dir("tcp://remote:2376");
        let settings = DockerSettings {
            config_dir: Some(dir.path().to_owned()),
            context: Some("remote".to_owned()),
            ..DockerSettings::default()
        };
        assert_eq!(Endpoint::find(&settings).expect("found"), Endpoint::Tcp("remote:2376".to_owned()));
        std::fs::create_dir_all(dir.path().join("contexts/tls").join(REMOTE).join("docker")).expect("created");
        assert_eq!(Endpoint::find(&settings).expect_err("TLS").kind, ErrorKind::Unsupported);
    }

    #[test]
    fn without_anything_a_rootless_socket_is_found_where_the_default_one_is_absent() {
        let dir = tempfile::tempdir().expect("temp dir");
        let settings = DockerSettings { runtime_dir: Some(dir.path().to_owned()), ..DockerSettings::default() };
        std::fs::write(dir.path().join("docker.sock"), "").expect("written");
        let found = Endpoint::find(&settings).expect("found");
        let expected = if Path::new(DEFAULT_SOCKET).exists() {
            PathBuf::from(DEFAULT_SOCKET)
        } else {
            dir.path().join("docker.sock")
        };
        assert_eq!(found, Endpoint::Unix(expected));
    }
}
