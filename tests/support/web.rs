//! What the tests of HTTP, metrics and the page share: a small client, the daemon with its address, and other people's
//! programs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::engine;
use super::project::Project;

/// How long anything may take on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its code.
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    /// What follows.
    pub body: String,
}

/// Sends bytes as they are and reads until the other side closes.
pub fn raw(address: &str, request: &str) -> Answer {
    try_raw(address, request).unwrap_or_else(|error| panic!("{address}: {error}"))
}

fn try_raw(address: &str, request: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    // Not everybody closes although asked to.
    while !is_whole(&bytes) {
        match stream.read(&mut piece)? {
            0 => break,
            read => bytes.extend_from_slice(&piece[..read]),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { dechunked(body) } else { body.to_owned() };
    Ok(Answer { status, head: head.to_owned(), body })
}

/// Whether as much is there as the head says; where it does not say, the end tells.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let start = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len()) + 4;
    length.is_some_and(|length| bytes.len() >= start + length)
}

fn dechunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = rest.get(..size).filter(|chunk| !chunk.is_empty()) else { break };
        text.push_str(chunk);
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

/// `GET`.
pub fn get(address: &str, path: &str) -> Answer {
    raw(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// A call with a JSON body; gives the answer's JSON.
pub fn call(address: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let answer = try_raw(address, &request).map_err(|error| error.to_string())?;
    serde_json::from_str(&answer.body).map_err(|error| format!("{error}: {} {}", answer.head, answer.body))
}

/// Waits until something holds; gives what it gave.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    #[expect(clippy::disallowed_methods, reason = "other people's programs take real time")]
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        #[expect(clippy::disallowed_methods, reason = "other people's programs take real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where a program is; `None` after the reason for skipping was told. `make test` installs them.
pub fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/usr/local/bin", "/bin"].map(|dir| PathBuf::from(dir).join(name));
    let found = found.into_iter().find(|path| path.exists());
    if found.is_none() {
        let reason = format!("there is no {name}; `make test-tools` installs it as root on Debian");
        assert!(engine::variable("ORCHESTRATE_TEST_DOCKER").as_deref() != Some("require"), "{reason}");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Nobody to tell where stderr is closed.
        drop(writeln!(std::io::stderr(), "SKIPPED {test}: {reason}"));
    }
    found
}

/// A process that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// `orchestrate run --listen` over a project.
pub struct Daemon {
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// The process.
    pub process: Running,
}

impl Daemon {
    /// Starts it on a free port.
    pub fn start(project: &Project, more: &[&str]) -> Self {
        let mut arguments = vec!["run", "--listen", "127.0.0.1:0"];
        arguments.extend(more);
        let mut child =
            project.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut told = Vec::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("it ended without serving: {told:?}") };
            if let Some((_, rest)) = line.split_once("serving http://") {
                break rest.trim_end_matches('/').to_owned();
            }
            told.push(line);
        };
        // Somebody has to read what it goes on to say.
        std::thread::spawn(move || lines.for_each(drop));
        Self { address, process: Running(child) }
    }

    /// `GET`.
    pub fn get(&self, path: &str) -> Answer {
        get(&self.address, path)
    }
}

/// A port that was free a moment ago, for programs that cannot choose one and tell.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// Runs a program and fails with its output unless it ends well.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}
