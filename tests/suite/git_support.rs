//! Throw-away repositories, with the git binary as the oracle.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use orchestrate::git::{
    BranchResult, CommitId, GitError, GixRepository, Repository, ResultRequest, WorktreeRequest, WorktreeState,
};
use orchestrate::spec::{Leftovers, TaskId};

/// A repository with one commit on `main`.
pub(crate) struct Fixture {
    pub(crate) _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) repo: GixRepository,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::named("repo")
    }

    pub(crate) fn named(name: impl AsRef<OsStr>) -> Self {
        let dir = tempfile::tempdir().expect("a temp folder");
        let root = dir.path().canonicalize().expect("resolved").join(name.as_ref());
        std::fs::create_dir_all(&root).expect("made");
        git(&root, &["init", "-q", "-b", "main"]);
        write(&root, "readme.md", "one\ntwo\nthree\n");
        write(&root, "src/lib.rs", "fn a() {}\n\nfn b() {}\n\nfn c() {}\n");
        write(&root, ".gitignore", "*.log\n/build/\n");
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-q", "-m", "first"]);
        let repo = GixRepository::discover(&root).expect("discovered");
        Self { _dir: dir, root, repo }
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        git(&self.root, args)
    }

    pub(crate) fn head(&self) -> CommitId {
        CommitId(self.git(&["rev-parse", "HEAD"]))
    }

    pub(crate) fn worktree(&self, id: &str) -> PathBuf {
        self.root.join(".worktrees").join(id)
    }

    pub(crate) fn request(&self, id: &str) -> WorktreeRequest {
        WorktreeRequest {
            path: Path::new(".worktrees").join(id),
            branch: format!("refs/heads/agent/{id}"),
            base: self.head(),
            base_ref: format!("refs/orchestrate/p/{id}/base"),
            branch_is_ours: false,
            lock_reason: format!("orchestrate: task {id}"),
        }
    }

    pub(crate) async fn ensure(&self, id: &str) -> WorktreeState {
        self.repo.ensure_worktree(&self.request(id)).await.expect("a worktree")
    }

    /// As a later pass asks for it, which knows that the branch is ours.
    pub(crate) async fn ensure_again(&self, id: &str, base: &CommitId) -> Result<WorktreeState, GitError> {
        let request = WorktreeRequest { branch_is_ours: true, base: base.clone(), ..self.request(id) };
        self.repo.ensure_worktree(&request).await
    }

    pub(crate) fn result_request(id: &str, start: &CommitId, leftovers: Leftovers) -> ResultRequest {
        ResultRequest {
            path: Path::new(".worktrees").join(id),
            branch: format!("refs/heads/agent/{id}"),
            base: start.clone(),
            start: start.clone(),
            leftovers,
            subject: format!("{id}: what the agent left uncommitted"),
            kept_ref: format!("refs/orchestrate/p/{id}/kept/1"),
            private: None,
        }
    }

    pub(crate) async fn take(
        &self,
        id: &str,
        start: &CommitId,
        leftovers: Leftovers,
    ) -> Result<BranchResult, GitError> {
        self.repo.take_result(&Self::result_request(id, start, leftovers)).await
    }

    /// A commit with these files on a branch that starts at `from`; the work tree of the person stays as it was.
    pub(crate) fn commit_on(&self, branch: &str, from: &str, files: &[(&str, &str)]) -> CommitId {
        let scratch = tempfile::tempdir().expect("a temp folder");
        let tree = scratch.path().join("w");
        let tree_text = tree.to_str().expect("text");
        if self.try_git(&["rev-parse", "--verify", "-q", branch]).status.success() {
            self.git(&["worktree", "add", "-q", tree_text, branch]);
        } else {
            self.git(&["worktree", "add", "-q", "-b", branch, tree_text, from]);
        }
        for (path, content) in files {
            write(&tree, path, content);
        }
        git(&tree, &["add", "-A"]);
        git(&tree, &["commit", "-q", "--allow-empty", "-m", branch]);
        let commit = CommitId(git(&tree, &["rev-parse", "HEAD"]));
        self.git(&["worktree", "remove", "--force", tree_text]);
        commit
    }

    pub(crate) fn try_git(&self, args: &[&str]) -> Output {
        try_git(&self.root, args)
    }

    /// What a person's own git says of the repository's health.
    pub(crate) fn assert_healthy(&self) {
        let fsck = self.try_git(&["fsck", "--strict", "--no-dangling"]);
        let text = String::from_utf8_lossy(&fsck.stderr).into_owned() + &String::from_utf8_lossy(&fsck.stdout);
        assert!(fsck.status.success(), "{text}");
        let bad: Vec<_> = text.lines().filter(|line| !line.contains("Checking")).collect();
        assert!(bad.is_empty(), "{bad:?}");
    }
}

pub(crate) fn task(id: &str) -> TaskId {
    TaskId::new(id).expect("valid")
}

pub(crate) fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// A git that no configuration of the machine reaches.
pub(crate) fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(dir).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", "/nonexistent");
    command.env("GIT_CONFIG_NOSYSTEM", "1");
    for (key, value) in [("NAME", "Person"), ("EMAIL", "person@example.org")] {
        command.env(format!("GIT_AUTHOR_{key}"), value).env(format!("GIT_COMMITTER_{key}"), value);
    }
    command
}

pub(crate) fn try_git(dir: &Path, args: &[&str]) -> Output {
    command(dir).args(args).output().expect("git runs")
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = try_git(dir, args);
    assert!(
        output.status.success(),
        "git {args:?} in {}: {}{}",
        dir.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}
