//! Completion queues.

use super::ring::{check_buffer, check_record, first_wrong_entry};
use super::{Reject, cq_form};
use crate::bytes::{be24, put_bits, put64};
use crate::data;
use crate::device::Device;
use crate::objects::{Cq, EntryForm, Moderation};
use crate::violation::ViolationKind;

type Done = Result<(), Reject>;

pub(super) fn create(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let context = &input[0x10..0x50];
    cq_form::check(dev, &EntryForm::decode(context))?;
    let cq = Cq::decode(context, &input[0x110..]);
    check(dev, &cq)?;
    check_ring(dev, &cq, input.len() - 0x110)?;
    check_record(dev, cq.dbr_addr)?;
    let cqn = dev.objects.free_cq(1 << dev.hca.caps.current("log_max_cq")).ok_or(Reject::NoCq)?;
    watch_first_lap(dev, cqn, &cq);
    dev.objects.cqs.insert(cqn, cq);
    put_bits(output, 0x9 * 8, 24, cqn.into());
    Ok(())
}

/// The entries of a new ring must say that nothing was written yet.
pub(super) fn watch_first_lap(dev: &mut Device, cqn: u32, cq: &Cq) {
    let laps = cq.counts_laps();
    let wrong = first_wrong_entry(dev, &cq.buffer, cq.entry_size, cq.entries(), |[count, op_own]| {
        op_own >> 4 != 0xf || laps && count != 0xff
    });
    if let Some(entry) = wrong {
        let missing = if laps { "opcode is not 0xf or byte 62 not 0xff" } else { "opcode is not 0xf" };
        dev.violate(ViolationKind::CqNotInitialised, format!("CQ {cqn:#x}, entry {entry}: {missing}"));
    }
}

/// Where the queue's entries lie, and how many they are.
pub(super) fn check_ring(dev: &Device, cq: &Cq, list_bytes: usize) -> Done {
    if u64::from(cq.log_size) > dev.hca.caps.current("log_max_cq_sz") {
        return Err(Reject::CqSize);
    }
    check_buffer(dev, &cq.buffer, list_bytes, u64::from(cq.entries()) * u64::from(cq.entry_size))
}

/// How the queue moderates its events.
pub(super) fn check_moderation(dev: &Device, moderation: &Moderation) -> Done {
    let has = |cap| dev.hca.caps.current(cap) != 0;
    if moderation.mode > 1 {
        return Err(Reject::CqPeriodMode);
    }
    if moderation.counts_from_entries() && !has("cq_period_start_from_cqe") {
        return Err(Reject::CqPeriodModeFromCqe);
    }
    if moderation.solicited_breaks && !has("scqe_break_moderation") {
        return Err(Reject::CqSolicitedBreaks);
    }
    let asked = moderation.period_us != 0 || moderation.max_count != 0;
    if asked && !has("cq_moderation") { Err(Reject::CqModeration) } else { Ok(()) }
}

pub(super) fn check_overrun_ignore(dev: &Device, cq: &Cq) -> Done {
    let missing = cq.overrun_ignore && dev.hca.caps.current("cq_oi") == 0;
    if missing { Err(Reject::CqOverrunIgnore) } else { Ok(()) }
}

fn check(dev: &Device, cq: &Cq) -> Done {
    if !dev.objects.eqs.contains_key(&cq.eqn) {
        return Err(Reject::CqEq);
    }
    if !dev.objects.uars.contains(&cq.uar) {
        return Err(Reject::CqUar);
    }
    check_overrun_ignore(dev, cq)?;
    check_moderation(dev, &cq.moderation)?;
    // A session has more than one entry.
    if cq.collapsed && cq.compression.is_some() { Err(Reject::CqCollapsed) } else { Ok(()) }
}

pub(super) fn destroy(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let cqn = be24(input, 0x9);
    if !dev.objects.cqs.contains_key(&cqn) {
        return Err(Reject::CqUnknown);
    }
    if dev.objects.qps.values().any(|qp| qp.cqn_send == cqn || qp.cqn_recv == cqn) {
        return Err(Reject::CqBusy);
    }
    data::cq_destroyed(dev, cqn);
    dev.objects.cqs.remove(&cqn);
    Ok(())
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let cq = dev.objects.cqs.get(&be24(input, 0x9)).ok_or(Reject::CqUnknown)?.clone();
    let consumer = dev.dma_read_be32("doorbell record", cq.dbr_addr).unwrap_or(0);
    output[0x10..0x50].copy_from_slice(&cq.encode(consumer));
    // The page list, as far as there is room.
    for (index, page) in cq.buffer.pages.iter().enumerate() {
        put64(output, 0x110 + 8 * index, *page);
    }
    Ok(())
}
