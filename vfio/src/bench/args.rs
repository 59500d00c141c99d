//! The options of `mlx5 bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mlx5::Cpu;

use super::rows::{Row, rows};
use crate::cli::Failure;
use crate::cpu;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Draining completion queues: a table of nanoseconds and of how many times the floor that is
    #[command(after_help = CQ_EXAMPLES)]
    Cq(CqArgs),
    /// Instructions for each completion, counted by stepping through one drain
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[command(after_help = INSTRUCTIONS_EXAMPLES)]
    Instructions(InstructionsArgs),
    /// The drain that another process steps through
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[command(hide = true)]
    Step(StepArgs),
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const INSTRUCTIONS_EXAMPLES: &str = "\
Steps through one drain of a full ring of 64 entries, one instruction after the other, for each path and each level of the \
processor. The program that reads the completions is counted too. The counts are exact and do not depend on what else runs.

Examples:
  mlx5 bench instructions
  mlx5 bench instructions --cpu avx2
  mlx5 bench instructions --check                exit code 1 if a path takes more than it may
  mlx5 bench instructions --json";

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[derive(Debug, Args)]
pub(super) struct InstructionsArgs {
    /// Only paths that may take no more than so many, and fail if one does
    #[arg(long)]
    pub(super) check: bool,
    /// Only this level: portable, the name of another, or best [default: all that the processor has]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    pub(super) cpu: Option<Cpu>,
    /// Only rows whose path has these words in it
    #[arg(long, value_name = "WORDS", default_value = "")]
    pub(super) only: String,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[derive(Debug, Args)]
pub(super) struct StepArgs {
    /// Which row
    pub(super) row: usize,
    /// With which level
    #[arg(long, value_parser = level)]
    pub(super) cpu: Cpu,
}

const CQ_EXAMPLES: &str = "\
Drains rings full of completions, as a device would have left them, and prints what each completion takes, as a time and as a \
multiple of the floor: a loop that looks at each entry's owner bit and adds up its byte_cnt, measured in the same run. Filling \
the ring is not timed. Needs no device. Beside it stand the multiples of others for the same work, measured on one machine.

Let nothing else run on the processor; ratios of one run compare, times of different machines do not.

Examples:
  taskset -c 1 mlx5 bench cq
  mlx5 bench cq --quick                          only what has a mark, in a few seconds
  mlx5 bench cq --cpu portable                   without byte shuffles
  mlx5 bench cq --only 'poll_cq 16'
  mlx5 bench cq --svg bench.svg                  a chart as well
  mlx5 bench cq --json > bench.json";

#[derive(Debug, Args)]
pub(super) struct CqArgs {
    /// Less of each row, and without --only no more than the rows that have marks
    #[arg(long)]
    pub(super) quick: bool,
    /// Instructions that polling may use: portable, the name of a level, or best
    #[arg(long, value_name = "LEVEL", default_value = "best", value_parser = level)]
    pub(super) cpu: Cpu,
    /// Only rows whose path has these words in it, and the floors
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Also draws a chart into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

impl CqArgs {
    /// The rows that are asked for.
    ///
    /// # Errors
    /// `Usage` when there are none.
    pub(super) fn rows(&self) -> Result<Vec<Row>, Failure> {
        let Some(words) = &self.only else { return Ok(rows(self.quick)) };
        let mut rows = rows(false);
        rows.retain(|row| row.is_floor() || row.name().contains(words.as_str()));
        if rows.iter().all(Row::is_floor) {
            return Err(Failure::Usage(format!("--only: no path has '{words}' in it")));
        }
        Ok(rows)
    }
}

/// A level of the processor.
fn level(text: &str) -> Result<Cpu, String> {
    let levels = cpu::levels();
    if text == "best" {
        return Ok(cpu::detect());
    }
    let names = || levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ");
    levels
        .iter()
        .find(|level| level.name() == text)
        .copied()
        .ok_or_else(|| format!("this processor has no level '{text}', but best, {}", names()))
}
