//! What git costs: `cargo bench --bench worktrees` (minutes, some GiB in the temporary folder; `-- --quick` leaves out the
//! largest, `-- 3000` is worktrees of so many files alone). Each figure is a median, and each ratio the median of those within the turns, since a machine is not equally
//! fast all the time. The git binary is the peer.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and the command line and says what it found"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use orchestrate::git::{
    AccessRequest, CommitId, GixRepository, MergeHead, MergeOutcome, Repository, ResultRequest, WorktreeRequest,
    WorktreeState,
};
use orchestrate::spec::{GitAccess, Leftovers, TaskId};

struct Bench {
    _dir: tempfile::TempDir,
    root: PathBuf,
    repo: GixRepository,
    runtime: tokio::runtime::Runtime,
    made: usize,
}

fn git(root: &Path, args: &[&str]) -> String {
    let output = command(root).args(args).output().expect("git runs");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn command(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "B").env(format!("GIT_{who}_EMAIL"), "b@example.org");
    }
    command
}

impl Bench {
    /// A repository of what a `git fast-import` stream says.
    fn of(stream: impl FnOnce(&mut dyn std::io::Write)) -> Self {
        let dir = tempfile::tempdir().expect("a temp folder");
        let root = dir.path().canonicalize().expect("resolved").join("repo");
        std::fs::create_dir_all(&root).expect("made");
        git(&root, &["init", "-q", "-b", "main"]);
        let mut import = command(&root);
        import.args(["fast-import", "--quiet"]).stdin(Stdio::piped());
        let mut import = import.spawn().expect("git runs");
        let mut input = std::io::BufWriter::new(import.stdin.take().expect("piped"));
        stream(&mut input);
        input.flush().expect("written");
        drop(input);
        assert!(import.wait().expect("waited").success());
        let repo = GixRepository::discover(&root).expect("found");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        Self { _dir: dir, root, repo, runtime, made: 0 }
    }

    /// Of so many files of about two kilobytes, twenty in a folder.
    fn of_files(files: usize) -> Self {
        Self::of(|to| {
            write!(to, "commit refs/heads/main\ncommitter B <b@example.org> 1700000000 +0000\ndata 1\nm\n")
                .expect("written");
            for n in 0..files {
                let mut text = String::new();
                for line in 0..40 {
                    let word = (n * 2_654_435_761 + line * 40_503) % 1_000_003;
                    let _infallible = writeln!(text, "    let value_{word} = compute({n}, {line});");
                }
                let path = format!("src/m{}/d{}/f{n}.rs", n / 400, n / 20);
                write!(to, "M 100644 inline {path}\ndata {}\n{text}\n", text.len()).expect("written");
            }
        })
    }

    fn request(&mut self) -> (String, WorktreeRequest) {
        self.made += 1;
        let id = format!("t{}", self.made);
        let base = CommitId(git(&self.root, &["rev-parse", "main"]));
        let request = WorktreeRequest {
            path: Path::new(".worktrees").join(&id),
            branch: format!("refs/heads/agent/{id}"),
            base,
            base_ref: format!("refs/orchestrate/p/{id}/base"),
            branch_is_ours: false,
            lock_reason: "benchmark".to_owned(),
        };
        (id, request)
    }

    fn ours(&mut self) -> (Duration, WorktreeState) {
        let (_, request) = self.request();
        settle();
        let start = Instant::now();
        let state = self.runtime.block_on(self.repo.ensure_worktree(&request)).expect("made");
        (start.elapsed(), state)
    }

    fn by_git(&mut self) -> Duration {
        let (id, _) = self.request();
        settle();
        let start = Instant::now();
        git(&self.root, &["worktree", "add", "-q", "-b", &format!("agent/{id}"), &format!(".worktrees/{id}"), "main"]);
        start.elapsed()
    }

    fn templates(&self) -> PathBuf {
        self.root.join(".git/orchestrate/templates")
    }
}

/// What was written before is not to be paid by the next.
fn settle() {
    rustix::fs::sync();
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn ms(times: &[Duration]) -> f64 {
    median(times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
}

fn ratio(ours: &[Duration], theirs: &[Duration]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours.as_secs_f64() / theirs.as_secs_f64()).collect())
}

