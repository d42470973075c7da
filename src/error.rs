//! Failure as people and scripts meet it: exit codes, kinds, causes, hints, and the one renderer.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

use anstyle::{AnsiColor, Style};

use crate::controller::RunError;
use crate::git::GitError;
use crate::record::{FileError, JournalError, LockError, PlanFileError};
use crate::report::escape;
use crate::runtime::{ErrorKind, RuntimeError};

/// What the process tells its parent. Scripts may rely on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExitCode {
    /// What was asked is done.
    Done,
    /// Some task failed, is blocked or was cancelled.
    Unsuccessful,
    /// The command line is wrong.
    Usage,
    /// The plan file is not accepted.
    InvalidFile,
    /// The engine, git or a permission is missing.
    Environment,
    /// Another reconciler works on the repository.
    Locked,
    /// Work is left that can still go on.
    Unfinished,
    /// A bug of ours.
    Bug,
    /// The code of what `shell` ran.
    Passed(u8),
}

impl ExitCode {
    /// All of our own.
    pub const ALL: [Self; 8] = [
        Self::Done,
        Self::Unsuccessful,
        Self::Usage,
        Self::InvalidFile,
        Self::Environment,
        Self::Locked,
        Self::Unfinished,
        Self::Bug,
    ];

    /// The number.
    pub fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Unsuccessful => 1,
            Self::Usage => 2,
            Self::InvalidFile => 3,
            Self::Environment => 4,
            Self::Locked => 5,
            Self::Unfinished => 6,
            Self::Bug => 70,
            Self::Passed(code) => code,
        }
    }

    /// When it is given, for documents.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => {
                "done: for `once` a pass was made, for `run --until-done` all tasks are completed, for others what was asked \
                 is shown or noted"
            }
            Self::Unsuccessful => {
                "some task failed, is blocked or was cancelled: `run --until-done`; `once` and `status` with \
                 `--exit-status`"
            }
            Self::Usage => "the command line is wrong",
            Self::InvalidFile => "the plan file is missing or not accepted; nothing was changed",
            Self::Environment => "the engine, git, the file system or a permission stands in the way",
            Self::Locked => "another reconciler works on this repository",
            Self::Unfinished => {
                "work is left that can still go on by itself (`once`, `status`, `plan` with `--exit-status`), `--timeout` \
                 passed, or the plan is suspended"
            }
            Self::Bug => "a bug of ours",
            Self::Passed(_) => "`shell` only: the code of what it ran",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command line is wrong.
    Usage,
    /// The plan file is missing or not accepted.
    InvalidFile,
    /// Something outside of us stands in the way.
    Environment,
    /// Another reconciler works on the repository.
    Locked,
    /// Whoever read our output has gone: nobody needs to be told.
    BrokenPipe,
    /// Ours.
    Bug,
}

/// What a runtime that does not answer is told as, before it is named.
const ENGINE_AWAY: &str = "the engine does not answer";

/// A failure, ready to be told: what and which, why, and what next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What kind.
    pub kind: Kind,
    /// What failed on what; a fragment, as all error texts are.
    pub message: String,
    /// Why, from the nearest cause to the first.
    pub causes: Vec<String>,
    /// What to do next.
    pub hints: Vec<String>,
}

impl Report {
    /// A failure without causes.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// From an error and its sources. A source that the text above it repeats is left out.
    pub fn of(kind: Kind, error: &dyn Error) -> Self {
        let mut report = Self::new(kind, error.to_string());
        let mut last = report.message.clone();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !last.ends_with(&text) {
                report.causes.push(text.clone());
                last = text;
            }
            source = cause.source();
        }
        report
    }

    /// Adds a next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// In one line: the message and its causes.
    pub fn sentence(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).map(String::as_str).collect::<Vec<_>>().join(": ")
    }

    /// The exit code that goes with it.
    pub fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Usage => ExitCode::Usage,
            Kind::InvalidFile => ExitCode::InvalidFile,
            Kind::Environment => ExitCode::Environment,
            Kind::Locked => ExitCode::Locked,
            // Who closed our output has what it wanted.
            Kind::BrokenPipe => ExitCode::Done,
            Kind::Bug => ExitCode::Bug,
        }
    }

    /// The text for a person, styled; empty for what nobody needs to be told.
    pub fn render(&self) -> String {
        const ERROR: Style = AnsiColor::Red.on_default().bold();
        const HINT: Style = AnsiColor::Cyan.on_default().bold();
        const PLAIN: Style = Style::new().bold();
        if self.kind == Kind::BrokenPipe {
            return String::new();
        }
        let mut text = format!("{ERROR}error:{ERROR:#} {}\n", escape::line(&self.message));
        let mut put = |line: std::fmt::Arguments<'_>| {
            text.write_fmt(line).expect("BUG: writing to a string cannot fail");
        };
        if !self.causes.is_empty() {
            put(format_args!("{PLAIN}caused by:{PLAIN:#}\n"));
        }
        for (number, cause) in (1..).zip(&self.causes) {
            put(format_args!("  {number}: {}\n", escape::line(cause)));
        }
        for hint in &self.hints {
            put(format_args!("{HINT}hint:{HINT:#} {}\n", escape::line(hint)));
        }
        text
    }
}

