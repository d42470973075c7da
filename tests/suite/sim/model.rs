//! The launch of one attempt as a small model: two reconcilers without a lock, two crashes, and every order in which their
//! steps, the engine's and the clock's can come. What to do next is decided by the real plan over the real ledger; the
//! steps are those of `act`, which a test compares with what the real code does.
//!
//! A write to the journal is three steps, as in [`orchestrate::record::Journal::append`]: a look at the length, the write,
//! another look. A process that dies may leave a request behind that the engine takes up later. The clock is one step:
//! more time passes than a request can be on its way. A process that slept for so long after the record of a start does not
//! send it; it is assumed, as the protocol does, that none sleeps so between the look at the clock and the request.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use orchestrate::clock::Now;
use orchestrate::git::CommitId;
use orchestrate::observe::{AttemptKey, ContainerState, InstanceId, Observed, ObservedContainer, Role};
use orchestrate::plan::{Action, Inputs, Memory, plan};
use orchestrate::record::{AttemptEnd, Entry, Ledger, Next, State};
use orchestrate::spec::{ReadOptions, TaskSet, Terms, read};
use orchestrate::status::Reason;

/// A record of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Rec {
    Intent,
    Prepared,
    Created,
    StartIntent,
    Started,
    Ended,
}

/// What records come to, however many there are.
type Facts = BTreeSet<Rec>;

/// What a process does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Op {
    Decide,
    Check(Rec),
    Write(Rec),
    Verify(Rec),
    Create,
    /// Where the name is taken: whose it is, and whether it has run.
    Adopt,
    /// Before a container is started that the list showed as made.
    Look,
    /// Before the result is recorded.
    Inspect,
    Start,
    List,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Process {
    /// Next first; empty: it does not live.
    todo: VecDeque<Op>,
    /// What it knows of the journal.
    known: Facts,
    /// The journal is as it knows it; its own record that it has not looked at again is not counted.
    is_current: bool,
    /// What the engine told it last; `None`: no container.
    seen: Option<Stage>,
    /// A start of another process may be on its way.
    unsettled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    Made,
    Runs,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct World {
    journal: Facts,
    container: Option<Stage>,
    starts: u8,
    /// Requests of dead processes that may yet take effect.
    late_create: bool,
    late_start: bool,
    processes: [Process; 2],
    crashes: u8,
}

/// What is left out, to see that the model notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The journal's length is not looked at.
    Fence,
    /// A start that another process sent is not waited for.
    Grace,
    /// A container that the list shows as made is started without a look.
    Look,
    /// A start is sent however long ago it was recorded.
    Late,
}

struct Model {
    flaw: Flaw,
    tasks: TaskSet,
    decisions: HashMap<(Facts, Option<Stage>, bool), Vec<Op>>,
    resumed: HashMap<Facts, bool>,
    folds: HashMap<(Facts, Rec), Facts>,
}

fn key() -> AttemptKey {
    AttemptKey { task: orchestrate::spec::TaskId::new("a").expect("valid"), attempt: 1 }
}

fn now() -> Now {
    Now { wall: jiff::Timestamp::UNIX_EPOCH, monotonic: std::time::Duration::from_secs(100), boot_id: "boot".into() }
}

impl Model {
    fn new(flaw: Flaw) -> Self {
        let text = r#"{"plan_id": "p", "tasks": [{"id": "a", "agent": "shell", "image": "i", "command": ["x"]}]}"#;
        let tasks = read(text.as_bytes(), ReadOptions::default()).expect("valid").tasks;
        Self { flaw, tasks, decisions: HashMap::new(), resumed: HashMap::new(), folds: HashMap::new() }
    }

    fn entry(&self, rec: Rec) -> Entry {
        let (key, at) = (key(), now().moment());
        let spec = &self.tasks.tasks[0];
        let commit = CommitId("c".into());
        match rec {
            Rec::Intent => {
                let terms = Terms::from(spec.attempt.as_ref());
                Entry::Intent { key, spec: spec.digest.clone(), host: "h".into(), terms, at }
            }
            Rec::Prepared => Entry::Prepared { key, base: commit.clone(), start: commit, image: None, at },
            Rec::Created => Entry::Created { key, container_id: "id".into(), container: "name".into(), at },
            Rec::StartIntent => Entry::StartIntent { key, at },
            Rec::Started => Entry::Started { key, at },
            Rec::Ended => {
                let end = AttemptEnd {
                    reason: Reason::Succeeded,
                    message: "completed".into(),
                    exit_code: Some(0),
                    oom_killed: false,
                    head: None,
                    result: None,
                    started_at: None,
                    finished_at: at.wall,
                    log: None,
                    log_error: None,
                    verify_log: None,
                    report: None,
                };
                Entry::Ended { key, end, next: Next::Complete, at }
            }
        }
    }

