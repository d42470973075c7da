//! Metrics and HTTP beside the loop: the flags, and what they set up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::world::{Context, World};
use crate::controller::Reconciler;
use crate::error::{Kind, Report};
use crate::http::{Board, Boards, Gate, Listen, ListenError, LogTail, Server, ServerOptions, Site, Sites, Token};
use crate::record::Files;
use crate::report::{Metrics, write_textfile};
use crate::runtime::Metered;

/// A loop that makes no pass for so long is stuck; a quiet one makes one every 15 seconds.
pub(super) const STUCK_AFTER: Duration = Duration::from_mins(1);
/// How often the metrics file is written.
pub(super) const WRITE_EVERY: Duration = Duration::from_secs(10);

/// Flags of `run` about those who watch.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics and HTTP")]
pub(super) struct Watch {
    /// Serve metrics, health, the status as JSON and a page: at `127.0.0.1:9464`, `unix:PATH`, …
    #[arg(long, value_name = "ADDRESS", env = "ORCHESTRATE_LISTEN", hide_env_values = true)]
    listen: Option<Listen>,

    /// Let in only those who give the token in this file; needed where other machines can reach the address
    #[arg(long, value_name = "FILE", env = "ORCHESTRATE_HTTP_TOKEN_FILE", hide_env_values = true, requires = "listen")]
    #[arg(value_hint = ValueHint::FilePath)]
    http_token_file: Option<PathBuf>,

    /// Go on without HTTP where the address cannot be had
    #[arg(long, env = "ORCHESTRATE_HTTP_OPTIONAL", hide_env_values = true, requires = "listen")]
    #[arg(value_parser = clap::builder::FalseyValueParser::new())]
    http_optional: bool,

    #[command(flatten)]
    file: MetricsFile,
}

/// The flag of `run` and `once` for the textfile collector.
#[derive(Debug, Args)]
#[command(next_help_heading = "Metrics and HTTP")]
pub(super) struct MetricsFile {
    /// Write the metrics to this file for node exporter's textfile collector; its name has to end in `.prom`
    #[arg(long, value_name = "FILE", env = "ORCHESTRATE_METRICS_FILE", hide_env_values = true)]
    #[arg(value_hint = ValueHint::FilePath)]
    metrics_file: Option<PathBuf>,
}

/// Everything that watches.
pub(super) struct Watchers {
    pub(super) board: Arc<Board>,
    metrics: Arc<Metrics>,
    file: Option<PathBuf>,
}

impl MetricsFile {
    /// Makes metrics that see all calls of the world's runtime, where they are asked for.
    pub(super) fn meter(&self, context: &Context, world: &mut World) -> Option<Arc<Metrics>> {
        self.metrics_file.as_ref().map(|_| metered(context, world))
    }

    /// Writes them. What cannot be written is told, and changes nothing else.
    pub(super) fn write(&self, context: &Context, files: &dyn Files, metrics: &Metrics) {
        let Some(path) = &self.metrics_file else { return };
        if let Err(error) = write_textfile(files, &context.path(path), metrics) {
            context.output.warn(&crate::act::one_line(&error));
        }
    }
}

fn metered(context: &Context, world: &mut World) -> Arc<Metrics> {
    let metrics = Arc::new(Metrics::new(context.version, &world.folder));
    let sink: Arc<dyn crate::runtime::RequestSink> = Arc::clone(&metrics) as _;
    world.runtime = Arc::new(Metered::new(Arc::clone(&world.runtime), sink));
    metrics
}

impl Watch {
    /// Makes the board, where anybody is to see it.
    pub(super) fn watchers(&self, context: &Context, world: &mut World) -> Option<Watchers> {
        if self.listen.is_none() && self.file.metrics_file.is_none() {
            return None;
        }
        let metrics = metered(context, world);
        let epoch = format!("{:x}", fastrand::u64(..));
        let board = Arc::new(Board::new(Arc::clone(&metrics), &*world.folder, STUCK_AFTER, epoch));
        let file = self.file.metrics_file.as_deref().map(|path| context.path(path));
        Some(Watchers { board, metrics, file })
    }

