//! All kinds of completion queues, each with real traffic, as a table.

use std::fmt;
use std::io::Write;

use clap::ValueEnum;
use mlx5::{CreateCqFlags, Device, Error, ParentDomain, WcFlags};
use serde_json::{Value, json};

use super::attr::why;
use super::report::Kind;
use super::{Attributes, in_domain, with_errno};
use crate::cli::{Failure, print_json};
use crate::decode::{errno_name, table};
use crate::options::{Compress, Layout, option_name, word};
use crate::progress::Progress;
use crate::rig::Rig;
use crate::stop;
use crate::traffic::{self, Plan};

/// Numbers of entries that are tried: rings of 2, 8, 128 and 1024 slots.
const CQE: [u32; 4] = [1, 7, 100, 1000];
/// Most bytes of a message; they differ.
const SIZE: u32 = 64;
/// So many times the completions of a run go around a ring; around a small one more often than the byte by which the
/// enhanced layout counts laps can count.
const LAPS: u64 = 3;
const LAPS_OF_SMALL: u64 = 260;
/// Most slots of a small ring.
const SMALL: u64 = 8;
/// Fewest round trips of a run.
const FEWEST: u64 = 64;

/// What a combination came to.
enum Verdict {
    /// The library or the device refused to create it.
    Refused(Error),
    /// Every round trip was verified and nothing was left behind.
    Clean(Run),
    /// It was accepted, and then something was wrong.
    Failed(String),
}

/// What ran over a queue.
struct Run {
    cqe: u32,
    trips: u64,
    completions: u64,
    /// How many of them came compressed, which only a model tells.
    compressed: Option<u64>,
}

/// Every combination of the options that concern entries.
fn combinations() -> Vec<Attributes> {
    let mut formats = vec![None];
    for &format in Compress::value_variants() {
        formats.extend(Layout::value_variants().iter().map(|&layout| Some((format, layout))));
    }
    let mut all = Vec::new();
    for (cqe_size, pad) in [(64, false), (64, true), (128, false), (128, true)] {
        for format in &formats {
            all.extend(CQE.map(|cqe| Attributes {
                cqe,
                cqe_size: Some(cqe_size),
                pad,
                compress: format.map(|(format, _)| format.bit().bits()),
                layout: format.map(|(_, layout)| layout),
                ..Attributes::default()
            }));
        }
    }
    all
}

/// Every other option alone, as it is written on the command line.
fn others() -> Vec<(String, Attributes)> {
    let plain = || Attributes { cqe: 100, ..Attributes::default() };
    let fields = |flags: WcFlags| Attributes { wc_flags: Some(flags.bits()), ..plain() };
    let clocks = WcFlags::COMPLETION_TIMESTAMP | WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK;
    let mut all = vec![("--wc-flags 0".into(), fields(WcFlags::empty()))];
    for (name, flag) in WcFlags::all().iter_names() {
        all.push((format!("--wc-flags {}", option_name(name)), fields(flag)));
    }
    for clock in [WcFlags::COMPLETION_TIMESTAMP, WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK] {
        let flags = (WcFlags::all() - clocks) | clock;
        all.push((format!("--wc-flags {:#x}", flags.bits()), fields(flags)));
    }
    let behaviours = [CreateCqFlags::SINGLE_THREADED, CreateCqFlags::IGNORE_OVERRUN, CreateCqFlags::all()];
    for flags in behaviours {
        let names: Vec<_> = flags.iter_names().map(|(name, _)| option_name(name)).collect();
        all.push((format!("--flags {}", names.join(",")), Attributes { flags: Some(flags.bits()), ..plain() }));
    }
    all.push(("--parent-domain".into(), Attributes { parent_domain: true, ..plain() }));
    all
}

/// Tries all of them on one device and prints the tables.
pub(super) fn run(rig: &dyn Rig, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let device = rig.open(rig.default_config())?;
    let tried = try_all(rig, &device, !json);
    let closed = traffic::close(rig, device).map_err(Failure::Job);
    let (kinds, others) = tried.map_err(Failure::Job)?;
    let counts = Counts::of(kinds.iter().chain(others.iter().map(|(_, tried)| tried)));
    if json {
        print_json(&object(rig, &kinds, &others, &counts), out)?;
    } else {
        text(rig, &kinds, &others, &counts, out)?;
    }
    closed?;
    match counts.failed {
        0 => Ok(()),
        n => Err(Failure::Job(format!("{n} of {} accepted queues did not run clean", counts.clean + n))),
    }
}