    fn ledger(&self, known: &Facts) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.apply(&Entry::Opened { format: 1, instance: InstanceId("i".into()), at: now().moment() });
        ledger.apply(&Entry::Plan { plan_id: "p".into(), at: now().moment() });
        for rec in known {
            ledger.apply(&self.entry(*rec));
        }
        ledger
    }

    /// What a journal comes to with one more record, by the real ledger.
    fn fold(&mut self, facts: &Facts, rec: Rec) -> Facts {
        let case = (facts.clone(), rec);
        if let Some(folded) = self.folds.get(&case) {
            return folded.clone();
        }
        let mut ledger = self.ledger(facts);
        ledger.apply(&self.entry(rec));
        let record = ledger.task(&key().task).expect("recorded");
        let current = record.current.as_ref();
        let has = [
            (Rec::Intent, current.is_some()),
            (Rec::Prepared, current.is_some_and(|current| current.start.is_some())),
            (Rec::Created, current.is_some_and(|current| current.container_id.is_some())),
            (Rec::StartIntent, current.is_some_and(|current| current.start_intent.is_some())),
            (Rec::Started, current.is_some_and(|current| current.started.is_some())),
            (Rec::Ended, matches!(record.state, State::Done(_))),
        ];
        let folded: Facts = has.into_iter().filter(|(_, has)| *has).map(|(rec, _)| rec).collect();
        self.folds.insert(case, folded.clone());
        folded
    }

    /// Whether a process that begins with this journal waits for a start of its predecessor.
    fn is_unsettled(&mut self, known: &Facts) -> bool {
        if self.flaw == Flaw::Grace {
            return false;
        }
        if let Some(is) = self.resumed.get(known) {
            return *is;
        }
        let is = Memory::resumed(&self.ledger(known), &now()).settling(&key(), &now()).is_some();
        self.resumed.insert(known.clone(), is);
        is
    }

    /// The steps of what the real plan decides.
    fn decide(&mut self, known: &Facts, seen: Option<Stage>, unsettled: bool) -> Vec<Op> {
        let case = (known.clone(), seen, unsettled);
        if let Some(steps) = self.decisions.get(&case) {
            return steps.clone();
        }
        let ledger = self.ledger(known);
        let state = |stage| match stage {
            Stage::Made => ContainerState::Created,
            Stage::Runs => ContainerState::Running,
            Stage::Over => ContainerState::Exited,
        };
        let container = |stage| ObservedContainer {
            id: "id".into(),
            name: "name".into(),
            key: key(),
            plan: "p".into(),
            role: Role::Agent,
            state: state(stage),
        };
        let containers: BTreeMap<_, _> = seen.map(|stage| (key(), container(stage))).into_iter().collect();
        let observed = Observed { containers, ..Observed::default() };
        let mut memory = Memory::new();
        if unsettled {
            memory.unsettled.insert(key(), now().moment());
        }
        let inputs = Inputs {
            tasks: &self.tasks,
            observed: &observed,
            ledger: &ledger,
            memory: &memory,
            now: &now(),
            frozen: false,
        };
        let actions = plan(&inputs).actions;
        let steps = match actions.first().map(|action| action.action) {
            None => vec![Op::List],
            Some(Action::Launch { resume }) => launch(resume),
            Some(Action::Start) if self.flaw == Flaw::Look => started(),
            Some(Action::Start) => vec![Op::Look],
            Some(Action::Harvest) => vec![Op::Inspect],
            Some(other) => panic!("{other:?} by {known:?}, {seen:?}"),
        };
        self.decisions.insert(case, steps.clone());
        steps
    }
}

fn note(rec: Rec) -> [Op; 3] {
    [Op::Check(rec), Op::Write(rec), Op::Verify(rec)]
}

/// As `act::launch`.
fn launch(resume: bool) -> Vec<Op> {
    let intent = if resume { vec![] } else { note(Rec::Intent).to_vec() };
    [intent, note(Rec::Prepared).to_vec(), vec![Op::Create]].concat()
}

/// As `act::start::start`.
fn started() -> Vec<Op> {
    [&note(Rec::StartIntent)[..], &[Op::Start], &note(Rec::Started)[..]].concat()
}

impl World {
    fn begin(&mut self, steps: impl IntoIterator<Item = Op>, of: usize) {
        let rest = std::mem::take(&mut self.processes[of].todo);
        self.processes[of].todo = steps.into_iter().chain(rest).collect();
    }

    /// As `act::start::note_running`.
    fn note_running(&mut self, of: usize) {
        let intent =
            if self.processes[of].known.contains(&Rec::StartIntent) { vec![] } else { note(Rec::StartIntent).to_vec() };
        self.begin(intent.into_iter().chain(note(Rec::Started)), of);
    }

