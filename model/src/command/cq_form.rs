//! What a completion queue's context may say about the form of its entries.

use super::Reject;
use crate::device::Device;
use crate::objects::{EntryForm, MiniFormat};

type Done = Result<(), Reject>;

/// Codes of `cqe_comp_layout`, of `cqe_sz` and of `cq_timestamp_format`.
const BASIC: u64 = 0;
const ENHANCED: u64 = 1;
const BYTES_64: u64 = 0;
const PADDED: u64 = 2;
const REAL_TIME: u64 = 2;

/// Checks a form against the capabilities in force.
pub(super) fn check(dev: &Device, form: &EntryForm) -> Done {
    let has = |cap| dev.hca.caps.current(cap) != 0;
    if form.size > PADDED {
        return Err(Reject::CqEntrySize);
    }
    if form.size == PADDED && !has("cqe_128_always") {
        return Err(Reject::CqPadding);
    }
    if form.timestamp > REAL_TIME {
        return Err(Reject::CqTimestamp);
    }
    if form.timestamp == REAL_TIME && !has("sq_ts_format") {
        return Err(Reject::CqRealTime);
    }
    if form.compressed { check_compression(form, has) } else { check_none(form) }
}

/// A queue that is not compressed says nothing about minis.
fn check_none(form: &EntryForm) -> Done {
    if form.minis == (0, 0) && form.layout == BASIC { Ok(()) } else { Err(Reject::CqCompressionOff) }
}

fn check_compression(form: &EntryForm, has: impl Fn(&'static str) -> bool) -> Done {
    if form.size == BYTES_64 && !has("cqe_compression") {
        return Err(Reject::CqCompression);
    }
    if form.size != BYTES_64 && !has("cqe_compression_128") {
        return Err(Reject::CqCompression128);
    }
    if form.layout > ENHANCED {
        return Err(Reject::CqLayout);
    }
    if form.layout == ENHANCED && !has("enhanced_cqe_compression") {
        return Err(Reject::CqEnhanced);
    }
    let missing = match MiniFormat::of(form.minis.0, form.minis.1).ok_or(Reject::CqMiniFormat)? {
        MiniFormat::Hash | MiniFormat::Csum => return Ok(()),
        MiniFormat::FtagStridx => ("mini_cqe_resp_flow_tag", Reject::CqMiniFlowTag),
        MiniFormat::CsumStridx => ("mini_cqe_resp_stride_index", Reject::CqMiniStride),
        MiniFormat::L34hStridx => ("mini_cqe_resp_l3_l4_tag", Reject::CqMiniHeaders),
    };
    if has(missing.0) { Ok(()) } else { Err(missing.1) }
}
