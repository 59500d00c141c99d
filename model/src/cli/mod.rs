//! The command line: arguments, output, exit codes.
//!
//! Exit code 0: done. 1: the job failed, or its answer is no. 2: wrong arguments, or input that could not be read.

mod fault;
mod serve;
mod trace;

use std::io;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::{Parser, Subcommand};

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// A software ConnectX (mlx5) function for drivers that run elsewhere.
#[derive(Debug, Parser)]
#[command(name = "mlx5-model", version, after_help = MAIN_EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

const MAIN_EXAMPLES: &str = "\
Examples:
  mlx5-model serve --socket /tmp/mlx5.sock       a function for QEMU's vfio-user-pci
  mlx5-model trace --diff linux.log ours.log     what two drivers asked of a function, compared

Exit codes: 0 done, 1 the job failed or its answer is no, 2 wrong arguments or unreadable input.";

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Serves the function over vfio-user, to QEMU or any other client
    Serve(serve::Args),
    /// Reads and compares traces of commands
    Trace(trace::Args),
}

/// Why a command did not succeed.
#[derive(Debug)]
enum Failure {
    /// The arguments or the input are wrong: exit code 2.
    Usage(String),
    /// The job failed: exit code 1.
    Job(String),
    /// The output could not be written: exit code 1, without a word when whoever read it has left.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Cmd::Serve(args) => serve::run(&args),
        Cmd::Trace(args) => trace::run(&args),
    };
    ExitCode::from(exit_code(result))
}

/// Reports a failure and returns the exit code.
fn exit_code(result: Result<(), Failure>) -> u8 {
    let (code, message) = match result {
        Ok(()) => return 0,
        Err(Failure::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return 1,
        Err(Failure::Output(error)) => (1, format!("writing the output: {error}")),
        Err(Failure::Job(message)) => (1, message),
        Err(Failure::Usage(message)) => (2, message),
    };
    anstream::eprintln!("{ERROR}error:{ERROR:#} {message}");
    code
}