fn worktrees(files: usize, turns: usize) {
    let mut bench = Bench::of_files(files);
    let aside = bench.root.join(".git/aside");
    let has_template = files >= 256;
    // Warms the page cache for all, and makes the template.
    let _warm = (bench.by_git(), bench.ours(), bench.ours());
    let (mut git, mut first, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..turns {
        for who in 0..3 {
            match (who + turn) % 3 {
                0 => git.push(bench.by_git()),
                1 => {
                    if has_template {
                        std::fs::rename(bench.templates(), &aside).expect("put aside");
                    }
                    first.push(bench.ours().0);
                    if has_template {
                        std::fs::remove_dir_all(bench.templates()).expect("removed");
                        std::fs::rename(&aside, bench.templates()).expect("put back");
                    }
                }
                _ if has_template => copied.push(bench.ours().0),
                _ => {}
            }
        }
    }
    println!("{files} files: git worktree add {:.1} ms", ms(&git));
    println!("  first time     {:8.1} ms  {:.2} x git", ms(&first), ratio(&first, &git));
    if has_template {
        println!("  from a template{:8.1} ms  {:.2} x git", ms(&copied), ratio(&copied, &git));
    }
}

fn many_worktrees() {
    let mut bench = Bench::of_files(50);
    for (from, to) in [(0, 1), (1, 1_000)] {
        for _ in from..to {
            let (_, request) = bench.request();
            bench.runtime.block_on(bench.repo.ensure_worktree(&request)).expect("made");
        }
        let (mut git, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            git.push(bench.by_git());
            ours.push(bench.ours().0);
        }
        println!("50 files beside {to} worktrees: git {:.1} ms, ours {:.1} ms", ms(&git), ms(&ours));
    }
}

fn import(commits: usize) {
    let mut bench = Bench::of(|to| {
        for n in 0..commits {
            let text = format!("{n}\n");
            write!(
                to,
                "commit refs/heads/main\ncommitter B <b@example.org> {} +0000\ndata 1\nm\nM 100644 inline f{}\ndata {}\n{text}\n",
                1_700_000_000 + n,
                n % 50,
                text.len()
            )
            .expect("written");
        }
    });
    let objects = git(&bench.root, &["count-objects", "-v"]);
    let objects = objects.lines().find_map(|line| line.strip_prefix("in-pack: ")).unwrap_or_default().to_owned();
    let (mut opened, mut taken) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let (id, request) = bench.request();
        let worktree = bench.runtime.block_on(bench.repo.ensure_worktree(&request)).expect("made");
        let dir = bench.root.join(".git/orchestrate/attempts").join(&id);
        std::fs::create_dir_all(&dir).expect("made");
        let access = AccessRequest {
            worktree: worktree.clone(),
            access: GitAccess::Isolated,
            branch: request.branch.clone(),
            base: request.base.clone(),
            visible: Vec::new(),
            attempt_dir: dir.clone(),
            mount_point: PathBuf::from("/project"),
            owner: None,
        };
        let start = Instant::now();
        bench.runtime.block_on(bench.repo.open_access(&access)).expect("opened");
        opened.push(start.elapsed());
        std::fs::write(worktree.path.join("new"), "work").expect("written");
        let private = dir.join("git");
        let (private, tree) = (private.to_str().expect("text"), worktree.path.to_str().expect("text"));
        for args in [&["add", "-A"][..], &["commit", "-qm", "work"]] {
            git(&bench.root, &[&["--git-dir", private, "--work-tree", tree], args].concat());
        }
        let result = ResultRequest {
            path: request.path.clone(),
            branch: request.branch.clone(),
            base: request.base.clone(),
            start: request.base.clone(),
            leftovers: Leftovers::Commit,
            subject: "left".to_owned(),
            kept_ref: format!("refs/orchestrate/p/{id}/kept/1"),
            private: Some(dir),
        };
        let start = Instant::now();
        let result = bench.runtime.block_on(bench.repo.take_result(&result)).expect("taken");
        taken.push(start.elapsed());
        assert_eq!(result.commits, 1);
    }
    println!("{objects} objects: private git directory {:.1} ms, import {:.1} ms", ms(&opened), ms(&taken));
}

fn octopus() {
    let bench = Bench::of_files(3_000);
    let mut heads = Vec::new();
    for n in 0..8 {
        let branch = format!("b{n}");
        let mut import = command(&bench.root);
        import.args(["fast-import", "--quiet"]).stdin(Stdio::piped());
        let mut import = import.spawn().expect("git runs");
        let mut stream = format!(
            "commit refs/heads/{branch}\ncommitter B <b@example.org> 1700000001 +0000\ndata 1\nb\nfrom refs/heads/main^0\n"
        );
        for file in 0..10 {
            let at = n * 200 + file * 7;
            let _infallible =
                write!(stream, "M 100644 inline src/m{}/d{}/f{at}.rs\ndata 8\nchanged\n\n", at / 400, at / 20);
        }
        import.stdin.take().expect("piped").write_all(stream.as_bytes()).expect("written");
        assert!(import.wait().expect("waited").success());
        heads.push(MergeHead {
            task: TaskId::new(&branch).expect("valid"),
            commit: CommitId(git(&bench.root, &["rev-parse", &branch])),
        });
    }
    let (mut theirs, mut ours, mut trees) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..9 {
        let start = Instant::now();
        let mut head = heads[0].commit.0.clone();
        for other in &heads[1..] {
            let tree = git(&bench.root, &["merge-tree", "--write-tree", &head, &other.commit.0]);
            head = git(&bench.root, &["commit-tree", &tree, "-p", &head, "-p", &other.commit.0, "-m", "m"]);
        }
        theirs.push(start.elapsed());
        let start = Instant::now();
        let merged = bench.runtime.block_on(bench.repo.merge(&heads)).expect("merged");
        ours.push(start.elapsed());
        let MergeOutcome::Commit(merged) = merged else { unreachable!("they do not conflict") };
        trees = [head, merged.0].map(|commit| git(&bench.root, &["rev-parse", &format!("{commit}^{{tree}}")])).to_vec();
    }
    assert_eq!(trees[0], trees[1], "the same tree");
    println!(
        "octopus of 8 branches: git merge-tree {:.1} ms, ours {:.1} ms, {:.2} x git",
        ms(&theirs),
        ms(&ours),
        ratio(&ours, &theirs)
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    // A number of files alone: worktrees of that size.
    if let Some(files) = arguments.iter().find_map(|argument| argument.parse().ok()) {
        return worktrees(files, 9);
    }
    worktrees(50, 15);
    worktrees(3_000, 7);
    many_worktrees();
    octopus();
    import(if is_quick { 20_000 } else { 170_000 });
    if !is_quick {
        worktrees(60_000, 3);
    }
}
