//! Completions with errors.

use std::collections::HashMap;

use mlx5::WcStatus;
use mlx5_hw::cqe::{CqeOpcode, CqeSyndrome};
use mlx5_hw::wqe::WqeOpcode;
use serde_json::Value;

use super::format::{Side, What};
use super::{Spot, status};
use crate::decode::cause::{self, Failed};
use crate::decode::cqe::{failed_request, syndrome_sentence, wc_status_name};
use crate::decode::record::{named, number};
use crate::decode::{Kind, Record};

/// Most lines between the lines of one completion, and between a message and its dump.
const NEAR: usize = 4;

/// Puts the fields of leading and trailing lines into the completion that they belong to.
pub fn join(spots: &mut [Spot]) {
    for i in 0..spots.len() {
        let Some(spot) = spots.get(i).filter(|s| matches!(s.format.what, What::Completion(_))) else { continue };
        let alike = |other: &Spot| {
            !other.used && other.format.source == spot.format.source && other.place.process == spot.place.process
        };
        let lead = |o: &Spot| matches!(o.format.what, What::Lead) && alike(o);
        let tail = |o: &Spot| matches!(o.format.what, What::Tail) && alike(o);
        // The nearest leading line, the first trailing one.
        let before = spots.iter().enumerate().take(i).rev().take_while(|(_, o)| spot.begin() <= o.end() + NEAR);
        let before = before.filter(|(_, o)| lead(o)).map(|(at, _)| at).next();
        let after = spots.iter().enumerate().skip(i + 1).take_while(|(_, o)| o.begin() <= spot.end() + NEAR);
        let after = after.filter(|(_, o)| tail(o)).map(|(at, _)| at).next();
        for at in [before, after].into_iter().flatten() {
            let Some(other) = spots.get_mut(at) else { continue };
            other.used = true;
            let (mut fields, lines) = (other.fields.clone(), other.lines());
            if let Some(spot) = spots.get_mut(i) {
                fields.append(&mut spot.fields);
                spot.fields = fields;
                spot.also.extend(lines);
            }
        }
    }
}

/// A message whose dump follows is shown with the dump, once.
pub fn into_dumps(spots: &mut [Spot], dumps: &mut [Record]) {
    for dump in dumps.iter_mut().filter(|dump| dump.kind == Kind::Cqe) {
        let Some(&line) = dump.lines.first() else { continue };
        let mut lines = Vec::new();
        let from = spots.partition_point(|s| s.end() + NEAR < line);
        for spot in spots.iter_mut().skip(from).take_while(|s| s.end() < line).filter(|s| !s.used) {
            let same = match spot.format.what {
                What::DumpHead => true,
                What::Completion(side) => {
                    let facts = Facts::of(spot, side);
                    facts.status.map(|s| u64::from(s.0)) == dump.number("wc_status")
                        && (spot.number("qpn").is_none() || spot.number("qpn") == dump.number("qpn"))
                }
                _ => false,
            };
            if !same {
                continue;
            }
            spot.used = true;
            lines.extend(spot.lines());
            spot.place.put(dump);
            dump.put("source", spot.format.source);
            for (name, value) in &spot.fields {
                if !dump.json.contains_key(name) && !name.ends_with("_text") {
                    dump.put(name, value.clone());
                }
            }
        }
        dump.lines.extend(lines);
        dump.lines.sort_unstable();
    }
}

/// Records of all completions; the flushes of a queue are one record.
pub fn records(spots: &mut [Spot]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut queues: HashMap<String, Queue> = HashMap::new();
    for spot in spots.iter_mut().filter(|spot| !spot.used) {
        let record = match spot.format.what {
            What::Completion(side) => match record(spot, side) {
                Some(record) => record,
                None => continue,
            },
            What::QpError => qp_error(spot),
            What::DumpHead => headless(spot),
            _ => continue,
        };
        spot.used = true;
        let known = spot.fields.contains_key("qpn");
        if spot.format.what.is_completion() {
            queues.entry(queue(spot)).or_default().add(record, known, &mut records);
        } else {
            records.push(record);
        }
    }
    records
}

/// What was seen of one queue.
#[derive(Default)]
struct Queue {
    /// Line of its first error.
    cause: Option<usize>,
    /// Index of the record of its flushes.
    flushes: Option<usize>,
}

