//! Where a race is run: an engine of our own with the tests' image, a folder for each run, the peers' programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::shape::Shape;

/// The tests' image: a shell and git.
pub(crate) const IMAGE: &str = "orchestrate-test:latest";
/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_orchestrate");

/// The place.
#[derive(Debug)]
pub(crate) struct Place {
    /// The engine's address; `None`: no engine, and why.
    pub(crate) host: Result<String, String>,
    /// Where the peers that are Python packages are installed.
    tools: PathBuf,
    /// Where results go.
    pub(crate) out: PathBuf,
    root: tempfile::TempDir,
    next: std::cell::Cell<u32>,
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Place {
    pub(crate) fn new() -> Self {
        let out = checkout().join("target/bench");
        fs::create_dir_all(&out).expect("the target folder is ours");
        let tools = out.join("tools");
        if let Err(why) = ran(Command::new(checkout().join("benches/peers/tools")).arg(&tools)) {
            crate::say(&format!("peers: {why}"));
        }
        let root = tempfile::tempdir().expect("a temp folder");
        Self { host: engine(&out.join("engine")), tools, out, root, next: std::cell::Cell::new(0) }
    }

    /// A new empty folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.next.set(self.next.get() + 1);
        let folder = self.root.path().join(self.next.get().to_string());
        fs::create_dir_all(&folder).expect("a temp folder");
        folder
    }

    /// A peer's program, where it is there.
    pub(crate) fn tool(&self, name: &str) -> Option<PathBuf> {
        let installed = self.tools.join("bin").join(name);
        let usual = ["/usr/local/bin", "/usr/bin", "/bin"].into_iter().map(|dir| Path::new(dir).join(name));
        std::iter::once(installed).chain(usual).find(|path| path.is_file())
    }

    /// Removes every container of our engine, so that each run begins with none.
    pub(crate) fn clear(&self) {
        let Ok(host) = &self.host else { return };
        let listed = Command::new("docker").args(["-H", host, "ps", "-aq"]).output();
        let ids = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for some in ids.split_whitespace().collect::<Vec<_>>().chunks(50) {
            drop(Command::new("docker").args(["-H", host, "rm", "-f"]).args(some).output());
        }
    }

    /// A repository with a plan.
    pub(crate) fn repository(&self, shape: &Shape, slots: usize, network: &str, runtime: &str) -> PathBuf {
        let folder = self.folder();
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.current_dir(&folder).args(["-c", "user.name=Bench", "-c", "user.email=bench@localhost"]);
            ran(command.args(arguments)).expect("git works");
        };
        git(&["init", "-q", "-b", "main"]);
        fs::write(folder.join("README.md"), "A project.\n").expect("written");
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "first"]);
        let task = |node: &crate::shape::Node| {
            let needs: Vec<&str> = node.needs.iter().map(|need| &*shape.tasks[*need].id).collect();
            json!({ "id": node.id, "dependencies": needs, "command": node.command() })
        };
        let plan = json!({
            "runtime": runtime,
            "max_concurrent": slots,
            "defaults": { "agent": "shell", "image": IMAGE, "network": network },
            "tasks": shape.tasks.iter().map(task).collect::<Vec<_>>(),
        });
        fs::write(folder.join(".agent-tasks.json"), format!("{plan:#}\n")).expect("written");
        folder
    }

    /// The program in a repository, in an environment with nothing but what it needs.
    pub(crate) fn orchestrate(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", self.root.path());
        if let Ok(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        command
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let engine = checkout().join("tests/engine/engine");
        drop(Command::new(engine).arg("stop").arg(self.out.join("engine")).output());
    }
}

fn engine(dir: &Path) -> Result<String, String> {
    let scripts = checkout().join("tests/engine");
    let told = ran(Command::new(scripts.join("engine")).arg("start").arg(dir))?;
    let host = told.trim().strip_prefix("DOCKER_HOST=").ok_or("the engine's script told no address")?.to_owned();
    ran(Command::new(scripts.join("image")).arg(&host))?;
    Ok(host)
}

/// Runs a command; what it printed, or what it complained of.
pub(crate) fn ran(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&stderr);
    Err(format!("{}: {status}: {}", command.get_program().to_string_lossy(), words.trim()))
}
