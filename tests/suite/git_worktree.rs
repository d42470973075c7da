//! Worktrees: made by us, judged by git.

use std::os::unix::fs::symlink;
use std::path::Path;

use orchestrate::git::{GitError, GixRepository, Repository, StartOverRequest, WorktreeRequest};
use orchestrate::spec::Leftovers;
use rstest::rstest;

use crate::git_support::{Fixture, command, git, write};

#[tokio::test]
async fn a_new_worktree_is_as_git_would_have_made_it() {
    let fixture = Fixture::new();
    symlink("readme.md", fixture.root.join("link")).expect("linked");
    write(&fixture.root, "run.sh", "#!/bin/sh\n");
    git(&fixture.root, &["add", "-A"]);
    git(&fixture.root, &["update-index", "--chmod=+x", "run.sh"]);
    git(&fixture.root, &["checkout-index", "-f", "run.sh"]);
    git(&fixture.root, &["commit", "-q", "-m", "second"]);
    let index = std::fs::read(fixture.root.join(".git/index")).expect("an index");

    let made = fixture.ensure("a").await;

    let path = fixture.worktree("a");
    assert_eq!(made.path, path);
    assert_eq!(made.git_dir, fixture.root.join(".git/worktrees/a"));
    assert_eq!(made.tip, fixture.head());
    assert_eq!(
        git(&path, &["status", "--porcelain=v2", "--branch"]).lines().filter(|l| !l.starts_with('#')).count(),
        0
    );
    assert_eq!(git(&path, &["rev-parse", "--abbrev-ref", "HEAD"]), "agent/a");
    assert_eq!(git(&path, &["diff", "--stat", "HEAD"]), "");
    let list = fixture.git(&["worktree", "list", "--porcelain"]);
    assert!(list.contains(&format!("worktree {}", path.display())), "{list}");
    assert!(list.contains("locked orchestrate: task a"), "{list}");
    assert!(fixture.git(&["reflog", "show", "agent/a"]).contains("Created by orchestrate"));
    assert_eq!(git(&path, &["reflog", "show", "HEAD"]).lines().count(), 1);
    assert_eq!(fixture.git(&["rev-parse", "refs/orchestrate/p/a/base"]), fixture.head().0);
    // The person's checkout: nothing shows, nothing moved.
    write(&fixture.root, ".agent-tasks.json.lock", "");
    assert_eq!(std::fs::read(fixture.root.join(".git/index")).expect("an index"), index);
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    fixture.assert_healthy();
    fixture.git(&["worktree", "unlock", ".worktrees/a"]);
    fixture.git(&["worktree", "remove", ".worktrees/a"]);
}

#[tokio::test]
async fn asking_again_changes_nothing_and_keeps_work() {
    let fixture = Fixture::new();
    let first = fixture.ensure("a").await;
    let base = fixture.head();
    let path = fixture.worktree("a");
    write(&path, "new.txt", "work");
    write(&path, "readme.md", "changed");
    git(&path, &["commit", "-q", "--allow-empty", "-m", "by the agent"]);
    let before = std::fs::metadata(first.git_dir.join("index")).expect("an index").modified().expect("a time");

    let again = fixture.ensure_again("a", &base).await.expect("found");

    assert_eq!(std::fs::metadata(first.git_dir.join("index")).expect("an index").modified().expect("a time"), before);
    assert_eq!(again.path, first.path);
    assert_eq!(again.tip.0, git(&path, &["rev-parse", "HEAD"]));
    assert_eq!(git(&path, &["status", "--porcelain"]), " M readme.md\n?? new.txt");
    let exclude = std::fs::read_to_string(fixture.root.join(".git/info/exclude")).expect("read");
    assert_eq!(exclude.matches("/.worktrees/").count(), 1);
}

