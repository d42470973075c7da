//! Metrics for Prometheus: gauges of the newest pass, counters and histograms of what became durable since the start.
//! `specs/metrics.md` lists the families; a test compares.

mod encode;
mod families;
mod textfile;

pub use encode::Format;
pub use families::{Metrics, merged_text};
pub use textfile::{write as write_textfile, write_text as write_textfile_text};
