//! What a failed call means. Pure: the one place that reads an engine's texts.

use std::io;
use std::time::Duration;

use crate::runtime::{ErrorKind, Operation, RuntimeError};

/// How a call failed, whichever client made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The engine answered with this status and text.
    Status { code: u16, message: String },
    /// No connection was made.
    Connect { kind: io::ErrorKind, message: String },
    /// The connection broke after it was made.
    Broken(String),
    /// Nothing came in time.
    TimedOut(Duration),
    /// The answer cannot be read.
    Answer(String),
    /// The call could not be put together; nothing was sent.
    Request(String),
}

impl Failure {
    /// The error for the caller.
    pub(super) fn into_error(self, operation: Operation, target: Option<&str>) -> RuntimeError {
        let kind = classify(operation, &self);
        let (status, message) = match self {
            Self::Status { code, message } if message.trim().is_empty() => (Some(code), format!("HTTP status {code}")),
            Self::Status { code, message } => (Some(code), message),
            Self::TimedOut(limit) => (None, format!("no answer within {} s", limit.as_secs())),
            Self::Connect { message, .. } | Self::Broken(message) | Self::Answer(message) | Self::Request(message) => {
                (None, message)
            }
        };
        RuntimeError { operation, target: target.map(str::to_owned), kind, status, message: one_line(&message) }
    }
}

/// What a failure means for the caller of an operation.
pub(super) fn classify(operation: Operation, failure: &Failure) -> ErrorKind {
    match failure {
        Failure::Status { code, message } => status(operation, *code, &message.to_ascii_lowercase()),
        Failure::Connect { kind: io::ErrorKind::PermissionDenied, .. } => ErrorKind::Denied,
        Failure::Connect { .. } => ErrorKind::Unreachable,
        // Whatever was asked may have been done, even where an answer came that makes no sense.
        Failure::Broken(_) | Failure::TimedOut(_) | Failure::Answer(_) => ErrorKind::Unknown,
        Failure::Request(_) => ErrorKind::Invalid,
    }
}

fn status(operation: Operation, code: u16, message: &str) -> ErrorKind {
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    let no_container = says(&["no such container", "no container with name or id"]);
    match (operation, code) {
        (Operation::Pull, code) => pulled(code, message, &says),
        (_, 401 | 403) => ErrorKind::Denied,
        (_, 501) => ErrorKind::Unsupported,
        // Podman tells a taken name as a failure of its own.
        (Operation::Create, 409 | 500) if says(&["already in use", "name is in use"]) => ErrorKind::NameTaken,
        (Operation::Create, 404) if says(&["no such image", "image not known"]) => ErrorKind::ImageMissing,
        // Otherwise something that the settings name: another container's network, a volume's driver.
        (Operation::Create, 404) => ErrorKind::Invalid,
        (Operation::Create, 500) if says(CREATE_TEXTS) => ErrorKind::Invalid,
        (Operation::Image, 404) => ErrorKind::ImageMissing,
        (Operation::Start, 404) if no_container => ErrorKind::NotFound,
        // 400: command or mount; 404: its network.
        (Operation::Start, 400 | 404) => ErrorKind::StartRefused,
        (Operation::Start, 500) if says(START_TEXTS) => ErrorKind::StartRefused,
        (_, 404) => ErrorKind::NotFound,
        (_, 409) => ErrorKind::Conflict,
        // The engine failed, is overloaded or asks to come again.
        (_, 408 | 425 | 429 | 500..) => ErrorKind::Engine,
        (_, 300..=499) => ErrorKind::Invalid,
        // An answer that HTTP does not know.
        (_, ..300) => ErrorKind::Unknown,
    }
}

/// What a failed pull means: the engine passes on what the registry said, with a status of its own at times.
fn pulled(code: u16, message: &str, says: &impl Fn(&[&str]) -> bool) -> ErrorKind {
    let unknown = ["manifest unknown", "name unknown", "repository does not exist", "no matching manifest"];
    if says(&["toomanyrequests", "too many requests"]) {
        return ErrorKind::Engine;
    }
    // "pull access denied … repository does not exist or may require" stands for both, and so do its mends.
    if says(&["unauthorized", "authentication required", "no basic auth", "access denied", "denied:", "forbidden"]) {
        return ErrorKind::RegistryDenied;
    }
    if says(&unknown) || (message.contains("manifest for") && message.contains("not found")) {
        return ErrorKind::ImageMissing;
    }
    if says(AWAY_TEXTS) {
        return ErrorKind::RegistryAway;
    }
    match code {
        400 => ErrorKind::Invalid,
        401 | 403 => ErrorKind::RegistryDenied,
        404 => ErrorKind::ImageMissing,
        501 => ErrorKind::Unsupported,
        _ => ErrorKind::Engine,
    }
}

