//! What the data path costs, beside a floor that is measured in the same run: `mlx5 bench`.
//!
//! Nothing here needs a device. Rings of completions are written as a device would have left them ([`rings`]) and drained through
//! the driver's own [`Cq`](mlx5::Cq), made of raw parts ([`drain`]). The [`floor`](floor::floor) is the least that any reader
//! must do. Only draining is timed, by turns ([`measure`](mod@measure)), and compared with what others take for the same bytes ([`peers`]).

mod args;
pub mod calls;
mod chart;
pub mod drain;
pub mod floor;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod instructions;
pub mod measure;
pub mod memory;
pub mod peers;
pub mod port;
mod report;
pub mod rings;
pub mod rows;
pub mod subject;

use std::io::Write;

pub(crate) use args::BenchArgs;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use args::InstructionsArgs;
use args::{CqArgs, What};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use instructions::Counted;
use measure::{Plan, Wrong, measure};
use report::Report;

use crate::cli::{Failure, print_json};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::cpu;
use crate::progress::Progress;

/// Measures, and prints what came of it.
pub(crate) fn run(args: &BenchArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    match &args.what {
        What::Cq(args) => cq(args, json, out),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        What::Instructions(args) => count(args, json, out),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        What::Step(args) => match instructions::counted().get(args.row) {
            Some(row) => instructions::step(row, args.cpu),
            None => Err(Failure::Usage(format!("no row {}", args.row))),
        },
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
    if let Some(path) = &args.svg {
        chart::draw(&report, path).map_err(|e| Failure::Job(format!("cannot draw {}: {e}", path.display())))?;
    }
    if json { print_json(&report.object(), out) } else { report.text(out) }
}

/// Counts instructions, and prints how many there were.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn count(args: &InstructionsArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let levels = args.cpu.map_or_else(cpu::levels, |cpu| vec![cpu]);
    let mut rows: Vec<_> = instructions::counted().into_iter().enumerate().collect();
    let guarded = |row: &rows::Row| levels.iter().any(|level| instructions::most(row, *level).is_some());
    rows.retain(|(_, row)| row.name().contains(args.only.as_str()) && (!args.check || guarded(row)));
    if rows.is_empty() {
        return Err(Failure::Usage(format!("--only: no path has '{}' in it", args.only)));
    }
    let mut progress = Progress::new(rows.len() as u64, true);
    let one = |(done, (number, row))| {
        progress.set(done as u64);
        Counted::new(number, row, &levels)
    };
    let counted = rows.into_iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
    drop(progress);
    if json {
        print_json(&report::counts_object(&counted), out)?
    } else {
        report::counts_text(&counted, &levels, out)?
    }
    let too_many: Vec<_> = counted.iter().flat_map(Counted::too_many).collect();
    if args.check && !too_many.is_empty() { Err(Failure::Job(too_many.join("; "))) } else { Ok(()) }
}
