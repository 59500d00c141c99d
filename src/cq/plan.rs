//! What creating a CQ comes to: the checks, in the order of libmlx5 and then of the kernel, and the context.

use mlx5_hw::cqc::{Cqc, CqeSz};
use mlx5_hw::mini_cqe::MiniFormat;
use mlx5_hw::qpc::TsFormat;
use mlx5_hw::ring::MAX_LOG_SIZE;

use super::{CqInitAttrEx, CqLimits};
use crate::device::DeviceInner;
use crate::dv::{self, CqeCompLayout, CqeCompResFormat};
use crate::error::Error;
use crate::flags::{CqInitAttrMask, CreateCqFlags, WcFlags};
use crate::pages_of;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

const fn unsupported<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Unsupported { what })
}

/// The time stamps that a CQ's completions carry, which its queues must be created for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeStamps {
    /// None that anybody reads.
    None,
    /// The free-running counter's.
    FreeRunning,
    /// Real time.
    RealTime,
}

impl TimeStamps {
    /// What `wc_flags` need, and whether wall-clock time is made of ticks.
    fn of(dev: &DeviceInner, wc_flags: WcFlags, limits: &CqLimits) -> Result<(Self, bool), Error> {
        let raw = wc_flags.contains(WcFlags::COMPLETION_TIMESTAMP);
        if !wc_flags.contains(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK) {
            return Ok((if raw { Self::FreeRunning } else { Self::None }, false));
        }
        if limits.real_time && !raw {
            return Ok((Self::RealTime, false));
        }
        if !limits.free_running {
            return unsupported(
                "wall-clock time and device clock ticks in the same completions of a device without ticks",
            );
        }
        dev.clock().start()?;
        Ok((Self::FreeRunning, true))
    }
}

/// How completions are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compression {
    pub(super) format: MiniFormat,
    pub(super) layout: CqeCompLayout,
    /// Most completions in a session.
    pub(super) max_num: u32,
}

/// What the checks came to.
pub(super) struct Plan {
    pub(super) log_size: u32,
    /// 64 or 128.
    pub(super) cqe_size: u16,
    pub(super) compression: Option<Compression>,
    pub(super) time_stamps: TimeStamps,
    pub(super) by_clock: bool,
    pad: bool,
    pub(super) eqn: u32,
    pub(super) ignore_overrun: bool,
}

impl Plan {
    /// Checks everything, the first wrong argument first. Nothing is allocated yet.
    pub(super) fn of(dev: &DeviceInner, attr: &CqInitAttrEx<'_>, dv: &dv::CqInitAttr) -> Result<Self, Error> {
        let limits = CqLimits::of(dev);
        // The library's part.
        if attr.cqe == 0 {
            return invalid("cqe is 0");
        }
        if !CqInitAttrMask::all().contains(attr.comp_mask) {
            return invalid("unknown bit in comp_mask");
        }
        let flags = if attr.comp_mask.contains(CqInitAttrMask::FLAGS) { attr.flags } else { CreateCqFlags::empty() };
        if !CreateCqFlags::all().contains(flags) {
            return invalid("unknown bit in flags");
        }
        if !WcFlags::all().contains(attr.wc_flags) {
            return unsupported("unknown bit in wc_flags");
        }
        if !dv::CqInitAttrMask::all().contains(dv.comp_mask) {
            return invalid("unknown bit in mlx5dv's comp_mask");
        }
        domain(dev, attr)?;
        let (time_stamps, by_clock) = TimeStamps::of(dev, attr.wc_flags, &limits)?;
        let log_size = log_ring(attr.cqe)?;
        let cqe_size = if dv.comp_mask.contains(dv::CqInitAttrMask::CQE_SIZE) { dv.cqe_size } else { 64 };
        if !matches!(cqe_size, 64 | 128) {
            return invalid("cqe_size is 64 or 128");
        }
        let compression = compression(dv, cqe_size, &limits)?;
        let pad = pad(dv, cqe_size, &limits)?;
        // The kernel's part.
        let Some(eqn) = dev.comp_eqn(attr.comp_vector) else {
            return invalid("comp_vector is not below the number of completion vectors");
        };
        if attr.channel.is_some_and(|channel| !channel.is_of(dev)) {
            return invalid("a completion channel of another device");
        }
        if log_size > limits.log_max_size {
            return invalid("cqe is more than the device's max_cqe");
        }
        let ignore_overrun = flags.contains(CreateCqFlags::IGNORE_OVERRUN);
        if ignore_overrun && !limits.ignore_overrun {
            return unsupported("ignoring overrun (capability cq_oi)");
        }
        offered(dv, compression, &limits)?;
        Ok(Self { log_size, cqe_size, compression, time_stamps, by_clock, pad, eqn, ignore_overrun })
    }

