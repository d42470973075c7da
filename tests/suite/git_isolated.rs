//! The private git directory: all of git works in it, and nothing that an agent writes there reaches the host.
//!
//! A mount namespace stands for the container: it sees the worktree at the mount point and the plan's binds, nothing else.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use orchestrate::git::{
    AccessRequest, BranchResult, CommitId, GitAccessPlan, GitBind, GitError, Repository, WorktreeState,
};
use orchestrate::spec::{GitAccess, Leftovers};

use crate::git_support::{Fixture, command, git, write};

/// One attempt in a container of its own.
pub(crate) struct Attempt {
    pub(crate) fixture: Fixture,
    pub(crate) base: CommitId,
    pub(crate) state: WorktreeState,
    plan: GitAccessPlan,
    pub(crate) dir: PathBuf,
    project: PathBuf,
    canary: PathBuf,
    stage: tempfile::TempDir,
    /// Runs the agent as another user.
    uid: Option<u32>,
    /// A real container in place of the namespace.
    cage: Option<crate::docker_git::Cage>,
}

/// Whether this machine lets us make mount namespaces.
pub(crate) fn can_isolate() -> bool {
    let can = Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    if !can {
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: no right to make a mount namespace");
        }
    }
    can
}

impl Attempt {
    async fn new(access: GitAccess) -> Self {
        Self::on(Fixture::new(), access).await
    }

    pub(crate) async fn on(fixture: Fixture, access: GitAccess) -> Self {
        let base = fixture.head();
        let state = fixture.ensure("a").await;
        Self::resume(fixture, base, state, access, None).await
    }

    pub(crate) async fn resume(
        fixture: Fixture,
        base: CommitId,
        state: WorktreeState,
        access: GitAccess,
        uid: Option<u32>,
    ) -> Self {
        let outside = tempfile::tempdir().expect("a temp folder");
        let dir = fixture.root.join(".git/orchestrate/attempts/a/1");
        std::fs::create_dir_all(&dir).expect("made");
        let mut this = Self {
            project: outside.path().join("project"),
            canary: outside.path().join("canary"),
            plan: GitAccessPlan::default(),
            fixture,
            base,
            state,
            dir,
            stage: outside,
            uid,
            cage: None,
        };
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(this.stage.path(), open).expect("opened");
        this.plan = this.fixture.repo.open_access(&this.request(access)).await.expect("opened");
        this
    }

    fn request(&self, access: GitAccess) -> AccessRequest {
        AccessRequest {
            worktree: self.state.clone(),
            access,
            branch: "refs/heads/agent/a".to_owned(),
            base: self.base.clone(),
            visible: vec!["refs/heads/dependency".to_owned(), "refs/heads/missing".to_owned()],
            attempt_dir: self.dir.clone(),
            mount_point: self.project.clone(),
            owner: self.uid.map(|uid| (uid, uid)),
        }
    }

    /// Runs a script as the agent: only what is bound is there.
    fn run(&self, script: &str) -> Output {
        let mut binds =
            vec![GitBind { source: self.state.path.clone(), target: self.project.clone(), read_only: false }];
        binds.extend(self.plan.binds.iter().cloned());
        if let Some(cage) = &self.cage {
            // Where traps are laid, so that the host would run them.
            let stage = self.stage.path().to_owned();
            binds.insert(0, GitBind { source: stage.clone(), target: stage, read_only: false });
            let mut env = self.plan.env.clone();
            env.extend(self.words().map(|(name, value)| (name.to_owned(), value)));
            return cage.run(script, &binds, env, &self.project);
        }
        let mut setup = vec!["set -e".to_owned()];
        let quote = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        for (at, bind) in binds.iter().enumerate() {
            let target = self.stage.path().join(format!("bind-{at}"));
            let make = if bind.source.is_dir() { "mkdir -p" } else { "touch" };
            setup.push(format!("{make} {0}; mount --bind {1} {0}", quote(&target), quote(&bind.source)));
        }
        setup.push(format!("mount -t tmpfs none {}", quote(&self.fixture.root)));
        for (at, bind) in binds.iter().enumerate() {
            let target = self.stage.path().join(format!("bind-{at}"));
            if bind.source.is_dir() {
                setup.push(format!("mkdir -p {}", quote(&bind.target)));
            }
            setup.push(format!("mount --bind {} {}", quote(&target), quote(&bind.target)));
            if bind.read_only {
                setup.push(format!("mount -o remount,bind,ro {}", quote(&bind.target)));
            }
        }
        let run = match self.uid {
            Some(uid) => {
                format!("exec setpriv --reuid {uid} --regid {uid} --clear-groups sh -c {}", quote(Path::new(script)))
            }
            None => script.to_owned(),
        };
        setup.push(format!("cd {}\nset +e\n{run}", quote(&self.project)));
        Command::new("timeout")
            .args(["-k", "1", "60", "unshare", "-m", "sh", "-c", &setup.join("\n")])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.stage.path())
            .envs(self.words())
            .envs(&self.plan.env)
            .output()
            .expect("runs")
    }

    /// What scripts call places by.
    fn words(&self) -> [(&'static str, String); 4] {
        let text = |path: PathBuf| path.to_str().expect("text").to_owned();
        [
            ("GIT_EDITOR", "true".to_owned()),
            ("PRIVATE", text(self.dir.join("git"))),
            ("OBJECTS", text(self.fixture.root.join(".git/objects"))),
            ("CANARY", text(self.canary.clone())),
        ]
    }

    pub(crate) fn must(&self, script: &str) -> String {
        let output = self.run(script);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}\n{text}{}", String::from_utf8_lossy(&output.stderr));
        text.trim_end().to_owned()
    }

    pub(crate) async fn take(&self) -> Result<BranchResult, GitError> {
        let mut request = Fixture::result_request("a", &self.base, Leftovers::Commit);
        request.private = Some(self.dir.clone());
        self.fixture.repo.take_result(&request).await
    }

    /// Every ref but the agent's and ours.
    fn others(&self) -> String {
        let refs = self.fixture.git(&["for-each-ref", "--format=%(refname) %(objectname) %(symref)"]);
        refs.lines().filter(|l| !l.starts_with("refs/heads/agent/") && !l.starts_with("refs/orchestrate/")).collect()
    }
}

