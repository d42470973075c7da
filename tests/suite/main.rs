//! All tests from outside of the library in one binary: one link instead of many.
#![expect(clippy::panic, reason = "how the helpers of tests fail")]

#[path = "../support/mod.rs"]
mod support;

mod architecture;
mod cli;
mod conformance;
mod costs;
mod daemon;
mod decision_table;
mod deploy;
mod diagnostics;
mod docker_agents;
mod docker_clean;
mod docker_container;
mod docker_disk;
mod docker_doctor;
mod docker_faults;
mod docker_git;
mod docker_hands;
mod docker_main_job;
mod docker_outage;
mod docker_verify;
mod fake_runtime;
mod fleet;
mod fuzz_corpus;
mod git_isolated;
mod git_merge;
mod git_odd;
mod git_result;
mod git_support;
mod git_template;
mod git_worktree;
mod http;
mod metrics;
mod page;
mod plan_properties;
mod plan_sources;
mod process_adopt;
mod process_confinement;
mod process_life;
mod process_load;
mod process_main_job;
mod process_storm;
mod process_support;
mod prometheus;
mod record_files;
mod record_lock;
mod record_plan_file;
mod reliability;
mod signals;
mod sim;
mod soak;
mod specs;
mod transport;
