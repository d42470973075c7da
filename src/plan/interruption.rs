//! Whether an attempt was ended by the engine's or the machine's doing. Pure.
//!
//! An engine that stops without live-restore asks everything that runs to end, and what is recorded is the agent's own
//! exit code, zero included. So the code alone says nothing: the container has to have been started before the engine
//! was, and to have ended when the engine went or came back. A socket that was merely lost proves nothing.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How long an engine takes to ask everything to end, kill what does not listen, and go.
const GOING: Duration = Duration::from_secs(20);
/// How long an engine takes to end what its predecessor left, before it says that it has started.
const COMING: Duration = Duration::from_secs(15);
/// How much later than the engine's stop we may have noticed it.
const NOTICED: Duration = Duration::from_secs(2);

/// What an engine records for a process that it did not see end.
const VANISHED: i64 = 255;
/// Exit codes of processes that were told to end and did not answer with a code of their own.
const SIGNALLED: [i64; 2] = [137, 143];

/// What is known of a container that ended, all by the engine's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its exit code.
    pub code: i64,
    /// The kernel killed one of its processes for memory, which explains a kill.
    pub oom_killed: bool,
    /// When it last started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Since when the engine runs.
    pub engine_started_at: Option<Timestamp>,
    /// Containers outlive a restart of the engine.
    pub live_restore: bool,
    /// When this process lost the engine.
    pub outages: Vec<Timestamp>,
    /// The machine has booted since the attempt was known to run.
    pub rebooted: bool,
}

/// Whether the engine or the machine ended it.
pub fn is_interrupted(evidence: &Evidence) -> bool {
    let (Some(started), Some(finished)) = (evidence.started_at, evidence.finished_at) else { return false };
    // Where the time proves nothing, a kill that memory explains is no other's. Where it does, the flag may be of a child
    // that was killed long before.
    let signalled = SIGNALLED.contains(&evidence.code) && !evidence.oom_killed;
    let outages = || evidence.outages.iter().copied().filter(|lost| *lost >= started);
    let Some(engine) = evidence.engine_started_at else {
        let vanished = evidence.code == VANISHED && (evidence.rebooted || outages().any(|lost| finished >= lost));
        return vanished || (evidence.rebooted && signalled && !evidence.live_restore);
    };
    if started >= engine {
        return false;
    }
    let at_its_start = since(engine, finished) <= signed(COMING);
    if evidence.live_restore {
        return evidence.code == VANISHED && at_its_start;
    }
    let at_its_end = |lost: Timestamp| {
        let after = since(finished, lost);
        after >= -signed(NOTICED) && after <= signed(GOING)
    };
    // Who was not there when the engine stopped, or could not see it for another reason, has only the code to go by.
    let is_unseen = outages().next().is_none() || outages().any(|lost| lost <= finished);
    let unseen = is_unseen && (signalled || evidence.code == VANISHED);
    at_its_start || outages().any(at_its_end) || unseen
}

fn since(later: Timestamp, earlier: Timestamp) -> SignedDuration {
    later.duration_since(earlier)
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// Ran from 100, ended at 500 with 0; the engine was lost at 495 and began again at 600.
    fn evidence(change: impl FnOnce(&mut Evidence)) -> bool {
        let mut evidence = Evidence {
            code: 0,
            oom_killed: false,
            started_at: Some(at(100)),
            finished_at: Some(at(500)),
            engine_started_at: Some(at(600)),
            live_restore: false,
            outages: vec![at(495)],
            rebooted: false,
        };
        change(&mut evidence);
        is_interrupted(&evidence)
    }

    #[rstest]
    #[case::any_code_right_after_the_stop(true, |_: &mut Evidence| ())]
    #[case::ended_before_the_stop(false, |e: &mut Evidence| e.finished_at = Some(at(490)))]
    #[case::ended_by_itself_amid_a_long_outage(false, |e: &mut Evidence| e.finished_at = Some(at(550)))]
    #[case::what_the_new_engine_killed(true, |e: &mut Evidence| e.finished_at = Some(at(598)))]
    #[case::a_socket_lost_and_found(false, |e: &mut Evidence| e.engine_started_at = Some(at(50)))]
    #[case::with_live_restore_its_code_stands(false, |e: &mut Evidence| e.live_restore = true)]
    #[case::killed_amid_a_long_outage(true, |e: &mut Evidence| { e.code = 143; e.finished_at = Some(at(550)); })]
    #[case::killed_before_the_engine_was_lost(false, |e: &mut Evidence| { e.code = 143; e.finished_at = Some(at(400)); })]
    #[case::power_loss_with_live_restore(true, |e: &mut Evidence| { e.live_restore = true; e.code = 255; e.finished_at = Some(at(599)); })]
    #[case::power_loss(true, |e: &mut Evidence| { e.outages.clear(); e.code = 255; e.finished_at = Some(at(601)); })]
    #[case::nobody_saw_the_stop_and_it_was_killed(true, |e: &mut Evidence| { e.outages.clear(); e.code = 143; })]
    #[case::nobody_saw_the_stop_and_memory_ran_out(false, |e: &mut Evidence| { e.outages.clear(); e.code = 137; e.oom_killed = true; })]
    #[case::a_child_ran_out_of_memory_before_the_stop(true, |e: &mut Evidence| { e.code = 137; e.oom_killed = true; })]
    #[case::nobody_saw_the_stop_and_it_ended_well(false, |e: &mut Evidence| e.outages.clear())]
    #[case::an_outage_before_it_began(false, |e: &mut Evidence| { e.outages = vec![at(90)]; })]
    #[case::no_start_time_proves_nothing(false, |e: &mut Evidence| { e.engine_started_at = None; e.code = 143; })]
    #[case::no_start_time_and_a_reboot(true, |e: &mut Evidence| { e.engine_started_at = None; e.code = 137; e.rebooted = true; })]
    #[case::no_start_time_and_vanished_in_an_outage(true, |e: &mut Evidence| { e.engine_started_at = None; e.code = 255; })]
    #[case::it_never_ran(false, |e: &mut Evidence| e.started_at = None)]
    fn only_a_proven_restart_interrupts(#[case] expected: bool, #[case] change: fn(&mut Evidence)) {
        assert_eq!(evidence(change), expected);
    }
}
