//! What people and programs are told: one view of a pass, and the forms in which it is shown.

mod all;
mod describe;
pub mod diagnostics;
mod doctor;
mod doctor_engine;
pub mod escape;
mod events;
#[cfg(test)]
mod fixture;
pub mod github;
pub mod graph;
mod happenings;
mod junit;
pub mod layout;
mod lines;
mod live;
mod merges;
mod metrics;
mod plan_text;
mod review;
pub mod svg;
pub mod table;
pub mod time;
mod view;
mod window;

pub use all::All;
pub use describe::{Description, Link, SpecView};
pub use doctor::{
    AgentFact, Check, CheckStatus, DiskFact, Doctor, DoctorFacts, EngineAway, Found, PlaceFact, SecretFact,
};
pub use events::EventView;
pub use happenings::{Happening, HappeningKind, Watcher};
pub use junit::junit;
pub use lines::{LineFormat, LineReporter};
pub use live::{LiveReporter, Size, Ticker};
pub use merges::merge_commands;
pub use metrics::{Format as MetricsFormat, Metrics, merged_text, write_textfile, write_textfile_text};
pub use plan_text::{NextAction, NextPass, Waiting};
pub use review::{BranchFacts, BranchReview, KeptCommits, Review, ReviewFacts, TrustedPath, tops};
pub use view::{FORMAT, OrphanView, Summary, TaskView, View, plural};
