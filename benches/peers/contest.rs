//! Who races: orchestrate, what people would use in its place, and the engine's own floor.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::place::{IMAGE, Place};
use crate::shape::{Node, Shape};

/// One who races.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Orchestrate,
    /// The same containers made by the same code, without a journal, worktrees, results and a plan file.
    Floor,
    /// Containers with nothing set, straight through the API.
    Bare,
    Compose,
    Make,
    Ninja,
    GoTask,
    Doit,
    Luigi,
    Snakemake,
    /// A shell loop that inspects each running container every so many seconds.
    Poller(u32),
}

impl Who {
    pub(crate) const ALL: [Self; 12] = [
        Self::Orchestrate,
        Self::Floor,
        Self::Bare,
        Self::Make,
        Self::Ninja,
        Self::GoTask,
        Self::Doit,
        Self::Compose,
        Self::Luigi,
        Self::Snakemake,
        Self::Poller(1),
        Self::Poller(2),
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Orchestrate => "orchestrate".to_owned(),
            Self::Floor => "floor".to_owned(),
            Self::Bare => "bare floor".to_owned(),
            Self::Compose => "docker-compose".to_owned(),
            Self::Make => "make + docker run".to_owned(),
            Self::Ninja => "ninja + docker run".to_owned(),
            Self::GoTask => "go-task + docker run".to_owned(),
            Self::Doit => "doit + docker run".to_owned(),
            Self::Luigi => "luigi + docker run".to_owned(),
            Self::Snakemake => "snakemake + docker run".to_owned(),
            Self::Poller(1) => "shell, polling each second".to_owned(),
            Self::Poller(seconds) => format!("shell, polling every {seconds} s"),
        }
    }

    /// Whether it is a peer, not the floor and not we.
    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Orchestrate | Self::Floor | Self::Bare)
    }

    /// The command that runs a plan to its end, its files written. An error says why it cannot race here.
    pub(crate) fn command(self, place: &Place, shape: &Shape, slots: usize, network: &str) -> Result<Command, String> {
        let host = place.host.as_ref().map_err(Clone::clone)?;
        let folder =
            if self == Self::Orchestrate { place.repository(shape, slots, network, "docker") } else { place.folder() };
        let race = Race { shape, slots, host, network, folder: &folder };
        let tool = |name: &str| {
            let path = place.tool(name).ok_or_else(|| format!("{name} is not installed"))?;
            let mut command = Command::new(path);
            command.current_dir(&folder).env_remove("DOCKER_CONTEXT");
            Ok::<_, String>(command)
        };
        let with = |mut command: Command, arguments: &[&str]| {
            command.args(arguments);
            command
        };
        let jobs = slots.to_string();
        match self {
            Self::Orchestrate => Ok(place.orchestrate(&folder, &["run", "--until-done", "--quiet"])),
            Self::Floor | Self::Bare => race.floor(self == Self::Bare, "chain"),
            Self::Compose => {
                let mut command = with(tool("docker-compose")?, &["-H", host, "-p", "bench", "up", "--no-color"]);
                command.env("COMPOSE_PARALLEL_LIMIT", slots.max(2).to_string()).env("COMPOSE_HTTP_TIMEOUT", "600");
                race.write("docker-compose.yml", &race.compose());
                Ok(command)
            }
            Self::Make => {
                race.write("Makefile", &race.makefile());
                Ok(with(tool("make")?, &["-s", "-j", &jobs]))
            }
            Self::Ninja => {
                race.write("build.ninja", &race.ninja());
                Ok(with(tool("ninja")?, &["--quiet", "-j", &jobs]))
            }
            Self::GoTask => {
                race.write("Taskfile.yml", &race.taskfile());
                Ok(with(tool("task")?, &["--silent", "--concurrency", &jobs, "all"]))
            }
            Self::Doit => {
                race.write("dodo.py", &race.dodo());
                Ok(with(tool("doit")?, &["run", "-n", &jobs, "-P", "thread", "-v", "0"]))
            }
            Self::Luigi => {
                race.write("plan.py", &race.luigi());
                let python = tool("luigi")?.get_program().to_owned();
                let python = Path::new(&python).with_file_name("python");
                let mut command = Command::new(python);
                command.current_dir(&folder).args(["plan.py", &jobs]);
                Ok(command)
            }
            Self::Snakemake => {
                race.write("Snakefile", &race.snakefile());
                Ok(with(tool("snakemake")?, &["--quiet", "all", "--cores", &jobs, "-j", &jobs]))
            }
            Self::Poller(seconds) => {
                race.write("poll.sh", &race.poller(seconds));
                Ok(with(tool("bash")?, &["poll.sh"]))
            }
        }
    }
}

/// One run of one of them.
pub(crate) struct Race<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) slots: usize,
    pub(crate) host: &'a str,
    pub(crate) network: &'a str,
    pub(crate) folder: &'a Path,
}

