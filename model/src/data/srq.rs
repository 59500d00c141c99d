//! Shared receive queues: a linked list of work requests.
//!
//! Each work request starts with the index of the one that is posted after it; the first has index 0. The device follows the
//! links of all that the record's counter covers as soon as it reads the counter: a link must be right by then.

use super::cqe::{CqeError, syndrome};
use super::remote;
use super::rq::Refusal;
use super::wqe::{self, DS_UNIT, DataSeg};
use crate::bytes::be16;
use crate::device::Device;
use crate::eq::{self, Event, event};
use crate::objects::Rmp;
use crate::violation::ViolationKind;

/// Whether a work request is posted. Reads the record.
pub(super) fn posted(dev: &mut Device, rmpn: u32) -> Result<bool, Refusal> {
    let Some(rmp) = working(dev, rmpn) else { return Err(remote::BROKEN.into()) };
    let (known, waiting, entries, record) = (rmp.producer, rmp.waiting.len() as u32, rmp.entries(), rmp.dbr_addr);
    let Ok(word) = dev.dma_read_be32("receive doorbell record", record) else {
        fail(dev, rmpn);
        return Err(remote::BROKEN.into());
    };
    if word >> 16 != 0 {
        dev.violate(ViolationKind::DoorbellRecordReserved, format!("RMP {rmpn:#x}: receive counter {word:#x}"));
    }
    let added = (word as u16).wrapping_sub(known);
    if waiting + u32::from(added) > entries {
        let detail =
            format!("RMP {rmpn:#x}: counter {word:#x} after {known:#x}, {waiting} of {entries} entries waiting");
        dev.violate(ViolationKind::ReceiveQueueOverrun, detail);
        return Ok(false);
    }
    for _ in 0..added {
        if let Err(astray) = follow(dev, rmpn) {
            // What cannot be read has been recorded.
            if let Some(detail) = astray {
                dev.violate(ViolationKind::ReceiveLink, format!("RMP {rmpn:#x}: {detail}"));
            }
            fail(dev, rmpn);
            return Err(remote::BROKEN.into());
        }
    }
    Ok(working(dev, rmpn).is_some_and(|rmp| !rmp.waiting.is_empty()))
}

fn working(dev: &Device, rmpn: u32) -> Option<&Rmp> {
    dev.objects.rmps.get(&rmpn).filter(|rmp| !rmp.broken)
}

/// Takes note of one more work request that was posted, and of where its link leads: astray, in words, or nowhere that can be read.
fn follow(dev: &mut Device, rmpn: u32) -> Result<(), Option<String>> {
    let Some(rmp) = working(dev, rmpn) else { return Err(None) };
    let (buffer, index, at, signed) = (rmp.buffer.clone(), rmp.next, rmp.at(rmp.next), rmp.wq_signature);
    if u32::from(index) >= rmp.entries() {
        return Err(Some(format!("a link to {index:#x}, {} entries", rmp.entries())));
    }
    if rmp.waiting.contains(&index) {
        return Err(Some(format!("a link to {index:#x}, which is posted already")));
    }
    let mut raw = [0; DS_UNIT];
    if dev.buffer_read("link of a receive work request", &buffer, at, &mut raw).is_err() {
        return Err(None);
    }
    // Bytes 2 and 3 are the link, byte 4 the signature.
    let reserved = raw.iter().enumerate().any(|(at, byte)| *byte != 0 && !(at == 2 || at == 3 || signed && at == 4));
    if reserved {
        dev.violate(
            ViolationKind::WqeMalformed,
            format!("RMP {rmpn:#x}, receive WQE {index:#x}: next segment {raw:x?}"),
        );
    }
    if let Some(rmp) = dev.objects.rmps.get_mut(&rmpn) {
        rmp.waiting.push_back(index);
        rmp.producer = rmp.producer.wrapping_add(1);
        rmp.next = be16(&raw, 2);
    }
    Ok(())
}

fn fail(dev: &mut Device, rmpn: u32) {
    if let Some(rmp) = dev.objects.rmps.get_mut(&rmpn) {
        rmp.broken = true;
        eq::report(dev, Event::shared_receive_queue(event::SRQ_CATASTROPHIC, rmpn));
    }
}

/// Reads the list of the next work request.
pub(super) fn list(dev: &mut Device, rmpn: u32) -> Result<Vec<DataSeg>, Refusal> {
    let broken = Refusal::Own { own: CqeError::of(syndrome::LOCAL_QP_OP), sender: syndrome::REMOTE_OPERATION };
    let Some(rmp) = working(dev, rmpn) else { return Err(broken) };
    let Some(index) = rmp.waiting.front().copied() else { return Err(broken) };
    let (buffer, at) = (rmp.buffer.clone(), rmp.at(index) + DS_UNIT as u64);
    let mut raw = vec![0; (1 << rmp.log_stride) - DS_UNIT];
    if dev.buffer_read("receive work request", &buffer, at, &mut raw).is_err() {
        fail(dev, rmpn);
        return Err(remote::BROKEN.into());
    }
    wqe::decode_recv(&raw).map_err(|fault| {
        dev.violate(ViolationKind::WqeMalformed, format!("RMP {rmpn:#x}, receive WQE {index:#x}: {fault:?}"));
        broken
    })
}

/// Takes the next work request and returns its index.
pub(super) fn take(dev: &mut Device, rmpn: u32) -> Option<u16> {
    let index = dev.objects.rmps.get_mut(&rmpn)?.waiting.pop_front()?;
    check_limit(dev, rmpn);
    Some(index)
}

/// Raises the limit's event, once, when fewer work requests are left than it says; also when that is so at the time of arming.
pub(super) fn check_limit(dev: &mut Device, rmpn: u32) {
    let armed = working(dev, rmpn).is_some_and(|rmp| rmp.limit > 0);
    if !armed || posted(dev, rmpn).is_err() {
        return;
    }
    let Some(rmp) = dev.objects.rmps.get_mut(&rmpn) else { return };
    if rmp.waiting.len() < usize::from(rmp.limit) {
        rmp.limit = 0;
        eq::report(dev, Event::shared_receive_queue(event::SRQ_LIMIT, rmpn));
    }
}
