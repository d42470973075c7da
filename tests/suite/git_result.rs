//! What an agent leaves, in any way, is taken in or kept.

use std::os::unix::fs::symlink;
use std::path::Path;

use orchestrate::git::{CommitId, GitError, Repository};
use orchestrate::spec::Leftovers;
use rstest::rstest;

use crate::git_support::{Fixture, git, write};

#[tokio::test]
async fn leftovers_become_the_commit_that_git_would_make() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    write(&path, "own.txt", "by the agent");
    git(&path, &["add", "-A"]);
    git(&path, &["commit", "-q", "-m", "by the agent"]);
    // Each kind of change.
    write(&path, "readme.md", "one\ntwo\n");
    write(&path, "deep/er/new.txt", "new");
    write(&path, "noise.log", "ignored");
    write(&path, "build/out", "ignored");
    write(&path, "kept.log", "ignored but added by force");
    git(&path, &["add", "-f", "kept.log"]);
    write(&path, "sub/.gitignore", "!*.log\n/only\n");
    write(&path, "sub/seen.log", "seen");
    write(&path, "sub/only", "ignored");
    write(&path, "run.sh", "#!/bin/sh\n");
    assert!(
        std::process::Command::new("chmod")
            .args(["+x", "run.sh"])
            .current_dir(&path)
            .status()
            .expect("chmod")
            .success()
    );
    symlink("/etc/passwd", path.join("link")).expect("linked");
    std::fs::remove_file(path.join("src/lib.rs")).expect("removed");
    std::fs::remove_dir(path.join("src")).expect("removed");
    write(&path, "src", "a file where a folder was");
    std::fs::remove_file(path.join("own.txt")).expect("removed");
    write(&path, "own.txt/inner", "a folder where a file was");
    assert!(std::process::Command::new("mkfifo").arg(path.join("pipe")).status().expect("mkfifo").success());

    // The oracle works on a copy of the index.
    let index = path.with_file_name("oracle-index");
    std::fs::copy(fixture.root.join(".git/worktrees/a/index"), &index).expect("copied");
    let oracle = |args: &[&str]| {
        let mut command = crate::git_support::command(&path);
        let output = command.env("GIT_INDEX_FILE", &index).args(args).output().expect("git runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    oracle(&["add", "-A"]);
    let wanted = oracle(&["write-tree"]);

    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");

    assert_eq!(fixture.git(&["ls-tree", "-r", &taken.head.0]), fixture.git(&["ls-tree", "-r", &wanted]));
    assert!(taken.had_leftovers);
    assert_eq!(taken.commits, 2);
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%an <%ae>|%cn|%s", "agent/a"]),
        "orchestrate <orchestrate@localhost>|orchestrate|a: what the agent left uncommitted"
    );
    // Again, as after a crash: nothing more.
    let again = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!((again.head, again.commits, again.had_leftovers), (taken.head, 2, false));
    fixture.assert_healthy();
}

#[rstest]
#[case(Leftovers::Keep)]
#[case(Leftovers::Fail)]
#[tokio::test]
async fn leftovers_that_are_not_committed_stay_as_they_are(#[case] policy: Leftovers) {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    write(&path, "readme.md", "changed");
    write(&path, "new.txt", "new");
    let taken = fixture.take("a", &base, policy).await.expect("taken");
    assert!(taken.had_leftovers);
    assert_eq!((taken.head, taken.commits), (base, 0));
    assert_eq!(git(&path, &["status", "--porcelain"]).trim(), "M readme.md\n?? new.txt");
    assert_eq!(std::fs::read_to_string(path.join("readme.md")).expect("read"), "changed");
}

#[tokio::test]
async fn nothing_done_is_told_apart() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    write(&path, "noise.log", "ignored");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!((taken.head, taken.commits, taken.had_leftovers), (base, 0, false));
    assert!(taken.notes.is_empty());
}

#[tokio::test]
async fn a_change_that_keeps_size_and_time_is_seen() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    let file = path.join("readme.md");
    let time = std::fs::metadata(&file).expect("there").modified().expect("a time");
    std::fs::write(&file, "two\none\nthree\n").expect("written");
    std::fs::File::options().write(true).open(&file).expect("open").set_modified(time).expect("set");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert!(taken.had_leftovers);
}