/// Each state that a kill may leave, from the first step to the last but one.
#[rstest]
#[case::nothing_but_the_branch("rm -rf .git/worktrees/a .worktrees/a")]
#[case::no_folder("rm -rf .worktrees/a; printf initializing > .git/worktrees/a/locked; rm -f .git/worktrees/a/index")]
#[case::empty_folder(
    "rm -rf .worktrees/a; mkdir .worktrees/a; printf initializing > .git/worktrees/a/locked; rm -f .git/worktrees/a/index"
)]
#[case::no_files(
    "rm -rf .worktrees/a/src .worktrees/a/readme.md; printf initializing > .git/worktrees/a/locked; rm -f .git/worktrees/a/index"
)]
#[case::half_a_file(
    "printf o > .worktrees/a/readme.md; printf initializing > .git/worktrees/a/locked; rm -f .git/worktrees/a/index"
)]
#[case::index_lock(
    "printf initializing > .git/worktrees/a/locked; mv .git/worktrees/a/index .git/worktrees/a/index.lock"
)]
#[case::registered_but_missing("rm -rf .worktrees/a")]
#[case::stale_lock_after_the_end("touch .git/worktrees/a/index.lock")]
#[case::no_link("rm .worktrees/a/.git")]
#[case::registration_lost("rm -rf .git/worktrees/a")]
#[case::empty_files_after_a_power_cut(
    "cd .git/worktrees/a; : > gitdir; : > HEAD; : > commondir; : > orchestrate; printf initializing > locked; rm -f index"
)]
#[case::empty_registration(": > .git/worktrees/a/gitdir")]
#[case::leftover_staging(
    "rm -rf .git/worktrees/a .worktrees/a; mkdir -p .git/orchestrate/tmp/a; touch .git/orchestrate/tmp/a/HEAD"
)]
#[tokio::test]
async fn what_a_kill_left_is_healed(#[case] damage: &str) {
    let fixture = Fixture::new();
    fixture.ensure("a").await;
    let base = fixture.head();
    let done = std::process::Command::new("sh").arg("-ec").arg(damage).current_dir(&fixture.root).status();
    assert!(done.expect("sh runs").success());

    let healed = fixture.ensure_again("a", &base).await.expect("healed");

    assert_eq!(healed.tip, base);
    let path = fixture.worktree("a");
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert_eq!(git(&path, &["rev-parse", "--abbrev-ref", "HEAD"]), "agent/a");
    assert!(fixture.git(&["worktree", "list", "--porcelain"]).contains("locked orchestrate: task a"));
    fixture.assert_healthy();
}

#[tokio::test]
async fn a_lost_registration_keeps_the_files() {
    let fixture = Fixture::new();
    let made = fixture.ensure("a").await;
    write(&made.path, "readme.md", "work");
    write(&made.path, "new.txt", "work");
    std::fs::remove_dir_all(&made.git_dir).expect("removed");
    let base = fixture.head();
    fixture.ensure_again("a", &base).await.expect("healed");
    assert_eq!(git(&made.path, &["status", "--porcelain"]).trim(), "M readme.md\n?? new.txt");
}