impl From<RunError> for Report {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Lock(error) => error.into(),
            RunError::Journal(error) => error.into(),
            RunError::PlanFile(error) => error.into(),
            RunError::Git(error) => error.into(),
            RunError::File(error) => error.into(),
            RunError::Runtime(error) => error.into(),
            // Its diagnostics are told before it, each with its own next step.
            RunError::Invalid { .. } => Self::of(Kind::InvalidFile, &error),
            RunError::NoSpec { .. } => Self::of(Kind::InvalidFile, &error)
                .hint("name yours with --spec, or leave it out to use the plan file alone"),
        }
    }
}

impl From<GitError> for Report {
    fn from(error: GitError) -> Self {
        let report = Self::of(Kind::Environment, &error);
        match error {
            GitError::NotARepository(_) => {
                report.hint("go to a repository or name it with -C, or make one here with `git init`")
            }
            GitError::Unborn => {
                report.hint("branches start from a commit; make a first one: `git commit --allow-empty -m 'Start'`")
            }
            GitError::UnknownRevision(_) => report.hint("`git log --oneline --all` lists what there is"),
            GitError::Io { source, .. } => with_io_hint(report, &source),
            GitError::ForeignBranch { .. }
            | GitError::BlockingRef(_)
            | GitError::CheckedOut { .. }
            | GitError::ForeignPath { .. }
            | GitError::WorktreeLost(_)
            | GitError::Dirty { .. }
            | GitError::Locked { .. }
            | GitError::Refused { .. }
            | GitError::Unrelated(..)
            | GitError::Unsupported(_)
            | GitError::Git { .. } => report,
        }
    }
}

impl From<RuntimeError> for Report {
    fn from(error: RuntimeError) -> Self {
        let report = Self { causes: vec![error.to_string()], ..Self::new(Kind::Environment, ENGINE_AWAY) };
        match error.kind {
            ErrorKind::Unreachable => report
                .hint("start it (`sudo systemctl start docker`), or set DOCKER_HOST to where it listens")
                .hint("where there is none: `sudo apt-get install docker.io` or your system's package of Docker or Podman"),
            ErrorKind::Denied => report
                .hint("the socket belongs to another user or group: `sudo usermod -aG docker $USER`, then log in again"),
            ErrorKind::Unknown | ErrorKind::Engine | ErrorKind::Conflict => {
                report.hint("it may be busy or starting: `docker info` shows whether it answers; try again in a moment")
            }
            ErrorKind::Invalid | ErrorKind::Unsupported => {
                Self::new(Kind::Environment, error.to_string()).hint("`docker context ls` and DOCKER_HOST say where it is")
            }
            ErrorKind::NotFound
            | ErrorKind::ImageMissing
            | ErrorKind::RegistryDenied
            | ErrorKind::RegistryAway
            | ErrorKind::NameTaken
            | ErrorKind::NotOurs
            | ErrorKind::StartRefused => Self::new(Kind::Environment, error.to_string()),
        }
    }
}

impl Report {
    /// Names the engine in a report about it.
    #[must_use]
    pub fn at_host(mut self, host: &str) -> Self {
        if self.message == ENGINE_AWAY {
            self.message = format!("the engine at {host} does not answer");
        }
        self
    }
}

impl From<LockError> for Report {
    fn from(error: LockError) -> Self {
        match &error {
            LockError::Held { .. } => Self::of(Kind::Locked, &error)
                .hint("`orchestrate status` works beside it; stop it before you start another one"),
            LockError::Unsupported { .. } => Self::of(Kind::Environment, &error),
            LockError::File(file) => with_file_hint(Self::of(Kind::Environment, &error), file),
        }
    }
}

impl From<JournalError> for Report {
    fn from(error: JournalError) -> Self {
        let report = Self::of(Kind::Environment, &error);
        match &error {
            JournalError::File(file) => with_file_hint(report, file),
            JournalError::Damaged { .. } => report
                .hint("restore it from a backup if there is one")
                .hint("or move it away to begin anew: branches, worktrees and containers stay, and are then nobody's"),
            JournalError::Foreign { .. } => Self::of(Kind::Locked, &error)
                .hint("somebody deleted the lock file, or this file system's locks do not work; run one of them only"),
            JournalError::Newer { .. } => report.hint("use the newer version, which `orchestrate --version` names"),
        }
    }
}

