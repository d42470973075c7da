//! What is done with and may be removed, and what has to stay and why. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::git::{CommitId, Merged};
use crate::observe::{Observed, ObservedContainer};
use crate::record::{Ledger, State};
use crate::spec::{TaskId, TaskSet};
use crate::status::Status;

/// What a person asks to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CleanRequest {
    /// Only these tasks; empty: all of the plan.
    pub tasks: BTreeSet<TaskId>,
    /// Whether merged or not.
    pub all: bool,
    /// Containers of tasks that the plan no longer names, too.
    pub orphans: bool,
    /// Branches of the named tasks that are not merged, too.
    pub force: bool,
}

/// What is known of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchFact {
    /// Its tip; `None`: there is no such branch.
    pub tip: Option<CommitId>,
    /// Whether its work is merged.
    pub merged: Merged,
}

/// One step. Worktrees come before their branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CleanStep {
    /// Ask a container to end: nobody waits for it.
    Stop(ObservedContainer),
    /// Remove a container that has ended.
    Container(ObservedContainer),
    /// Remove a worktree, unless it holds uncommitted work.
    Worktree(TaskId),
    /// Remove a branch that stands at this commit.
    Branch {
        /// The task.
        task: TaskId,
        /// Where it stands.
        tip: CommitId,
    },
}

/// Something that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The task.
    pub task: TaskId,
    /// Why, in one sentence.
    pub why: String,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CleanPlan {
    /// In this order.
    pub steps: Vec<CleanStep>,
    /// What stays.
    pub kept: Vec<Kept>,
}

/// Decides what may go. Only of tasks that are over, whose result the journal holds, and that nothing builds on any more.
pub fn clean(
    request: &CleanRequest,
    tasks: &TaskSet,
    ledger: &Ledger,
    observed: &Observed,
    branches: &BTreeMap<TaskId, BranchFact>,
) -> CleanPlan {
    let mut plan = CleanPlan::default();
    for ix in tasks.graph.topological() {
        let id = &tasks.task(*ix).id;
        if !request.tasks.is_empty() && !request.tasks.contains(id) {
            continue;
        }
        let Some(record) = ledger.task(id).filter(|record| record.attempt > 0) else { continue };
        let State::Done(status) = record.state else {
            if record.state == State::Live || !request.tasks.is_empty() {
                let why = if record.state == State::Live { "it runs" } else { "it may run again" };
                plan.keep(id, why.to_owned());
            }
            continue;
        };
        let open = tasks.graph.dependents(*ix).iter().find(|on| {
            let on = ledger.task(&tasks.task(**on).id);
            on.is_none_or(|record| !matches!(record.state, State::Done(_)))
        });
        if let Some(open) = open {
            plan.keep(id, format!("{} builds on it and is not over", tasks.task(*open).id));
            continue;
        }
        let is_named = request.all || !request.tasks.is_empty();
        let branch = branches.get(id);
        let merged = branch.map_or(Merged::Commits, |branch| branch.merged);
        if !is_named && (status == Status::Failed || merged == Merged::No) {
            let why = match status {
                Status::Failed => "it failed; `--all` or its name removes container and worktree".to_owned(),
                _ => format!("agent/{id} is not merged; `--all` or its name removes container and worktree only"),
            };
            plan.keep(id, why);
            continue;
        }
        plan.containers(id, observed);
        plan.steps.push(CleanStep::Worktree(id.clone()));
        let Some(tip) = branch.and_then(|branch| branch.tip.clone()) else { continue };
        match merged {
            Merged::Commits => plan.steps.push(CleanStep::Branch { task: id.clone(), tip }),
            _ if request.force && request.tasks.contains(id) => {
                plan.steps.push(CleanStep::Branch { task: id.clone(), tip });
            }
            Merged::Content => plan.keep(
                id,
                format!(
                    "agent/{id} stays: its changes are merged, its commits are not; `clean {id} --force` removes it"
                ),
            ),
            Merged::No => plan.keep(id, format!("agent/{id} stays: it holds work that is not merged")),
        }
    }
    if request.orphans {
        plan.orphans(tasks, ledger, observed);
    }
    plan
}

