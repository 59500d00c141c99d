//! `mlx5 pingpong`: from a reset function to verified round trips and back.

mod entries;
mod report;

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use clap::{Args, ValueEnum};
use mlx5::device::CommandTrace;
use mlx5::{Cq, Device, ibv};
use mlx5_model::{CompletionCounts, DataFault, EventPace, Model};

use crate::cli::{Failure, print_json};
use crate::cq::{Kind, with_errno};
use crate::progress::Progress;
use crate::rig::{DeviceArgs, Rig};
use crate::stop;
use crate::traffic::{self, Plan, Ran, Transport};
use entries::EntryArgs;
use report::Report;

#[derive(Debug, Args)]
pub(crate) struct PingpongArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Round trips
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    iters: u64,
    /// Bytes of a message, 1 to 1048576
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,
    /// Smallest number of completion queue entries
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4_194_303))]
    cqe: u32,
    /// Messages in flight [default: as many as suit the completion queues, at most 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    depth: Option<u32>,
    /// How messages travel
    #[arg(long, value_name = "TRANSPORT", default_value = "rc")]
    transport: Transport,
    /// Both ends take their receives from one shared receive queue
    #[arg(long)]
    srq: bool,
    #[command(flatten)]
    entries: EntryArgs,
    /// Sleep until a completion comes (both completion queues on one channel) instead of polling all the
    /// time; with --model implies --thread
    #[arg(long)]
    events: bool,
    /// Microseconds that the model takes from a completion to its event [default: 50]
    #[arg(long, value_name = "US", requires = "events", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    event_delay: Option<u64>,
    /// Run the model on a thread of its own and by the clock on the wall, as a device is; else it runs in the driver's calls,
    /// and the same seed gives the same run
    #[arg(long)]
    thread: bool,
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

/// Most memory that an asked-for depth may take at an end, in bytes.
const MOST_MEMORY: u64 = 64 << 20;

/// Completion vectors, one for each end, and interrupts: one for each of them and one for all else.
const VECTORS: (u32, u32) = (2, 3);
/// From a completion to its event unless another time is asked for, in microseconds: long enough to fall asleep.
const EVENT_DELAY: u64 = 50;

/// Most bytes of a datagram.
const DATAGRAM: u32 = 4096;

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// A byte of a message changes on the wire
    Corrupt,
    /// A message of an unreliable transport gets lost on the wire
    LostMessage,
    /// A completion is never written
    LostCqe,
    /// Two completions change places
    BadOrder,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::LostMessage => "lost-message",
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
            Self::LostMessage => model.inject_data(DataFault::LostMessage, messages),
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
    kind: Option<Kind>,
    ran: Ran,
    /// How completions were written, which only a model tells.
    counts: Option<CompletionCounts>,
}

/// Runs the round trips and prints what they came to.
pub(crate) fn run(args: &PingpongArgs, rig: &dyn Rig, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if !json {
        let times = if rig.model().is_some() { ": the times below are not a card's" } else { "" };
        writeln!(out, "{}{times}.", rig.title())?;
        out.flush()?;
    }
    let trace = Trace::default();
    let outcome = measure(args, rig, &trace, json)?;
    let trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
    let violations = rig.violations();
    let error = verdict(args, &outcome, violations.len());
    let report = Report { args, rig, outcome: &outcome, trace: &trace, violations: &violations };
    if json {
        print_json(&report.object(error.as_deref()), out)?;
    } else {
        report.text(out)?;
        let result = match (&error, stop::check()) {
            (None, _) => "passed",
            (Some(_), Ok(())) => "FAILED",
            (Some(_), Err(_)) => "stopped",
        };
        writeln!(out, "  result      {result}")?;
    }
    error.map_or(Ok(()), |e| Err(Failure::Job(e)))
}

impl PingpongArgs {
    /// What to run on.
    pub(crate) fn rig(&self) -> Result<Box<dyn Rig>, Failure> {
        self.check()?;
        self.device.rig(self.entries.config(self.seed), &self.only_models())
    }

