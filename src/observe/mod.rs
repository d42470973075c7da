//! What is: containers and refs as the engine and git tell them, and the names that tie them to tasks.

pub mod names;
mod observed;
mod observer;

pub use names::{AttemptKey, InstanceId, Role};
pub use observed::{ContainerDetail, ContainerState, Observed, ObservedContainer};
pub use observer::{Applied, Observer};
