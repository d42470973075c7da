//! The end of a task's output, for its page: as it was kept, or from its container while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::act::{LogCapture, SecretSource, Secrets};
use crate::observe::{AttemptKey, names};
use crate::record::Files;
use crate::report::{TaskView, escape};
use crate::runtime::{LogOptions, Runtime};
use crate::spec::{TaskId, TaskSet};

/// Lines that a page shows.
const LINES: u32 = 200;
/// And no more than so many bytes of them.
const BYTES: usize = 64 << 10;
/// How long an engine may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The end of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tail {
    /// Text without control characters; whether something stands before it.
    Text {
        /// What was written last.
        text: String,
        /// Something was written before.
        cut: bool,
    },
    /// Why there is none.
    Missing(String),
}

/// Reads ends of outputs.
pub struct LogTail {
    runtime: Arc<dyn Runtime>,
    files: Arc<dyn Files>,
    state_dir: PathBuf,
    secrets: SecretSource,
    /// The runtime's connections belong to the loop's executor; so does asking it.
    handle: Handle,
}

impl LogTail {
    /// From kept logs in `state_dir` and from `runtime`, which is asked on `handle`.
    pub fn new(
        runtime: Arc<dyn Runtime>,
        files: Arc<dyn Files>,
        state_dir: PathBuf,
        secrets: SecretSource,
        handle: Handle,
    ) -> Self {
        Self { runtime, files, state_dir, secrets, handle }
    }

    /// Of a task's newest attempt.
    pub(super) async fn of(&self, task: &TaskView, tasks: &TaskSet) -> Tail {
        let Some(id) = TaskId::new(&task.id).ok().filter(|_| task.attempt > 0) else {
            return Tail::Missing("it was never launched, so it has no output".to_owned());
        };
        let key = AttemptKey { task: id, attempt: task.attempt };
        let path = names::attempt_dir(&self.state_dir, &key).join("log");
        match self.files.read(&path) {
            // Kept logs are masked already.
            Ok(bytes) => shown(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.live(task, tasks).await,
            Err(error) => Tail::Missing(error.to_string()),
        }
    }

    async fn live(&self, task: &TaskView, tasks: &TaskSet) -> Tail {
        let Some(container) = task.container_id.clone() else {
            return Tail::Missing("there is no output yet".to_owned());
        };
        let options = LogOptions { follow: false, tail: Some(LINES), since: None };
        let runtime = Arc::clone(&self.runtime);
        let secrets = self.secrets(task, tasks);
        let collect = async move {
            let mut capture = LogCapture::new(&secrets);
            let mut chunks = runtime.logs(&container, options);
            while let Some(chunk) = chunks.next().await {
                capture.push(&chunk?);
            }
            Ok::<_, crate::runtime::RuntimeError>(capture.finish().bytes)
        };
        let collected = AbortOnDropHandle::new(self.handle.spawn(collect));
        match tokio::time::timeout(PATIENCE, collected).await {
            Ok(Ok(Ok(bytes))) => shown(&bytes),
            Ok(Ok(Err(error))) => Tail::Missing(error.to_string()),
            Ok(Err(_)) | Err(_) => Tail::Missing("the engine did not give the output in time".to_owned()),
        }
    }

    fn secrets(&self, task: &TaskView, tasks: &TaskSet) -> Secrets {
        let spec = tasks.find(&task.id).map(|ix| tasks.task(ix));
        let secrets = spec.into_iter().flat_map(|spec| &spec.attempt.secrets);
        let values: Vec<_> = secrets.filter_map(|secret| self.secrets.find(secret).ok()).collect();
        Secrets::new(values.iter().map(|value| value.expose().as_bytes()))
    }
}

/// The last lines, safe to show.
fn shown(bytes: &[u8]) -> Tail {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let line = memchr::memrchr_iter(b'\n', body).nth(LINES as usize - 1).map_or(0, |end| end + 1);
    let start = line.max(bytes.len().saturating_sub(BYTES));
    Tail::Text { text: escape::lines(&String::from_utf8_lossy(&bytes[start..])).into_owned(), cut: start > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_without_what_drives_a_terminal() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), Tail::Text { text: "a\\u{1b}[2Jb\n".to_owned(), cut: false });
        let many = "x\n".repeat(500);
        assert_eq!(shown(many.as_bytes()), Tail::Text { text: "x\n".repeat(200), cut: true });
        let Tail::Text { text, cut } = shown(&vec![b'y'; 1 << 20]) else { panic!("text") };
        assert_eq!((text.len(), cut), (BYTES, true));
        assert_eq!(shown(b""), Tail::Text { text: String::new(), cut: false });
    }
}
