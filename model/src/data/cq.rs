//! Completion queues: writing entries, noticing overruns, arming and events.

use std::collections::VecDeque;

use super::Timer;
use super::cqe::Completion;
use super::fault::DataFault;
use super::gather::{self, Gather};
use super::moderation::{self, Moderator};
use super::slot::{self, Entry};
use super::sq;
use crate::device::Device;
use crate::dma::DmaFault;
use crate::eq::{self, Event};
use crate::objects::{Cq, CqArm, OVERFLOW, WRITE_FAIL};
use crate::time::Due;
use crate::violation::ViolationKind;

/// Indices of a completion queue have 24 bits on the wire.
const INDEX: u32 = 0xff_ffff;

/// What the data path keeps of a completion queue besides its context.
#[derive(Clone, Debug, Default)]
pub(crate) struct CqRun {
    /// Consumer index as last read from the record.
    consumer: u32,
    /// Index behind the last solicited or error entry.
    solicited: Option<u32>,
    /// Completions that a fault holds back, oldest first.
    late: VecDeque<Completion>,
    /// A completion that a fault makes wait for its successor.
    swapped: Option<Completion>,
    ticket: u64,
    /// Sequence number of the last arm, and of the last one that raised its event.
    number: u32,
    answered: Option<u32>,
    pub(super) gather: Gather,
    pub(super) moderator: Moderator,
}

/// Reports a completion to queue `cqn`. False when the queue is broken or gone: the completion is lost.
pub(crate) fn complete(dev: &mut Device, cqn: u32, mut completion: Completion) -> bool {
    let fault = dev.data.faults.completion(&mut completion);
    match fault {
        Some(DataFault::LostCqe) => return true,
        Some(DataFault::SwappedCqe { ns }) => {
            hold(dev, cqn, ns);
            // One that waits for this one already goes before it.
            let before = dev.data.cq(cqn).swapped.replace(completion);
            return before.is_none_or(|old| write(dev, cqn, old));
        }
        Some(DataFault::LateCqe { ns }) => {
            hold(dev, cqn, ns);
            dev.data.cq(cqn).late.push_back(completion);
            return true;
        }
        _ => (),
    }
    let run = dev.data.cq(cqn);
    if !run.late.is_empty() {
        run.late.push_back(completion);
        return true;
    }
    let before = run.swapped.take();
    let written = write(dev, cqn, completion);
    written && before.is_none_or(|old| write(dev, cqn, old))
}

fn hold(dev: &mut Device, cqn: u32, ns: u64) {
    let ticket = dev.data.ticket();
    dev.data.cq(cqn).ticket = ticket;
    dev.clock.after(ns, Due::Data(Timer::Late { cqn, ticket }));
}

/// The time of completions that were held back has come.
pub(crate) fn late(dev: &mut Device, cqn: u32, ticket: u64) {
    if dev.data.cqs.get(&cqn).is_some_and(|run| run.ticket == ticket) {
        release(dev, cqn);
    }
}

/// Writes the completions that were held back or wait for others.
pub(crate) fn release(dev: &mut Device, cqn: u32) {
    let Some(run) = dev.data.cqs.get_mut(&cqn) else { return };
    let due: Vec<Completion> = run.swapped.take().into_iter().chain(run.late.drain(..)).collect();
    for completion in due {
        if !write(dev, cqn, completion) {
            sq::broken(dev, completion.qpn);
        }
    }
    gather::flush(dev, cqn);
}

/// Writes one completion, now or together with those that follow.
fn write(dev: &mut Device, cqn: u32, completion: Completion) -> bool {
    if !gather::joins(dev, cqn, &completion) && !gather::flush(dev, cqn) {
        return false;
    }
    admit(dev, cqn, 1).is_some() && gather::take(dev, cqn, completion)
}

/// Writes one entry as it is at the producer index.
pub(super) fn append(dev: &mut Device, cqn: u32, mut entry: Entry, solicited: bool) -> bool {
    let Some(cq) = admit(dev, cqn, 1) else { return false };
    slot::own(&cq, cq.producer, &mut entry.descriptor);
    let written = slot::put(dev, &cq, cq.producer, &entry);
    conclude(dev, cqn, written, 1, solicited)
}