    fn start(&mut self) {
        if self.container.is_some_and(|stage| stage != Stage::Runs) {
            (self.container, self.starts) = (Some(Stage::Runs), self.starts + 1);
        }
    }

    fn die(&mut self, of: usize) {
        self.processes[of] = Process::default();
    }

    /// Where this process's next step leads.
    fn step(mut self, of: usize, model: &mut Model) -> Self {
        let Some(op) = self.processes[of].todo.pop_front() else {
            let known = self.journal.clone();
            let unsettled = model.is_unsettled(&known);
            self.processes[of] = Process { todo: [Op::List].into(), known, is_current: true, seen: None, unsettled };
            return self;
        };
        let is_fenced = model.flaw != Flaw::Fence;
        match op {
            Op::List => {
                self.processes[of].seen = self.container;
                self.begin([Op::Decide], of);
            }
            Op::Decide => {
                let Process { ref known, seen, unsettled, .. } = self.processes[of];
                let steps = model.decide(known, seen, unsettled);
                self.begin(steps, of);
                let is_last = matches!(self.processes[of].todo.back(), Some(Op::List));
                if !is_last {
                    self.processes[of].todo.push_back(Op::List);
                }
            }
            Op::Check(_) | Op::Verify(_) if is_fenced && !self.processes[of].is_current => self.die(of),
            Op::Check(_) => {}
            Op::Write(rec) => {
                self.journal = model.fold(&self.journal, rec);
                self.processes[1 - of].is_current = false;
            }
            Op::Verify(rec) => self.processes[of].known = model.fold(&self.processes[of].known, rec),
            Op::Create if self.container.is_some() => self.begin([Op::Adopt], of),
            Op::Create => {
                self.container = Some(Stage::Made);
                self.begin(note(Rec::Created).into_iter().chain(started()), of);
            }
            Op::Adopt if self.container == Some(Stage::Made) => {
                self.begin(note(Rec::Created).into_iter().chain(started()), of);
            }
            Op::Adopt => {
                self.note_running(of);
                self.begin(note(Rec::Created), of);
            }
            Op::Look => {
                if self.container == Some(Stage::Made) {
                    self.begin(started(), of);
                } else {
                    self.note_running(of);
                }
                if !self.processes[of].known.contains(&Rec::Created) {
                    self.begin(note(Rec::Created), of);
                }
            }
            Op::Inspect => self.begin(note(Rec::Ended), of),
            Op::Start => self.start(),
        }
        self
    }

    /// All worlds that may follow.
    fn next(&self, model: &mut Model) -> Vec<(String, Self)> {
        let mut next = Vec::new();
        for of in 0..2 {
            let op = self.processes[of].todo.front().copied();
            let name = op.map_or("begins".to_owned(), |op| format!("{op:?}"));
            next.push((format!("{of} {name}"), self.clone().step(of, model)));
            let Some(op) = op.filter(|_| self.crashes < 2) else { continue };
            let mut dead = Self { crashes: self.crashes + 1, ..self.clone() };
            dead.die(of);
            match op {
                Op::Create => {
                    next.push((format!("{of} dies, {op:?} on its way"), Self { late_create: true, ..dead.clone() }));
                }
                Op::Start => {
                    next.push((format!("{of} dies, {op:?} on its way"), Self { late_start: true, ..dead.clone() }));
                }
                _ => {}
            }
            next.push((format!("{of} dies before {op:?}"), dead));
        }
        if self.late_create {
            let container = self.container.or(Some(Stage::Made));
            next.push(("a late create arrives".to_owned(), Self { late_create: false, container, ..self.clone() }));
        }
        if self.late_start {
            let mut world = Self { late_start: false, ..self.clone() };
            world.start();
            next.push(("a late start arrives".to_owned(), world));
        }
        if self.container == Some(Stage::Runs) {
            next.push(("the agent ends".to_owned(), Self { container: Some(Stage::Over), ..self.clone() }));
        }
        let is_sending = self.processes.iter().any(|process| process.todo.front() == Some(&Op::Start));
        if !self.late_start && !is_sending && self.processes.iter().any(|process| process.unsettled) {
            let mut world = self.clone();
            for process in &mut world.processes {
                process.unsettled = false;
                if process.todo.front() == Some(&Op::Verify(Rec::StartIntent)) && model.flaw != Flaw::Late {
                    process.todo = [Op::Verify(Rec::StartIntent), Op::List].into();
                }
            }
            next.push(("time passes".to_owned(), world));
        }
        next
    }

    /// What must never be.
    fn wrong(&self) -> Option<String> {
        if self.starts > 1 {
            return Some(format!("started {} times", self.starts));
        }
        if self.is_done() && self.container != Some(Stage::Over) {
            return Some("its end is recorded and it has not ended".to_owned());
        }
        if self.starts > 0 && !self.journal.contains(&Rec::StartIntent) {
            return Some("it was started and nothing in the journal says so".to_owned());
        }
        None
    }