#[tokio::test]
async fn commits_on_a_detached_head_or_another_branch_come_along() {
    for place in ["--detach", "-bother"] {
        let fixture = Fixture::new();
        let base = fixture.head();
        let path = fixture.ensure("a").await.path;
        git(&path, &["checkout", "-q", place]);
        write(&path, "own.txt", "x");
        git(&path, &["add", "-A"]);
        git(&path, &["commit", "-q", "-m", "elsewhere"]);
        write(&path, "left.txt", "x");
        let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
        assert_eq!(taken.commits, 2, "{place}");
        assert_eq!(taken.notes.len(), 1, "{:?}", taken.notes);
        assert_eq!(git(&path, &["rev-parse", "--abbrev-ref", "HEAD"]), "agent/a");
        assert_eq!(git(&path, &["status", "--porcelain"]), "");
    }
}

#[tokio::test]
async fn commits_that_the_branch_cannot_take_are_kept() {
    let fixture = Fixture::new();
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    write(&path, "own.txt", "x");
    git(&path, &["add", "-A"]);
    git(&path, &["commit", "-q", "-m", "on the branch"]);
    let tip = git(&path, &["rev-parse", "HEAD"]);
    git(&path, &["checkout", "-q", "--detach", "HEAD~2"]);
    git(&path, &["commit", "-q", "--allow-empty", "-m", "beside"]);
    let beside = git(&path, &["rev-parse", "HEAD"]);
    write(&path, "left.txt", "x");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!(taken.head.0, tip);
    assert_eq!(fixture.git(&["rev-parse", "refs/orchestrate/p/a/kept/1"]), beside);
    assert_eq!(fixture.git(&["log", "-1", "--format=%P", "refs/orchestrate/p/a/kept/1-2"]), beside);
    assert_eq!(taken.notes.len(), 2, "{:?}", taken.notes);
}

#[tokio::test]
async fn history_rewritten_below_the_base_is_refused_and_kept() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    git(&path, &["commit", "-q", "--amend", "-m", "rewritten"]);
    let rewritten = git(&path, &["rev-parse", "HEAD"]);
    match fixture.take("a", &base, Leftovers::Commit).await {
        Err(GitError::Refused { kept: Some(kept), .. }) => assert_eq!(fixture.git(&["rev-parse", &kept]), rewritten),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.git(&["rev-parse", "agent/a"]), base.0);
}

#[tokio::test]
async fn amending_an_earlier_attempt_keeps_what_it_replaced() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    git(&path, &["commit", "-q", "--allow-empty", "-m", "attempt 1"]);
    let start = CommitId(git(&path, &["rev-parse", "HEAD"]));
    git(&path, &["commit", "-q", "--amend", "--allow-empty", "-m", "attempt 2"]);
    let mut request = Fixture::result_request("a", &base, Leftovers::Commit);
    request.start = start.clone();
    let taken = fixture.repo.take_result(&request).await.expect("taken");
    assert_eq!(taken.head.0, git(&path, &["rev-parse", "HEAD"]));
    assert_eq!(fixture.git(&["rev-parse", "refs/orchestrate/p/a/kept/1"]), start.0);
}

#[tokio::test]
async fn a_symbolic_branch_reaches_no_other() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    git(&path, &["symbolic-ref", "refs/heads/agent/a", "refs/heads/main"]);
    write(&path, "left.txt", "x");
    assert!(matches!(fixture.take("a", &base, Leftovers::Commit).await, Err(GitError::Refused { .. })));
    assert_eq!(fixture.git(&["rev-parse", "main"]), base.0);
}

#[tokio::test]
async fn a_deleted_branch_or_worktree_is_noticed() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    git(&path, &["update-ref", "-d", "refs/heads/agent/a"]);
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!((taken.head, taken.notes.len()), (base.clone(), 1));
    std::fs::remove_dir_all(&path).expect("removed");
    assert!(matches!(fixture.take("a", &base, Leftovers::Commit).await, Err(GitError::WorktreeLost(_))));
}

