//! Secrets: looked up at launch, handed over, never stored.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::spec::SecretSpec;

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
        Self { vars: vars.into_iter().map(|(name, value)| (name, SecretValue(value))).collect(), home }
    }

    /// Looks up one secret: the variable first, then the file.
    pub fn find(&self, spec: &SecretSpec) -> Result<SecretValue, MissingSecret> {
        let variable = spec.from_env.as_deref().unwrap_or(&spec.env);
        if let Some(value) = self.vars.get(variable).filter(|value| !value.0.is_empty()) {
            return Ok(value.clone());
        }
        let mut tried = format!("the variable {variable} is not set");
        if let Some(file) = &spec.from_file {
            let path = self.expand(file);
            match std::fs::read_to_string(&path) {
                Ok(text) if !text.trim().is_empty() => return Ok(SecretValue(text.trim().to_owned())),
                Ok(_) => tried = format!("{tried} and {} is empty", path.display()),
                Err(error) => tried = format!("{tried} and {} cannot be read: {error}", path.display()),
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
    fn what_is_missing_says_where_it_was_looked_for_and_a_value_is_never_printed() {
        let missing = SecretSource::default().find(&spec(Some("/no/such/file"))).expect_err("missing");
        assert!(missing.tried.contains("TOKEN") && missing.tried.contains("/no/such/file"), "{}", missing.tried);
        let source = SecretSource::new([("TOKEN".into(), "canary".into())], None);
        assert!(!format!("{source:?}").contains("canary"));
    }
}
