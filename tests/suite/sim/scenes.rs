//! Single cases, each told from outside: what a person or an engine does, and what stands in the file and journal then.

use std::time::Duration;

use orchestrate::runtime::{ErrorKind, Operation};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::ports::Process;
use super::{JOURNAL, PLAN, Sim, life, monitor};
use crate::support::fake_repository::Effort;
use crate::support::fake_runtime::{Behaviour, Fault};
use crate::support::world::{Setup, Style};

fn setup(style: Style, live_restore: bool, task: &Value) -> Setup {
    let mut full = json!({ "id": "t0", "agent": "shell", "image": "orchestrate-test:latest", "command": ["work"] });
    full.as_object_mut().expect("an object").extend(task.as_object().expect("an object").clone());
    Setup {
        seed: 1,
        style,
        live_restore,
        kinds: Vec::new(),
        rate: 1,
        budget: 0,
        deeds: Vec::new(),
        between: Duration::from_secs(1),
        chaos: Duration::from_secs(40),
        plan: json!({ "version": 1, "max_concurrent": 1, "tasks": [full] }),
    }
}

/// The world of one task, played with paused time.
fn play<F: Future<Output = ()>>(
    style: Style,
    live_restore: bool,
    task: &Value,
    behaviour: Behaviour,
    scene: impl FnOnce(Sim) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let sim = Sim::with(setup(style, live_restore, task));
        sim.engine.script(move |_| behaviour.clone());
        scene(sim.clone()).await;
        sim.check();
        let core = super::lock(&sim.core);
        assert!(core.failures.is_empty(), "{}\n{:#?}", core.trace.join("\n"), core.failures);
    });
}

impl Sim {
    /// A reconciler works for so long, and dies.
    async fn works(&self, time: Duration) {
        let process = Process::new(self);
        let until = Instant::now() + time;
        while Instant::now() < until {
            let end = tokio::time::timeout_at(until, life(self, &process, false)).await;
            self.note(&format!("{end:?}"));
            sleep(Duration::from_secs(1)).await;
        }
        process.kill();
    }

    /// Works until it has come to rest.
    async fn rests(&self) {
        let process = Process::new(self);
        let end = life(self, &process, true).await;
        self.note(&format!("{end:?}"));
        process.kill();
    }

    fn told(&self, field: &str) -> Value {
        let plan: Value = serde_json::from_slice(&self.files.content(PLAN).expect("there")).expect("JSON");
        plan["tasks"][0][field].clone()
    }

    fn attempts(&self) -> usize {
        self.engine.seen().len()
    }

    fn name(&self, attempt: u32) -> String {
        let end = format!("-t0-{attempt}");
        let seen = self.engine.seen().into_iter().find(|seen| seen.name.ends_with(&end));
        seen.expect("made").name
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn failing_start(code: i64, times: Option<u32>) -> Behaviour {
    let start_error = Some((code, "no way to start it".to_owned()));
    Behaviour { start_error, start_failures: times, ..Behaviour::exits(0, seconds(1)) }
}

#[test]
fn a_start_that_failed_by_the_engines_doing_is_tried_again_on_the_same_container() {
    play(Style::Run, true, &json!({}), failing_start(128, Some(3)), |sim| async move {
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(1)));
        assert_eq!(sim.engine.calls(Operation::Start), 4);
    });
}

#[test]
fn a_start_that_fails_for_ever_by_the_engines_doing_fails_after_five_more_tries() {
    play(Style::Run, true, &json!({}), failing_start(128, None), |sim| async move {
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("reason")), (json!("failed"), json!("StartError")));
        assert_eq!(sim.engine.calls(Operation::Start), 6);
    });
}

#[test]
fn a_command_that_is_not_there_fails_at_once() {
    play(Style::Run, true, &json!({}), failing_start(127, None), |sim| async move {
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("reason")), (json!("failed"), json!("StartError")));
        assert_eq!(sim.engine.calls(Operation::Start), 1);
    });
}

#[test]
fn a_container_that_a_person_removed_is_lost_and_the_next_attempt_follows_where_retries_are_left() {
    play(Style::Run, true, &json!({ "retries": 1 }), Behaviour::exits(0, seconds(30)), |sim| async move {
        let person = async {
            sleep(seconds(5)).await;
            sim.engine.human_remove(&sim.name(1));
        };
        tokio::join!(sim.rests(), person);
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(2)));
    });
}

#[test]
fn a_finished_container_that_a_person_starts_again_changes_no_result() {
    play(Style::Run, true, &json!({}), Behaviour::exits(3, seconds(5)), |sim| async move {
        sim.rests().await;
        let before = sim.files.content(JOURNAL);
        sim.engine.human_start(&sim.name(1));
        sim.works(seconds(60)).await;
        assert_eq!((sim.told("status"), sim.told("exit_code")), (json!("failed"), json!(3)));
        assert_eq!(sim.files.content(JOURNAL), before);
    });
}

