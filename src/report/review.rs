//! What the finished branches hold and how to merge them: text and JSON from collected facts. Pure. Nothing is merged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use schemars::JsonSchema;
use serde::Serialize;

use super::escape;
use super::view::plural;
use crate::git::{self, BranchSummary, CommitId};
use crate::status::{ResultKind, Status};

/// Paths that are listed before the rest is counted.
const PATHS: usize = 8;
/// Lines of an agent's report that are shown.
const LINES: usize = 6;

/// What git says of the completed tasks' branches.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewFacts {
    /// What they would be merged into, as a person named it.
    pub target: String,
    /// Its commit.
    pub target_commit: CommitId,
    /// Completed tasks, dependencies first.
    pub branches: Vec<BranchFacts>,
    /// Tasks that are not completed.
    pub open: Vec<(String, Status)>,
    /// Commits that no branch could take.
    pub kept: Vec<KeptCommits>,
    /// Some pairs of branches were not tried against each other, being too many.
    pub untried: bool,
}

/// Commits that stand beside the branches: results that were refused, histories that were rewritten or given up.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct KeptCommits {
    /// The task.
    pub task: String,
    /// The ref that keeps them.
    #[serde(rename = "ref")]
    pub full_ref: String,
    /// Its commit.
    pub commit: String,
    /// What became of the task, where the result was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Shows what they hold.
    pub log_command: String,
}

impl KeptCommits {
    /// Those of a ref, seen from what branches are merged into.
    pub fn new(task: &str, full_ref: &str, commit: &CommitId, message: Option<String>, target: &str) -> Self {
        Self {
            task: task.to_owned(),
            full_ref: full_ref.to_owned(),
            commit: commit.to_string(),
            message,
            log_command: format!("git log -p {}", shell_word(&format!("{target}..{full_ref}"))),
        }
    }
}

/// A changed path that somebody's machine runs once it is merged.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrustedPath {
    /// The path.
    pub path: String,
    /// Who runs it.
    pub run_by: String,
}

/// What git says of one branch.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchFacts {
    /// The task.
    pub task: String,
    /// Its title.
    pub title: Option<String>,
    /// Short name of its branch.
    pub branch: String,
    /// What its attempt left.
    pub result: Option<ResultKind>,
    /// Where it started.
    pub base: Option<CommitId>,
    /// Its tip; `None`: there is no such branch any more.
    pub tip: Option<CommitId>,
    /// What it holds beside its base.
    pub summary: Option<BranchSummary>,
    /// The target holds all of it.
    pub merged: bool,
    /// Tasks of this review whose tips it contains.
    pub contains: Vec<String>,
    /// Paths at which it conflicts with the target.
    pub conflicts: Vec<String>,
    /// Paths at which it conflicts with other tasks' branches that would be merged too.
    pub clashes: Vec<(String, Vec<String>)>,
    /// The beginning of what the agent left in its `result.md`.
    pub report: Option<String>,
    /// What could not be found out.
    pub notes: Vec<String>,
}

/// The JSON of `orchestrate review -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "Review of a plan")]
pub struct Review {
    /// The format's number: 1.
    pub format: u32,
    /// What the branches would be merged into.
    pub target: String,
    /// Its commit.
    pub target_commit: String,
    /// Completed tasks, dependencies first.
    pub branches: Vec<BranchReview>,
    /// Commands that merge everything, in order. orchestrate runs none of them.
    pub commands: Vec<String>,
    /// Tasks that are not completed, with their status.
    pub open: BTreeMap<String, Status>,
    /// Commits that no branch could take, of any task.
    pub kept: Vec<KeptCommits>,
    /// Some pairs of branches were not tried against each other, being too many.
    pub untried: bool,
}

/// One completed task's branch.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BranchReview {
    /// The task.
    pub task: String,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Short name of its branch.
    pub branch: String,
    /// What its attempt left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultKind>,
    /// Where it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Its tip; absent: there is no such branch any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Commits not in the base.
    pub commits: u64,
    /// Files that differ from the base.
    pub files: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Paths that differ, at most 1,000.
    pub paths: Vec<String>,
    /// Changed paths that somebody's machine runs once they are merged, at most 1,000.
    pub trusted: Vec<TrustedPath>,
    /// The beginning of what the agent left in its `result.md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// The target holds all of it already.
    pub merged: bool,
    /// Branches that hold all of it: merging one of them brings it too.
    pub contained_in: Vec<String>,
    /// Paths at which it conflicts with the target.
    pub conflicts: Vec<String>,
    /// Branches that it conflicts with, and where: whichever is merged second needs a hand.
    pub clashes: BTreeMap<String, Vec<String>>,
    /// Shows what it adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_command: Option<String>,
    /// Merges it; absent where there is nothing to merge or another branch brings it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_command: Option<String>,
    /// What could not be found out.
    pub notes: Vec<String>,
}

