//! Merges in memory against `git merge -s octopus` and `git merge-tree`.

use orchestrate::git::{CommitId, MergeHead, MergeOutcome, Repository};
use proptest::prelude::*;

use crate::git_support::{Fixture, git, task, try_git, write};

fn heads(commits: &[(&str, &CommitId)]) -> Vec<MergeHead> {
    commits.iter().map(|(id, commit)| MergeHead { task: task(id), commit: (*commit).clone() }).collect()
}

#[tokio::test]
async fn an_octopus_has_all_heads_as_parents_and_is_reproducible() {
    let fixture = Fixture::new();
    let a = fixture.commit_on("a", "main", &[("a.txt", "a")]);
    let b = fixture.commit_on("b", "main", &[("b.txt", "b")]);
    let c = fixture.commit_on("c", "main", &[("readme.md", "one\ntwo\nthree\nfour\n")]);
    let status = fixture.git(&["status", "--porcelain"]);
    let wanted = heads(&[("a", &a), ("b", &b), ("c", &c)]);
    let MergeOutcome::Commit(merged) = fixture.repo.merge(&wanted).await.expect("merged") else { panic!("conflict") };
    assert_eq!(fixture.git(&["log", "-1", "--format=%P", &merged.0]), format!("{a} {b} {c}"));
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%an <%ae>%n%B", &merged.0]).trim(),
        "orchestrate <orchestrate@localhost>\nMerge a, b and c"
    );
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%ct", &merged.0]),
        fixture.git(&["log", "-1", "--format=%ct", &c.0])
    );
    assert_eq!(
        fixture.git(&["ls-tree", "-r", "--name-only", &merged.0]),
        ".gitignore\na.txt\nb.txt\nreadme.md\nsrc/lib.rs"
    );
    assert_eq!(fixture.repo.merge(&wanted).await.expect("merged"), MergeOutcome::Commit(merged.clone()));
    assert_eq!(fixture.git(&["status", "--porcelain"]), status);
    fixture.git(&["update-ref", "refs/orchestrate/p/x/base", &merged.0]);
    fixture.assert_healthy();
}

#[tokio::test]
async fn contained_and_repeated_heads_drop_out() {
    let fixture = Fixture::new();
    let a = fixture.commit_on("a", "main", &[("a.txt", "a")]);
    let b = fixture.commit_on("b", "a", &[("b.txt", "b")]);
    let main = fixture.head();
    let once = |commits: &[(&str, &CommitId)]| heads(commits);
    for wanted in
        [once(&[("a", &a), ("b", &b)]), once(&[("b", &b), ("main", &main), ("a", &a)]), once(&[("b", &b), ("b2", &b)])]
    {
        assert_eq!(fixture.repo.merge(&wanted).await.expect("merged"), MergeOutcome::Commit(b.clone()));
    }
    let c = fixture.commit_on("c", "main", &[("c.txt", "c")]);
    let MergeOutcome::Commit(merged) =
        fixture.repo.merge(&once(&[("a", &a), ("c", &c), ("b", &b)])).await.expect("merged")
    else {
        panic!("conflict")
    };
    assert_eq!(fixture.git(&["log", "-1", "--format=%P", &merged.0]), format!("{c} {b}"));
}

#[tokio::test]
async fn a_conflict_names_paths_and_tasks_and_leaves_nothing() {
    let fixture = Fixture::new();
    let a = fixture.commit_on("a", "main", &[("a.txt", "a")]);
    let b = fixture.commit_on("b", "main", &[("readme.md", "b\n"), ("both", "1\n")]);
    let c = fixture.commit_on("c", "main", &[("readme.md", "c\n"), ("both", "2\n")]);
    let before = fixture.git(&["count-objects", "-v"]);
    let outcome = fixture.repo.merge(&heads(&[("a", &a), ("b", &b), ("c", &c)])).await.expect("tried");
    let paths = vec!["both".to_owned(), "readme.md".to_owned()];
    assert_eq!(
        outcome,
        MergeOutcome::Conflict { paths: paths.clone(), task: task("c"), with: vec![task("a"), task("b")] }
    );
    assert_eq!(fixture.git(&["count-objects", "-v"]), before);
    assert!(!fixture.root.join(".git/MERGE_HEAD").exists());
    assert_eq!(fixture.git(&["status", "--porcelain"]), "");
    assert_eq!(fixture.repo.conflicts(&b, &c).await.expect("compared"), paths);
    assert_eq!(fixture.repo.conflicts(&a, &c).await.expect("compared"), Vec::<String>::new());
    assert_eq!(fixture.repo.conflicts(&a, &fixture.head()).await.expect("compared"), Vec::<String>::new());
}

#[tokio::test]
async fn unrelated_histories_are_a_conflict_without_paths() {
    let fixture = Fixture::new();
    let main = fixture.head();
    let tree = fixture.git(&["rev-parse", "HEAD^{tree}"]);
    let other = CommitId(fixture.git(&["commit-tree", &tree, "-m", "orphan"]));
    let outcome = fixture.repo.merge(&heads(&[("a", &main), ("b", &other)])).await.expect("tried");
    assert_eq!(outcome, MergeOutcome::Conflict { paths: Vec::new(), task: task("b"), with: vec![task("a")] });
    assert!(fixture.repo.conflicts(&main, &other).await.is_err());
}