/// The queue, if it works and has room for `count` more entries behind those that wait to be written. It overruns if not: what
/// waits has its room and is written before.
pub(super) fn admit(dev: &mut Device, cqn: u32, count: u32) -> Option<Cq> {
    dev.objects.cqs.get(&cqn).filter(|cq| cq.status == 0)?;
    let status = match has_room(dev, cqn, count) {
        Ok(true) => return dev.objects.cqs.get(&cqn).cloned(),
        Ok(false) => OVERFLOW,
        Err(_) => WRITE_FAIL,
    };
    if gather::flush(dev, cqn) {
        fail(dev, cqn, status);
    }
    None
}

/// Accounts for `count` entries that were written, or not. Returns whether they were.
pub(super) fn conclude(dev: &mut Device, cqn: u32, written: Result<(), DmaFault>, count: u32, solicited: bool) -> bool {
    match written {
        Ok(()) => wrote(dev, cqn, count, solicited),
        Err(_) => fail(dev, cqn, WRITE_FAIL),
    }
    written.is_ok()
}

/// `count` entries stand behind the producer index: it moves, and the event is raised that the queue was armed for.
pub(super) fn wrote(dev: &mut Device, cqn: u32, count: u32, solicited: bool) {
    let Some(cq) = dev.objects.cqs.get_mut(&cqn) else { return };
    cq.producer = cq.producer.wrapping_add(count);
    let producer = cq.producer;
    let run = dev.data.cq(cqn);
    run.gather.forget_title();
    if solicited {
        run.solicited = Some(producer);
    }
    moderation::wrote(dev, cqn, count, solicited);
}

/// Breaks a queue by hand; without one of this number there is the event only.
pub(crate) fn break_by_hand(dev: &mut Device, cqn: u32, syndrome: u8) {
    if dev.objects.cqs.contains_key(&cqn) {
        fail(dev, cqn, if syndrome == 1 { OVERFLOW } else { WRITE_FAIL });
    } else {
        eq::report(dev, Event::cq_error(cqn, syndrome));
    }
}

/// Breaks a queue, once: `status` is what its context says from now on. The event's syndromes are 1 overrun, 2 access.
fn fail(dev: &mut Device, cqn: u32, status: u8) {
    if let Some(cq) = dev.objects.cqs.get_mut(&cqn).filter(|cq| cq.status == 0) {
        cq.status = status;
        let syndrome = if status == OVERFLOW { 1 } else { 2 };
        eq::report(dev, Event::cq_error(cqn, syndrome));
    }
}

/// The queue's event is raised, which answers the last arm.
pub(super) fn answered(dev: &mut Device, cqn: u32) {
    let run = dev.data.cq(cqn);
    run.answered = Some(run.number);
}

/// Whether the next `count` entries behind those that wait to be written are free. The record is read each time, sooner than a card would: a wrong consumer index is found
/// at once, not after a lap.
fn has_room(dev: &mut Device, cqn: u32, count: u32) -> Result<bool, DmaFault> {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return Ok(false) };
    if cq.overrun_ignore || cq.collapsed {
        return Ok(true);
    }
    let free = cq.entries().saturating_sub(dev.data.cq(cqn).gather.waiting());
    consumed(dev, cqn).map(|pending| pending + count <= free)
}

/// Entries that are not consumed; at most as many as the ring has, where nothing watches over that.
pub(super) fn outstanding(dev: &mut Device, cqn: u32) -> u32 {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return 0 };
    let (entries, producer, record) = (cq.entries(), cq.producer, cq.dbr_addr);
    let pending = if cq.overrun_ignore || cq.collapsed {
        let word = dev.dma_read_be32("CQ doorbell record", record).ok();
        word.map(|word| {
            dev.data.cq(cqn).consumer = word & INDEX;
            producer.wrapping_sub(word) & INDEX
        })
    } else {
        consumed(dev, cqn).ok()
    };
    pending.map_or(entries, |pending| pending.min(entries))
}

