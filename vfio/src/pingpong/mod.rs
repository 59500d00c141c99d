//! `mlx5 pingpong`: from a reset function to verified round trips and back.

mod link;
mod rounds;

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use mlx5::device::CommandTrace;
use mlx5::{Device, DeviceConfig, ibv};
use mlx5_model::{DataFault, Model, ModelConfig};
use serde_json::{Value, json};

use crate::cli::{Failure, print_json};
use crate::decode::table;
use link::Link;
use rounds::Rounds;

/// A run that takes longer than this shows its progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct PingpongArgs {
    #[command(flatten)]
    pub(crate) device: crate::cli::DeviceArgs,
    /// Round trips
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    iters: u64,
    /// Bytes of a message, 1 to 1048576
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Smallest number of completion queue entries
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_194_303))]
    cqe: u32,
    /// Where the payloads come from: the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print each command: name, status, time
    #[arg(long)]
    trace: bool,
    /// Let the model do something wrong, in the middle of the run: the tool must find it
    #[arg(long, value_name = "FAULT")]
    fault: Option<Fault>,
}

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// A byte of a message changes on the wire
    Corrupt,
    /// A completion is never written
    LostCqe,
    /// Two completions change places
    BadOrder,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::LostCqe => "lost-cqe",
            Self::BadOrder => "bad-order",
        }
    }

    /// Injects it for the middle of `iters` round trips: each has two messages and four completions.
    fn inject(self, model: &Model, args: &PingpongArgs) {
        let (messages, completions) = (args.iters, 2 * args.iters);
        match self {
            Self::Corrupt => {
                let offset = args.iters % u64::from(args.size);
                model.inject_data(DataFault::CorruptPayload { offset, xor: 0x40 }, messages);
            }
            Self::LostCqe => model.inject_data(DataFault::LostCqe, completions),
            Self::BadOrder => model.inject_data(DataFault::SwappedCqe { ns: 1_000_000 }, completions),
        }
    }
}

/// Commands as they ended.
type Trace = Arc<Mutex<Vec<CommandTrace>>>;

/// What a run came to.
#[derive(Default)]
struct Outcome {
    firmware: String,
    cqe: u32,
    cqe_size: u32,
    in_flight: u32,
    verified: u64,
    elapsed: Duration,
    failure: Option<String>,
    teardown: Option<String>,
}

/// Runs the round trips and prints what they came to.
pub(crate) fn run(args: &PingpongArgs, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if !json {
        writeln!(out, "Software model of a ConnectX-5 function, no card: the times below are not a card's.")?;
        out.flush()?;
    }
    let model = Model::new(ModelConfig { seed: args.seed, ..ModelConfig::default() });
    let trace = Trace::default();
    let outcome = measure(args, &model, &trace, json)?;
    let trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
    let violations: Vec<String> = model.violations().iter().map(ToString::to_string).collect();
    let error = verdict(args, &outcome, violations.len());
    if json {
        print_json(&object(args, &outcome, &trace, &violations, error.as_deref()), out)?;
    } else {
        text(args, &outcome, &trace, &violations, out)?;
        writeln!(out, "  result      {}", if error.is_none() { "passed" } else { "FAILED" })?;
    }
    error.map_or(Ok(()), |e| Err(Failure::Job(e)))
}

/// Brings the model up, runs, tears down.
fn measure(args: &PingpongArgs, model: &Model, trace: &Trace, json: bool) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut config = DeviceConfig::default();
    let commands = trace.clone();
    config.trace = Some(Arc::new(move |command| {
        commands.lock().unwrap_or_else(PoisonError::into_inner).push(*command);
    }));
    let device = match ibv::open_device(model.clone(), model.clone(), config) {
        Ok(device) => device,
        Err(e) => {
            outcome.failure = Some(format!("the device did not come up: {e}"));
            return Ok(outcome);
        }
    };
    let most = ibv::query_device(&device).max_cqe;
    if args.cqe > most {
        return Err(Failure::Usage(format!(
            "--cqe {}: this device's completion queues have at most {most} entries",
            args.cqe
        )));
    }
    let (major, minor, sub) = device.info().firmware;
    outcome.firmware = format!("{major}.{minor}.{sub:04}");
    trips(args, model, &device, &mut outcome, json);
    if let Err(e) = ibv::close_device(device) {
        let leaked: Vec<&str> = e.object.leaked().iter().map(|l| l.what).collect();
        outcome.teardown.get_or_insert(format!("closing the device failed: {e}; memory kept: {leaked:?}"));
    }
    let (ranges, bytes) = model.dma_outstanding();
    if ranges != 0 {
        outcome.teardown.get_or_insert(format!("{ranges} ranges of memory ({bytes} bytes) were not given back"));
    }
    Ok(outcome)
}

