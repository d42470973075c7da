//! Which repositories `run` serves, where it serves several.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::world::{PLAN_FILE, SPEC_FILE};
use crate::error::{Kind, Report};

/// Flags that name them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Several repositories")]
pub(super) struct ReposFlags {
    /// Serve the repositories that stand in this file, a folder or a pattern a line; read again when it changes
    #[arg(long, value_name = "FILE", env = "ORCHESTRATE_REPOS_FILE", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    repos_file: Option<PathBuf>,

    /// Serve every repository with a plan whose folder fits this pattern, such as `/srv/*`; also those that come later
    #[arg(long, value_name = "PATTERN")]
    repos: Vec<String>,
}

/// Where they are looked for.
#[derive(Debug)]
pub(super) struct Repositories {
    folders: Vec<PathBuf>,
    file: Option<PathBuf>,
    patterns: Vec<String>,
}

impl ReposFlags {
    /// `folders` are those of `-C`; `None`: only one repository is meant.
    pub(super) fn several(&self, folders: &[PathBuf]) -> Option<Repositories> {
        if folders.len() < 2 && self.repos_file.is_none() && self.repos.is_empty() {
            return None;
        }
        Some(Repositories { folders: folders.to_owned(), file: self.repos_file.clone(), patterns: self.repos.clone() })
    }
}

impl Repositories {
    /// Those that are there now, each once, in the order of their paths. A folder that is named is given whatever is in it,
    /// so that what is wrong with it is told; of a pattern's folders those that have a plan.
    pub(super) fn list(&self) -> Result<BTreeSet<PathBuf>, Report> {
        let mut found = BTreeSet::new();
        let mut name = |folder: &Path| found.insert(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()));
        for folder in &self.folders {
            name(folder);
        }
        let mut patterns = self.patterns.clone();
        if let Some(file) = &self.file {
            let text = std::fs::read_to_string(file).map_err(|error| {
                let mut report = Report::new(Kind::Environment, format!("cannot read {}", file.display()));
                report.causes = vec![error.to_string()];
                report
            })?;
            let base = file.parent().unwrap_or(Path::new(""));
            for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let path = base.join(line);
                if line.contains(['*', '?', '[']) {
                    patterns.push(path.to_string_lossy().into_owned());
                } else {
                    name(&path);
                }
            }
        }
        for pattern in &patterns {
            let paths = glob::glob(pattern)
                .map_err(|error| Report::new(Kind::Usage, format!("`{pattern}` is no pattern: {}", error.msg)))?;
            // What cannot be read cannot be served either.
            let has_plan = |folder: &PathBuf| {
                folder.join(".git").exists() && [PLAN_FILE, SPEC_FILE].iter().any(|file| folder.join(file).exists())
            };
            for folder in paths.filter_map(Result::ok).filter(has_plan) {
                name(&folder);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_lines_and_patterns_give_each_repository_once() {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = dir.path().canonicalize().expect("there");
        for (folder, has_plan) in [("a", true), ("b", true), ("c", false)] {
            std::fs::create_dir_all(root.join(folder).join(".git")).expect("makes");
            if has_plan {
                std::fs::write(root.join(folder).join(PLAN_FILE), "{}").expect("writes");
            }
        }
        let flags = ReposFlags { repos_file: Some(root.join("list")), repos: vec![format!("{}/*", root.display())] };
        std::fs::write(root.join("list"), "# ours\n\n  a\n/no/such\n?\n").expect("writes");
        let listed = flags.several(&[root.join("a/../a")]).expect("several").list().expect("lists");
        let expected: BTreeSet<PathBuf> = [root.join("a"), root.join("b"), "/no/such".into()].into();
        assert_eq!(listed, expected);
        std::fs::remove_file(root.join("list")).expect("removes");
        flags.several(&[]).expect("several").list().expect_err("the file is gone");
        let one = ReposFlags { repos_file: None, repos: Vec::new() };
        assert!(one.several(&[root.join("a")]).is_none());
    }
}
