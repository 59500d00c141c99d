//! The report, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use mlx5::device::CommandTrace;
use serde_json::{Map, Value, json};

use super::facts::RawPage;
use super::outcome::Outcome;
use super::run::{AGAIN, BRING_UP, Counters, HEALTH, LEFT, LOOPBACK, Record, Run, TEARDOWN};
use super::steps::Step;
use crate::cli::Failure;

/// Commands that are named as the slowest.
const SLOWEST: usize = 5;
/// Words of a row of a page.
const ROW: usize = 8;

/// The steps by name, and what each shows and needs.
pub(super) fn list(steps: &[Step], out: &mut dyn Write) -> Result<(), Failure> {
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
    for (name, shows) in [BRING_UP, LOOPBACK] {
        writeln!(out, "{name:width$}  {shows} (always)")?;
    }
    for step in steps {
        let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
        let needs = if needs.is_empty() { String::new() } else { format!("; needs {}", needs.join(", ")) };
        writeln!(out, "{:width$}  {}{needs}", step.name, step.shows)?;
    }
    for (name, shows) in [HEALTH, TEARDOWN, AGAIN, LEFT] {
        writeln!(out, "{name:width$}  {shows} (always)")?;
    }
    Ok(())
}

/// The same for programs.
pub(super) fn list_object(steps: &[Step]) -> Value {
    let always = |(name, shows): (&str, &str)| json!({ "step": name, "shows": shows, "always": true });
    let one = |step: &Step| {
        let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
        json!({ "step": step.name, "shows": step.shows, "needs": needs, "always": false })
    };
    let behind = [HEALTH, TEARDOWN, AGAIN, LEFT];
    [BRING_UP, LOOPBACK].into_iter().map(always).chain(steps.iter().map(one)).chain(behind.map(always)).collect()
}

/// Numbers of steps by how they ended: pass, fail, not offered, not run.
fn counts(run: &Run) -> [usize; 4] {
    [
        run.count(|outcome| matches!(outcome, Outcome::Pass(_))),
        run.count(|outcome| matches!(outcome, Outcome::Fail(_))),
        run.count(|outcome| matches!(outcome, Outcome::NotOffered(_))),
        run.count(|outcome| matches!(outcome, Outcome::NotRun(_))),
    ]
}

