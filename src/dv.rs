//! What `infiniband/mlx5dv.h` adds to the verbs, with its names and numbers.

use bitflags::bitflags;

bitflags! {
    /// Which fields of [`CqInitAttr`] are valid (`enum mlx5dv_cq_init_attr_mask`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqInitAttrMask: u64 {
        /// `cqe_comp_res_format` is valid: completions may be compressed.
        const COMPRESSED_CQE = 1 << 0;
        /// `flags` is valid.
        const FLAGS = 1 << 1;
        /// `cqe_size` is valid.
        const CQE_SIZE = 1 << 2;
        /// `cqe_comp_layout` is valid; needs `COMPRESSED_CQE`. Ours: mlx5dv has no such field.
        const CQE_COMP_LAYOUT = 1 << 3;
    }
}

bitflags! {
    /// Formats of the small entries in a compressed session of receives (`enum mlx5dv_cqe_comp_res_format`). A CQ has exactly
    /// one; a device may offer several.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqeCompResFormat: u8 {
        /// Length and RSS hash.
        const HASH = 1 << 0;
        /// Length and checksum.
        const CSUM = 1 << 1;
        /// Length, checksum and the stride's index.
        const CSUM_STRIDX = 1 << 2;
        /// Length, flow tag and the stride's index. Ours: mlx5dv does not offer it.
        const FTAG_STRIDX = 1 << 3;
        /// Length, types of the packet's headers and the stride's index. Ours: mlx5dv does not offer it.
        const L34H_STRIDX = 1 << 4;
    }
}

bitflags! {
    /// How entries are written (`enum mlx5dv_cq_init_attr_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CqInitAttrFlags: u32 {
        /// Entries of 128 bytes are always written whole.
        const CQE_PAD = 1 << 0;
    }
}

/// How a compressed session lies in the ring (PRM `cqc.cqe_comp_layout`). Ours: mlx5dv knows the basic layout only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CqeCompLayout {
    /// A title entry, then arrays of eight small ones.
    #[default]
    Basic = 0,
    /// Arrays of up to seven small entries, each with its count, valid by a number of the lap.
    Enhanced = 1,
}

/// What [`Device::dv_create_cq`](crate::Device::dv_create_cq) can choose beyond the verbs (`struct mlx5dv_cq_init_attr`;
/// `mlx5dv_create_cq(3)`). The default chooses nothing: 64-byte entries, not compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqInitAttr {
    /// Which of the fields below are valid; the others are not looked at.
    pub comp_mask: CqInitAttrMask,
    /// Format of compressed receives: exactly one, of those in [`CqeCompCaps::supported_format`].
    pub cqe_comp_res_format: CqeCompResFormat,
    /// How entries are written.
    pub flags: CqInitAttrFlags,
    /// Size of an entry in bytes: 64 or 128.
    pub cqe_size: u16,
    /// Layout of compressed sessions.
    pub cqe_comp_layout: CqeCompLayout,
}

/// What a device offers in compressed completions (`struct mlx5dv_cqe_comp_caps`; `mlx5dv_query_device(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqeCompCaps {
    /// Most completions in a session; 0 without compression.
    pub max_num: u32,
    /// Formats on offer.
    pub supported_format: CqeCompResFormat,
    /// The enhanced layout is on offer (PRM `enhanced_cqe_compression`). Ours: mlx5dv does not tell.
    pub enhanced_layout: bool,
}

bitflags! {
    /// What a queue pair has that the verbs do not know (`enum mlx5dv_qp_create_flags`; `mlx5dv_create_qp(3)`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpCreateFlags: u32 {
        /// Stateless offloads of tunnelled packets; for raw packets.
        const TUNNEL_OFFLOADS = 1 << 0;
        /// Unicast packets to itself are received; for raw packets.
        const TIR_ALLOW_SELF_LOOPBACK_UC = 1 << 1;
        /// Multicast packets to itself are received; for raw packets.
        const TIR_ALLOW_SELF_LOOPBACK_MC = 1 << 2;
        /// No data in completions. It is off anyway.
        const DISABLE_SCATTER_TO_CQE = 1 << 3;
        /// Small messages and small answers lie in their completions, and polling copies them to where they belong.
        const ALLOW_SCATTER_TO_CQE = 1 << 4;
        /// Credits count packets, not messages.
        const PACKET_BASED_CREDIT_MODE = 1 << 5;
        /// Requests behind one whose signature is wrong wait.
        const SIG_PIPELINING = 1 << 6;
        /// Packets may come in any order.
        const OOO_DP = 1 << 7;
    }
}

bitflags! {
    /// What a device has (`enum mlx5dv_context_flags`; `mlx5dv_query_device(3)`), as far as it concerns this driver.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ContextFlags: u64 {
        /// Entries name their queue by user index. Always: other devices are refused.
        const CQE_V1 = 1 << 0;
        /// Entries of 128 bytes can be compressed.
        const CQE_128B_COMP = 1 << 4;
        /// Entries of 128 bytes can be padded: [`CqInitAttrFlags::CQE_PAD`].
        const CQE_128B_PAD = 1 << 5;
        /// Time stamps of all queues can be real time.
        const REAL_TIME_TS = 1 << 7;
    }
}

/// What a [`QueueAllocator`](crate::QueueAllocator)'s memory is for: `MLX5DV_RES_TYPE_*`, the driver's number (1) in the
/// upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResourceType(pub u64);

impl ResourceType {
    /// A doorbell record.
    pub const DBR: Self = Self(1 << 32 | 3);
    /// The ring of a completion queue.
    pub const CQ: Self = Self(1 << 32 | 5);
}

/// How a device's time stamps become nanoseconds since 1970 (`struct mlx5dv_clock_info`; `mlx5dv_get_clock_info(3)`), as they did
/// when it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockInfo {
    /// The time of `last_cycles`, in nanoseconds.
    pub nsec: u64,
    /// What the counter showed then.
    pub last_cycles: u64,
    /// Parts of a nanosecond, 1/2^`shift` each, to add to `nsec`.
    pub frac: u64,
    /// Nanoseconds a tick, in parts of 1/2^`shift`.
    pub mult: u32,
    /// See `mult`; below 64.
    pub shift: u32,
    /// The bits of the counter.
    pub mask: u64,
}

/// The time of a time stamp, in nanoseconds (`mlx5dv_ts_to_ns(3)`). One that seems to lie more than half of the counter's range ahead
/// is taken as one of before.
///
/// ```
/// # use mlx5::dv::{ClockInfo, ts_to_ns};
/// // 156.25 MHz: 6.4 nanoseconds a tick.
/// let info = ClockInfo { nsec: 1_000_000, last_cycles: 5, frac: 0, mult: 6_710_886, shift: 20, mask: u64::MAX >> 1 };
/// assert_eq!((ts_to_ns(&info, 15), ts_to_ns(&info, u64::MAX >> 1)), (1_000_063, 999_962));
/// ```
pub fn ts_to_ns(info: &ClockInfo, device_timestamp: u64) -> u64 {
    let ns = |ticks: u64, frac: i128| {
        let parts = i128::from(ticks) * i128::from(info.mult) + frac;
        parts >> info.shift.min(63)
    };
    let delta = device_timestamp.wrapping_sub(info.last_cycles) & info.mask;
    let time = if delta > info.mask / 2 {
        let before = info.last_cycles.wrapping_sub(device_timestamp) & info.mask;
        i128::from(info.nsec) - ns(before, -i128::from(info.frac))
    } else {
        i128::from(info.nsec) + ns(delta, info.frac.into())
    };
    time.clamp(0, u64::MAX.into()) as u64
}
