//! Secrets: looked up at launch, handed over, never stored.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::spec::SecretSpec;

/// No token or key is larger, in bytes.
const LARGEST: u64 = 64 << 10;

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// The value itself, for the one place that hands it over and for redaction.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// Where values come from: our environment as it was at start, and files.
#[derive(Debug, Clone, Default)]
pub struct SecretSource {
    vars: BTreeMap<String, SecretValue>,
    home: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

/// A secret that has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingSecret {
    /// What the agent would read.
    pub name: String,
    /// Where it was looked for, and why it is not there.
    pub tried: String,
}

impl SecretSource {
    /// From a snapshot of the environment and the user's home.
    pub fn new(vars: impl IntoIterator<Item = (String, String)>, home: Option<PathBuf>) -> Self {
        Self {
            vars: vars.into_iter().map(|(name, value)| (name, SecretValue(value))).collect(),
            home,
            folders: Vec::new(),
        }
    }

    /// With folders in memory from which secrets may be handed over as files; the first that is one is taken.
    #[must_use]
    pub fn with_folders(mut self, folders: Vec<PathBuf>) -> Self {
        self.folders = folders;
        self
    }

    /// Folders in memory from which secrets may be handed over as files.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// What is unsafe about the files from which secrets are taken, each told once.
    pub fn warnings<'a>(&self, specs: impl IntoIterator<Item = &'a SecretSpec>) -> Vec<String> {
        let mut told = std::collections::BTreeSet::new();
        for spec in specs {
            let is_set = self.vars.get(spec.variable()).is_some_and(|value| !value.0.is_empty());
            let Some(file) = spec.from_file.as_ref().filter(|_| !is_set) else { continue };
            let Ok(meta) = self.expand(file).metadata() else { continue };
            if meta.is_file() && meta.mode() & 0o044 != 0 {
                let mode = meta.mode() & 0o7777;
                told.insert(format!(
                    "secret {}: {file} can be read by other users (mode {mode:04o}); `chmod 600 {file}`",
                    spec.env
                ));
            }
        }
        told.into_iter().collect()
    }

    /// Looks up one secret: the variable first, then the file.
    pub fn find(&self, spec: &SecretSpec) -> Result<SecretValue, MissingSecret> {
        let variable = spec.variable();
        if let Some(value) = self.vars.get(variable).filter(|value| !value.0.is_empty()) {
            return Ok(value.clone());
        }
        let mut tried = format!("the variable {variable} is not set");
        if let Some(file) = &spec.from_file {
            let path = self.expand(file);
            match read(&path) {
                Ok(text) if !text.trim().is_empty() => return Ok(SecretValue(text.trim().to_owned())),
                Ok(_) => tried = format!("{tried} and {} is empty", path.display()),
                Err(why) => tried = format!("{tried} and {} {why}", path.display()),
            }
        }
        Err(MissingSecret { name: spec.env.clone(), tried })
    }

    /// The values of those that have one, to be masked in what a task wrote.
    pub fn known(&self, specs: &[SecretSpec]) -> Vec<SecretValue> {
        specs.iter().filter_map(|spec| self.find(spec).ok()).collect()
    }

    fn expand(&self, file: &str) -> PathBuf {
        match (file.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => Path::new(file).to_owned(),
        }
    }
}

/// Reads a secret's file: a regular one that nobody but its owner and group can write, of sane size. A link counts only
/// where it is ours, root's or its target's owner's.
fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let link = path.symlink_metadata().map_err(unreadable)?;
    let meta = path.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err("is not a file".to_owned());
    }
    let me = rustix::process::geteuid().as_raw();
    if link.is_symlink() && ![0, me, meta.uid()].contains(&link.uid()) {
        return Err(format!("is a link that another user made (uid {})", link.uid()));
    }
    if meta.mode() & 0o002 != 0 {
        return Err(format!("can be written by everybody (mode {:04o}); `chmod 600` it", meta.mode() & 0o7777));
    }
    if meta.len() > LARGEST {
        return Err("is too large for a secret".to_owned());
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SecretHandOver;

    fn spec(from_file: Option<&str>) -> SecretSpec {
        SecretSpec {
            env: "TOKEN".into(),
            from_env: None,
            from_file: from_file.map(Into::into),
            hand_over: SecretHandOver::Env,
        }
    }

    #[test]
    fn the_variable_wins_over_the_file_and_an_empty_one_does_not_count() {
        let home = tempfile::tempdir().expect("temp dir");
        std::fs::write(home.path().join("t"), "from-file\n").expect("writes");
        let with = |value: &str| SecretSource::new([("TOKEN".into(), value.into())], Some(home.path().into()));
        assert_eq!(with("from-env").find(&spec(Some("~/t"))).expect("found").expose(), "from-env");
        assert_eq!(with("").find(&spec(Some("~/t"))).expect("found").expose(), "from-file");
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_none_is_refused_and_one_they_may_read_is_told() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().expect("temp dir");
        let path = home.path().join("t");
        std::fs::write(&path, "value").expect("writes");
        let source = SecretSource::new([], Some(home.path().into()));
        let spec = spec(Some("~/t"));
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        mode(0o600);
        assert!(source.find(&spec).is_ok() && source.warnings([&spec]).is_empty());
        mode(0o644);
        assert!(source.find(&spec).is_ok());
        let told = source.warnings([&spec, &spec]);
        assert!(told.len() == 1 && told[0].contains("0644") && !told[0].contains("value"), "{told:?}");
        mode(0o666);
        assert!(source.find(&spec).expect_err("refused").tried.contains("written by everybody"));
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("made");
        assert!(source.find(&spec).expect_err("refused").tried.contains("not a file"));
    }

    #[test]
    fn what_is_missing_says_where_it_was_looked_for_and_a_value_is_never_printed() {
        let missing = SecretSource::default().find(&spec(Some("/no/such/file"))).expect_err("missing");
        assert!(missing.tried.contains("TOKEN") && missing.tried.contains("/no/such/file"), "{}", missing.tried);
        let source = SecretSource::new([("TOKEN".into(), "canary".into())], None);
        assert!(!format!("{source:?}").contains("canary"));
    }
}
