//! Which registry an image comes from, and the account that the docker command line's own file has for it.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

/// The registry of images that name none.
const HUB: &str = "docker.io";
/// What the command line calls it in its file.
const HUB_KEY: &str = "index.docker.io";

/// An image reference, taken apart as an engine's API wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference<'r> {
    /// Host and maybe port.
    pub(super) registry: &'r str,
    /// Everything before tag and digest.
    pub(super) name: &'r str,
    /// A tag or a digest. An engine that is given none fetches every tag there is.
    pub(super) version: &'r str,
}

impl<'r> Reference<'r> {
    /// Takes a reference apart; its grammar was judged before.
    pub(super) fn parse(text: &'r str) -> Self {
        let (rest, digest) = text.split_once('@').map_or((text, None), |(rest, digest)| (rest, Some(digest)));
        // A colon before the last slash is a port's.
        let colon = rest.rfind(':').filter(|at| !rest[*at..].contains('/'));
        let (name, tag) = colon.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + 1..])));
        let first = name.split_once('/').map(|(first, _)| first);
        let is_host = |first: &&str| first.contains(['.', ':']) || *first == "localhost";
        let registry = first.filter(is_host).unwrap_or(HUB);
        Self { registry, name, version: digest.or(tag).unwrap_or("latest") }
    }
}

/// The parts of the command line's `config.json` that matter here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: HashMap<String, Account>,
    creds_store: Option<String>,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Account {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// What is known of an account at a registry.
pub(super) enum Known {
    /// Nothing: the registry is asked as nobody.
    Nothing,
    /// An account.
    Account(Box<DockerCredentials>),
    /// A program has it, which is not asked.
    Helper(String),
}

/// Looks an account up. A file that cannot be read knows none, as with the command line.
pub(super) fn account(config_dir: Option<&Path>, registry: &str) -> Known {
    let text = config_dir.and_then(|dir| std::fs::read(dir.join("config.json")).ok());
    let config = text.and_then(|text| serde_json::from_slice(&text).ok());
    config.map_or(Known::Nothing, |config| look_up(config, registry))
}

fn look_up(mut config: Config, registry: &str) -> Known {
    let is_it = |key: &str| {
        let host = key.split_once("://").map_or(key, |(_, rest)| rest).split('/').next().unwrap_or_default();
        host == registry || (registry == HUB && host == HUB_KEY)
    };
    if let Some(key) = config.cred_helpers.keys().find(|key| is_it(key)).cloned() {
        return Known::Helper(config.cred_helpers.remove(&key).unwrap_or_default());
    }
    let Some(key) = config.auths.keys().find(|key| is_it(key)).cloned() else { return Known::Nothing };
    let Some(account) = config.auths.remove(&key) else { return Known::Nothing };
    let pair = account.auth.as_deref().and_then(decode);
    let (username, password) = pair.unzip();
    let found = DockerCredentials {
        username: username.or(account.username),
        password: password.or(account.password),
        serveraddress: Some(key),
        identitytoken: account.identitytoken,
        registrytoken: account.registrytoken,
        ..DockerCredentials::default()
    };
    let is_empty = found.username.is_none() && found.identitytoken.is_none() && found.registrytoken.is_none();
    match config.creds_store {
        // The command line leaves an empty entry for what its helper keeps.
        Some(helper) if is_empty => Known::Helper(helper),
        None if is_empty => Known::Nothing,
        _ => Known::Account(Box::new(found)),
    }
}

fn decode(auth: &str) -> Option<(String, String)> {
    let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("busybox", "docker.io", "busybox", "latest")]
    #[case("team/tool:2", "docker.io", "team/tool", "2")]
    #[case("localhost/x", "localhost", "localhost/x", "latest")]
    #[case("127.0.0.1:5000/a/b", "127.0.0.1:5000", "127.0.0.1:5000/a/b", "latest")]
    #[case("registry.example:5000/a/b:tag", "registry.example:5000", "registry.example:5000/a/b", "tag")]
    #[case("a/b:tag@sha256:00ff", "docker.io", "a/b", "sha256:00ff")]
    fn references_are_taken_apart(
        #[case] text: &str,
        #[case] registry: &str,
        #[case] name: &str,
        #[case] version: &str,
    ) {
        assert_eq!(Reference::parse(text), Reference { registry, name, version });
    }

    fn look(config: &str, registry: &str) -> String {
        let config = serde_json::from_str(config).expect("a configuration");
        match look_up(config, registry) {
            Known::Nothing => "nothing".to_owned(),
            Known::Helper(name) => format!("helper {name}"),
            Known::Account(found) => {
                format!("{:?} {:?} {:?}", found.username, found.password, found.identitytoken)
            }
        }
    }

    #[test]
    fn an_account_is_found_by_its_registry() {
        // "me:se:cret".
        let config = r#"{"auths": {"https://index.docker.io/v1/": {"auth": "bWU6c2U6Y3JldA=="},
            "r.example:5000": {"auth": "bWU6", "identitytoken": "t"}, "kept.example": {}}, "credsStore": "pass",
            "credHelpers": {"cloud.example": "cloud"}}"#;
        assert_eq!(look(config, "docker.io"), r#"Some("me") Some("se:cret") None"#);
        assert_eq!(look(config, "r.example:5000"), r#"Some("me") Some("") Some("t")"#);
        assert_eq!(look(config, "r.example"), "nothing");
        assert_eq!(look(config, "kept.example"), "helper pass");
        assert_eq!(look(config, "cloud.example"), "helper cloud");
        assert_eq!(look("{}", "docker.io"), "nothing");
        assert_eq!(look(r#"{"auths": {"x.example": {"auth": "???"}}}"#, "x.example"), "nothing");
    }
}
