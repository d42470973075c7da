//! `orchestrate init`: a plan file to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};

use clap::Args;

use super::app::Outcome;
use super::world::{Context, PLAN_FILE};
use crate::error::{ExitCode, Kind, Report};
use crate::git::{GixRepository, Repository as _};

/// Write a plan file to start from
///
/// At the root of the repository. One that is there is never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate init\n  \
                  orchestrate init --agent codex\n  \
                  orchestrate init && $EDITOR .agent-tasks.json && orchestrate validate")]
pub(super) struct Init {
    /// The agent that works on the tasks
    #[arg(long, value_name = "AGENT", default_value = crate::spec::agents::DEFAULT_AGENT)]
    #[arg(value_parser = ["claude", "codex", "gemini", "opencode"])]
    agent: String,
}

impl Init {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let path = match &context.global.file {
            Some(file) => context.path(file),
            None => GixRepository::discover(context.dir())?.layout().root.join(PLAN_FILE),
        };
        let failed = |error: &std::io::Error| {
            let mut report = Report::new(Kind::Environment, format!("cannot write {}", path.display()));
            report.causes = vec![error.to_string()];
            report
        };
        let mut file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let report =
                    Report::new(Kind::Usage, format!("{} is there already; it was not touched", path.display()));
                return Err(report.hint("name another file with -f"));
            }
            Err(error) => return Err(failed(&error)),
        };
        file.write_all(template(&self.agent).as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| failed(&error))?;
        context.output.note(&format!(
            "wrote {}: edit its tasks, then `orchestrate plan` shows what would happen",
            path.display()
        ));
        Ok(ExitCode::Done)
    }
}

/// Three tasks of which the third needs the other two.
fn template(agent: &str) -> String {
    format!(
        r#"{{
  "version": 1,
  "max_concurrent": 2,
  "defaults": {{ "agent": "{agent}", "timeout": "1h" }},
  "tasks": [
    {{
      "id": "readme",
      "title": "Say what this is",
      "prompt": "Write a README.md that says what this project does, how to build it and how to run it. Commit it."
    }},
    {{
      "id": "tests",
      "title": "Cover what matters",
      "prompt": "Find the code that matters most and has no tests. Write tests for it, run them, and commit them."
    }},
    {{
      "id": "contributing",
      "title": "Invite others",
      "prompt": "Write a CONTRIBUTING.md that fits README.md and says how to run the tests. Commit it.",
      "dependencies": ["readme", "tests"]
    }}
  ]
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ReadOptions, agents, read};

    #[test]
    fn what_is_written_is_accepted_without_a_word_for_every_agent_that_is_offered() {
        for agent in agents::BUILT_IN.into_iter().filter(|agent| *agent != "shell") {
            let accepted = read(template(agent).as_bytes(), ReadOptions::default()).expect("accepted");
            assert_eq!(accepted.warnings, []);
            assert_eq!(accepted.tasks.tasks[2].attempt.agent, agent);
        }
    }
}
