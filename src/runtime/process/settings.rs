//! What the runtime is told at its making.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Variables of ours that every command gets: where its tools are, its language and the way to the network. Nothing
/// else of our environment reaches one.
const PASSED: &[&str] = &[
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
];

/// Where people keep what opens other doors, relative to their home.
const PRIVATE: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gcloud",
    ".config/gh",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".password-store",
    ".local/share/keyrings",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    "dev/claude/secrets",
];

/// Where the largest file that a command writes must end, unless told otherwise.
const FILE_SIZE: u64 = 16 << 30;

/// What the runtime is told at its making.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// Where the attempts' folders are: `<state dir>/process`. Made where it is missing.
    pub dir: PathBuf,
    /// This program, for the supervisors. A path that stays right when the file is replaced: `/proc/self/exe`.
    pub executable: PathBuf,
    /// What every command gets beneath its own environment; see [`ProcessSettings::passed`].
    pub env: BTreeMap<String, String>,
    /// What no command must see, where the file system seen from within can be chosen; see [`ProcessSettings::private`].
    pub hidden: Vec<PathBuf>,
    /// Run even where writes outside the worktree cannot be refused.
    pub allow_unconfined: bool,
    /// Bytes of the largest file that a command may write.
    pub file_size: u64,
    /// Means that are not to be used, although they are there.
    pub avoid: Avoid,
}

/// Means that are not to be used, although they are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Avoid {
    /// User, mount, pid, IPC and network namespaces.
    pub namespaces: bool,
    /// Landlock.
    pub landlock: bool,
    /// cgroups.
    pub cgroups: bool,
}

impl Avoid {
    /// From words with commas between: `namespaces`, `landlock`, `cgroups`. Others are passed over.
    pub fn of(words: &str) -> Self {
        let has = |word: &str| words.split(',').any(|other| other.trim() == word);
        Self { namespaces: has("namespaces"), landlock: has("landlock"), cgroups: has("cgroups") }
    }
}

impl ProcessSettings {
    /// With everything that is there, nothing passed and nothing hidden.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            executable: "/proc/self/exe".into(),
            env: BTreeMap::new(),
            hidden: Vec::new(),
            allow_unconfined: false,
            file_size: FILE_SIZE,
            avoid: Avoid::default(),
        }
    }

    /// What of our own environment is passed on: an allow-list.
    pub fn passed(vars: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
        vars.into_iter().filter(|(name, _)| PASSED.contains(&name.as_str()) || name.starts_with("LC_")).collect()
    }

    /// What is hidden of a person's home.
    pub fn private(home: &Path) -> Vec<PathBuf> {
        PRIVATE.iter().map(|path| home.join(path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_passed() {
        let vars = [("PATH", "/bin"), ("LC_ALL", "C"), ("AWS_SECRET_ACCESS_KEY", "x"), ("LD_PRELOAD", "x")];
        let passed = ProcessSettings::passed(vars.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(passed.keys().map(String::as_str).collect::<Vec<_>>(), ["LC_ALL", "PATH"]);
    }
}