/// What an agent does with git, each after those before it, in a repository as a [`Fixture`] makes one.
pub(crate) const OPERATIONS: [(&str, &str); 24] = [
    ("status", "test -z \"$(git status --porcelain)\""),
    ("add", "echo x > one && git add one"),
    ("diff", "git diff --cached --stat | grep -q one"),
    ("commit", "git commit -qm one"),
    ("amend", "echo y >> one && git commit -qa --amend -m 'one, better'"),
    ("log", "test $(git log --oneline | wc -l) = 2"),
    ("show", "git show --stat HEAD | grep -q one"),
    ("blame", "git blame readme.md | grep -q Person"),
    ("branch", "git branch side && git branch --list side | grep -q side"),
    (
        "switch",
        "git switch -q side && echo s > side.txt && git add side.txt && git commit -qm side && git switch -q agent/a",
    ),
    ("merge", "echo m > m.txt && git add m.txt && git commit -qm m && git merge -q -m merged side"),
    (
        "rebase",
        "git switch -q -c tmp HEAD~1 && echo r > r.txt && git add r.txt && git commit -qm r && git rebase -q agent/a && git switch -q agent/a",
    ),
    ("cherry-pick", "git cherry-pick tmp"),
    ("revert", "git revert --no-edit HEAD"),
    ("stash", "echo z >> readme.md && git stash -q && git diff --quiet && git stash pop -q && ! git diff --quiet"),
    ("restore", "git restore readme.md && git diff --quiet"),
    ("reset", "git commit -q --allow-empty -m gone && git reset -q --hard HEAD~1"),
    ("tag", "git tag -a v1 -m v1 && git describe | grep -q v1"),
    ("reflog", "test $(git reflog | wc -l) -gt 5"),
    ("grep", "git grep -q 'fn b'"),
    ("gc", "git gc -q"),
    ("fsck", "git fsck --no-dangling"),
    ("worktree list", "git worktree list | grep -q agent/a"),
    ("rm, mv", "git rm -q one && git mv readme.md README.md && git commit -qm moved"),
];

#[tokio::test]
async fn all_of_git_works_for_the_agent() {
    if can_isolate() {
        assert_eq!(works_for_the_agent(None).await, OPERATIONS.len());
    }
}

