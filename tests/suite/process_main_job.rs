//! The main job over plain processes, through the program itself: no engine answers anywhere here.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::git_isolated::OPERATIONS;
use crate::process_support::{command_lines, end_supervisors, supervisors};
use crate::support::project::{Project, Ran};

/// A repository whose attempts are processes.
pub(crate) struct Machine {
    pub(crate) project: Project,
    avoid: &'static str,
}

/// The means of confinement that a test leaves out: what a machine without them has.
const FULL: &str = "";
const LANDLOCK_ALONE: &str = "namespaces";
const NO_GROUPS: &str = "namespaces,cgroups";
const NOTHING: &str = "namespaces,landlock,cgroups";

impl Machine {
    pub(crate) fn new() -> Self {
        Self::avoiding(FULL)
    }

    fn avoiding(avoid: &'static str) -> Self {
        Self { project: Project::at("unix:///nowhere/docker.sock".to_owned()), avoid }
    }

    /// The plan, with `$RAN` for a folder that tasks may write to.
    pub(crate) fn plan(&self, tasks: Value) {
        let top = json!({
            "runtime": "process",
            "defaults": {
                "agent": "shell", "env": { "RAN": "/ran" }, "retry_backoff": { "initial": "1s", "max": "1s" },
                "mounts": [{ "source": self.project.ran(), "target": "/ran", "read_only": false }],
            },
        });
        self.project.plan_with(top, tasks);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.project.command(arguments);
        command.env("ORCHESTRATE_PROCESS_AVOID", self.avoid);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().expect("runs").into()
    }