impl Review {
    /// Of what git says.
    pub fn of(facts: ReviewFacts) -> Self {
        let holders = holders(&facts.branches);
        let names: BTreeMap<String, String> =
            facts.branches.iter().map(|branch| (branch.task.clone(), branch.branch.clone())).collect();
        let target = shell_word(&facts.target);
        let review = |branch: BranchFacts| review(branch, &target, &holders, &names);
        let branches: Vec<BranchReview> = facts.branches.into_iter().map(review).collect();
        let merges = branches.iter().filter_map(|branch| branch.merge_command.clone());
        let mut commands: Vec<String> = merges.collect();
        if facts.target != "HEAD" && !commands.is_empty() {
            commands.insert(0, format!("git switch {target}"));
        }
        Self {
            format: 1,
            target: facts.target,
            target_commit: facts.target_commit.to_string(),
            branches,
            commands,
            open: facts.open.into_iter().collect(),
            kept: facts.kept,
            untried: facts.untried,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        const GOOD: Style = AnsiColor::Green.on_default();
        const BAD: Style = AnsiColor::Red.on_default();
        const WARN: Style = AnsiColor::Yellow.on_default();
        const NAME: Style = Style::new().bold();
        let mut text = String::new();
        let mut put = |line: std::fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("BUG: writing to a string cannot fail");
        };
        let target = escape::line(&self.target);
        let commit = self.target_commit.get(..12).unwrap_or(&self.target_commit);
        if self.branches.is_empty() {
            put(format_args!("No task is completed yet: there is nothing to review."));
        } else {
            let count = plural(self.branches.len(), "completed task", "completed tasks");
            put(format_args!("Review of {count} against {target} ({commit}), in merge order:\n"));
        }
        for (number, branch) in (1..).zip(&self.branches) {
            let title = branch.title.as_deref().map(|title| format!("  {}", escape::line(title))).unwrap_or_default();
            put(format_args!("{number}. {NAME}{}{NAME:#}{title}", branch.task));
            put(format_args!("   {}: {}", branch.branch, branch.contents()));
            if !branch.paths.is_empty() {
                put(format_args!("   {}", listed(&branch.paths)));
            }
            for (run_by, paths) in by_runner(&branch.trusted) {
                put(format_args!("   {WARN}look closely{WARN:#}: run by {run_by}: {}", listed(&paths)));
            }
            for line in branch.report.as_deref().map(beginning).unwrap_or_default() {
                put(format_args!("   | {line}"));
            }
            for note in &branch.notes {
                put(format_args!("   note: {}", escape::line(note)));
            }
            if branch.merged {
                put(format_args!("   {GOOD}{target} holds it already{GOOD:#}"));
            } else if !branch.contained_in.is_empty() {
                put(format_args!("   comes with {}", branch.contained_in.join(", ")));
            }
            if !branch.conflicts.is_empty() {
                put(format_args!("   {BAD}conflicts with {target}{BAD:#} in {}", listed(&branch.conflicts)));
            }
            for (other, paths) in &branch.clashes {
                put(format_args!(
                    "   {BAD}conflicts with {other}{BAD:#} in {}: whichever is merged second needs a hand",
                    listed(paths)
                ));
            }
            for command in branch.diff_command.iter().chain(&branch.merge_command) {
                put(format_args!("   $ {command}"));
            }
            put(format_args!(""));
        }
        if self.untried {
            put(format_args!("There are too many branches to try every pair of them for conflicts.\n"));
        }
        if !self.open.is_empty() {
            let open: Vec<String> = self.open.iter().map(|(task, status)| format!("{task} ({status})")).collect();
            put(format_args!("Not completed: {}", open.join(", ")));
        }
        for kept in &self.kept {
            put(format_args!("Kept beside the branches, of {}: {}", kept.task, kept.full_ref));
            if let Some(message) = &kept.message {
                put(format_args!("   {}", escape::line(message)));
            }
            put(format_args!("   $ {}", kept.log_command));
        }
        if !self.commands.is_empty() {
            put(format_args!("Nothing is merged by orchestrate. To merge everything, in this order:"));
            for command in &self.commands {
                put(format_args!("  {command}"));
            }
        } else if !self.branches.is_empty() {
            put(format_args!("There is nothing left to merge."));
        }
        text
    }
}