impl From<PlanFileError> for Report {
    fn from(error: PlanFileError) -> Self {
        let invalid = Self::of(Kind::InvalidFile, &error);
        match &error {
            PlanFileError::Missing { .. } => {
                invalid.hint("`orchestrate init` writes one to start from, or name yours with -f")
            }
            PlanFileError::NotJson { .. } | PlanFileError::Ambiguous { .. } => {
                invalid.hint("`orchestrate validate` shows every fault with its line")
            }
            PlanFileError::NotAFile { .. }
            | PlanFileError::TooLarge { .. }
            | PlanFileError::OutsideRepository { .. }
            | PlanFileError::Partial { .. } => invalid,
            PlanFileError::ReadOnly { .. } | PlanFileError::Contended { .. } => Self::of(Kind::Environment, &error),
            PlanFileError::File(file) => with_file_hint(Self::of(Kind::Environment, &error), file),
        }
    }
}

impl From<FileError> for Report {
    fn from(error: FileError) -> Self {
        with_file_hint(Self::of(Kind::Environment, &error), &error)
    }
}

/// Output that could not be written.
impl From<io::Error> for Report {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Kind::BrokenPipe, "the reader of the output has gone");
        }
        let report = Self::new(Kind::Environment, "cannot write the output");
        with_io_hint(Self { causes: vec![error.to_string()], ..report }, &error)
    }
}

fn with_file_hint(report: Report, error: &FileError) -> Report {
    with_io_hint(report, &error.source)
}

fn with_io_hint(report: Report, error: &io::Error) -> Report {
    match error.kind() {
        io::ErrorKind::PermissionDenied => report.hint("run as the user that the repository belongs to"),
        io::ErrorKind::ReadOnlyFilesystem => report.hint("the file system is mounted read-only"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => report.hint("make room on that file system"),
        _ => report,
    }
}

/// Makes a panic tell what it is and what to report, instead of a trace. The process then ends with [`ExitCode::Bug`].
pub fn install_panic_hook(version: &'static str) {
    std::panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        let payload = info.payload();
        let text =
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let report = bug(version, text.unwrap_or("no message"), &place);
        // Nobody is left to tell where this fails.
        drop(io::Write::write_all(&mut anstream::stderr(), report.render().as_bytes()));
    }));
}

fn bug(version: &str, what: &str, place: &str) -> Report {
    let mut report =
        Report::new(Kind::Bug, "this is a bug of ours; containers, branches and the plan file are as they were");
    report.causes = vec![format!("{what} ({place})")];
    report
        .hint(format!("please report the lines above with the command that you gave and this version: {version}"))
        .hint("the next start goes on from the journal: nothing runs twice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Operation;

    fn plain(report: &Report) -> String {
        anstream::adapter::strip_str(&report.render()).to_string()
    }

    #[test]
    fn what_why_and_what_next_stand_apart_and_on_their_own_lines() {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = JournalError::File(FileError::new("append to", "/r/\u{1b}[2Jx".as_ref(), source));
        let text = plain(&error.into());
        assert_eq!(
            text,
            "error: the journal cannot be used\n\
             caused by:\n  1: cannot append to /r/\\u{1b}[2Jx\n  2: permission denied\n\
             hint: run as the user that the repository belongs to\n"
        );
    }

    #[test]
    fn a_text_that_its_parent_passes_on_is_told_once() {
        let error = RunError::Git(GitError::Unborn);
        assert!(Report::from(error).causes.is_empty());
    }

    #[test]
    fn an_engine_that_is_away_is_the_environments_fault_with_a_next_step() {
        let error = RuntimeError {
            operation: Operation::List,
            target: None,
            kind: ErrorKind::Unreachable,
            status: None,
            message: "no such file".to_owned(),
        };
        let report = Report::from(RunError::Runtime(error));
        assert_eq!(report.exit_code(), ExitCode::Environment);
        assert_eq!(report.causes, ["list failed: no such file"]);
        assert_eq!(report.hints.len(), 2);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure_and_is_not_told() {
        let report = Report::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((report.exit_code(), report.render()), (ExitCode::Done, String::new()));
    }

    #[test]
    fn exit_codes_differ_and_a_bug_has_its_own() {
        let numbers: std::collections::BTreeSet<u8> = ExitCode::ALL.iter().map(|code| code.number()).collect();
        assert_eq!(numbers.len(), ExitCode::ALL.len());
        assert_eq!(bug("1", "x", "y").exit_code().number(), 70);
    }
}