    pub(crate) fn start(&self) -> Child {
        let mut command = self.command(&["run", "--until-done"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
    }

    /// Where the attempts' folders are.
    pub(crate) fn root(&self) -> PathBuf {
        self.project.repo().join(".git/orchestrate/process")
    }

    /// A task's attempt's folder.
    fn folder(&self, attempt: &str) -> PathBuf {
        self.root().join(format!("orch-{}-{attempt}", self.project.instance()))
    }

    fn fact(&self, attempt: &str, file: &str) -> Value {
        let text = fs::read(self.folder(attempt).join(file)).expect("read");
        serde_json::from_slice(&text).expect("JSON")
    }

    /// The supervisor of what runs.
    fn supervisor(&self, attempt: &str) -> Pid {
        let folder = self.folder(attempt).canonicalize().expect("there");
        let lives = supervisors(&self.root()).into_iter();
        let found = lives.filter(|(other, _)| other.canonicalize().is_ok_and(|other| other == folder));
        found.map(|(_, pid)| pid).next().expect("it lives")
    }

    fn wait_for_line(&self, line: &str) {
        self.project.wait_until(line, |project| project.ran_log().iter().any(|other| other == line));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        end_supervisors(&self.root());
    }
}

/// A shell command that notes that it runs, then does the rest.
pub(crate) fn noting(rest: &str) -> Value {
    json!(["sh", "-c", format!("echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> $RAN/log; {rest}")])
}

/// A shell command that notes that it runs, does the rest and commits a file of its task's name, unless an earlier attempt
/// got as far as that.
pub(crate) fn committing(rest: &str) -> Value {
    noting(&format!(
        "{rest} echo $ORCHESTRATE_TASK > $ORCHESTRATE_TASK.txt; git add -A; \
         git diff --cached --quiet || git commit -q -m $ORCHESTRATE_TASK"
    ))
}

#[rstest]
#[case::full(FULL)]
#[case::landlock_alone(LANDLOCK_ALONE)]
fn from_a_plan_to_branches_to_review(#[case] avoid: &'static str) {
    let machine = Machine::avoiding(avoid);
    let project = &machine.project;
    machine.plan(json!([
        { "id": "one", "command": committing("") },
        { "id": "two", "command": committing("") },
        { "id": "both", "dependencies": ["one", "two"], "command": committing("") },
        { "id": "again", "retries": 1, "command": committing("[ $ORCHESTRATE_ATTEMPT = 2 ] || exit 3;") },
        { "id": "fails", "command": noting("exit 7") },
        { "id": "waits", "dependencies": ["fails"], "command": noting("") },
        { "id": "left", "command": noting("echo left > left.txt") },
        { "id": "nothing", "command": ["/no/such/program"] },
    ]));
    let ran = machine.run(&["run", "--until-done"]).expect(1);
    let stands = |id: &str| project.stands(id);
    for id in ["one", "two", "both", "again", "left"] {
        assert_eq!(stands(id), "completed/Succeeded", "{}", ran.stderr);
    }
    assert_eq!(stands("fails"), "failed/NonZeroExit");
    assert_eq!(project.task("fails")["exit_code"], 7);
    assert_eq!(stands("waits"), "blocked/DependencyFailed");
    assert!(stands("nothing").starts_with("failed/"), "{}", stands("nothing"));
    assert_eq!(project.ran_log(), ["again 1", "again 2", "both 1", "fails 1", "left 1", "one 1", "two 1"]);
    assert_eq!(project.git(&["show", "agent/both:one.txt"]), "one");
    assert_eq!(project.git(&["show", "agent/both:two.txt"]), "two");
    assert_eq!(project.git(&["show", "agent/left:left.txt"]), "left");
    assert_eq!(project.git(&["log", "--format=%s", "main"]).lines().count(), 1, "nothing is merged");
    assert_eq!(project.git(&["fsck", "--strict"]), "");

    let stamp = || {
        let meta = fs::metadata(project.plan_path()).expect("there");
        (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec())
    };
    let journal = || fs::read(project.repo().join(".git/orchestrate/journal")).expect("there");
    let before = (stamp(), journal(), project.git(&["for-each-ref"]));
    let _ran = machine.run(&["once"]).expect(0);
    let _ran = machine.run(&["run", "--until-done"]).expect(1);
    assert_eq!(before, (stamp(), journal(), project.git(&["for-each-ref"])), "a second pass has nothing to do");

    // A person retries what failed: another attempt, and what waited for it is released.
    machine.plan(json!([]));
    let mut plan = project.plan_now();
    plan["tasks"] = json!([
        { "id": "fails", "command": noting("") },
        { "id": "waits", "dependencies": ["fails"], "command": noting("") },
    ]);
    project.write_plan(&plan);
    let _ran = machine.run(&["retry", "fails"]).expect(0);
    let _ran = machine.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.task("fails")["attempt"], 2);
    assert_eq!(stands("waits"), "completed/Succeeded");
}

#[rstest]
#[case::full(FULL)]
#[case::landlock_alone(LANDLOCK_ALONE)]
fn all_of_git_works(#[case] avoid: &'static str) {
    let machine = Machine::avoiding(avoid);
    let project = &machine.project;
    project.git(&["rm", "-q", "README.md"]);
    fs::create_dir(project.repo().join("src")).expect("makes");
    for (path, text) in [
        ("readme.md", "one\ntwo\nthree\n"),
        ("src/lib.rs", "fn a() {}\n\nfn b() {}\n\nfn c() {}\n"),
        (".gitignore", "*.log\n/build/\n"),
    ] {
        fs::write(project.repo().join(path), text).expect("writes");
        project.git(&["add", path]);
    }
    project.git(&["commit", "-q", "--amend", "-m", "first"]);
    let script: Vec<String> = OPERATIONS
        .iter()
        .map(|(name, script)| format!("( {script} ) >$TMP/out 2>&1 || {{ echo \"FAILED {name}\"; cat $TMP/out; }}\n"))
        .collect();
    let script = format!("TMP=$(mktemp -d)\nexport GIT_EDITOR=true\n{}echo left > left.txt", script.concat());
    // The agent's branch has the task's name, which the operations know.
    machine.plan(json!([{ "id": "a", "command": ["sh", "-c", script] }]));
    let ran = machine.run(&["run", "--until-done"]).expect(0);
    let log = machine.run(&["logs", "a"]).expect(0).stdout;
    assert!(!log.contains("FAILED"), "{log}{}", ran.stderr);
    assert_eq!(project.git(&["show", "agent/a:left.txt"]), "left");
    assert_eq!(project.git(&["show", "agent/a:README.md"]), "one\ntwo\nthree");
    assert_eq!(project.git(&["fsck", "--strict", "--no-dangling"]), "");
    assert_eq!(
        project.git(&["for-each-ref", "--format=%(refname)", "refs/heads"]),
        "refs/heads/agent/a\nrefs/heads/main"
    );
}

/// Leaves session, group and parent, and does not listen.
fn stubborn(unique: &str) -> Value {
    noting(&format!(
        "setsid sh -c '(trap \"\" TERM HUP INT; while :; do sleep {unique}; done) & exit 0'; trap '' TERM; \
         while :; do sleep {unique}; done"
    ))
}

#[rstest]
#[case::full(FULL)]
#[case::landlock_alone(LANDLOCK_ALONE)]
#[case::no_groups(NO_GROUPS)]
fn a_cancel_and_a_timeout_end_the_whole_tree(#[case] avoid: &'static str) {
    let machine = Machine::avoiding(avoid);
    let project = &machine.project;
    let unique = |n: usize| format!("{}.{n}{}", 40_000 + std::process::id(), avoid.len());
    machine.plan(json!([
        { "id": "called-off", "command": stubborn(&unique(1)) },
        { "id": "too-long", "timeout": "3s", "command": stubborn(&unique(2)) },
    ]));
    let mut child = machine.start();
    machine.wait_for_line("called-off 1");
    machine.wait_for_line("too-long 1");
    let _asked = machine.run(&["cancel", "called-off"]).expect(0);
    assert_eq!(child.wait().expect("waits").code(), Some(1));
    assert_eq!(project.stands("called-off"), "cancelled/CancelledByRequest");
    assert_eq!(project.stands("too-long"), "failed/DeadlineExceeded");
    for n in [1, 2] {
        assert_eq!(command_lines(&unique(n)), Vec::<String>::new());
    }
}

#[test]
fn a_killed_reconciler_loses_nothing_and_the_next_adopts() {
    let machine = Machine::new();
    let project = &machine.project;
    machine.plan(json!([{ "id": "slow", "command": committing("while [ ! -e $RAN/go ]; do sleep 0.05; done;") }]));
    let mut child = machine.start();
    machine.wait_for_line("slow 1");
    child.kill().expect("kills");
    child.wait().expect("waits");
    let running = machine.run(&["status", "-o", "json"]).expect(0);
    assert_eq!(serde_json::from_str::<Value>(&running.stdout).expect("JSON")["tasks"][0]["status"], "running");
    // A polite end leaves it running as well.
    let mut child = machine.start();
    let holder = || fs::read_to_string(project.repo().join(".git/orchestrate/lock")).unwrap_or_default();
    project.wait_until("it holds the lock", |_| holder().contains(&child.id().to_string()));
    kill_process(Pid::from_child(&child), Signal::INT).expect("sends");
    child.wait().expect("waits");
    assert!(kill_process(machine.supervisor("slow-1"), Signal::CONT).is_ok(), "it lives");
    fs::write(project.ran().join("go"), "").expect("writes");
    let _ran = machine.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["slow 1"]);
    assert_eq!(project.git(&["show", "agent/slow:slow.txt"]), "slow");
}

