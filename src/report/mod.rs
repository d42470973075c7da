//! What people and other programs are shown.

pub mod diagnostics;
mod window;
