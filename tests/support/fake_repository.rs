//! A repository in memory: commits as a graph of ids, refs, worktrees. Stricter than git: what our code must never ask
//! is noted as a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use orchestrate::git::{
    AccessRequest, BranchResult, BranchSummary, CommitId, GitAccessPlan, GitError, MergeHead, MergeOutcome, Repository,
    RepositoryLayout, ResultRequest, StartOverRequest, WorktreeRequest, WorktreeState,
};

/// The repository. Clones are the same one.
#[derive(Clone)]
pub struct FakeRepository {
    layout: Arc<RepositoryLayout>,
    state: Arc<Mutex<State>>,
}

type Work = Arc<dyn Fn(&Path) -> Effort + Send + Sync>;

/// What an agent left, by its attempt's folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Commits.
    pub commits: u64,
    /// Uncommitted changes.
    pub dirty: bool,
}

struct State {
    parents: BTreeMap<CommitId, Vec<CommitId>>,
    refs: BTreeMap<String, CommitId>,
    worktrees: BTreeMap<PathBuf, String>,
    conflicts: BTreeSet<(String, String)>,
    work: Work,
    /// Results that were taken in, by attempt folder.
    taken: BTreeMap<PathBuf, BranchResult>,
    /// Every commit that a ref ever named.
    named: BTreeSet<CommitId>,
    violations: Vec<String>,
    /// The next merge is taken away by a `git gc` before anything holds it.
    prunes: bool,
    pruned: BTreeSet<CommitId>,
}

