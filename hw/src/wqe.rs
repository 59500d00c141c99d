//! Work queue entries (WQE): the segments that a posted work request is made of.
//!
//! A send WQE is a control segment, then what the opcode needs (remote address, atomic operands), then data segments or
//! inlined data; its length is counted in 16-byte segments (`ds`), its place in the queue in basic blocks of 64 bytes.
//! A receive WQE is data segments only. The builders give each segment as four dwords ready to be stored.

use bitfield_struct::bitfield;

use crate::be::Be32;
use crate::cqe::INDEX_MASK;
use crate::prm::bitfield_conversions;

/// Size in bytes of a basic block, the unit of a send queue.
pub const BASIC_BLOCK: usize = 64;
/// Size in bytes of a segment, the unit of `ds`.
pub const SEGMENT: usize = 16;
/// Largest number of segments in one WQE: `ds` has six bits.
pub const MAX_DS: u8 = 63;
/// Largest number of basic blocks in one WQE.
pub const MAX_BASIC_BLOCKS: usize = 16;
/// The lkey that ends a scatter list shorter than the receive WQE (`MLX5_INVALID_LKEY`).
pub const INVALID_LKEY: u32 = 0x100;
/// Bit of a byte count that says the data itself follows (`MLX5_INLINE_SEG`).
pub const INLINE_SEG: u32 = 0x8000_0000;
/// Largest length of inlined data (`MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK`).
pub const INLINE_MAX: u32 = 0x3ff;

crate::prm_values! {
    /// Opcode of a send WQE (constants `MLX5_OPCODE_*`).
    pub struct WqeOpcode(u8) {
        /// Nothing; completes in order.
        NOP = 0x00;
        /// Send that invalidates a key of the peer.
        SEND_INVAL = 0x01;
        /// RDMA write.
        RDMA_WRITE = 0x08;
        /// RDMA write that also consumes a receive and carries immediate data.
        RDMA_WRITE_IMM = 0x09;
        /// Send.
        SEND = 0x0a;
        /// Send with immediate data.
        SEND_IMM = 0x0b;
        /// Segmented TCP send.
        TSO = 0x0e;
        /// Waits for another queue.
        WAIT = 0x0f;
        /// RDMA read.
        RDMA_READ = 0x10;
        /// Atomic compare and swap, 64 bits.
        ATOMIC_CS = 0x11;
        /// Atomic fetch and add, 64 bits.
        ATOMIC_FA = 0x12;
        /// Atomic compare and swap under a mask.
        ATOMIC_MASKED_CS = 0x14;
        /// Atomic fetch and add under a mask.
        ATOMIC_MASKED_FA = 0x15;
        /// Lets another queue go on.
        SEND_EN = 0x17;
        /// Binds a memory window.
        BIND_MW = 0x18;
        /// Fast registration, old form.
        FMR = 0x19;
        /// Invalidates a local key.
        LOCAL_INVAL = 0x1b;
        /// Configuration command.
        CONFIG_CMD = 0x1f;
        /// Sets a data-integrity state.
        SET_PSV = 0x20;
        /// Reads a data-integrity state.
        GET_PSV = 0x21;
        /// Checks a data-integrity state.
        CHECK_PSV = 0x22;
        /// Dumps data for TLS offload.
        DUMP = 0x23;
        /// User-mode registration of memory.
        UMR = 0x25;
        /// Reads a remote data-integrity state.
        RGET_PSV = 0x26;
        /// Checks a remote data-integrity state.
        RCHECK_PSV = 0x27;
        /// Tag-matching list operation.
        TAG_MATCHING = 0x28;
        /// Several packets in one Ethernet WQE.
        ENHANCED_MPSW = 0x29;
        /// Writes a flow-steering table.
        FLOW_TBL_ACCESS = 0x2c;
        /// Uses an advanced steering operation's object.
        ACCESS_ASO = 0x2d;
        /// Memory-to-memory operation.
        MMO = 0x2f;
    }
}

crate::prm! {
    /// Control segment, the first of a send WQE (PRM `wqe_ctrl_seg`).
    pub struct CtrlSeg("wqe_ctrl_seg", 16) {
        /// Modifier, index and opcode, see [`OpmodIdxOpcode`].
        opmod_idx_opcode: 0x00, 32;
        /// Queue number and length, see [`QpnDs`].
        qpn_ds: 0x20, 32;
        /// Checksum of the WQE, if the queue uses one.
        signature: 0x40, 8;
        /// Stream of a DC initiator.
        dci_stream_channel_id: 0x48, 16;
        /// Fence mode, completion mode, solicited, see [`FmCeSe`].
        fm_ce_se: 0x58, 8;
        /// Immediate data, key to invalidate, mkey of a registration, or TIS number.
        imm: 0x60, 32;
    }
}

crate::prm! {
    /// Remote address segment (PRM `wqe_raddr_seg`).
    pub struct RaddrSeg("wqe_raddr_seg", 16) {
        /// Address in the peer's region.
        raddr: 0x00, 64;
        /// The peer's key.
        rkey: 0x40, 32;
    }
}