impl BranchReview {
    fn contents(&self) -> String {
        if self.head.is_none() {
            return "there is no such branch any more".to_owned();
        }
        let from = self.base.as_deref().map(|base| base.get(..12).unwrap_or(base));
        let from = from.map(|base| format!(", from {base}")).unwrap_or_default();
        if self.commits == 0 {
            let rest = match self.result {
                Some(ResultKind::Leftovers) => "; its worktree holds uncommitted changes",
                _ => "",
            };
            return format!("no commit of its own{from}{rest}");
        }
        let commits = plural(usize::try_from(self.commits).unwrap_or(usize::MAX), "commit", "commits");
        let files = plural(usize::try_from(self.files).unwrap_or(usize::MAX), "file", "files");
        format!("{commits}, {files}, +{} -{}{from}", self.insertions, self.deletions)
    }
}

/// For each task the tasks whose branches contain its branch, however indirectly.
fn holders(branches: &[BranchFacts]) -> BTreeMap<String, BTreeSet<String>> {
    let mut holders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // Dependents stand behind their dependencies, so that going backwards each holder's own holders are known.
    for branch in branches.iter().rev() {
        let above = holders.get(&branch.task).cloned().unwrap_or_default();
        for contained in &branch.contains {
            let entry = holders.entry(contained.clone()).or_default();
            entry.insert(branch.task.clone());
            entry.extend(above.iter().cloned());
        }
    }
    holders
}

fn review(
    facts: BranchFacts,
    target: &str,
    holders: &BTreeMap<String, BTreeSet<String>>,
    names: &BTreeMap<String, String>,
) -> BranchReview {
    let name = |task: &String| names.get(task).cloned().unwrap_or_else(|| task.clone());
    let above = holders.get(&facts.task);
    // Only those that nothing else contains: these are the ones that will be merged.
    let is_top = |task: &&String| holders.get(*task).is_none_or(BTreeSet::is_empty);
    let contained_in: Vec<String> = above.into_iter().flatten().filter(is_top).map(name).collect();
    let summary = facts.summary.unwrap_or_default();
    let exists = facts.tip.is_some();
    let has_work = exists && !facts.merged && summary.commits > 0;
    BranchReview {
        diff_command: has_work.then(|| format!("git diff {target}...{}", facts.branch)),
        merge_command: (has_work && contained_in.is_empty()).then(|| format!("git merge --no-ff {}", facts.branch)),
        clashes: facts.clashes.into_iter().map(|(task, paths)| (name(&task), paths)).collect(),
        task: facts.task,
        title: facts.title,
        branch: facts.branch,
        result: facts.result,
        base: facts.base.map(|commit| commit.to_string()),
        head: facts.tip.map(|commit| commit.to_string()),
        commits: summary.commits,
        files: summary.files,
        insertions: summary.insertions,
        deletions: summary.deletions,
        paths: summary.paths,
        trusted: summary.trusted.into_iter().filter_map(trusted).collect(),
        report: facts.report,
        merged: facts.merged,
        contained_in,
        conflicts: facts.conflicts,
        notes: facts.notes,
    }
}

/// The tasks whose branches no other one contains and that are not merged yet: those that would be merged.
pub fn tops(branches: &[BranchFacts]) -> Vec<usize> {
    let contained: BTreeSet<&String> = branches.iter().flat_map(|branch| &branch.contains).collect();
    let is_top = |branch: &BranchFacts| branch.tip.is_some() && !branch.merged && !contained.contains(&branch.task);
    (0..branches.len()).filter(|at| is_top(&branches[*at])).collect()
}

fn trusted(path: String) -> Option<TrustedPath> {
    git::runner(&path).map(|run_by| TrustedPath { path, run_by: run_by.to_owned() })
}

fn by_runner(trusted: &[TrustedPath]) -> BTreeMap<&str, Vec<&String>> {
    let mut by: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for one in trusted {
        by.entry(&one.run_by).or_default().push(&one.path);
    }
    by
}

/// The first lines of what an agent wrote for people.
fn beginning(report: &str) -> Vec<String> {
    let lines: Vec<&str> = report.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut shown: Vec<String> = lines.iter().take(LINES).map(|line| escape::line(line).into_owned()).collect();
    if lines.len() > LINES {
        shown.push("… (`orchestrate describe` shows the rest)".to_owned());
    }
    shown
}