/// The combinations, and the other options with their names.
type AllTried = (Vec<Tried>, Vec<(String, Tried)>);

/// Tries all of them, unless the device is lost or the user has had enough.
fn try_all(rig: &dyn Rig, device: &Device, shown: bool) -> Result<AllTried, String> {
    let (combinations, others) = (combinations(), others());
    let mut progress = Progress::new((combinations.len() + others.len()) as u64, shown);
    let mut done = 0;
    let mut attempt = |attributes: Attributes| {
        stop::check().map_err(|signal| signal.to_string())?;
        let verdict = attempt(rig, device, &attributes);
        if let Some(why) = device.failure() {
            return Err(Error::Failed { why, command: None, sent: false }.to_string());
        }
        done += 1;
        progress.set(done);
        Ok(Tried { attributes, verdict })
    };
    let kinds = combinations.into_iter().map(&mut attempt).collect::<Result<_, _>>()?;
    let others = others.into_iter().map(|(name, attributes)| attempt(attributes).map(|tried| (name, tried)));
    Ok((kinds, others.collect::<Result<_, _>>()?))
}

fn object(rig: &dyn Rig, kinds: &[Tried], others: &[(String, Tried)], counts: &Counts) -> Value {
    let combinations: Vec<Value> = kinds.iter().map(Tried::object).collect();
    let named = |(name, tried): &(String, Tried)| {
        let mut object = tried.object();
        object["option"] = name.as_str().into();
        object
    };
    let options: Vec<Value> = others.iter().map(named).collect();
    json!({ "device": rig.name(), "combinations": combinations, "options": options,
        "clean": counts.clean, "refused": counts.refused, "failed": counts.failed })
}

fn text(
    rig: &dyn Rig,
    kinds: &[Tried],
    others: &[(String, Tried)],
    counts: &Counts,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "{}.\n", rig.title())?;
    let head = ["size", "pad", "format", "layout", "cqe", "gives", "round trips", "compressed", "result"];
    writeln!(out, "{}\n", table(head, kinds.iter().map(Tried::row)))?;
    writeln!(out, "The other options, each alone:\n")?;
    let rows = others.iter().map(|(name, tried)| [name.clone(), tried.trips(), tried.result()]);
    writeln!(out, "{}\n", table(["option", "round trips", "result"], rows))?;
    Ok(writeln!(out, "{} combinations and {} options: {counts}", kinds.len(), others.len())?)
}

/// Tries one.
fn attempt(rig: &dyn Rig, device: &Device, attributes: &Attributes) -> Verdict {
    let broken = rig.violations().len();
    let run = |domain: Option<&ParentDomain>| Ok(traffic_over(rig, device, attributes, domain));
    let verdict = in_domain(device, attributes, run).unwrap_or_else(Verdict::Refused);
    match rig.violations().get(broken) {
        Some(violation) => Verdict::Failed(format!("the driver broke a rule: {violation}")),
        None => verdict,
    }
}

fn traffic_over(rig: &dyn Rig, device: &Device, attributes: &Attributes, domain: Option<&ParentDomain>) -> Verdict {
    let created = || Ok([attributes.create(device, domain, None)?, attributes.create(device, domain, None)?]);
    let cqs = match created() {
        Ok(cqs) => cqs,
        Err(refused) => return Verdict::Refused(refused),
    };
    let [a, b] = &cqs;
    let kinds = [a, b].map(|cq| cq.query().map(|context| Kind::of(&context)));
    let (Ok(kind), cqe) = (&kinds[0], a.cqe()) else { return Verdict::Failed("QUERY_CQ failed".into()) };
    if *kind != attributes.kind() {
        return Verdict::Failed(format!("entries are of {}", kind.words()));
    }
    // Each end has two completions for a round trip.
    let slots = u64::from(cqe) + 1;
    let laps = if slots <= SMALL { LAPS_OF_SMALL } else { LAPS };
    let iters = FEWEST.max(laps * slots / 2);
    let numbered = attributes.compress.is_none();
    let plan = Plan { iters, size: SIZE, varied: true, seed: cqe.into(), numbered, ..Plan::default() };
    let before = rig.completions().unwrap_or_default();
    let ran = traffic::run(rig, device, None, cqs, &plan, &mut Progress::new(iters, false));
    if let Some(why) = ran.failure.or(ran.teardown) {
        return Verdict::Failed(why);
    }
    let compressed = rig.completions().map(|counts| counts.compressed - before.compressed);
    // A message alone in flight has nothing to be compressed with.
    if attributes.compress.is_some() && ran.in_flight > 1 && compressed == Some(0) {
        return Verdict::Failed("not one completion was compressed".into());
    }
    Verdict::Clean(Run { cqe, trips: ran.verified, completions: ran.completions, compressed })
}

