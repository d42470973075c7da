//! Repositories that are large, old or odd, and people who do things at the wrong moment.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use orchestrate::git::{CommitId, GitError, GixRepository, MergeHead, MergeOutcome, Repository, StartOverRequest};
use orchestrate::spec::GitAccess;
use rstest::rstest;

use crate::git_isolated::{Attempt, can_isolate};
use crate::git_support::{Fixture, command, git, task, try_git, write};
use crate::support::project::Project;

const REFS: usize = 30_000;

/// A repository with a history, tens of thousands of packed refs and a commit graph.
fn with_many_refs() -> Fixture {
    let fixture = Fixture::new();
    for n in 0..40 {
        fixture.git(&["commit", "-q", "--allow-empty", "-m", &format!("{n}")]);
    }
    fixture.commit_on("dependency", "main", &[("d.txt", "d")]);
    let head = fixture.head();
    let mut updates = String::new();
    for n in 0..REFS {
        let kind = if n % 2 == 0 { "heads/feature" } else { "tags" };
        let _infallible = writeln!(updates, "create refs/{kind}/x{n} {head}");
    }
    let mut update = command(&fixture.root).args(["update-ref", "--stdin"]).stdin(Stdio::piped()).spawn().expect("git");
    update.stdin.take().expect("piped").write_all(updates.as_bytes()).expect("written");
    assert!(update.wait().expect("waited").success());
    fixture.git(&["pack-refs", "--all", "--prune"]);
    fixture.git(&["repack", "-qad"]);
    fixture.git(&["commit-graph", "write", "--reachable"]);
    fixture
}

#[tokio::test]
async fn of_tens_of_thousands_of_refs_an_agent_sees_three() {
    if !can_isolate() {
        return;
    }
    let attempt = Attempt::on(with_many_refs(), GitAccess::Isolated).await;
    let seen = attempt.must("git for-each-ref --format='%(refname)'");
    assert_eq!(seen, "refs/heads/agent/a\nrefs/heads/dependency\nrefs/heads/main");
    assert!(std::fs::metadata(attempt.dir.join("git/packed-refs")).expect("there").len() < 400);
    attempt
        .must("git log --oneline --graph --all >/dev/null && echo x > x && git add x && git commit -qm x && git gc -q");
    let taken = attempt.take().await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (1, false));
    let fixture = &attempt.fixture;
    assert_eq!(fixture.git(&["for-each-ref", "refs/heads/feature", "refs/tags"]).lines().count(), REFS);
    // What an old commit is still held by is found in one walk, and not in one for each ref.
    let old = CommitId(fixture.git(&["rev-parse", "main~30"]));
    fixture.git(&["update-ref", "refs/heads/agent/old", &old.0]);
    let removed = fixture.repo.remove_branch("refs/heads/agent/old", &old, "refs/orchestrate/p/old/kept/0").await;
    assert_eq!(removed.expect("removed"), None);
    let lone = CommitId(fixture.git(&["commit-tree", "main^{tree}", "-p", "main~30", "-m", "lone"]));
    fixture.git(&["update-ref", "refs/heads/agent/lone", &lone.0]);
    let removed = fixture.repo.remove_branch("refs/heads/agent/lone", &lone, "refs/orchestrate/p/lone/kept/0").await;
    assert_eq!(removed.expect("removed").as_deref(), Some("refs/orchestrate/p/lone/kept/0"));
    fixture.assert_healthy();
}

/// The person cleans up as hard as git can, whenever it hurts most.
#[tokio::test]
async fn a_person_who_prunes_at_every_step_loses_nothing() {
    if !can_isolate() {
        return;
    }
    let fixture = Fixture::new();
    let prune = |fixture: &Fixture| {
        fixture.git(&["reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all"]);
        fixture.git(&["gc", "-q", "--prune=now"]);
        fixture.git(&["worktree", "prune", "--expire=now"]);
    };
    let heads: Vec<MergeHead> =
        ["x", "y"].map(|id| MergeHead { task: task(id), commit: fixture.commit_on(id, "main", &[(id, id)]) }).to_vec();
    let merge = async || match fixture.repo.merge(&heads).await.expect("merged") {
        MergeOutcome::Commit(commit) => commit,
        conflict @ MergeOutcome::Conflict { .. } => panic!("{conflict:?}"),
    };
    let base = merge().await;
    prune(&fixture);
    // Nothing held the merge yet: it is asked for again, and is the same.
    let request = orchestrate::git::WorktreeRequest { base: base.clone(), ..fixture.request("a") };
    assert!(matches!(fixture.repo.ensure_worktree(&request).await, Err(GitError::UnknownRevision(_))));
    assert_eq!(merge().await, base);
    let state = fixture.repo.ensure_worktree(&request).await.expect("made");
    prune(&fixture);
    // Neither the dependencies' branches nor the task's own have to stay.
    fixture.git(&["branch", "-D", "x", "y"]);
    prune(&fixture);
    let attempt = Attempt::resume(fixture, base.clone(), state, GitAccess::Isolated, None).await;
    prune(&attempt.fixture);
    attempt.must("git log >/dev/null && echo 1 > one && git add one && git commit -qm one");
    prune(&attempt.fixture);
    attempt
        .must("git fsck --no-dangling && echo 2 > two && git add two && git commit -qm two && git gc -q --prune=now");
    prune(&attempt.fixture);
    attempt.must("echo 3 > three && git stash list && git log --oneline | wc -l");
    prune(&attempt.fixture);
    let taken = attempt.take().await.expect("taken");
    prune(&attempt.fixture);
    assert_eq!((taken.commits, taken.had_leftovers), (3, true));
    assert_eq!(attempt.take().await.expect("again").head, taken.head);
    let fixture = &attempt.fixture;
    assert_eq!(
        fixture.git(&["ls-tree", "--name-only", "agent/a"]),
        ".gitignore\none\nreadme.md\nsrc\nthree\ntwo\nx\ny"
    );
    assert_eq!(git(&attempt.state.path, &["status", "--porcelain"]), "");
    fixture.assert_healthy();
}

