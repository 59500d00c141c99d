//! What the data path costs, beside a floor that is measured in the same run: `mlx5 bench`.
//!
//! Nothing here needs a device. Rings of completions are written as a device would have left them ([`rings`]) and drained through
//! the driver's own [`Cq`](mlx5::Cq), made of raw parts ([`drain`]). The [`floor`](floor::floor) is the least that any reader
//! must do. Only draining is timed, by turns ([`measure`]), and compared with what others take for the same bytes ([`peers`]).

mod args;
pub mod drain;
pub mod floor;
pub mod measure;
pub mod memory;
pub mod peers;
mod report;
pub mod rings;
pub mod rows;
pub mod subject;

use std::io::Write;

pub(crate) use args::BenchArgs;
use args::{CqArgs, What};
use measure::{Plan, Wrong, measure};
use report::Report;

use crate::cli::{Failure, print_json};
use crate::progress::Progress;

/// Measures, and prints what came of it.
pub(crate) fn run(args: &BenchArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        What::Cq(args) => cq(args, json, out),
    }
}

fn cq(args: &CqArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let (rows, plan) = (args.rows()?, if args.quick { Plan::QUICK } else { Plan::FULL });
    let subjects = rows.iter().map(|row| row.subject(args.cpu).map_err(|e| (row, e))).collect::<Result<Vec<_>, _>>();
    let mut subjects = subjects.map_err(|(row, e)| Failure::Job(format!("{}: {e}", row.name())))?;
    let mut progress = Progress::new(u64::from(plan.rounds) * rows.len() as u64, true);
    let times = measure(&mut subjects, plan, |done| progress.set(done)).map_err(|Wrong { row, right, got }| {
        let name = rows.get(row).map(rows::Row::name).unwrap_or_default();
        Failure::Job(format!("{name}: the completions of a lap add up to {got} and should to {right}"))
    })?;
    drop(progress);
    let report = Report::new(&rows, &times, args.cpu);
    if json { print_json(&report.object(), out) } else { report.text(out) }
}