/// Does all operations; gives how many of them worked.
pub(crate) async fn works_for_the_agent(cage: Option<crate::docker_git::Cage>) -> usize {
    let fixture = Fixture::new();
    fixture.commit_on("dependency", "main", &[("d.txt", "d")]);
    fixture.commit_on("secret", "main", &[("s.txt", "s")]);
    fixture.git(&["remote", "add", "origin", "https://user:token@example.org/x.git"]);
    let attempt = Attempt { cage, ..Attempt::on(fixture, GitAccess::Isolated).await };
    assert_eq!(
        attempt.must("git for-each-ref --format='%(refname)'"),
        "refs/heads/agent/a\nrefs/heads/dependency\nrefs/heads/main"
    );
    assert_eq!(
        attempt
            .must("git config --get-regexp remote; git remote; cat $PRIVATE/../../../../../config 2>/dev/null; true"),
        ""
    );
    let others = attempt.others();
    let mut worked = 0;
    for (name, script) in OPERATIONS {
        let output = attempt.run(script);
        assert!(
            output.status.success(),
            "{name}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!attempt.canary.exists() && attempt.others() == others, "{name}: it reached the host");
        attempt.fixture.assert_healthy();
        worked += 1;
    }
    let tip = attempt.must("git rev-parse HEAD");
    attempt.must("echo left > left.txt; test \"$(git status --porcelain)\" = '?? left.txt'");

    let taken = attempt.take().await.expect("taken");

    assert!(taken.had_leftovers);
    assert_eq!(attempt.fixture.git(&["rev-parse", "agent/a~1"]), tip);
    assert_eq!(attempt.fixture.git(&["rev-parse", "agent/a"]), taken.head.0);
    assert_eq!(git(&attempt.state.path, &["status", "--porcelain"]), "");
    assert_eq!(git(&attempt.state.path, &["diff", "HEAD", "--stat"]), "");
    assert_eq!(attempt.others(), others);
    attempt.fixture.assert_healthy();
    // The person's repository needs nothing of the private directory.
    std::fs::remove_dir_all(&attempt.dir).expect("removed");
    attempt.fixture.assert_healthy();
    assert_eq!(
        taken.commits,
        attempt.fixture.git(&["rev-list", "--count", "main..agent/a"]).parse::<u64>().expect("a number")
    );
    worked
}

#[tokio::test]
async fn a_result_is_taken_once_however_often_it_is_asked_for() {
    if !can_isolate() {
        return;
    }
    for packed in [false, true] {
        let attempt = Attempt::new(GitAccess::Isolated).await;
        attempt.must("echo x > x && git add x && git commit -qm x && echo y > y");
        if packed {
            attempt.must("git gc -q && git pack-refs --all");
        }
        let first = attempt.take().await.expect("taken");
        assert_eq!((first.commits, first.had_leftovers, first.notes.len()), (2, true, 0));
        let again = attempt.take().await.expect("taken");
        assert_eq!((again.head, again.commits, again.had_leftovers), (first.head.clone(), 2, false));
        // As if the crash had come before the ref moved.
        attempt.fixture.git(&["update-ref", "refs/heads/agent/a", &attempt.base.0]);
        let third = attempt.take().await.expect("taken");
        assert_eq!((third.commits, third.had_leftovers), (2, true));
        assert_eq!(
            attempt.fixture.git(&["rev-parse", &format!("{}^", third.head)]),
            attempt.fixture.git(&["rev-parse", &format!("{}^", first.head)])
        );
        attempt.fixture.assert_healthy();
    }
}

#[tokio::test]
async fn an_agent_that_did_nothing_leaves_nothing() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must("git status -s; git log -1 >/dev/null");
    let taken = attempt.take().await.expect("taken");
    assert_eq!(
        (taken.head, taken.commits, taken.had_leftovers, taken.notes.len()),
        (attempt.base.clone(), 0, false, 0)
    );
    assert!(!attempt.fixture.root.join(".git/orchestrate/tmp/import/a").exists());
}

#[tokio::test]
async fn opening_again_keeps_what_the_agent_wrote() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must("git commit -q --allow-empty -m mine");
    let again = attempt.fixture.repo.open_access(&attempt.request(GitAccess::Isolated)).await.expect("opened");
    assert_eq!(again, attempt.plan);
    assert_eq!(attempt.must("git log --oneline | wc -l"), "2");
    // Also where the agent emptied its config; without a commit of its own that is what a power cut leaves.
    attempt.must(": > $PRIVATE/config");
    attempt.fixture.repo.open_access(&attempt.request(GitAccess::Isolated)).await.expect("opened");
    assert_eq!(attempt.must("git log --oneline | wc -l"), "2");
    let fresh = Attempt::new(GitAccess::Isolated).await;
    fresh.must(": > $PRIVATE/config; : > $PRIVATE/HEAD; : > $PRIVATE/packed-refs");
    fresh.fixture.repo.open_access(&fresh.request(GitAccess::Isolated)).await.expect("opened");
    assert_eq!(fresh.must("git log --oneline | wc -l"), "1");
}