#[rstest]
#[case::folder("mkdir -p .worktrees/a; echo x > .worktrees/a/file", "a folder that is not ours")]
#[case::file("mkdir .worktrees; echo x > .worktrees/a", "a file")]
#[case::link("mkdir .worktrees other; ln -s ../other .worktrees/a", "a symbolic link")]
#[case::linked_worktrees("mkdir other; ln -s other .worktrees", "a symbolic link; it must be a real folder")]
#[case::others_worktree("git worktree add -q -b mine .worktrees/a", "a worktree that is not ours")]
#[tokio::test]
async fn what_is_not_ours_is_left_alone(#[case] foreign: &str, #[case] said: &str) {
    let fixture = Fixture::new();
    let mut sh = command(&fixture.root);
    let sh = std::process::Command::new("sh")
        .args(["-ec", foreign])
        .current_dir(&fixture.root)
        .envs(sh.env("X", "").get_envs().filter_map(|(k, v)| Some((k, v?))))
        .status();
    assert!(sh.expect("sh runs").success());
    let listing = || {
        let found = std::process::Command::new("find")
            .args(["-L", ".", "-path", "./.git", "-prune", "-o", "-type", "f", "-print"])
            .current_dir(&fixture.root)
            .output();
        let mut lines: Vec<_> =
            String::from_utf8(found.expect("find").stdout).expect("text").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = listing();
    match fixture.repo.ensure_worktree(&fixture.request("a")).await {
        Err(GitError::ForeignPath { what, .. }) => assert_eq!(what, said),
        other => panic!("{other:?}"),
    }
    assert_eq!(listing(), before);
}

#[tokio::test]
async fn a_worktree_of_an_earlier_tool_on_our_branch_is_adopted() {
    let fixture = Fixture::new();
    fixture.git(&["worktree", "add", "-q", "-b", "agent/a", ".worktrees/a"]);
    fixture.ensure("a").await;
    assert!(fixture.git(&["worktree", "list", "--porcelain"]).contains("locked orchestrate: task a"));
}

#[tokio::test]
async fn a_branch_with_work_of_others_is_never_taken() {
    let fixture = Fixture::new();
    let tip = fixture.commit_on("agent/a", "main", &[("theirs.txt", "x")]);
    match fixture.repo.ensure_worktree(&fixture.request("a")).await {
        Err(GitError::ForeignBranch { branch, tip: found }) => {
            assert_eq!((branch.as_str(), found), ("agent/a", tip.clone()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.git(&["rev-parse", "agent/a"]), tip.0);
    assert!(!fixture.worktree("a").exists());
    // One that is exactly at the base holds no work.
    fixture.git(&["branch", "agent/b"]);
    fixture.ensure("b").await;
}

#[tokio::test]
async fn a_branch_that_is_checked_out_is_named_with_its_place() {
    let fixture = Fixture::new();
    let elsewhere = fixture.root.with_file_name("elsewhere");
    fixture.git(&["worktree", "add", "-q", "-b", "agent/a", elsewhere.to_str().expect("text")]);
    match fixture.repo.ensure_worktree(&fixture.request("a")).await {
        Err(GitError::CheckedOut { branch, path }) => assert_eq!((branch.as_str(), path), ("agent/a", elsewhere)),
        other => panic!("{other:?}"),
    }
    fixture.git(&["checkout", "-q", "-b", "agent/b"]);
    assert!(matches!(
        fixture.repo.ensure_worktree(&fixture.request("b")).await,
        Err(GitError::CheckedOut { path, .. }) if path == fixture.root
    ));
}

#[rstest]
#[case("agent", "a", "refs/heads/agent")]
#[case("agent/a/b", "a", "refs/heads/agent/a/b")]
#[tokio::test]
async fn a_ref_in_the_way_is_named(#[case] branch: &str, #[case] id: &str, #[case] blocking: &str) {
    for packed in [false, true] {
        let fixture = Fixture::new();
        fixture.git(&["branch", branch]);
        if packed {
            fixture.git(&["pack-refs", "--all"]);
        }
        match fixture.repo.ensure_worktree(&fixture.request(id)).await {
            Err(GitError::BlockingRef(found)) => assert_eq!(found, blocking),
            other => panic!("{other:?}"),
        }
        assert!(!fixture.worktree(id).exists());
    }
}

#[tokio::test]
async fn a_taken_admin_name_gives_way_to_another() {
    let fixture = Fixture::new();
    let elsewhere = fixture.root.with_file_name("a");
    fixture.git(&["worktree", "add", "-q", "-b", "mine", elsewhere.to_str().expect("text")]);
    let made = fixture.ensure("a").await;
    assert_eq!(made.git_dir, fixture.root.join(".git/worktrees/orchestrate-a"));
    assert_eq!(fixture.ensure_again("a", &fixture.head()).await.expect("found"), made);
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    assert_eq!(git(&elsewhere, &["rev-parse", "--abbrev-ref", "HEAD"]), "mine");
}

#[rstest]
#[case("../a")]
#[case("a/b")]
#[case(".git")]
#[case("..")]
#[tokio::test]
async fn a_path_outside_of_the_folder_is_refused(#[case] name: &str) {
    let fixture = Fixture::new();
    let request = WorktreeRequest { path: Path::new(".worktrees").join(name), ..fixture.request("a") };
    assert!(matches!(fixture.repo.ensure_worktree(&request).await, Err(GitError::ForeignPath { .. })));
    assert!(!fixture.root.join(".worktrees").exists());
}

#[tokio::test]
async fn hooks_fsmonitor_and_filters_of_the_repository_never_run() {
    let fixture = Fixture::new();
    let canary = fixture.root.join("canary");
    let plant = format!("#!/bin/sh\ntouch {}\ncat\n", canary.display());
    for name in ["post-checkout", "reference-transaction", "pre-commit", "post-commit", "evil"] {
        write(&fixture.root, &format!(".husky/{name}"), &plant);
        let path = fixture.root.join(".husky").join(name);
        assert!(std::process::Command::new("chmod").arg("+x").arg(&path).status().expect("chmod").success());
    }
    let evil = fixture.root.join(".husky/evil");
    let evil = evil.to_str().expect("text");
    write(&fixture.root, ".gitattributes", "* filter=evil diff=evil merge=evil\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-q", "-m", "planted"]);
    for (key, value) in [
        ("core.hooksPath", ".husky"),
        ("core.fsmonitor", evil),
        ("filter.evil.clean", evil),
        ("filter.evil.smudge", evil),
        ("filter.evil.process", evil),
        ("filter.evil.required", "true"),
        ("diff.evil.command", evil),
        ("diff.evil.textconv", evil),
        ("merge.evil.driver", evil),
        ("diff.external", evil),
    ] {
        fixture.git(&["config", key, value]);
    }
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    write(&made.path, "readme.md", "one\nchanged\n");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert!(taken.had_leftovers);
    fixture.repo.summarize(&base, &taken.head).await.expect("summarized");
    fixture.ensure("b").await;
    write(&fixture.worktree("b"), "readme.md", "one\nother\n");
    let other = fixture.take("b", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!(fixture.repo.conflicts(&taken.head, &other.head).await.expect("compared"), ["readme.md"]);
    fixture.repo.remove_worktree(Path::new(".worktrees/a")).await.expect("removed");
    assert!(!canary.exists());
}

#[tokio::test]
async fn removing_keeps_the_branch_and_refuses_uncommitted_work() {
    let fixture = Fixture::new();
    let made = fixture.ensure("a").await;
    write(&made.path, "new.txt", "work");
    write(&made.path, "ignored.log", "noise");
    write(&made.path, "readme.md", "changed");
    match fixture.repo.remove_worktree(Path::new(".worktrees/a")).await {
        Err(GitError::Dirty { files, .. }) => assert_eq!(files, 2),
        other => panic!("{other:?}"),
    }
    assert!(made.path.join("new.txt").exists());
    let taken = fixture.take("a", &fixture.head(), Leftovers::Commit).await.expect("taken");
    fixture.repo.remove_worktree(Path::new(".worktrees/a")).await.expect("removed");
    fixture.repo.remove_worktree(Path::new(".worktrees/a")).await.expect("gone already");
    assert!(!made.path.exists() && !made.git_dir.exists());
    assert_eq!(fixture.git(&["rev-parse", "agent/a"]), taken.head.0);
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn removing_refuses_a_worktree_whose_branch_is_gone() {
    let fixture = Fixture::new();
    let made = fixture.ensure("a").await;
    write(&made.path, "work.txt", "precious");
    fixture.git(&["update-ref", "-d", "refs/heads/agent/a"]);
    let worktree = Path::new(".worktrees/a");
    assert!(matches!(fixture.repo.removable(worktree).await, Err(GitError::ForeignPath { .. })));
    assert!(matches!(fixture.repo.remove_worktree(worktree).await, Err(GitError::ForeignPath { .. })));
    assert!(made.path.join("work.txt").exists());
}

#[tokio::test]
async fn removing_refuses_to_lose_commits_of_a_detached_head() {
    let fixture = Fixture::new();
    let made = fixture.ensure("a").await;
    git(&made.path, &["checkout", "-q", "--detach"]);
    git(&made.path, &["commit", "-q", "--allow-empty", "-m", "only here"]);
    assert!(matches!(fixture.repo.remove_worktree(Path::new(".worktrees/a")).await, Err(GitError::ForeignPath { .. })));
    assert!(made.path.exists());
}

#[rstest]
#[case::space("with space")]
#[case::colon("a:b,c'd\"e")]
#[case::newline("a\nb")]
#[case::other_scripts("žluťoučký-кот")]
#[tokio::test]
async fn odd_names_of_the_repository_work(#[case] name: &str) {
    let fixture = Fixture::named(name);
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    write(&made.path, "x.txt", "x");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!(taken.commits, 1);
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    fixture.assert_healthy();
}

#[tokio::test]
async fn a_name_that_is_no_text_works() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::named(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    let made = fixture.ensure("a").await;
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn every_starting_place_finds_the_same_root() {
    let fixture = Fixture::new();
    let common = fixture.root.join(".git");
    let linked = fixture.root.with_file_name("linked");
    fixture.git(&["worktree", "add", "-q", "-b", "other", linked.to_str().expect("text")]);
    git(&linked, &["commit", "-q", "--allow-empty", "-m", "other's"]);
    let alias = fixture.root.with_file_name("alias");
    symlink(&fixture.root, &alias).expect("linked");
    for start in [fixture.root.join("src"), alias.join("src"), alias, common.clone()] {
        let found = GixRepository::discover(&start).expect("found");
        assert_eq!(found.layout().root, fixture.root, "{}", start.display());
        assert_eq!(found.layout().common_dir, common);
        assert_eq!(found.layout().git_dir, common);
    }
    let found = GixRepository::discover(&linked).expect("found");
    assert_eq!(found.layout().root, fixture.root);
    assert_eq!(found.layout().git_dir, common.join("worktrees/linked"));
    assert_eq!(found.resolve("HEAD").await.expect("resolved").0, git(&linked, &["rev-parse", "HEAD"]));
    assert_eq!(found.resolve("main").await.expect("resolved"), fixture.head());
}

#[tokio::test]
async fn a_git_directory_elsewhere_is_found() {
    for how in ["--separate-git-dir=elsewhere.git", "link"] {
        let dir = tempfile::tempdir().expect("a temp folder");
        let top = dir.path().canonicalize().expect("resolved");
        let root = top.join("work");
        if how == "link" {
            git(&top, &["init", "-q", "work"]);
            std::fs::rename(root.join(".git"), top.join("elsewhere.git")).expect("moved");
            symlink("../elsewhere.git", root.join(".git")).expect("linked");
        } else {
            git(&top, &["init", "-q", how, "work"]);
        }
        git(&root, &["commit", "-q", "--allow-empty", "-m", "first"]);
        let repo = GixRepository::discover(&root).expect("found");
        assert_eq!(repo.layout().root, root, "{how}");
        assert_eq!(repo.layout().common_dir, top.join("elsewhere.git"));
        let base = repo.resolve("HEAD").await.expect("resolved");
        let fixture = Fixture::new();
        let made = repo.ensure_worktree(&WorktreeRequest { base, ..fixture.request("a") }).await.expect("made");
        assert_eq!(made.path, root.join(".worktrees/a"));
        assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
        assert_eq!(git(&root, &["status", "--porcelain"]), "");
    }
}

#[tokio::test]
async fn a_bare_repository_is_served() {
    let fixture = Fixture::new();
    let bare = fixture.root.with_file_name("bare.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().expect("text")]);
    let repo = GixRepository::discover(&bare).expect("found");
    assert_eq!(repo.layout().root, bare.parent().expect("a folder"));
    let head = repo.resolve("HEAD").await.expect("resolved");
    let made = repo.ensure_worktree(&fixture.request("a")).await.expect("made");
    assert_eq!(head, fixture.head());
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    write(&made.path, "x.txt", "x");
    let taken = repo.take_result(&Fixture::result_request("a", &head, Leftovers::Commit)).await.expect("taken");
    assert_eq!(git(&bare, &["rev-parse", "agent/a"]), taken.head.0);
}

#[tokio::test]
async fn what_cannot_be_served_says_so() {
    let empty = tempfile::tempdir().expect("a temp folder");
    assert!(matches!(GixRepository::discover(empty.path()), Err(GitError::NotARepository(_))));

    git(empty.path(), &["init", "-q", "-b", "main"]);
    let unborn = GixRepository::discover(empty.path()).expect("found");
    assert!(matches!(unborn.resolve("HEAD").await, Err(GitError::Unborn)));
    assert!(matches!(unborn.resolve("nothing").await, Err(GitError::UnknownRevision(_))));

    let reftable = tempfile::tempdir().expect("a temp folder");
    git(reftable.path(), &["init", "-q", "--ref-format=reftable"]);
    match GixRepository::discover(reftable.path()) {
        Err(GitError::Unsupported(why)) => assert!(why.contains("reftable"), "{why}"),
        other => panic!("{other:?}"),
    }

    let fixture = Fixture::new();
    let other = Fixture::new();
    fixture.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        other.root.to_str().expect("text"),
        "sub",
    ]);
    match GixRepository::discover(&fixture.root.join("sub")) {
        Err(GitError::Unsupported(why)) => assert!(why.contains("submodule"), "{why}"),
        other => panic!("{other:?}"),
    }
    // The superproject itself is served; its submodule's folder is empty there, as git leaves it.
    fixture.git(&["commit", "-q", "-m", "with a submodule"]);
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert!(!taken.had_leftovers && taken.notes.is_empty(), "{taken:?}");
}

#[tokio::test]
async fn detached_shallow_and_other_hash_repositories_are_served() {
    let fixture = Fixture::new();
    let first = fixture.head();
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    fixture.git(&["checkout", "-q", "--detach", &first.0]);
    assert_eq!(fixture.repo.resolve("HEAD").await.expect("resolved"), first);

    let shallow = fixture.root.with_file_name("shallow");
    let url = format!("file://{}", fixture.root.display());
    fixture.git(&["clone", "-q", "--depth", "1", "-b", "main", &url, shallow.to_str().expect("text")]);
    let repo = GixRepository::discover(&shallow).expect("found");
    let base = repo.resolve("HEAD").await.expect("resolved");
    let request = WorktreeRequest { base: base.clone(), ..fixture.request("a") };
    let made = repo.ensure_worktree(&request).await.expect("made");
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    write(&made.path, "x.txt", "x");
    let taken = repo.take_result(&Fixture::result_request("a", &base, Leftovers::Commit)).await.expect("taken");
    assert_eq!(taken.commits, 1);

    let long = tempfile::tempdir().expect("a temp folder");
    git(long.path(), &["init", "-q", "--object-format=sha256"]);
    git(long.path(), &["commit", "-q", "--allow-empty", "-m", "first"]);
    let repo = GixRepository::discover(long.path()).expect("found");
    let base = repo.resolve("HEAD").await.expect("resolved");
    let made = repo.ensure_worktree(&WorktreeRequest { base, ..fixture.request("a") }).await.expect("made");
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn relative_paths_are_not_used() {
    let fixture = Fixture::new();
    fixture.git(&["config", "worktree.useRelativePaths", "true"]);
    let made = fixture.ensure("a").await;
    let link = std::fs::read_to_string(made.path.join(".git")).expect("read");
    assert_eq!(link, format!("gitdir: {}\n", made.git_dir.display()));
    assert_eq!(fixture.git(&["config", "core.repositoryFormatVersion"]), "0");
}

/// As from inside a hook: git exports variables that would lead us to another repository, index or identity.
#[test]
fn the_environment_steers_nothing() {
    let other = Fixture::new();
    let git_dir = other.root.join(".git");
    let run = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "git_worktree::asking_again_changes_nothing_and_keeps_work"])
        .args(["git_result::nothing_done_is_told_apart", "git_merge::contains_is_ancestry"])
        .env("GIT_DIR", &git_dir)
        .env("GIT_COMMON_DIR", &git_dir)
        .env("GIT_WORK_TREE", &other.root)
        .env("GIT_INDEX_FILE", git_dir.join("nothing"))
        .env("GIT_OBJECT_DIRECTORY", git_dir.join("objects"))
        .env("GIT_NAMESPACE", "elsewhere")
        .env("GIT_CEILING_DIRECTORIES", "/")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.bare")
        .env("GIT_CONFIG_VALUE_0", "true")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && text.contains("3 passed"), "{text}");
}

#[tokio::test]
async fn a_partial_clone_without_the_objects_says_what_to_do() {
    let fixture = Fixture::new();
    fixture.git(&["config", "uploadpack.allowFilter", "true"]);
    let partial = fixture.root.with_file_name("partial");
    let url = format!("file://{}", fixture.root.display());
    let to = partial.to_str().expect("text");
    fixture.git(&["clone", "-q", "--filter=blob:none", "--no-checkout", "-b", "main", &url, to]);
    let repo = GixRepository::discover(&partial).expect("found");
    let request = WorktreeRequest { base: repo.resolve("HEAD").await.expect("resolved"), ..fixture.request("a") };
    for _ in 0..2 {
        match repo.ensure_worktree(&request).await {
            Err(GitError::Unsupported(why)) => assert!(why.contains("--refetch"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    git(&partial, &["checkout", "-q", "main"]);
    let made = repo.ensure_worktree(&request).await.expect("the same request once they are there");
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_sparse_checkout_of_the_person_is_theirs_alone() {
    let fixture = Fixture::new();
    fixture.git(&["sparse-checkout", "set", "--sparse-index", "nothing"]);
    assert!(!fixture.root.join("src").exists());
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    assert!(made.path.join("src/lib.rs").exists());
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
    // An agent may make its own sparse: what is not checked out was not removed.
    git(&made.path, &["sparse-checkout", "set", "nothing"]);
    write(&made.path, "new.txt", "x");
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert_eq!(fixture.git(&["diff", "--name-status", &base.0, &taken.head.0]), "A\tnew.txt");
    assert_eq!(git(&made.path, &["status", "--porcelain"]), "");
}

/// Filters such as LFS stand in the person's own config, which only another process can have for a test.
#[test]
fn filters_of_the_person_run_and_missing_ones_stop_nothing() {
    for (clean, smudge) in [("tr a-z A-Z", "tr A-Z a-z"), ("no-such-filter", "no-such-filter")] {
        let home = tempfile::tempdir().expect("a temp folder");
        let config = format!("[filter \"case\"]\n\tclean = {clean}\n\tsmudge = {smudge}\n\trequired = true\n");
        write(home.path(), ".gitconfig", &config);
        let inner = if clean == "no-such-filter" { "missing_filter" } else { "present_filter" };
        write(home.path(), inner, "");
        let run = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "git_worktree::inner_filters"])
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .expect("runs");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        assert!(home.path().join("ran").exists());
    }
}

/// Does nothing but in the home that the test above makes.
#[tokio::test]
async fn inner_filters() {
    let Some(home) = std::env::home_dir() else { return };
    let (present, missing) = (home.join("present_filter").exists(), home.join("missing_filter").exists());
    if !present && !missing {
        return;
    }
    let fixture = Fixture::new();
    write(&fixture.root, ".gitattributes", "*.up filter=case\n");
    write(&fixture.root, "a.up", "STORED\n");
    // A git without that filter stores what is there.
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-q", "-m", "filtered"]);
    write(&home, ".config/git/ignore", "*.mine\n");
    let base = fixture.head();
    let made = fixture.ensure("a").await;
    write(&made.path, "ignored.mine", "");
    let content = std::fs::read_to_string(made.path.join("a.up")).expect("read");
    assert_eq!(content, if present { "stored\n" } else { "STORED\n" });
    let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
    assert!(!taken.had_leftovers);
    if present {
        write(&made.path, "b.up", "new\n");
        let taken = fixture.take("a", &base, Leftovers::Commit).await.expect("taken");
        assert_eq!(fixture.git(&["cat-file", "-p", &format!("{}:b.up", taken.head)]), "NEW");
    }
    write(&home, "ran", "");
}

#[tokio::test]
async fn tasks_that_start_together_do_not_meet() {
    let fixture = std::sync::Arc::new(Fixture::new());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..12 {
        let fixture = std::sync::Arc::clone(&fixture);
        tasks.spawn(async move { fixture.ensure(&format!("t{number}")).await });
    }
    let made = tasks.join_all().await;
    assert_eq!(made.len(), 12);
    for state in made {
        assert_eq!(git(&state.path, &["status", "--porcelain"]), "");
    }
    assert_eq!(fixture.git(&["worktree", "list"]).lines().count(), 13);
    let exclude = std::fs::read_to_string(fixture.root.join(".git/info/exclude")).expect("read");
    assert_eq!(exclude.matches("/.worktrees/").count(), 1);
    fixture.assert_healthy();
}

#[tokio::test]
async fn a_ref_lock_of_the_killed_is_cleared_and_one_in_use_is_not() {
    let fixture = Fixture::new();
    let lock = fixture.root.join(".git/refs/heads/agent/a.lock");
    write(&fixture.root, ".git/refs/heads/agent/a.lock", "");
    assert!(fixture.repo.ensure_worktree(&fixture.request("a")).await.is_err_and(|error| error.is_transient()));
    let held = std::fs::File::options().write(true).open(&lock).expect("open");
    let made = held.metadata().and_then(|meta| meta.modified()).expect("a time");
    held.set_modified(made - std::time::Duration::from_mins(1)).expect("set");
    fixture.ensure("a").await;
    assert!(!lock.exists());
}

/// Killed for real, again and again, at whatever step that is.
#[tokio::test]
async fn a_kill_at_any_moment_heals() {
    let fixture = Fixture::new();
    for number in 0..400 {
        write(&fixture.root, &format!("many/{}/{number}", number % 20), &"text\n".repeat(200));
    }
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-q", "-m", "many"]);
    write(&fixture.root, ".git/crash-test", "");
    let base = fixture.head();
    let mut interrupted = 0;
    for round in 0..16_u64 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "git_worktree::inner_crash"])
            .current_dir(&fixture.root)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("runs");
        tokio::time::sleep(std::time::Duration::from_millis(2 + round * 4)).await;
        child.kill().expect("killed");
        interrupted += usize::from(!child.wait().expect("ended").success());
        for attempt in 0.. {
            match fixture.ensure_again("a", &base).await {
                Ok(_) => break,
                // A ref's lock that is not stale yet.
                Err(error) if error.is_transient() && attempt < 40 => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                Err(error) => panic!("round {round}: {error:?}"),
            }
        }
        let path = fixture.worktree("a");
        assert_eq!(git(&path, &["status", "--porcelain"]), "", "round {round}");
        assert_eq!(git(&path, &["rev-parse", "--abbrev-ref", "HEAD"]), "agent/a");
        fixture.assert_healthy();
        fixture.repo.remove_worktree(Path::new(".worktrees/a")).await.expect("removed");
        fixture.git(&["branch", "-q", "-D", "agent/a"]);
    }
    assert!(interrupted > 0, "no kill came in time");
}

/// Does nothing but in the repository that the test above makes.
#[tokio::test]
async fn inner_crash() {
    let here = std::env::current_dir().expect("a folder");
    if !here.join(".git/crash-test").exists() {
        return;
    }
    let repo = GixRepository::discover(&here).expect("found");
    let base = repo.resolve("HEAD").await.expect("resolved");
    let request = WorktreeRequest {
        path: Path::new(".worktrees/a").to_owned(),
        branch: "refs/heads/agent/a".to_owned(),
        base,
        base_ref: "refs/orchestrate/p/a/base".to_owned(),
        branch_is_ours: true,
        lock_reason: "task a".to_owned(),
    };
    repo.ensure_worktree(&request).await.expect("made");
}

#[tokio::test]
async fn a_fresh_start_keeps_commits_and_uncommitted_work_and_can_be_repeated() {
    let fixture = Fixture::new();
    let request = fixture.request("a");
    let made = fixture.repo.ensure_worktree(&request).await.expect("made");
    let over = StartOverRequest {
        path: request.path.clone(),
        branch: request.branch.clone(),
        base: request.base.clone(),
        kept_ref: "refs/orchestrate/p/a/kept/1".into(),
        subject: "a: uncommitted".into(),
    };
    assert_eq!(fixture.repo.start_over(&over).await.expect("nothing to keep"), None);
    assert!(!made.path.exists());
    let made = fixture.repo.ensure_worktree(&request).await.expect("made anew");
    write(&made.path, "one.txt", "committed\n");
    git(&made.path, &["add", "-A"]);
    git(&made.path, &["commit", "-q", "-m", "work"]);
    let tip = fixture.git(&["rev-parse", "agent/a"]);
    write(&made.path, "two.txt", "not committed\n");
    write(&made.path, "noise.log", "ignored\n");
    let kept = fixture.repo.start_over(&over).await.expect("kept").expect("something");
    assert_eq!(fixture.git(&["show", &format!("{kept}:one.txt")]), "committed");
    assert_eq!(fixture.git(&["show", &format!("{kept}:two.txt")]), "not committed");
    assert_eq!(fixture.git(&["rev-parse", &format!("{kept}^")]), tip);
    assert!(!fixture.git(&["ls-tree", "-r", "--name-only", &kept]).contains("noise.log"));
    assert_eq!(fixture.git(&["rev-parse", "agent/a"]), request.base.0);
    assert_eq!(fixture.repo.start_over(&over).await.expect("again"), None);
    let made = fixture
        .repo
        .ensure_worktree(&WorktreeRequest { branch_is_ours: true, ..request })
        .await
        .expect("from the base");
    assert!(!made.path.join("one.txt").exists() && !made.path.join("two.txt").exists());
    assert_eq!(fixture.git(&["fsck", "--strict"]), "");
}