#[test]
fn a_paused_container_runs_on_in_our_eyes_and_is_told_as_paused() {
    play(Style::Run, true, &json!({}), Behaviour::exits(0, seconds(30)), |sim| async move {
        let person = async {
            sleep(seconds(5)).await;
            sim.engine.human_pause(&sim.name(1));
            sleep(seconds(100)).await;
            assert_eq!((sim.told("status"), sim.told("reason")), (json!("running"), json!("Paused")));
            sim.engine.human_unpause(&sim.name(1));
        };
        tokio::join!(sim.rests(), person);
        assert_eq!(sim.told("status"), json!("completed"));
    });
}

#[test]
fn an_exit_with_zero_at_the_engines_stop_is_an_interruption_and_uses_no_retry() {
    let polite = Behaviour { on_term: Some(0), ..Behaviour::exits(0, seconds(60)) };
    play(Style::Run, false, &json!({}), polite, |sim| async move {
        let engine = async {
            sleep(seconds(20)).await;
            sim.engine.shut_down(false);
            sleep(seconds(30)).await;
            sim.engine.come_back(false);
        };
        tokio::join!(sim.rests(), engine);
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(2)));
    });
}

#[test]
fn what_ends_while_a_live_restoring_engine_is_away_keeps_its_code() {
    play(Style::Run, true, &json!({}), Behaviour::exits(5, seconds(30)), |sim| async move {
        let engine = async {
            sleep(seconds(20)).await;
            sim.engine.go_away();
            sleep(seconds(60)).await;
            assert_eq!(sim.told("status"), json!("running"), "nothing is concluded from silence");
            sim.engine.come_back(true);
        };
        tokio::join!(sim.rests(), engine);
        assert_eq!((sim.told("status"), sim.told("exit_code")), (json!("failed"), json!(5)));
    });
}

#[test]
fn power_loss_is_an_interruption_and_after_the_third_in_a_row_the_task_fails() {
    play(Style::Run, false, &json!({}), Behaviour::exits(0, seconds(100)), |sim| async move {
        for _ in 0..3 {
            sim.works(seconds(20)).await;
            sim.engine.lose_power();
            sim.files.power_loss();
            sim.clock.reboot();
            sleep(seconds(30)).await;
            sim.engine.come_back(false);
        }
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("reason")), (json!("failed"), json!("Interrupted")));
        assert_eq!(sim.attempts(), 3);
    });
}

#[test]
fn a_task_that_fails_for_ever_costs_at_most_six_calls_a_minute() {
    play(Style::Run, true, &json!({}), Behaviour::default(), |sim| async move {
        for _ in 0..10_000 {
            sim.engine.fail_next(Operation::Create, Fault::Fail(ErrorKind::Engine));
        }
        let all = |sim: &Sim| -> u32 {
            [
                Operation::Image,
                Operation::Create,
                Operation::Inspect,
                Operation::Start,
                Operation::List,
                Operation::Probe,
            ]
            .map(|operation| sim.engine.calls(operation))
            .iter()
            .sum()
        };
        let watch = async {
            sleep(seconds(600)).await;
            let before = all(&sim);
            sleep(seconds(600)).await;
            let calls = all(&sim) - before;
            assert!((10..=60).contains(&calls), "{calls} calls in ten minutes");
            assert_eq!(sim.told("reason"), json!("TransientError"));
        };
        tokio::join!(sim.works(seconds(1_300)), watch);
    });
}

#[test]
fn passes_made_by_a_timer_do_not_wait_for_ever_for_a_start_that_was_never_sent() {
    play(Style::Run, true, &json!({}), Behaviour::exits(0, seconds(1)), |sim| async move {
        // Dies right before its start request, the intent durable.
        let process = Process::new(&sim);
        sim.engine.fail_next(Operation::Start, Fault::Hang);
        drop(tokio::time::timeout(seconds(5), life(&sim, &process, false)).await);
        process.kill();
        for _ in 0..4 {
            sleep(seconds(60)).await;
            let timer = Process::new(&sim);
            let mut reconciler = super::open(&timer).expect("opens");
            orchestrate::controller::once(&mut reconciler, &mut super::Judge { sim: &sim }).await.expect("passes");
            drop(reconciler);
            timer.kill();
        }
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(1)));
    });
}

