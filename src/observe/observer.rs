//! Keeps the newest picture of the runtime, out of lists and of the events between them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{AttemptKey, Role};
use super::observed::{ContainerState, Observed, ObservedContainer};
use crate::runtime::RuntimeEvent;

/// Keeps the newest picture of the runtime.
///
/// A list is the truth of a moment; an event only moves a known container forward (created, running, exited). What an
/// event cannot explain calls for another list. Events may come twice, late, or again after a list that has them
/// already; what is lost is made good by the next list.
#[derive(Debug)]
pub struct Observer {
    observed: Observed,
    /// What happened since the list in flight was asked for: it may or may not know.
    since_asked: Option<Vec<RuntimeEvent>>,
}

/// What became of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "Relist asks for a fresh list"]
pub enum Applied {
    /// It is another one.
    Changed,
    /// It is the same.
    Unchanged,
    /// Only a fresh list can tell; it may have changed too.
    Relist,
}

impl Default for Observer {
    /// Nothing is known yet, which is not the same as that nothing is there.
    fn default() -> Self {
        Self { observed: Observed::unavailable("the runtime has not been asked yet"), since_asked: None }
    }
}

impl Observer {
    /// The newest picture.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// To be called before a list is asked for, where events are applied while it is in flight: its answer may be older
    /// than they are, and they are then applied to it again.
    pub fn begin_list(&mut self) {
        self.since_asked = Some(Vec::new());
    }

    /// Takes a complete list. `expected` are the attempts that must have a container; how many lists in a row lack one
    /// is counted.
    pub fn apply_list(&mut self, containers: Vec<ObservedContainer>, expected: &BTreeSet<AttemptKey>) -> Applied {
        self.apply_list_with(containers, expected, &BTreeSet::new())
    }

    /// The same where the results of some attempts are being verified: of those, the verifying container is expected.
    pub fn apply_list_with(
        &mut self,
        containers: Vec<ObservedContainer>,
        expected: &BTreeSet<AttemptKey>,
        verifying: &BTreeSet<AttemptKey>,
    ) -> Applied {
        let mut agents: BTreeMap<AttemptKey, ObservedContainer> = BTreeMap::new();
        let mut verifies: BTreeMap<AttemptKey, ObservedContainer> = BTreeMap::new();
        for container in containers {
            let by_key = match container.role {
                Role::Agent => &mut agents,
                Role::Verify => &mut verifies,
            };
            match by_key.get(&container.key) {
                Some(known) if rank(known) >= rank(&container) => {}
                _ => {
                    by_key.insert(container.key.clone(), container);
                }
            }
        }
        let counted = |key: &AttemptKey| self.observed.absent.get(key).copied().unwrap_or(0).saturating_add(1);
        let has = |key: &AttemptKey| {
            if verifying.contains(key) { verifies.contains_key(key) } else { agents.contains_key(key) }
        };
        let absent = expected.iter().filter(|key| !has(key)).map(|key| (key.clone(), counted(key))).collect();
        let new = Observed { unavailable: None, containers: agents, verifies, absent };
        let old = std::mem::replace(&mut self.observed, new);
        let mut relist = false;
        for event in self.since_asked.take().into_iter().flatten() {
            relist |= self.apply_event(event) == Applied::Relist;
        }
        match relist {
            true => Applied::Relist,
            false if old == self.observed => Applied::Unchanged,
            false => Applied::Changed,
        }
    }

