//! Worktrees that are copied from a template: as git would have made them, and never wrong for being quick.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use orchestrate::git::{CommitId, Repository};
use rstest::rstest;

use crate::git_support::{Fixture, git, write};

/// Enough that a template is worth it.
const FILES: usize = 300;

fn large() -> Fixture {
    let fixture = Fixture::new();
    for n in 0..FILES {
        write(&fixture.root, &format!("many/{}/f-{n}.txt", n % 7), &format!("file {n}\nsecond line\n"));
    }
    write(&fixture.root, "many-more.txt", "sorts between a folder and what is in it");
    write(&fixture.root, "a/deep/er/run.sh", "#!/bin/sh\n");
    write(&fixture.root, "a/empty", "");
    symlink("../../readme.md", fixture.root.join("a/deep/link")).expect("linked");
    symlink("nowhere", fixture.root.join("dangling")).expect("linked");
    fixture.git(&["add", "-A"]);
    fixture.git(&["update-index", "--chmod=+x", "a/deep/er/run.sh"]);
    fixture.git(&["commit", "-qm", "many"]);
    fixture.git(&["reset", "-q", "--hard"]);
    fixture
}

fn templates(fixture: &Fixture) -> Vec<PathBuf> {
    let folder = fixture.root.join(".git/orchestrate/templates");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("made").exists()).collect()
}

/// Takes an object away, so that nobody can check it out; gives back what brings it again.
fn hide(fixture: &Fixture, file: &str) -> impl Fn() {
    let id = fixture.git(&["rev-parse", &format!("HEAD:{file}")]);
    let path = fixture.root.join(".git/objects").join(&id[..2]).join(&id[2..]);
    let hidden = path.with_extension("hidden");
    std::fs::rename(&path, &hidden).expect("a loose object");
    move || std::fs::rename(&hidden, &path).expect("brought back")
}

/// As a person's own git sees it, by content and by the index's times alone.
fn assert_pristine(fixture: &Fixture, id: &str) {
    let path = fixture.worktree(id);
    // This one does not refresh: a file whose times are not those in the index is told.
    assert_eq!(git(&path, &["diff-files", "--raw"]), "", "{id}: the index's times");
    assert_eq!(git(&path, &["status", "--porcelain"]), "", "{id}");
    let fresh = fixture.root.parent().expect("a folder").join(format!("by-git-{id}"));
    git(&path, &["worktree", "add", "-q", "--detach", fresh.to_str().expect("text"), "HEAD"]);
    let (ours, theirs) = (listing(&path), listing(&fresh));
    fixture.git(&["worktree", "remove", "--force", fresh.to_str().expect("text")]);
    assert!(ours.len() > FILES);
    assert_eq!(ours, theirs, "{id}");
}

