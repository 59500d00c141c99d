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
use crate::rig::{DeviceArgs, Rig};
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

impl SelftestArgs {
    /// Whether the steps are to be named only.
    pub(crate) fn list(&self) -> bool {
        self.list
    }

    /// What to run on.
    pub(crate) fn rig(&self) -> Result<Box<dyn Rig>, Failure> {
        run::choose(&steps::all(), &self.only)?;
        let rig = self.device.rig(self.model.config(), &self.model.given())?;
        self.model.inject(rig.as_ref())?;
        Ok(rig)
    }
}

/// Names the steps.
pub(crate) fn list(json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let steps = steps::all();
    if json { print_json(&report::list_object(&steps), out) } else { report::list(&steps, out) }
}

/// Runs the steps and prints the report.
pub(crate) fn run(args: &SelftestArgs, rig: &dyn Rig, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let steps = steps::all();
    let run = Run::of(rig, &run::choose(&steps, &args.only)?, args, !json);
    if json {
        print_json(&report::object(&run), out)?;
    } else {
        report::text(&run, out)?;
    }
    run.verdict().map_or(Ok(()), |why| Err(Failure::Job(why)))
}
