//! A look at everything without touching anything: no lock, no write, and an engine that is away is a fact like others.

use std::path::Path;
use std::sync::Arc;

use super::desired::{self, Adoption};
use super::disks::disks;
use super::error::RunError;
use super::snapshot::Snapshot;
use super::sources::{Sources, SpecFile};
use crate::act::{Ports, one_line};
use crate::observe::{Observer, names};
use crate::plan::{DiskFloor, Inputs, Memory, plan};
use crate::record::{Journal, Ledger, PARTIAL_PATIENCE};

/// Stands for the id of a plan that was never served, in a survey's ledger.
pub const UNSERVED: &str = "new";

/// Looks at the plan file, the journal and the runtime, and plans. What a person asked for through the file is taken as
/// granted, as the next pass will.
pub async fn survey(
    ports: &Ports,
    plan_file: &Path,
    spec: &SpecFile,
    disk_floor: DiskFloor,
) -> Result<Snapshot, RunError> {
    let layout = ports.repository.layout();
    let state_dir = names::state_dir(&layout.common_dir);
    let sources = Sources::new(&ports.files, plan_file.to_owned(), layout.root.clone(), spec);
    let now = ports.clock.now();
    let content = sources.read(PARTIAL_PATIENCE, &now).await?;
    let mut ledger = Journal::read(ports.files.as_ref(), &state_dir)?.ledger;
    let accepted = sources.judge(&content, &ledger)?;
    let mut observer = Observer::default();
    let instance = ledger.instance().cloned();
    match instance {
        Some(instance) => match ports.runtime.list(&instance).await {
            Ok(containers) => {
                let _relist = observer.apply_list_with(containers, &ledger.sent(), &ledger.verifying());
            }
            Err(error) => observer.lost(one_line(&error)),
        },
        // Nothing was ever launched from here, so nothing of ours can be there; whether the engine answers still matters.
        None => match ports.runtime.probe().await {
            Ok(_) => {
                let _relist = observer.apply_list(Vec::new(), &std::collections::BTreeSet::new());
            }
            Err(error) => observer.lost(one_line(&error)),
        },
    }
    let now = ports.clock.now();
    let memory = Memory { disks: disks(&*ports.files, layout), disk_floor, ..Memory::new() };
    let tasks = accepted.tasks;
    let picture = observer.observed().clone();
    let decide = |ledger: &Ledger| {
        plan(&Inputs { tasks: &tasks, observed: &picture, ledger, memory: &memory, frozen: false, now: &now })
    };
    let published = &accepted.published;
    let entries = match desired::adopt(&tasks, published, &ledger, &now, || UNSERVED.to_owned()) {
        Adoption::New(entries) => entries,
        Adoption::Served => desired::requests(&tasks, published, &decide(&ledger), &ledger, &now),
    };
    for entry in &entries {
        ledger.apply(entry);
    }
    let plan = decide(&ledger);
    let warnings = accepted.warnings.iter().map(|warning| warning.message.clone()).collect();
    Ok(Snapshot { tasks: Arc::new(tasks), ledger, observed: picture, plan, now, warnings, fault: None })
}
