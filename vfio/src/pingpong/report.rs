//! What the round trips came to, for people and programs.

use std::io::Write;
use std::time::Duration;

use mlx5::device::CommandTrace;
use serde_json::{Value, json};

use super::{Fault, Outcome, PingpongArgs};
use crate::cli::Failure;
use crate::decode::table;
use crate::rig::Rig;
use crate::traffic::{Ran, Waiting};

/// Most lost messages that are named.
const LISTED: usize = 8;

/// A run and what it came to.
pub(super) struct Report<'a> {
    pub(super) args: &'a PingpongArgs,
    pub(super) rig: &'a dyn Rig,
    pub(super) outcome: &'a Outcome,
    pub(super) trace: &'a [CommandTrace],
    pub(super) violations: &'a [String],
}

impl Report<'_> {
    /// For programs. What only a model tells is null for a function.
    pub(super) fn object(&self, error: Option<&str>) -> Value {
        let (args, o, ran, counts) = (self.args, self.outcome, &self.outcome.ran, self.outcome.counts);
        let judged = self.rig.model().is_some();
        let times = if judged { "; its times are not a card's" } else { "" };
        let mut object = json!({
            "device": format!("{}{times}", self.rig.name()),
            "firmware": o.firmware,
            "iters": args.iters,
            "size": args.size,
            "seed": args.seed,
            "transport": args.transport.name(),
            "srq": args.srq,
            "verified": ran.verified,
            "messages": ran.sent,
            "lost": ran.lost.len(),
            "lost_list": ran.lost.iter().take(LISTED).map(ToString::to_string).collect::<Vec<_>>(),
            "violations": judged.then_some(self.violations.len()),
            "violation_list": judged.then_some(self.violations),
            "commands": self.trace.len(),
            "cq": { "cqe": o.cqe },
            "completions": counts.map_or(ran.completions, |counts| counts.written),
            "compressed": counts.map(|counts| counts.compressed),
            "sessions": counts.map(|counts| counts.sessions),
            "inlined": counts.map(|counts| counts.inlined),
            "in_flight": ran.in_flight,
            "threaded": judged.then_some(args.threaded()),
            "waiting": waiting_object(args, &ran.waiting),
            "latency": ran.latency.object(),
            "elapsed_ns": ran.elapsed.as_nanos() as u64,
            "teardown": ran.teardown.as_deref().unwrap_or("clean"),
            "fault": args.fault.map(Fault::name),
            "error": error,
        });
        if let Some(kind) = o.kind {
            kind.put(&mut object["cq"]);
        }
        if args.trace {
            let rows = self.trace.iter().map(|c| json!({ "name": name(c), "status": status(c), "ns": c.duration }));
            object["trace"] = rows.collect();
        }
        object
    }

    /// For people.
    pub(super) fn text(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.args.trace {
            let rows = self.trace.iter().map(|c| [name(c), status(c), time_of(Duration::from_nanos(c.duration))]);
            let time = if self.rig.model().is_some() { "model time" } else { "time" };
            writeln!(out, "\n{}\n", table(["command", "status", time], rows))?;
        }
        let rows = self.rows();
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in rows {
            writeln!(out, "  {name:width$}  {value}")?;
        }
        for violation in self.violations {
            writeln!(out, "  violation: {violation}")?;
        }
        latency(&self.outcome.ran, out)
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let (args, o, ran) = (self.args, self.outcome, &self.outcome.ran);
        let time = match ran.elapsed.checked_div(ran.verified.try_into().unwrap_or(u32::MAX)) {
            Some(each) => format!("{}, {} a round trip", time_of(ran.elapsed), time_of(each)),
            None => time_of(ran.elapsed),
        };
        let mut rows = vec![("firmware", o.firmware.clone())];
        if let Some(kind) = o.kind {
            let shared = if args.srq { " with one shared receive queue" } else { "" };
            let cqs = counted(o.cqe, "entry", "entries");
            rows.push(("queues", format!("2 {} queue pairs{shared}, 2 CQs of {cqs}", args.transport.name())));
            rows.push(("entries", kind.words()));
        }
        let size = counted(args.size, "byte", "bytes");
        rows.extend([
            ("messages", format!("{size}, {} in flight, seed {}", ran.in_flight, args.seed)),
            (
                "verified",
                format!("{} of {} round trips, compared byte for byte at both ends", ran.verified, args.iters),
            ),
        ]);
        if !args.transport.is_reliable() {
            rows.push(("lost", lost(ran)));
        }
        rows.extend([
            ("written", self.written()),
            ("waiting", waiting(args, &ran.waiting)),
            ("time", time),
            ("commands", self.trace.len().to_string()),
        ]);
        if self.rig.model().is_some() {
            rows.push(("violations", self.violations.len().to_string()));
        }
        rows.push(("teardown", ran.teardown.clone().unwrap_or("clean, all memory given back".into())));
        rows
    }

    /// How many completions there were; a model tells how it wrote them too.
    fn written(&self) -> String {
        let entries = &self.args.entries;
        let Some(counts) = self.outcome.counts else {
            let hidden =
                if entries.compress.is_some() { "; a card does not tell how many of them it compressed" } else { "" };
            return format!("{} completions{hidden}", self.outcome.ran.completions);
        };
        let mut written = format!("{} completions", counts.written);
        if counts.compressed != 0 || entries.compress.is_some() {
            written += &format!(", {} of them compressed, in {} sessions", counts.compressed, counts.sessions);
        }
        if counts.inlined != 0 || entries.inline_cqe {
            written += &format!(", {} with data in the entry", counts.inlined);
        }
        written
    }
}