/// FNV-1a, so that equal inputs give equal ids on every machine.
pub fn digest(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

impl FakeRepository {
    /// One commit on `main`, below `root`.
    pub fn new(root: &str) -> Self {
        let root = PathBuf::from(root);
        let git_dir = root.join(".git");
        let layout = RepositoryLayout { common_dir: git_dir.clone(), git_dir, root, uid: 1000, gid: 1000 };
        let mut state = State {
            parents: BTreeMap::new(),
            refs: BTreeMap::new(),
            worktrees: BTreeMap::new(),
            conflicts: BTreeSet::new(),
            work: Arc::new(|_| Effort { commits: 1, dirty: false }),
            taken: BTreeMap::new(),
            named: BTreeSet::new(),
            violations: Vec::new(),
            prunes: false,
            pruned: BTreeSet::new(),
        };
        let first = state.commit(&[], "first");
        state.named.insert(first.clone());
        state.refs.insert("refs/heads/main".to_owned(), first);
        Self { layout: Arc::new(layout), state: Arc::new(Mutex::new(state)) }
    }

    /// Has a `git gc --prune=now` come right after the next merge.
    pub fn prune_next_merge(&self) {
        self.lock().prunes = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what agents leave.
    pub fn script(&self, work: impl Fn(&Path) -> Effort + Send + Sync + 'static) {
        self.lock().work = Arc::new(work);
    }

    /// Two tasks' work no longer merges.
    pub fn conflict(&self, one: &str, other: &str) {
        self.lock().conflicts.insert((one.to_owned(), other.to_owned()));
    }

    /// A person commits on `main`.
    pub fn human_commit(&self, label: &str) {
        let mut state = self.lock();
        let tip = state.refs["refs/heads/main"].clone();
        let new = state.commit(&[tip], label);
        state.set_ref("refs/heads/main", &new);
    }

    /// A person deletes a worktree's folder.
    pub fn human_delete_worktree(&self, task: &str) {
        self.lock().worktrees.remove(&Path::new(".worktrees").join(task));
    }

    /// What our code asked and never may, and commits that a ref named once and none reaches now.
    pub fn violations(&self) -> Vec<String> {
        let state = self.lock();
        let mut all = state.violations.clone();
        let mut reachable = BTreeSet::new();
        for tip in state.refs.values() {
            state.reach(tip, &mut reachable);
        }
        all.extend(state.named.difference(&reachable).map(|lost| format!("commit {lost} is reachable no more")));
        all
    }

    /// All refs, for comparing.
    pub fn refs(&self) -> BTreeMap<String, CommitId> {
        self.lock().refs.clone()
    }
}

impl State {
    fn commit(&mut self, parents: &[CommitId], label: &str) -> CommitId {
        let ids: Vec<&str> = parents.iter().map(|id| id.0.as_str()).chain([label]).collect();
        let id = CommitId(format!("{:016x}{:024x}", digest(&ids), digest(&[label])));
        self.parents.insert(id.clone(), parents.to_vec());
        id
    }

    fn reach(&self, tip: &CommitId, into: &mut BTreeSet<CommitId>) {
        let mut open = vec![tip.clone()];
        while let Some(id) = open.pop() {
            if into.insert(id.clone()) {
                open.extend(self.parents.get(&id).cloned().unwrap_or_default());
            }
        }
    }

    fn contains(&self, descendant: &CommitId, ancestor: &CommitId) -> bool {
        let mut all = BTreeSet::new();
        self.reach(descendant, &mut all);
        all.contains(ancestor)
    }

    fn set_ref(&mut self, name: &str, to: &CommitId) {
        if let Some(old) = self.refs.get(name) {
            let forward = self.contains(to, old);
            if !forward {
                self.violations.push(format!("{name} moved back from {old} to {to}"));
            }
        }
        self.named.insert(to.clone());
        self.refs.insert(name.to_owned(), to.clone());
    }

    fn known(&mut self, id: &CommitId, what: &str) {
        if !self.parents.contains_key(id) {
            self.violations.push(format!("{what} names the unknown commit {id}"));
        }
    }

    fn judge(&mut self, path: &Path, branch: &str) {
        let task = path.strip_prefix(".worktrees").ok().and_then(Path::to_str).unwrap_or_default();
        if task.is_empty() || branch != format!("refs/heads/agent/{task}") {
            self.violations.push(format!("worktree {} for {branch}", path.display()));
        }
    }

    fn merge(&mut self, heads: &[MergeHead]) -> MergeOutcome {
        let mut left: Vec<&MergeHead> = Vec::new();
        for (at, head) in heads.iter().enumerate() {
            let is_contained = heads.iter().enumerate().any(|(other_at, other)| {
                let same = other.commit == head.commit;
                (same && other_at < at) || (!same && self.contains(&other.commit, &head.commit))
            });
            if !is_contained {
                left.push(head);
            }
        }
        if let [only] = left.as_slice() {
            return MergeOutcome::Commit(only.commit.clone());
        }
        for (at, head) in left.iter().enumerate() {
            let clash = |with: &&&MergeHead| {
                let (a, b) = (with.task.to_string(), head.task.to_string());
                self.conflicts.contains(&(a.clone(), b.clone())) || self.conflicts.contains(&(b, a))
            };
            if left[..at].iter().any(|with| clash(&with)) {
                let with = left[..at].iter().map(|head| head.task.clone()).collect();
                return MergeOutcome::Conflict { paths: vec!["same.txt".to_owned()], task: head.task.clone(), with };
            }
        }
        let parents: Vec<CommitId> = left.iter().map(|head| head.commit.clone()).collect();
        MergeOutcome::Commit(self.commit(&parents, "merge"))
    }

    fn ensure(&mut self, root: &Path, request: &WorktreeRequest) -> Result<WorktreeState, GitError> {
        self.judge(&request.path, &request.branch);
        if self.pruned.contains(&request.base) && !self.parents.contains_key(&request.base) {
            return Err(GitError::UnknownRevision(request.base.0.clone()));
        }
        self.known(&request.base, "a worktree's base");
        if !request.base_ref.starts_with("refs/orchestrate/") {
            self.violations.push(format!("base ref {}", request.base_ref));
        }
        let tip = match self.refs.get(&request.branch).cloned() {
            Some(tip) if !request.branch_is_ours && tip != request.base => {
                let branch = request.branch.trim_start_matches("refs/heads/").to_owned();
                return Err(GitError::ForeignBranch { branch, tip });
            }
            Some(tip) => tip,
            None => {
                self.set_ref(&request.branch, &request.base);
                request.base.clone()
            }
        };
        // A base of a later attempt may be another one; the old is kept by the branch that grew from it.
        self.named.insert(request.base.clone());
        self.refs.insert(request.base_ref.clone(), request.base.clone());
        self.worktrees.insert(request.path.clone(), request.branch.clone());
        let name = request.path.file_name().unwrap_or_default();
        let git_dir = root.join(".git/worktrees").join(name);
        Ok(WorktreeState { path: root.join(&request.path), git_dir, tip })
    }

    fn start_over(&mut self, request: &StartOverRequest) -> Option<String> {
        self.judge(&request.path, &request.branch);
        self.known(&request.base, "the base of a fresh start");
        let tip = self.refs.get(&request.branch).cloned()?;
        let kept = (!self.contains(&request.base, &tip)).then(|| {
            let name =
                (1..1_000).map(|n| format!("{}-{n}", request.kept_ref)).find(|name| !self.refs.contains_key(name));
            let name = name.expect("a free name");
            self.set_ref(&name, &tip);
            name
        });
        self.named.insert(request.base.clone());
        self.refs.insert(request.branch.clone(), request.base.clone());
        self.worktrees.remove(&request.path);
        kept
    }

    fn take(&mut self, root: &Path, request: &ResultRequest) -> Result<BranchResult, GitError> {
        self.judge(&request.path, &request.branch);
        self.known(&request.base, "a result's base");
        self.known(&request.start, "a result's start");
        let Some(attempt) = request.private.clone() else {
            self.violations.push(format!("a result of {} without a private folder", request.branch));
            return Err(GitError::WorktreeLost(root.join(&request.path)));
        };
        if let Some(taken) = self.taken.get(&attempt) {
            return Ok(taken.clone());
        }
        if !self.worktrees.contains_key(&request.path) {
            return Err(GitError::WorktreeLost(root.join(&request.path)));
        }
        let Some(mut tip) = self.refs.get(&request.branch).cloned() else {
            return Err(GitError::WorktreeLost(root.join(&request.path)));
        };
        if tip != request.start {
            self.violations.push(format!("the result of {} starts at {}, not at {tip}", request.branch, request.start));
        }
        let effort = (self.work)(&attempt);
        let left_over = u64::from(effort.dirty && request.leftovers == orchestrate::spec::Leftovers::Commit);
        for n in 0..effort.commits + left_over {
            tip = self.commit(&[tip], &format!("{} {n}", attempt.display()));
        }
        self.set_ref(&request.branch, &tip);
        let commits = effort.commits + left_over;
        let result = BranchResult { head: tip, commits, had_leftovers: effort.dirty, notes: Vec::new() };
        self.taken.insert(attempt, result.clone());
        Ok(result)
    }
}

#[async_trait]
impl Repository for FakeRepository {
    fn layout(&self) -> &RepositoryLayout {
        &self.layout
    }

    async fn resolve(&self, revision: &str) -> Result<CommitId, GitError> {
        let name = if revision == "HEAD" { "refs/heads/main".to_owned() } else { format!("refs/heads/{revision}") };
        self.lock().refs.get(&name).cloned().ok_or_else(|| GitError::UnknownRevision(revision.to_owned()))
    }

    async fn tip(&self, full_ref: &str) -> Result<Option<CommitId>, GitError> {
        Ok(self.lock().refs.get(full_ref).cloned())
    }

    async fn contains(&self, descendant: &CommitId, ancestor: &CommitId) -> Result<bool, GitError> {
        Ok(self.lock().contains(descendant, ancestor))
    }

    async fn merge(&self, heads: &[MergeHead]) -> Result<MergeOutcome, GitError> {
        let mut state = self.lock();
        let outcome = state.merge(heads);
        if let MergeOutcome::Commit(commit) = &outcome
            && !state.named.contains(commit)
            && std::mem::take(&mut state.prunes)
        {
            state.parents.remove(commit);
            state.pruned.insert(commit.clone());
        }
        Ok(outcome)
    }

    async fn start_over(&self, request: &StartOverRequest) -> Result<Option<String>, GitError> {
        Ok(self.lock().start_over(request))
    }

    async fn ensure_worktree(&self, request: &WorktreeRequest) -> Result<WorktreeState, GitError> {
        self.lock().ensure(&self.layout.root, request)
    }

    async fn open_access(&self, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
        let mut state = self.lock();
        state.known(&request.base, "an access's base");
        let path = request.worktree.path.strip_prefix(&self.layout.root).unwrap_or(&request.worktree.path).to_owned();
        if !state.worktrees.contains_key(&path) {
            return Err(GitError::WorktreeLost(request.worktree.path.clone()));
        }
        Ok(GitAccessPlan::default())
    }

    async fn take_result(&self, request: &ResultRequest) -> Result<BranchResult, GitError> {
        self.lock().take(&self.layout.root, request)
    }

    async fn summarize(&self, _base: &CommitId, _head: &CommitId) -> Result<BranchSummary, GitError> {
        Ok(BranchSummary::default())
    }

    async fn conflicts(&self, _target: &CommitId, _head: &CommitId) -> Result<Vec<String>, GitError> {
        Ok(Vec::new())
    }

    async fn remove_worktree(&self, worktree: &Path) -> Result<(), GitError> {
        let path = worktree.strip_prefix(&self.layout.root).unwrap_or(worktree).to_owned();
        self.lock().worktrees.remove(&path);
        Ok(())
    }
}
