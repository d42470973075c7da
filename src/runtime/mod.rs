//! Where attempts run: the port and its adapters.

mod contract;
pub mod docker;
mod metered;
pub mod process;

pub use contract::{
    Bind, ConfinementFacts, CreateRequest, EngineFacts, EngineInfo, ErrorKind, ImageInfo, LogChunk, LogOptions,
    LogStream, Operation, PullProgress, PullSink, Runtime, RuntimeError, RuntimeEvent, Shell, ShellOptions, ShellPlace,
};
pub use metered::{Metered, RequestSink};
