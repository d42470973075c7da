//! Task ids: the one kind of name that reaches git refs, paths and container names.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest id, in bytes: leaves room for prefix, instance and attempt in a container's name (a DNS label's size).
pub const MAX_LEN: usize = 63;

/// A valid task id: `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`, without `..`, not ending in `.` or `.lock`.
///
/// Cheap to clone. Two ids that differ only in case cannot stand in one task set, since file systems may fold case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TaskId(Arc<str>);

/// Why a text is no task id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing there.
    #[error("an id may not be empty")]
    Empty,
    /// Longer than [`MAX_LEN`].
    #[error("an id has at most 63 characters")]
    TooLong,
    /// The first character is not a letter or digit.
    #[error("an id starts with a letter or a digit")]
    BadStart,
    /// A character outside of the alphabet; the first such one.
    #[error("an id consists of letters, digits, `.`, `_` and `-` of ASCII; {0:?} is none of them")]
    BadCharacter(char),
    /// `..`, a final `.` or a final `.lock`: git refuses these in a ref.
    #[error("an id may not contain `..` nor end in `.` or `.lock`, which git refuses in a branch name")]
    BadRef,
    /// A name that git or a file system gives a meaning of its own.
    #[error("this name has a meaning of its own for git or for file systems")]
    Reserved,
}

/// `HEAD` and Windows' device names, compared without regard to case and extension.
const RESERVED: &[&str] = &["head", "con", "prn", "aux", "nul"];

impl TaskId {
    /// Checks a text.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn new(text: &str) -> Result<Self, IdError> {
        let Some(first) = text.chars().next() else { return Err(IdError::Empty) };
        if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
            return Err(IdError::BadCharacter(bad));
        }
        if !first.is_ascii_alphanumeric() {
            return Err(IdError::BadStart);
        }
        if text.len() > MAX_LEN {
            return Err(IdError::TooLong);
        }
        let lower = text.to_ascii_lowercase();
        if text.contains("..") || text.ends_with('.') || lower.rsplit_once('.').is_some_and(|(_, end)| end == "lock") {
            return Err(IdError::BadRef);
        }
        let stem = lower.split('.').next().unwrap_or(&lower);
        if RESERVED.contains(&stem) {
            return Err(IdError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for TaskId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for TaskId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_git_and_docker_accept() {
        for good in ["a", "A-1", "x.y_z", "0", &"a".repeat(63), "locker", "x.lockx", "context"] {
            assert!(TaskId::new(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn refuses_paths_options_refs_and_control_characters() {
        for bad in [
            "",
            "../../x",
            "/abs",
            "a/b",
            "--upload-pack=touch x",
            "-x",
            ".git",
            "a.lock",
            "a.LOCK",
            "a..b",
            "HEAD",
            "@",
            "con",
            "NUL.txt",
            "a\0",
            "a\n",
            "a\t",
            "a\u{1b}[0m",
            "a.",
            "\u{430}",
            &"a".repeat(64),
            &"a".repeat(100_000),
        ] {
            assert!(TaskId::new(bad).is_err(), "{bad:?}");
        }
    }
}