#[tokio::test]
async fn a_merge_of_a_dependency_and_work_on_another_branch_come_along() {
    if !can_isolate() {
        return;
    }
    let fixture = Fixture::new();
    fixture.commit_on("dependency", "main", &[("d.txt", "d")]);
    let attempt = Attempt::on(fixture, GitAccess::Isolated).await;
    attempt.must("git switch -q -c feature && echo x > x && git add x && git commit -qm x && git merge -q -m m dependency && echo y > y");
    let taken = attempt.take().await.expect("taken");
    assert_eq!(taken.notes.len(), 1, "{:?}", taken.notes);
    assert_eq!(
        attempt.fixture.git(&["ls-tree", "--name-only", &taken.head.0]),
        ".gitignore\nd.txt\nreadme.md\nsrc\nx\ny"
    );
    assert_eq!(git(&attempt.state.path, &["status", "--porcelain", "--branch"]), "## agent/a");
    let again = attempt.take().await.expect("taken");
    assert_eq!((again.head, again.had_leftovers), (taken.head, false));
    attempt.fixture.assert_healthy();
}

#[tokio::test]
async fn branches_that_are_not_taken_are_named() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must("git branch same; git switch -q -c aside/x && git commit -q --allow-empty -m aside && git switch -q agent/a && echo x >> readme.md && git stash -q");
    let taken = attempt.take().await.expect("taken");
    assert_eq!(taken.notes, ["left in the private git directory, not taken: refs/heads/aside/x, refs/stash"]);
}

#[tokio::test]
async fn a_submodule_of_the_person_may_be_moved_on() {
    if !can_isolate() {
        return;
    }
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let url = other.root.to_str().expect("text");
    fixture.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "sub"]);
    fixture.git(&["commit", "-q", "-m", "with a submodule"]);
    let attempt = Attempt::on(fixture, GitAccess::Isolated).await;
    attempt
        .must("git update-index --cacheinfo 160000,$(git rev-parse HEAD),sub && git commit -qm moved && git status -s");
    let taken = attempt.take().await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers, taken.notes.len()), (1, false, 0));
    let moved = attempt.fixture.git(&["rev-parse", &format!("{}:sub", taken.head)]);
    assert_eq!(moved, attempt.base.0);
}

#[tokio::test]
async fn an_agent_that_looked_at_an_older_commit_reverts_nothing() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must(
        "for i in 1 2; do echo $i > f$i && git add . && git commit -qm $i; done; git checkout -q --detach HEAD~1",
    );
    let taken = attempt.take().await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (2, false));
}

#[tokio::test]
async fn shared_and_none_are_as_they_say() {
    if !can_isolate() {
        return;
    }
    let shared = Attempt::new(GitAccess::Shared).await;
    write(&shared.fixture.root, ".git/orchestrate/journal", "secret");
    shared.must("git status -s && echo x > x && git add x && git commit -qm x && git gc -q");
    let state = shared.fixture.root.join(".git/orchestrate");
    assert_eq!(shared.must(&format!("ls -A {}", state.display())), "");
    let mut request = Fixture::result_request("a", &shared.base, Leftovers::Commit);
    request.private = None;
    let taken = shared.fixture.repo.take_result(&request).await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (1, false));

    let none = Attempt::new(GitAccess::None).await;
    assert!(!none.run("git status").status.success());
    none.must("echo x > x; test ! -w .git || ! echo y > .git");
    let mut request = Fixture::result_request("a", &none.base, Leftovers::Commit);
    request.private = None;
    let taken = none.fixture.repo.take_result(&request).await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (1, true));
}

#[tokio::test]
async fn repositories_that_borrow_objects_and_odd_paths_work() {
    if !can_isolate() {
        return;
    }
    let origin = Fixture::new();
    let fixture = Fixture::named("with space, comma:colon\nand more");
    let borrowing = fixture.root.join("clone");
    fixture.git(&["clone", "-q", "--shared", origin.root.to_str().expect("text"), borrowing.to_str().expect("text")]);
    git(&borrowing, &["commit-graph", "write", "--reachable"]);
    let borrowed = Fixture {
        repo: orchestrate::git::GixRepository::discover(&borrowing).expect("found"),
        root: borrowing,
        ..fixture
    };
    let attempt = Attempt::on(borrowed, GitAccess::Isolated).await;
    assert_eq!(attempt.plan.binds.iter().filter(|bind| bind.read_only).count(), 3);
    attempt
        .must("git log -p >/dev/null && echo x > x && git add x && git commit -qm x && test -z \"$(git status -s)\"");
    assert_eq!(attempt.take().await.expect("taken").commits, 1);
    attempt.fixture.assert_healthy();
}

/// Told by one attempt's fate.
pub(crate) enum Fate {
    /// The agent's commits are refused.
    Refused,
    /// What is sound is taken, the trap is without effect.
    Harmless,
}
use Fate::{Harmless, Refused};

