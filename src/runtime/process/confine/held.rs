//! What holds a command, in words. Pure.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What holds a command.
#[expect(clippy::struct_excessive_bools, reason = "each means holds or not by itself")]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Confinement {
    /// Landlock's version where it is in force: writes only to the worktree, its git directory and its tmp.
    pub landlock: Option<u32>,
    /// It has a file system view of its own: `/project`, all else read-only, private things hidden.
    pub mounts: bool,
    /// It sees and signals only its own processes, and all of them end with it.
    pub pids: bool,
    /// `network: none` can be had.
    pub network: bool,
    /// Made through a user namespace, without root.
    pub user_namespace: bool,
    /// It and its children gain no privilege by any program.
    pub no_new_privs: bool,
    /// What control groups limit: `cpus`, `memory`, `pids`.
    pub limits: Vec<String>,
    /// What does not hold, and why.
    pub notes: Vec<String>,
}

impl Confinement {
    /// Whether writes outside of what is the command's own are refused by anything.
    pub fn confines_writes(&self) -> bool {
        self.landlock.is_some() || self.mounts
    }
}

impl fmt::Display for Confinement {
    /// One line: what holds, then what does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let landlock = self.landlock.map(|version| format!("Landlock {version}"));
        let flag = |holds: bool, word: &str| holds.then(|| word.to_owned());
        let holds: Vec<String> = [
            landlock,
            flag(self.mounts, "own file system view"),
            flag(self.pids, "own processes"),
            flag(self.network, "network none"),
            flag(self.no_new_privs, "no new privileges"),
            flag(!self.limits.is_empty(), &format!("limits on {}", self.limits.join(", "))),
        ]
        .into_iter()
        .flatten()
        .collect();
        f.write_str(&if holds.is_empty() { "unconfined".to_owned() } else { holds.join(", ") })?;
        if self.notes.is_empty() { Ok(()) } else { write!(f, "; not: {}", self.notes.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_people() {
        assert_eq!(Confinement::default().to_string(), "unconfined");
        let some = Confinement {
            landlock: Some(7),
            mounts: true,
            limits: vec!["pids".into()],
            notes: vec!["memory: no".into()],
            ..Confinement::default()
        };
        assert_eq!(some.to_string(), "Landlock 7, own file system view, limits on pids; not: memory: no");
    }
}
