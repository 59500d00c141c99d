//! `mlx5-model trace`.

use std::path::PathBuf;

use super::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Compare two traces by meaning
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    diff: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    Err(Failure::Job(format!("nothing compares {} traces yet", args.diff.len())))
}
