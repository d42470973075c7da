//! The private git directory of one attempt: its own refs, HEAD, index and config over the repository's objects, which it
//! reads at their host path and cannot write.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::admin;
use super::contract::{AccessRequest, GitAccessPlan, GitBind, GitError};
use super::jail::Jail;
use super::open::{GixRepository, Steer, io};
use super::{access, identity, own, refs};

/// Folder of the private git directory within the attempt's.
pub(super) const PRIVATE: &str = "git";
/// Settings of the repository that change how files and commits look; nothing that runs a program or reaches a network.
const COPIED: [&str; 10] = [
    "core.fileMode",
    "core.symlinks",
    "core.ignoreCase",
    "core.precomposeUnicode",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "i18n.commitEncoding",
    "merge.conflictStyle",
    "diff.algorithm",
];
/// Files larger than this are not copied.
const COPY_LIMIT: u64 = 16 * 1024 * 1024;

/// Makes the private git directory where it is missing, and tells how to mount it.
pub(super) fn open(git: &GixRepository, request: &AccessRequest) -> Result<GitAccessPlan, GitError> {
    let private = request.attempt_dir.join(PRIVATE);
    if is_missing(&private).map_err(io("look at", &private))? {
        admin::remove_tree(&private)?;
        make(git, request, &private)?;
    }
    let link = request.attempt_dir.join("dot-git");
    let content = [b"gitdir: ", private.as_os_str().as_bytes(), b"\n"].concat();
    admin::replace(&link, &content)?;
    let mut binds: Vec<_> =
        object_folders(&git.layout.common_dir)?.into_iter().map(|folder| access::same_path(&folder, true)).collect();
    binds.push(access::same_path(&private, false));
    binds.push(GitBind { source: link, target: request.mount_point.join(".git"), read_only: true });
    Ok(GitAccessPlan { binds, env: access::environment(git)? })
}

/// Whether there is nothing, or what a power cut left: empty files, and no object that an agent wrote.
fn is_missing(private: &Path) -> std::io::Result<bool> {
    let Some(jail) = Jail::open(private)? else { return Ok(true) };
    if jail.read("config", COPY_LIMIT)?.is_none_or(|bytes| !bytes.is_empty()) {
        return Ok(false);
    }
    let Some(objects) = jail.enter("objects")? else { return Ok(false) };
    let loose = objects.list(3)?.iter().any(|(name, _)| name != "info" && name != "pack");
    let packed = objects.enter("pack")?.map(|packs| packs.list(1)).transpose()?.is_some_and(|packs| !packs.is_empty());
    Ok(!loose && !packed)
}

/// Built beside and renamed, so that a half-made one is never taken for a whole.
fn make(git: &GixRepository, request: &AccessRequest, private: &Path) -> Result<(), GitError> {
    let fresh = request.attempt_dir.join("git.new");
    admin::remove_tree(&fresh)?;
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "logs/refs/heads"] {
        let path = fresh.join(folder);
        std::fs::create_dir_all(&path).map_err(io("make", &path))?;
    }
    let repo = git.common(Steer::Nothing)?;
    let put = |name: &str, bytes: &[u8]| admin::write_new(&fresh.join(name), bytes);
    put("HEAD", format!("ref: {}\n", request.branch).as_bytes())?;
    put("config", config(&repo).as_bytes())?;
    put("packed-refs", packed_refs(git, &repo, request)?.as_bytes())?;
    put("objects/info/alternates", &alternate_line(&git.layout.common_dir.join("objects")))?;
    put(
        "logs/HEAD",
        format!(
            "{} {} {} <{}> {}\n",
            repo.object_hash().null(),
            request.worktree.tip,
            identity::NAME,
            identity::EMAIL,
            identity::now_as_git()
        )
        .as_bytes(),
    )?;
    for (from, to) in [("info/exclude", "info/exclude"), ("shallow", "shallow")] {
        let path = git.layout.common_dir.join(from);
        match admin::read_regular(&path, COPY_LIMIT) {
            Ok(Some(bytes)) => put(to, &bytes)?,
            Ok(None) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("read", &path)(error)),
        }
    }
    let index = request.worktree.git_dir.join("index");
    let to = fresh.join("index");
    std::fs::copy(&index, &to).map_err(io("copy", &index))?;
    if let Some((uid, gid)) = request.owner {
        own::give(&fresh, uid, gid)?;
    }
    std::fs::rename(&fresh, private).map_err(io("make", private))
}

fn config(repo: &gix::Repository) -> String {
    let is_long = repo.object_hash() != gix::hash::Kind::Sha1;
    let mut text = format!(
        "[core]\n\trepositoryformatversion = {}\n\tbare = false\n\tlogallrefupdates = true\n[gc]\n\tautoDetach = false\n",
        u8::from(is_long)
    );
    if is_long {
        let _infallible = writeln!(text, "[extensions]\n\tobjectFormat = {}", repo.object_hash());
    }
    let snapshot = repo.config_snapshot();
    for key in COPIED {
        if let Some(value) = snapshot.string(key)
            && let Some((section, name)) = key.split_once('.')
            && value.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        {
            let _infallible = writeln!(text, "[{section}]\n\t{name} = {value}");
        }
    }
    text
}

/// The refs that the agent sees: its branch, those of its dependencies and the default branch.
fn packed_refs(git: &GixRepository, repo: &gix::Repository, request: &AccessRequest) -> Result<String, GitError> {
    let mut names: BTreeSet<String> = request.visible.iter().cloned().collect();
    names.insert(request.branch.clone());
    if let Ok(Some(line)) = admin::read_small(&git.layout.common_dir.join("HEAD"))
        && let Some(admin::Head::Branch(name)) = admin::Head::parse(&line)
    {
        names.insert(name);
    }
    let mut text = "# pack-refs with: sorted \n".to_owned();
    for name in names {
        if let refs::RefValue::Direct(id) = refs::read(repo, &name)? {
            let _infallible = writeln!(text, "{id} {name}");
        }
    }
    Ok(text)
}

/// The repository's objects and those that it borrows itself, which git follows from one to the next.
fn object_folders(common_dir: &Path) -> Result<Vec<PathBuf>, GitError> {
    let mut folders = vec![common_dir.join("objects")];
    let mut at = 0;
    while let Some(folder) = folders.get(at).cloned() {
        at += 1;
        let path = folder.join("info/alternates");
        let bytes = match admin::read_regular(&path, COPY_LIMIT) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(io("read", &path)(error)),
        };
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#') {
            let line = gix::bstr::BStr::new(line);
            let line = gix::quote::ansi_c::undo(line).map_or_else(|_| line.into(), |(text, _)| text);
            let target = folder.join(std::ffi::OsStr::from_bytes(&line));
            let Ok(target) = std::fs::canonicalize(target) else { continue };
            if !folders.contains(&target) {
                folders.push(target);
            }
        }
    }
    Ok(folders)
}

/// A path as `objects/info/alternates` has it; quoted where a newline would end it.
fn alternate_line(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    if !bytes.contains(&b'\n') {
        return [bytes, b"\n"].concat();
    }
    let mut line = vec![b'"'];
    for byte in bytes {
        match byte {
            b'\n' => line.extend(b"\\n"),
            b'"' | b'\\' => line.extend([b'\\', *byte]),
            other => line.push(*other),
        }
    }
    line.extend(b"\"\n");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternate_with_a_newline_stays_one_line() {
        assert_eq!(alternate_line(Path::new("/a b/\"c")), b"/a b/\"c\n");
        assert_eq!(alternate_line(Path::new("/a\nb\\\"")), b"\"/a\\nb\\\\\\\"\"\n");
    }
}
