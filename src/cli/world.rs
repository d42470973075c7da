//! Ties the ports together: the repository around us, the engine that the settings name, the files, the clock.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::args::Global;
use super::output::Output;
use super::runtime;
use crate::act::Ports;
use crate::clock::{Clock, SystemClock};
use crate::controller::{self, OpenOptions, Reconciler, RunError, Snapshot, SpecFile};
use crate::error::{Kind, Report};
use crate::git::{GixRepository, Repository};
use crate::observe::names;
use crate::record::{self, Files, Holder, OsFiles};
use crate::report::diagnostics;
use crate::report::{View, plural};
use crate::settings::Settings;
use crate::spec::RuntimeKind;

/// The plan file's name at the root of the repository.
pub(super) const PLAN_FILE: &str = ".agent-tasks.json";

/// The YAML spec's name beside it.
pub(super) const SPEC_FILE: &str = "agent-tasks.yaml";

/// What every command is given.
pub(super) struct Context {
    pub(super) global: Global,
    pub(super) settings: Settings,
    pub(super) output: Output,
    /// The whole command line, for the lock's note.
    pub(super) command_line: String,
    /// The program's full version.
    pub(super) version: &'static str,
}

/// The repository around us with everything that works on it.
pub(super) struct World {
    pub(super) repository: Arc<dyn Repository>,
    pub(super) runtime: Arc<dyn crate::runtime::Runtime>,
    pub(super) files: Arc<dyn Files>,
    pub(super) clock: Arc<dyn Clock>,
    /// Where the engine listens, where that is a socket.
    socket: Option<PathBuf>,
    /// Which runtime it is.
    pub(super) kind: RuntimeKind,
    /// The plan file.
    pub(super) plan_file: PathBuf,
    /// The YAML spec over it.
    pub(super) spec: SpecFile,
    /// The repository's folder name, which names a plan without `project`.
    pub(super) folder: String,
}

impl Context {
    /// The same without a folder: paths are relative to where we were started.
    pub(super) fn without_folder(&self) -> Self {
        let mut context = self.at(Path::new("."));
        context.global.dir.clear();
        context
    }

    /// The same for another folder.
    pub(super) fn at(&self, folder: &Path) -> Self {
        Self {
            global: Global { dir: vec![folder.to_owned()], ..self.global.clone() },
            settings: self.settings.clone(),
            output: self.output.clone(),
            command_line: self.command_line.clone(),
            version: self.version,
        }
    }

    /// The folder that we work in.
    pub(super) fn dir(&self) -> &Path {
        self.global.dir.first().map_or(Path::new("."), |dir| dir)
    }

    /// A path as given on the command line: relative to where we work.
    pub(super) fn path(&self, path: &Path) -> PathBuf {
        self.global.dir.first().map_or_else(|| path.to_owned(), |dir| dir.join(path))
    }

    /// Finds the repository and the engine. Asks the engine nothing yet.
    pub(super) fn world(&self) -> Result<World, Report> {
        let repository = GixRepository::discover(self.dir())?;
        let root = &repository.layout().root;
        let folder = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let plan_file = match &self.global.file {
            Some(file) => self.path(file),
            None => root.join(PLAN_FILE),
        };
        // A plan file that was named stands alone: the usual spec belongs to the usual file.
        let spec = match (&self.global.spec, &self.global.file) {
            (Some(spec), _) => SpecFile::Given(self.path(spec)),
            (None, Some(_)) => SpecFile::None,
            (None, None) => SpecFile::Usual(root.join(SPEC_FILE)),
        };
        let kind = self.global.runtime.map_or_else(|| runtime::of_files(&plan_file, &spec), Into::into);
        let state_dir = names::state_dir(&repository.layout().common_dir);
        let chosen = runtime::choose(kind, &self.settings, &state_dir, self.global.allow_unconfined)?;
        Ok(World {
            repository: Arc::new(repository),
            runtime: chosen.runtime,
            files: Arc::new(OsFiles),
            clock: Arc::new(SystemClock::new()),
            socket: chosen.socket,
            kind,
            plan_file,
            spec,
            folder,
        })
    }

    /// Looks at everything without touching anything.
    pub(super) fn survey(&self, world: &World) -> Result<(Snapshot, View), Report> {
        let snapshot =
            block_on(controller::survey(&world.ports(), &world.plan_file, &world.spec, self.global.disk_floor()))?;
        let mut snapshot = snapshot.map_err(|error| self.fail(world, error))?;
        let secrets = snapshot.tasks.tasks.iter().flat_map(|task| &task.attempt.secrets);
        let exposed = self.settings.secrets().warnings(secrets);
        snapshot.warnings.extend(exposed);
        let view = View::of(&snapshot, &world.folder);
        for warning in &view.warnings {
            self.output.warn(warning);
        }
        Ok((snapshot, view))
    }