impl Queue {
    /// Adds an error, whose queue is known by number or not.
    fn add(&mut self, mut record: Record, known: bool, records: &mut Vec<Record>) {
        let line = record.lines.first().copied();
        if !is_flush(&record) {
            let first = self.cause.filter(|_| known);
            record.put("role", if first.is_some() { "later" } else { "cause" });
            record.notes.extend(
                first.map(|line| {
                    format!("The first error of this queue stands on line {line}: that one names the cause.")
                }),
            );
            self.cause = self.cause.or(line);
            return records.push(record);
        }
        if let Some(flush) = self.flushes.and_then(|at| records.get_mut(at)) {
            super::again(flush, &mut record);
            flush.headline = flushed(flush.number("count").unwrap_or(1));
            return;
        }
        self.flushes = Some(records.len());
        record.put("role", "flush");
        record.put("count", 1);
        record.headline = flushed(1);
        record.notes.push(match self.cause {
            Some(line) => format!("The cause stands on line {line}: what was outstanding behind it was flushed."),
            None => {
                "The cause is not in this input: look for the first error of the queue that is no flush, at both ends."
                    .into()
            }
        });
        records.push(record);
    }
}

fn is_flush(record: &Record) -> bool {
    record.number("wc_status") == Some(WcStatus::WR_FLUSH_ERR.0.into())
}

fn flushed(count: u64) -> String {
    let (what, were) = if count == 1 { ("work request", "was") } else { ("work requests", "were") };
    format!("{count} {what} {were} flushed: {}", CqeSyndrome::WR_FLUSH_ERR.meaning())
}

/// What the completions of one queue have in common: its number, or who prints and to whom.
fn queue(spot: &Spot) -> String {
    let text = |name: &str| spot.fields.get(name).map_or(String::new(), Value::to_string);
    let device = spot.place.device.as_deref().unwrap_or("");
    let process = spot.place.process.as_deref().unwrap_or("");
    match spot.number("qpn") {
        Some(qpn) => format!("{device} {qpn}"),
        None => format!("{} {device} {process} {} {}", spot.format.source, text("peer"), text("hca")),
    }
}

/// What a line says about a failed work request.
struct Facts {
    status: Option<WcStatus>,
    syndrome: Option<CqeSyndrome>,
    requester: Option<bool>,
    opcode: Option<WqeOpcode>,
    /// What does not fit together.
    oddities: Vec<String>,
}

impl Facts {
    fn of(spot: &Spot, side: Side) -> Self {
        let syndrome = spot.number("syndrome").and_then(|n| u8::try_from(n).ok()).map(CqeSyndrome);
        let printed = spot.number("wc_status").and_then(|n| u32::try_from(n).ok()).map(WcStatus);
        let text = spot.fields.get("status_text").and_then(Value::as_str);
        let named = text.and_then(status::of_text);
        let status = syndrome.map(|s| WcStatus(s.wc_status())).or(printed).or(named);
        let mut oddities = Vec::new();
        if let (Some(named), Some(status)) = (named, status)
            && named != status
        {
            oddities.push(format!("The text says {named}, the number {status}: the number counts here."));
        }
        let (opcode, receives) = wqe(spot);
        let requester = match (side, spot.number("cqe_opcode")) {
            (Side::Requester, _) => Some(true),
            (Side::Responder, _) => Some(false),
            (_, Some(13)) => Some(true),
            (_, Some(14)) => Some(false),
            _ if receives => Some(false),
            _ => opcode.map(|_| true),
        };
        let syndrome = syndrome.or_else(|| status.and_then(status::syndrome_of));
        Self { status, syndrome, requester, opcode, oddities }
    }
}

/// The work request that UCX shows: a send's opcode, or whether it was a receive.
fn wqe(spot: &Spot) -> (Option<WqeOpcode>, bool) {
    let opcode = match spot.fields.get("wqe").and_then(Value::as_str) {
        Some("RECV") => return (None, true),
        Some("CSWAP") => WqeOpcode::ATOMIC_CS,
        Some("FETCH_ADD") => WqeOpcode::ATOMIC_FA,
        Some("MASKED_CSWAP") => WqeOpcode::ATOMIC_MASKED_CS,
        Some("MASKED_FETCH_ADD") => WqeOpcode::ATOMIC_MASKED_FA,
        Some(name) => {
            let known = WqeOpcode::VALUES.iter().find(|(known, ..)| *known == name);
            return (known.map(|(_, number, _)| WqeOpcode(*number as u8)), false);
        }
        None => return (None, false),
    };
    (Some(opcode), false)
}

