//! Running the steps one by one, whatever becomes of each, on one device from bring-up to teardown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mlx5::device::{CommandTrace, EventCounters};
use mlx5::{CommandCounters, Device, Health, PageCounters, ibv};

use super::SelftestArgs;
use super::bench::Bench;
use super::facts::{self, Facts};
use super::need::Missing;
use super::outcome::{Doing, Done, Outcome, Trouble, ensure, wrong};
use super::steps::{self, Step};
use crate::cli::Failure;
use crate::progress::Progress;
use crate::rig::Rig;
use crate::stop;

/// What comes before and behind the steps, and what each shows.
pub(super) const BRING_UP: (&str, &str) = ("bring-up", "firmware, pages, capabilities, event queues, port");
pub(super) const LOOPBACK: (&str, &str) = ("loopback", "a message of the port to itself arrives");
pub(super) const HEALTH: (&str, &str) = ("health", "the firmware is well after all that");
pub(super) const TEARDOWN: (&str, &str) = ("teardown", "everything is given back");
pub(super) const AGAIN: (&str, &str) = ("second-bring-up", "the function comes up again, and a connection works");
pub(super) const LEFT: (&str, &str) = ("nothing-left", "no memory is left with the device, and no rule was broken");

/// How many these are.
const ALWAYS: u64 = 6;
/// So many steps try a connection, from the first one on, before none of the others does if not one has passed.
const IN_VAIN: usize = 3;

/// A step that had its turn.
pub(super) struct Record {
    pub(super) name: String,
    pub(super) shows: String,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

/// What driver and device have counted, at the end.
pub(super) struct Counters {
    pub(super) port: Vec<(&'static str, u64)>,
    pub(super) commands: CommandCounters,
    pub(super) pages: PageCounters,
    pub(super) events: EventCounters,
    pub(super) health: Health,
}

/// A whole run.
pub(super) struct Run {
    pub(super) device: String,
    /// Every step was asked for.
    pub(super) complete: bool,
    /// The port's messages to itself were not ruled out.
    pub(super) connected: bool,
    /// Why no connection could be tried, though steps that were asked for take one.
    untried: Option<String>,
    pub(super) facts: Facts,
    pub(super) records: Vec<Record>,
    pub(super) commands: Vec<CommandTrace>,
    pub(super) counters: Option<Counters>,
}

/// The steps of these names; all of them without any.
pub(super) fn choose<'a>(steps: &'a [Step], only: &[String]) -> Result<Vec<&'a Step>, Failure> {
    let fits = |pattern: &str, step: &Step| match pattern.strip_suffix('*') {
        Some(front) => step.name.starts_with(front),
        None => step.name == pattern,
    };
    if let Some(pattern) = only.iter().find(|pattern| !steps.iter().any(|step| fits(pattern, step))) {
        return Err(Failure::Usage(format!("--only {pattern}: there is no such step; --list names them")));
    }
    let chosen = |step: &&Step| only.is_empty() || only.iter().any(|pattern| fits(pattern, step));
    Ok(steps.iter().filter(chosen).collect())
}

/// A run under way.
struct Runner<'a> {
    rig: &'a dyn Rig,
    records: Vec<Record>,
    /// Why nothing more can be tried.
    lost: Option<String>,
    /// Why no connection can be.
    unconnected: Option<Missing>,
    /// How many steps with a connection have failed, until one passes.
    in_vain: Option<usize>,
    progress: Progress,
    violations: usize,
}

impl Run {
    /// Brings the device up, runs the steps, takes it down, and does it again.
    pub(super) fn of(rig: &dyn Rig, steps: &[&Step], args: &SelftestArgs, shown: bool) -> Self {
        let commands: Arc<Mutex<Vec<CommandTrace>>> = Arc::default();
        let mut config = rig.default_config();
        if args.device.any_vectors() && rig.model().is_some() {
            (config.interrupts, config.completion_vectors) = (4, 3);
        }
        let heard = commands.clone();
        config.trace =
            Some(Arc::new(move |command| heard.lock().unwrap_or_else(PoisonError::into_inner).push(*command)));
        let progress = Progress::new(steps.len() as u64 + ALWAYS, shown);
        let (records, in_vain) = (Vec::new(), Some(0));
        let mut runner = Runner { rig, records, lost: None, unconnected: None, in_vain, progress, violations: 0 };
        let mut facts = facts::of_machine(rig);
        let device = runner.bring_up(&config);
        if let Some(device) = &device {
            facts.add_device(device, args.ids);
        }
        runner.steps(device.as_ref(), steps, args.quick);
        let counters = device.as_ref().map(|device| Counters::of(rig, device));
        runner.take_down(device);
        let connected = runner.unconnected.is_none();
        let asked = steps.iter().any(|step| step.connects);
        let untried = runner.unconnected.as_ref().filter(|_| asked).map(ToString::to_string);
        runner.record(AGAIN, || again(rig, &config, connected));
        runner.record_always(LEFT, || left(rig));
        let commands = std::mem::take(&mut *commands.lock().unwrap_or_else(PoisonError::into_inner));
        let (device, complete) = (rig.name(), args.only.is_empty());
        Self { device, complete, connected, untried, facts, records: runner.records, commands, counters }
    }

