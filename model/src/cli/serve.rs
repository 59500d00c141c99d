//! `mlx5-model serve`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use mlx5_model::serve::{Report, Server};
use mlx5_model::{DEVICE_ID_CX5_PF, Fault, Model, ModelConfig};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{Failure, fault};

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Unix socket to listen on; removed at the end
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// What the function can do: `core` for Linux's mlx5_core alone, `roce` for verbs
    #[arg(long, value_enum, default_value_t = Profile::Roce)]
    profile: Profile,
    /// PCI device id, hexadecimal [default: 1018, a ConnectX-5 virtual function]
    #[arg(long, value_name = "HEX", value_parser = device_id, conflicts_with = "pf")]
    device_id: Option<u16>,
    /// A physical function: device id 1017
    #[arg(long)]
    pf: bool,
    /// Where pseudo-random choices start
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Milliseconds that firmware takes to boot after a reset
    #[arg(long, value_name = "N", default_value_t = 0)]
    boot_ms: u64,
    /// MSI-X vectors
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    vectors: u32,
    /// Size of BAR 0 in bytes, a power of two from 64K on; K, M and G may follow
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = bar_size)]
    bar_size: usize,
    /// Something that goes wrong; may be given more than once
    #[arg(long, value_name = "SPEC", value_parser = fault::parse, long_help = fault::HELP)]
    fault: Vec<Fault>,
    /// Write a line for each command to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the report to this file instead of the standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Serves one client until it disconnects, or until SIGTERM or SIGINT; then reports what its driver did.
Exit code 0: no violation. 1: violations, or the connection broke. 2: wrong arguments.

Examples:
  mlx5-model serve --socket /tmp/mlx5.sock
  mlx5-model serve --socket /tmp/mlx5.sock --profile core --pf --trace linux.log
  mlx5-model serve --socket /tmp/mlx5.sock --fault never:CREATE_EQ --fault late:INIT_HCA=50ms

For QEMU 10.1 or later, whose memory must be shared:
  qemu-system-x86_64 -machine q35,memory-backend=ram -m 1G \\
    -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/mlx5.sock\"}}' ...";

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Profile {
    Core,
    Roce,
}

fn device_id(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u16::from_str_radix(digits, 16).map_err(|_| "not a hexadecimal number of 16 bits".into())
}

fn bar_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let size = digits.parse().ok().and_then(|n: usize| n.checked_mul(1 << shift));
    let fits = |size: &usize| size.is_power_of_two() && (1 << 16..=1 << 40).contains(size);
    size.filter(fits).ok_or_else(|| "not a power of two from 64K to 1024G".into())
}

fn config(args: &Args) -> ModelConfig {
    let profile = match args.profile {
        Profile::Core => ModelConfig::core(),
        Profile::Roce => ModelConfig::default(),
    };
    let default_id = if args.pf { DEVICE_ID_CX5_PF } else { profile.device_id };
    ModelConfig {
        device_id: args.device_id.unwrap_or(default_id),
        bar_size: args.bar_size,
        vectors: args.vectors,
        seed: args.seed,
        boot_ns: args.boot_ms.saturating_mul(1_000_000),
        ..profile
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let model = Model::new(config(args));
    let server = Server::bind(&model, &args.socket).map_err(|error| Failure::Usage(error.to_string()))?;
    for fault in &args.fault {
        model.inject(*fault);
    }
    end_on_signal(&model, args)?;
    anstream::eprintln!("waiting for a client on {}", args.socket.display());
    let served = server.run();
    let report = match &served {
        Ok(report) => report.clone(),
        Err(_) => Report::of(&model),
    };
    write_out(&model, &report, args)?;
    served.map_err(|error| Failure::Job(error.to_string()))?;
    judge(&report)
}

/// A signal ends the server with the same report.
fn end_on_signal(model: &Model, args: &Args) -> Result<(), Failure> {
    let signals = Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|error| Failure::Job(format!("catching signals: {error}")))?;
    let (model, args) = (model.clone(), args.clone());
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            // It may be gone already.
            let _ = fs::remove_file(&args.socket);
            let report = Report::of(&model);
            let ended = write_out(&model, &report, &args).and_then(|()| judge(&report));
            process::exit(super::exit_code(ended).into());
        }
    });
    Ok(())
}

fn write_out(model: &Model, report: &Report, args: &Args) -> Result<(), Failure> {
    if let Some(path) = &args.trace {
        let lines: String = model.commands().iter().map(|command| format!("{command}\n")).collect();
        write_file(path, &lines)?;
    }
    match &args.report {
        Some(path) => write_file(path, &report.to_string()),
        None => {
            anstream::print!("{report}");
            Ok(())
        }
    }
}

fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::Job(format!("writing {}: {error}", path.display())))
}

fn judge(report: &Report) -> Result<(), Failure> {
    match report.violations.len() {
        0 => Ok(()),
        1 => Err(Failure::Job("the driver broke the rules once".into())),
        count => Err(Failure::Job(format!("the driver broke the rules {count} times"))),
    }
}