    /// The context: all zero but for what is set here.
    pub(super) fn context(&self, dev: &DeviceInner, cqe_sz: u32, dbr_addr: u64, log_page_size: u32) -> Cqc {
        let ts_format =
            if self.time_stamps == TimeStamps::RealTime { TsFormat::REAL_TIME } else { TsFormat::FREE_RUNNING };
        let cqc = Cqc::new()
            .with_cqe_sz(if self.pad { CqeSz::PAD_128.0.into() } else { cqe_sz })
            .with_oi(self.ignore_overrun)
            .with_cq_timestamp_format(ts_format.0.into())
            .with_log_cq_size(self.log_size)
            .with_uar_page(dev.uar_page())
            .with_c_eqn(self.eqn)
            .with_log_page_size(log_page_size - pages_of::LOG_4K)
            .with_dbr_addr(dbr_addr);
        let Some(Compression { format, layout, .. }) = self.compression else { return cqc };
        cqc.with_cqe_comp_en(true)
            .with_mini_cqe_res_format(format.res_format())
            .with_mini_cqe_res_format_ext(format.res_format_ext())
            .with_cqe_comp_layout(layout as u32)
    }
}

fn domain(dev: &DeviceInner, attr: &CqInitAttrEx<'_>) -> Result<(), Error> {
    if !attr.comp_mask.contains(CqInitAttrMask::PD) {
        return Ok(());
    }
    match attr.parent_domain {
        None => invalid("no parent domain is given"),
        Some(domain) if !core::ptr::eq(&**domain.dev(), dev) => invalid("a parent domain of another device"),
        Some(_) => Ok(()),
    }
}

/// `log2` of the number of ring slots for `cqe` entries.
pub(super) fn log_ring(cqe: u32) -> Result<u32, Error> {
    let log = (u64::from(cqe) + 1).next_power_of_two().ilog2();
    if log > MAX_LOG_SIZE { invalid("cqe is more than a ring can have") } else { Ok(log) }
}

/// The library's checks of compression: what the device reports, by size of entry.
fn compression(dv: &dv::CqInitAttr, cqe_size: u16, limits: &CqLimits) -> Result<Option<Compression>, Error> {
    let laid_out = dv.comp_mask.contains(dv::CqInitAttrMask::CQE_COMP_LAYOUT);
    if !dv.comp_mask.contains(dv::CqInitAttrMask::COMPRESSED_CQE) {
        return if laid_out { invalid("cqe_comp_layout without compression") } else { Ok(None) };
    }
    let max_num = limits.compression.max_num;
    if max_num == 0 {
        return invalid("the device does not compress completions (capability cqe_compression)");
    }
    let Some(format) = mini_format(dv.cqe_comp_res_format) else {
        return invalid("cqe_comp_res_format is not exactly one format");
    };
    if cqe_size == 128 && !limits.compression_128 {
        return invalid("the device does not compress 128-byte entries (capability cqe_compression_128)");
    }
    let layout = if laid_out { dv.cqe_comp_layout } else { CqeCompLayout::Basic };
    Ok(Some(Compression { format, layout, max_num }))
}

/// The format of exactly one bit.
pub(super) fn mini_format(format: CqeCompResFormat) -> Option<MiniFormat> {
    Some(match format {
        CqeCompResFormat::HASH => MiniFormat::Hash,
        CqeCompResFormat::CSUM => MiniFormat::Csum,
        CqeCompResFormat::CSUM_STRIDX => MiniFormat::CsumStridx,
        CqeCompResFormat::FTAG_STRIDX => MiniFormat::FtagStridx,
        CqeCompResFormat::L34H_STRIDX => MiniFormat::L34hStridx,
        _ => return None,
    })
}

fn pad(dv: &dv::CqInitAttr, cqe_size: u16, limits: &CqLimits) -> Result<bool, Error> {
    if !dv.comp_mask.contains(dv::CqInitAttrMask::FLAGS) {
        return Ok(false);
    }
    if !dv::CqInitAttrFlags::all().contains(dv.flags) {
        return invalid("unknown bit in mlx5dv's flags");
    }
    let pad = dv.flags.contains(dv::CqInitAttrFlags::CQE_PAD);
    if pad && !limits.pad {
        return invalid("the device does not pad entries (capability cqe_128_always)");
    }
    if pad && cqe_size != 128 {
        return invalid("CQE_PAD is for entries of 128 bytes");
    }
    Ok(pad)
}

/// The kernel's checks of compression: formats and layouts that not every device with compression has.
fn offered(dv: &dv::CqInitAttr, compression: Option<Compression>, limits: &CqLimits) -> Result<(), Error> {
    let Some(Compression { layout, .. }) = compression else { return Ok(()) };
    if !limits.compression.supported_format.contains(dv.cqe_comp_res_format) {
        return unsupported(
            "this cqe_comp_res_format (capabilities mini_cqe_resp_stride_index, _flow_tag, _l3_l4_tag)",
        );
    }
    if layout == CqeCompLayout::Enhanced && !limits.compression.enhanced_layout {
        return unsupported("the enhanced layout (capability enhanced_cqe_compression)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case C-002: requests, ring slots.
    #[test]
    fn ring_is_the_next_power_of_two_above_the_request() {
        let table = [(1, 2), (2, 4), (3, 4), (63, 64), (64, 128), (127, 128), (128, 256), (4095, 4096), (4096, 8192)];
        for (cqe, ring) in table.into_iter().chain([(8_388_607, 8_388_608), (16_777_215, 16_777_216)]) {
            assert_eq!(log_ring(cqe).map(|log| 1u32 << log), Ok(ring), "cqe {cqe}");
        }
        for cqe in [16_777_216, 1 << 30, i32::MAX as u32, u32::MAX] {
            assert_eq!(log_ring(cqe).map_err(Error::errno), Err(22), "cqe {cqe}");
        }
    }
}
