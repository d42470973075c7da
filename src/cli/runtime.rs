//! Which runtime a repository's attempts run on: what the command line says, else what the file says. Nothing falls back by
//! itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::controller::SpecFile;
use crate::error::Report;
use crate::runtime::Runtime;
use crate::runtime::docker::{DockerRuntime, Endpoint};
use crate::runtime::process::{ProcessRuntime, ProcessSettings};
use crate::settings::Settings;
use crate::spec::{ReadOptions, RuntimeKind};

/// A runtime, and the socket that no container may see.
pub(super) struct Chosen {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) socket: Option<PathBuf>,
}

/// Makes the runtime. Asks it nothing yet.
pub(super) fn choose(
    kind: RuntimeKind,
    settings: &Settings,
    state_dir: &Path,
    allow_unconfined: bool,
) -> Result<Chosen, Report> {
    match kind {
        RuntimeKind::Docker => {
            let endpoint = Endpoint::find(&settings.docker)?;
            let socket = match &endpoint {
                Endpoint::Unix(path) => Some(path.clone()),
                Endpoint::Tcp(_) => None,
            };
            Ok(Chosen { runtime: Arc::new(DockerRuntime::at(endpoint, settings.docker.config_dir.clone())), socket })
        }
        RuntimeKind::Process => {
            let mut process = ProcessSettings::new(state_dir.join("process"));
            process.env = ProcessSettings::passed(settings.vars());
            process.hidden = settings.home.as_deref().map(ProcessSettings::private).unwrap_or_default();
            process.allow_unconfined = allow_unconfined;
            process.avoid = settings.avoid;
            Ok(Chosen { runtime: Arc::new(ProcessRuntime::new(process)?), socket: None })
        }
    }
}

/// What the files say of the runtime; the default where they say nothing or cannot be read, which others tell.
pub(super) fn of_files(plan_file: &Path, spec: &SpecFile) -> RuntimeKind {
    // A FIFO that stands there would be waited for, for ever.
    let read = |path: &Path| path.is_file().then(|| std::fs::read(path).ok()).flatten();
    let files = [read(plan_file), spec.path().and_then(read)];
    // Most files do not name one, and a large one need not be judged twice for that.
    if !files.iter().flatten().any(|bytes| memchr::memmem::find(bytes, b"runtime").is_some()) {
        return RuntimeKind::default();
    }
    let accepted = crate::spec::read_both(files[0].as_deref(), files[1].as_deref(), ReadOptions::default());
    accepted.map_or_else(|_| RuntimeKind::default(), |accepted| accepted.tasks.runtime)
}
