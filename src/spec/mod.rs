//! What people ask for: ids, the validated model, the dependency graph, and the way from text to them. Pure.

mod graph;
mod id;
pub mod json;
mod model;
pub mod text;
pub mod tree;

pub use graph::{Graph, GraphFault, TaskIx};
pub use id::{IdError, MAX_LEN, TaskId};
pub use model::{
    AttemptSpec, DEFAULT_MAX_CONCURRENT, DEFAULT_STALE_AFTER, EmptyPolicy, GitAccess, Leftovers, MountSpec, Network,
    RateLimit, RateLimitScope, Resources, RetryBackoff, RetryMode, RuntimeKind, SecretHandOver, SecretSpec, SpecDigest,
    TaskSet, TaskSpec, User,
};