/// Makes the connection, runs the round trips, takes it down.
fn trips(args: &PingpongArgs, model: &Model, device: &Device, outcome: &mut Outcome, json: bool) {
    let mut link = match Link::new(device, args.cqe, args.size) {
        Ok(link) => link,
        Err(e) => {
            outcome.failure = Some(format!("the connection was not made: {e}"));
            return;
        }
    };
    (outcome.cqe, outcome.cqe_size, outcome.in_flight) = (link.a.cq.cqe(), link.a.cq.cqe_size(), link.depth);
    if let Some(fault) = args.fault {
        fault.inject(model, args);
    }
    let start = Instant::now();
    let mut bar = None;
    let mut rounds = Rounds::new(&mut link, model, args.size, args.seed);
    let result = rounds.run(args.iters, |done| show(&mut bar, done, args.iters, start, json));
    outcome.elapsed = start.elapsed();
    outcome.verified = rounds.verified;
    outcome.failure = result.err().map(|e| e.to_string());
    bar.inspect(ProgressBar::finish_and_clear);
    if let Err(e) = link.close() {
        outcome.teardown = Some(format!("taking the connection down failed: {e}"));
    }
}

/// A progress bar, on a terminal and when it takes long.
fn show(bar: &mut Option<ProgressBar>, done: u64, iters: u64, start: Instant, json: bool) {
    if bar.is_none() && !json && start.elapsed() > PROGRESS_AFTER && std::io::stderr().is_terminal() {
        *bar = Some(ProgressBar::new(iters));
    }
    if let Some(bar) = bar {
        bar.set_position(done);
    }
}

/// Why the run counts as failed, if it does.
fn verdict(args: &PingpongArgs, outcome: &Outcome, violations: usize) -> Option<String> {
    if let Some(failure) = &outcome.failure {
        return Some(failure.clone());
    }
    if let Some(teardown) = &outcome.teardown {
        return Some(teardown.clone());
    }
    if violations != 0 {
        return Some(format!("the driver broke {violations} rule(s) of the hardware"));
    }
    if outcome.verified != args.iters {
        return Some(format!("{} of {} payloads were verified", outcome.verified, args.iters));
    }
    args.fault.map(|fault| {
        let alone = if args.iters.min(outcome.in_flight.into()) == 1 {
            "; with one message in flight it may not: use larger --iters or --cqe"
        } else {
            ""
        };
        format!("fault {} did not show{alone}", fault.name())
    })
}

fn object(
    args: &PingpongArgs,
    o: &Outcome,
    trace: &[CommandTrace],
    violations: &[String],
    error: Option<&str>,
) -> Value {
    let mut object = json!({
        "device": "software model; its times are not a card's",
        "firmware": o.firmware,
        "iters": args.iters,
        "size": args.size,
        "seed": args.seed,
        "verified": o.verified,
        "violations": violations.len(),
        "violation_list": violations,
        "commands": trace.len(),
        "cq": { "cqe": o.cqe, "cqe_size": o.cqe_size },
        "in_flight": o.in_flight,
        "elapsed_ns": o.elapsed.as_nanos() as u64,
        "teardown": o.teardown.as_deref().unwrap_or("clean"),
        "fault": args.fault.map(Fault::name),
        "error": error,
    });
    if args.trace {
        let rows = trace.iter().map(|c| json!({ "name": name(c), "status": status(c), "ns": c.duration }));
        object["trace"] = rows.collect();
    }
    object
}