#[tokio::test]
async fn a_sha256_repository_works_from_worktree_to_result() {
    if !can_isolate() {
        return;
    }
    let dir = tempfile::tempdir().expect("a temp folder");
    let root = dir.path().canonicalize().expect("resolved").join("repo");
    std::fs::create_dir(&root).expect("made");
    git(&root, &["init", "-q", "-b", "main", "--object-format=sha256"]);
    write(&root, "readme.md", "one\n");
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-qm", "first"]);
    git(&root, &["commit-graph", "write", "--reachable"]);
    let repo = GixRepository::discover(&root).expect("found");
    let attempt = Attempt::on(Fixture { _dir: dir, root, repo }, GitAccess::Isolated).await;
    attempt.must("echo x > x && git add x && git commit -qm x && git gc -q && echo y > y");
    let taken = attempt.take().await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers, taken.head.0.len()), (2, true, 64));
    attempt.fixture.assert_healthy();
}

/// What one side does to the files of `main`, and the other.
#[rstest]
#[case::renamed_to_two_names("git mv readme.md a.md", "git mv readme.md b.md", false)]
#[case::renamed_and_changed("git mv readme.md a.md", "echo four >> readme.md", true)]
#[case::renamed_and_removed("git mv readme.md a.md", "git rm -q readme.md", false)]
#[case::changed_and_removed("echo four >> readme.md", "git rm -q readme.md", false)]
#[case::two_renamed_to_one_name("git mv readme.md same", "git mv src/lib.rs same", false)]
#[case::mode_and_content("chmod +x readme.md", "echo four >> readme.md", true)]
#[case::the_same_mode("chmod +x readme.md", "chmod +x readme.md; echo x > x", true)]
#[case::a_link_and_content("ln -sf src/lib.rs readme.md", "echo four >> readme.md", false)]
#[case::two_links("ln -s readme.md l", "ln -s src l", false)]
#[case::the_same_link("ln -s readme.md l; echo x > x", "ln -s readme.md l", true)]
#[case::a_link_and_a_file("ln -s readme.md l", "echo l > l", false)]
#[case::a_folder_and_a_file("mkdir new; echo x > new/x", "echo x > new", false)]
#[case::a_file_becomes_a_folder(
    "git rm -q readme.md; mkdir readme.md; echo x > readme.md/x",
    "echo four >> readme.md",
    false
)]
#[case::both_added("echo 1 > new", "echo 2 > new", false)]
#[tokio::test]
async fn renames_modes_and_links_merge_as_git_merges_them(
    #[case] left: &str,
    #[case] right: &str,
    #[case] merges: bool,
) {
    let fixture = Fixture::new();
    let mut commits = Vec::new();
    for (name, script) in [("left", left), ("right", right), ("third", "echo 3 > third")] {
        fixture.git(&["switch", "-q", "-c", name, "main"]);
        let mut shell = Command::new("sh");
        let theirs = command(&fixture.root);
        shell.args(["-ec", &format!("{script}\ngit add -A\ngit commit -qm {name}")]).current_dir(&fixture.root);
        shell.env_clear().envs(theirs.get_envs().filter_map(|(key, value)| Some((key, value?))));
        assert!(shell.status().expect("a shell").success(), "{script}");
        commits.push(MergeHead { task: task(name), commit: fixture.head() });
    }
    fixture.git(&["switch", "-q", "main"]);
    let before = (fixture.git(&["for-each-ref"]), fixture.git(&["status", "--porcelain"]));
    let by_git = try_git(&fixture.root, &["merge-tree", "--write-tree", "left", "right"]);
    // The third one merges with both, whatever they do to each other.
    let order = [commits[2].clone(), commits[0].clone(), commits[1].clone()];
    let merged = fixture.repo.merge(&order).await.expect("tried");
    match (&merged, by_git.status.success()) {
        (MergeOutcome::Commit(commit), true) => {
            assert!(merges);
            let tree = String::from_utf8_lossy(&by_git.stdout).trim().to_owned();
            let ours = fixture.git(&["ls-tree", "-r", &commit.0]);
            let theirs = fixture.git(&["ls-tree", "-r", &tree]);
            let ours: Vec<&str> = ours.lines().filter(|line| !line.ends_with("\tthird")).collect();
            assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
        }
        (MergeOutcome::Conflict { paths, task, with }, false) => {
            assert!(!merges && !paths.is_empty(), "{paths:?}");
            assert_eq!((task.as_str(), with.len()), ("right", 2));
        }
        other => panic!("{other:?}\n{}", String::from_utf8_lossy(&by_git.stdout)),
    }
    assert_eq!((fixture.git(&["for-each-ref"]), fixture.git(&["status", "--porcelain"])), before);
}