crate::prm! {
    /// Data segment: a piece of registered memory (PRM `wqe_data_seg`).
    pub struct DataSeg("wqe_data_seg", 16) {
        /// Length in bytes, 31 bits; 0 stands for 2 GiB. [`INLINE_SEG`] set: data follows instead.
        byte_count: 0x00, 32;
        /// Local key of the region; [`INVALID_LKEY`] ends a list.
        lkey: 0x20, 32;
        /// Address in the region.
        addr: 0x40, 64;
    }
}

crate::prm! {
    /// Header of inlined data, which follows it (PRM `wqe_inline_seg`).
    pub struct InlineSeg("wqe_inline_seg", 4) {
        /// [`INLINE_SEG`] and the length in bytes, at most [`INLINE_MAX`].
        byte_count: 0x00, 32;
    }
}

crate::prm! {
    /// Operands of a 64-bit atomic (PRM `wqe_atomic_seg`).
    pub struct AtomicSeg("wqe_atomic_seg", 16) {
        /// Value to swap in, or to add.
        swap_add: 0x00, 64;
        /// Value to compare with.
        compare: 0x40, 64;
    }
}

crate::prm! {
    /// Next segment, the first of an entry of a shared receive queue (PRM `wqe_srq_next_seg`).
    pub struct SrqNextSeg("wqe_srq_next_seg", 16) {
        /// Place of the entry that is posted after this one.
        next_wqe_index: 0x10, 16;
        /// Checksum of the entry, if the queue uses one.
        signature: 0x20, 8;
    }
}

crate::prm! {
    /// Address vector: where a datagram goes and how, the whole of a datagram segment (`wqe_datagram_seg`; C structure `mlx5_wqe_av`).
    pub struct Av("wqe_av", 48) {
        /// Q_Key in the upper 32 bits; the key of dynamically connected transport.
        key: 0x00, 64;
        /// Number of the destination's queue pair, 24 bits, and [`EXTENDED_AV`].
        dqp_dct: 0x40, 32;
        /// Limit of the rate above the service level, four bits each; on Ethernet the priority is in the upper three bits of the lower.
        stat_rate_sl: 0x60, 8;
        /// Force-loopback bit above the path bits of the source LID.
        fl_mlid: 0x68, 8;
        /// LID of the destination; on Ethernet the UDP source port.
        rlid: 0x70, 16;
        /// MAC address of the destination, on Ethernet.
        rmac: 0xa0, [8; 6];
        /// Traffic class.
        tclass: 0xd0, 8;
        /// Hops that the packet may take.
        hop_limit: 0xd8, 8;
        /// [`AV_GRH`], index of the source address (eight bits from bit 20 up), flow label (20 bits).
        grh_gid_fl: 0xe0, 32;
        /// Address (GID) of the destination.
        rgid: 0x100, [8; 16];
    }
}

/// Bit of `dqp_dct`: the address vector is whole (`MLX5_EXTENDED_UD_AV`).
pub const EXTENDED_AV: u32 = 0x8000_0000;
/// Bit of `grh_gid_fl`: the packet has a global route header. Reserved on Ethernet, where each has one.
pub const AV_GRH: u32 = 1 << 30;
/// Bit of `fl_mlid`: the packet comes back to the port that it leaves by. InfiniBand only.
pub const AV_FORCE_LOOPBACK: u32 = 0x80;
/// Dwords of a datagram segment.
pub const AV_WORDS: usize = 12;

/// First dword of the control segment.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct OpmodIdxOpcode {
    /// The opcode, see [`WqeOpcode`].
    pub opcode: u8,
    /// Counter of the WQE's first basic block, not masked to the queue's size; comes back as `wqe_counter`.
    pub wqe_index: u16,
    /// Modifier of the opcode.
    pub opc_mod: u8,
}

/// Second dword of the control segment.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct QpnDs {
    /// Length of the WQE in segments.
    #[bits(6)]
    pub ds: u8,
    #[bits(2)]
    __: u8,
    /// Number of the queue.
    #[bits(24)]
    pub qpn: u32,
}

/// Fence mode, completion mode, solicited: byte 11 of the control segment.
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct FmCeSe {
    __: bool,
    /// Asks the peer for a solicited event (`MLX5_WQE_CTRL_SOLICITED`).
    pub solicited: bool,
    /// When a completion is written, see [`CompletionMode`].
    #[bits(2)]
    pub ce: CompletionMode,
    __: bool,
    /// What the WQE waits for, see [`FenceMode`].
    #[bits(3)]
    pub fm: FenceMode,
}

impl FmCeSe {
    /// What verbs' send flags ask for: a completion, an event at the peer, waiting for earlier reads and atomics.
    #[inline]
    pub const fn of_flags(signalled: bool, solicited: bool, fence: bool) -> Self {
        let ce = if signalled { CompletionMode::ALWAYS } else { CompletionMode::ONLY_ERR };
        let fm = if fence { FenceMode::SMALL_AND_FENCE } else { FenceMode::NONE };
        Self::from_bits(fm.0 << Self::FM_OFFSET | ce.0 << Self::CE_OFFSET | (solicited as u8) << Self::SOLICITED_OFFSET)
    }
}