    /// Why it does not count as passed, if it does not. What did not run is not known to work, and bring-up alone shows little.
    pub(super) fn verdict(&self) -> Option<String> {
        let bad: Vec<&Record> = self.records.iter().filter(|record| !record.outcome.is_good()).collect();
        let Some((first, rest)) = bad.split_first() else {
            return self.untried.as_ref().map(|why| format!("selftest: no connection could be tried: {why}"));
        };
        let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
        let (name, outcome) = (&first.name, &first.outcome);
        Some(format!("selftest: {name} {}: {}{more}", outcome.verb(), outcome.words()))
    }

    /// The result in a word: what nothing is wrong with and is not known to work either is incomplete.
    pub(super) fn result(&self) -> &'static str {
        match self.verdict() {
            None => "passed",
            Some(_) if self.count(|outcome| matches!(outcome, Outcome::Fail(_))) != 0 => "FAILED",
            Some(_) => "INCOMPLETE",
        }
    }

    /// How many ended so.
    pub(super) fn count(&self, is: fn(&Outcome) -> bool) -> usize {
        self.records.iter().filter(|record| is(&record.outcome)).count()
    }
}

impl Counters {
    fn of(rig: &dyn Rig, device: &Device) -> Self {
        Self {
            port: rig.counters(),
            commands: device.command_counters(),
            pages: device.page_counters(),
            events: device.event_counters(),
            health: device.health(),
        }
    }
}

