//! A socket between the program and an engine, which does to requests and answers what networks and busy engines do.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It takes effect, and its answer never comes.
    AnswerLost,
    /// It takes effect, and its answer breaks off.
    AnswerCut,
    /// It comes to the engine twice.
    Twice,
    /// The engine says that it is broken.
    ServerError,
    /// It takes longer.
    Late(Duration),
}

type Choose = dyn Fn(&str) -> Option<Fault> + Send + Sync;

/// The socket; closed when dropped.
pub struct Proxy {
    socket: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    engine: PathBuf,
    choose: Box<Choose>,
    calm: AtomicBool,
    closed: AtomicBool,
    done: Mutex<Vec<(Fault, String)>>,
    requests: AtomicU32,
}

impl Proxy {
    /// Stands at a socket in front of an engine's. The function is given each request's line and chooses what happens to it.
    pub fn start(socket: &Path, engine: &Path, choose: impl Fn(&str) -> Option<Fault> + Send + Sync + 'static) -> Self {
        let listener = UnixListener::bind(socket).expect("binds");
        let shared = Arc::new(Shared {
            engine: engine.to_owned(),
            choose: Box::new(choose),
            calm: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            done: Mutex::default(),
            requests: AtomicU32::new(0),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if serving.closed.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || drop(shared.serve(client.expect("accepts"))));
            }
        });
        Self { socket: socket.to_owned(), shared }
    }

    /// Nothing more happens to requests.
    pub fn calm(&self) {
        self.shared.calm.store(true, Ordering::SeqCst);
    }

    /// What happened to which requests.
    pub fn done(&self) -> Vec<(Fault, String)> {
        self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests came.
    pub fn requests(&self) -> u32 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.socket));
    }
}

impl Shared {
    /// One request for each connection: both sides are told to close it then.
    fn serve(&self, mut client: UnixStream) -> std::io::Result<()> {
        let request = read_request(&mut client)?;
        let line =
            String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        self.requests.fetch_add(1, Ordering::SeqCst);
        let fault = if self.calm.load(Ordering::SeqCst) { None } else { (self.choose)(&line) };
        if let Some(fault) = fault {
            self.done.lock().unwrap_or_else(PoisonError::into_inner).push((fault, line));
        }
        match fault {
            Some(Fault::ServerError) => {
                let body = r#"{"message":"the proxy says that the engine is broken"}"#;
                let head = "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close";
                return write!(client, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            }
            Some(Fault::Twice) => drop(self.ask(&request)?.read_to_end(&mut Vec::new())),
            Some(Fault::Late(pause)) => {
                #[expect(clippy::disallowed_methods, reason = "a real engine is late in real time")]
                std::thread::sleep(pause);
            }
            _ => {}
        }
        let mut engine = self.ask(&request)?;
        match fault {
            Some(Fault::AnswerLost) => drop(engine.read_to_end(&mut Vec::new())?),
            Some(Fault::AnswerCut) => {
                let mut answer = Vec::new();
                engine.read_to_end(&mut answer)?;
                client.write_all(&answer[..answer.len() / 2])?;
            }
            _ => {
                // Who hangs up on a stream hangs up on the engine, too.
                let (mut gone, upstream) = (client.try_clone()?, engine.try_clone()?);
                std::thread::spawn(move || {
                    drop(gone.read(&mut [0; 1]));
                    drop(upstream.shutdown(Shutdown::Both));
                });
                drop(std::io::copy(&mut engine, &mut client));
            }
        }
        client.shutdown(Shutdown::Both)
    }

    fn ask(&self, request: &[u8]) -> std::io::Result<UnixStream> {
        let mut engine = UnixStream::connect(&self.engine)?;
        engine.write_all(request)?;
        Ok(engine)
    }
}

/// A whole request, which asks for its connection to be closed.
fn read_request(client: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..read]);
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    while bytes.len() < head + 4 + length {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
    let mut request = bytes[..head].to_vec();
    request.extend_from_slice(b"\r\nConnection: close");
    request.extend_from_slice(&bytes[head..]);
    Ok(request)
}