crate::prm_values! {
    /// When a send WQE writes a completion (constants `MLX5_COMP_*`); two bits.
    pub struct CompletionMode(u8) {
        /// Only for an error: an unsignalled work request.
        ONLY_ERR = 0x0;
        /// Only for the first error.
        ONLY_FIRST_ERR = 0x1;
        /// Always (`MLX5_WQE_CTRL_CQ_UPDATE`): a signalled work request.
        ALWAYS = 0x2;
        /// Always, and an event.
        CQE_AND_EQE = 0x3;
    }
}

crate::prm_values! {
    /// What a send WQE waits for before it starts (constants `MLX5_FENCE_MODE_*`, here shifted down); three bits.
    pub struct FenceMode(u8) {
        /// Nothing.
        NONE = 0x0;
        /// Earlier local invalidations and registrations.
        INITIATOR_SMALL = 0x1;
        /// Earlier RDMA reads and atomics.
        FENCE = 0x2;
        /// All earlier WQEs.
        STRONG_ORDERING = 0x3;
        /// Earlier RDMA reads, atomics, invalidations and registrations: what verbs' fence flag asks for.
        SMALL_AND_FENCE = 0x4;
    }
}

bitfield_conversions!(CompletionMode);
bitfield_conversions!(FenceMode);

/// Control segment of a WQE of `ds` segments (at most [`MAX_DS`]; cut to six bits) whose first basic block has counter
/// `wqe_index`, in queue `qpn` (24 bits).
///
/// `imm` is immediate data as verbs hand it over (network order) or a key to invalidate.
#[inline]
pub const fn ctrl(opcode: WqeOpcode, wqe_index: u16, qpn: u32, ds: u8, flags: FmCeSe, imm: Be32) -> [Be32; 4] {
    let first = (wqe_index as u32) << OpmodIdxOpcode::WQE_INDEX_OFFSET | opcode.0 as u32;
    let second = (qpn & INDEX_MASK) << QpnDs::QPN_OFFSET | (ds & MAX_DS) as u32;
    [Be32::new(first), Be32::new(second), Be32::new(flags.into_bits() as u32), imm]
}

/// Remote address segment.
#[inline]
pub const fn raddr(raddr: u64, rkey: u32) -> [Be32; 4] {
    [high(raddr), low(raddr), Be32::new(rkey), Be32::ZERO]
}

/// Data segment for `byte_count` bytes at `addr`. The device reads 0 as 2 GiB: leave empty pieces out. Bit 31 is cut off.
#[inline]
pub const fn data(byte_count: u32, lkey: u32, addr: u64) -> [Be32; 4] {
    [Be32::new(byte_count & !INLINE_SEG), Be32::new(lkey), high(addr), low(addr)]
}

/// Next segment of a shared receive queue's entry: the entry at place `next` is posted after it.
#[inline]
pub const fn srq_next(next: u16) -> [Be32; 4] {
    [Be32::new(next as u32), Be32::ZERO, Be32::ZERO, Be32::ZERO]
}

/// The data segment that ends a receive WQE's list when it is shorter than the WQE.
#[inline]
pub const fn end_of_list() -> [Be32; 4] {
    [Be32::ZERO, Be32::new(INVALID_LKEY), Be32::ZERO, Be32::ZERO]
}

/// Header of `byte_count` bytes of inlined data (at most [`INLINE_MAX`]; cut to its ten bits).
#[inline]
pub const fn inline_header(byte_count: u32) -> Be32 {
    Be32::new(INLINE_SEG | (byte_count & INLINE_MAX))
}

/// Number of segments that `byte_count` bytes of inlined data take with their header.
#[inline]
pub const fn inline_segments(byte_count: usize) -> usize {
    (byte_count + 4).div_ceil(SEGMENT)
}

/// Operands of a 64-bit atomic.
#[inline]
pub const fn atomic(swap_add: u64, compare: u64) -> [Be32; 4] {
    [high(swap_add), low(swap_add), high(compare), low(compare)]
}

/// Datagram segment: an address vector with the destination's queue pair, 24 bits, and Q_Key put in.
#[inline]
pub const fn datagram(av: &Av, qpn: u32, q_key: u32) -> [Be32; AV_WORDS] {
    let mut out = av.0;
    out[0] = Be32::new(q_key);
    out[2] = Be32::new(EXTENDED_AV | qpn & INDEX_MASK);
    out
}

/// Number of basic blocks of a WQE of `ds` segments.
#[inline]
pub const fn basic_blocks(ds: usize) -> usize {
    (ds * SEGMENT).div_ceil(BASIC_BLOCK)
}

const fn high(value: u64) -> Be32 {
    Be32::new((value >> 32) as u32)
}

const fn low(value: u64) -> Be32 {
    Be32::new(value as u32)
}
