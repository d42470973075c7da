//! A look at everything without touching anything: no lock, no write, and an engine that is away is a fact like others.

use std::path::Path;
use std::sync::Arc;

use super::desired;
use super::error::RunError;
use super::snapshot::Snapshot;
use crate::act::{Ports, one_line};
use crate::observe::{Observer, names};
use crate::plan::{Inputs, Memory, plan};
use crate::record::{Journal, PARTIAL_PATIENCE, PlanFile};
use crate::spec::ReadOptions;

/// Stands for the id of a plan that was never served, in a survey's ledger.
pub const UNSERVED: &str = "new";

/// Looks at the plan file, the journal and the runtime, and plans. What a person asked for through the file is taken as
/// granted, as the next pass will.
pub async fn survey(ports: &Ports, plan_file: &Path) -> Result<Snapshot, RunError> {
    let layout = ports.repository.layout();
    let state_dir = names::state_dir(&layout.common_dir);
    let file = PlanFile::new(Arc::clone(&ports.files), plan_file.to_owned(), layout.root.clone());
    let content = file.read_settled(PARTIAL_PATIENCE).await?;
    let accepted = crate::spec::read(&content.bytes, ReadOptions::default()).map_err(|refused| RunError::Invalid {
        path: plan_file.to_owned(),
        text: content.bytes.clone(),
        refused,
    })?;
    let mut ledger = Journal::read(ports.files.as_ref(), &state_dir)?.ledger;
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
    let memory = Memory::new();
    let tasks = accepted.tasks;
    let entries = desired::adopt(&tasks, &accepted.published, &ledger, &now, || UNSERVED.to_owned());
    let is_new = !entries.is_empty();
    for entry in &entries {
        ledger.apply(entry);
    }
    let picture = observer.observed().clone();
    if !is_new {
        let stands = plan(&Inputs {
            tasks: &tasks,
            observed: &picture,
            ledger: &ledger,
            memory: &memory,
            frozen: false,
            now: &now,
        });
        let requests = desired::requests(&tasks, &accepted.published, &stands, &ledger, &now);
        for entry in &requests {
            ledger.apply(entry);
        }
    }
    let plan =
        plan(&Inputs { tasks: &tasks, observed: &picture, ledger: &ledger, memory: &memory, frozen: false, now: &now });
    let warnings = accepted.warnings.iter().map(|warning| warning.message.clone()).collect();
    Ok(Snapshot { tasks: Arc::new(tasks), ledger, observed: picture, plan, now, warnings, fault: None })
}