#[test]
fn a_killed_supervisor_interrupts_and_is_no_tasks_end() {
    let machine = Machine::new();
    let project = &machine.project;
    let command = committing("[ $ORCHESTRATE_ATTEMPT = 2 ] || sleep 1000;");
    machine.plan(json!([{ "id": "a", "command": command }]));
    let mut child = machine.start();
    machine.wait_for_line("a 1");
    kill_process(machine.supervisor("a-1"), Signal::KILL).expect("kills");
    // It asked for no retries, and used none.
    assert_eq!(child.wait().expect("waits").code(), Some(0));
    assert_eq!(project.stands("a"), "completed/Succeeded");
    assert_eq!(project.ran_log(), ["a 1", "a 2"]);
    let told = machine.run(&["events", "-o", "json"]).expect(0).stdout;
    assert!(told.contains("Interrupted") && told.contains("its supervisor was killed"), "{told}");
    assert_eq!(machine.fact("a-1", "exit.json")["lost"], "supervisor_killed");
    assert!(machine.fact("a-2", "exit.json")["lost"].is_null());
}

/// Starts a task that hangs in its first attempt, and kills both reconciler and supervisor.
fn both_killed(machine: &Machine) {
    let command = committing("[ $ORCHESTRATE_ATTEMPT = 2 ] || exec sleep 1000;");
    machine.plan(json!([{ "id": "a", "command": command }]));
    let mut child = machine.start();
    machine.wait_for_line("a 1");
    child.kill().expect("kills");
    child.wait().expect("waits");
    kill_process(machine.supervisor("a-1"), Signal::KILL).expect("kills");
    machine.project.wait_until("it is gone", |_| supervisors(&machine.root()).is_empty());
}

