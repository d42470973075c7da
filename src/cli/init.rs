//! `orchestrate init`: a plan to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};

use clap::Args;

use super::app::Outcome;
use super::world::{Context, PLAN_FILE, SPEC_FILE};
use crate::error::{ExitCode, Kind, Report};
use crate::git::{GixRepository, Repository as _};
use crate::spec::starter;

/// Write a plan to start from
///
/// At the root of the repository: `.agent-tasks.json`, or with --yaml `agent-tasks.yaml`, which holds comments that explain
/// it. One that is there is never overwritten.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate init\n  \
                  orchestrate init --agent codex\n  \
                  orchestrate init --yaml          with comments; status is then kept in .agent-tasks.json\n  \
                  orchestrate init && $EDITOR .agent-tasks.json && orchestrate validate")]
pub(super) struct Init {
    /// The agent that works on the tasks
    #[arg(long, value_name = "AGENT", default_value = crate::spec::agents::DEFAULT_AGENT)]
    #[arg(value_parser = ["claude", "codex", "gemini", "opencode"])]
    agent: String,

    /// Write a commented YAML spec instead, for those who write by hand
    #[arg(long)]
    yaml: bool,
}

impl Init {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let (named, usual) = if self.yaml {
            (context.global.spec.as_ref().or(context.global.file.as_ref()), SPEC_FILE)
        } else {
            (context.global.file.as_ref(), PLAN_FILE)
        };
        let path = match named {
            Some(file) => context.path(file),
            None => GixRepository::discover(context.dir())?.layout().root.join(usual),
        };
        let text = if self.yaml { starter::yaml(&self.agent) } else { template(&self.agent) };
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
                let flag = if self.yaml { "--spec" } else { "-f" };
                return Err(report.hint(format!("name another file with {flag}")));
            }
            Err(error) => return Err(failed(&error)),
        };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| failed(&error))?;
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
    use crate::spec::{ReadOptions, agents, read, read_both};

    #[test]
    fn what_is_written_is_accepted_without_a_word_for_every_agent_that_is_offered() {
        for agent in agents::BUILT_IN.into_iter().filter(|agent| *agent != "shell") {
            let accepted = read(template(agent).as_bytes(), ReadOptions::default()).expect("accepted");
            assert_eq!(accepted.warnings, []);
            assert_eq!(accepted.tasks.tasks[2].attempt.agent, agent);
            let accepted = read_both(None, Some(starter::yaml(agent).as_bytes()), ReadOptions::default());
            let accepted = accepted.expect("accepted");
            assert_eq!((accepted.warnings.as_slice(), &*accepted.tasks.tasks[1].attempt.agent), (&[][..], agent));
        }
    }
}
