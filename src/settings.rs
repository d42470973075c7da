//! The only reader of the environment: taken once at the start and handed down, so that everything below can be tested
//! without one. Flags have variables of their own, `ORCHESTRATE_…`, which clap reads where the flag is declared.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::act::SecretSource;
use crate::runtime::docker::DockerSettings;
use crate::runtime::process::Avoid;

/// What the environment said when we started.
#[derive(Clone, Default)]
pub struct Settings {
    /// The user's home, `HOME`.
    pub home: Option<PathBuf>,
    /// Where the engine is: `DOCKER_HOST`, `DOCKER_CONTEXT`, `DOCKER_CONFIG`, `DOCKER_TLS_VERIFY`, `XDG_RUNTIME_DIR`.
    pub docker: DockerSettings,
    /// What bears on how output looks.
    pub output: OutputSettings,
    /// `ORCHESTRATE_PROCESS_AVOID`: means of confinement that `runtime: process` is not to use, although they are there.
    pub avoid: Avoid,
    /// Where GitHub's runner takes a job's summary from: `GITHUB_STEP_SUMMARY`.
    pub step_summary: Option<PathBuf>,
    /// `GIT_PAGER` and `PAGER`; set and empty: no pager.
    pagers: [Option<String>; 2],
    /// Everything, for secrets; never printed.
    vars: BTreeMap<String, String>,
}

/// What the environment says about output.
#[expect(clippy::struct_excessive_bools, reason = "independent wishes, each a variable of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputSettings {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `CLICOLOR_FORCE` is set to something other than `0`.
    pub force_color: bool,
    /// `TERM=dumb`: a terminal without colour and cursor movement.
    pub is_dumb: bool,
    /// We run under a CI: what looks like a terminal is a log.
    pub is_ci: bool,
    /// `COLUMNS`: how wide the output is, whatever it goes to.
    pub columns: Option<u16>,
}

impl Settings {
    /// Reads the environment.
    pub fn from_env() -> Self {
        Self::from_vars(std::env::vars_os())
    }

    /// From variables. Those whose name or value is not UTF-8 count for paths only.
    pub fn from_vars(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let raw: BTreeMap<OsString, OsString> = vars.into_iter().collect();
        let set = |name: &str| raw.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let text = |name: &str| set(name).and_then(|value| value.to_str()).map(str::to_owned);
        let home = path("HOME");
        let docker = DockerSettings {
            host: text("DOCKER_HOST"),
            context: text("DOCKER_CONTEXT"),
            config_dir: path("DOCKER_CONFIG").or_else(|| Some(home.as_ref()?.join(".docker"))),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            tls: set("DOCKER_TLS_VERIFY").is_some(),
        };
        let output = OutputSettings {
            no_color: set("NO_COLOR").is_some(),
            force_color: text("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_dumb: text("TERM").is_some_and(|term| term == "dumb"),
            is_ci: text("CI").is_some_and(|value| value != "false") || set("GITHUB_ACTIONS").is_some(),
            columns: text("COLUMNS").and_then(|value| value.parse().ok()).filter(|columns| *columns > 0),
        };
        let avoid = text("ORCHESTRATE_PROCESS_AVOID").map_or_else(Avoid::default, |words| Avoid::of(&words));
        let step_summary = path("GITHUB_STEP_SUMMARY");
        // One that is set and empty says that none is wanted.
        let pagers = ["GIT_PAGER", "PAGER"]
            .map(|name| raw.get(std::ffi::OsStr::new(name)).and_then(|value| value.to_str()).map(str::to_owned));
        let vars =
            raw.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { home, docker, output, avoid, step_summary, pagers, vars: vars.collect() }
    }

    /// All variables, for what is passed on by name.
    pub(crate) fn vars(&self) -> BTreeMap<String, String> {
        self.vars.clone()
    }

    /// The pager that git would use: `GIT_PAGER`, what its configuration names, `PAGER`, `less`.
    pub(crate) fn pager(&self, configured: Option<String>) -> String {
        let [git, own] = self.pagers.clone();
        git.or(configured).or(own).unwrap_or_else(|| "less".to_owned())
    }

    /// What git sets for a pager where the person did not.
    pub(crate) fn pager_defaults(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [("LESS", "FRX"), ("LV", "-c")].into_iter().filter(|(name, _)| !self.vars.contains_key(*name))
    }

    /// The shell whose completion script asks: `ORCHESTRATE_COMPLETE`.
    pub(crate) fn complete(&self) -> Option<&str> {
        self.vars.get("ORCHESTRATE_COMPLETE").map(String::as_str).filter(|shell| !shell.is_empty())
    }

    /// The kind of terminal, `TERM`.
    pub(crate) fn term(&self) -> Option<&str> {
        self.vars.get("TERM").map(String::as_str)
    }

    /// Where secrets come from.
    pub fn secrets(&self) -> SecretSource {
        let folders = self.docker.runtime_dir.iter().cloned().chain([PathBuf::from("/dev/shm")]);
        SecretSource::new(self.vars.clone(), self.home.clone()).with_folders(folders.collect())
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("home", &self.home)
            .field("docker", &self.docker)
            .field("output", &self.output)
            .field("avoid", &self.avoid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Settings {
        Settings::from_vars(vars.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        let set = settings(&[("NO_COLOR", ""), ("DOCKER_HOST", ""), ("HOME", ""), ("COLUMNS", ""), ("CI", "")]);
        assert_eq!(set.output, OutputSettings::default());
        assert_eq!(set.docker, DockerSettings::default());
        assert_eq!(set.home, None);
    }

    #[test]
    fn the_docker_clients_folder_is_in_the_home_unless_told() {
        assert_eq!(settings(&[("HOME", "/h")]).docker.config_dir, Some("/h/.docker".into()));
        assert_eq!(settings(&[("HOME", "/h"), ("DOCKER_CONFIG", "/d")]).docker.config_dir, Some("/d".into()));
    }

    #[test]
    fn the_pager_is_chosen_as_git_does() {
        let git = || Some("delta".to_owned());
        assert_eq!(settings(&[("GIT_PAGER", "a"), ("PAGER", "b")]).pager(git()), "a");
        assert_eq!(settings(&[("PAGER", "b")]).pager(git()), "delta");
        assert_eq!(settings(&[("PAGER", "b")]).pager(None), "b");
        assert_eq!(settings(&[]).pager(None), "less");
        assert_eq!(settings(&[("GIT_PAGER", "")]).pager(git()), "");
        assert_eq!(settings(&[("LESS", "R")]).pager_defaults().collect::<Vec<_>>(), [("LV", "-c")]);
    }

    #[test]
    fn words_for_no_are_understood() {
        assert!(!settings(&[("CI", "false"), ("CLICOLOR_FORCE", "0")]).output.is_ci);
        assert!(settings(&[("CI", "true")]).output.is_ci);
        assert!(settings(&[("CLICOLOR_FORCE", "1")]).output.force_color);
        assert_eq!(settings(&[("COLUMNS", "wide")]).output.columns, None);
    }

    #[test]
    fn no_value_is_ever_printed() {
        let text = format!("{:?}", settings(&[("TOKEN", "canary"), ("HOME", "/h")]));
        assert!(!text.contains("canary"), "{text}");
    }
}