/// Every file with its mode and content.
fn listing(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut open = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().expect("there");
        let content = if meta.is_symlink() {
            path.read_link().expect("read").into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            open.extend(path.read_dir().expect("read").map(|entry| entry.expect("read").path()));
            Vec::new()
        } else {
            std::fs::read(&path).expect("read")
        };
        let rela = path.strip_prefix(root).expect("below").to_owned();
        if rela != Path::new(".git") {
            found.push((rela, meta.mode(), content));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn the_third_worktree_of_a_tree_is_a_copy() {
    let fixture = large();
    fixture.ensure("first").await;
    assert!(templates(&fixture).is_empty(), "a plan of one task pays nothing");
    fixture.ensure("second").await;
    assert_eq!(templates(&fixture).len(), 1);
    let bring_back = hide(&fixture, "many/3/f-3.txt");

    fixture.ensure("third").await;

    bring_back();
    for id in ["first", "second", "third"] {
        assert_pristine(&fixture, id);
    }
    // What an agent does to its files is its own.
    let file = "many/3/f-3.txt";
    assert_eq!(fixture.worktree("third").join(file).metadata().expect("there").nlink(), 1, "no hard link");
    write(&fixture.worktree("third"), file, "changed");
    write(&fixture.worktree("second"), file, "changed");
    fixture.ensure("fourth").await;
    assert_pristine(&fixture, "fourth");
    fixture.assert_healthy();
}

#[tokio::test]
async fn a_tree_that_is_nearly_the_same_is_copied_but_for_the_difference() {
    let fixture = large();
    write(&fixture.root, ".gitattributes", "*.dos text eol=crlf\n");
    write(&fixture.root, "many/line.dos", "one\ntwo\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "attributes"]);
    fixture.ensure("first").await;
    fixture.ensure("second").await;
    for (name, content) in [("many/1/f-1.txt", "other"), ("new/er.dos", "a\nb\n"), ("many/line.dos", "one\nthree\n")] {
        write(&fixture.root, name, content);
    }
    fixture.git(&["rm", "-q", "many/2/f-2.txt", "dangling"]);
    fixture.git(&["update-index", "--chmod=+x", "many/4/f-4.txt"]);
    std::fs::remove_file(fixture.root.join("a/empty")).expect("removed");
    symlink("deep", fixture.root.join("a/empty")).expect("a file becomes a link");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "nearly"]);
    fixture.git(&["reset", "-q", "--hard"]);
    let bring_back = hide(&fixture, "many/3/f-3.txt");

    fixture.ensure("third").await;

    bring_back();
    assert_pristine(&fixture, "third");
    assert_eq!(std::fs::read(fixture.worktree("third").join("many/line.dos")).expect("read"), b"one\r\nthree\r\n");

    // Other attributes have other files look different: nothing is taken from the template.
    write(&fixture.root, ".gitattributes", "*.dos text eol=crlf\n*.txt text eol=crlf\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "other attributes"]);
    fixture.ensure("fourth").await;
    let text = std::fs::read(fixture.worktree("fourth").join("many/3/f-3.txt")).expect("read");
    assert_eq!(text, b"file 3\r\nsecond line\r\n");
    assert_eq!(git(&fixture.worktree("fourth"), &["status", "--porcelain"]), "");
}

/// What a crash, a power cut or a hand may have left of a template.
#[rstest]
#[case::half_made("rm $T/made; rm $T/files/many/3/f-3.txt")]
#[case::made_before_the_machine_was_started(
    "sed -i 's/ .*/ another-boot/' $T/made; echo evil > $T/files/many/3/f-3.txt"
)]
#[case::a_changed_file("echo evil > $T/files/many/3/f-3.txt")]
#[case::a_file_of_the_same_length("printf 'FILE 3\\nsecond line\\n' > $T/files/many/3/f-3.txt")]
#[case::an_empty_file(": > $T/files/many/3/f-3.txt")]
#[case::a_missing_file("rm $T/files/many/3/f-3.txt")]
#[case::a_link("ln -sf /etc/passwd $T/files/many/3/f-3.txt")]
#[case::a_fifo("rm $T/files/many/3/f-3.txt; mkfifo $T/files/many/3/f-3.txt")]
#[case::a_folder_that_is_a_link("mv $T/files/many $T/elsewhere; ln -s $T/elsewhere $T/files/many")]
#[case::an_empty_index(": > $T/index")]
#[case::half_an_index("truncate -s 1000 $T/index")]
#[case::no_files("rm -rf $T/files")]
#[case::left_by_a_kill("cp -a $T $T/../new; cp -a $T $T/../old; rm -r $T")]
#[case::no_folder_to_write_to("rm -r $T/..; : > $T/..")]
#[tokio::test]
async fn a_template_that_is_not_as_it_was_made_is_not_used(#[case] damage: &str) {
    let fixture = large();
    fixture.ensure("first").await;
    fixture.ensure("second").await;
    let template = templates(&fixture).remove(0);
    let script = damage.replace("$T/..", template.parent().expect("a folder").to_str().expect("text"));
    let done = std::process::Command::new("sh").args(["-ec", &script]).env("T", &template).status().expect("a shell");
    assert!(done.success());
    for id in ["third", "fourth", "fifth"] {
        fixture.ensure(id).await;
        assert_pristine(&fixture, id);
    }
}

#[tokio::test]
async fn settings_that_change_how_files_look_have_templates_of_their_own_and_these_are_few() {
    let fixture = large();
    for (n, value) in ["input", "false", "input", "false", "true"].into_iter().enumerate() {
        fixture.git(&["config", "core.autocrlf", value]);
        // A setting that is new each time.
        fixture.git(&["config", "core.pager", &format!("less -{n}")]);
        for id in 0..3 {
            fixture.ensure(&format!("t-{n}-{id}")).await;
        }
        assert!(!templates(&fixture).is_empty() && templates(&fixture).len() <= 2);
    }
    assert_eq!(git(&fixture.worktree("t-4-2"), &["status", "--porcelain"]), "");
    let bytes = fixture.repo.remove_templates(true).await.expect("looked");
    assert!(bytes > 10_000 && !templates(&fixture).is_empty());
    assert_eq!(fixture.repo.remove_templates(false).await.expect("removed"), bytes);
    assert!(templates(&fixture).is_empty());
    assert_eq!(fixture.repo.remove_templates(false).await.expect("removed"), 0);
}

#[tokio::test]
async fn what_a_filter_makes_is_never_kept() {
    let fixture = large();
    write(&fixture.root, ".gitattributes", "*.bin filter=lfs\n");
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "-qm", "filtered"]);
    for id in ["a", "b", "c"] {
        fixture.ensure(id).await;
    }
    assert!(templates(&fixture).is_empty());
}

#[tokio::test]
async fn worktrees_that_are_made_at_once_are_all_right() {
    let fixture = large();
    let ids: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let made = futures::future::join_all(ids.iter().map(|id| fixture.ensure(id))).await;
    assert_eq!(made.len(), 12);
    // Of those that learn at the same moment one does.
    fixture.ensure("later").await;
    assert_eq!(templates(&fixture).len(), 1);
    let base: CommitId = fixture.head();
    for id in &ids {
        assert_pristine(&fixture, id);
        assert_eq!(fixture.ensure_again(id, &base).await.expect("found").tip, base);
    }
}