#[tokio::test]
async fn traps_in_the_worktree_are_neither_entered_nor_followed() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    let outside = fixture.root.with_file_name("outside");
    write(&outside, "secret", "s");
    symlink(&outside, path.join("out")).expect("linked");
    std::fs::remove_file(path.join(".gitignore")).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(path.join(".gitignore")).status().expect("mkfifo").success());
    std::fs::create_dir(path.join("nested")).expect("made");
    git(&path.join("nested"), &["init", "-q"]);
    write(&path, "nested/file", "x");
    write(&path, "sub/.GIT/config", "x");
    write(&path, "git~1", "x");
    let large = std::fs::File::create(path.join("core.dump")).expect("made");
    large.set_len(300 << 20).expect("sized");
    // The worktree's own link may say anything: it is not read.
    std::fs::write(path.join(".git"), format!("gitdir: {}\n", outside.display())).expect("written");

    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");

    let names = fixture.git(&["ls-tree", "-r", "--name-only", &taken.head.0]);
    assert_eq!(names.lines().collect::<Vec<_>>(), ["out", "readme.md", "src/lib.rs"]);
    assert_eq!(fixture.git(&["cat-file", "-p", &format!("{}:out", taken.head)]), outside.to_str().expect("text"));
    assert_eq!(taken.notes.len(), 4, "{:?}", taken.notes);
    fixture.assert_healthy();
}

#[tokio::test]
async fn nothing_is_written_through_a_committed_link() {
    let fixture = Fixture::new();
    let config = std::fs::read(fixture.root.join(".git/config")).expect("read");
    let path = fixture.ensure("a").await.path;
    symlink("../../.git/config", path.join("TASK.md")).expect("linked");
    symlink("../../.git", path.join("dir")).expect("linked");
    let base = fixture.head();
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    let request = orchestrate::git::WorktreeRequest { base: taken.head, ..fixture.request("b") };
    let made = fixture.repo.ensure_worktree(&request).await.expect("made");
    assert!(made.path.join("TASK.md").symlink_metadata().expect("there").is_symlink());
    assert_eq!(std::fs::read(fixture.root.join(".git/config")).expect("read"), config);
}

#[tokio::test]
async fn a_summary_counts_as_git_does() {
    let fixture = Fixture::new();
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    write(&path, "readme.md", "one\n2\nthree\nfour\n");
    write(&path, "deep/new.txt", "a\nb\n");
    std::fs::write(path.join("binary"), [0, 1, 2, 0, 255]).expect("written");
    std::fs::remove_file(path.join("src/lib.rs")).expect("removed");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    // The base's branch going on changes nothing of it.
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "meanwhile"]);

    let summary = fixture.repo.summarize(&fixture.head(), &taken.head).await.expect("summarized");

    let numbers = fixture.git(&["diff", "--numstat", "--no-renames", &base.0, &taken.head.0]);
    let column =
        |at: usize| -> u64 { numbers.lines().filter_map(|l| l.split('\t').nth(at)?.parse::<u64>().ok()).sum() };
    assert_eq!((summary.insertions, summary.deletions), (column(0), column(1)));
    assert_eq!((summary.commits, summary.files), (1, 4));
    assert_eq!(summary.paths, ["binary", "deep/new.txt", "readme.md", "src/lib.rs"]);
}

#[tokio::test]
async fn line_endings_follow_the_repository() {
    let fixture = Fixture::new();
    write(&fixture.root, ".gitattributes", "*.txt text eol=crlf\n");
    write(&fixture.root, "a.txt", "x\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-q", "-m", "attributes"]);
    let base = fixture.head();
    let path = fixture.ensure("a").await.path;
    assert_eq!(std::fs::read(path.join("a.txt")).expect("read"), b"x\r\n");
    write(&path, "b.txt", "y\r\n");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!(fixture.git(&["cat-file", "-p", &format!("{}:b.txt", taken.head)]), "y");
    assert_eq!(
        fixture.git(&["ls-tree", "-r", "--name-only", &taken.head.0]).lines().filter(|n| *n == "a.txt").count(),
        1
    );
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert!(Path::new(&path).exists());
}
