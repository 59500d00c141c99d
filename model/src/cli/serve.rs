//! `mlx5-model serve`.

use std::path::PathBuf;

use super::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    Err(Failure::Usage(format!("nothing serves {} yet", args.socket.display())))
}