#[test]
fn a_restart_of_the_machine_is_noticed_and_no_number_of_a_process_is_trusted() {
    let machine = Machine::new();
    let project = &machine.project;
    both_killed(&machine);
    let mut bystander = Command::new("sleep").arg("1000").spawn().expect("starts");
    let path = machine.folder("a-1").join("started.json");
    let mut started = machine.fact("a-1", "started.json");
    started["boot_id"] = "of-before".into();
    // After a restart of the machine the numbers belong to others.
    started["cell"]["pid"] = bystander.id().into();
    fs::write(&path, started.to_string()).expect("writes");
    let _ran = machine.run(&["run", "--until-done"]).expect(0);
    assert!(bystander.try_wait().expect("asks").is_none(), "the bystander lives");
    bystander.kill().expect("kills");
    bystander.wait().expect("waits");
    assert_eq!(machine.fact("a-1", "exit.json")["lost"], "reboot");
    let told = machine.run(&["events", "-o", "json"]).expect(0).stdout;
    assert!(told.contains("the machine was restarted"), "{told}");
    assert_eq!(project.ran_log(), ["a 1", "a 2"]);
}

#[test]
fn in_the_same_boot_another_process_with_the_number_is_left_alone() {
    let machine = Machine::new();
    both_killed(&machine);
    let mut bystander = Command::new("sleep").arg("1000").spawn().expect("starts");
    let path = machine.folder("a-1").join("started.json");
    let mut started = machine.fact("a-1", "started.json");
    started["cell"]["pid"] = bystander.id().into();
    fs::write(&path, started.to_string()).expect("writes");
    let _ran = machine.run(&["run", "--until-done"]).expect(0);
    assert!(bystander.try_wait().expect("asks").is_none(), "the bystander lives");
    bystander.kill().expect("kills");
    bystander.wait().expect("waits");
    assert_eq!(machine.fact("a-1", "exit.json")["lost"], "supervisor_killed");
    assert_eq!(machine.project.ran_log(), ["a 1", "a 2"]);
}

#[test]
fn an_attempts_folder_starts_once() {
    let machine = Machine::new();
    let project = &machine.project;
    machine.plan(json!([{ "id": "a", "command": committing("") }]));
    let _ran = machine.run(&["run", "--until-done"]).expect(0);
    let fence = fs::read(machine.folder("a-1").join("started.json")).expect("there");
    // The journal forgets; the fence does not.
    let journal = project.repo().join(".git/orchestrate/journal");
    let text = fs::read_to_string(&journal).expect("reads");
    let lines: Vec<&str> = text.lines().collect();
    let intent = lines.iter().position(|line| line.contains("start_intent")).expect("an intent");
    fs::write(&journal, lines[..intent].join("\n") + "\n").expect("writes");
    let ran = machine.run(&["run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 1"], "{}", ran.stderr);
    assert_eq!(fs::read(machine.folder("a-1").join("started.json")).expect("there"), fence);
}