/// Turns a commit that reaches `$tree` into the branch's tip.
const COMMIT: &str = "c=$(git commit-tree $tree -p HEAD -m trap) && git update-ref refs/heads/agent/a $c";
const EVIL: &str = "printf '#!/bin/sh\\ntouch %s\\ncat\\n' $CANARY > $CANARY.sh; chmod +x $CANARY.sh; mkdir -p hooks; for h in pre-commit post-checkout post-commit reference-transaction pre-receive update post-update fsmonitor-watchman; do cp $CANARY.sh hooks/$h; done;";

pub(crate) fn attacks() -> Vec<(&'static str, String, Fate)> {
    let tree = |entry: &str| {
        format!(
            "blob=$(git rev-parse HEAD:readme.md); commit=$(git rev-parse HEAD); tree=$(printf '{entry}\\n' | sed \"s/BLOB/$blob/;s/COMMIT/$commit/\" | git mktree --missing) && {COMMIT}"
        )
    };
    // A tree that git's own tools would not write: raw bytes through hash-object.
    let raw = |mode: &str, name: &str| {
        format!(
            "blob=$(git rev-parse HEAD:readme.md); {{ printf '{mode} {name}\\0'; printf %s $blob | xxd -r -p; }} > raw; tree=$(git hash-object -t tree -w --literally raw); rm raw; {COMMIT}"
        )
    };
    let evil = |rest: &str| format!("{EVIL} {rest}");
    vec![
        ("hooks in the private directory", evil("cp -r hooks $PRIVATE/; rm -r hooks; git commit -q --no-verify --allow-empty -m x; rm -f $CANARY"), Harmless),
        ("core.hooksPath", evil("git config core.hooksPath $PWD/hooks; git commit -q --no-verify --allow-empty -m x; rm -f $CANARY"), Harmless),
        ("core.fsmonitor", evil("git config core.fsmonitor $CANARY.sh; rm -f $CANARY"), Harmless),
        ("core.worktree", "git config core.worktree /; true".into(), Harmless),
        ("filters", evil("git config filter.e.clean $CANARY.sh; git config filter.e.smudge $CANARY.sh; git config filter.e.required true; echo '* filter=e' > .gitattributes; git add -A; git commit -qm f; echo more >> readme.md; rm -f $CANARY"), Harmless),
        ("diff and merge drivers", evil("git config diff.e.command $CANARY.sh; git config merge.e.driver $CANARY.sh; git config diff.external $CANARY.sh; echo '* diff=e merge=e' > .gitattributes; git add -A; git commit -qm d; rm -f $CANARY"), Harmless),
        ("include.path", evil("printf '[core]\\n\\tfsmonitor = %s\\n' $CANARY.sh > inc; git config include.path $PWD/inc; rm -f $CANARY"), Harmless),
        ("config.worktree", evil("git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = %s\\n' $CANARY.sh > $PRIVATE/config.worktree; rm -f $CANARY"), Harmless),
        ("info/attributes", evil("git config filter.e.clean $CANARY.sh; mkdir -p $PRIVATE/info; echo '* filter=e' > $PRIVATE/info/attributes; echo x >> readme.md; rm -f $CANARY"), Harmless),
        ("a commondir file", "mkdir /tmp/other-$$ && echo /tmp > $PRIVATE/commondir".into(), Harmless),
        ("the .git file", "rm -f .git; echo 'gitdir: /tmp' > .git; mv .git x; ln -sf /tmp .git; true".into(), Harmless),
        ("writing to the shared objects", "for f in $(find $OBJECTS -type f); do chmod u+w $f; echo x > $f; rm -f $f; done; touch $OBJECTS/x; true".into(), Harmless),
        ("the branch as a symbolic ref", "git symbolic-ref refs/heads/agent/a refs/heads/main; git commit -q --allow-empty -m x".into(), Refused),
        ("the branch file as a link", "mkdir -p $PRIVATE/refs/heads/agent; ln -sf /etc/hostname $PRIVATE/refs/heads/agent/a".into(), Harmless),
        ("the refs folder as a link", "rm -rf $PRIVATE/refs/heads; ln -s /etc $PRIVATE/refs/heads".into(), Harmless),
        ("a FIFO as a ref", "mkdir -p $PRIVATE/refs/heads/agent; rm -f $PRIVATE/refs/heads/agent/a; mkfifo $PRIVATE/refs/heads/agent/a".into(), Harmless),
        ("a FIFO as HEAD", "rm $PRIVATE/HEAD; mkfifo $PRIVATE/HEAD".into(), Harmless),
        ("FIFOs as index and packed refs", "rm -f $PRIVATE/index $PRIVATE/packed-refs; mkfifo $PRIVATE/index $PRIVATE/packed-refs".into(), Harmless),
        ("a FIFO as an object", "echo x > x && git add x && git commit -qm x && o=$(git rev-parse HEAD^{tree}) && p=$PRIVATE/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-) && rm -f $p && mkfifo $p".into(), Refused),
        ("FIFOs as ignore files", "rm -f .gitignore; mkfifo .gitignore; mkdir d; mkfifo d/.gitattributes d/.gitignore; git commit -q --allow-empty -m x".into(), Harmless),
        ("a garbage ref", "mkdir -p $PRIVATE/refs/heads/agent; echo zzzz > $PRIVATE/refs/heads/agent/a".into(), Refused),
        ("alternates to elsewhere", "git init -q /tmp/foreign-$$ && cd /tmp/foreign-$$ && git commit -q --allow-empty -m foreign && c=$(git rev-parse HEAD) && cd - >/dev/null && echo /tmp/foreign-$$/.git/objects >> $PRIVATE/objects/info/alternates && c=$(git commit-tree HEAD^{tree} -p HEAD -p $c -m m) && git update-ref refs/heads/agent/a $c".into(), Refused),
        ("a missing blob", format!("b=$(echo gone | git hash-object -w --stdin); tree=$(printf \"100644 blob $b\\tf\\n\" | git mktree); {COMMIT}; rm -f $PRIVATE/objects/$(echo $b | cut -c1-2)/$(echo $b | cut -c3-)"), Refused),
        ("a hash mismatch", format!("b=$(echo good | git hash-object -w --stdin); e=$(echo evil | git hash-object -w --stdin); tree=$(printf \"100644 blob $b\\tf\\n\" | git mktree); {COMMIT}; cd $PRIVATE/objects; cp -f $(echo $e | cut -c1-2)/$(echo $e | cut -c3-) $(echo $b | cut -c1-2)/$(echo $b | cut -c3-)"), Refused),
        ("a foreign index of a pack", "echo x > x && git add x && git commit -qm x && git gc -q && for i in $PRIVATE/objects/pack/*.idx; do chmod u+w $i; echo garbage > $i; done".into(), Harmless),
        ("a broken pack", "echo x > x && git add x && git commit -qm x && git gc -q && for i in $PRIVATE/objects/pack/*.pack; do chmod u+w $i; printf garbage | dd of=$i bs=1 seek=40 conv=notrunc 2>/dev/null; done".into(), Refused),
        ("a .git folder in the tree", raw("40000", ".git"), Refused),
        (".GIT in capitals", raw("100644", ".GIT"), Refused),
        (".git with an ignorable character", raw("100644", ".g\\342\\200\\214it"), Refused),
        ("git~1", raw("100644", "git~1"), Refused),
        ("a parent folder", raw("100644", ".."), Refused),
        ("a slash in a name", raw("100644", "a/b"), Refused),
        ("an odd mode", raw("100777", "f"), Refused),
        ("a padded mode", raw("0100644", "f"), Refused),
        (".gitmodules as a link", raw("120000", ".gitmodules"), Refused),
        ("a gitlink", tree("160000 commit COMMIT\\tnested"), Refused),
        ("a nested repository", evil("git init -q nested; git -C nested config core.fsmonitor $CANARY.sh; git -C nested commit -q --allow-empty -m n; git -C nested config filter.e.clean $CANARY.sh; echo '* filter=e' > nested/.gitattributes; rm -f $CANARY; true"), Harmless),
        (".gitmodules with a command", format!("printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ./x\\n\\tupdate = !touch x\\n' > .gitmodules; git add .gitmodules; tree=$(git write-tree); {COMMIT}"), Refused),
        (".gitmodules with an option", format!("printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch\\n' > .gitmodules; git add .gitmodules; tree=$(git write-tree); {COMMIT}"), Refused),
        ("a malformed commit", "t=$(git rev-parse HEAD^{tree}); p=$(git rev-parse HEAD); printf \"tree $t\\nparent $p\\nauthor x\\ncommitter y\\n\\nm\\n\" > raw; c=$(git hash-object -t commit -w --literally raw); rm raw; mkdir -p $PRIVATE/refs/heads/agent; echo $c > $PRIVATE/refs/heads/agent/a".into(), Refused),
        ("a blob as the tip", "b=$(echo x | git hash-object -w --stdin); mkdir -p $PRIVATE/refs/heads/agent; echo $b > $PRIVATE/refs/heads/agent/a".into(), Refused),
        ("history without the base", "c=$(git commit-tree HEAD^{tree} -m orphan) && git update-ref refs/heads/agent/a $c".into(), Refused),
        ("a grafted and a shallow history", "git rev-parse HEAD > $PRIVATE/shallow; mkdir -p $PRIVATE/info; git rev-parse HEAD > $PRIVATE/info/grafts; c=$(git commit-tree HEAD^{tree} -m orphan) && git update-ref refs/heads/agent/a $c".into(), Refused),
        ("replaced objects", "echo evil > readme.md; e=$(git hash-object -w readme.md); git replace $(git rev-parse HEAD:readme.md) $e; git checkout -q readme.md; git commit -q --allow-empty -m x".into(), Harmless),
        ("a huge blob of zeros", format!("truncate -s 257M big; b=$(git -c core.compression=1 hash-object -w big); rm big; tree=$(printf \"100644 blob $b\\tf\\n\" | git mktree); {COMMIT}"), Refused),
        ("a huge blob in a pack", "truncate -s 257M big; git -c core.bigFileThreshold=1m -c core.compression=1 add big && git commit -qm big && ls $PRIVATE/objects/pack/*.pack".into(), Refused),
        ("other refs moved", "git update-ref refs/heads/main $(git commit-tree HEAD^{tree} -m evil); git update-ref -d refs/heads/dependency; git commit -q --allow-empty -m x".into(), Harmless),
        ("HEAD on another's branch", "git switch -q main; git commit -q --allow-empty -m x".into(), Harmless),
        ("links out of the tree", "ln -s ../../.git/config c; ln -s / root; ln -s ../../.git/hooks h; git add -A; git commit -qm l".into(), Harmless),
    ]
}

