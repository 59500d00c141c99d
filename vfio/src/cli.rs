//! The command line: arguments, output, exit codes.
//!
//! Exit code 0: done. 1: the job failed. 2: wrong arguments, or input that could not be read. 128 and a signal's number: that signal
//! ended the job, and what it had was given back.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};

use crate::bench::{self, BenchArgs};
use crate::cq::{self, CqArgs};
use crate::decode::{self, Compress, Hints, Kind, Layout, Record};
use crate::host_cli::{self, BindArgs, ListArgs, UnbindArgs};
use crate::info::{self, InfoArgs};
use crate::options::CqeSize;
use crate::pingpong::{self, PingpongArgs};
use crate::progress::Busy;
use crate::rig::Rig;
use crate::selftest::{self, SelftestArgs};
use crate::stop;

const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Longest input that `decode` reads, in bytes.
const MAX_INPUT: u64 = 64 << 20;

/// Looks at and drives mlx5 (ConnectX) devices without a kernel driver.
#[derive(Debug, Parser)]
#[command(name = "mlx5", version, after_help = MAIN_EXAMPLES, arg_required_else_help = true)]
struct Cli {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Cmd,
}

const MAIN_EXAMPLES: &str = "\
Examples:
  mlx5 list                          the mlx5 functions of this machine
  sudo mlx5 bind 0000:03:00.0        give one to vfio-pci; unbind gives it back
  mlx5 pingpong --model              first completions, on the software model
  mlx5 pingpong 0000:03:00.0         the same on a card
  mlx5 cq --model --compress hash    what a kind of completion queue is
  mlx5 info 0000:03:00.0             firmware, ids and capabilities
  mlx5 decode dump.txt               what the bytes in a log say
  mlx5 bench cq                      what polling costs here
  mlx5 help decode                   more about one command

Exit codes: 0 done, 1 the job failed, 2 wrong arguments or unreadable input, 130 stopped by Ctrl-C.";

#[derive(Debug, Subcommand)]
enum Cmd {
    /// The mlx5 functions of this machine, who holds them, and what is missing before they can be opened
    #[command(after_help = host_cli::LIST_EXAMPLES)]
    List(ListArgs),
    /// Gives functions to vfio-pci, so that this tool can open them
    #[command(after_help = host_cli::BIND_EXAMPLES)]
    Bind(BindArgs),
    /// Gives functions back to the driver that they had
    #[command(after_help = host_cli::UNBIND_EXAMPLES)]
    Unbind(UnbindArgs),
    /// Round trips between two queue pairs, every byte verified
    #[command(after_help = PINGPONG_EXAMPLES, override_usage = "mlx5 pingpong <BDF|--model> [OPTIONS]")]
    Pingpong(PingpongArgs),
    /// What a completion queue with these options is, or why there is none
    #[command(after_help = CQ_EXAMPLES, override_usage = "mlx5 cq <BDF|--model> [OPTIONS]")]
    Cq(CqArgs),
    /// What works on a device, step by step, as a report for an issue
    #[command(after_help = SELFTEST_EXAMPLES, override_usage = "mlx5 selftest <BDF|--model> [OPTIONS]")]
    Selftest(SelftestArgs),
    /// Firmware, ids and capabilities of a device
    #[command(after_help = INFO_EXAMPLES, override_usage = "mlx5 info <BDF|--model> [OPTIONS]")]
    Info(InfoArgs),
    /// Bytes and log lines of the device in plain words: CQEs, commands, events, health, messages of drivers and programs
    #[command(after_help = DECODE_EXAMPLES)]
    Decode(DecodeArgs),
    /// What polling costs on this machine, beside the least that it could
    Bench(BenchArgs),
}

const PINGPONG_EXAMPLES: &str = "\
Takes a function from reset to verified round trips and back: firmware, pages, queues, two connected queue pairs, \
messages that differ from each other, all of it given back. Ends with a histogram of what each message took.

On a card both ends are on the same port, which sends to itself: no cable and no partner is needed. The function has to be bound \
to vfio-pci (`mlx5 bind`). Ctrl-C ends the run, quiesces and resets the function, and reports what was done; exit code 130. A second one \
ends the tool at once.

Examples:
  mlx5 pingpong 0000:03:00.0                     on a card
  mlx5 pingpong 0000:03:00.0 --events --vectors 4
  mlx5 pingpong 0000:03:00.0 --iters 1000000 --size 4096 --compress csum
  mlx5 pingpong --model                          on the software model
  mlx5 pingpong --model --thread --depth 1       the device on its own thread, one message at a time
  mlx5 pingpong --model --events --depth 1       the same, sleeping until each completion comes
  mlx5 pingpong --model --iters 2000 --size 4096
  mlx5 pingpong --model --compress csum --layout enhanced --cqe-size 128
  mlx5 pingpong --model --inline-cqe --size 32
  mlx5 pingpong --model --transport ud --srq     datagrams, received from one shared receive queue
  mlx5 pingpong --model --transport uc --fault lost-message   what got lost; exit code 1
  mlx5 pingpong --model --iters 4 --trace        every command with its status and time
  mlx5 pingpong --model --fault lost-cqe         how a failure looks; exit code 1
  mlx5 pingpong --model --json";

