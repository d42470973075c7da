//! The listener: a thread with a runtime of its own, a bound on connections and on how long each may dawdle.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::listen::{Bound, Listen, ListenError, bind};
use super::router::{Site, router};

/// Connections at once; more are closed as they come. A browser takes six, a Prometheus one.
const MAX_CONNECTIONS: usize = 128;
/// For the whole head of a request, and for how long a connection may be idle between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection older than this ends; streams resume.
const MAX_AGE: Duration = Duration::from_hours(1);
/// A head of a request larger than this is refused. What hyper allows at least.
const MAX_HEAD: usize = 16 << 10;
/// How long a client may leave unread what we sent.
const UNREAD: Duration = Duration::from_secs(30);
/// After an accept that failed for want of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// How to serve.
#[derive(Debug)]
pub struct ServerOptions {
    /// Where.
    pub listen: Listen,
    /// Whether there is a token; without one only this machine may reach us.
    pub has_token: bool,
}

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct Server {
    at: Listen,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Takes the place and begins to serve.
    pub fn start(options: &ServerOptions, site: Arc<Site>) -> Result<Self, ListenError> {
        Self::start_app(options, router(site))
    }

    /// The same with routes that were made already.
    pub fn start_app(options: &ServerOptions, app: Router) -> Result<Self, ListenError> {
        if !options.listen.is_local() && !options.has_token {
            return Err(ListenError::Open { listen: options.listen.clone() });
        }
        let (bound, at) = bind(&options.listen)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ListenError::Thread)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = move || runtime.block_on(serve(bound, app, stopped));
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(serve).map_err(ListenError::Thread)?;
        Ok(Self { at, stop, thread: Some(thread) })
    }

    /// Where it listens, with the port that it got.
    pub fn at(&self) -> &Listen {
        &self.at
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
        // Nothing in there waits for long; a panic was told by the hook.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

async fn serve(bound: Bound, app: Router, stop: CancellationToken) {
    let socket = match &bound {
        Bound::Unix(_, path) => Some(path.clone()),
        Bound::Tcp(_) => None,
    };
    let _stopped = match bound {
        Bound::Tcp(listener) => match TcpListener::from_std(listener) {
            Ok(listener) => stop.run_until_cancelled(accept(Tcp(listener), app)).await,
            Err(_) => None,
        },
        Bound::Unix(listener, _) => match UnixListener::from_std(listener) {
            Ok(listener) => stop.run_until_cancelled(accept(listener, app)).await,
            Err(_) => None,
        },
    };
    if let Some(path) = socket {
        // A dead socket file is replaced by the next start anyway.
        drop(std::fs::remove_file(path));
    }
}

/// Both kinds of listeners.
trait Accept {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    async fn accept(&self) -> io::Result<Self::Stream>;
}

struct Tcp(TcpListener);

impl Accept for Tcp {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.0.accept().await?;
        // Where the system has no such bound, the connection's age is one.
        let unread = u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX);
        let _unsupported = rustix::net::sockopt::set_tcp_user_timeout(&stream, unread);
        Ok(stream)
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(UnixListener::accept(self).await?.0)
    }
}

async fn accept(listener: impl Accept, app: Router) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    // Without a permit the stream is dropped here, which closes it.
                    if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
                        let app = app.clone();
                        connections.spawn(async move {
                            let _permit = permit;
                            connection(stream, app).await;
                        });
                    }
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, app: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    // What a client does wrong concerns nobody else.
    drop(tokio::time::timeout(MAX_AGE, connection).await);
}