    fn is_done(&self) -> bool {
        self.journal.contains(&Rec::Ended)
    }
}

/// What a walk over all worlds came to.
struct Walk {
    worlds: usize,
    steps: usize,
    /// What is wrong, with the way there.
    wrong: Option<String>,
    /// Worlds from which nothing leads to the recorded result.
    stuck: usize,
}

fn walk(flaw: Flaw) -> Walk {
    let mut model = Model::new(flaw);
    let mut index: HashMap<World, usize> = HashMap::from([(World::default(), 0)]);
    let mut worlds = vec![World::default()];
    let mut came: Vec<(usize, String)> = vec![(0, "nothing is there".to_owned())];
    let mut before: Vec<Vec<usize>> = vec![vec![]];
    let (mut at, mut steps) = (0, 0);
    while at < worlds.len() {
        if let Some(wrong) = worlds[at].wrong() {
            let mut way = vec![wrong];
            let mut here = at;
            while here != 0 {
                way.push(came[here].1.clone());
                here = came[here].0;
            }
            way.reverse();
            return Walk { worlds: worlds.len(), steps, wrong: Some(way.join("\n")), stuck: 0 };
        }
        let world = worlds[at].clone();
        for (name, next) in world.next(&mut model) {
            steps += 1;
            let to = *index.entry(next).or_insert_with_key(|next| {
                worlds.push(next.clone());
                came.push((at, name));
                before.push(Vec::new());
                worlds.len() - 1
            });
            before[to].push(at);
        }
        at += 1;
    }
    let mut leads = vec![false; worlds.len()];
    let mut open: Vec<usize> = (0..worlds.len()).filter(|at| worlds[*at].is_done()).collect();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut leads[at], true) {
            open.extend(&before[at]);
        }
    }
    Walk { worlds: worlds.len(), steps, wrong: None, stuck: leads.iter().filter(|leads| !**leads).count() }
}

#[test]
fn every_order_of_two_reconcilers_and_two_crashes_starts_once_and_can_end() {
    let Walk { worlds, steps, wrong, stuck } = walk(Flaw::None);
    #[expect(clippy::print_stdout, reason = "how much was walked is told")]
    {
        println!("{worlds} worlds, {steps} steps between them");
    }
    assert_eq!(wrong, None);
    assert_eq!(stuck, 0, "from some worlds nothing leads to the result");
    assert!(worlds > 10_000, "the model has shrunk to {worlds} worlds");
}

#[rstest::rstest]
#[case::without_the_journals_fence(Flaw::Fence)]
#[case::without_the_grace_after_a_start(Flaw::Grace)]
#[case::without_the_look_before_a_start(Flaw::Look)]
#[case::without_a_limit_between_record_and_start(Flaw::Late)]
fn a_protocol_that_lacks_one_of_its_parts_starts_twice(#[case] flaw: Flaw) {
    let wrong = walk(flaw).wrong.expect("a double start");
    assert!(wrong.ends_with("started 2 times"), "{wrong}");
}

/// Records and calls in the order in which one process makes them when nothing goes wrong, in the words of a trace.
fn in_model() -> Vec<String> {
    let mut model = Model::new(Flaw::None);
    let mut world = World::default();
    let mut done = Vec::new();
    while !world.is_done() {
        match world.processes[0].todo.front() {
            Some(Op::Write(rec)) => {
                let json = serde_json::to_value(model.entry(*rec)).expect("plain data");
                done.push(json["type"].as_str().expect("a word").to_owned());
            }
            Some(Op::Create) => done.push("create".to_owned()),
            Some(Op::Start) => done.push("start".to_owned()),
            Some(Op::Inspect) => done.push("inspect".to_owned()),
            // Nothing is left to do but wait.
            Some(Op::List) if world.container == Some(Stage::Runs) => world.container = Some(Stage::Over),
            _ => {}
        }
        world = world.step(0, &mut model);
    }
    done
}

#[test]
fn the_model_takes_the_steps_of_the_real_code() {
    let (_, failures, trace) = super::exhaust::walk(&super::Script::default());
    assert_eq!(failures, Vec::<String>::new());
    let step = |line: &String| {
        let text = line.trim_start().split_once(' ')?.1;
        if let Some((_, json)) = text.split_once(r#" {"type":""#) {
            return json
                .split_once('"')
                .map(|(word, _)| word.to_owned())
                .filter(|word| word != "opened" && word != "plan");
        }
        let word = text.split(' ').next()?;
        let is_call = match word {
            "create" | "start" => !text.contains("->"),
            "inspect" => true,
            _ => false,
        };
        is_call.then(|| word.to_owned())
    };
    let real: Vec<String> = trace.iter().filter_map(step).collect();
    assert_eq!(real, in_model());
}