/// Reads the record, and returns how many entries are not consumed.
fn consumed(dev: &mut Device, cqn: u32) -> Result<u32, DmaFault> {
    let cq = dev.objects.cqs.get(&cqn).ok_or(DmaFault::Blocked)?;
    let (producer, record) = (cq.producer, cq.dbr_addr);
    let known = producer.wrapping_sub(dev.data.cq(cqn).consumer) & INDEX;
    let word = dev.dma_read_be32("CQ doorbell record", record)?;
    if word & !INDEX != 0 {
        dev.violate(ViolationKind::DoorbellRecordReserved, format!("CQ {cqn:#x}: consumer index {word:#x}"));
    }
    let pending = producer.wrapping_sub(word) & INDEX;
    if pending > known {
        let detail = format!(
            "CQ {cqn:#x}: index {:#x}, producer {:#x}, {known} entries to consume",
            word & INDEX,
            producer & INDEX
        );
        dev.violate(ViolationKind::CqConsumerIndex, detail);
        return Ok(known);
    }
    dev.data.cq(cqn).consumer = word & INDEX;
    Ok(pending)
}

/// An arm doorbell: `sn` in bits 61:60, solicited only in bit 56, consumer index in bits 55:32, queue number below.
pub(crate) fn arm(dev: &mut Device, uar: u32, value: u64) {
    let (word, cqn) = ((value >> 32) as u32, value as u32 & INDEX);
    let Some(cq) = dev.objects.cqs.get(&cqn) else {
        dev.violate(ViolationKind::DoorbellUnknownObject, format!("CQ {cqn:#x} in UAR {uar:#x}"));
        return;
    };
    let (record, producer, tracked) = (cq.dbr_addr, cq.producer, !cq.overrun_ignore && !cq.collapsed);
    if cq.uar != uar {
        let detail = format!("CQ {cqn:#x} has UAR {:#x}, doorbell in {uar:#x}", cq.uar);
        dev.violate(ViolationKind::DoorbellWrongUar, detail);
        return;
    }
    if value & 0xce00_0000_ff00_0000 != 0 {
        dev.violate(ViolationKind::CqArmWord, format!("CQ {cqn:#x}: reserved bits in {value:#018x}"));
    }
    let Ok(told) = dev.dma_read_be32("CQ arm record", record.wrapping_add(4)) else {
        return fail(dev, cqn, WRITE_FAIL);
    };
    // A doorbell that was on its way may find the record of the next one.
    let newer = dev.writes_are_posted && told.wrapping_sub(word) & INDEX <= INDEX / 2;
    if told != word && !newer {
        dev.violate(ViolationKind::CqArmWord, format!("CQ {cqn:#x}: doorbell {word:#010x}, record {told:#010x}"));
    }
    let unseen = producer.wrapping_sub(word) & INDEX;
    let pending = producer.wrapping_sub(dev.data.cq(cqn).consumer) & INDEX;
    if tracked && unseen > pending && !newer {
        let detail = format!("CQ {cqn:#x}: armed at {:#x}, producer {:#x}", word & INDEX, producer & INDEX);
        dev.violate(ViolationKind::CqConsumerIndex, detail);
        return;
    }
    let (number, answered) = (word >> 28 & 3, dev.data.cq(cqn).answered);
    if dev.arm_needs_new_number && answered == Some(number) {
        return;
    }
    dev.data.cq(cqn).number = number;
    let solicited_only = word & 1 << 24 != 0;
    let behind = dev.data.cq(cqn).solicited.map(|index| producer.wrapping_sub(index) & INDEX);
    let solicited = behind.is_some_and(|distance| distance < unseen);
    let now = dev.arm_sees_waiting && if solicited_only { solicited } else { unseen > 0 };
    moderation::arm(dev, cqn, CqArm { solicited_only }, now.then_some(solicited));
}