    /// Begins to serve, where that is asked for. Called where the loop runs.
    pub(super) fn serve(
        &self,
        context: &Context,
        world: &World,
        watchers: &Watchers,
        reconciler: &Reconciler,
    ) -> Result<Option<Server>, Report> {
        reconciler.set_witness(Arc::clone(&watchers.board) as _);
        let Some(listen) = &self.listen else { return Ok(None) };
        let token = self.token(context)?;
        let options = ServerOptions { listen: listen.clone(), has_token: token.is_some() };
        let tail = LogTail::new(
            Arc::clone(&world.runtime),
            Arc::clone(&world.files),
            world.state_dir(),
            context.settings.secrets(),
            tokio::runtime::Handle::current(),
        );
        let site = Site::new(Arc::clone(&watchers.board), listen.hosts(), token).with_tail(tail);
        self.started(context, Server::start(&options, Arc::new(site)))
    }

    /// The same for several plans.
    pub(super) fn serve_several(
        &self,
        context: &Context,
        boards: &Arc<Boards>,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Server>, Report> {
        let Some(listen) = &self.listen else { return Ok(None) };
        let token = self.token(context)?;
        let options = ServerOptions { listen: listen.clone(), has_token: token.is_some() };
        let gate = Gate::new(listen.hosts(), token);
        let sites = Sites::new(Arc::clone(boards), Arc::clone(metrics), gate);
        self.started(context, Server::start_app(&options, sites.router()))
    }

    /// Where the metrics of several plans are written.
    pub(super) fn metrics_file(&self) -> Option<&Path> {
        self.file.metrics_file.as_deref()
    }

    fn token(&self, context: &Context) -> Result<Option<Token>, Report> {
        let token = self.http_token_file.as_deref().map(|path| Token::read(&context.path(path))).transpose();
        token.map_err(|error| {
            Report::of(Kind::Environment, &error)
                .hint("write 16 or more characters into a file of your own, mode 600: `openssl rand -hex 32 > FILE`")
        })
    }

    fn started(&self, context: &Context, started: Result<Server, ListenError>) -> Result<Option<Server>, Report> {
        match started {
            Ok(server) => {
                context.output.note(&format!("serving {}", server.at()));
                Ok(Some(server))
            }
            Err(ListenError::Open { listen }) => {
                let report = Report::of(Kind::Usage, &ListenError::Open { listen });
                Err(report.hint("give --http-token-file, or listen on 127.0.0.1 or on a unix socket"))
            }
            Err(error) if self.http_optional => {
                context.output.warn(&format!("{}; going on without HTTP", crate::act::one_line(&error)));
                Ok(None)
            }
            Err(error) => Err(Report::of(Kind::Environment, &error)
                .hint("choose another address, or give --http-optional to go on without HTTP")),
        }
    }
}

impl Watchers {
    /// Writes the metrics file again and again, for as long as it is polled.
    pub(super) async fn keep_writing(files: Arc<dyn Files>, path: PathBuf, metrics: Arc<Metrics>) {
        loop {
            // The last write, at the end, tells what is wrong.
            drop(write_textfile(&*files, &path, &metrics));
            tokio::time::sleep(WRITE_EVERY).await;
        }
    }

    /// What [`Watchers::keep_writing`] needs, where there is a file.
    pub(super) fn file(&self) -> Option<(PathBuf, Arc<Metrics>)> {
        Some((self.file.clone()?, Arc::clone(&self.metrics)))
    }

    /// Writes the metrics file, where there is one. What cannot be written is told, and changes nothing else.
    pub(super) fn write(&self, context: &Context, files: &dyn Files) {
        let Some(path): Option<&Path> = self.file.as_deref() else { return };
        if let Err(error) = write_textfile(files, path, &self.metrics) {
            context.output.warn(&crate::act::one_line(&error));
        }
    }
}
