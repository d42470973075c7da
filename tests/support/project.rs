//! A throw-away repository with a plan, and the program itself run over it as a person would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::engine::{self, IMAGE};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_orchestrate");

/// A repository with one commit, a folder that tasks write to from inside, and an engine.
pub struct Project {
    dir: TempDir,
    host: String,
    is_mounted: bool,
}

/// What a run of a program gave.
#[derive(Debug)]
#[must_use = "look at what came of it"]
pub struct Ran {
    /// Exit code; -1 where a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Fails unless it ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Project {
    /// On the tests' engine; `None` after the reason for skipping was told.
    pub fn on_engine() -> Option<Self> {
        let (_, host) = engine::engine()?;
        Some(Self::at(host))
    }

    /// With an engine at an address, which may be nobody's.
    pub fn at(host: String) -> Self {
        Self::made(host, |_| ())
    }

    /// On the tests' engine, the repository on a file system of its own of so many MiB; `None` after the reason for
    /// skipping was told.
    pub fn on_small_disk(mebibytes: u32) -> Option<Self> {
        let (_, host) = engine::engine()?;
        let mount = |repo: &Path| {
            let options = format!("size={mebibytes}m,mode=755");
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "-o", &options, "orchestrate-test"]).arg(repo);
            assert!(command.status().expect("mount runs").success(), "only root can make a small disk");
        };
        let mut project = Self::made(host, mount);
        project.is_mounted = true;
        Some(project)
    }

    fn made(host: String, prepare: impl Fn(&Path)) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let project = Self { dir, host, is_mounted: false };
        fs::create_dir_all(project.ran()).expect("makes");
        fs::create_dir_all(project.repo()).expect("makes");
        prepare(&project.repo());
        project.git(&["init", "-q", "-b", "main"]);
        project.commit_file("README.md", "A project.\n");
        project
    }

    /// The repository.
    pub fn repo(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    /// A folder that tasks see as `/ran`.
    pub fn ran(&self) -> PathBuf {
        self.dir.path().join("ran")
    }

    /// The engine's address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Runs git in the repository, as its user would; gives what it printed.
    #[track_caller]
    pub fn git(&self, arguments: &[&str]) -> String {
        let ran = self.try_git(arguments);
        assert_eq!(ran.code, 0, "git {arguments:?}: {}", ran.stderr);
        ran.stdout.trim_end().to_owned()
    }

    /// The same where git may fail.
    pub fn try_git(&self, arguments: &[&str]) -> Ran {
        let mut command = Command::new("git");
        command
            .current_dir(self.repo())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path());
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Person").env(format!("GIT_{who}_EMAIL"), "person@localhost");
        }
        command.args(arguments).output().expect("git runs").into()
    }

    /// Writes and commits a file.
    pub fn commit_file(&self, path: &str, text: &str) {
        fs::write(self.repo().join(path), text).expect("writes");
        self.git(&["add", path]);
        self.git(&["commit", "-q", "-m", path]);
    }

    /// The plan file.
    pub fn plan_path(&self) -> PathBuf {
        self.repo().join(".agent-tasks.json")
    }

    /// Writes the plan file: these tasks over defaults for the tests' image, `/ran` mounted.
    pub fn plan(&self, tasks: Value) {
        self.plan_with(json!({}), tasks);
    }

    /// The same with further fields at the top.
    #[expect(clippy::needless_pass_by_value, reason = "calls read better with the value itself")]
    pub fn plan_with(&self, top: Value, tasks: Value) {
        let mut plan = json!({
            "max_concurrent": 4,
            "defaults": {
                "agent": "shell", "image": IMAGE, "network": "none", "retry_backoff": { "initial": "1s", "max": "1s" },
                "mounts": [{ "source": self.ran(), "target": "/ran", "read_only": false }],
            },
        });
        for (name, value) in top.as_object().expect("an object") {
            plan[name] = value.clone();
        }
        plan["tasks"] = tasks;
        self.write_plan(&plan);
    }

    /// Writes the plan file as it is given.
    pub fn write_plan(&self, plan: &Value) {
        fs::write(self.plan_path(), serde_json::to_string_pretty(plan).expect("plain data")).expect("writes");
    }

    /// The plan file as it stands.
    pub fn plan_now(&self) -> Value {
        serde_json::from_slice(&fs::read(self.plan_path()).expect("reads")).expect("always parses")
    }

    /// One task's block of it.
    #[track_caller]
    pub fn task(&self, id: &str) -> Value {
        let plan = self.plan_now();
        let found = plan["tasks"].as_array().expect("a list").iter().find(|task| task["id"] == id).cloned();
        found.unwrap_or_else(|| panic!("no task {id}"))
    }

    /// `status/reason` of a task.
    #[track_caller]
    pub fn stands(&self, id: &str) -> String {
        let task = self.task(id);
        format!("{}/{}", task["status"].as_str().unwrap_or("-"), task["reason"].as_str().unwrap_or("-"))
    }

    /// The program with arguments, in the repository, in an environment with nothing but what it needs.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.repo())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.dir.path().join("home"))
            .env("DOCKER_HOST", &self.host)
            .stdin(Stdio::null());
        if self.is_mounted {
            // It is about what happens on a full disk, and no launch should wait for a roomy one.
            command.env("ORCHESTRATE_DISK_FLOOR", "0");
        }
        command
    }

    /// Runs the program.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().expect("runs").into()
    }

    /// Starts the program. What it tells is shown where a test waits in vain.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let told = fs::OpenOptions::new().create(true).append(true).open(self.told()).expect("a log");
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(told).spawn().expect("starts")
    }

    fn told(&self) -> PathBuf {
        self.dir.path().join("told.log")
    }

    /// The docker command line at the engine.
    pub fn docker(&self, arguments: &[&str]) -> Ran {
        engine::docker(&self.host, arguments).into()
    }

    /// Names and states of all containers of this repository, sorted.
    pub fn containers(&self) -> Vec<String> {
        let instance = self.instance();
        let filter = format!("label=dev.orchestrate.instance={instance}");
        let listed = self.docker(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}} {{.State}}"]).expect(0);
        let prefix = format!("orch-{instance}-");
        let mut names: Vec<String> =
            listed.stdout.lines().map(|line| line.strip_prefix(&prefix).unwrap_or(line).to_owned()).collect();
        names.sort();
        names
    }

    /// This clone's id, from the journal's first record.
    pub fn instance(&self) -> String {
        let journal = fs::read_to_string(self.repo().join(".git/orchestrate/journal")).unwrap_or_default();
        let first = journal.lines().next().and_then(|line| line.split_once(' ')).map_or("{}", |(_, json)| json);
        let record: Value = serde_json::from_str(first).expect("a record");
        record["instance"].as_str().unwrap_or("none").to_owned()
    }

    /// What tasks appended to `/ran/log`, sorted.
    pub fn ran_log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.ran().join("log")).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    }

    /// Waits (a generous while) until something holds.
    #[track_caller]
    pub fn wait_until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        #[expect(clippy::disallowed_methods, reason = "a real engine takes real time")]
        let started = std::time::Instant::now();
        while !holds(self) {
            assert!(
                started.elapsed().as_secs() < 240,
                "waited too long until {what}; {:#}\ncontainers: {:?}\ntold: {}",
                self.plan_now(),
                self.containers(),
                fs::read_to_string(self.told()).unwrap_or_default(),
            );
            #[expect(clippy::disallowed_methods, reason = "a real engine takes real time")]
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let filter = format!("label=dev.orchestrate.instance={}", self.instance());
        let listed = Ran::from(engine::docker(&self.host, &["ps", "-aq", "--filter", &filter]));
        let mut arguments = vec!["rm", "-f"];
        arguments.extend(listed.stdout.split_whitespace());
        if arguments.len() > 2 {
            drop(engine::docker(&self.host, &arguments));
        }
        if self.is_mounted {
            drop(Command::new("umount").arg("-l").arg(self.repo()).status());
        }
    }
}

/// A shell command that notes that it runs, then does the rest.
pub fn noting(rest: &str) -> Value {
    json!(["sh", "-c", format!("echo $ORCHESTRATE_TASK $ORCHESTRATE_ATTEMPT >> /ran/log; {rest}")])
}

/// A shell command that notes that it runs and commits a file of its task's name.
pub fn committing(rest: &str) -> Value {
    noting(&format!(
        "{rest} echo $ORCHESTRATE_TASK > $ORCHESTRATE_TASK.txt; git add -A; git commit -q -m $ORCHESTRATE_TASK"
    ))
}

/// Where a path leads without links.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize().expect("exists")
}
