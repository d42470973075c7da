//! Slots that several plans share: how many attempts may be live at once on this machine, whatever each plan allows.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::plan::Plan;

/// The slots, given out fairly: a free one goes to the plan that holds the fewest of those that can use it, and among
/// equals to the one that got one longest ago.
///
/// What was granted to a plan stays its own until it says how much of it it uses, so that two plans never use the same
/// slot; a plan that is granted more is woken, uses it or gives it back with its next report. Nothing that runs is ever
/// stopped for another plan: who holds more than it would be given keeps it until it ends.
#[derive(Debug)]
pub struct Slots {
    cap: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Counts grants.
    turn: u64,
    plans: BTreeMap<u64, Holding>,
}

#[derive(Debug)]
struct Holding {
    /// Slots that are its own: used, or granted and not yet reported about.
    granted: usize,
    /// How many more it could use.
    wants: usize,
    /// When it last got one.
    turn: u64,
    wake: Arc<Notify>,
}

/// One plan's part in them; given up when it is dropped.
#[derive(Debug)]
pub struct Share {
    slots: Arc<Slots>,
    id: u64,
}

impl Slots {
    /// So many.
    pub fn new(cap: NonZeroU32) -> Arc<Self> {
        let cap = usize::try_from(cap.get()).unwrap_or(usize::MAX);
        Arc::new(Self { cap, state: Mutex::default() })
    }

    /// A part for one more plan, which `wake` wakes when it may use more.
    pub fn share(self: &Arc<Self>, wake: Arc<Notify>) -> Share {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.plans.insert(id, Holding { granted: 0, wants: 0, turn: 0, wake });
        Share { slots: Arc::clone(self), id }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_out(&self, state: &mut State) {
        let held: usize = state.plans.values().map(|plan| plan.granted).sum();
        let mut free = self.cap.saturating_sub(held);
        while free > 0 {
            let poorest = state.plans.values_mut().filter(|plan| plan.wants > 0).min_by_key(|p| (p.granted, p.turn));
            let Some(plan) = poorest else { return };
            state.turn += 1;
            (plan.granted, plan.wants, plan.turn) = (plan.granted + 1, plan.wants - 1, state.turn);
            plan.wake.notify_one();
            free -= 1;
        }
    }
}

impl Share {
    /// How many attempts of this plan may be live.
    pub fn allowance(&self) -> usize {
        self.slots.state().plans.get(&self.id).map_or(0, |plan| plan.granted)
    }

    /// Tells what a plan uses and wants. Whoever cannot launch wants none, so that nobody waits for a slot that is not used.
    pub(super) fn tell(&self, plan: &Plan, can_launch: bool) {
        if can_launch {
            self.report(plan.slots_used, plan.slots_wanted);
        } else {
            let unbegun = plan.actions.iter().filter(|action| action.action.takes_slot()).count();
            self.report(plan.slots_used - unbegun, 0);
        }
    }

    /// Tells how many slots are used and how many more could be.
    pub fn report(&self, used: usize, wants: usize) {
        let mut state = self.slots.state();
        if let Some(plan) = state.plans.get_mut(&self.id) {
            (plan.granted, plan.wants) = (used, wants);
        }
        self.slots.give_out(&mut state);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.plans.remove(&self.id);
        self.slots.give_out(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(cap: u32) -> Arc<Slots> {
        Slots::new(NonZeroU32::new(cap).expect("not zero"))
    }

    #[test]
    fn free_slots_go_to_who_holds_the_fewest_and_never_more_than_there_are() {
        let slots = slots(4);
        let (a, b) = (slots.share(Arc::default()), slots.share(Arc::default()));
        a.report(0, 10);
        assert_eq!((a.allowance(), b.allowance()), (4, 0), "nobody else wants one");
        a.report(4, 6);
        b.report(0, 10);
        assert_eq!((a.allowance(), b.allowance()), (4, 0), "nothing is taken away");
        a.report(3, 7);
        assert_eq!((a.allowance(), b.allowance()), (3, 1));
        b.report(1, 9);
        a.report(2, 7);
        b.report(2, 8);
        assert_eq!((a.allowance(), b.allowance()), (2, 2), "even");
        a.report(1, 7);
        assert_eq!((a.allowance(), b.allowance()), (2, 2), "and it stays so");
        drop(b);
        assert_eq!(a.allowance(), 4, "what a plan held goes to the others when it is gone");
    }

    #[test]
    fn a_grant_that_is_not_used_is_given_back_and_the_next_is_woken() {
        let slots = slots(1);
        let woken = Arc::new(Notify::new());
        let (a, b) = (slots.share(Arc::default()), slots.share(Arc::clone(&woken)));
        a.report(0, 1);
        b.report(0, 1);
        assert_eq!((a.allowance(), b.allowance()), (1, 0), "granted, and not given twice");
        a.report(0, 0);
        assert_eq!((a.allowance(), b.allowance()), (0, 1));
        assert!(futures::FutureExt::now_or_never(woken.notified()).is_some());
    }

    #[test]
    fn of_many_that_want_one_each_gets_its_turn() {
        let slots = slots(1);
        let shares: Vec<Share> = (0..5).map(|_| slots.share(Arc::default())).collect();
        let mut turns = vec![0; shares.len()];
        for share in &shares {
            share.report(0, 100);
        }
        for _ in 0..50 {
            let ran = shares.iter().position(|share| share.allowance() == 1).expect("one of them");
            turns[ran] += 1;
            shares[ran].report(1, 99);
            shares[ran].report(0, 100);
        }
        assert_eq!(turns, [10; 5]);
    }
}
