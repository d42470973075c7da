//! Calls for people: a command of theirs or an HTTP request for each happening, beside the loop and never in its way.
//!
//! What is called comes from flags and variables alone, never from the plan file: that file is part of a repository, an
//! agent may commit to it, and a pull may bring another one. Who may edit a plan may run commands in containers; who starts
//! the program may run commands on the host. A command in the plan file would make the first into the second.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::output::Output;
use crate::controller::{Level, Reporter, Snapshot};
use crate::report::{Happening, View, Watcher};

/// Calls that wait to be made; beyond it the newest are dropped, with a word.
const WAITING: usize = 256;
/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Pauses before a call that failed is made again.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long calls may go on after the loop has ended.
const FAREWELL: Duration = Duration::from_secs(30);
/// The same after a signal, which has to end us within seconds.
const SHORT_FAREWELL: Duration = Duration::from_secs(1);

/// Flags about calls.
#[derive(Debug, Args)]
#[command(next_help_heading = "Calls for people")]
pub(super) struct Hooks {
    /// Run this for each finished, failed or stale task and when all are resolved, with JSON on standard input; words as in
    /// a shell, but no shell runs it
    #[arg(long, value_name = "COMMAND", env = "ORCHESTRATE_NOTIFY", hide_env_values = true, value_parser = words)]
    notify: Option<Words>,

    /// Send the same as an HTTP POST to this `http://` address
    #[arg(long, value_name = "URL", env = "ORCHESTRATE_NOTIFY_URL", hide_env_values = true, value_parser = address)]
    notify_url: Option<Address>,
}

/// A command with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Words(Vec<String>);

/// Where to send to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    uri: hyper::Uri,
    /// Host and port to connect to.
    at: (String, u16),
}

fn words(text: &str) -> Result<Words, &'static str> {
    let words = shlex::split(text).ok_or("a quote is not closed")?;
    if words.is_empty() { Err("it is empty") } else { Ok(Words(words)) }
}

fn address(text: &str) -> Result<Address, &'static str> {
    let uri: hyper::Uri = text.parse().map_err(|_| "it is no URL")?;
    if uri.scheme_str() == Some("https") {
        return Err("this program speaks no TLS; use --notify with `curl --data-binary @- URL`");
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) => {
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let at = (host, uri.port_u16().unwrap_or(80));
            Ok(Address { uri, at })
        }
        _ => Err("give it as `http://HOST[:PORT]/PATH`"),
    }
}

impl Hooks {
    /// Who calls, where anybody is to be called.
    pub(super) fn caller(&self, output: &Output) -> Option<Caller> {
        if self.notify.is_none() && self.notify_url.is_none() {
            return None;
        }
        let (queue, waiting) = mpsc::channel(WAITING);
        let targets = Arc::new((self.notify.clone(), self.notify_url.clone()));
        let output = output.clone();
        let mut work = tokio::task::JoinSet::new();
        work.spawn(call_all(targets, waiting, output.clone()));
        Some(Caller { queue, work, output })
    }
}

/// Makes the calls.
pub(super) struct Caller {
    queue: mpsc::Sender<Happening>,
    work: tokio::task::JoinSet<()>,
    output: Output,
}

impl Caller {
    /// What notices happenings of one plan. `folder` names it where the file does not.
    pub(super) fn reporter(&self, folder: &str) -> HookReporter {
        HookReporter {
            watcher: Watcher::default(),
            folder: folder.to_owned(),
            queue: self.queue.clone(),
            output: self.output.clone(),
        }
    }

    /// Waits a while for calls that are still to be made. All reporters must be gone.
    pub(super) async fn finish(mut self, in_haste: bool) {
        drop(self.queue);
        let limit = if in_haste { SHORT_FAREWELL } else { FAREWELL };
        if timeout(limit, self.work.join_next()).await.is_err() {
            self.output.warn("some calls of --notify were not made in time");
        }
    }
}