fn listed<T: AsRef<str>>(paths: &[T]) -> String {
    let shown: Vec<_> = paths.iter().take(PATHS).map(|path| escape::line(path.as_ref())).collect();
    match paths.len().saturating_sub(PATHS) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// A word as a POSIX shell reads it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-@^~+:=,%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('-') {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(task: &str, contains: &[&str]) -> BranchFacts {
        let commit = |c: &str| Some(CommitId(c.repeat(40)));
        BranchFacts {
            task: task.to_owned(),
            title: None,
            branch: format!("agent/{task}"),
            result: Some(ResultKind::Changed),
            base: commit("a"),
            tip: commit("b"),
            summary: Some(BranchSummary {
                commits: 2,
                files: 1,
                insertions: 10,
                deletions: 3,
                paths: vec!["src/x.rs".to_owned()],
                trusted: Vec::new(),
            }),
            merged: false,
            contains: contains.iter().map(|&id| id.to_owned()).collect(),
            conflicts: Vec::new(),
            clashes: Vec::new(),
            report: None,
            notes: Vec::new(),
        }
    }

    fn facts(branches: Vec<BranchFacts>) -> ReviewFacts {
        ReviewFacts {
            target: "HEAD".to_owned(),
            target_commit: CommitId("c".repeat(40)),
            branches,
            open: Vec::new(),
            kept: Vec::new(),
            untried: false,
        }
    }

    #[test]
    fn only_branches_that_no_other_one_brings_are_merged() {
        let review = Review::of(facts(vec![
            branch("a", &[]),
            branch("b", &["a"]),
            branch("c", &["a"]),
            branch("d", &["b", "c"]),
            branch("e", &[]),
        ]));
        assert_eq!(review.commands, ["git merge --no-ff agent/d", "git merge --no-ff agent/e"]);
        assert_eq!(review.branches[0].contained_in, ["agent/d"]);
        assert_eq!(review.branches[1].diff_command.as_deref(), Some("git diff HEAD...agent/b"));
    }

    #[test]
    fn what_is_merged_empty_or_gone_needs_no_command() {
        let mut merged = branch("m", &[]);
        merged.merged = true;
        let mut empty = branch("e", &[]);
        empty.summary = Some(BranchSummary::default());
        let mut gone = branch("g", &[]);
        gone.tip = None;
        gone.summary = None;
        let review = Review::of(facts(vec![merged, empty, gone]));
        assert!(review.commands.is_empty());
        let text = anstream::adapter::strip_str(&review.text()).to_string();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn conflicts_are_foreseen_and_a_target_is_switched_to() {
        let mut one = branch("one", &[]);
        one.conflicts = vec!["README\u{1b}[2J".to_owned()];
        one.clashes = vec![("two".to_owned(), (0..10).map(|n| format!("f{n}")).collect())];
        let mut facts = facts(vec![one, branch("two", &[])]);
        facts.target = "my branch".to_owned();
        facts.open = vec![("three".to_owned(), Status::Failed)];
        let text = anstream::adapter::strip_str(&Review::of(facts).text()).to_string();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_hands_out_trust_what_was_refused_and_what_agents_say_is_shown() {
        let mut one = branch("one", &[]);
        let trusted = [".github/workflows/ci.yml", ".husky/pre-commit", "build.rs", "web/package.json"];
        one.summary.as_mut().expect("one").trusted = trusted.map(str::to_owned).to_vec();
        one.report = Some("# Done\n\nAll of it\u{1b}[2J.\n".to_owned() + &"more\n".repeat(9));
        let mut facts = facts(vec![one]);
        facts.open = vec![("two".to_owned(), Status::Failed)];
        facts.kept = vec![KeptCommits::new(
            "two",
            "refs/orchestrate/p/two/kept/1",
            &CommitId("d".repeat(40)),
            Some("the history of `agent/two` below its base was rewritten".to_owned()),
            "HEAD",
        )];
        let review = Review::of(facts);
        assert_eq!(review.branches[0].trusted.len(), 4);
        insta::assert_snapshot!(anstream::adapter::strip_str(&review.text()).to_string());
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        assert_eq!(shell_word("origin/main~2"), "origin/main~2");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word("-x"), "'-x'");
        assert_eq!(shell_word("$(reboot)"), "'$(reboot)'");
    }
}
