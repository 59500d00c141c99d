//! Shared receive queues: receive memory pools (RMP) with a linked list.

use super::Reject;
use super::ring::{check_buffer, check_record};
use crate::bytes::{be16, be24, bits, put_bits, put64};
use crate::data;
use crate::device::Device;
use crate::objects::{READY, Rmp};

type Done = Result<(), Reject>;

/// Bytes of the context in the commands that carry one, and in the answer of the query.
const CONTEXT: core::ops::Range<usize> = 0x20..0x110;
/// `wq_type` of a linked list.
const LINKED_LIST: u64 = 0;
/// The smallest entry holds a next segment and one data segment.
const MIN_LOG_STRIDE: u32 = 5;

pub(super) fn create(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let rmp = Rmp::decode(&input[CONTEXT], &input[0x110..]);
    check(dev, &rmp, &input[CONTEXT])?;
    check_buffer(dev, &rmp.buffer, input.len() - 0x110, rmp.bytes())?;
    check_record(dev, rmp.dbr_addr)?;
    let rmpn = dev.objects.free_rmp(1 << dev.hca.caps.current("log_max_rmp")).ok_or(Reject::NoRmp)?;
    dev.objects.rmps.insert(rmpn, rmp);
    put_bits(output, 0x9 * 8, 24, rmpn.into());
    Ok(())
}

fn check(dev: &Device, rmp: &Rmp, context: &[u8]) -> Done {
    let caps = &dev.hca.caps;
    if caps.current("log_max_rmp") == 0 {
        return Err(Reject::RmpOff);
    }
    if Rmp::state(context) != READY {
        return Err(Reject::RmpState);
    }
    if rmp.wq_type() != LINKED_LIST {
        return Err(Reject::RmpType);
    }
    if u64::from(rmp.log_size) > caps.current("log_max_srq_sz") {
        return Err(Reject::RmpSize);
    }
    if rmp.log_stride < MIN_LOG_STRIDE || 1 << rmp.log_stride > caps.current("max_wqe_sz_rq") {
        return Err(Reject::RmpStride);
    }
    if !dev.objects.pds.contains(&rmp.pd) {
        return Err(Reject::RmpPd);
    }
    if u32::from(rmp.limit) > rmp.entries() { Err(Reject::RmpLimit) } else { Ok(()) }
}

/// Arms the limit: the one thing about it that can be changed.
pub(super) fn modify(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let rmpn = be24(input, 0x9);
    let rmp = dev.objects.rmps.get_mut(&rmpn).ok_or(Reject::RmpUnknown)?;
    if bits(input, 64, 4) != READY || Rmp::state(&input[CONTEXT]) != READY || rmp.broken {
        return Err(Reject::RmpState);
    }
    let limit = be16(&input[CONTEXT], 0x36);
    if u32::from(limit) > rmp.entries() {
        return Err(Reject::RmpLimit);
    }
    if bits(input, 191, 1) == 1 {
        rmp.limit = limit;
        data::rmp_armed(dev, rmpn);
    }
    Ok(())
}

pub(super) fn query(dev: &mut Device, input: &[u8], output: &mut [u8]) -> Done {
    let rmp = dev.objects.rmps.get(&be24(input, 0x9)).ok_or(Reject::RmpUnknown)?;
    output[CONTEXT].copy_from_slice(&rmp.encode());
    // The page list, as far as there is room.
    for (index, page) in rmp.buffer.pages.iter().enumerate() {
        put64(output, 0x110 + 8 * index, *page);
    }
    Ok(())
}

pub(super) fn destroy(dev: &mut Device, input: &[u8], _: &mut [u8]) -> Done {
    let rmpn = be24(input, 0x9);
    if !dev.objects.rmps.contains_key(&rmpn) {
        return Err(Reject::RmpUnknown);
    }
    if dev.objects.qps.values().any(|qp| qp.shared() == Some(rmpn)) {
        return Err(Reject::RmpBusy);
    }
    dev.objects.rmps.remove(&rmpn);
    Ok(())
}