/// Notices happenings.
pub(super) struct HookReporter {
    watcher: Watcher,
    folder: String,
    queue: mpsc::Sender<Happening>,
    output: Output,
}

impl Reporter for HookReporter {
    fn pass(&mut self, snapshot: &Snapshot) {
        for happening in self.watcher.look(&View::of(snapshot, &self.folder)) {
            if self.queue.try_send(happening).is_err() {
                self.output.warn("too many calls of --notify wait; one is dropped");
            }
        }
    }

    fn notice(&mut self, _: Level, _: &str) {}
}

async fn call_all(
    targets: Arc<(Option<Words>, Option<Address>)>,
    mut waiting: mpsc::Receiver<Happening>,
    output: Output,
) {
    while let Some(happening) = waiting.recv().await {
        let body = serde_json::to_vec(&happening).expect("BUG: a happening is plain data");
        if let Some(words) = &targets.0 {
            insist("--notify", &output, || run(words, &body)).await;
        }
        if let Some(address) = &targets.1 {
            insist("--notify-url", &output, || post(address, &body)).await;
        }
    }
}

async fn insist<F: Future<Output = Result<(), String>>>(what: &str, output: &Output, call: impl Fn() -> F) {
    let mut pauses = AGAIN.iter();
    loop {
        let failed = match timeout(LIMIT, call()).await {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => format!("it took longer than {} s", LIMIT.as_secs()),
        };
        match pauses.next() {
            Some(pause) => sleep(*pause).await,
            None => return output.warn(&format!("{what} failed {} times: {failed}", AGAIN.len() + 1)),
        }
    }
}

async fn run(words: &Words, body: &[u8]) -> Result<(), String> {
    let mut command = tokio::process::Command::new(&words.0[0]);
    command.args(&words.0[1..]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What it started is its own affair; it itself does not outlive the call.
    command.kill_on_drop(true).process_group(0);
    // Ours alone: a child that spoke to the service manager would speak in our name.
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    let mut child = command.spawn().map_err(|error| format!("cannot run `{}`: {error}", words.0[0]))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Who does not read what it is told has not failed.
        drop(stdin.write_all(body).await);
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", words.0[0])) }
}

/// A body in one piece.
struct Whole(Option<Bytes>);

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

async fn post(address: &Address, body: &[u8]) -> Result<(), String> {
    let told = |error: &dyn std::error::Error| crate::act::one_line(error);
    let stream = tokio::net::TcpStream::connect(&address.at).await.map_err(|error| told(&error))?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(|error| told(&error))?;
    let path = address.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
    let host = address.uri.authority().map_or("", hyper::http::uri::Authority::as_str);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let request = hyper::Request::post(path)
        .header(hyper::header::HOST, host)
        .header(hyper::header::CONTENT_TYPE, "application/json")
        .header(hyper::header::USER_AGENT, "orchestrate")
        .body(Whole(Some(Bytes::copy_from_slice(body))))
        .map_err(|error| told(&error))?;
    let send = async { sender.send_request(request).await.map_err(|error| told(&error)) };
    tokio::pin!(connection);
    let response = tokio::select! {
        response = send => response?,
        ended = &mut connection => return Err(ended.err().map_or("the connection was closed".to_owned(), |error| told(&error))),
    };
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("the answer was {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_commands_are_judged_when_they_are_given() {
        assert_eq!(words("say 'two words' --now").expect("good").0, ["say", "two words", "--now"]);
        assert!(words("say 'two").is_err() && words("  ").is_err());
        let good = address("http://user@[::1]:8080/in?x=1").expect("good");
        assert_eq!(good.at, ("::1".to_owned(), 8080));
        assert_eq!(address("http://localhost/in").expect("good").at, ("localhost".to_owned(), 80));
        assert!(address("https://example.org/").expect_err("no TLS").contains("curl"));
        assert!(address("/in").is_err() && address("ftp://x/").is_err());
    }
}
