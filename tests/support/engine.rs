//! A private real engine for the tests whose module names begin with `docker_`.
//!
//! One engine serves all tests of a checkout, threads and processes alike: `tests/engine/engine` starts it where it does
//! not run yet and takes a lock meanwhile. It stays for the next run; `tests/engine/engine stop target/test-engine` ends
//! it. Where none can be had the tests say so and pass, unless `ORCHESTRATE_TEST_DOCKER=require`.
//! `ORCHESTRATE_TEST_ENGINE_HOST` names another engine to be tested against, in which only our own containers are touched.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use orchestrate::runtime::docker::{DockerRuntime, DockerSettings};

/// The image that has a shell and git.
pub const IMAGE: &str = "orchestrate-test:latest";
/// The same with `USER 1000:1000`.
pub const USER_IMAGE: &str = "orchestrate-test:user";

/// The engine and its `DOCKER_HOST`; `None` after the reason was told.
pub fn engine() -> Option<(DockerRuntime, String)> {
    static HOST: OnceLock<Result<String, String>> = OnceLock::new();
    match HOST.get_or_init(|| started().and_then(with_images)) {
        Ok(host) => {
            let settings = DockerSettings { host: Some(host.clone()), ..DockerSettings::default() };
            Some((DockerRuntime::connect(&settings).expect("an endpoint"), host.clone()))
        }
        Err(reason) => {
            let wanted = variable("ORCHESTRATE_TEST_DOCKER").as_deref() == Some("require") || given().is_some();
            assert!(!wanted, "no engine: {reason}");
            skip(&format!("no engine: {reason}"));
            None
        }
    }
}

/// An engine of a test's own, which it may kill; ended and removed when dropped.
pub struct OwnEngine {
    directory: PathBuf,
    pub host: String,
    pub runtime: DockerRuntime,
}

impl OwnEngine {
    /// Starts one; `None` after the reason was told.
    pub fn start(name: &str) -> Option<Self> {
        // Where the shared engine is somebody else's, this machine is not the one to start another.
        engine()?;
        if given().is_some() {
            skip("an engine was given, and this test kills its own");
            return None;
        }
        let directory = directory().with_file_name(format!("test-engine-{name}"));
        let host = start_in(&directory, &[]).and_then(with_images).expect("as the shared one");
        let settings = DockerSettings { host: Some(host.clone()), ..DockerSettings::default() };
        Some(Self { directory, host, runtime: DockerRuntime::connect(&settings).expect("an endpoint") })
    }

    /// Starts it again.
    pub fn start_again(&self, options: &[&str]) {
        start_in(&self.directory, options).expect("as before");
    }

    /// Ends dockerd as a service manager does.
    pub fn halt(&self) {
        assert!(script("engine", &["halt", self.path()]).status.success());
    }

    /// Kills dockerd; its containers live on.
    pub fn kill(&self) {
        assert!(script("engine", &["kill", self.path()]).status.success());
    }

    /// The power fails: nothing of it gets to say anything, its containers neither.
    pub fn cut_power(&self) {
        assert!(script("engine", &["cut", self.path()]).status.success());
    }

    fn path(&self) -> &str {
        self.directory.to_str().expect("UTF-8")
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        script("engine", &["stop", self.path()]);
    }
}

/// Where the shared engine lives.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("below the target folder").join("test-engine")
}

/// Runs one of the scripts in `tests/engine`.
pub fn script(name: &str, arguments: &[&str]) -> Output {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine").join(name);
    Command::new(path).args(arguments).output().expect("bash runs")
}

/// The docker command line at an engine, for what people do by hand.
pub fn docker(host: &str, arguments: &[&str]) -> Output {
    Command::new("docker")
        .args(["-H", host])
        .args(arguments)
        .env_remove("DOCKER_CONTEXT")
        .env_remove("DOCKER_TLS_VERIFY")
        .output()
        .expect("the docker command line runs")
}

/// An engine that somebody named.
fn given() -> Option<String> {
    variable("ORCHESTRATE_TEST_ENGINE_HOST")
}

fn started() -> Result<String, String> {
    if let Some(host) = given() {
        return Ok(host);
    }
    start_in(&directory(), &[])
}

fn start_in(directory: &Path, options: &[&str]) -> Result<String, String> {
    let output = script("engine", &[&["start", directory.to_str().expect("UTF-8")], options].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().strip_prefix("DOCKER_HOST=") {
        Some(host) if output.status.success() => Ok(host.to_owned()),
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn with_images(host: String) -> Result<String, String> {
    let output = script("image", &[&host]);
    if output.status.success() { Ok(host) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// Written past the capture of passing tests' output.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Nobody to tell where stderr is closed.
    drop(writeln!(std::io::stderr(), "SKIPPED {test}: {reason}"));
}

#[expect(clippy::disallowed_methods, reason = "the tests' own switches")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