impl Race<'_> {
    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a temp folder");
    }

    /// This program as the floor. `order`: `chain` or `file`.
    pub(crate) fn floor(&self, bare: bool, order: &str) -> Result<Command, String> {
        let mut text = String::new();
        for node in &self.shape.tasks {
            let needs: Vec<String> = node.needs.iter().map(ToString::to_string).collect();
            writeln!(text, "{}\t{}\t{}", node.id, needs.join(","), node.command().join(" ")).expect("a string");
        }
        self.write("plan.tsv", &text);
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.current_dir(self.folder).arg("__floor").args([self.host, self.network, order]);
        command.args([if bare { "bare" } else { "same" }, &self.slots.to_string()]);
        Ok(command)
    }

    fn needs<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = &'n str> {
        node.needs.iter().map(|need| &*self.shape.tasks[*need].id)
    }

    fn docker_run(&self, node: &Node) -> String {
        let Self { host, network, .. } = self;
        format!("docker -H {host} run --network {network} --name {} {IMAGE} {}", node.id, node.command().join(" "))
    }

    fn each(&self, one: impl Fn(&Node) -> String) -> String {
        self.shape.tasks.iter().map(one).collect()
    }

    fn all(&self, between: &str) -> String {
        self.shape.tasks.iter().map(|node| &*node.id).collect::<Vec<_>>().join(between)
    }

    fn joined(&self, node: &Node, around: &str, between: &str) -> String {
        self.needs(node).map(|id| format!("{around}{id}{around}")).collect::<Vec<_>>().join(between)
    }

    fn makefile(&self) -> String {
        let rule = |node: &Node| format!("{}: {}\n\t@{}\n", node.id, self.joined(node, "", " "), self.docker_run(node));
        format!("all: {0}\n.PHONY: all {0}\n{1}", self.all(" "), self.each(rule))
    }

    fn ninja(&self) -> String {
        let build = |node: &Node| {
            format!("build {}: run {}\n  do = {}\n", node.id, self.joined(node, "", " "), self.docker_run(node))
        };
        format!("rule run\n  command = $do\n  description = $out\n{}", self.each(build))
    }

    fn taskfile(&self) -> String {
        let task = |node: &Node| {
            let (needs, run) = (self.joined(node, "", ", "), self.docker_run(node));
            format!("  {}:\n    run: once\n    deps: [{needs}]\n    cmd: '{run}'\n", node.id)
        };
        format!("version: '3'\ntasks:\n  all:\n    deps: [{}]\n{}", self.all(", "), self.each(task))
    }

    fn dodo(&self) -> String {
        let task = |node: &Node| {
            let (needs, run) = (self.joined(node, "'", ", "), self.docker_run(node));
            format!(
                "    yield {{'name': '{0}', 'actions': ['{run}'], 'task_dep': ['p:' + n for n in [{needs}]]}}\n",
                node.id
            )
        };
        format!("def task_p():\n{}", self.each(task))
    }

    fn luigi(&self) -> String {
        let needs = |node: &Node| {
            format!("    '{}': ([{}], '''{}'''),\n", node.id, self.joined(node, "'", ", "), self.docker_run(node))
        };
        format!(
            "import subprocess, sys, luigi\nPLAN = {{\n{}}}\n\
             class Run(luigi.Task):\n    id = luigi.Parameter()\n\
             \x20   def requires(self):\n        return [Run(id=n) for n in PLAN[self.id][0]]\n\
             \x20   def output(self):\n        return luigi.LocalTarget('done-' + self.id)\n\
             \x20   def run(self):\n        subprocess.run(PLAN[self.id][1].split(), check=True)\n\
             \x20       open('done-' + self.id, 'w').close()\n\
             if not luigi.build([Run(id=n) for n in PLAN], workers=int(sys.argv[1]), local_scheduler=True, log_level='ERROR'):\n    sys.exit(1)\n",
            self.each(needs)
        )
    }

    fn snakefile(&self) -> String {
        let rule = |node: &Node| {
            let (needs, run) = (self.joined(node, "'", ", "), self.docker_run(node));
            format!("rule {0}:\n    input: [{needs}]\n    output: touch('{0}')\n    shell: '{run}'\n", node.id)
        };
        let all: Vec<String> = self.shape.tasks.iter().map(|node| format!("'{}'", node.id)).collect();
        format!("rule all:\n    input: [{}]\n{}", all.join(", "), self.each(rule))
    }

    fn compose(&self) -> String {
        let service = |node: &Node| {
            let needs: Vec<String> = self
                .needs(node)
                .map(|id| format!("      {id}: {{ condition: service_completed_successfully }}\n"))
                .collect();
            let needs = if needs.is_empty() { String::new() } else { format!("    depends_on:\n{}", needs.concat()) };
            format!(
                "  {}:\n    image: {IMAGE}\n    network_mode: {}\n    command: {}\n{needs}",
                node.id,
                self.network,
                node.command().join(" ")
            )
        };
        format!("version: '2.4'\nservices:\n{}", self.each(service))
    }

    /// What a chat command does that starts what is ready and looks again after a while.
    fn poller(&self, seconds: u32) -> String {
        let Self { host, network, slots, .. } = self;
        let task = |node: &Node| {
            format!(
                "needs[{0}]='{1}'; does[{0}]='{2}'\n",
                node.id,
                self.joined(node, "", " "),
                node.command().join(" ")
            )
        };
        format!(
            r#"declare -A needs does state
{tasks}order=({order}); left=${{#order[@]}}; running=0
while [ $left -gt 0 ]; do
  for t in "${{order[@]}}"; do
    [ "${{state[$t]:-}}" = run ] || continue
    if [ "$(docker -H {host} inspect -f '{{{{.State.Status}}}}' "$t")" = exited ]; then
      state[$t]=done; running=$((running-1)); left=$((left-1))
    fi
  done
  for t in "${{order[@]}}"; do
    [ $running -lt {slots} ] || break
    [ -z "${{state[$t]:-}}" ] || continue
    ready=1; for n in ${{needs[$t]}}; do [ "${{state[$n]:-}}" = done ] || ready=; done
    [ -n "$ready" ] || continue
    docker -H {host} run -d --network {network} --name "$t" {IMAGE} ${{does[$t]}} >/dev/null
    state[$t]=run; running=$((running+1))
  done
  [ $left -eq 0 ] || sleep {seconds}
done
"#,
            tasks = self.each(task),
            order = self.all(" "),
        )
    }
}