const CQ_EXAMPLES: &str = "\
Creates a completion queue as ibv_create_cq_ex(3) and mlx5dv_create_cq(3) do, and prints what the device says of it: \
number, entries, format, what polling gives. Nothing is checked beforehand, so what the library or the device refuses comes \
back with its errno; exit code 1.

Examples:
  mlx5 cq 0000:03:00.0 --all                     what a card takes and refuses
  mlx5 cq --model --cqe 1000
  mlx5 cq --model --cqe-size 128 --pad --compress csum --layout enhanced
  mlx5 cq --model --wc-flags standard,completion-timestamp --flags ignore-overrun
  mlx5 cq --model --cqe 0                        a refusal: errno and why; exit code 1
  mlx5 cq --model --compress hash --without cqe_compression
  mlx5 cq --model --all                          every kind of queue with real traffic, as a table";

const SELFTEST_EXAMPLES: &str = "\
Brings a function up and tries step by step what this driver can do: each kind of completion queue, events, transports, \
requests that have to fail, teardown, a second bring-up. Needs no other machine: the function talks to itself. Each step ends as \
pass, FAIL, not offered (by the capability that says so) or not run; exit code 1 unless all that the device offers has passed \
and a connection is among it (else the result is FAILED, or INCOMPLETE where nothing was wrong).

The report is made to be pasted into an issue: without --ids it has no address that names the machine.

Examples:
  mlx5 selftest 0000:03:00.0
  mlx5 selftest 0000:03:00.0 --json > selftest.json
  mlx5 selftest --list                           the steps, what each shows and needs
  mlx5 selftest --model --only 'cq-64*,events'
  mlx5 selftest --model --without cq_resize      what a lesser device looks like
  mlx5 selftest --model --fault wrong-counter    how a failure looks; exit code 1";

const INFO_EXAMPLES: &str = "\
Takes the function from reset to bring-up, asks, and gives it back. Addresses that tell one machine from all others (MAC, GID, GUIDs) are \
left out, so that the output can be shown to others.

Examples:
  mlx5 info 0000:03:00.0
  mlx5 info 0000:03:00.0 --ids                   with the addresses
  mlx5 info --model
  mlx5 info --model --json";

const DECODE_EXAMPLES: &str = "\
Reads plain hex, with or without blanks, commas and 0x; the rows of kernel, libmlx5, DPDK and hexdump dumps with their \
offsets and log prefixes; and raw bytes of a file. Several dumps one behind the other give several results.

Reads whole logs as well, with anything between: messages of the kernel about commands, timeouts, completions and health, \
error completions as libmlx5, UCX, NCCL, DPDK, perftest and MPI print them, in decimal or hex as each does. Lines that it \
does not know are passed over.

Examples:
  mlx5 decode dump.txt
  dmesg | mlx5 decode                            the whole log
  dmesg | grep -A4 dump_cqe | mlx5 decode --as cqe
  mlx5 decode --as cqe entry.bin
  mlx5 decode --as cqe --compress csum ring.bin   a dump of a queue with compressed completions
  mlx5 decode --json --hex \"$(xxd -p entry.bin)\"";

#[derive(Debug, Args)]
struct DecodeArgs {
    /// File with a log or a dump, or with raw bytes; '-' or nothing reads standard input
    #[arg(value_name = "FILE", conflicts_with = "hex")]
    file: Option<PathBuf>,
    /// The bytes
    #[arg(long, value_name = "HEX")]
    hex: Option<String>,
    /// What the bytes are [default: guessed]
    #[arg(long = "as", value_name = "KIND")]
    kind: Option<Kind>,
    /// Bytes of a completion queue entry, 64 or 128 [default: guessed]
    #[arg(long, value_name = "BYTES")]
    cqe_size: Option<CqeSize>,
    /// What compressed completions have beside their length, as their queue was created
    #[arg(long, value_name = "FORMAT")]
    compress: Option<Compress>,
    /// Where compressed completions lie
    #[arg(long, value_name = "LAYOUT", default_value = "basic")]
    layout: Layout,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments or the input are wrong: exit code 2.
    Usage(String),
    /// The job failed: exit code 1.
    Job(String),
    /// There is no function to do it on: exit code 1, and the reason in JSON too.
    NoDevice {
        /// Its name, as JSON has it.
        device: String,
        /// What stands in the way.
        why: String,
        /// The same, for programs.
        kind: &'static str,
    },
    /// The output went nowhere: exit code 1, and silent when a pipe was closed.
    Output(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs the tool with the arguments of the process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = anstream::stdout().lock();
    let Ended { result, rig } = run(&cli, &mut out);
    let code = tell(result.and_then(|()| Ok(out.flush()?)), cli.json, &mut out);
    // Only now: the kernel waits a minute for a function that is gone.
    let _busy = Busy::new("giving the function back");
    drop(rig);
    code
}

/// How a command ended, and what it ran on, if that was opened.
struct Ended {
    result: Result<(), Failure>,
    rig: Option<Box<dyn Rig>>,
}

impl From<Result<(), Failure>> for Ended {
    fn from(result: Result<(), Failure>) -> Self {
        Self { result, rig: None }
    }
}

/// Does a job on a function.
fn on(rig: Result<Box<dyn Rig>, Failure>, job: impl FnOnce(&dyn Rig) -> Result<(), Failure>) -> Ended {
    match rig {
        Ok(rig) => Ended { result: job(&*rig), rig: Some(rig) },
        Err(failure) => Err(failure).into(),
    }
}

/// Says why a command failed, if it did; the exit code.
fn tell(result: Result<(), Failure>, json: bool, out: &mut dyn Write) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(Failure::Output(e)) => report(failed(), &format!("cannot write the output: {e}")),
        Err(Failure::Job(message)) => report(failed(), &message),
        Err(Failure::NoDevice { device, why, kind }) => {
            let object = json!({ "device": device, "error": why, "kind": kind });
            no_device(&object, &why, json, out)
        }
        Err(Failure::Usage(message)) => report(2, &message),
    }
}