/// What engines say where no connection to a registry comes about at all; one that breaks is worth another try at once.
const AWAY_TEXTS: &[&str] = &[
    "no such host",
    "dial tcp",
    "connection refused",
    "network is unreachable",
    "no route to host",
    "server misbehaving",
    "temporary failure in name resolution",
    "client.timeout exceeded",
    "x509:",
    "gave http response to https client",
];

/// What engines say with status 500 where the settings are at fault, so that another try gives the same.
const CREATE_TEXTS: &[&str] = &[
    // A working directory that is a file in the image.
    "not a directory",
    // Podman's.
    "fill out specgen",
    "invalid mount option",
    "container-init binary not found",
];

/// What engines say with status 500 where a container of its own making cannot start.
const START_TEXTS: &[&str] = &[
    "oci runtime",
    "oci permission denied",
    "runc create failed",
    "crun: ",
    "failed to create shim",
    "executable file not found",
    "error mounting",
    "bind source path",
    "unable to find user",
    "unable to find group",
    "no matching entries in passwd",
];

/// Engines answer with several lines at times, and echo what a task file holds.
fn one_line(message: &str) -> String {
    message.split(|c: char| c.is_control()).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

impl From<bollard::errors::Error> for Failure {
    fn from(error: bollard::errors::Error) -> Self {
        use bollard::errors::Error;

        let message = chain(&error);
        match error {
            Error::DockerResponseServerError { status_code, message } => Self::Status { code: status_code, message },
            Error::SocketNotFoundError(_) => Self::Connect { kind: io::ErrorKind::NotFound, message },
            Error::HyperLegacyError { err } if err.is_connect() => Self::Connect { kind: io_kind(&err), message },
            Error::HyperLegacyError { .. }
            | Error::HyperResponseError { .. }
            | Error::IOError { .. }
            | Error::RequestTimeoutError => Self::Broken(message),
            Error::JsonDataError { .. }
            | Error::JsonSerdeError { .. }
            | Error::APIVersionParseError {}
            | Error::StrParseError { .. }
            | Error::DockerStreamError { .. }
            | Error::DockerContainerWaitError { .. }
            | Error::HttpHeaderNotFoundError(_)
            | Error::HttpHeaderToStrError { .. }
            | Error::Base64DecodeError { .. } => Self::Answer(message),
            Error::StrFmtError { .. }
            | Error::HttpClientError { .. }
            | Error::URLEncodedError { .. }
            | Error::URLParseError { .. }
            | Error::InvalidURIError { .. }
            | Error::InvalidURIPartsError { .. }
            | Error::UnsupportedURISchemeError { .. }
            | Error::MissingSessionBuildkitError {}
            | Error::MissingVersionBuildkitError {} => Self::Request(message),
        }
    }
}

/// The texts of an error and its causes, each once: transport errors say what happened only in the last one.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The kind of the I/O error at the root of an error.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> io::ErrorKind {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return io.kind();
        }
        next = cause.source();
    }
    io::ErrorKind::Other
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    // The texts are an engine's own (20.10, Podman 4).
    #[rstest]
    #[case(Operation::Create, 404, "No such image: nope:latest", ErrorKind::ImageMissing)]
    #[case(Operation::Create, 404, "nope: image not known", ErrorKind::ImageMissing)]
    #[case(Operation::Create, 404, "No such container: other", ErrorKind::Invalid)]
    #[case(
        Operation::Create,
        409,
        "Conflict. The container name \"/x\" is already in use by container \"1\".",
        ErrorKind::NameTaken
    )]
    #[case(
        Operation::Create,
        500,
        "creating container storage: the container name \"x\" is already in use by 1",
        ErrorKind::NameTaken
    )]
    #[case(Operation::Create, 409, "conflict with something else", ErrorKind::Conflict)]
    #[case(Operation::Create, 400, "invalid reference format: repository name must be lowercase", ErrorKind::Invalid)]
    #[case(
        Operation::Create,
        400,
        "invalid mount config for type \"bind\": bind source path does not exist: /b",
        ErrorKind::Invalid
    )]
    #[case(Operation::Create, 500, "Cannot mkdir: /etc/passwd is not a directory", ErrorKind::Invalid)]
    #[case(
        Operation::Create,
        500,
        "fill out specgen: parse error on line 1, column 41: bare \" in non-quoted-field",
        ErrorKind::Invalid
    )]
    #[case(Operation::Create, 500, "no space left on device", ErrorKind::Engine)]
    #[case(Operation::Create, 503, "", ErrorKind::Engine)]
    #[case(Operation::Create, 429, "slow down", ErrorKind::Engine)]
    #[case(Operation::Create, 301, "", ErrorKind::Invalid)]
    #[case(Operation::Start, 404, "No such container: x", ErrorKind::NotFound)]
    #[case(Operation::Start, 404, "no container with name or ID \"x\" found: no such container", ErrorKind::NotFound)]
    #[case(Operation::Start, 404, "network nope not found", ErrorKind::StartRefused)]
    #[case(
        Operation::Start,
        400,
        "failed to create shim task: OCI runtime create failed: exec: \"/nope\"",
        ErrorKind::StartRefused
    )]
    #[case(
        Operation::Start,
        500,
        "OCI runtime create failed: executable file not found in $PATH",
        ErrorKind::StartRefused
    )]
    #[case(
        Operation::Start,
        500,
        "unable to find user bob: no matching entries in passwd file",
        ErrorKind::StartRefused
    )]
    #[case(Operation::Start, 500, "no space left on device", ErrorKind::Engine)]
    #[case(Operation::Start, 409, "container is marked for removal", ErrorKind::Conflict)]
    #[case(Operation::Inspect, 404, "No such container: x", ErrorKind::NotFound)]
    #[case(Operation::Image, 404, "no such image: zzz: No such image: zzz:latest", ErrorKind::ImageMissing)]
    #[case(
        Operation::Pull,
        404,
        "manifest for r/x:1 not found: manifest unknown: manifest unknown",
        ErrorKind::ImageMissing
    )]
    #[case(
        Operation::Pull,
        404,
        "pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to \
         the resource is denied",
        ErrorKind::RegistryDenied
    )]
    #[case(
        Operation::Pull,
        500,
        "Head \"http://r/v2/x/manifests/1\": no basic auth credentials",
        ErrorKind::RegistryDenied
    )]
    #[case(Operation::Pull, 500, "unauthorized: authentication required", ErrorKind::RegistryDenied)]
    #[case(Operation::Pull, 500, "toomanyrequests: You have reached your pull rate limit", ErrorKind::Engine)]
    #[case(Operation::Pull, 500, "Get \"https://r/v2/\": dial tcp: lookup r: no such host", ErrorKind::RegistryAway)]
    #[case(
        Operation::Pull,
        500,
        "Get \"http://r/v2/\": dial tcp 127.0.0.1:5: connect: connection refused",
        ErrorKind::RegistryAway
    )]
    #[case(Operation::Pull, 500, "unexpected EOF", ErrorKind::Engine)]
    #[case(Operation::Pull, 500, "no space left on device", ErrorKind::Engine)]
    #[case(Operation::Pull, 400, "invalid reference format", ErrorKind::Invalid)]
    #[case(Operation::Stop, 404, "No such container: x", ErrorKind::NotFound)]
    #[case(Operation::Remove, 409, "removal of container x is already in progress", ErrorKind::Conflict)]
    #[case(Operation::Logs, 501, "configured logging driver does not support reading", ErrorKind::Unsupported)]
    #[case(Operation::List, 500, "", ErrorKind::Engine)]
    #[case(Operation::List, 403, "authorization denied by plugin", ErrorKind::Denied)]
    #[case(Operation::List, 199, "", ErrorKind::Unknown)]
    fn statuses(#[case] operation: Operation, #[case] code: u16, #[case] text: &str, #[case] kind: ErrorKind) {
        assert_eq!(classify(operation, &Failure::Status { code, message: text.to_owned() }), kind);
    }

    #[rstest]
    #[case(Failure::Connect { kind: io::ErrorKind::NotFound, message: String::new() }, ErrorKind::Unreachable)]
    #[case(Failure::Connect { kind: io::ErrorKind::ConnectionRefused, message: String::new() }, ErrorKind::Unreachable)]
    #[case(Failure::Connect { kind: io::ErrorKind::PermissionDenied, message: String::new() }, ErrorKind::Denied)]
    #[case(Failure::Broken(String::new()), ErrorKind::Unknown)]
    #[case(Failure::TimedOut(Duration::from_secs(30)), ErrorKind::Unknown)]
    #[case(Failure::Answer(String::new()), ErrorKind::Unknown)]
    #[case(Failure::Request(String::new()), ErrorKind::Invalid)]
    fn transports(#[case] failure: Failure, #[case] kind: ErrorKind) {
        for operation in [Operation::List, Operation::Create, Operation::Start] {
            assert_eq!(classify(operation, &failure), kind);
        }
    }

    #[test]
    fn messages_are_one_line_without_control_characters() {
        let failure = Failure::Status { code: 400, message: "a\r\n\tb\u{1b}[31mc\n".to_owned() };
        let error = failure.into_error(Operation::Start, Some("x"));
        assert_eq!(error.message, "a b [31mc");
        assert_eq!(error.to_string(), "start failed for x: a b [31mc");
        let silent = Failure::Status { code: 503, message: "\n".to_owned() };
        assert_eq!(silent.into_error(Operation::List, None).to_string(), "list failed: HTTP status 503");
    }
}