impl CleanPlan {
    fn keep(&mut self, task: &TaskId, why: String) {
        self.kept.push(Kept { task: task.clone(), why });
    }

    fn containers(&mut self, task: &TaskId, observed: &Observed) {
        let all = observed.containers.values().chain(observed.verifies.values());
        for container in all.filter(|container| container.key.task == *task) {
            if container.state.is_live() {
                self.keep(task, format!("{} runs: somebody started it again", container.name));
            } else {
                self.steps.push(CleanStep::Container(container.clone()));
            }
        }
    }

    /// Containers of tasks that the plan no longer names.
    fn orphans(&mut self, tasks: &TaskSet, ledger: &Ledger, observed: &Observed) {
        let all = observed.containers.values().chain(observed.verifies.values());
        for container in all.filter(|container| tasks.find(container.key.task.as_str()).is_none()) {
            let task = &container.key.task;
            let record = ledger.task(task).filter(|record| record.attempt >= container.key.attempt);
            // An earlier attempt's result was taken in before the newest one was made.
            let is_open =
                record.is_some_and(|record| record.attempt == container.key.attempt && record.state == State::Live);
            if container.state.is_live() {
                self.steps.push(CleanStep::Stop(container.clone()));
            }
            if record.is_none() {
                let why = "the journal holds no result of it; see its log, and remove it by hand";
                self.keep(task, format!("{}: {why}", container.name));
            } else if is_open {
                self.keep(
                    task,
                    format!("{}: its result is taken in by the next pass, and then it can be removed", container.name),
                );
            } else if !container.state.is_live() {
                self.steps.push(CleanStep::Container(container.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::observe::{AttemptKey, ContainerState, Role};

    fn id(name: &str) -> TaskId {
        TaskId::new(name).expect("valid")
    }

    fn tasks() -> TaskSet {
        let text = r#"{"tasks":[{"id":"a","agent":"shell","image":"i","command":["true"]},
            {"id":"b","agent":"shell","image":"i","command":["true"],"dependencies":["a"]}]}"#;
        let accepted = crate::spec::read(text.as_bytes(), crate::spec::ReadOptions::default());
        accepted.unwrap_or_else(|refused| panic!("refused: {:?}", refused.diagnostics)).tasks
    }

    fn ledger(a: State, b: State) -> Ledger {
        let mut ledger = Ledger::default();
        for (name, state) in [("a", a), ("b", b)] {
            let record = crate::record::TaskRecord { attempt: 1, state, ..Default::default() };
            let at = crate::clock::Moment { wall: jiff::Timestamp::UNIX_EPOCH, monotonic_ms: 0, boot_id: "b".into() };
            ledger.apply(&crate::record::Entry::Kept { task: id(name), record: Box::new(record), at });
        }
        ledger
    }

    fn observed(state: ContainerState) -> Observed {
        let key = AttemptKey { task: id("a"), attempt: 1 };
        let name = "orch-i-a-1".to_owned();
        let container = ObservedContainer {
            id: "1".to_owned(),
            name,
            key: key.clone(),
            plan: "p".to_owned(),
            role: Role::Agent,
            state,
        };
        Observed { containers: BTreeMap::from([(key, container)]), ..Observed::default() }
    }

    fn branches(merged: Merged) -> BTreeMap<TaskId, BranchFact> {
        BTreeMap::from([(id("a"), BranchFact { tip: Some(CommitId("c".repeat(40))), merged })])
    }

    /// What goes of `a`, as letters: container, worktree, branch.
    fn gone(plan: &CleanPlan) -> String {
        let letter = |step: &CleanStep| match step {
            CleanStep::Stop(_) => "s",
            CleanStep::Container(_) => "c",
            CleanStep::Worktree(task) if *task == id("a") => "w",
            CleanStep::Worktree(_) => "",
            CleanStep::Branch { .. } => "b",
        };
        plan.steps.iter().map(letter).collect()
    }

    const DONE: State = State::Done(Status::Completed);

    #[rstest]
    #[case::merged(DONE, DONE, Merged::Commits, "", "cwb")]
    #[case::squashed(DONE, DONE, Merged::Content, "", "cw")]
    #[case::not_merged(DONE, DONE, Merged::No, "", "")]
    #[case::not_merged_and_all(DONE, DONE, Merged::No, "all", "cw")]
    #[case::not_merged_and_named(DONE, DONE, Merged::No, "named", "cw")]
    #[case::not_merged_and_forced(DONE, DONE, Merged::No, "named force", "cwb")]
    #[case::force_is_for_what_is_named(DONE, DONE, Merged::No, "all force", "cw")]
    #[case::merged_and_forced(DONE, DONE, Merged::Commits, "named force", "cwb")]
    #[case::built_on(DONE, State::Live, Merged::Commits, "all", "")]
    #[case::may_be_built_on(DONE, State::Idle, Merged::Commits, "all", "")]
    #[case::failed(State::Done(Status::Failed), DONE, Merged::Commits, "", "")]
    #[case::failed_and_all(State::Done(Status::Failed), DONE, Merged::Commits, "all", "cwb")]
    #[case::cancelled(State::Done(Status::Cancelled), DONE, Merged::Commits, "", "cwb")]
    #[case::runs(State::Live, DONE, Merged::Commits, "all named force", "")]
    #[case::waits(State::Idle, DONE, Merged::Commits, "all named force", "")]
    fn only_what_is_done_with_goes(
        #[case] a: State,
        #[case] b: State,
        #[case] merged: Merged,
        #[case] words: &str,
        #[case] expected: &str,
    ) {
        let request = CleanRequest {
            tasks: if words.contains("named") { BTreeSet::from([id("a")]) } else { BTreeSet::new() },
            all: words.contains("all"),
            orphans: false,
            force: words.contains("force"),
        };
        let observed = observed(ContainerState::Exited);
        let plan = clean(&request, &tasks(), &ledger(a, b), &observed, &branches(merged));
        assert_eq!(gone(&plan), expected, "{plan:?}");
        let whole = expected.contains('b');
        assert!(whole || plan.kept.iter().any(|kept| kept.task == id("a")), "what stays is told: {plan:?}");
    }

    #[rstest]
    #[case::taken_in(Some((1, DONE)), true)]
    #[case::an_earlier_attempt(Some((2, State::Live)), true)]
    #[case::not_taken_in(Some((1, State::Live)), false)]
    #[case::a_later_attempt_than_known(Some((0, State::Idle)), false)]
    #[case::unknown_to_the_journal(None, false)]
    fn an_orphan_goes_only_when_the_journal_has_its_result(#[case] record: Option<(u32, State)>, #[case] goes: bool) {
        let mut ledger = Ledger::default();
        if let Some((attempt, state)) = record {
            let record = crate::record::TaskRecord { state, attempt, ..Default::default() };
            let at = crate::clock::Moment { wall: jiff::Timestamp::UNIX_EPOCH, monotonic_ms: 0, boot_id: "b".into() };
            ledger.apply(&crate::record::Entry::Kept { task: id("a"), record: Box::new(record), at });
        }
        let text = br#"{"tasks":[{"id":"b","agent":"shell","image":"i","command":["true"]}]}"#;
        let accepted = crate::spec::read(text, crate::spec::ReadOptions::default());
        let tasks = accepted.unwrap_or_else(|refused| panic!("refused: {:?}", refused.diagnostics)).tasks;
        let request = CleanRequest { orphans: true, ..CleanRequest::default() };
        let plan = clean(&request, &tasks, &ledger, &observed(ContainerState::Exited), &BTreeMap::new());
        assert_eq!((gone(&plan) == "c", plan.kept.is_empty()), (goes, goes), "{plan:?}");
    }

    #[test]
    fn a_container_that_somebody_started_again_stays() {
        let plan = clean(
            &CleanRequest { all: true, ..CleanRequest::default() },
            &tasks(),
            &ledger(DONE, DONE),
            &observed(ContainerState::Running),
            &branches(Merged::Commits),
        );
        assert!(!gone(&plan).contains('c') && plan.kept[0].why.contains("started it again"), "{plan:?}");
    }
}
