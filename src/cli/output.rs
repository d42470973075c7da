//! Where words go: data on standard output, everything else on standard error.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::time::Duration;

use anstream::AutoStream;
use serde::Serialize;

use super::args::{Global, LogFormat, When};
use crate::clock::Clock;
use crate::controller::{Level, Reporter};
use crate::report::table::Detail;
use crate::report::{LineFormat, LineReporter, LiveReporter, Ticker, escape};
use crate::settings::OutputSettings;

/// The process's outputs and how they like their text.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of two streams")]
#[derive(Debug, Clone)]
pub(super) struct Output {
    color_out: bool,
    color_err: bool,
    /// Columns that standard output has; `None`: it is no terminal, and lines are not broken.
    pub(super) width: Option<u16>,
    /// Standard output is a terminal, so that what others wrote must be escaped.
    pub(super) is_terminal: bool,
    live: bool,
    /// What looks like a terminal moves no cursor, or is a log.
    plain: bool,
    quiet: bool,
    least: Level,
    log_format: LogFormat,
}

impl Output {
    pub(super) fn new(global: &Global, settings: &OutputSettings) -> Self {
        let (out, err) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let width =
            settings.columns.or_else(|| if out { size(io::stdout()).map(|(columns, _)| columns) } else { None });
        let least = match (global.quiet, global.verbose) {
            (true, _) => Level::Error,
            (false, true) => Level::Debug,
            (false, false) => Level::Info,
        };
        Self {
            color_out: colored(global.color, settings, out),
            color_err: colored(global.color, settings, err),
            width,
            is_terminal: out,
            live: err && !settings.is_dumb && !settings.is_ci && !global.quiet && global.log_format == LogFormat::Text,
            plain: settings.is_dumb || settings.is_ci,
            quiet: global.quiet,
            least,
            log_format: global.log_format,
        }
    }

    /// Standard output.
    pub(super) fn stdout(&self) -> AutoStream<io::Stdout> {
        AutoStream::new(io::stdout(), choice(self.color_out))
    }

    /// Standard error.
    pub(super) fn stderr(&self) -> AutoStream<io::Stderr> {
        AutoStream::new(io::stderr(), choice(self.color_err))
    }

    pub(super) fn is_err_colored(&self) -> bool {
        self.color_err
    }

    pub(super) fn is_colored(&self) -> bool {
        self.color_out
    }

    /// Text for a terminal, without its colours where none are wanted.
    pub(super) fn colored(&self, text: &[u8]) -> Vec<u8> {
        let mut out = AutoStream::new(Vec::new(), choice(self.color_out));
        out.write_all(text).expect("BUG: writing to memory cannot fail");
        out.into_inner()
    }

    /// Columns for texts on standard error.
    pub(super) fn err_width(&self) -> usize {
        let columns = self.width.or_else(|| size(io::stderr()).map(|(columns, _)| columns));
        columns.map_or(100, usize::from)
    }

    /// Data: what was asked for.
    pub(super) fn data(&self, text: &str) -> io::Result<()> {
        let mut out = self.stdout();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Data that need not be UTF-8, byte for byte.
    #[expect(clippy::unused_self, reason = "all that is printed goes through here")]
    pub(super) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Data, each on its line.
    pub(super) fn lines<'t>(&self, lines: impl Iterator<Item = &'t str>) -> io::Result<()> {
        let mut text = String::new();
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        self.data(&text)
    }

