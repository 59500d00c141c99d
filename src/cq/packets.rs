//! Received packets as a packet stack wants them: no `ibv_wc` is built.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

use bitflags::bitflags;
use mlx5_hw::cqe::Cqe64Layout;
use mlx5_hw::prm::Bits;
use mlx5_hw::ring::{Alike, CqeFormat, InOrder, Ring};
use mlx5_hw::simd::{Cpu, PacketRecipe, PacketRecord};

use super::batch::{Filled, Place};
use super::completion::Current;
use super::{Cq, PollError, WcStatus};

/// One received packet, or another completion that came among them: what [`Cq::poll_packets`] gives.
///
/// It has 32 bytes. What is not told is 0, and its flag is clear. Where fields come from is said in the names of the PRM's `cqe64`
/// (and `mini_cqe8` for compressed completions).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The caller's name for the request. Always valid.
    pub wr_id: u64,
    /// Length in bytes, of successful receives (`byte_cnt`); of other completions what [`Wc::byte_len`](crate::Wc::byte_len) is.
    pub byte_len: u32,
    /// Receive-side-scaling hash of the packet, with [`RSS_HASH`](PacketFlags::RSS_HASH) (`rss_hash_result`, mini: `rx_hash_result`).
    pub rss_hash: u32,
    /// Tag of the steering rule that the packet met, 24 bits, with [`FLOW_TAG`](PacketFlags::FLOW_TAG) (low 24 bits of
    /// `sop_drop_qpn`). Queues that rules do not tag have their number here.
    pub flow_tag: u32,
    /// The VLAN tag that the device took out of the packet, with priority, with [`VLAN_STRIPPED`](PacketFlags::VLAN_STRIPPED)
    /// (`vlan_info`). Without the flag it is whatever the entry has there.
    pub vlan: u16,
    /// Index of the first stride that the packet fills, with [`STRIDE_INDEX`](PacketFlags::STRIDE_INDEX): in sessions of a format that
    /// has it (`stride_idx`). Entries that are not compressed have no place for it: 0.
    pub stride_index: u16,
    /// What is true of the packet, and which fields are told.
    pub flags: PacketFlags,
    /// Checksum over the packet behind its Ethernet header, in CPU order, with [`CHECK_SUM`](PacketFlags::CHECK_SUM) (`check_sum`, mini:
    /// `checksum`).
    pub check_sum: u16,
    /// How the request ended: a [`WcStatus`], see [`status`](Self::status). Always valid; 0 is success.
    pub raw_status: u8,
    /// The device's own code for an error (`vendor_err_synd`); 0 when there was none.
    pub vendor_err: u8,
}

bitflags! {
    /// What is true of one packet, and which fields of a [`Packet`] are told.
    ///
    /// Bits 10 and 11 are the layer 3 type and bits 12 to 14 the layer 4 type ([`Packet::l3_type`], [`Packet::l4_type`]).
    #[repr(transparent)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PacketFlags: u32 {
        /// Layer 2 is good (`hds_ip_ext`, bit 0).
        const L2_OK = 1 << 0;
        /// The checksum of the layer 3 header is right (`hds_ip_ext`, bit 1). Says nothing of IPv6, which has none.
        const L3_OK = 1 << 1;
        /// The checksum of layer 4 is right (`hds_ip_ext`, bit 2).
        const L4_OK = 1 << 2;
        /// The device took a VLAN tag out of the packet (`l4_hdr_type_etc`, bit 0).
        const VLAN_STRIPPED = 1 << 8;
        /// Both bits of the layer 3 type (`l4_hdr_type_etc`, bits 3:2).
        const L3_TYPE = 0b11 << 10;
        /// The three bits of the layer 4 type (`l4_hdr_type_etc`, bits 6:4).
        const L4_TYPE = 0b111 << 12;
        /// A global routing header was present (`flags_rqpn`, bits 29:28).
        const GRH = 1 << 20;
        /// A successful receive. Clear: the completion of a send, or of a request that failed.
        const RECEIVED = 1 << 24;
        /// `rss_hash` is told.
        const RSS_HASH = 1 << 25;
        /// `check_sum` is told.
        const CHECK_SUM = 1 << 26;
        /// `flow_tag` is told.
        const FLOW_TAG = 1 << 27;
        /// `stride_index` is told.
        const STRIDE_INDEX = 1 << 28;
    }
}

impl Packet {
    /// How the request ended.
    pub const fn status(&self) -> WcStatus {
        WcStatus(self.raw_status as u32)
    }

    /// Kind of the layer 3 header: 0 none that the device knows, 1 IPv6, 2 IPv4.
    pub const fn l3_type(&self) -> u8 {
        (self.flags.bits() >> 10) as u8 & 0b11
    }

    /// Kind of the layer 4 header: 0 none that the device knows, 1 TCP without ACK, 2 UDP, 3 TCP with ACK and no data, 4 TCP with ACK
    /// and data.
    pub const fn l4_type(&self) -> u8 {
        (self.flags.bits() >> 12) as u8 & 0b111
    }

    /// Field by field.
    #[inline(always)]
    fn of(current: &Current<'_>) -> Self {
        let Current { cqe, wr_id, status } = *current;
        let byte_len = current.byte_len().unwrap_or_default();
        let mut packet = Self { wr_id, byte_len, raw_status: status.0 as u8, ..Self::default() };
        if !current.received() {
            packet.vendor_err = if cqe.is_error() { cqe.vendor_err_synd() } else { 0 };
            return packet;
        }
        packet.flags = PacketFlags::RECEIVED | PacketFlags::FLOW_TAG;
        packet.flow_tag = cqe.flow_tag();
        if let Some(stride_index) = cqe.stride_index() {
            packet.flags |= PacketFlags::STRIDE_INDEX;
            packet.stride_index = stride_index;
        }
        if current.has_headers() {
            packet.add_headers(current);
        }
        packet
    }