/// The record of a completion; `None` if its status says that nothing failed.
fn record(spot: &Spot, side: Side) -> Option<Record> {
    let facts = Facts::of(spot, side);
    if facts.status == Some(WcStatus::SUCCESS) {
        return None;
    }
    let qpn = spot.number("qpn").and_then(|n| u32::try_from(n).ok());
    let what = failed_request(facts.requester, facts.opcode.and_then(WqeOpcode::name), qpn);
    let why = match (facts.syndrome, facts.status) {
        (Some(syndrome), _) => syndrome_sentence(syndrome),
        (None, Some(status)) => format!("{}.", wc_status_name(status.0).unwrap_or(format!("status {status}"))),
        (None, None) => {
            format!("{}.", spot.fields.get("status_text").and_then(Value::as_str).unwrap_or("no reason given"))
        }
    };
    let mut record = spot.record("completion", format!("{what}: {why}"));
    put_status(&mut record, &facts);
    put_vendor(&mut record, spot, &facts);
    put_rest(&mut record, spot, &facts);
    record.notes.extend(facts.oddities.iter().cloned());
    if let Some(syndrome) = facts.syndrome {
        // Other vendors' codes are wider; ours have no meaning for them.
        let vendor = spot.number("vendor_err").and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        let opcode = facts.opcode.unwrap_or(WqeOpcode::NOP);
        cause::explain(&mut record, &Failed { syndrome, requester: facts.requester == Some(true), opcode, vendor });
    }
    Some(record)
}

fn put_status(record: &mut Record, facts: &Facts) {
    if let Some(syndrome) = facts.syndrome {
        record.put("syndrome", syndrome.0);
        record.put("syndrome_name", syndrome.name().map_or(Value::Null, Value::from));
        record.row("syndrome", named(syndrome.0.into(), syndrome.name()), syndrome.meaning());
    }
    if let Some(status) = facts.status {
        let name = wc_status_name(status.0);
        record.put("wc_status", status.0);
        record.row("wc_status", named(status.0.into(), name.as_deref()), "What verbs report for it.");
        record.put("wc_status_name", name.map_or(Value::Null, Value::from));
    }
    if let Some(requester) = facts.requester {
        let opcode = if requester { CqeOpcode::REQ_ERR } else { CqeOpcode::RESP_ERR };
        record.put("cqe_opcode", opcode.0);
        record.put("cqe_opcode_name", opcode.name().map_or(Value::Null, Value::from));
    }
    if let Some(opcode) = facts.opcode {
        record.put("wqe_opcode", opcode.0);
        record.put("wqe_opcode_name", opcode.name().map_or(Value::Null, Value::from));
        record.row("wqe_opcode", named(opcode.0.into(), opcode.name()), "What the failed work request was to do.");
    }
}

/// The vendor's code. Its base is a property of the program that prints it.
fn put_vendor(record: &mut Record, spot: &Spot, facts: &Facts) {
    let Some(vendor) = spot.number("vendor_err") else { return };
    record.put("vendor_err", vendor);
    let meaning = match (facts.syndrome, u8::try_from(vendor)) {
        (Some(syndrome), Ok(vendor)) => cause::vendor(syndrome, vendor),
        _ => "The vendor's finer code.".into(),
    };
    record.row("vendor_err", number(vendor), meaning);
    let form = spot.format.line;
    let hex = spot.text.contains(&format!("{vendor:#x}"));
    if form.contains("{vendor_err:d}") {
        let program = spot.format.source;
        record.notes.push(format!("{program} prints the vendor code in decimal: {vendor} is {vendor:#x}."));
    } else if form.contains("{vendor_err:n}") && !hex {
        record
            .notes
            .push(format!("The vendor code has no 0x in front and was read as decimal: {vendor} is {vendor:#x}."));
    }
}

/// Everything else that was printed, under its name.
fn put_rest(record: &mut Record, spot: &Spot, facts: &Facts) {
    let shown = ["syndrome", "wc_status", "vendor_err", "cqe_opcode", "wqe", "status_name"];
    for (name, value) in spot.fields.iter().filter(|(name, _)| !shown.contains(&name.as_str())) {
        let name = if name == "status_text" { "printed_text" } else { name };
        if value.as_str() == Some("") || name == "gids" {
            continue;
        }
        record.put(name, value.clone());
        let text = value.as_u64().map_or_else(|| value.as_str().map_or(value.to_string(), String::from), number);
        record.row(name, text, meaning(name));
    }
    // UCX receives into shared receive queues only; the counter of such an entry is the index itself.
    if let (Some(index), Some(false), "ucx") = (spot.number("wqe_index"), facts.requester, spot.format.source) {
        record.put("srq_wqe_index", index);
    }
    if ["wc_status", "printed_opcode", "wr_id"].iter().any(|name| spot.fields.contains_key(*name)) {
        record.put("wc_opcode", "undefined on error");
        record.put("must_not_be_trusted", vec!["opcode", "byte_len", "wc_flags", "imm_data"]);
        if spot.fields.contains_key("printed_opcode") {
            record.notes.push(
                "Opcode and length of a failed completion are not set by the library: what is printed is left-over memory.".into(),
            );
        }
    }
}