#[test]
fn nothing_of_ours_reaches_a_command_but_what_is_listed() {
    for avoid in [FULL, LANDLOCK_ALONE] {
        let machine = Machine::avoiding(avoid);
        let inside =
            "{ env; echo fds: $(ls /proc/self/fd | tr '\\n' ' '); readlink /proc/self/fd/7; } > $RAN/seen; true";
        machine.plan(json!([{ "id": "a", "env": { "GIVEN": "yes" }, "command": noting(inside) }]));
        // Descriptors that whoever starts us left open.
        let orchestrate = machine.command(&["run", "--until-done"]);
        let mut shell = machine.command(&[]);
        let program = orchestrate.get_program().to_owned();
        shell = {
            let mut outer = Command::new("sh");
            outer.args(["-c", "exec 7</etc/hostname 8>/dev/null; exec \"$0\" run --until-done"]).arg(program);
            outer.current_dir(shell.get_current_dir().expect("set")).env_clear();
            outer.envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
            outer
        };
        shell.env("AWS_SECRET_ACCESS_KEY", "canary").env("LD_LIBRARY_PATH", "/nowhere").env("LANG", "C.UTF-8");
        let ran = Ran::from(shell.output().expect("runs")).expect(0);
        let seen = fs::read_to_string(machine.project.ran().join("seen")).expect(&ran.stderr);
        for gone in ["canary", "LD_LIBRARY_PATH", "/etc/hostname", "DOCKER_HOST", "ORCHESTRATE_PROCESS_AVOID"] {
            assert!(!seen.contains(gone), "{avoid}: {gone} in {seen}");
        }
        for there in ["GIVEN=yes", "LANG=C.UTF-8", "PATH=", "fds: 0 1 2 3\n"] {
            assert!(seen.contains(there), "{avoid}: no {there} in {seen}");
        }
    }
}

#[test]
fn where_nothing_confines_it_is_refused_unless_it_is_allowed() {
    let machine = Machine::avoiding(NOTHING);
    let project = &machine.project;
    machine.plan(json!([{ "id": "a", "command": noting("") }]));
    let _ran = machine.run(&["run", "--until-done"]).expect(1);
    assert!(project.stands("a").starts_with("blocked/"), "{}", project.stands("a"));
    let message = project.task("a")["message"].as_str().expect("a sentence").to_owned();
    assert!(message.contains("--allow-unconfined") && message.contains("outside its worktree"), "{message}");
    assert_eq!(project.ran_log(), Vec::<String>::new());
    let status = machine.run(&["status"]).expect(0).stdout;
    assert!(status.contains("what holds them: no new privileges; not:"), "{status}");
    let _asked = machine.run(&["retry", "a"]).expect(0);
    let _ran = machine.run(&["--allow-unconfined", "run", "--until-done"]).expect(0);
    assert_eq!(project.ran_log(), ["a 2"]);
}

#[test]
fn status_says_what_holds_here() {
    for (avoid, word) in [(FULL, "own file system view"), (LANDLOCK_ALONE, "namespaces: not wanted")] {
        let machine = Machine::avoiding(avoid);
        machine.plan(json!([{ "id": "a", "command": noting("") }]));
        let json = machine.run(&["status", "-o", "json"]).expect(0).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let told = json["confinement"].as_str().expect("a line");
        // Another user than root may have no namespaces.
        assert!(told.contains(word) || !rustix::process::geteuid().is_root(), "{told}");
        let text = machine.run(&["status"]).expect(0).stdout;
        assert!(text.contains(told), "{text}");
    }
}