/// Which messages did not arrive.
fn lost(ran: &Ran) -> String {
    let all = counted(ran.sent, "message", "messages");
    let listed: Vec<String> = ran.lost.iter().take(LISTED).map(ToString::to_string).collect();
    match (ran.lost.len(), listed.join("; ")) {
        (0, _) => format!("none of {all}"),
        (n, list) if n > LISTED => format!("{n} of {all}: {list}; and {} more", n - LISTED),
        (n, list) => format!("{n} of {all}: {list}"),
    }
}

/// What waiting for completions took, in words.
fn waiting(args: &PingpongArgs, w: &Waiting) -> String {
    let polls = format!("{} polls, {} of them found nothing", w.polls, w.empty_polls);
    if !args.events {
        return format!("by polling: {polls}");
    }
    let [arms, events] = [counted(w.arms, "arm", "arms"), counted(w.events, "event", "events")];
    let [interrupts, sleeps] = [counted(w.interrupts, "interrupt", "interrupts"), counted(w.sleeps, "sleep", "sleeps")];
    format!("by events: {arms}, {events}, {interrupts}, {sleeps}; {polls}")
}

/// The same for programs.
fn waiting_object(args: &PingpongArgs, w: &Waiting) -> Value {
    json!({
        "by": if args.events { "events" } else { "polling" },
        "polls": w.polls,
        "empty_polls": w.empty_polls,
        "arms": w.arms,
        "events": w.events,
        "interrupts": w.interrupts,
        "sleeps": w.sleeps,
    })
}

/// How long messages took.
fn latency(ran: &Ran, out: &mut dyn Write) -> Result<(), Failure> {
    if ran.latency.count() == 0 {
        return Ok(());
    }
    let alone = if ran.in_flight == 1 { "one in flight" } else { "in bursts of up to {} (--depth 1: one in flight)" };
    let flight = alone.replace("{}", &ran.in_flight.to_string());
    let messages = counted(ran.latency.count(), "message", "messages");
    writeln!(out, "\nLatency of {messages}, from posting the send to polling the receive, {flight}:\n")?;
    ran.latency.text(out)?;
    Ok(writeln!(out)?)
}

fn name(command: &CommandTrace) -> String {
    command.opcode.to_string()
}

fn status(command: &CommandTrace) -> String {
    command.result.map_or_else(|e| e.to_string(), |()| "ok".to_string())
}

fn counted(n: impl Into<u64>, one: &str, many: &str) -> String {
    let n = n.into();
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

    #[test]
    fn numbers_are_written_for_people() {
        let times = [(1, "0.00 us"), (9_999_000, "9999.00 us"), (10_000_000, "10.00 ms"), (10_650_000_000, "10.65 s")];
        for (ns, written) in times {
            assert_eq!(time_of(Duration::from_nanos(ns)), written);
        }
        assert_eq!([1_u32, 2].map(|n| counted(n, "byte", "bytes")), ["1 byte", "2 bytes"]);
    }
}
