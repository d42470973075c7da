//! Talks to a supervisor.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::facts::{Answer, Ask};
use super::folder::name;

/// What a question came to.
#[derive(Debug)]
pub(super) enum Asked {
    Answered(Answer),
    /// Nobody listens: the question had no effect.
    NobodyThere,
    /// The connection broke or no answer came in time: it may have or may yet.
    Unknown(String),
}

/// Asks the supervisor of a folder.
pub(super) async fn ask(folder: &Path, question: &Ask, limit: Duration) -> Asked {
    let Ok(stream) = connect(folder).await else { return Asked::NobodyThere };
    match tokio::time::timeout(limit, exchange(stream, question)).await {
        Ok(Ok(answer)) => Asked::Answered(answer),
        Ok(Err(error)) => Asked::Unknown(format!("its supervisor gave no answer: {error}")),
        Err(_) => Asked::Unknown(format!("its supervisor gave no answer within {} s", limit.as_secs())),
    }
}

/// A socket's address holds 107 bytes, a folder's path any number: it goes by a descriptor.
async fn connect(folder: &Path) -> io::Result<UnixStream> {
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    UnixStream::connect(format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), name::CONTROL)).await
}

async fn exchange(mut stream: UnixStream, question: &Ask) -> io::Result<Answer> {
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&answer)?)
}
