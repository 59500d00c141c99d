//! Messages about commands and events: refusals, timeouts, late answers.

use std::collections::HashMap;

use mlx5_hw::cmd::{Opcode, Status};
use mlx5_hw::eqe::{CqErrorSyndrome, EventType};
use mlx5_hw::errno::ETIMEDOUT;
use serde_json::Value;

use super::Spot;
use super::format::What;
use super::notice::Notice;
use crate::decode::record::{named, number};
use crate::decode::{Record, command, eqe};

/// Records of refused commands, and of those that did not complete in time: one for each command and device.
pub fn records(spots: &mut [Spot]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut seen = HashMap::new();
    for spot in spots.iter_mut().filter(|spot| !spot.used) {
        let mut record = match spot.format.what {
            What::Command => refused(spot),
            What::Timeout => unanswered(spot),
            What::Recovered => recovered(spot),
            What::Late => late(spot),
            _ => continue,
        };
        spot.used = true;
        let first = *seen.entry(identity(&record)).or_insert(records.len());
        match records.get_mut(first) {
            Some(first) => merge(first, &mut record),
            None => records.push(record),
        }
    }
    chain(&mut records);
    for record in &mut records {
        sum_up(record);
    }
    records
}

/// Same command, same end, same device.
pub fn identity(record: &Record) -> String {
    let keys = ["what", "device", "opcode", "op_mod", "status", "fw_syndrome", "source"];
    let values = keys.iter().map(|key| record.json.get(*key).map_or(String::new(), Value::to_string));
    values.collect::<Vec<_>>().join(" ")
}

/// The number as a command's; the name of the line counts for nothing.
fn opcode(spot: &Spot) -> Option<Opcode> {
    spot.number("opcode").and_then(|n| u16::try_from(n).ok()).map(Opcode)
}

fn name(spot: &Spot) -> String {
    opcode(spot).map_or("A command that the line does not name".into(), command::name_of)
}

fn refused(spot: &Spot) -> Record {
    let status = Status(spot.number("status").unwrap_or(0) as u8);
    let syndrome = spot.number("fw_syndrome").unwrap_or(0) as u32;
    let mut record = spot.record("command-status", command::refusal(&name(spot), status, syndrome));
    if let Some(opcode) = opcode(spot) {
        command::put_opcode(&mut record, opcode);
        if let Some(op_mod) = spot.number("op_mod") {
            command::put_op_mod(&mut record, opcode, op_mod as u16);
        }
    }
    command::put_status(&mut record, status, syndrome, true);
    if let Some(uid) = spot.number("uid") {
        record.put("uid", uid);
    }
    let opcode = opcode(spot).unwrap_or(Opcode(0));
    command::status_causes(&mut record, opcode, status);
    record.next.push(match status {
        Status::BAD_RES_STATE_ERR if command::destroys(opcode) => {
            "Find the first destroy that was refused: what still refers to its object was never destroyed, or is destroyed later.".into()
        }
        Status::LIM_ERR => "Stop creating; count the objects of this kind, and compare with the limit in the capabilities.".into(),
        Status::NOT_READY | Status::NO_RES_ERR | Status::RES_BUSY => "Try again a little later, a limited number of times.".into(),
        _ => format!("Compare the input of the command with the capabilities; the vendor can look syndrome {syndrome:#x} up."),
    });
    record
}

fn unanswered(spot: &Spot) -> Record {
    let mut record = spot.record("command-timeout", format!("{} did not complete in time.", name(spot)));
    slot(&mut record, spot);
    command::put_errno(&mut record, ETIMEDOUT);
    let causes: &[&str] = match opcode(spot) {
        Some(Opcode::ENABLE_HCA) => &[
            "It is the first command: is bus mastering on before the doorbell is rung?",
            "The command queue's address: aligned to 4 KiB, an I/O address that the IOMMU maps?",
            "The firmware has not started: the `initializing` bit must be clear before the first command.",
        ],
        Some(Opcode::TEARDOWN_HCA) => &["The firmware hangs, or the device is gone: look at the health buffer."],
        _ => &[
            "The firmware hangs: look at the health buffer and its counter.",
            "The device left the bus (all reads give ones), or its writes do not arrive: bus mastering, IOMMU.",
            "The answer came, but not its interrupt: then a look into the event queue finds it.",
        ],
    };
    record.causes.extend(causes.iter().map(|s| s.to_string()));
    if opcode(spot) == Some(Opcode::TEARDOWN_HCA) {
        record.next.push("Do not unmap or free pages given to the device; reset the function (FLR) first.".into());
    }
    record.next.push(
        "The device may still write its answer: keep the command's buffers mapped, and do not use the slot again until its ownership bit clears.".into(),
    );
    record
}

fn recovered(spot: &Spot) -> Record {
    let headline =
        format!("{} had completed, but no interrupt told: the driver found it after its time was up.", name(spot));
    let mut record = spot.record("command-recovered", headline);
    slot(&mut record, spot);
    record.causes.push("A lost interrupt of the command event queue.".into());
    record.next.push(
        "Once: the driver goes on, nothing to do. Each time: look at the interrupt's count in /proc/interrupts.".into(),
    );
    record
}

fn late(spot: &Spot) -> Record {
    let slot = spot.number("slot").unwrap_or(0);
    let headline = format!("The answer of a command that had been given up came after all, in slot {slot}.");
    let mut record = spot.record("command-late", headline);
    record.put("slots", vec![slot]);
    record.causes.push("The firmware was busy for longer than the driver waits, or stood still for a while.".into());
    record.causes.push(
        "An answer to a slot without a command: an event that was delivered twice, or from before a reset.".into(),
    );
    record.next.push("The slot can be used again. Look for the timeout of the command before this line.".into());
    record
}