/// The exit code of what failed: the one of the signal that ended it, if one did.
fn failed() -> u8 {
    stop::check().map_or_else(stop::Stopped::exit_code, |()| 1)
}

fn no_device(object: &Value, why: &str, json: bool, out: &mut dyn Write) -> ExitCode {
    let told = if json { print_json(object, out) } else { Ok(()) };
    match told {
        Err(Failure::Output(e)) if e.kind() != io::ErrorKind::BrokenPipe => {
            report(failed(), &format!("cannot write the output: {e}"))
        }
        _ => report(failed(), why),
    }
}

fn report(code: u8, message: &str) -> ExitCode {
    anstream::eprintln!("{ERROR}error:{ERROR:#} {message}");
    ExitCode::from(code)
}

fn run(cli: &Cli, out: &mut dyn Write) -> Ended {
    let json = cli.json;
    match &cli.command {
        Cmd::List(args) => host_cli::list(args, json, out).into(),
        Cmd::Bind(args) => host_cli::bind(args, json, out).into(),
        Cmd::Unbind(args) => host_cli::unbind(args, json, out).into(),
        Cmd::Pingpong(args) => on(args.rig(), |rig| pingpong::run(args, rig, json, out)),
        Cmd::Cq(args) => on(args.rig(), |rig| cq::run(args, rig, json, out)),
        Cmd::Selftest(args) if args.list() => selftest::list(json, out).into(),
        Cmd::Selftest(args) => on(args.rig(), |rig| selftest::run(args, rig, json, out)),
        Cmd::Info(args) => on(args.rig(), |rig| info::run(args, rig, json, out)),
        Cmd::Decode(args) => decode(args, json, out).into(),
        Cmd::Bench(args) => bench::run(args, json, out).into(),
    }
}

fn decode(args: &DecodeArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let (source, content) = match (&args.hex, &args.file) {
        (Some(hex), _) => ("--hex".into(), hex.clone().into_bytes()),
        (None, Some(path)) if path != Path::new("-") => (path.display().to_string(), read_file(path)?),
        _ => ("standard input".to_string(), read_stdin()?),
    };
    let cqe_size = args.cqe_size.map(|size| usize::from(size.bytes()));
    let hints = Hints { kind: args.kind, cqe_size, compress: args.compress, layout: args.layout };
    let records = if decode::hex::is_raw(&content) {
        decode::decode_bytes(&content, hints)
    } else {
        decode::decode_text(&String::from_utf8_lossy(&content), hints)
    }
    .map_err(|e| Failure::Usage(format!("cannot decode {source}: {e}")))?;
    print_records(&records, json, out)
}

fn print_records(records: &[Record], json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        let list = records.iter().map(|r| Value::Object(r.json.clone())).collect();
        return print_json(&Value::Array(list), out);
    }
    for (i, record) in records.iter().enumerate() {
        if records.len() > 1 {
            writeln!(out, "{}[{} of {}] {}", if i > 0 { "\n" } else { "" }, i + 1, records.len(), record.title())?;
        } else if !record.lines.is_empty() {
            writeln!(out, "{}", record.title())?;
        }
        write!(out, "{}", record.to_text())?;
    }
    Ok(())
}

/// Prints an object or list, indented.
pub(crate) fn print_json(value: &Value, out: &mut dyn Write) -> Result<(), Failure> {
    Ok(writeln!(out, "{value:#}")?)
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let fail = |e: io::Error| Failure::Usage(format!("cannot read {}: {e}", path.display()));
    read_all(std::fs::File::open(path).map_err(fail)?).map_err(fail)
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    if io::stdin().is_terminal() {
        anstream::eprintln!("reading bytes from the terminal; end them with Ctrl-D");
    }
    read_all(io::stdin().lock()).map_err(|e| Failure::Usage(format!("cannot read standard input: {e}")))
}

fn read_all(from: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    from.take(MAX_INPUT + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_INPUT {
        return Err(io::Error::other("more than 64 MiB; pass the part around the error"));
    }
    Ok(content)
}