    /// Takes an event.
    pub fn apply_event(&mut self, event: RuntimeEvent) -> Applied {
        if let Some(events) = &mut self.since_asked {
            events.push(event.clone());
        }
        let (container, forward) = match event {
            // A picture from before the subscription may lack what happened in between.
            RuntimeEvent::Subscribed | RuntimeEvent::Unclear => return Applied::Relist,
            RuntimeEvent::ImageAvailable(_) => return Applied::Unchanged,
            RuntimeEvent::Created(container) => return self.created(container),
            RuntimeEvent::Removed(container) => return self.removed(&container),
            RuntimeEvent::Started(container) => (container, started as fn(ContainerState) -> Step),
            RuntimeEvent::Paused(container) => (container, paused as fn(ContainerState) -> Step),
            RuntimeEvent::Unpaused(container) => (container, unpaused as fn(ContainerState) -> Step),
            RuntimeEvent::Exited(container) => (container, exited as fn(ContainerState) -> Step),
        };
        if self.observed.unavailable.is_some() {
            return Applied::Relist;
        }
        let Some(known) = self.of(&container).get_mut(&container.key).filter(|known| known.id == container.id) else {
            return Applied::Relist;
        };
        match forward(known.state) {
            Step::To(state) => {
                known.state = state;
                Applied::Changed
            }
            Step::Known => Applied::Unchanged,
            Step::Contradiction => Applied::Relist,
        }
    }

    /// The engine cannot be asked: nothing is known of any absence, and counting begins anew. What was there last is
    /// kept for show.
    pub fn lost(&mut self, message: impl Into<String>) {
        self.observed.unavailable = Some(message.into());
        self.observed.absent.clear();
        self.since_asked = None;
    }

    /// Those of its kind.
    fn of(&mut self, container: &ObservedContainer) -> &mut BTreeMap<AttemptKey, ObservedContainer> {
        match container.role {
            Role::Agent => &mut self.observed.containers,
            Role::Verify => &mut self.observed.verifies,
        }
    }

    fn created(&mut self, container: ObservedContainer) -> Applied {
        if self.observed.unavailable.is_some() {
            return Applied::Relist;
        }
        match self.of(&container).get(&container.key) {
            Some(known) if known.id == container.id => Applied::Unchanged,
            Some(_) => Applied::Relist,
            None => {
                self.observed.absent.remove(&container.key);
                self.of(&container).insert(container.key.clone(), container);
                Applied::Changed
            }
        }
    }

    /// An engine also tells the removal of a container whose creation failed half-way and was never told.
    fn removed(&mut self, container: &ObservedContainer) -> Applied {
        if self.observed.unavailable.is_some() {
            return Applied::Relist;
        }
        match self.of(container).get(&container.key) {
            Some(known) if known.id == container.id => {
                self.of(container).remove(&container.key);
                // Absence is decided by lists alone, so one is wanted now.
                Applied::Relist
            }
            _ => Applied::Unchanged,
        }
    }
}

/// Where an event moves a container of a known state.
enum Step {
    To(ContainerState),
    /// The event is older than the picture, or the same.
    Known,
    /// Somebody else's hand, or an event out of order.
    Contradiction,
}

fn started(state: ContainerState) -> Step {
    match state {
        ContainerState::Created => Step::To(ContainerState::Running),
        ContainerState::Running | ContainerState::Paused => Step::Known,
        // Told late of a run that is over, or a person ran it again: a list knows.
        ContainerState::Exited | ContainerState::Dead => Step::Contradiction,
    }
}

fn paused(state: ContainerState) -> Step {
    match state {
        ContainerState::Running => Step::To(ContainerState::Paused),
        ContainerState::Paused => Step::Known,
        ContainerState::Created | ContainerState::Exited | ContainerState::Dead => Step::Contradiction,
    }
}

fn unpaused(state: ContainerState) -> Step {
    match state {
        ContainerState::Paused => Step::To(ContainerState::Running),
        ContainerState::Running => Step::Known,
        ContainerState::Created | ContainerState::Exited | ContainerState::Dead => Step::Contradiction,
    }
}

fn exited(state: ContainerState) -> Step {
    match state {
        ContainerState::Created | ContainerState::Running | ContainerState::Paused => Step::To(ContainerState::Exited),
        ContainerState::Exited | ContainerState::Dead => Step::Known,
    }
}

