//! Every N-th system call of the program fails, or is its last, while it writes the plan file: the file is the old or the
//! new one.
//!
//! With `ORCHESTRATE_FAULTS=all` every call is tried, else all of the calls that only a write makes and some of the others.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::project::{PROGRAM, Project};
use crate::support::web::program;

const OLD: &str = "{\"note\": 1E5, \"tasks\": [\n  {\"id\": \"a\", \"agent\": \"shell\", \"image\": \"x\", \"x-long\": \"LONG\"}\n]}\n";

/// What only a write makes, then what all reading makes too.
const CALLS: [&str; 9] = ["write", "fsync", "rename", "fchmod", "flock", "openat", "read", "statx", "readlink"];

struct Traced {
    project: Project,
    strace: PathBuf,
    old: String,
    new: String,
}

impl Traced {
    /// Runs a command that writes into the file, with these arguments of strace, of which only calls that touch the file
    /// and what stands beside it count; gives its exit code.
    fn suspend(&self, arguments: &[&str]) -> Option<i32> {
        let repo = self.project.repo();
        let mut command = Command::new("unshare");
        // In a namespace where process ids begin anew, the temporary file's name is known before.
        command.args(["-rpf", "--mount-proc"]).arg(&self.strace).args(["-f", "-qq", "-P"]).arg(&repo);
        let temps = (2..10).map(|pid| format!(".agent-tasks.json.tmp-{pid}-0"));
        for name in temps.chain([".agent-tasks.json".to_owned(), ".agent-tasks.json.lock".to_owned()]) {
            command.arg("-P").arg(repo.join(name));
        }
        command.args(arguments).args([PROGRAM, "suspend", "-q"]).current_dir(&repo);
        let plain = self.project.command(&[]);
        command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().ok()?.code()
    }

    fn reset(&self) {
        for name in self.temps() {
            fs::remove_file(self.project.repo().join(name)).expect("removed");
        }
        fs::write(self.project.plan_path(), &self.old).expect("written");
    }

    fn text(&self) -> String {
        fs::read_to_string(self.project.plan_path()).expect("always there")
    }

    fn temps(&self) -> Vec<String> {
        let names = fs::read_dir(self.project.repo()).expect("there");
        let names = names.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains(".tmp-")).collect()
    }

    /// How often each call is made; `None` where nobody may trace.
    fn counts(&self) -> Option<BTreeMap<&'static str, usize>> {
        let log = self.project.ran().join("trace");
        self.reset();
        if self.suspend(&["-o", log.to_str()?, "-e", &format!("trace={}", CALLS.join(","))]) != Some(0) {
            return None;
        }
        assert_eq!(self.text(), self.new);
        let log = fs::read_to_string(&log).ok()?;
        let made = |line: &str| Some(line.split_once(' ')?.1.trim_start().split_once('(')?.0.to_owned());
        let made: Vec<String> = log.lines().filter_map(made).collect();
        Some(CALLS.iter().map(|call| (*call, made.iter().filter(|made| made == call).count())).collect())
    }
}

#[test]
fn whichever_call_fails_or_is_the_last_the_file_is_the_old_or_the_new_one() {
    let Some(strace) = program("strace") else { return };
    let project = Project::at("unix:///nonexistent/docker.sock".to_owned());
    let old = OLD.replace("LONG", &"long ".repeat(20_000));
    let new = old.replace("]}", "], \"suspend\": true}");
    let traced = Traced { project, strace, old, new };
    // Nobody to tell where stderr is closed.
    let tell = |words: &str| drop(writeln!(std::io::stderr(), "{words}"));
    let Some(counts) = traced.counts() else {
        return tell("SKIPPED: this machine lets nobody trace in a namespace");
    };
    #[expect(clippy::disallowed_methods, reason = "how much is tried is up to who runs the test")]
    let all = std::env::var("ORCHESTRATE_FAULTS").is_ok_and(|faults| faults == "all");
    let (mut runs, mut kept, mut orphans) = (0, 0, 0);
    for (call, &count) in &counts {
        let only_writing = CALLS[..5].contains(call);
        assert!(count > 0, "a write makes {call}: {counts:?}");
        for effect in ["error=ENOSPC", "error=EIO", "error=EINTR", "signal=KILL"] {
            // The last ones are those of the write.
            let step = if all || only_writing { 1 } else { 6 };
            for number in (1..=count).rev().step_by(step) {
                traced.reset();
                let inject = format!("inject={call}:{effect}:when={number}");
                let code = traced.suspend(&["-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
                let found = traced.text();
                assert!(found == traced.old || found == traced.new, "{inject}: {found}");
                assert!(found == traced.new || code != Some(0), "{inject} was passed over");
                runs += 1;
                kept += usize::from(found == traced.old);
                let left = traced.temps();
                orphans += left.len();
                // A writer that lives cleans up after itself.
                assert!(left.is_empty() || effect == "signal=KILL", "{inject}: {left:?}");
            }
        }
    }
    let told = format!("{runs} runs, {kept} left the old file, {orphans} left a temporary file; {counts:?}");
    tell(&format!("faults: {told}"));
    assert!(runs > 50 && kept > 20 && kept < runs && orphans > 0, "{told}");
    // Whatever was left by a process that is no more: the next start sweeps it.
    traced.reset();
    let temp = traced.project.repo().join(".agent-tasks.json.tmp-1999999999-0");
    fs::write(&temp, "{").expect("written");
    let _away = traced.project.run(&["once"]);
    assert_eq!(traced.temps(), [""; 0]);
}
