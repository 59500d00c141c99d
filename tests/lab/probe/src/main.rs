//! What the lab's guests measure of the driver on VFIO, beyond what the `mlx5` tool shows.
//!
//! Each result is a line `@@probe NAME key=value ...` for the lab, which judges it. A device is the address of a function
//! that is bound to vfio-pci, or `model`: the software function in this process, on which the crate's own tests run.

mod accounts;
mod fork;
mod idle;
mod lost;
mod memory;
mod pair;
mod target;
mod traffic;
mod vectors;

use std::error::Error;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use lost::Call;
use target::Target;

/// Any error, with its sentence.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Measures what the driver does on a function; a line `@@probe ...` for each result.
#[derive(Debug, Parser)]
#[command(name = "mlx5-lab-probe", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

const EXAMPLES: &str = "\
Examples:
  mlx5-lab-probe vectors model
  mlx5-lab-probe idle 0000:01:00.0 --seconds 3
  mlx5-lab-probe traffic 0000:01:00.0 --endless
  mlx5-lab-probe gone get-event 0000:01:00.0    says `struck`: kill the device then

Exit codes: 0 done, 1 something failed, 2 wrong arguments.";

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Completion events on each vector: how many were asked for, taken, and raised
    Vectors {
        #[command(flatten)]
        device: DeviceArgs,
        /// Events on each vector
        #[arg(long, default_value_t = 20)]
        rounds: u64,
    },
    /// What an idle wait costs: ticks of the processor and context switches
    Idle {
        #[command(flatten)]
        device: DeviceArgs,
        /// How long it waits
        #[arg(long, default_value_t = 3)]
        seconds: u64,
    },
    /// Messages between two queue pairs of each function, all functions at once, every byte compared
    Traffic {
        #[command(flatten)]
        devices: DevicesArgs,
        /// Messages on each function
        #[arg(long, default_value_t = 200)]
        rounds: u64,
        /// Until the process is killed; says `running` when messages flow
        #[arg(long, conflicts_with = "rounds")]
        endless: bool,
        /// Sleeps until each completion comes, instead of polling
        #[arg(long)]
        events: bool,
    },
    /// A call that blocks while the device dies; says `struck` when it is to be killed
    Gone {
        /// What blocks
        call: Call,
        #[command(flatten)]
        device: DeviceArgs,
    },
    /// A call that blocks while somebody else resets the function; then it is opened again
    Reset {
        /// What blocks
        call: Call,
        #[command(flatten)]
        device: DeviceArgs,
    },
    /// Memory of this process: registered, written and read by the device, given back
    Memory {
        #[command(flatten)]
        device: DeviceArgs,
        /// Bytes
        #[arg(long, default_value_t = 100_001)]
        bytes: usize,
    },
    /// Work requests that name an I/O address where nothing is mapped; then traffic again
    Unmapped {
        #[command(flatten)]
        device: DeviceArgs,
    },
    /// Traffic while a forked child has the same memory
    Fork {
        #[command(flatten)]
        device: DeviceArgs,
        /// How long the child lives, in milliseconds
        #[arg(long, default_value_t = 1000)]
        child_ms: u64,
    },
}

/// Which device.
#[derive(Debug, Args)]
struct DeviceArgs {
    /// Address of a function, or `model`
    device: String,
    #[command(flatten)]
    how: target::Options,
}

/// Which devices.
#[derive(Debug, Args)]
struct DevicesArgs {
    /// Addresses of functions, or `model`
    #[arg(required = true)]
    devices: Vec<String>,
    #[command(flatten)]
    how: target::Options,
}

impl DeviceArgs {
    fn open(&self) -> Result<Target> {
        Target::open(&self.device, &self.how)
    }
}

fn run(command: &Cmd) -> Result<()> {
    match command {
        Cmd::Vectors { device, rounds } => vectors::run(&device.open()?, *rounds),
        Cmd::Idle { device, seconds } => idle::run(&device.open()?, *seconds),
        Cmd::Traffic { devices, rounds, endless, events } => {
            let open = |name: &String| Target::open(name, &devices.how);
            let targets = devices.devices.iter().map(open).collect::<Result<Vec<_>>>()?;
            traffic::run(&targets, (!endless).then_some(*rounds), *events)
        }
        Cmd::Gone { call, device } => lost::gone(&device.open()?, *call),
        Cmd::Reset { call, device } => lost::reset(&device.open()?, *call),
        Cmd::Memory { device, bytes } => memory::registered(&device.open()?, *bytes),
        Cmd::Unmapped { device } => memory::unmapped(&device.open()?),
        Cmd::Fork { device, child_ms } => fork::run(&device.open()?, *child_ms),
    }
}

/// Prints a result for the lab.
fn say(name: &str, what: &str) {
    println!("@@probe {name} {what}");
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say("failed", &error.to_string());
            ExitCode::FAILURE
        }
    }
}