/// The command and its slot.
fn slot(record: &mut Record, spot: &Spot) {
    if let Some(opcode) = opcode(spot) {
        command::put_opcode(record, opcode);
    }
    record.put("slots", spot.number("slot").into_iter().collect::<Vec<_>>());
    record.put("times_s", spot.place.seconds.into_iter().collect::<Vec<_>>());
}

/// Puts the same end of the same command into its record.
fn merge(first: &mut Record, record: &mut Record) {
    let texts =
        |r: &Record| r.json.get("text").and_then(Value::as_str).map(|text| text.ends_with("No done completion"));
    // The two lines of one timeout: the driver looked into the event queue in vain, and gave the command up.
    let pair = record.json.get("what").is_some_and(|what| what == "command-timeout") && texts(first) != texts(record);
    first.lines.append(&mut record.lines);
    if pair {
        return;
    }
    let count = first.number("count").unwrap_or(1);
    first.put("count", count + 1);
    for key in ["slots", "times_s"] {
        let more = record.json.get_mut(key).and_then(Value::as_array_mut).map(std::mem::take);
        if let (Some(list), Some(more)) = (first.json.get_mut(key).and_then(Value::as_array_mut), more) {
            list.extend(more);
        }
    }
}

/// What several of the same say together.
fn sum_up(record: &mut Record) {
    let list = |key: &str| record.json.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let times: Vec<f64> = list("times_s").iter().filter_map(Value::as_f64).collect();
    let slots: Vec<u64> = list("slots").iter().filter_map(Value::as_u64).collect();
    if times.is_empty() {
        record.json.remove("times_s");
    }
    if slots.is_empty() {
        record.json.remove("slots");
    }
    if let (Some(first), Some(last), 2..) = (times.first(), times.last(), times.len()) {
        let interval = (last - first) / (times.len() - 1) as f64;
        record.put("interval_s", (interval * 100.0).round() / 100.0);
    }
    let what = record.json.get("what").and_then(Value::as_str).unwrap_or("").to_string();
    if what == "command-recovered" && record.number("count").unwrap_or(1) > 1 {
        record.causes.insert(0, "No interrupt arrives at all on the command event queue: each command waits its whole time and is then found done.".into());
        record.next.push(
            "Use polling until a first interrupt is proven; check MSI-X, its mask and the vector of the event queue."
                .into(),
        );
    }
    let mut several = slots.clone();
    several.sort_unstable();
    several.dedup();
    if what == "command-timeout" && several.len() > 1 {
        record.causes.insert(
            0,
            format!("{} slots timed out together: the firmware has stopped serving commands.", several.len()),
        );
        record.next.insert(
            0,
            "Mark the device failed and read the health buffer; more commands will time out as well.".into(),
        );
    }
    if let Some(count) = record.number("count") {
        record.row("count", count.to_string(), "Lines of the same command, end and device.");
    }
    if !slots.is_empty() {
        let slots = slots.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        record.row("slots", slots, "Slots of the command queue.");
    }
}

/// A chain of refused destroys has one cause: its first.
fn chain(records: &mut [Record]) {
    let mut first: Option<usize> = None;
    for record in records {
        let opcode = Opcode(record.number("opcode").unwrap_or(0) as u16);
        if record.number("status") != Some(Status::BAD_RES_STATE_ERR.0.into()) || !command::destroys(opcode) {
            continue;
        }
        match first {
            None => first = record.lines.first().copied(),
            Some(line) => record.notes.push(format!(
                "A destroy was refused before, on line {line}: a chain of refused destroys has one cause, that of the first."
            )),
        }
    }
}

/// A CQ's error event.
pub fn cq_error(spot: &Spot) -> Record {
    let cqn = spot.number("cqn").unwrap_or(0) as u32 & 0xff_ffff;
    let syndrome = CqErrorSyndrome(spot.number("cq_err_syndrome").unwrap_or(0) as u8);
    let mut record = spot.record("event", format!("CQ_ERROR: {}", eqe::cq_error(cqn, syndrome)));
    record.put("event_type", EventType::CQ_ERROR.0);
    record.put("event_name", EventType::CQ_ERROR.name().map_or(Value::Null, Value::from));
    record.row("cqn", number(cqn.into()), "The CQ that failed.");
    record.row(
        "syndrome",
        named(syndrome.0.into(), syndrome.name()),
        "Of CQ errors; not a completion status nor that of a CQE.",
    );
    eqe::put_cq_error(&mut record, cqn, syndrome);
    record.next.push(
        "Destroy the CQ and its queues and make new ones, larger; the queues on it get error events of their own."
            .into(),
    );
    record
}

/// A message with one meaning.
pub fn notice(spot: &Spot, notice: &Notice) -> Record {
    let mut record = spot.record(notice.what, notice.headline);
    for (name, value) in &spot.fields {
        if name == "err" {
            let errno = value.as_i64().unwrap_or(0).unsigned_abs();
            command::put_errno(&mut record, i32::try_from(errno).unwrap_or(0));
            continue;
        }
        record.put(name, value.clone());
        let shown = value.as_u64().map_or_else(|| value.as_str().map_or(value.to_string(), String::from), number);
        record.row(name, shown, "");
    }
    record.causes.extend(notice.causes.iter().map(|s| s.to_string()));
    record.next.extend(notice.next.iter().map(|s| s.to_string()));
    record
}