#[tokio::test]
async fn criss_cross_histories_merge_as_git_merges_them() {
    let fixture = Fixture::new();
    fixture.commit_on("a", "main", &[("a.txt", "a\n")]);
    fixture.commit_on("b", "main", &[("b.txt", "b\n")]);
    let tree = |ours: &str, theirs: &str| fixture.git(&["merge-tree", "--write-tree", ours, theirs]);
    let crossed = tree("a", "b");
    for (branch, first, second) in [("ab", "a", "b"), ("ba", "b", "a")] {
        let commit = fixture.git(&["commit-tree", &crossed, "-p", first, "-p", second, "-m", branch]);
        fixture.git(&["branch", branch, &commit]);
    }
    let ab = fixture.commit_on("ab", "main", &[("a.txt", "a\nab\n")]);
    let ba = fixture.commit_on("ba", "main", &[("b.txt", "b\nba\n")]);
    let MergeOutcome::Commit(merged) = fixture.repo.merge(&heads(&[("x", &ab), ("y", &ba)])).await.expect("merged")
    else {
        panic!("conflict")
    };
    assert_eq!(fixture.git(&["rev-parse", &format!("{merged}^{{tree}}")]), tree("ab", "ba"));
}

#[tokio::test]
async fn contains_is_ancestry() {
    let fixture = Fixture::new();
    let main = fixture.head();
    let a = fixture.commit_on("a", "main", &[("a.txt", "a")]);
    let b = fixture.commit_on("b", "main", &[("b.txt", "b")]);
    for (descendant, ancestor, wanted) in [(&a, &main, true), (&main, &a, false), (&a, &a, true), (&a, &b, false)] {
        assert_eq!(fixture.repo.contains(descendant, ancestor).await.expect("compared"), wanted);
    }
    assert_eq!(fixture.repo.tip("refs/heads/a").await.expect("read"), Some(a));
    assert_eq!(fixture.repo.tip("refs/heads/none").await.expect("read"), None);
}

/// What one branch does to a few files of eight lines.
#[derive(Debug, Clone)]
enum Edit {
    Line(usize, usize, u8),
    Remove(usize),
    Add(usize, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (0..4_usize, 0..8_usize, 0..3_u8).prop_map(|(file, line, text)| Edit::Line(file, line, text)),
        1 => (0..4_usize).prop_map(Edit::Remove),
        1 => (0..3_usize, 0..2_u8).prop_map(|(file, text)| Edit::Add(file, text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 20, ..ProptestConfig::default() })]
    /// Where git merges, we give its tree and parents; where we alone merge, git is the stricter one and says so.
    #[test]
    fn random_octopuses_agree_with_git(branches in prop::collection::vec(prop::collection::vec(edit(), 1..3), 2..5)) {
        let fixture = Fixture::new();
        for file in 0..4 {
            let lines: Vec<_> = (0..8).map(|line| format!("file {file} line {line}\n")).collect();
            write(&fixture.root, &format!("f{file}"), &lines.concat());
        }
        fixture.git(&["add", "-A"]);
        fixture.git(&["commit", "-q", "-m", "base"]);
        let mut commits = Vec::new();
        for (at, edits) in branches.iter().enumerate() {
            fixture.git(&["checkout", "-q", "-b", &format!("b{at}"), "main"]);
            for edit in edits {
                apply(&fixture, edit);
            }
            fixture.git(&["add", "-A"]);
            fixture.git(&["commit", "-q", "--allow-empty", "-m", &format!("b{at}")]);
            commits.push(fixture.head());
        }
        let names: Vec<_> = (0..branches.len()).map(|at| format!("t{at}")).collect();
        let wanted: Vec<_> = names.iter().map(String::as_str).zip(&commits).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("a runtime");
        let ours = runtime.block_on(fixture.repo.merge(&heads(&wanted))).expect("tried");
        fixture.git(&["checkout", "-q", "b0"]);
        let others: Vec<_> = (1..branches.len()).map(|at| format!("b{at}")).collect();
        let mut args = vec!["merge", "-q", "-s", if others.len() == 1 { "ort" } else { "octopus" }, "--no-ff", "-m", "m"];
        args.extend(others.iter().map(String::as_str));
        let merged = try_git(&fixture.root, &args).status.success();
        match ours {
            MergeOutcome::Commit(commit) if merged => {
                let tree = |rev: &str| git(&fixture.root, &["rev-parse", &format!("{rev}^{{tree}}")]);
                prop_assert_eq!(tree(&commit.0), tree("HEAD"));
            }
            MergeOutcome::Commit(_) => {}
            MergeOutcome::Conflict { paths, .. } => {
                prop_assert!(!merged, "git merged what we call a conflict in {:?}", paths);
            }
        }
    }
}

/// Few by default, since each makes a repository; as many as `PROPTEST_CASES` says.
fn cases() -> u32 {
    match ProptestConfig::default().cases {
        256 => 16,
        asked => asked,
    }
}

fn apply(fixture: &Fixture, edit: &Edit) {
    match edit {
        Edit::Line(file, line, text) => {
            let path = fixture.root.join(format!("f{file}"));
            let Ok(content) = std::fs::read_to_string(&path) else { return };
            let lines: Vec<_> = content
                .lines()
                .enumerate()
                .map(|(at, old)| if at == *line { format!("changed {text}") } else { old.to_owned() })
                .collect();
            std::fs::write(path, lines.join("\n") + "\n").expect("written");
        }
        Edit::Remove(file) => {
            let _gone = std::fs::remove_file(fixture.root.join(format!("f{file}")));
        }
        Edit::Add(file, text) => write(&fixture.root, &format!("new{file}"), &format!("{text}\n")),
    }
}
