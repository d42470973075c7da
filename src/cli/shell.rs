//! `orchestrate completions` and `man`: made from the declaration of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man as Page;

use super::app::Outcome;
use super::args;
use super::complete;
use super::world::Context;
use crate::error::{ExitCode, Kind, Report};

/// Print a completion script for a shell
///
/// The script asks the program itself, so that task ids are completed as well as commands and flags. Load it anew at each
/// start of the shell: one that was written to a file may not fit a later version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  source <(orchestrate completions bash)    in ~/.bashrc\n  \
                  source <(orchestrate completions zsh)     in ~/.zshrc, after compinit\n  \
                  orchestrate completions fish | source     in ~/.config/fish/config.fish")]
pub(super) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Print or write manual pages
///
/// Of the program on standard output, or of all commands into a folder.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  orchestrate man | man -l -\n  \
                  orchestrate man --out ~/.local/share/man/man1")]
pub(super) struct Man {
    /// Write one page for each command into this folder
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: Option<PathBuf>,
}

impl Completions {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        if let Some(script) = complete::script(&self.shell.to_string()) {
            context.output.bytes(&script)?;
            return Ok(ExitCode::Done);
        }
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut args::declared(context.version), "orchestrate", &mut script);
        context.output.data(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::Done)
    }
}

impl Man {
    pub(super) fn run(&self, context: &Context) -> Outcome {
        let mut command = args::declared(context.version);
        command.build();
        let Some(out) = &self.out else {
            let mut page = Vec::new();
            Page::new(command).render(&mut page)?;
            context.output.data(&String::from_utf8_lossy(&page))?;
            return Ok(ExitCode::Done);
        };
        let out = context.path(out);
        let failed = |path: &Path, error: &std::io::Error| {
            let mut report = Report::new(Kind::Environment, format!("cannot write {}", path.display()));
            report.causes = vec![error.to_string()];
            report
        };
        fs::create_dir_all(&out).map_err(|error| failed(&out, &error))?;
        let names = command.get_subcommands().filter(|sub| sub.get_name() != "help").cloned().collect::<Vec<_>>();
        let pages = std::iter::once((String::from("orchestrate"), command.clone()))
            .chain(names.into_iter().map(|sub| (format!("orchestrate-{}", sub.get_name()), sub)));
        for (name, command) in pages {
            let path = out.join(format!("{name}.1"));
            let mut page = Vec::new();
            Page::new(command).title(name).render(&mut page)?;
            fs::write(&path, page).map_err(|error| failed(&path, &error))?;
        }
        context.output.note(&format!("wrote the pages into {}", out.display()));
        Ok(ExitCode::Done)
    }
}
