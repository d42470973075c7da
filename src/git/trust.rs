//! Paths that, once merged, run on somebody's machine without being asked for: worth a look before a merge. Pure.

/// What makes a file run.
type Rule = (&'static str, &'static [&'static str]);

/// Who runs it, and by which names. A name without a slash counts in every folder; `x/` is everything below a folder `x`,
/// wherever that is; one that begins with a slash counts at the root only; a `*` stands for any characters but a slash.
const RULES: [Rule; 7] = [
    (
        "a CI service, with its secrets",
        &[
            "/.github/workflows/",
            "/.github/actions/",
            "action.yml",
            "action.yaml",
            "/.gitlab-ci.yml",
            "/.gitlab/ci/",
            "/.circleci/",
            "/.buildkite/",
            "/.woodpecker/",
            "/.woodpecker.yml",
            "/.drone.yml",
            "/.travis.yml",
            "/.forgejo/",
            "/.gitea/",
            "/azure-pipelines.yml",
            "/bitbucket-pipelines.yml",
            "Jenkinsfile",
        ],
    ),
    (
        "the shell or a tool manager, on entering the folder",
        &[".envrc", ".tool-versions", "mise.toml", ".mise.toml", ".mise/", ".nvmrc"],
    ),
    (
        "git, on what people do next",
        &[
            ".husky/",
            ".githooks/",
            ".pre-commit-config.yaml",
            "lefthook.yml",
            "lefthook.yaml",
            ".lefthook/",
            ".gitattributes",
            ".gitmodules",
            ".lfsconfig",
        ],
    ),
    (
        "a coding agent, as instructions, hooks or tools",
        &[
            ".claude/",
            "CLAUDE.md",
            "AGENTS.md",
            "GEMINI.md",
            ".mcp.json",
            ".cursor/",
            ".cursorrules",
            ".codex/",
            ".gemini/",
            ".opencode/",
            "opencode.json",
            "/.github/copilot-instructions.md",
            ".agent-tasks.json",
            "agent-tasks.yaml",
        ],
    ),
    (
        "an editor, on opening the folder",
        &[
            ".vscode/",
            ".idea/",
            ".devcontainer/",
            ".devcontainer.json",
            "*.code-workspace",
            ".vimrc",
            ".exrc",
            ".nvim.lua",
            ".dir-locals.el",
        ],
    ),
    (
        "a build, a test run or an install",
        &[
            "Makefile",
            "GNUmakefile",
            "makefile",
            "*.mk",
            "CMakeLists.txt",
            "justfile",
            "Justfile",
            "Taskfile.yml",
            "Rakefile",
            "build.rs",
            ".cargo/",
            "rust-toolchain.toml",
            "package.json",
            ".npmrc",
            ".yarnrc.yml",
            "*.config.js",
            "*.config.ts",
            "*.config.mjs",
            "setup.py",
            "conftest.py",
            "pyproject.toml",
            "noxfile.py",
            "tox.ini",
            "sitecustomize.py",
            "*.pth",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "gradlew",
            "gradle-wrapper.properties",
            "mvnw",
            "pom.xml",
            ".mvn/",
            "Gemfile",
            "*.gemspec",
            "Dockerfile",
            "Containerfile",
            "compose.yaml",
            "docker-compose.yml",
            "flake.nix",
            "default.nix",
            "shell.nix",
        ],
    ),
    (
        "a package manager, fetching code from where it says",
        &["*.lock", "package-lock.json", "pnpm-lock.yaml", "go.sum", "requirements.txt"],
    ),
];

/// Who would run a changed path once it is merged; `None`: nobody that is known to do so by its name.
pub fn runner(path: &str) -> Option<&'static str> {
    let matches = |rule: &&Rule| rule.1.iter().any(|pattern| is_match(pattern, path));
    RULES.iter().find(matches).map(|(who, _)| *who)
}

fn is_match(pattern: &str, path: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    match (pattern.strip_prefix('/'), pattern.strip_suffix('/')) {
        (Some(rooted), Some(_)) => path.starts_with(rooted),
        (Some(rooted), None) => path == rooted,
        (None, Some(folder)) => path.split('/').rev().skip(1).any(|part| part == folder),
        (None, None) => match pattern.split_once('*') {
            Some((before, after)) => {
                name.len() > before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
            }
            None => name == pattern,
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(".github/workflows/ci.yml", "CI")]
    #[case("docs/.github/workflows/ci.yml", "")]
    #[case(".github/CODEOWNERS", "")]
    #[case("sub/action.yml", "CI")]
    #[case("a/b/.envrc", "shell")]
    #[case(".husky/pre-commit", "git")]
    #[case("x/.husky/_/husky.sh", "git")]
    #[case("husky/pre-commit", "")]
    #[case(".claude/settings.json", "agent")]
    #[case("sub/CLAUDE.md", "agent")]
    #[case("claude.md", "")]
    #[case(".vscode/tasks.json", "editor")]
    #[case("crates/x/build.rs", "build")]
    #[case("src/build.rs.txt", "")]
    #[case("web/vite.config.ts", "build")]
    #[case(".config.ts", "")]
    #[case("Cargo.lock", "package manager")]
    #[case("src/lib.rs", "")]
    fn what_runs_by_itself_is_known_by_its_name(#[case] path: &str, #[case] who: &str) {
        match runner(path) {
            Some(found) => assert!(!who.is_empty() && found.contains(who), "{path}: {found}"),
            None => assert_eq!(who, "", "{path}"),
        }
    }

    #[test]
    fn the_list_is_documented() {
        let page = include_str!("../../specs/git.md");
        for (who, patterns) in RULES {
            let row = page.lines().find(|line| line.starts_with(&format!("| {who} |")));
            let row = row.unwrap_or_else(|| panic!("specs/git.md has no row for {who}"));
            let named = patterns.iter().map(|pattern| format!("`{pattern}`")).collect::<Vec<_>>().join(", ");
            assert!(row.contains(&named), "{row}\n{named}");
        }
    }
}