#[test]
fn a_log_that_never_comes_does_not_hold_up_the_result() {
    play(Style::Run, true, &json!({}), Behaviour::exits(0, seconds(1)), |sim| async move {
        for _ in 0..20 {
            sim.engine.fail_next(Operation::Logs, Fault::Hang);
        }
        sim.rests().await;
        assert_eq!(sim.told("status"), json!("completed"));
    });
}

#[test]
fn a_container_renamed_to_the_name_of_the_next_attempt_is_not_taken_for_it() {
    play(Style::Run, true, &json!({ "retries": 1 }), Behaviour::exits(1, seconds(5)), |sim| async move {
        let person = async {
            sleep(seconds(8)).await;
            let name = sim.name(1);
            sim.engine.human_rename(&name, &name.replace("-t0-1", "-t0-2"));
        };
        tokio::join!(sim.rests(), person);
        assert_eq!((sim.told("status"), sim.told("reason")), (json!("blocked"), json!("NameConflict")));
    });
}

#[test]
fn a_second_reconciler_is_told_who_holds_the_lock_and_calls_nothing() {
    play(Style::Run, true, &json!({}), Behaviour::exits(0, seconds(30)), |sim| async move {
        let second = async {
            sleep(seconds(5)).await;
            let calls = sim.engine.mutations() + sim.engine.calls(Operation::List);
            let process = Process::second(&sim);
            let end = format!("{:?}", life(&sim, &process, false).await);
            assert!(end.contains("is held by process"), "{end}");
            assert_eq!(sim.engine.mutations() + sim.engine.calls(Operation::List), calls);
        };
        tokio::join!(sim.rests(), second);
        assert!(monitor::judge_engine(&sim).is_empty());
    });
}

#[test]
fn a_merge_that_a_prune_took_away_is_made_again() {
    let task = |id: &str, on: &[&str]| json!({ "id": id, "agent": "shell", "image": "orchestrate-test:latest", "command": ["work"], "dependencies": on });
    let tasks = json!([task("t0", &["t1", "t2"]), task("t1", &[]), task("t2", &[])]);
    let plan = json!({ "version": 1, "max_concurrent": 2, "tasks": tasks });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let sim = Sim::with(Setup { plan, ..setup(Style::Run, true, &json!({})) });
        sim.engine.script(|_| Behaviour::exits(0, seconds(1)));
        sim.repository.script(|_| Effort { commits: 1, dirty: false });
        sim.repository.prune_next_merge();
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(1)));
        sim.check();
    });
}

#[test]
fn an_image_that_is_missing_is_fetched_and_its_task_runs() {
    let task = json!({ "image": "r.example/x:1" });
    play(Style::Run, true, &task, Behaviour::exits(0, seconds(1)), |sim| async move {
        sim.engine.add_to_registry("r.example/x:1", seconds(300), Ok(()));
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(1)));
        assert_eq!(sim.engine.calls(Operation::Pull), 1);
    });
}

#[test]
fn a_cancel_ends_the_wait_for_an_image_and_nothing_is_made() {
    let task = json!({ "image": "r.example/x:1" });
    play(Style::Run, true, &task, Behaviour::exits(0, seconds(1)), |sim| async move {
        sim.engine.add_to_registry("r.example/x:1", seconds(3_000), Ok(()));
        let began = Instant::now();
        let person = async {
            sleep(seconds(5)).await;
            sim.ask("cancelled");
        };
        tokio::join!(sim.rests(), person);
        assert_eq!(sim.told("status"), json!("cancelled"));
        assert!(began.elapsed() < seconds(60), "{:?}", began.elapsed());
        assert_eq!(sim.attempts(), 0);
    });
}

#[test]
fn a_registry_that_failed_is_asked_again_and_one_that_cannot_be_reached_blocks() {
    let task = json!({ "image": "r.example/x:1" });
    play(Style::Run, true, &task, Behaviour::exits(0, seconds(1)), |sim| async move {
        sim.engine.add_to_registry("r.example/x:1", seconds(1), Err(ErrorKind::Engine));
        let registry = async {
            sleep(seconds(20)).await;
            sim.engine.add_to_registry("r.example/x:1", seconds(1), Ok(()));
        };
        tokio::join!(sim.rests(), registry);
        assert_eq!((sim.told("status"), sim.told("attempt")), (json!("completed"), json!(1)));
        assert!(sim.engine.calls(Operation::Pull) > 2);
    });
    play(Style::Run, true, &task, Behaviour::exits(0, seconds(1)), |sim| async move {
        sim.rests().await;
        assert_eq!((sim.told("status"), sim.told("reason")), (json!("blocked"), json!("ImageMissing")));
        let message = sim.told("message");
        assert!(message.as_str().expect("text").contains("docker pull r.example/x:1"), "{message}");
        assert_eq!(sim.attempts(), 0);
    });
}
