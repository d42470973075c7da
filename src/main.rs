//! Arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = orchestrate::runtime::process::hidden_main(std::env::args_os()) {
        return code;
    }
    orchestrate::cli::main(env!("ORCHESTRATE_VERSION"), std::env::args_os()).into()
}