    /// Data as one JSON document.
    pub(super) fn json<T: Serialize>(&self, value: &T) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.data(&escape::json(&text))
    }

    /// Data as one YAML document, which says what the JSON does.
    pub(super) fn yaml<T: Serialize>(&self, value: &T) -> io::Result<()> {
        self.data(&yaml(value)?)
    }

    /// A word beside the data. Where it cannot be written nothing is lost.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            drop(writeln!(self.stderr(), "{}", escape::line(text)));
        }
    }

    /// A word that matters even when nothing else is said.
    pub(super) fn warn(&self, text: &str) {
        const WARNING: anstyle::Style = anstyle::AnsiColor::Yellow.on_default().bold();
        if !self.quiet {
            drop(writeln!(self.stderr(), "{WARNING}warning:{WARNING:#} {}", escape::line(text)));
        }
    }

    /// Lines on standard error about one plan of several, which `name` tells apart.
    pub(super) fn lines_of(&self, clock: Arc<dyn Clock>, name: &str, heartbeat: Option<Duration>) -> LineReporter {
        let format = match self.log_format {
            LogFormat::Text => LineFormat::Text,
            LogFormat::Json => LineFormat::Json,
        };
        let lines = LineReporter::new(Box::new(self.stderr()), format, self.least, clock, name);
        lines.with_heartbeat(heartbeat).with_name(name)
    }

    /// What shows a plan as data again and again: the table repainted on a terminal, a line for each change elsewhere.
    pub(super) fn followed(&self, clock: Arc<dyn Clock>, folder: &str, detail: Detail) -> Followed {
        let out = Box::new(self.stdout());
        if self.is_terminal && !self.plain {
            let ask = || size(io::stdout()).unwrap_or((80, 24));
            let live = LiveReporter::new(out, Box::new(ask), self.least, clock, folder);
            return Followed::Live(live.with_detail(detail));
        }
        let format = match self.log_format {
            LogFormat::Text => LineFormat::Text,
            LogFormat::Json => LineFormat::Json,
        };
        Followed::Lines(LineReporter::new(out, format, Level::Info, clock, folder))
    }

    /// What tells of progress on standard error: the table repainted on a terminal, lines elsewhere.
    /// `heartbeat`: where lines are written, say how the plan stands when nothing was said for so long.
    pub(super) fn progress(&self, clock: Arc<dyn Clock>, folder: &str, heartbeat: Option<Duration>) -> Progress {
        let out = Box::new(self.stderr());
        if self.live {
            let ask = || size(io::stderr()).unwrap_or((80, 24));
            return Progress::Live(LiveReporter::new(out, Box::new(ask), self.least, clock, folder));
        }
        let format = match self.log_format {
            LogFormat::Text => LineFormat::Text,
            LogFormat::Json => LineFormat::Json,
        };
        Progress::Lines(LineReporter::new(out, format, self.least, clock, folder).with_heartbeat(heartbeat))
    }
}

/// Follows a plan on standard output.
pub(super) enum Followed {
    /// A table that is repainted.
    Live(LiveReporter),
    /// A line for each change.
    Lines(LineReporter),
}

/// Tells of progress.
pub(super) enum Progress {
    Live(LiveReporter),
    Lines(LineReporter),
}

impl Progress {
    pub(super) fn reporter(&mut self) -> &mut dyn Reporter {
        match self {
            Self::Live(live) => live,
            Self::Lines(lines) => lines,
        }
    }

    /// What keeps the ages moving, where there is a picture.
    pub(super) fn ticker(&self) -> Option<Ticker> {
        match self {
            Self::Live(live) => Some(live.ticker()),
            Self::Lines(_) => None,
        }
    }

    /// Makes room for what follows.
    pub(super) fn finish(&mut self) {
        if let Self::Live(live) = self {
            live.clear();
        }
    }
}

/// A value as YAML. What a terminal must not be shown as it is stands as in JSON, which is YAML too.
pub(super) fn yaml<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let value = serde_json::to_value(value)?;
    match serde_saphyr::to_string(&value) {
        Ok(text) if escape::lines(&text) == text => Ok(text),
        _ => Ok(escape::json(&(serde_json::to_string_pretty(&value)? + "\n")).into_owned()),
    }
}

fn colored(when: When, settings: &OutputSettings, is_terminal: bool) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if settings.no_color => false,
        When::Auto if settings.force_color => true,
        When::Auto => is_terminal && !settings.is_dumb,
    }
}

fn choice(color: bool) -> anstream::ColorChoice {
    if color { anstream::ColorChoice::AlwaysAnsi } else { anstream::ColorChoice::Never }
}

/// Columns and rows of a terminal.
fn size(stream: impl std::os::fd::AsFd) -> Option<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_stands_over_variables_and_no_color_over_force() {
        let plain = OutputSettings::default();
        let no = OutputSettings { no_color: true, force_color: true, ..plain.clone() };
        let force = OutputSettings { force_color: true, ..plain.clone() };
        let dumb = OutputSettings { is_dumb: true, ..plain.clone() };
        assert!(colored(When::Always, &no, false) && !colored(When::Never, &force, true));
        assert!(!colored(When::Auto, &no, true) && colored(When::Auto, &force, false));
        assert!(colored(When::Auto, &plain, true) && !colored(When::Auto, &plain, false));
        assert!(!colored(When::Auto, &dumb, true));
    }
}
