//! The built-in agent profiles: how each tool is run without a person at its terminal.

use std::collections::BTreeMap;

use super::fields::Settings;
use super::model::{RateLimit, RateLimitScope, SecretHandOver, SecretSpec};

/// The profile of a task that names none.
pub const DEFAULT_AGENT: &str = "claude";

/// Names of the built-in profiles.
pub const BUILT_IN: [&str; 5] = ["claude", "codex", "gemini", "opencode", "shell"];

/// Where the token of `claude` is looked for when its variable is not set.
pub const CLAUDE_TOKEN_FILE: &str = "~/dev/claude/secrets/claude/long_lived_oauth_token";

/// A built-in profile.
///
/// Permission prompts are switched off in all of them: the container and the private git directory are the boundary, and
/// nobody is there to answer.
pub fn built_in(name: &str) -> Option<Settings> {
    let (command, secret): (&[&str], Option<SecretSpec>) = match name {
        "claude" => (
            &["claude", "-p", "--dangerously-skip-permissions", "--", "{{prompt}}"],
            Some(secret("CLAUDE_CODE_OAUTH_TOKEN", None, Some(CLAUDE_TOKEN_FILE))),
        ),
        "codex" => (
            &["codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--", "{{prompt}}"],
            // The one that `codex exec` takes without a login.
            Some(secret("CODEX_API_KEY", Some("OPENAI_API_KEY"), None)),
        ),
        "gemini" => (
            &["gemini", "--approval-mode=yolo", "--skip-trust", "--prompt={{prompt}}"],
            Some(secret("GEMINI_API_KEY", None, None)),
        ),
        // Which provider's key it needs is the user's choice, so it brings no secret.
        "opencode" => (&["opencode", "run", "--", "{{prompt}}"], None),
        "shell" => return Some(Settings::default()),
        _ => return None,
    };
    Some(Settings {
        image: Some(format!("orchestrate/{name}:latest")),
        command: Some(command.iter().map(|&word| word.to_owned()).collect()),
        // Its flag for this has changed its name between versions; the variable has not.
        env: (name == "opencode")
            .then(|| BTreeMap::from([("OPENCODE_PERMISSION".to_owned(), r#"{"*":"allow"}"#.to_owned())])),
        secrets: secret.map(|secret| vec![secret]),
        rate_limit: built_in_rate_limit(name),
        ..Settings::default()
    })
}

/// When a built-in agent's exit means that its provider's limit was reached; `None` for what is no agent.
pub fn built_in_rate_limit(name: &str) -> Option<RateLimit> {
    (BUILT_IN.contains(&name) && name != "shell").then(|| RateLimit {
        exit_codes: Vec::new(),
        pattern: Some(rate_limit_pattern(name).to_owned()),
        scope: RateLimitScope::Provider,
    })
}

fn secret(env: &str, from_env: Option<&str>, from_file: Option<&str>) -> SecretSpec {
    SecretSpec {
        env: env.to_owned(),
        from_env: from_env.map(str::to_owned),
        from_file: from_file.map(str::to_owned),
        hand_over: SecretHandOver::Env,
    }
}

/// What the tools print at the end of a run that a limit stopped.
fn rate_limit_pattern(name: &str) -> &'static str {
    match name {
        "claude" => r"(?i)usage limit reached|hit your (?:\w+ )?limit|rate_limit_error|limit.{0,20}resets? (?:at )?\d",
        "codex" => {
            r"(?i)hit your usage limit|usage limit has been reached|usage_limit_reached|rate limit reached|rate_limit_exceeded|too many requests"
        }
        "gemini" => {
            r"(?i)RESOURCE_EXHAUSTED|quota exceeded|exceeded your current quota|exhausted your (?:daily )?(?:quota|capacity)"
        }
        _ => r"(?i)rate limit|too many requests|quota exceeded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::values;

    #[test]
    fn built_in_profiles_keep_the_rules_for_everyone_else() {
        for name in BUILT_IN {
            let profile = built_in(name).expect("listed");
            assert_eq!(profile.command.is_none(), name == "shell");
            assert_eq!(profile.image.is_none(), name == "shell");
            for word in profile.command.iter().flatten() {
                assert_eq!(values::unknown_templates(word).count(), 0);
            }
            assert!(profile.image.iter().all(|image| values::image(image).is_ok()));
            for pattern in profile.rate_limit.iter().filter_map(|limit| limit.pattern.as_deref()) {
                assert!(regex::Regex::new(pattern).is_ok(), "{pattern}");
            }
        }
        assert!(built_in("nobody").is_none());
    }

    #[test]
    fn limits_are_told_from_ordinary_output() {
        let limit = built_in("claude").and_then(|p| p.rate_limit).and_then(|l| l.pattern).expect("there");
        let limit = regex::Regex::new(&limit).expect("valid");
        assert!(limit.is_match("Claude AI usage limit reached|1760000000"));
        assert!(limit.is_match("You've hit your session limit · resets 3pm"));
        assert!(limit.is_match("5-hour limit reached ∙ resets 3am"));
        assert!(!limit.is_match("Added a rate limiter to the API; the limit is 5 per second."));
    }
}
