//! The program `mlx5-model`: the software function as a process, and its traces.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