/// For people.
pub(super) fn text(run: &Run, out: &mut dyn Write) -> Result<(), Failure> {
    let width = run.facts.values.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &run.facts.values {
        writeln!(out, "  {name:width$}  {value}")?;
    }
    run.facts.pages.iter().try_for_each(|page| page.text(out))?;
    writeln!(out, "\nSteps:")?;
    let width = run.records.iter().map(|record| record.name.len()).max().unwrap_or(0);
    for Record { name, outcome, took, .. } in &run.records {
        let (result, ms) = (outcome.name(), ms(*took));
        writeln!(out, "{}", format!("  {name:width$}  {result:11}  {ms:>8.1} ms  {}", outcome.words()).trim_end())?;
    }
    commands(&run.commands, out)?;
    if let Some(counters) = &run.counters {
        writeln!(out, "\nCounters:")?;
        writeln!(out, "  {:width$}  {:?}", "health", counters.health)?;
        for (name, value) in counters.numbers() {
            writeln!(out, "  {name:width$}  {value}")?;
        }
    }
    let [pass, fail, not_offered, not_run] = counts(run);
    let only = if run.complete { "" } else { "; the other steps were not asked for" };
    let connected = if run.connected { "" } else { "; no connection could be tried" };
    Ok(writeln!(
        out,
        "\nResult: {} ({pass} pass, {fail} fail, {not_offered} not offered, {not_run} not run{only}{connected})",
        run.result()
    )?)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// How many commands there were, which failed, and which took longest.
fn commands(all: &[CommandTrace], out: &mut dyn Write) -> Result<(), Failure> {
    let total: u64 = all.iter().map(|command| command.duration).sum();
    writeln!(out, "\nCommands: {} in {:.1} ms of the device's time; the slowest:", all.len(), total as f64 / 1e6)?;
    for command in slowest(all) {
        writeln!(out, "  {:26}  {:>10.3} ms", command.opcode.to_string(), command.duration as f64 / 1e6)?;
    }
    for command in all {
        if let Err(error) = command.result {
            writeln!(out, "  {:26}  FAILED: {error}", command.opcode.to_string())?;
        }
    }
    Ok(())
}

/// The slowest command of each kind, the slowest kinds first.
fn slowest(all: &[CommandTrace]) -> Vec<&CommandTrace> {
    let mut kinds: BTreeMap<u16, &CommandTrace> = BTreeMap::new();
    for command in all {
        let slowest = kinds.entry(command.opcode.0).or_insert(command);
        if command.duration > slowest.duration {
            *slowest = command;
        }
    }
    let mut kinds: Vec<_> = kinds.into_values().collect();
    kinds.sort_by_key(|command| std::cmp::Reverse(command.duration));
    kinds.truncate(SLOWEST);
    kinds
}

/// For programs.
pub(super) fn object(run: &Run) -> Value {
    let facts: Map<String, Value> =
        run.facts.values.iter().map(|(name, value)| (name.to_string(), value.as_str().into())).collect();
    let [pass, fail, not_offered, not_run] = counts(run);
    let command = |command: &CommandTrace| json!({ "command": command.opcode.to_string(), "ns": command.duration, "error": command.result.err().map(|e| e.to_string()) });
    let failed: Vec<Value> = run.commands.iter().filter(|c| c.result.is_err()).map(command).collect();
    let counters = run.counters.as_ref().map(|counters| {
        let numbers = counters.numbers().into_iter().map(|(name, value)| (name.replace(' ', "_"), Value::from(value)));
        let health = ("health".to_string(), format!("{:?}", counters.health).into());
        Value::Object(std::iter::once(health).chain(numbers).collect())
    });
    json!({
        "device": run.device,
        "facts": facts,
        "capability_pages": run.facts.pages.iter().map(RawPage::object).collect::<Vec<_>>(),
        "steps": run.records.iter().map(step).collect::<Vec<_>>(),
        "complete": run.complete,
        "connected": run.connected,
        "pass": pass,
        "fail": fail,
        "not_offered": not_offered,
        "not_run": not_run,
        "result": run.result().to_lowercase(),
        "error": run.verdict(),
        "commands": {
            "count": run.commands.len(),
            "slowest": slowest(&run.commands).into_iter().map(command).collect::<Vec<_>>(),
            "failed": failed,
        },
        "counters": counters,
    })
}

fn step(record: &Record) -> Value {
    let mut object = json!({
        "step": record.name,
        "shows": record.shows,
        "result": record.outcome.name().to_lowercase(),
        "ns": record.took.as_nanos() as u64,
    });
    match &record.outcome {
        Outcome::Pass(words) => object["found"] = words.as_str().into(),
        Outcome::Fail(why) | Outcome::NotRun(why) => object["error"] = why.as_str().into(),
        Outcome::NotOffered(missing) => object["missing"] = missing.object(),
    }
    object
}

impl Counters {
    fn numbers(&self) -> Vec<(&'static str, u64)> {
        let Self { port, commands, pages, events, .. } = self;
        let of_driver = [
            ("commands posted", commands.posted),
            ("commands timed out", commands.timed_out),
            ("command events lost", commands.lost_events),
            ("command events stray", commands.stray_events),
            ("pages given", pages.given),
            ("page requests", pages.requests),
            ("page requests failed", pages.refused + pages.failed),
            ("completion events", events.completions),
            ("asynchronous events", events.kept),
            ("events unknown", events.unknown),
        ];
        of_driver.into_iter().chain(port.iter().copied()).collect()
    }
}

impl RawPage {
    /// For people.
    pub(crate) fn text(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let Self { name, mode, words } = self;
        let words = match words {
            Ok(words) => words,
            Err(error) => return Ok(writeln!(out, "\n{name}, {mode}: could not be read: {error}")?),
        };
        writeln!(out, "\n{name}, {mode} ({} bytes; rows of zeros are left out):", 4 * words.len())?;
        for (i, row) in words.chunks(ROW).enumerate().filter(|(_, row)| row.iter().any(|word| *word != 0)) {
            let words: Vec<String> = row.iter().map(|word| format!("{word:08x}")).collect();
            writeln!(out, "  {:03x}: {}", 4 * ROW * i, words.join(" "))?;
        }
        Ok(())
    }

    /// For programs.
    pub(crate) fn object(&self) -> Value {
        let hex = |words: &Vec<u32>| words.iter().map(|word| format!("{word:08x}")).collect::<String>();
        json!({
            "page": self.name,
            "mode": self.mode,
            "hex": self.words.as_ref().ok().map(hex),
            "error": self.words.as_ref().err().map(ToString::to_string),
        })
    }
}