/// How many of each verdict there are.
#[derive(Default)]
struct Counts {
    clean: usize,
    refused: usize,
    failed: usize,
}

impl Counts {
    fn of<'a>(tried: impl Iterator<Item = &'a Tried>) -> Self {
        let mut counts = Self::default();
        for Tried { verdict, .. } in tried {
            match verdict {
                Verdict::Clean(_) => counts.clean += 1,
                Verdict::Refused(_) => counts.refused += 1,
                Verdict::Failed(_) => counts.failed += 1,
            }
        }
        counts
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} run clean, {} are refused", self.clean, self.refused)?;
        if self.failed == 0 { Ok(()) } else { write!(f, ", {} FAILED", self.failed) }
    }
}

/// A queue that was tried.
struct Tried {
    attributes: Attributes,
    verdict: Verdict,
}

impl Tried {
    fn of_run(&self, text: fn(&Run) -> String) -> String {
        if let Verdict::Clean(run) = &self.verdict { text(run) } else { "-".into() }
    }

    fn trips(&self) -> String {
        self.of_run(|run| run.trips.to_string())
    }

    fn result(&self) -> String {
        match &self.verdict {
            Verdict::Clean(_) => "runs clean".into(),
            Verdict::Refused(error) => with_errno(*error),
            Verdict::Failed(why) => format!("FAILED: {why}"),
        }
    }

    fn row(&self) -> [String; 9] {
        let kind = self.attributes.kind();
        let (format, layout) = kind.compressed.map_or(("-".into(), "-".into()), |(f, l)| (word(f), word(l)));
        [
            kind.cqe_size.to_string(),
            if kind.padded { "yes" } else { "no" }.into(),
            format,
            layout,
            self.attributes.cqe.to_string(),
            self.of_run(|run| run.cqe.to_string()),
            self.trips(),
            self.of_run(|run| run.compressed.map_or("?".into(), |n| n.to_string())),
            self.result(),
        ]
    }

    fn object(&self) -> Value {
        let mut object = json!({ "asked_cqe": self.attributes.cqe });
        self.attributes.kind().put(&mut object);
        match &self.verdict {
            Verdict::Clean(run) => {
                object["result"] = "clean".into();
                object["cqe"] = run.cqe.into();
                object["round_trips"] = run.trips.into();
                object["completions"] = run.completions.into();
                object["compressed"] = run.compressed.into();
            }
            Verdict::Refused(error) => {
                object["result"] = "refused".into();
                object["errno"] = error.errno().into();
                object["errno_name"] = errno_name(error.errno()).into();
                object["error"] = why(*error).into();
            }
            Verdict::Failed(why) => {
                object["result"] = "failed".into();
                object["error"] = why.as_str().into();
            }
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use mlx5_model::ModelConfig;

    use super::*;
    use crate::rig::ModelRig;

    /// A device whose sessions have one completion at most.
    #[test]
    fn a_queue_that_is_accepted_and_never_compresses_does_not_count_as_clean() {
        let compressed = |cqe| Attributes { cqe, compress: Some(Compress::Hash.bit().bits()), ..Attributes::default() };
        let attempt = |config: ModelConfig, cqe| {
            let rig = ModelRig::new(config);
            let device = rig.open(rig.default_config()).unwrap();
            attempt(&rig, &device, &compressed(cqe))
        };
        let mut config = ModelConfig::default();
        config.caps.cqe_compression_max_num = 1;
        let verdict = attempt(config.clone(), 100);
        assert!(matches!(&verdict, Verdict::Failed(why) if why == "not one completion was compressed"));
        let alone = attempt(config, 1);
        assert!(matches!(alone, Verdict::Clean(_)), "a message alone in flight has nothing to be compressed with");
        assert!(matches!(attempt(ModelConfig::default(), 100), Verdict::Clean(run) if run.compressed > Some(0)));
    }
}