#[rstest::rstest]
#[tokio::test]
async fn nothing_that_an_agent_writes_reaches_the_host(#[values(0, 1, 2, 3)] part: usize) {
    if !can_isolate() {
        return;
    }
    let mut wrong = Vec::new();
    for (name, script, fate) in attacks().into_iter().skip(part).step_by(4) {
        wrong.extend(attacked(name, &script, &fate, None).await);
    }
    assert!(attacks().len() >= 40);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Plants a trap, takes the result, and looks at everything; gives what is not as it should be.
pub(crate) async fn attacked(
    name: &str,
    script: &str,
    fate: &Fate,
    cage: Option<crate::docker_git::Cage>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let fixture = Fixture::new();
    fixture.commit_on("dependency", "main", &[("d.txt", "d")]);
    let attempt = Attempt { cage, ..Attempt::on(fixture, GitAccess::Isolated).await };
    let others = attempt.others();
    let config = std::fs::read(attempt.fixture.root.join(".git/config")).expect("read");
    let planted = attempt.run(script);
    // A broken trap proves nothing.
    if !planted.status.success() {
        wrong.push(format!("{name}: not planted: {}", String::from_utf8_lossy(&planted.stderr)));
    }
    let taken = attempt.take().await;
    match (&taken, fate) {
        (Err(GitError::Refused { .. }), Refused) | (Ok(_), Harmless) => {}
        _ => wrong.push(format!("{name}: {taken:?}")),
    }
    // What is too large is told as that, with what to do, and not as something that cannot be read.
    if name.starts_with("a huge blob") {
        let told = taken.as_ref().map_or_else(ToString::to_string, |_| String::new());
        if !told.contains("257 MiB, and no more than 256 MiB") || !told.contains("orchestrate retry") {
            wrong.push(format!("{name}: {told}"));
        }
    }
    if matches!(fate, Refused) && attempt.fixture.git(&["rev-parse", "agent/a"]) != attempt.base.0 {
        wrong.push(format!("{name}: the branch moved"));
    }
    // Then the person looks at it, with their own git.
    for args in [&["status", "-s"][..], &["diff", "HEAD"], &["log", "-p", "-1"], &["add", "-An"]] {
        // A FIFO as an ignore file makes git wait for ever; that is the person's to find.
        let theirs = command(&attempt.state.path);
        let mut bounded = Command::new("timeout");
        bounded.args(["-k", "1", "1", "git"]).args(args).current_dir(&attempt.state.path).env_clear();
        bounded.envs(theirs.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let _may_fail = bounded.output().expect("runs");
    }
    let head = attempt.fixture.git(&["rev-parse", "agent/a"]);
    let _summary = attempt.fixture.repo.summarize(&attempt.base, &CommitId(head.clone())).await.expect("summarized");
    let next = orchestrate::git::WorktreeRequest { base: CommitId(head), ..attempt.fixture.request("b") };
    attempt.fixture.repo.ensure_worktree(&next).await.expect("a dependent starts");
    if attempt.canary.exists() {
        wrong.push(format!("{name}: code of the agent ran"));
    }
    if attempt.others() != others {
        wrong.push(format!("{name}: another ref moved"));
    }
    if std::fs::read(attempt.fixture.root.join(".git/config")).expect("read") != config {
        wrong.push(format!("{name}: the config changed"));
    }
    attempt.fixture.assert_healthy();
    wrong
}

#[tokio::test]
async fn a_person_who_moves_the_branch_meanwhile_wins() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must("git commit -q --allow-empty -m mine");
    let mine = attempt.must("git rev-parse HEAD");
    let theirs = attempt.fixture.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "theirs"]);
    attempt.fixture.git(&["update-ref", "refs/heads/agent/a", &theirs]);
    match attempt.take().await {
        Err(GitError::Refused { kept: Some(kept), .. }) => assert_eq!(attempt.fixture.git(&["rev-parse", &kept]), mine),
        other => panic!("{other:?}"),
    }
    assert_eq!(attempt.fixture.git(&["rev-parse", "agent/a"]), theirs);
}

