//! `mlx5-model serve`.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use clap::builder::PossibleValuesParser;
use mlx5_model::serve::{Report, Server};
use mlx5_model::{CapConfig, DEVICE_ID_CX5_PF, Model, ModelConfig};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::Failure;
use super::fault::{self, Spec};

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
    /// Capabilities that the function does not have, by their names in the headers
    #[arg(long, value_name = "CAP", value_delimiter = ',', value_parser = capabilities())]
    without: Vec<String>,
    /// What the port is [default: ethernet]
    #[arg(long, value_enum, conflicts_with = "profile")]
    port: Option<Port>,
    /// The port has no link
    #[arg(long)]
    port_down: bool,
    /// The function cannot be reset by itself
    #[arg(long)]
    no_flr: bool,
    /// Something that goes wrong; may be given more than once
    #[arg(long, value_name = "SPEC", value_parser = fault::parse, long_help = fault::HELP)]
    fault: Vec<Spec>,
    /// Write a line for each command to this file, as it completes
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the report to this file instead of the standard output
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Serves one client until it disconnects, or until SIGTERM or SIGINT; then reports what it did. SIGUSR1 asks for the report
as it is by then, while it goes on serving; with --report the file then appears at once and whole.
Exit code 0: no violation. 1: violations, or the connection broke. 2: wrong arguments.

Examples:
  mlx5-model serve --socket /tmp/mlx5.sock
  mlx5-model serve --socket /tmp/mlx5.sock --profile core --pf --trace linux.log
  mlx5-model serve --socket /tmp/mlx5.sock --fault never:CREATE_EQ --fault late:INIT_HCA=50ms
  mlx5-model serve --socket /tmp/mlx5.sock --port ib --without cqe_compression,atomic --fault lost-cqe:20

For QEMU 10.1 or later, whose memory must be shared:
  qemu-system-x86_64 -machine q35,memory-backend=ram -m 1G \\
    -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/mlx5.sock\"}}' ...";

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Profile {
    Core,
    Roce,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Port {
    Ethernet,
    Ib,
}

fn capabilities() -> PossibleValuesParser {
    PossibleValuesParser::new(CapConfig::names())
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
    let mut profile = match (args.port, args.profile) {
        (Some(Port::Ib), _) => ModelConfig::infiniband(),
        (_, Profile::Core) => ModelConfig::core(),
        (_, Profile::Roce) => ModelConfig::default(),
    };
    for name in &args.without {
        // The parser has let known names through only.
        profile.caps.without(name);
    }
    let default_id = if args.pf { DEVICE_ID_CX5_PF } else { profile.device_id };
    ModelConfig {
        device_id: args.device_id.unwrap_or(default_id),
        bar_size: args.bar_size,
        vectors: args.vectors,
        seed: args.seed,
        boot_ns: args.boot_ms.saturating_mul(1_000_000),
        link_up: !args.port_down,
        flr: !args.no_flr,
        ..profile
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    // From here on a signal waits until there is a thread that hears it.
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1]);
    let signals = signals.map_err(|error| Failure::Job(format!("catching signals: {error}")))?;
    let model = Model::new(config(args));
    let server = Server::bind(&model, &args.socket).map_err(|error| Failure::Usage(error.to_string()))?;
    for fault in &args.fault {
        match *fault {
            Spec::Device(fault) => model.inject(fault),
            Spec::Data(fault, skip) => model.inject_data(fault, skip),
        }
    }
    let trace = args.trace.as_deref().map(|path| Trace::begin(&model, path)).transpose()?;
    hear_signals(signals, &model, args, trace.clone())?;
    anstream::eprintln!("waiting for a client on {}", args.socket.display());
    let served = server.run();
    let report = match &served {
        Ok(report) => report.clone(),
        Err(_) => Report::of(&model),
    };
    let written = write_out(&model, &report, args, trace.as_ref());
    served.map_err(|error| Failure::Job(error.to_string()))?;
    written?;
    judge(&report)
}

/// A signal asks for the report, or ends the server with it.
fn hear_signals(mut signals: Signals, model: &Model, args: &Args, trace: Option<Trace>) -> Result<(), Failure> {
    let (model, args) = (model.clone(), args.clone());
    let hear = move || {
        for signal in signals.forever() {
            let report = Report::of(&model);
            if signal == SIGUSR1 {
                if let Err(failure) = write_report(&report, &args) {
                    super::exit_code(Err(failure));
                }
                continue;
            }
            // It may be gone already.
            let _ = fs::remove_file(&args.socket);
            let ended = write_out(&model, &report, &args, trace.as_ref()).and_then(|()| judge(&report));
            process::exit(super::exit_code(ended).into());
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(hear);
    thread.map(drop).map_err(|error| Failure::Job(format!("no thread to hear signals: {error}")))
}

/// A file that gets a line for each command.
#[derive(Clone)]
struct Trace {
    path: PathBuf,
    /// The first error; no line is written after it.
    broken: Arc<Mutex<Option<io::Error>>>,
}

impl Trace {
    fn begin(model: &Model, path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let trace = Self { path: path.into(), broken: Arc::default() };
        let broken = trace.broken.clone();
        model.trace(move |command| {
            let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
            if broken.is_none() {
                // One write a line, unbuffered: whoever reads the file sees whole lines, also after a kill.
                *broken = (&file).write_all(format!("{command}\n").as_bytes()).err();
            }
        });
        Ok(trace)
    }

    fn end(&self, model: &Model) -> Result<(), Failure> {
        model.end_trace();
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).take();
        broken.map_or(Ok(()), |error| Err(cannot_write(&self.path, &error)))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Job(format!("writing {}: {error}", path.display()))
}

/// Ends the trace and reports.
fn write_out(model: &Model, report: &Report, args: &Args, trace: Option<&Trace>) -> Result<(), Failure> {
    let traced = trace.map_or(Ok(()), |trace| trace.end(model));
    write_report(report, args)?;
    traced
}

/// Writes the report; a file of it is there at once and whole, for whoever waits for it.
fn write_report(report: &Report, args: &Args) -> Result<(), Failure> {
    match &args.report {
        Some(path) => replace(path, &report.to_string()).map_err(|error| cannot_write(path, &error)),
        None => Ok(write!(anstream::stdout(), "{report}")?),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    if path.exists() && !path.is_file() {
        return fs::write(path, text);
    }
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // For all to read whom the mask of the process lets, as any file that is written.
    let mode = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn judge(report: &Report) -> Result<(), Failure> {
    match report.violations.len() {
        0 => Ok(()),
        1 => Err(Failure::Job("the driver broke the rules once".into())),
        count => Err(Failure::Job(format!("the driver broke the rules {count} times"))),
    }
}
