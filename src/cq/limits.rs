//! What the device's capabilities say about completion queues.

use mlx5_hw::caps::{CmdHcaCap, RoceCap};
use mlx5_hw::ring::MAX_LOG_SIZE;

use crate::device::DeviceInner;
use crate::dv::{ContextFlags, CqeCompCaps, CqeCompResFormat};

/// Real time only: a value of the capabilities that end in `ts_format`, of which 0 is the free-running counter only.
const REAL_TIME_ONLY: u32 = 1;
/// The free-running counter and real time.
const BOTH_CLOCKS: u32 = 2;

/// Limits that creating CQs checks, from the capabilities in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqLimits {
    /// `log2` of the most ring slots.
    pub(crate) log_max_size: u32,
    /// CQs can ignore overrun (`cq_oi`).
    pub(crate) ignore_overrun: bool,
    /// CQs can be resized (`cq_resize`).
    pub(crate) resize: bool,
    /// CQs can moderate their events (`cq_moderation`).
    pub(crate) moderation: bool,
    /// What is there of compressed completions.
    pub(crate) compression: CqeCompCaps,
    /// Entries of 128 bytes can be compressed (`cqe_compression_128`).
    pub(crate) compression_128: bool,
    /// Entries of 128 bytes can be padded (`cqe_128_always`).
    pub(crate) pad: bool,
    /// All kinds of queues can stamp completions with real time.
    pub(crate) real_time: bool,
    /// Queue pairs can stamp completions with the free-running counter.
    pub(crate) free_running: bool,
}

impl CqLimits {
    pub(crate) fn of(dev: &DeviceInner) -> Self {
        let caps = dev.caps();
        Self::from_caps(&caps.general, caps.roce.as_ref())
    }

    /// Whatever the device claims, no limit is beyond what the encodings can say.
    fn from_caps(caps: &CmdHcaCap, roce: Option<&RoceCap>) -> Self {
        let qp_ts_format = roce.map_or(0, RoceCap::qp_ts_format);
        let real_time = |ts_format| matches!(ts_format, REAL_TIME_ONLY | BOTH_CLOCKS);
        Self {
            log_max_size: caps.log_max_cq_sz().min(MAX_LOG_SIZE),
            ignore_overrun: caps.cq_oi(),
            resize: caps.cq_resize(),
            moderation: caps.cq_moderation(),
            compression: compression(caps),
            compression_128: caps.cqe_compression_128(),
            pad: caps.cqe_128_always(),
            real_time: real_time(caps.sq_ts_format()) && real_time(caps.rq_ts_format()) && real_time(qp_ts_format),
            free_running: qp_ts_format != REAL_TIME_ONLY,
        }
    }

    /// What of it `mlx5dv_query_device(3)` tells by flags.
    pub(crate) fn flags(&self) -> ContextFlags {
        let mut flags = ContextFlags::CQE_V1;
        flags.set(ContextFlags::CQE_128B_COMP, self.compression_128);
        flags.set(ContextFlags::CQE_128B_PAD, self.pad);
        flags.set(ContextFlags::REAL_TIME_TS, self.real_time);
        flags
    }
}

/// As Linux reports it, and what Linux does not report.
fn compression(caps: &CmdHcaCap) -> CqeCompCaps {
    if !caps.cqe_compression() {
        return CqeCompCaps::default();
    }
    let mut supported_format = CqeCompResFormat::HASH | CqeCompResFormat::CSUM;
    supported_format.set(CqeCompResFormat::CSUM_STRIDX, caps.mini_cqe_resp_stride_index());
    supported_format.set(CqeCompResFormat::FTAG_STRIDX, caps.mini_cqe_resp_flow_tag());
    supported_format.set(CqeCompResFormat::L34H_STRIDX, caps.mini_cqe_resp_l3_l4_tag());
    CqeCompCaps {
        max_num: caps.cqe_compression_max_num(),
        supported_format,
        enhanced_layout: caps.enhanced_cqe_compression(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `mlx5_ib_alloc_ucontext` and `mlx5_ib_query_device` of Linux: real time is reported only if all queues have it.
    #[test]
    fn real_time_is_there_when_all_three_kinds_of_queues_have_it() {
        for (sq, rq, qp, real_time, free_running) in [
            (0, 0, Some(0), false, true),
            (1, 1, Some(1), true, false),
            (2, 2, Some(2), true, true),
            (1, 2, Some(1), true, false),
            (2, 2, Some(0), false, true),
            (2, 0, Some(2), false, true),
            (0, 2, Some(2), false, true),
            (3, 2, Some(2), false, true),
            (2, 2, None, false, true),
        ] {
            let caps = CmdHcaCap::new().with_sq_ts_format(sq).with_rq_ts_format(rq);
            let roce = qp.map(|format| RoceCap::new().with_qp_ts_format(format));
            let limits = CqLimits::from_caps(&caps, roce.as_ref());
            assert_eq!((limits.real_time, limits.free_running), (real_time, free_running), "{sq} {rq} {qp:?}");
            assert_eq!(limits.flags().contains(ContextFlags::REAL_TIME_TS), real_time);
        }
    }

    #[test]
    fn compression_is_reported_as_linux_reports_it() {
        let off = CmdHcaCap::new().with_cqe_compression_max_num(64).with_mini_cqe_resp_stride_index(true);
        assert_eq!(compression(&off), CqeCompCaps::default(), "formats without compression");
        let on = off.with_cqe_compression(true);
        let got = compression(&on);
        assert_eq!((got.max_num, got.supported_format.bits(), got.enhanced_layout), (64, 7, false));
        let all = on.with_mini_cqe_resp_flow_tag(true).with_mini_cqe_resp_l3_l4_tag(true);
        assert_eq!(compression(&all.with_enhanced_cqe_compression(true)).supported_format.bits(), 31);
        let plain = CmdHcaCap::new().with_cqe_compression(true).with_cqe_compression_max_num(8);
        assert_eq!(compression(&plain).supported_format.bits(), 3);
    }
}
