//! Arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    orchestrate::cli::main(env!("ORCHESTRATE_VERSION"), std::env::args_os()).into()
}
