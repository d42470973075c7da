//! What `orchestrate init` writes.

/// A plan file to start from.
pub const JSON: &str = include_str!("starter/agent-tasks.json");

/// The same as a YAML spec, with comments.
pub const YAML: &str = include_str!("starter/agent-tasks.yaml");

/// The same for another agent.
pub fn yaml(agent: &str) -> String {
    if agent == super::agents::DEFAULT_AGENT {
        return YAML.to_owned();
    }
    YAML.replacen("agent: claude # or codex, gemini, opencode, shell", &format!("agent: {agent}"), 1)
}

#[cfg(test)]
mod tests {
    use super::super::read::{ReadOptions, read_both};
    use super::*;

    #[test]
    fn both_are_accepted_without_a_word_and_ask_for_the_same() {
        let json = read_both(Some(JSON.as_bytes()), None, ReadOptions::default()).expect("accepted");
        let yaml = read_both(None, Some(YAML.as_bytes()), ReadOptions::default()).expect("accepted");
        assert_eq!((&json.warnings, &yaml.warnings), (&Vec::new(), &Vec::new()));
        assert_eq!(json.tasks, yaml.tasks);
    }
}
