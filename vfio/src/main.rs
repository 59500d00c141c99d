//! The mlx5 tool.

use std::process::ExitCode;

fn main() -> ExitCode {
    mlx5_vfio::cli::main()
}