fn text(
    args: &PingpongArgs,
    o: &Outcome,
    trace: &[CommandTrace],
    violations: &[String],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if args.trace {
        let rows = trace.iter().map(|c| [name(c), status(c), time_of(Duration::from_nanos(c.duration))]);
        writeln!(out, "\n{}\n", table(["command", "status", "model time"], rows))?;
    }
    let time = match o.elapsed.checked_div(o.verified.try_into().unwrap_or(u32::MAX)) {
        Some(each) => format!("{}, {} a round trip", time_of(o.elapsed), time_of(each)),
        None => time_of(o.elapsed),
    };
    let teardown = o.teardown.as_deref().unwrap_or("clean, all memory given back");
    let rows = [
        ("firmware", o.firmware.clone()),
        (
            "queues",
            format!("2 RC queue pairs, 2 CQs of {} of {} bytes", counted(o.cqe, "entry", "entries"), o.cqe_size),
        ),
        ("messages", format!("{}, {} in flight, seed {}", counted(args.size, "byte", "bytes"), o.in_flight, args.seed)),
        ("verified", format!("{} of {} round trips, compared byte for byte at both ends", o.verified, args.iters)),
        ("time", time),
        ("commands", trace.len().to_string()),
        ("violations", violations.len().to_string()),
        ("teardown", teardown.to_string()),
    ];
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        writeln!(out, "  {name:width$}  {value}")?;
    }
    for violation in violations {
        writeln!(out, "  violation: {violation}")?;
    }
    Ok(())
}

fn name(command: &CommandTrace) -> String {
    command.opcode.to_string()
}

fn status(command: &CommandTrace) -> String {
    command.result.map_or_else(|e| e.to_string(), |()| "ok".to_string())
}

fn counted(n: u32, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn time_of(time: Duration) -> String {
    if time < Duration::from_millis(10) {
        format!("{:.2} us", time.as_nanos() as f64 / 1e3)
    } else if time < Duration::from_secs(10) {
        format!("{:.2} ms", time.as_micros() as f64 / 1e3)
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(fault: Option<Fault>) -> PingpongArgs {
        let device = crate::cli::DeviceArgs { model: true };
        PingpongArgs { device, iters: 10, size: 64, cqe: 64, seed: 1, trace: false, fault }
    }

    #[test]
    fn only_a_complete_clean_run_without_violations_passes() {
        let good = || Outcome { verified: 10, in_flight: 4, ..Outcome::default() };
        assert_eq!(verdict(&args(None), &good(), 0), None);
        let fails = |args: &PingpongArgs, outcome: Outcome, violations: usize, says: &str| {
            let error = verdict(args, &outcome, violations).unwrap_or_default();
            assert!(error.contains(says), "{says}: {error}");
        };
        fails(&args(None), good(), 1, "broke 1 rule(s)");
        fails(&args(None), Outcome { verified: 9, ..good() }, 0, "9 of 10 payloads were verified");
        fails(&args(None), Outcome { teardown: Some("2 ranges".into()), ..good() }, 0, "2 ranges");
        fails(&args(None), Outcome { failure: Some("lost".into()), teardown: Some("x".into()), ..good() }, 3, "lost");
        fails(&args(Some(Fault::Corrupt)), good(), 0, "fault corrupt did not show");
    }

    #[test]
    fn numbers_are_written_for_people() {
        let times = [(1, "0.00 us"), (9_999_000, "9999.00 us"), (10_000_000, "10.00 ms"), (10_650_000_000, "10.65 s")];
        for (ns, written) in times {
            assert_eq!(time_of(Duration::from_nanos(ns)), written);
        }
        assert_eq!([1, 2].map(|n| counted(n, "byte", "bytes")), ["1 byte", "2 bytes"]);
    }

    #[test]
    fn payloads_differ_by_iteration_and_by_seed_and_fill_their_size() {
        let mut seen = std::collections::HashSet::new();
        for (seed, iteration) in (0..4).flat_map(|s| (0..500).map(move |i| (s, i))) {
            let bytes = rounds::payload(seed, iteration, 21);
            assert_eq!(bytes.len(), 21);
            assert_eq!(bytes, rounds::payload(seed, iteration, 21));
            assert!(seen.insert(bytes), "seed {seed}, iteration {iteration}");
        }
    }
}
