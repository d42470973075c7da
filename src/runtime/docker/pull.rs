//! Fetches an image from its registry, through the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures::StreamExt as _;

use super::classify::{Failure, classify};
use super::registry::{self, Known, Reference};
use crate::runtime::{ErrorKind, Operation, PullProgress, PullSink};

/// How long an engine may say nothing: it tells several times a second while it fetches, but a registry that does not
/// answer is waited for, and a large layer is unpacked in silence by some.
const SILENCE: Duration = Duration::from_mins(5);

/// Fetches an image. Dropping the future ends it.
pub(super) async fn pull(
    docker: &Docker,
    reference: &str,
    config_dir: Option<&Path>,
    progress: &PullSink<'_>,
) -> Result<(), Failure> {
    let parts = Reference::parse(reference);
    let options = CreateImageOptionsBuilder::new().from_image(parts.name).tag(parts.version).build();
    let (credentials, helper) = match registry::account(config_dir, parts.registry) {
        Known::Nothing => (None, None),
        Known::Account(credentials) => (Some(*credentials), None),
        Known::Helper(helper) => (None, Some(helper)),
    };
    let mut told = Box::pin(docker.create_image(Some(options), None, credentials));
    let mut layers = Layers::default();
    loop {
        match tokio::time::timeout(SILENCE, told.next()).await {
            Err(_) => return Err(Failure::TimedOut(SILENCE)),
            Ok(None) => return Ok(()),
            Ok(Some(Ok(info))) => {
                if layers.take(&info) {
                    progress(layers.progress());
                }
            }
            Ok(Some(Err(error))) => return Err(explain(failure(error), helper.as_deref())),
        }
    }
}

/// What went wrong on the way is told as one more item, without a status of its own.
fn failure(error: Error) -> Failure {
    match error {
        Error::DockerStreamError { error } => Failure::Status { code: 500, message: error },
        other => other.into(),
    }
}

fn explain(failure: Failure, helper: Option<&str>) -> Failure {
    match (failure, helper) {
        (Failure::Status { code, message }, Some(helper)) => {
            let failure = Failure::Status { code, message: message.clone() };
            if classify(Operation::Pull, &failure) != ErrorKind::RegistryDenied {
                return failure;
            }
            let why = format!(
                "{message} (docker's configuration has the account in the credential helper {helper:?}, which \
                 orchestrate does not ask; `docker pull` does)"
            );
            Failure::Status { code, message: why }
        }
        (failure, _) => failure,
    }
}

/// What an image's registry knows it by, under the name that was asked for.
pub(super) fn digest(known: &[String], reference: &str) -> Option<String> {
    let name = Reference::parse(reference).name;
    let of = |text: &String| text.split_once('@').map(|(name, digest)| (name.to_owned(), digest.to_owned()));
    let named = known.iter().filter_map(of).find(|(known, _)| known == name);
    named.map(|(_, digest)| digest)
}

/// What is known of each layer.
#[derive(Default)]
struct Layers {
    layers: BTreeMap<String, Layer>,
}

#[derive(Default)]
struct Layer {
    current: u64,
    total: u64,
    is_done: bool,
}

impl Layers {
    /// Takes one line in; whether anything follows from it.
    fn take(&mut self, info: &CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (&info.id, &info.status) else { return false };
        // The first line names the tag in the place of a layer.
        if status.starts_with("Pulling from") {
            return false;
        }
        let layer = self.layers.entry(id.clone()).or_default();
        match status.as_str() {
            "Pull complete" | "Already exists" => {
                layer.is_done = true;
                layer.current = layer.total;
            }
            "Download complete" => layer.current = layer.total,
            "Downloading" => {
                let detail = info.progress_detail.as_ref();
                let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok());
                layer.total = detail.and_then(|d| number(d.total)).unwrap_or(layer.total);
                layer.current = detail.and_then(|d| number(d.current)).unwrap_or(layer.current);
            }
            _ => {}
        }
        true
    }

    fn progress(&self) -> PullProgress {
        let layers = self.layers.values();
        PullProgress {
            layers: self.layers.len(),
            done: layers.clone().filter(|layer| layer.is_done).count(),
            bytes: layers.clone().map(|layer| layer.current).sum(),
            total: layers.map(|layer| layer.total.max(layer.current)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_layers_and_bytes() {
        let lines = [
            r#"{"status":"Pulling from library/x","id":"latest"}"#,
            r#"{"status":"Pulling fs layer","progressDetail":{},"id":"a"}"#,
            r#"{"status":"Already exists","progressDetail":{},"id":"b"}"#,
            r#"{"status":"Downloading","progressDetail":{"current":40,"total":100},"progress":"[>","id":"a"}"#,
            r#"{"status":"Extracting","progressDetail":{"current":5,"total":100},"id":"a"}"#,
            r#"{"status":"Digest: sha256:00"}"#,
        ];
        let mut layers = Layers::default();
        for line in lines {
            layers.take(&serde_json::from_str(line).expect("as an engine says it"));
        }
        assert_eq!(layers.progress(), PullProgress { layers: 2, done: 1, bytes: 40, total: 100 });
        layers.take(&serde_json::from_str(r#"{"status":"Pull complete","id":"a"}"#).expect("JSON"));
        assert_eq!(layers.progress(), PullProgress { layers: 2, done: 2, bytes: 100, total: 100 });
    }

    #[test]
    fn a_digest_is_that_of_the_name_that_was_asked_for() {
        let known = ["other/x@sha256:1".to_owned(), "r:5000/x@sha256:2".to_owned()];
        assert_eq!(digest(&known, "r:5000/x:tag").as_deref(), Some("sha256:2"));
        assert_eq!(digest(&known, "x"), None);
    }

    #[test]
    fn a_refusal_names_the_helper_that_was_not_asked() {
        let refused = || Failure::Status { code: 500, message: "unauthorized: no".to_owned() };
        let Failure::Status { message, .. } = explain(refused(), Some("pass")) else { unreachable!() };
        assert!(message.contains("credential helper \"pass\""), "{message}");
        assert_eq!(explain(refused(), None), refused());
        let other = Failure::Status { code: 500, message: "unexpected EOF".to_owned() };
        assert_eq!(explain(other.clone(), Some("pass")), other);
    }
}