fn meaning(name: &str) -> &'static str {
    match name {
        "qpn" => "Queue pair, or send or receive queue.",
        "cqn" => "CQ.",
        "ci" | "cq_ci" => "The CQ's consumer index.",
        "wqe_counter" => "Counter of the work request, not masked to the queue's size.",
        "wqe_index" => "Index of the work request in its queue.",
        "wr_id" => "The program's own number of the work request.",
        "hw_err_synd" => "The hardware's own code, which support asks for.",
        "hw_synd_type" => "Which unit set it.",
        "peer" => "The other end.",
        "port" => "Device, port and kind of network.",
        "qp_type" => "Kind of queue pair.",
        "printed_text" => "The program's words.",
        "operation" => "What the program says it was.",
        "cqe" => "The driver's own mark of the request, an address.",
        "direction" => "The program's request; a receive sends a message as well, to say that it is ready.",
        "printed_opcode" | "printed_len" => "Not set on errors: left-over memory.",
        "side" => "The side that prints.",
        _ => "",
    }
}

/// A queue pair's error event. Linux prints the text of the completion status whose number is the syndrome.
fn qp_error(spot: &Spot) -> Record {
    let text = spot.fields.get("status_text").and_then(Value::as_str).unwrap_or("");
    let syndrome = status::of_text(text).map(|status| CqeSyndrome(status.0 as u8)).filter(|s| s.0 != 0);
    let qpn = spot.number("qpn").unwrap_or(0);
    let why = syndrome.map_or("the driver's text does not tell why".into(), syndrome_sentence);
    let mut record = spot.record("qp-error", format!("Queue pair {qpn:#x} went to the error state: {why}"));
    record.put("qpn", qpn);
    record.put("printed_text", text);
    for (name, from) in [("vendor", "vendor_err"), ("hw_synd_type", "hw_synd_type"), ("hw_err_synd", "hw_err_synd")] {
        record.put(name, spot.number(from).unwrap_or(0));
        record.row(from, number(spot.number(from).unwrap_or(0)), meaning(from));
    }
    if let Some(syndrome) = syndrome {
        put_status(
            &mut record,
            &Facts {
                status: Some(WcStatus(syndrome.wc_status())),
                syndrome: Some(syndrome),
                requester: None,
                opcode: None,
                oddities: vec![],
            },
        );
        // Other vendors' codes are wider; ours have no meaning for them.
        let vendor = spot.number("vendor_err").and_then(|n| u8::try_from(n).ok()).unwrap_or(0);
        cause::explain(&mut record, &Failed { syndrome, requester: false, opcode: WqeOpcode::NOP, vendor });
    } else {
        record.causes.push(
            "An error of its CQ (a 'CQ error' just before), or a violation that the other side committed.".into(),
        );
    }
    record.notes.push(
        "Linux looks the text up as if the hardware's syndrome were a completion status: 0x13 is status 10, 0x15 is 12. The right name is given here.".into(),
    );
    record
}

/// The head of a dump whose rows are not there.
fn headless(spot: &Spot) -> Record {
    let mut record = spot.record("dump-head", "A dump of an error entry begins here, but its rows are missing.");
    record.causes.push("A filter for the driver's name drops the rows, which do not carry it.".into());
    record.next.push("Pass the four rows behind this line as well: `dmesg | grep -A4 'error cqe'`.".into());
    record
}

/// Points from the first completion to commands that failed before it.
pub fn after_commands(records: &mut [Record]) {
    let mut failed = None;
    for record in records {
        let what = record.json.get("what").and_then(Value::as_str).unwrap_or("");
        match (what, failed) {
            ("command-status" | "command-timeout", None) => failed = record.lines.first().copied(),
            ("completion", Some(line)) => {
                record.notes.push(format!(
                    "A command failed before this, on line {line}: the completion may be a result of it, for example of a queue pair that was not set up as wanted."
                ));
                return;
            }
            _ => {}
        }
    }
}
