//! What every effect needs, shared by all actions of one repository.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pull::{Notices, Pulls};
use super::secrets::SecretSource;
use crate::clock::{Clock, Moment};
use crate::git::Repository;
use crate::observe::{AttemptKey, InstanceId, names};
use crate::record::{Entry, Files, Journal, JournalError, TaskRecord};
use crate::runtime::Runtime;
use crate::spec::TaskId;

/// What every effect needs. The journal is the only state that is written through it.
pub struct Context {
    /// Where attempts run.
    pub runtime: Arc<dyn Runtime>,
    /// The user's repository.
    pub repository: Arc<dyn Repository>,
    /// The file system, for the state dir.
    pub files: Arc<dyn Files>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where secrets come from.
    pub secrets: SecretSource,
    /// The user's home, never to be mounted whole.
    pub home: Option<PathBuf>,
    /// Sockets that no container may see.
    pub sockets: Vec<PathBuf>,
    /// The state dir.
    pub state_dir: PathBuf,
    pub(super) pulls: Pulls,
    journal: Mutex<Journal>,
}

/// The parts of a [`Context`] that its maker chooses.
pub struct Ports {
    /// Where attempts run.
    pub runtime: Arc<dyn Runtime>,
    /// The user's repository.
    pub repository: Arc<dyn Repository>,
    /// The file system.
    pub files: Arc<dyn Files>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// Ties the ports to an open journal.
    pub fn new(ports: Ports, journal: Journal, secrets: SecretSource) -> Self {
        let state_dir = names::state_dir(&ports.repository.layout().common_dir);
        Self {
            runtime: ports.runtime,
            repository: ports.repository,
            files: ports.files,
            clock: ports.clock,
            secrets,
            home: None,
            sockets: Vec::new(),
            state_dir,
            pulls: Pulls::default(),
            journal: Mutex::new(journal),
        }
    }

    /// With what no container may be given: the user's whole home, and the engine's sockets.
    #[must_use]
    pub fn with_protected(mut self, home: Option<PathBuf>, sockets: Vec<PathBuf>) -> Self {
        self.home = home;
        self.sockets = sockets;
        self
    }

    /// The journal. Never held across an await.
    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        // A panic elsewhere cannot leave it half-changed: a record is taken in only after it is durable.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a fact durable.
    pub fn record(&self, entry: &Entry) -> Result<(), JournalError> {
        self.journal().append(entry)
    }

    /// Makes a fact durable unless what is known of its task speaks against it; whether it did. Nothing comes between the
    /// look and the record.
    pub fn record_unless(
        &self,
        task: &TaskId,
        entry: &Entry,
        speaks_against: impl FnOnce(&TaskRecord) -> bool,
    ) -> Result<bool, JournalError> {
        let mut journal = self.journal();
        if journal.ledger().task(task).is_some_and(speaks_against) {
            return Ok(false);
        }
        journal.append(entry)?;
        Ok(true)
    }

    /// What is known of a task.
    pub fn known(&self, task: &TaskId) -> TaskRecord {
        self.journal().ledger().task(task).cloned().unwrap_or_default()
    }

    /// What people are to be told while jobs are under way.
    pub fn notices(&self) -> Arc<Notices> {
        Arc::clone(self.pulls.notices())
    }

    /// This clone's id.
    pub fn instance(&self) -> InstanceId {
        self.journal().instance().clone()
    }

    /// Removes secrets that attempts left in memory when we died.
    pub fn sweep_secrets(&self) {
        let instance = self.instance();
        let live: std::collections::BTreeSet<String> =
            self.journal().ledger().live().map(|(key, _)| key.to_string()).collect();
        super::secret_files::sweep(self.secrets.folders(), &instance, |name| live.contains(name));
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        self.clock.now().moment()
    }

    /// The attempt's folder in the state dir.
    pub fn attempt_dir(&self, key: &AttemptKey) -> PathBuf {
        names::attempt_dir(&self.state_dir, key)
    }

    /// A path as people should see it: relative to the repository where it is inside.
    pub fn shown(&self, path: &Path) -> String {
        let root = &self.repository.layout().root;
        path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
    }
}
