//! Answers that go on: one connection for each, read as it comes.
//!
//! bollard's streams do not tell when the engine has accepted the request, which a subscription must know, and its log
//! decoder takes the log of a terminal for frames by its first byte and keeps a line in memory until it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, Either, select};
use futures::{FutureExt, Stream, TryStreamExt};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::classify::{Failure, chain};
use super::endpoint::Endpoint;

/// The most of an error's text that is read.
const ERROR_LIMIT: usize = 64 << 10;

/// The body of an answer. Dropping it closes the connection.
pub(super) struct Body {
    connection: Option<BoxFuture<'static, Result<(), hyper::Error>>>,
    incoming: Incoming,
}

/// Sends a GET request; returns once the engine has answered with a good status.
pub(super) async fn get(endpoint: &Endpoint, path_and_query: &str, limit: Duration) -> Result<Body, Failure> {
    let answer = async {
        match endpoint {
            Endpoint::Unix(path) => match UnixStream::connect(path).await {
                Ok(io) => send(io, path_and_query).await,
                Err(error) => Err(unconnected(endpoint, &error)),
            },
            Endpoint::Tcp(address) => match TcpStream::connect(address).await {
                Ok(io) => send(io, path_and_query).await,
                Err(error) => Err(unconnected(endpoint, &error)),
            },
        }
    };
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(Failure::TimedOut(limit)))
}

fn unconnected(endpoint: &Endpoint, error: &std::io::Error) -> Failure {
    Failure::Connect { kind: error.kind(), message: format!("{endpoint}: {error}") }
}

async fn send(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, target: &str) -> Result<Body, Failure> {
    let request = Request::get(target)
        .header(hyper::header::HOST, "docker")
        .body(String::new())
        .map_err(|error| Failure::Request(chain(&error)))?;
    let broken = |error: hyper::Error| Failure::Broken(chain(&error));
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(broken)?;
    let response = sender.send_request(request).boxed();
    let (response, connection) = match select(response, connection.boxed()).await {
        Either::Left((response, connection)) => (response.map_err(broken)?, Some(connection)),
        // A short answer may be whole before its headers are looked at.
        Either::Right((_, response)) => (response.await.map_err(broken)?, None),
    };
    let status = response.status();
    let body = Body { connection, incoming: response.into_body() };
    if status.is_success() {
        return Ok(body);
    }
    Err(Failure::Status { code: status.as_u16(), message: error_text(body).await })
}

/// The text of an answer that is an error; whatever could be read of it.
async fn error_text(mut body: Body) -> String {
    #[derive(serde::Deserialize)]
    struct Message {
        message: String,
    }
    let mut bytes = Vec::new();
    while let Ok(Some(piece)) = body.try_next().await {
        let room = ERROR_LIMIT - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if bytes.len() == ERROR_LIMIT {
            break;
        }
    }
    serde_json::from_slice::<Message>(&bytes)
        .map_or_else(|_| String::from_utf8_lossy(&bytes).into_owned(), |answer| answer.message)
}

impl Stream for Body {
    type Item = Result<Bytes, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The connection moves only while it is polled. Its error is told by the body as well.
        if let Some(connection) = &mut self.connection
            && connection.poll_unpin(context).is_ready()
        {
            self.connection = None;
        }
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
                None => None,
                Some(Err(error)) => Some(Err(Failure::Broken(chain(&error)))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => Some(Ok(bytes)),
                    // Trailers.
                    Err(_) => continue,
                },
            });
        }
    }
}