#[tokio::test]
async fn a_rewritten_base_is_refused_and_kept() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::new(GitAccess::Isolated).await;
    attempt.must("git commit -q --amend -m rewritten");
    let rewritten = attempt.must("git rev-parse HEAD");
    match attempt.take().await {
        Err(GitError::Refused { kept: Some(kept), .. }) => {
            assert_eq!(attempt.fixture.git(&["rev-parse", &kept]), rewritten);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attempt.fixture.git(&["rev-parse", "agent/a"]), attempt.base.0);
    attempt.fixture.assert_healthy();
}

#[rstest::rstest]
#[tokio::test]
async fn root_serves_the_repository_of_another_user(
    #[values(GitAccess::Isolated, GitAccess::Shared)] access: GitAccess,
) {
    if !can_isolate() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let top = fixture.root.parent().expect("a folder").to_owned();
    std::fs::set_permissions(&top, std::fs::Permissions::from_mode(0o755)).expect("opened");
    let root = fixture.root.clone();
    let as_owner = |script: &str| {
        let output = Command::new("setpriv")
            .args(["--reuid", "1234", "--regid", "1234", "--clear-groups", "sh", "-ec", script])
            .current_dir(&root)
            .env_clear()
            .envs(command(&root).get_envs().filter_map(|(key, value)| Some((key, value?))))
            .output()
            .expect("runs");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(Command::new("chown").args(["-R", "1234:1234"]).arg(&top).status().expect("chown").success());
    fixture.repo = orchestrate::git::GixRepository::discover(&root).expect("found");
    assert_eq!((fixture.repo.layout().uid, fixture.repo.layout().gid), (1234, 1234));
    let base = CommitId(as_owner("git rev-parse HEAD").trim().to_owned());
    let state = fixture.repo.ensure_worktree(&request(&base)).await;
    let state = state.expect("made");
    let foreign = || {
        let found = Command::new("find").arg(&root).args(["-uid", "0"]).output().expect("find").stdout;
        let found = String::from_utf8(found).expect("text");
        // The state dir is the reconciler's.
        found.lines().filter(|line| !line.contains("/orchestrate/")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(foreign(), Vec::<String>::new());
    as_owner("git -C .worktrees/a status --porcelain && git commit -q --allow-empty -m theirs");
    let private = access == GitAccess::Isolated;
    let attempt = Attempt::resume(fixture, base, state, access, Some(1234)).await;
    attempt.must("test $(id -u) = 1234 && echo x > x && git add x && git commit -qm x && echo y > y && git gc -q");
    let mut request = Fixture::result_request("a", &attempt.base, Leftovers::Commit);
    request.private = private.then(|| attempt.dir.clone());
    let taken = attempt.fixture.repo.take_result(&request).await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (2, true));
    assert_eq!(foreign(), Vec::<String>::new());
    assert_eq!(as_owner("git -C .worktrees/a status --porcelain"), "");
    as_owner("git gc -q && git fsck --strict && git -C .worktrees/a commit -q --allow-empty -m mine");
}

fn request(base: &CommitId) -> orchestrate::git::WorktreeRequest {
    orchestrate::git::WorktreeRequest {
        path: Path::new(".worktrees/a").to_owned(),
        branch: "refs/heads/agent/a".to_owned(),
        base: base.clone(),
        base_ref: "refs/orchestrate/p/a/base".to_owned(),
        branch_is_ours: false,
        lock_reason: "task a".to_owned(),
    }
}
