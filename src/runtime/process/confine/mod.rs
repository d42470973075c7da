//! What the kernel offers to hold a command, each means by itself: a missing one is told and makes up for no other.

mod held;
mod landlock;
mod namespaces;
mod privileges;
mod root;

pub use held::Confinement;
pub(super) use landlock::restrict;
pub(super) use namespaces::{Outer, enter};
pub(super) use privileges::{limit, renounce};
pub(super) use root::{DEVICES, HOME, build, try_out};