    /// Takes the repository's lock.
    pub(super) fn open(
        &self,
        world: &World,
        max_concurrent: Option<std::num::NonZeroU32>,
    ) -> Result<Reconciler, Report> {
        let state_dir = names::state_dir(&world.repository.layout().common_dir);
        refuse_copy(&*world.files, &state_dir)?;
        let holder = Holder {
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            command: self.command_line.clone(),
            since: world.clock.now().wall,
        };
        let seed = fastrand::u64(..);
        let options = OpenOptions {
            ports: world.ports(),
            plan_file: world.plan_file.clone(),
            spec: world.spec.clone(),
            secrets: self.settings.secrets(),
            home: self.settings.home.clone(),
            sockets: world.socket.iter().cloned().collect(),
            holder,
            max_concurrent,
            disk_floor: self.global.disk_floor(),
            seed,
        };
        let reconciler = Reconciler::open(options).map_err(|error| self.fail(world, error))?;
        // The first one to open it notes where it is.
        refuse_copy(&*world.files, &state_dir)?;
        Ok(reconciler)
    }

    /// Tells what is wrong with a file that is not accepted, and gives the failure to end with.
    pub(super) fn fail(&self, world: &World, error: RunError) -> Report {
        let RunError::Invalid { files: judged, refused } = &error else {
            return Report::from(error).at_host(world.runtime.host());
        };
        let names: Vec<String> = judged.iter().map(|file| file.path.display().to_string()).collect();
        let judged = judged.iter().zip(&names).map(|(file, name)| (file.origin, name.as_str(), &*file.text));
        let files = diagnostics::Files::new(judged, &refused.sensitive);
        let told = diagnostics::text(
            &files,
            &refused.diagnostics,
            refused.untold,
            self.output.is_err_colored(),
            self.output.err_width(),
        );
        drop(std::io::Write::write_all(&mut self.output.stderr(), told.as_bytes()));
        Report::new(Kind::InvalidFile, format!("{error}; nothing was changed"))
    }
}

/// Of a repository and its copy, only the original goes on with what the state dir says.
fn refuse_copy(files: &dyn Files, state_dir: &Path) -> Result<(), Report> {
    let shown = state_dir.display();
    let original = record::copied_from(files, state_dir)?;
    let Some(original) = original else { return Ok(()) };
    let message = format!("{shown} is a copy of {}, which is still there", original.display());
    let hint = format!(
        "two repositories with one identity would take each other's containers for their own: remove {shown} to begin with \
         a state of its own, or remove the original if this copy is to go on in its place"
    );
    Err(Report::new(Kind::Environment, message).hint(hint))
}

impl World {
    /// The ports, for those who work through them.
    pub(super) fn ports(&self) -> Ports {
        Ports {
            runtime: Arc::clone(&self.runtime),
            repository: Arc::clone(&self.repository),
            files: Arc::clone(&self.files),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Sockets that no container may see.
    pub(super) fn sockets(&self) -> &[PathBuf] {
        self.socket.as_slice()
    }

    /// Where the journal and the logs are.
    pub(super) fn state_dir(&self) -> PathBuf {
        names::state_dir(&self.repository.layout().common_dir)
    }
}

/// Runs asynchronous work to its end.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Report::of(Kind::Environment, &error))?;
    let result = runtime.block_on(work);
    // Whoever still reads or waits in the background may not keep us from ending.
    runtime.shutdown_background();
    Ok(result)
}

/// The tasks of these ids, or what is wrong with the first that there is none of.
pub(super) fn require_tasks<'v>(view: &'v View, ids: &[String]) -> Result<Vec<&'v crate::report::TaskView>, Report> {
    ids.iter().map(|id| require_task(view, id)).collect()
}

/// The task of this id, or a failure that names those which may have been meant.
pub(super) fn require_task<'v>(view: &'v View, id: &str) -> Result<&'v crate::report::TaskView, Report> {
    if let Some(task) = view.task(id) {
        return Ok(task);
    }
    let report = Report::new(Kind::Usage, format!("there is no task `{id}` in this plan"));
    let lower = id.to_lowercase();
    let near = |task: &&crate::report::TaskView| {
        let other = task.id.to_lowercase();
        strsim::damerau_levenshtein(&lower, &other) <= 1 + id.len() / 4 || (id.len() > 1 && other.starts_with(&lower))
    };
    let near: Vec<String> = view.tasks.iter().filter(near).take(5).map(|task| format!("`{}`", task.id)).collect();
    Err(if near.is_empty() {
        let count = plural(view.tasks.len(), "task", "tasks");
        report.hint(format!("it has {count}: `orchestrate status -o name` lists them"))
    } else {
        report.hint(format!("did you mean {}?", near.join(" or ")))
    })
}
