//! Completion queues: writing entries, noticing overruns, arming and events.

use std::collections::VecDeque;

use super::Timer;
use super::cqe::Completion;
use super::fault::DataFault;
use super::slot::{self, Entry};
use crate::device::Device;
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
}

/// Reports a completion to queue `cqn`. False when the queue is broken or gone: the completion is lost.
pub(crate) fn complete(dev: &mut Device, cqn: u32, mut completion: Completion) -> bool {
    let fault = dev.data.faults.completion(&mut completion);
    match fault {
        Some(DataFault::LostCqe) => return true,
        Some(DataFault::SwappedCqe { ns }) => {
            hold(dev, cqn, ns);
            dev.data.cq(cqn).swapped = Some(completion);
            return true;
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

/// Writes the completions that were held back.
pub(crate) fn release(dev: &mut Device, cqn: u32) {
    let Some(run) = dev.data.cqs.get_mut(&cqn) else { return };
    let due: Vec<Completion> = run.swapped.take().into_iter().chain(run.late.drain(..)).collect();
    for completion in due {
        write(dev, cqn, completion);
    }
}

/// Writes one completion.
fn write(dev: &mut Device, cqn: u32, completion: Completion) -> bool {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return false };
    let timestamp =
        if cq.real_time { super::real_time(dev, completion.at) } else { super::free_running(completion.at) };
    let entry = completion.encode(timestamp);
    let written = append(dev, cqn, entry, slot::own_and_sign, completion.counts_as_solicited());
    let counts = &mut dev.data.counts;
    counts.written += u64::from(written);
    counts.inlined += u64::from(written && completion.data().is_some());
    written
}

/// Writes one entry at the producer index, marked by `own`, and raises the event that the queue was armed for.
pub(super) fn append(dev: &mut Device, cqn: u32, mut entry: Entry, own: Own, solicited: bool) -> bool {
    let room = has_room(dev, cqn);
    let Some(cq) = dev.objects.cqs.get_mut(&cqn).filter(|cq| cq.status == 0) else { return false };
    if !room {
        fail(dev, cqn, OVERFLOW);
        return false;
    }
    let index = cq.producer;
    cq.producer = index.wrapping_add(1);
    let cq = cq.clone();
    own(&cq, index, &mut entry.descriptor);
    if slot::put(dev, &cq, index, &entry).is_err() {
        fail(dev, cqn, WRITE_FAIL);
        return false;
    }
    if solicited {
        dev.data.cq(cqn).solicited = Some(index.wrapping_add(1));
    }
    notify(dev, cqn, solicited);
    true
}

/// How a descriptor is marked for a position: with a signature or without.
pub(super) type Own = fn(&Cq, u32, &mut [u8; 64]);

/// Breaks a queue: `status` is what its context says from now on. The event's syndromes are 1 overrun, 2 access.
fn fail(dev: &mut Device, cqn: u32, status: u8) {
    if let Some(cq) = dev.objects.cqs.get_mut(&cqn) {
        cq.status = status;
        let syndrome = if status == OVERFLOW { 1 } else { 2 };
        eq::report(dev, Event::cq_error(cqn, syndrome));
    }
}

/// Whether the next entry is free. The record is read each time, sooner than a card would: a wrong consumer index is found
/// at once, not after a lap.
fn has_room(dev: &mut Device, cqn: u32) -> bool {
    let Some(cq) = dev.objects.cqs.get(&cqn) else { return false };
    if cq.overrun_ignore || cq.collapsed {
        return true;
    }
    let (producer, entries, record) = (cq.producer, cq.entries(), cq.dbr_addr);
    let known = producer.wrapping_sub(dev.data.cq(cqn).consumer) & INDEX;
    let Ok(word) = dev.dma_read_be32("CQ doorbell record", record) else { return false };
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
        return known < entries;
    }
    dev.data.cq(cqn).consumer = word & INDEX;
    pending < entries
}

/// Raises the completion event if the queue is armed for this kind of entry.
fn notify(dev: &mut Device, cqn: u32, solicited: bool) {
    let Some(cq) = dev.objects.cqs.get_mut(&cqn) else { return };
    if cq.armed.is_some_and(|arm| solicited || !arm.solicited_only) {
        cq.armed = None;
        let eqn = cq.eqn;
        eq::post(dev, eqn, Event::completion(cqn));
    }
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
    let Ok(told) = dev.dma_read_be32("CQ arm record", record.wrapping_add(4)) else { return };
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
    let solicited_only = word & 1 << 24 != 0;
    let behind = dev.data.cq(cqn).solicited.map(|index| producer.wrapping_sub(index) & INDEX);
    let now = if solicited_only { behind.is_some_and(|distance| distance < unseen) } else { unseen > 0 };
    if let Some(cq) = dev.objects.cqs.get_mut(&cqn) {
        cq.armed = Some(CqArm { solicited_only });
    }
    if now {
        notify(dev, cqn, true);
    }
}
