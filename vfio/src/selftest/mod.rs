//! `mlx5 selftest`: what works on a device, step by step, and a report of it that is worth pasting into an issue.

mod bench;
mod facts;
mod model;
mod need;
mod outcome;
mod report;
mod run;
mod steps;

use std::io::Write;

use clap::Args;

use crate::cli::{Failure, print_json};
use crate::rig::DeviceArgs;
pub(crate) use facts::{RawPage, pages};
use model::ModelArgs;
use run::Run;

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Run these steps only, besides bring-up and teardown (`--list` names them; a name may end in *)
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer round trips in each step
    #[arg(long)]
    quick: bool,
    /// Name the steps, what each shows and which capabilities it needs, and do nothing
    #[arg(long)]
    list: bool,
    /// Tell MAC address, GUIDs and GID as well: they name the machine
    #[arg(long)]
    ids: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// Runs the steps and prints the report.
pub(crate) fn run(args: &SelftestArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let steps = steps::all();
    let chosen = run::choose(&steps, &args.only)?;
    if args.list {
        return if json { print_json(&report::list_object(&steps), out) } else { report::list(&steps, out) };
    }
    let rig = args.device.rig(args.model.config(), &args.model.given())?;
    args.model.inject(rig.as_ref())?;
    let run = Run::of(rig.as_ref(), &chosen, args, !json);
    if json {
        print_json(&report::object(&run), out)?;
    } else {
        report::text(&run, out)?;
    }
    run.verdict().map_or(Ok(()), |why| Err(Failure::Job(why)))
}
