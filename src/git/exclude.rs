//! What git should not see of ours in the person's work tree, without touching their `.gitignore`.

use std::io::Write;
use std::path::Path;

use std::sync::Mutex;

use super::contract::GitError;
use super::open::io;

/// Worktrees, and the plan file's lock and temporaries.
const PATTERNS: [&str; 3] = ["/.worktrees/", "/.agent-tasks.json.lock", "/.agent-tasks.json.tmp-*"];

/// Tasks that start together would each find the patterns missing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Adds what is missing to `info/exclude`; nothing is written where all is there.
pub(super) fn ensure(common_dir: &Path) -> Result<(), GitError> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = common_dir.join("info/exclude");
    let present = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io("read", &path)(error)),
    };
    let added = additions(&present);
    if added.is_empty() {
        return Ok(());
    }
    let info = common_dir.join("info");
    std::fs::create_dir_all(&info).map_err(io("make", &info))?;
    // Appended, so that whoever edits it at the same moment loses nothing.
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&path).map_err(io("open", &path))?;
    file.write_all(added.as_bytes()).map_err(io("write", &path))
}

fn additions(present: &[u8]) -> String {
    let has = |pattern: &str| present.split(|byte| *byte == b'\n').any(|line| line.trim_ascii() == pattern.as_bytes());
    let missing: Vec<_> = PATTERNS.iter().filter(|pattern| !has(pattern)).collect();
    let mut added = String::new();
    if !missing.is_empty() && !present.is_empty() && !present.ends_with(b"\n") {
        added.push('\n');
    }
    for pattern in missing {
        added.push_str(pattern);
        added.push('\n');
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_added_on_lines_of_its_own() {
        let all = "/.worktrees/\n/.agent-tasks.json.lock\n/.agent-tasks.json.tmp-*\n";
        assert_eq!(additions(b""), all);
        assert_eq!(additions(b"# mine"), format!("\n{all}"));
        assert_eq!(additions(all.as_bytes()), "");
        assert_eq!(additions(b"/.worktrees/\r\n*.o\n"), "/.agent-tasks.json.lock\n/.agent-tasks.json.tmp-*\n");
    }
}