    #[inline(always)]
    fn add_headers(&mut self, current: &Current<'_>) {
        let cqe = current.cqe;
        let headers = cqe.dword::<{ Cqe64Layout::HDS_IP_EXT.dword() }>();
        let good = Cqe64Layout::HDS_IP_EXT.of(headers) & u32::from(GOOD);
        let types = Cqe64Layout::L4_HDR_TYPE_ETC.of(headers) & u32::from(TYPES);
        self.flags |= PacketFlags::from_bits_retain(good | types << 8);
        self.flags.set(PacketFlags::GRH, cqe.has_grh());
        self.vlan = cqe.vlan_info();
        if let Some(rss_hash) = cqe.rss_hash_result() {
            self.flags |= PacketFlags::RSS_HASH;
            self.rss_hash = rss_hash;
        }
        if let Some(check_sum) = cqe.check_sum() {
            self.flags |= PacketFlags::CHECK_SUM;
            self.check_sum = check_sum;
        }
    }
}

/// Bits of `hds_ip_ext`: the results of the device's checks.
const GOOD: u8 = 0b111;
/// Bits of `l4_hdr_type_etc`: layer 4 type, layer 3 type, VLAN stripped.
const TYPES: u8 = 0b0111_1101;

const _: () = {
    use PacketFlags as F;
    assert!(F::L2_OK.bits() | F::L3_OK.bits() | F::L4_OK.bits() == GOOD as u32);
    assert!(F::VLAN_STRIPPED.bits() | F::L3_TYPE.bits() | F::L4_TYPE.bits() == (TYPES as u32) << 8);
};

/// A plain receive.
static RECIPE: PacketRecipe = {
    const fn at(field: Bits) -> usize {
        field.offset as usize / 8
    }
    /// The byte of the flags that has the bits from `8 * n` on.
    const fn flags(n: usize) -> usize {
        offset_of!(Packet, flags) + if cfg!(target_endian = "little") { n } else { 3 - n }
    }
    const TOLD: u32 = PacketFlags::RECEIVED
        .union(PacketFlags::RSS_HASH)
        .union(PacketFlags::CHECK_SUM)
        .union(PacketFlags::FLOW_TAG)
        .bits();
    let flow_tag = offset_of!(Packet, flow_tag) + if cfg!(target_endian = "little") { 0 } else { 1 };
    PacketRecipe::new()
        .with_number(at(Cqe64Layout::BYTE_CNT), offset_of!(Packet, byte_len), 4)
        .with_number(at(Cqe64Layout::RSS_HASH_RESULT), offset_of!(Packet, rss_hash), 4)
        .with_number(at(Cqe64Layout::SOP_DROP_QPN) + 1, flow_tag, 3)
        .with_number(at(Cqe64Layout::VLAN_INFO), offset_of!(Packet, vlan), 2)
        .with_number(at(Cqe64Layout::CHECK_SUM), offset_of!(Packet, check_sum), 2)
        .with(at(Cqe64Layout::HDS_IP_EXT), flags(0), GOOD)
        .with(at(Cqe64Layout::L4_HDR_TYPE_ETC), flags(1), TYPES)
        .with_any(at(Cqe64Layout::FLAGS_RQPN), flags(2), 0b11 << 4)
        .with_fixed(flags(3), (TOLD >> 24) as u8)
};

// SAFETY: `repr(C)`, 32 bytes, and all of them are integers.
unsafe impl PacketRecord for Packet {}

impl Place<'_> for Packet {
    #[inline(always)]
    fn put(&mut self, current: Current<'_>) {
        *self = Self::of(&current);
    }
}

impl Filled for Packet {
    #[inline(always)]
    fn take<F: CqeFormat>(
        ring: &mut Ring<F>,
        mem: &[AtomicU32],
        cpu: Cpu,
        alike: &Alike<'_>,
        next: InOrder<'_>,
        to: &mut [Self],
    ) -> usize {
        ring.take_packets(mem, cpu, (alike, &RECIPE), next, to)
    }

    #[inline(always)]
    fn wr_id(&mut self) -> &mut u64 {
        &mut self.wr_id
    }
}

impl Cq {
    /// Polls up to `packets.len()` completions as a packet stack wants them, and says how many it wrote, from the front; 0 when none
    /// is there. In all else the same as [`poll_cq`](Self::poll_cq): which completions come, in which order, when errors are told. The
    /// two and [`start_poll`](Self::start_poll) may take turns.
    ///
    /// # Errors
    /// As [`poll_cq`](Self::poll_cq). A request that failed is a [`Packet`] with its [`status`](Packet::status), no error.
    #[inline]
    pub fn poll_packets(&mut self, packets: &mut [Packet]) -> Result<usize, PollError> {
        if self.is_idle() {
            return Ok(0);
        }
        match self.poll_packets_quick(packets) {
            (taken, true) => Ok(taken),
            (taken, false) => self.poll_packets_on(packets, taken),
        }
    }

    fn poll_packets_quick(&mut self, packets: &mut [Packet]) -> (usize, bool) {
        self.poll_quick(packets)
    }

    #[inline(never)]
    fn poll_packets_on(&mut self, packets: &mut [Packet], filled: usize) -> Result<usize, PollError> {
        self.poll_on(packets, filled)
    }
}