/// Git's default is to ask whether the file should move along; an octopus of git's own would merge it as this one does.
#[tokio::test]
async fn a_file_added_to_a_folder_that_was_renamed_is_kept() {
    let fixture = Fixture::new();
    let right = fixture.commit_on("right", "main", &[("src/new.rs", "x")]);
    fixture.git(&["switch", "-q", "-c", "left"]);
    fixture.git(&["mv", "src", "lib"]);
    fixture.git(&["commit", "-qm", "left"]);
    let heads = [("left", fixture.head()), ("right", right)];
    let heads = heads.map(|(id, commit)| MergeHead { task: task(id), commit });
    let MergeOutcome::Commit(merged) = fixture.repo.merge(&heads).await.expect("merged") else { panic!("conflict") };
    let files = fixture.git(&["ls-tree", "-r", "--name-only", &merged.0]);
    assert!(files.contains("lib/lib.rs") && files.contains("/new.rs") && !files.contains("src/lib.rs"), "{files}");
}

#[rstest]
#[case::with_a_reason(&["--reason", "I look at this"])]
#[case::without(&[])]
#[tokio::test]
async fn a_worktree_that_a_person_locked_is_never_removed(#[case] reason: &[&str]) {
    let fixture = Fixture::new();
    fixture.ensure("a").await;
    let base = fixture.head();
    fixture.git(&["worktree", "unlock", ".worktrees/a"]);
    fixture.git(&[&["worktree", "lock"], reason, &[".worktrees/a"]].concat());
    let lock = std::fs::read(fixture.root.join(".git/worktrees/a/locked")).expect("locked");
    fixture.ensure_again("a", &base).await.expect("a task may run in it");
    let over = StartOverRequest {
        path: ".worktrees/a".into(),
        branch: "refs/heads/agent/a".to_owned(),
        base: base.clone(),
        kept_ref: "refs/orchestrate/p/a/kept/1".to_owned(),
        subject: "left".to_owned(),
    };
    let path = std::path::Path::new(".worktrees/a");
    let refused = [
        fixture.repo.removable(path).await.map(drop),
        fixture.repo.remove_worktree(path).await,
        fixture.repo.start_over(&over).await.map(drop),
    ];
    for refused in refused {
        match refused {
            Err(error @ GitError::Locked { .. }) => {
                assert!(error.to_string().contains("git worktree unlock"), "{error}");
                assert_eq!(error.to_string().contains("I look at this"), !reason.is_empty(), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(std::fs::read(fixture.root.join(".git/worktrees/a/locked")).expect("locked"), lock);
    assert!(fixture.worktree("a").join("readme.md").exists());
    fixture.git(&["worktree", "unlock", ".worktrees/a"]);
    // Then it is ours again.
    fixture.ensure_again("a", &base).await.expect("found");
    fixture.repo.remove_worktree(path).await.expect("removed");
}

/// One clear error with the next step, and nothing is written.
#[test]
fn a_read_only_repository_is_told_in_one_error() {
    if !can_isolate() {
        return;
    }
    let project = Project::at("unix:///nonexistent/sock".to_owned());
    project.plan(serde_json::json!([{ "id": "a", "command": ["true"] }]));
    for arguments in [&["once"][..], &["run", "--until-done"]] {
        let program = project.command(arguments);
        let mut shell = Command::new("timeout");
        let script =
            "mount --bind \"$PWD\" \"$PWD\" && mount -o remount,bind,ro \"$PWD\" && cd \"$PWD\" && exec \"$@\"";
        shell.args(["60", "unshare", "-m", "sh", "-c", script, "sh"]).arg(program.get_program());
        shell.args(program.get_args()).current_dir(project.repo()).env_clear();
        shell.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let output = shell.output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {said}");
        assert!(said.to_lowercase().contains("read-only"), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("error")).count(), 1, "{said}");
    }
    assert!(!project.repo().join(".git/orchestrate/journal").exists());
}

/// LFS as it is when the program is missing: pointers, and not a word of a change.
#[tokio::test]
async fn a_repository_with_large_files_elsewhere_gets_pointers() {
    let fixture = Fixture::new();
    write(&fixture.root, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    write(&fixture.root, "big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
    symlink("big.bin", fixture.root.join("link.bin")).expect("linked");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "pointers"]);
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    assert!(std::fs::read_to_string(made.path.join("big.bin")).expect("read").starts_with("version"));
    let taken = fixture.take("a", &base, orchestrate::spec::Leftovers::Commit).await.expect("taken");
    assert_eq!((taken.commits, taken.had_leftovers), (0, false));
}
