//! What people ask for: ids, the validated model, the dependency graph, and the way from text to them. Pure.
//!
//! Text becomes a [`tree`] with spans ([`json`]), the tree becomes people's [`fields`], the fields become a [`TaskSet`];
//! each step notes its faults as [`Diagnostic`]s and goes on, so that all are told at once.

pub mod agents;
mod codes;
mod cycles;
mod diagnostic;
pub mod digest;
pub mod fields;
mod file;
mod graph;
mod id;
pub mod json;
mod kinds;
mod layers;
mod merge;
mod model;
mod profiles;
mod read;
mod reader;
mod resolve;
pub mod schema;
mod settings;
pub mod starter;
pub mod syntax;
mod terms;
pub mod text;
pub mod tree;
mod values;
pub mod yaml;

pub use agents::BUILT_IN as BUILT_IN_AGENTS;
pub use codes::Code;
pub use diagnostic::{Diagnostic, Label, Origin, Patch, Place, Severity};
pub use graph::{Graph, GraphFault, TaskIx};
pub use id::{IdError, MAX_LEN, TaskId};
pub use layers::DEFAULT_BASE;
pub use model::{
    AttemptSpec, DEFAULT_MAX_CONCURRENT, DEFAULT_STALE_AFTER, EmptyPolicy, GitAccess, Leftovers, MountSpec, Network,
    PullPolicy, RateLimit, RateLimitScope, Resources, RetryBackoff, RetryMode, RuntimeKind, SecretHandOver, SecretSpec,
    SpecDigest, TaskSet, TaskSpec, User,
};
pub use read::{Accepted, ReadOptions, Refused, read, read_both};
pub use terms::Terms;
pub use values::TEMPLATES;
pub(crate) use values::{duration, size};