impl Runner<'_> {
    fn bring_up(&mut self, config: &mlx5::DeviceConfig) -> Option<Device> {
        let (rig, mut opened) = (self.rig, None);
        self.record(BRING_UP, || match rig.open(config.clone()) {
            Ok(device) => {
                let info = device.info();
                let (vectors, pages) = (ibv::query_device(&device).num_comp_vectors, device.page_counters().given);
                let issi = info.issi;
                let words =
                    format!("interface version (ISSI) {issi}, {pages} pages given, {vectors} completion vectors");
                opened = Some(device);
                Ok(words)
            }
            Err(Failure::NoDevice { why, .. } | Failure::Job(why) | Failure::Usage(why)) => wrong(why),
            Err(Failure::Output(e)) => wrong(e.to_string()),
        });
        if opened.is_none() {
            self.lost = Some("the device did not come up".into());
        }
        opened
    }

    /// All steps on a device, if there is one.
    fn steps(&mut self, device: Option<&Device>, steps: &[&Step], quick: bool) {
        let rig = self.rig;
        let bench = device.map(|device| Bench { rig, device, quick });
        let bench = bench.as_ref();
        self.record(LOOPBACK, || bench.map_or_else(no_device, steps::loopback));
        if let Some(Record { outcome: Outcome::NotOffered(missing), .. }) = self.records.last() {
            self.unconnected = Some(missing.clone());
        }
        self.connection_ended();
        for step in steps {
            self.step(bench, step);
        }
        self.record(HEALTH, || device.map_or_else(no_device, health));
    }

    /// Runs a step, if the device has what it needs.
    fn step(&mut self, bench: Option<&Bench<'_>>, step: &Step) {
        if let Some(failed) = self.in_vain.filter(|failed| step.connects && *failed >= IN_VAIN) {
            let why = format!("none of the {failed} steps that tried a connection has passed");
            return self.keep((&step.name, &step.shows), Outcome::NotRun(why), Duration::ZERO);
        }
        let unconnected = self.unconnected.clone().filter(|_| step.connects);
        self.record((&step.name, &step.shows), || {
            let Some(bench) = bench else { return no_device() };
            let caps = bench.device.caps();
            let missing = step.needs.iter().find_map(|need| need.missing(caps));
            match missing.or(unconnected) {
                Some(missing) => Err(Trouble::NotOffered(missing)),
                None => {
                    let done = (step.job)(bench)?;
                    bench.alive()?;
                    Ok(done)
                }
            }
        });
        if step.connects {
            self.connection_ended();
        }
        if let Some(why) = bench.and_then(|bench| bench.device.failure()) {
            self.lost.get_or_insert(format!("the device was lost: {why}"));
        }
    }

    /// Takes note of how the last step ended, which tried a connection.
    fn connection_ended(&mut self) {
        match self.records.last().map(|record| &record.outcome) {
            Some(Outcome::Pass(_)) => self.in_vain = None,
            Some(Outcome::Fail(_)) => self.in_vain = self.in_vain.map(|failed| failed + 1),
            _ => {}
        }
    }

    fn take_down(&mut self, device: Option<Device>) {
        let mut busy = false;
        self.record_always(TEARDOWN, || {
            let Some(device) = device else { return no_device() };
            let posted = device.command_counters().posted;
            match ibv::close_device(device) {
                Ok(()) => Ok(format!("after {posted} commands")),
                Err(back) => {
                    busy = back.error == mlx5::Error::Busy;
                    let kept: Vec<&str> = back.object.leaked().iter().map(|kept| kept.what).collect();
                    wrong(format!("closing the device: {}; memory kept: {kept:?}", back.error))
                }
            }
        });
        if busy {
            self.lost.get_or_insert("the device could not be closed".into());
        }
    }

    /// Runs one and keeps what came of it, unless nothing more can be tried.
    fn record(&mut self, what: (&str, &str), job: impl FnOnce() -> Done) {
        self.note_stop();
        match self.lost.clone() {
            Some(why) => self.keep(what, Outcome::NotRun(why), Duration::ZERO),
            None => self.record_always(what, job),
        }
    }

    /// What a signal ended has not failed, and nothing is tried behind it.
    fn note_stop(&mut self) {
        let Err(stopped) = stop::check() else { return };
        let stopped = self.lost.get_or_insert(stopped.to_string()).clone();
        if let Some(Record { outcome, .. }) = self.records.last_mut()
            && matches!(outcome, Outcome::Fail(why) if why.ends_with(&stopped))
        {
            *outcome = Outcome::NotRun(stopped);
        }
    }

    fn record_always(&mut self, what: (&str, &str), job: impl FnOnce() -> Done) {
        self.progress.name(what.0);
        let start = Instant::now();
        let outcome = Outcome::from(job());
        let took = start.elapsed();
        let violations = self.rig.violations();
        let broken = violations.get(self.violations).cloned();
        self.violations = violations.len();
        match (outcome, broken) {
            (Outcome::Pass(_), Some(rule)) => {
                self.keep(what, Outcome::Fail(format!("the driver broke a rule of the hardware: {rule}")), took);
            }
            (outcome, _) => self.keep(what, outcome, took),
        }
    }

    fn keep(&mut self, (name, shows): (&str, &str), outcome: Outcome, took: Duration) {
        self.records.push(Record { name: name.into(), shows: shows.into(), outcome, took });
        self.progress.set(self.records.len() as u64);
    }
}

fn no_device() -> Done {
    wrong("there is no device")
}

/// What the firmware says of itself, and events that nobody waited for.
fn health(device: &Device) -> Done {
    let health = device.health();
    ensure(health == Health::Ok, || format!("the firmware says {health:?}"))?;
    let events: Vec<String> = std::iter::from_fn(|| device.try_get_async_event()).map(|e| e.to_string()).collect();
    Ok(if events.is_empty() {
        "no event that nobody waited for".into()
    } else {
        format!("events: {}", events.join("; "))
    })
}

/// Opens the function once more, runs some round trips, and closes it.
fn again(rig: &dyn Rig, config: &mlx5::DeviceConfig, connects: bool) -> Done {
    let device = match rig.open(config.clone()) {
        Ok(device) => device,
        Err(Failure::NoDevice { why, .. } | Failure::Job(why) | Failure::Usage(why)) => return wrong(why),
        Err(Failure::Output(e)) => return wrong(e.to_string()),
    };
    let bench = Bench { rig, device: &device, quick: true };
    let done = if connects { steps::again(&bench) } else { Ok("without a connection".into()) };
    ibv::close_device(device).doing("closing the device")?;
    done
}

/// That nothing is left with the device, and that no rule was broken.
fn left(rig: &dyn Rig) -> Done {
    if let Some(left) = rig.left() {
        return wrong(left);
    }
    match rig.violations().len() {
        0 => Ok(String::new()),
        n => wrong(format!("the driver broke {n} rules of the hardware")),
    }
}

#[cfg(test)]
mod tests;
