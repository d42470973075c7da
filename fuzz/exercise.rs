//! What is done with an input, and what must hold of it. Shared by the fuzz targets and by the test that replays the
//! corpus.

#![allow(dead_code, reason = "each target uses one of them")]

use orchestrate::report::diagnostics::{Files, github, records, text};
use orchestrate::spec::{Origin, ReadOptions, Severity, read_both};

/// Between the two files of an input for [`merge`].
const SEPARATOR: &[u8] = b"\n#====\n";

/// A plan file.
pub(crate) fn json(data: &[u8]) {
    exercise(Some(data), None);
}

/// A YAML spec.
pub(crate) fn yaml(data: &[u8]) {
    exercise(None, Some(data));
}

/// A plan file, a separator, a YAML spec.
pub(crate) fn merge(data: &[u8]) {
    let at = data.windows(SEPARATOR.len()).position(|w| w == SEPARATOR);
    let (plan, spec) = at.map_or((data, &b""[..]), |at| (&data[..at], &data[at + SEPARATOR.len()..]));
    exercise(Some(plan), Some(spec));
}

fn exercise(plan: Option<&[u8]>, spec: Option<&[u8]>) {
    let outcome = read_both(plan, spec, ReadOptions::default());
    assert_eq!(outcome, read_both(plan, spec, ReadOptions::default()), "the same files, the same outcome");
    let (diagnostics, untold, sensitive) = match outcome {
        Ok(accepted) => {
            let tasks = &accepted.tasks;
            assert_eq!(tasks.tasks.len(), accepted.published.len());
            assert_eq!(tasks.graph.topological().len(), tasks.tasks.len());
            for (ix, task) in tasks.iter() {
                assert_eq!(tasks.find(task.id.as_str()), Some(ix));
                assert_eq!(tasks.graph.dependencies(ix).len(), task.dependencies.len());
            }
            assert!(accepted.warnings.iter().all(|d| d.severity() == Severity::Warning));
            (accepted.warnings, 0, accepted.sensitive)
        }
        Err(refused) => {
            assert!(refused.untold > 0 || refused.diagnostics.iter().any(|d| d.severity() == Severity::Error));
            (refused.diagnostics, refused.untold, refused.sensitive)
        }
    };
    let plan = plan.map(|bytes| (Origin::Plan, ".agent-tasks.json", bytes));
    let spec = spec.map(|bytes| (Origin::Spec, "agent-tasks.yaml", bytes));
    let files = Files::new(plan.into_iter().chain(spec), &sensitive);
    let shown = text(&files, &diagnostics, untold, false, 100);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    assert_eq!(records(&files, &diagnostics).len(), diagnostics.len());
    assert_eq!(github(&files, &diagnostics).lines().count(), diagnostics.len());
}