    /// The options that only a model has, and whether they were given.
    fn only_models(&self) -> [(&'static str, bool); 4] {
        [
            ("--fault", self.fault.is_some()),
            ("--without", self.entries.without_any()),
            ("--event-delay", self.event_delay.is_some()),
            ("--thread", self.thread),
        ]
    }

    /// A model runs by itself.
    fn threaded(&self) -> bool {
        self.thread || self.events
    }

    /// What the messages are like.
    fn plan(&self) -> Plan {
        Plan {
            iters: self.iters,
            size: self.size,
            varied: false,
            seed: self.seed,
            depth: self.depth,
            numbered: self.entries.compress.is_none(),
            scatter_to_cqe: self.entries.inline_cqe,
            transport: self.transport,
            shared: self.srq,
        }
    }

    /// What no single option can know to be wrong.
    fn check(&self) -> Result<(), Failure> {
        self.entries.check()?;
        self.check_transport()?;
        let slots = (self.cqe + 1).next_power_of_two();
        match self.depth {
            Some(depth) if 2 * depth > slots => Err(Failure::Usage(format!(
                "--depth {depth}: each message in flight takes two entries, and --cqe {} makes a ring of {slots}",
                self.cqe
            ))),
            Some(depth) if u64::from(depth) * u64::from(self.size) > MOST_MEMORY => Err(Failure::Usage(format!(
                "--depth {depth}: messages of {} bytes would take more than {} MiB at each end",
                self.size,
                MOST_MEMORY >> 20
            ))),
            _ => Ok(()),
        }
    }
}

impl PingpongArgs {
    /// What a transport cannot do.
    fn check_transport(&self) -> Result<(), Failure> {
        let (ud, inline) = (self.transport == Transport::Ud, self.entries.inline_cqe);
        let why = if ud && inline {
            "--inline-cqe: datagrams have a network header in front and are never put into completions; use another --transport"
        } else if self.srq && inline {
            "--inline-cqe: messages that a shared receive queue takes are never put into completions; leave out --srq"
        } else if self.transport.is_reliable() && self.fault == Some(Fault::LostMessage) {
            "--fault lost-message: a reliable connection sends again what gets lost; use --transport uc or ud"
        } else if ud && self.size > DATAGRAM {
            return Err(Failure::Usage(format!(
                "--size {}: a datagram is one packet of at most {DATAGRAM} bytes",
                self.size
            )));
        } else {
            return Ok(());
        };
        Err(Failure::Usage(why.into()))
    }
}

/// Brings the device up, runs, tears down.
fn measure(args: &PingpongArgs, rig: &dyn Rig, trace: &Trace, json: bool) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let mut config = rig.default_config();
    if args.events && args.device.any_vectors() && rig.model().is_some() {
        (config.completion_vectors, config.interrupts) = VECTORS;
    }
    let commands = trace.clone();
    config.trace = Some(Arc::new(move |command| {
        commands.lock().unwrap_or_else(PoisonError::into_inner).push(*command);
    }));
    let device = match rig.open(config) {
        Ok(device) => device,
        Err(Failure::NoDevice { why, .. }) => {
            outcome.ran.failure = Some(why);
            return Ok(outcome);
        }
        Err(other) => return Err(other),
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
    trips(args, rig, &device, &mut outcome, json);
    outcome.counts = rig.completions();
    if let Err(left) = traffic::close(rig, device) {
        outcome.ran.teardown.get_or_insert(left);
    }
    Ok(outcome)
}

/// Makes the completion queues and their channel, and runs the round trips over them.
fn trips(args: &PingpongArgs, rig: &dyn Rig, device: &Device, outcome: &mut Outcome, json: bool) {
    let channel = args.events.then(|| {
        if let Some(model) = rig.model() {
            set_event_delay(model, args.event_delay.unwrap_or(EVENT_DELAY));
        }
        ibv::create_comp_channel(device)
    });
    let cqs: [Cq; 2] = match args.entries.create(device, channel.as_ref(), args.cqe, args.transport) {
        Ok(cqs) => cqs,
        Err(e) => {
            outcome.ran.failure = Some(format!("the completion queues were not created: {}", with_errno(e)));
            return;
        }
    };
    let [a, _] = &cqs;
    outcome.cqe = a.cqe();
    outcome.kind = a.query().ok().map(|context| Kind::of(&context));
    if let Some((fault, model)) = args.fault.zip(rig.model()) {
        fault.inject(model, args);
    }
    if args.threaded()
        && let Err(why) = rig.run_by_itself()
    {
        outcome.ran.failure = Some(why);
        return;
    }
    let progress = &mut Progress::new(args.iters, !json);
    outcome.ran = traffic::run(rig, device, channel.as_ref(), cqs, &args.plan(), progress);
    rig.stand_still();
    if let Some(Err(left)) = channel.map(ibv::destroy_comp_channel) {
        outcome.ran.teardown.get_or_insert(format!("the completion channel was not destroyed: {}", left.error));
    }
}

/// Lets so many microseconds pass from each completion to its event.
fn set_event_delay(model: &Model, us: u64) {
    let pace = EventPace { event_ns: (1000 * us, 1000 * us), ..EventPace::default() };
    model.event_queues().iter().for_each(|queue| _ = model.set_event_pace(queue.eqn, pace));
}

/// Why the run counts as failed, if it does.
fn verdict(args: &PingpongArgs, outcome: &Outcome, violations: usize) -> Option<String> {
    let ran = &outcome.ran;
    if let Some(why) = ran.failure.as_ref().or(ran.teardown.as_ref()) {
        return Some(why.clone());
    }
    if let [first, more @ ..] = &ran.lost[..] {
        let more = if more.is_empty() { String::new() } else { format!(", and {} more", more.len()) };
        return Some(format!("message lost: {first}{more}"));
    }
    if violations != 0 {
        return Some(format!("the driver broke {violations} rule(s) of the hardware"));
    }
    if ran.verified != args.iters {
        return Some(format!("{} of {} payloads were verified", ran.verified, args.iters));
    }
    let alone = args.iters.min(ran.in_flight.into()) == 1;
    let hint = if alone { "; with one message in flight it may not: use larger --iters, --cqe or --depth" } else { "" };
    if let Some(why) = outcome.counts.and_then(|counts| never_did(args, outcome, counts, hint)) {
        return Some(why);
    }
    args.fault.map(|fault| format!("fault {} did not show{hint}", fault.name()))
}

/// What was asked for and was never seen, by the counts of a model.
fn never_did(args: &PingpongArgs, outcome: &Outcome, counts: CompletionCounts, hint: &str) -> Option<String> {
    if args.entries.compress.is_some() && counts.compressed == 0 {
        return Some(format!(
            "compression was asked for, and none of {} completions came compressed{hint}",
            counts.written
        ));
    }
    if args.entries.inline_cqe && counts.inlined == 0 {
        let (all, fits) = (counts.written, if outcome.kind.is_some_and(|kind| kind.cqe_size == 128) { 64 } else { 32 });
        let why = if args.size > fits {
            format!("messages of up to {fits} bytes fit (--size)")
        } else {
            "the device has no capability sctr_data_cqe, without which the flag has no effect".into()
        };
        return Some(format!("data in completions was asked for, and none of {all} has any: {why}"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Only {
        #[command(flatten)]
        args: PingpongArgs,
    }

    fn args(fault: Option<Fault>) -> PingpongArgs {
        let args = clap::Parser::parse_from(["mlx5", "--model", "--iters", "10"]);
        let Only { args } = args;
        PingpongArgs { fault, ..args }
    }

    #[test]
    fn only_a_complete_clean_run_without_violations_passes() {
        let good = || Outcome { ran: Ran { verified: 10, in_flight: 4, ..Ran::default() }, ..Outcome::default() };
        let with = |change: fn(&mut Ran)| {
            let mut outcome = good();
            change(&mut outcome.ran);
            outcome
        };
        assert_eq!(verdict(&args(None), &good(), 0), None);
        let fails = |args: &PingpongArgs, outcome: Outcome, violations: usize, says: &str| {
            let error = verdict(args, &outcome, violations).unwrap_or_default();
            assert!(error.contains(says), "{says}: {error}");
        };
        fails(&args(None), good(), 1, "broke 1 rule(s)");
        fails(&args(None), with(|ran| ran.verified = 9), 0, "9 of 10 payloads were verified");
        fails(&args(None), with(|ran| ran.teardown = Some("2 ranges".into())), 0, "2 ranges");
        let both = |ran: &mut Ran| (ran.failure, ran.teardown) = (Some("lost".into()), Some("x".into()));
        fails(&args(None), with(both), 3, "lost");
        fails(&args(Some(Fault::Corrupt)), good(), 0, "fault corrupt did not show");
    }

    #[test]
    fn a_run_that_never_did_what_was_asked_for_fails() {
        let good = |compressed, inlined| Outcome {
            ran: Ran { verified: 10, in_flight: 4, ..Ran::default() },
            counts: Some(CompletionCounts { written: 40, compressed, inlined, ..CompletionCounts::default() }),
            ..Outcome::default()
        };
        let mut compress = args(None);
        compress.entries.compress = Some(crate::options::Compress::Hash);
        assert_eq!(verdict(&compress, &good(7, 0), 0), None);
        let error = verdict(&compress, &good(0, 0), 0).unwrap_or_default();
        assert!(error.contains("none of 40 completions came compressed"), "{error}");
        let mut inline = args(None);
        inline.entries.inline_cqe = true;
        assert_eq!(verdict(&inline, &good(0, 7), 0), None);
        let error = verdict(&inline, &good(0, 0), 0).unwrap_or_default();
        assert!(error.contains("none of 40 has any: messages of up to 32 bytes fit"), "{error}");
        inline.size = 32;
        let error = verdict(&inline, &good(0, 0), 0).unwrap_or_default();
        assert!(error.contains("none of 40 has any: the device has no capability sctr_data_cqe"), "{error}");
    }
}