/// Which of two containers of one attempt is meant. Ours is told by its name; a second one is a person's, who ran an
/// image that was committed from it and so has its labels, or who renamed ours.
fn rank(container: &ObservedContainer) -> (bool, bool, &str) {
    let suffix = format!("-{}", container.key);
    let named = container.name.starts_with("orch-") && container.name.ends_with(&suffix);
    (named, container.state.is_live(), &container.id)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::spec::TaskId;

    fn key(task: &str) -> AttemptKey {
        AttemptKey { task: TaskId::new(task).expect("valid"), attempt: 1 }
    }

    fn container(task: &str, id: &str, state: ContainerState) -> ObservedContainer {
        ObservedContainer {
            id: id.to_owned(),
            name: format!("orch-i-{task}-1"),
            key: key(task),
            plan: "p".to_owned(),
            role: Role::Agent,
            state,
        }
    }

    fn observer(containers: Vec<ObservedContainer>) -> Observer {
        let mut observer = Observer::default();
        assert_eq!(observer.apply_list(containers, &BTreeSet::new()), Applied::Changed);
        observer
    }

    use Applied::{Changed, Relist, Unchanged};
    use ContainerState::{Created, Dead, Exited, Paused, Running};

    type Event = fn(ObservedContainer) -> RuntimeEvent;

    #[rstest]
    #[case(RuntimeEvent::Started, [(Created, Changed, Running), (Running, Unchanged, Running), (Paused, Unchanged, Paused), (Exited, Relist, Exited), (Dead, Relist, Dead)])]
    #[case(RuntimeEvent::Paused, [(Created, Relist, Created), (Running, Changed, Paused), (Paused, Unchanged, Paused), (Exited, Relist, Exited), (Dead, Relist, Dead)])]
    #[case(RuntimeEvent::Unpaused, [(Created, Relist, Created), (Running, Unchanged, Running), (Paused, Changed, Running), (Exited, Relist, Exited), (Dead, Relist, Dead)])]
    #[case(RuntimeEvent::Exited, [(Created, Changed, Exited), (Running, Changed, Exited), (Paused, Changed, Exited), (Exited, Unchanged, Exited), (Dead, Unchanged, Dead)])]
    #[case(RuntimeEvent::Created, [(Created, Unchanged, Created), (Running, Unchanged, Running), (Paused, Unchanged, Paused), (Exited, Unchanged, Exited), (Dead, Unchanged, Dead)])]
    fn every_event_in_every_state(#[case] event: Event, #[case] table: [(ContainerState, Applied, ContainerState); 5]) {
        for (before, applied, after) in table {
            let mut observer = observer(vec![container("a", "1", before)]);
            assert_eq!(observer.apply_event(event(container("a", "1", Created))), applied, "{before:?}");
            assert_eq!(observer.observed().containers[&key("a")].state, after, "{before:?}");
        }
    }

    #[rstest]
    #[case(RuntimeEvent::Started(container("a", "2", Running)), Relist)]
    #[case(RuntimeEvent::Exited(container("a", "2", Exited)), Relist)]
    #[case(RuntimeEvent::Created(container("a", "2", Created)), Relist)]
    #[case(RuntimeEvent::Removed(container("a", "2", Dead)), Unchanged)]
    #[case(RuntimeEvent::Exited(container("b", "3", Exited)), Relist)]
    #[case(RuntimeEvent::Removed(container("b", "3", Dead)), Unchanged)]
    #[case(RuntimeEvent::Unclear, Relist)]
    #[case(RuntimeEvent::Subscribed, Relist)]
    #[case(RuntimeEvent::ImageAvailable("x".to_owned()), Unchanged)]
    fn what_it_does_not_know_it_does_not_believe(#[case] event: RuntimeEvent, #[case] applied: Applied) {
        let mut observer = observer(vec![container("a", "1", Running)]);
        let before = observer.observed().clone();
        assert_eq!(observer.apply_event(event), applied);
        assert_eq!(*observer.observed(), before);
    }

    #[test]
    fn a_removal_is_believed_and_asks_for_a_list() {
        let mut observer = observer(vec![container("a", "1", Exited)]);
        assert_eq!(observer.apply_event(RuntimeEvent::Removed(container("a", "1", Dead))), Relist);
        assert!(observer.observed().containers.is_empty());
        assert!(observer.observed().absent.is_empty(), "only lists count absence");
    }

    #[test]
    fn absence_is_counted_over_complete_lists_in_a_row() {
        let expected = BTreeSet::from([key("a"), key("b")]);
        let mut observer = Observer::default();
        let b = || vec![container("b", "2", Running)];
        assert_eq!(observer.apply_list(b(), &expected), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::from([(key("a"), 1)]));
        assert_eq!(observer.apply_list(b(), &expected), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::from([(key("a"), 2)]));
        observer.lost("socket gone");
        assert_eq!(observer.observed().absent, BTreeMap::new());
        assert_eq!(observer.observed().unavailable.as_deref(), Some("socket gone"));
        assert_eq!(observer.apply_list(b(), &expected), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::from([(key("a"), 1)]), "counts from the start");
        assert_eq!(observer.apply_event(RuntimeEvent::Created(container("a", "1", Created))), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::new());
        let both = || vec![container("a", "1", Created), container("b", "2", Running)];
        assert_eq!(observer.apply_list(both(), &expected), Unchanged);
    }

    #[test]
    fn nothing_is_known_before_the_first_list_nor_after_a_loss() {
        let mut observer = Observer::default();
        assert!(observer.observed().unavailable.is_some());
        for event in [RuntimeEvent::Created, RuntimeEvent::Started, RuntimeEvent::Removed] as [Event; 3] {
            assert_eq!(observer.apply_event(event(container("a", "1", Created))), Relist);
        }
        assert!(observer.observed().containers.is_empty());
    }

    #[test]
    fn a_list_that_is_older_than_an_event_does_not_undo_it() {
        let mut observer = observer(vec![container("a", "1", Running)]);
        observer.begin_list();
        assert_eq!(observer.apply_event(RuntimeEvent::Exited(container("a", "1", Exited))), Changed);
        assert_eq!(observer.apply_event(RuntimeEvent::Created(container("b", "2", Created))), Changed);
        let old = vec![container("a", "1", Running)];
        assert_eq!(observer.apply_list(old, &BTreeSet::from([key("b")])), Unchanged);
        assert_eq!(observer.observed().containers[&key("a")].state, Exited);
        assert!(observer.observed().absent.is_empty());
    }

    #[test]
    fn of_two_containers_of_one_attempt_the_one_of_our_name_counts() {
        let ours = container("a", "1", Exited);
        let mut copy = container("a", "2", Running);
        copy.name = "eager_turing".to_owned();
        for list in [vec![ours.clone(), copy.clone()], vec![copy.clone(), ours.clone()]] {
            assert_eq!(observer(list).observed().containers[&key("a")], ours);
        }
        let mut renamed = ours;
        renamed.name = "mine".to_owned();
        for list in [vec![renamed.clone(), copy.clone()], vec![copy.clone(), renamed.clone()]] {
            assert_eq!(observer(list).observed().containers[&key("a")], copy, "the live one, where no name tells");
        }
    }

    #[test]
    fn a_verifying_container_never_stands_for_the_attempts_own() {
        let ours = container("a", "1", Exited);
        let verify = ObservedContainer { role: Role::Verify, ..container("a", "2", Running) };
        let mut observer = observer(vec![verify.clone(), ours.clone()]);
        assert_eq!(observer.observed().containers[&key("a")], ours);
        assert_eq!(observer.observed().verifies[&key("a")], verify);
        assert_eq!(observer.apply_event(RuntimeEvent::Exited(verify.clone())), Changed);
        assert_eq!(observer.observed().verifies[&key("a")].state, Exited);
        let keys = BTreeSet::from([key("a")]);
        assert_eq!(observer.apply_list_with(vec![ours.clone()], &keys, &keys), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::from([(key("a"), 1)]));
        assert_eq!(observer.apply_list_with(vec![ours, verify], &keys, &keys), Changed);
        assert_eq!(observer.observed().absent, BTreeMap::new());
    }

    /// What an engine does, and what its reader does, in any order.
    #[derive(Debug, Clone)]
    enum Move {
        /// A container is created, started, paused, …, also by people.
        Engine(u8, u8),
        /// The next event in the pipe is lost (`0`), delivered (`1`) or delivered twice (`2`).
        Deliver(u8),
        BeginList,
        /// The engine makes its answer now.
        Snapshot,
        ApplyList,
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        prop::collection::vec(
            prop_oneof![
                5 => (0_u8..3, 0_u8..6).prop_map(|(task, act)| Move::Engine(task, act)),
                4 => (1_u8..3).prop_map(Move::Deliver),
                1 => Just(Move::Deliver(0)),
                1 => Just(Move::BeginList),
                1 => Just(Move::Snapshot),
                1 => Just(Move::ApplyList),
            ],
            0..60,
        )
    }

    #[derive(Default)]
    struct World {
        truth: BTreeMap<AttemptKey, ObservedContainer>,
        pipe: std::collections::VecDeque<RuntimeEvent>,
        made: u32,
    }

    impl World {
        /// What an engine allows, and the event that it tells.
        fn act(&mut self, task: u8, act: u8) {
            let task = ["a", "b", "c"][usize::from(task)];
            let state = self.truth.get(&key(task)).map(|known| known.state);
            let (event, next): (Event, _) = match (act, state) {
                (0, None) => {
                    self.made += 1;
                    let made = container(task, &self.made.to_string(), Created);
                    self.truth.insert(key(task), made);
                    (RuntimeEvent::Created, Created)
                }
                (1, Some(Created | Exited)) => (RuntimeEvent::Started, Running),
                (2, Some(Running)) => (RuntimeEvent::Paused, Paused),
                (3, Some(Paused)) => (RuntimeEvent::Unpaused, Running),
                (4, Some(Running | Paused)) => (RuntimeEvent::Exited, Exited),
                (5, Some(Created | Exited)) => (RuntimeEvent::Removed, Dead),
                _ => return,
            };
            let known = self.truth.get_mut(&key(task)).expect("just matched");
            known.state = next;
            self.pipe.push_back(event(known.clone()));
            if next == Dead {
                self.truth.remove(&key(task));
            }
        }
    }

    proptest! {
        #[test]
        fn lists_and_events_in_any_order_converge(moves in moves()) {
            let mut world = World::default();
            let mut observer = Observer::default();
            let (mut asked, mut snapshot) = (false, None);
            // Whether the reader has been told to look again, or something was lost that it cannot know of.
            let (mut relist, mut lost) = (true, false);
            for step in moves {
                match step {
                    Move::Engine(task, act) => world.act(task, act),
                    Move::Deliver(times) => if let Some(event) = world.pipe.pop_front() {
                        lost |= times == 0;
                        for _ in 0..times {
                            relist |= observer.apply_event(event.clone()) == Relist;
                        }
                    },
                    Move::BeginList if !asked => {
                        observer.begin_list();
                        (asked, relist, lost) = (true, false, false);
                    }
                    Move::Snapshot if asked && snapshot.is_none() => {
                        snapshot = Some(world.truth.values().cloned().collect::<Vec<_>>());
                    }
                    Move::ApplyList => if let Some(list) = snapshot.take() {
                        relist |= observer.apply_list(list, &BTreeSet::new()) == Relist;
                        asked = false;
                    },
                    Move::BeginList | Move::Snapshot => {}
                }
            }
            while let Some(event) = world.pipe.pop_front() {
                relist |= observer.apply_event(event) == Relist;
            }
            if !relist && !lost && !asked {
                prop_assert_eq!(&observer.observed().containers, &world.truth);
            }
            // Whatever came before, a list heals.
            observer.begin_list();
            let list = world.truth.values().cloned().collect();
            prop_assert_ne!(observer.apply_list(list, &BTreeSet::new()), Relist);
            prop_assert_eq!(&observer.observed().containers, &world.truth);
        }
    }
}
