//! Puts the commit and its date into the version of an optimised build. A development build goes without, so that a commit does not
//! cause everything to be built again.

#![expect(clippy::disallowed_methods, reason = "a build script is told everything by its environment")]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = if release { commit() } else { None };
    let version = commit.map_or_else(|| version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo::rustc-env=ORCHESTRATE_VERSION={version}");
}

/// The short commit that is checked out, marked where tracked files differ from it. `None` without git or outside of a
/// repository, as in a source archive.
fn commit() -> Option<String> {
    // Inside of a vendored tree the repository found would be another one's.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if std::fs::canonicalize(top).ok()? != std::fs::canonicalize(std::env::var_os("CARGO_MANIFEST_DIR")?).ok()? {
        return None;
    }
    for path in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", path]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // In UTC, so that the same commit gives the same program everywhere.
    let date = git(&["log", "-1", "--date=format-local:%Y-%m-%d", "--format=%cd", "HEAD"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|changes| changes.is_empty());
    Some(if clean { format!("{commit} {date}") } else { format!("{commit}-dirty {date}") })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).env("TZ", "UTC").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
