//! Completion queue entries (CQE).
//!
//! The declared structures ([`Cqe64Layout`] and its overlays) say where things are; [`CqeRef`] reads an entry in a ring that
//! the device writes, one relaxed load a field, only what is asked for. Which entries may be read is the affair of
//! [`ring`](crate::ring).

use bitfield_struct::bitfield;

use crate::be::Be32;
use crate::mini_cqe::{Mini, MiniFormat};
use crate::prm::{Bits, bitfield_conversions};
use crate::sync::{AtomicU32, Ordering::Relaxed};

mod err;

pub use err::{CqeSyndrome, ErrCqe, SigErrCqe};

/// Queue numbers, user indices and consumer indices are 24 bits wide.
pub const INDEX_MASK: u32 = 0xff_ffff;

crate::prm! {
    /// The 64-byte descriptor of a completion (PRM `cqe64`; the second half of a 128-byte entry).
    ///
    /// Which fields hold something depends on the opcode and the transport; with inlined data the first 32 bytes are data.
    pub struct Cqe64Layout("cqe64", 64) {
        /// Tag matching: the overlay of a list operation's completion.
        tm_cqe: 0x000, TmCqe;
        /// Ethernet: TLS offload state, outer layer 3, tunnelled.
        tls_outer_l3_tunneled: 0x000, 8;
        /// Index of the receive work request, for a striding receive queue.
        wqe_id: 0x010, 16;
        /// Large receive offload: TCP push, abort and duplicate-ack bits.
        lro_tcppsh_abort_dupack: 0x020, 8;
        /// Large receive offload: smallest time to live.
        lro_min_ttl: 0x028, 8;
        /// Large receive offload: TCP window.
        lro_tcp_win: 0x030, 16;
        /// Large receive offload: TCP acknowledge number.
        lro_ack_seq_num: 0x040, 32;
        /// Ethernet: receive-side-scaling hash of the packet.
        rss_hash_result: 0x060, 32;
        /// Ethernet: what the hash was taken over.
        rss_hash_type: 0x080, 8;
        /// Source path bits: the low seven are those of the destination LID.
        ml_path: 0x088, 8;
        /// Ethernet: checksum over the packet behind its Ethernet header.
        check_sum: 0x0a0, 16;
        /// Source LID.
        slid: 0x0b0, 16;
        /// Flags (bits 29:28 not zero: a GRH is present), service level (27:24), source queue pair number (23:0).
        flags_rqpn: 0x0c0, 32;
        /// Checksum results: bit 0 layer 2, bit 1 layer 3, bit 2 layer 4 good.
        hds_ip_ext: 0x0e0, 8;
        /// Header types: layer 4 (bits 6:4), layer 3 (bits 3:2: 1 IPv6, 2 IPv4), bit 0 VLAN stripped.
        l4_hdr_type_etc: 0x0e8, 8;
        /// The stripped VLAN tag.
        vlan_info: 0x0f0, 16;
        /// Shared receive queue number (CQE version 0) or user index of the queue (version 1), low 24 bits.
        srqn_uidx: 0x100, 32;
        /// Immediate data, invalidated key, partition key, or the flow table's metadata.
        imm_inval_pkey: 0x120, 32;
        /// Application that made the entry: 1 tag matching.
        app: 0x140, 8;
        /// What the application did.
        app_op: 0x148, 8;
        /// Application's handle, such as the index in the tag list.
        app_info: 0x150, 16;
        /// Bytes transferred.
        byte_cnt: 0x160, 32;
        /// When the operation completed: device ticks or real time, as the CQ was created.
        timestamp: 0x180, 64;
        /// Opcode of the send work request (31:24), queue number or flow tag (23:0).
        sop_drop_qpn: 0x1c0, 32;
        /// Counter of the work request: its index in the queue, not masked to the queue's size.
        wqe_counter: 0x1e0, 16;
        /// Checksum of the entry; with enhanced compression the lap counter.
        signature: 0x1f0, 8;
        /// Opcode, format, solicited and owner bit, see [`OpOwn`].
        op_own: 0x1f8, 8;
    }
}

crate::prm! {
    /// Overlay of the first bytes of a tag-matching list operation's completion (PRM `tm_cqe`).
    pub struct TmCqe("tm_cqe", 20) {
        /// Bit 31: the operation succeeded.
        success: 0x00, 32;
        /// Phase counter of the hardware's tag list.
        hw_phase_cnt: 0x20, 16;
    }
}

/// Last byte of an entry (`op_own`).
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct OpOwn {
    /// Flips with each lap of the device around the ring.
    pub owner: bool,
    /// The sender asked for an event.
    pub solicited: bool,
    /// What the entry's data area holds.
    #[bits(2)]
    pub format: CqeDataFormat,
    /// What completed.
    #[bits(4)]
    pub opcode: CqeOpcode,
}

bitfield_conversions!(CqeOpcode);
bitfield_conversions!(CqeDataFormat);

crate::prm_values! {
    /// What an entry reports (constants `MLX5_CQE_*`); four bits.
    pub struct CqeOpcode(u8) {
        /// A send work request completed.
        REQ = 0x0;
        /// A receive work request was consumed by an RDMA write with immediate data.
        RESP_WR_IMM = 0x1;
        /// A receive work request was consumed by a send.
        RESP_SEND = 0x2;
        /// A receive work request was consumed by a send with immediate data.
        RESP_SEND_IMM = 0x3;
        /// A receive work request was consumed by a send that invalidated a key.
        RESP_SEND_INV = 0x4;
        /// Last entry of the old ring when a completion queue is resized.
        RESIZE_CQ = 0x5;
        /// No packet: an entry of the application (tag matching).
        NO_PACKET = 0x6;
        /// A data-integrity check failed; names an mkey, not a work request.
        SIG_ERR = 0xc;
        /// A send work request failed.
        REQ_ERR = 0xd;
        /// A receive work request failed.
        RESP_ERR = 0xe;
        /// Not an entry: how a ring is initialised.
        INVALID = 0xf;
    }
}

crate::prm_values! {
    /// Data format of an entry (constants `MLX5_INLINE_DATA32_SEG` and the like); two bits.
    pub struct CqeDataFormat(u8) {
        /// No data in the entry.
        NO_INLINE_DATA = 0x0;
        /// The message is in the first 32 bytes of the descriptor.
        INLINE_DATA32_SEG = 0x1;
        /// The message is in the 64 bytes before the descriptor.
        INLINE_DATA64_SEG = 0x2;
        /// The entry starts a session of compressed entries.
        COMPRESSED = 0x3;
    }
}

/// Reads an entry in the ring, one field at a time.
///
/// Each accessor loads its field afresh; nothing is copied in advance. `op_own` is the byte with which ownership was
/// decided and is not read again. Values come from the device: whoever uses one as an index or a length checks it.
///
/// A completion out of a compressed session reads like the full entry that it stands for ([`mini_cqe`](crate::mini_cqe)
/// says what comes from where): its own part was read when it was taken, the rest is read in the session's title.
#[derive(Clone, Copy)]
pub struct CqeRef<'a> {
    words: &'a [AtomicU32; 16],
    /// The half before the descriptor of a 128-byte entry.
    front: Option<&'a [AtomicU32; 16]>,
    op_own: OpOwn,
    mini: Option<Mini>,
}

impl<'a> CqeRef<'a> {
    /// The entry with these 16 dwords. For an entry in a ring use [`Consumer`](crate::ring::Consumer), which asks whose it
    /// is first.
    #[inline]
    pub fn new(words: &'a [AtomicU32; 16]) -> Self {
        let tail = Be32::from_raw(words[15].load(Relaxed));
        Self::of_slot(words, None, OpOwn::from_bits(tail.get() as u8))
    }

    /// The entry whose last byte was read as `op_own`, with the half before its descriptor if it has one.
    #[inline]
    pub const fn of_slot(words: &'a [AtomicU32; 16], front: Option<&'a [AtomicU32; 16]>, op_own: OpOwn) -> Self {
        Self { words, front, op_own, mini: None }
    }

    /// The completion of a session with this title.
    #[inline]
    pub(crate) const fn of_session(title: &'a [AtomicU32; 16], op_own: OpOwn, mini: Mini) -> Self {
        Self { words: title, front: None, op_own, mini: Some(mini) }
    }

    /// Dword `I` as it lies in memory, or would in the full entry; an index beyond the entry does not compile.
    #[inline]
    pub fn dword<const I: usize>(self) -> Be32 {
        const { assert!(I < 16) };
        self.full(I, &self.words[I])
    }

    /// What the full entry has at dword `index`, of which `word` is the one in memory.
    #[inline(always)]
    fn full(self, index: usize, word: &AtomicU32) -> Be32 {
        let word = Be32::from_raw(word.load(Relaxed));
        self.mini.map_or(word, |mini| mini.merge(index, word, self.op_own))
    }

    /// The full 64-byte entry: what the device would have written without compression, but for the last but one byte
    /// (`signature`), which is the title's. The hash and the checksum that a session does not have are 0, and its stride index,
    /// for which a full entry has no place of its own, is left out.
    pub fn expand(self) -> [Be32; 16] {
        core::array::from_fn(|i| self.full(i, &self.words[i]))
    }

    /// The entry's 16 dwords in memory; for a session's completion those of the title.
    #[inline]
    pub const fn words(self) -> &'a [AtomicU32; 16] {
        self.words
    }

    /// What the session's minis have, if it is a receive's; `None` of others and of full entries.
    #[inline]
    pub fn mini_format(self) -> Option<MiniFormat> {
        self.mini.and_then(Mini::format)
    }

    /// Whether the entry came out of a compressed session.
    #[inline]
    pub const fn is_compressed(self) -> bool {
        self.mini.is_some()
    }

    /// The last byte: opcode, format, solicited, owner.
    #[inline]
    pub const fn op_own(self) -> OpOwn {
        self.op_own
    }

    /// What the entry reports.
    #[inline]
    pub const fn opcode(self) -> CqeOpcode {
        self.op_own.opcode()
    }

    /// What its data area holds.
    #[inline]
    pub const fn format(self) -> CqeDataFormat {
        self.op_own.format()
    }

    /// The dwords in which the message lies, if the entry has it: 8 of the descriptor, or the 16 before it in a 128-byte entry.
    /// `None` for the other formats, and for 64 bytes in an entry that has no room for them. How many of the bytes count
    /// ([`byte_cnt`](Self::byte_cnt), or 8 of an atomic's answer) is for the caller to check.
    #[inline]
    pub fn inline_data(self) -> Option<&'a [AtomicU32]> {
        match self.format() {
            CqeDataFormat::INLINE_DATA32_SEG => self.words.first_chunk::<8>().map(|half| &half[..]),
            CqeDataFormat::INLINE_DATA64_SEG => self.front.map(|front| &front[..]),
            _ => None,
        }
    }

    /// Whether the sender asked for an event.
    #[inline]
    pub const fn solicited(self) -> bool {
        self.op_own.solicited()
    }

    /// The owner bit.
    #[inline]
    pub const fn owner(self) -> bool {
        self.op_own.owner()
    }

    /// Whether the entry reports a failed work request; [`syndrome`](Self::syndrome) then says why.
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(self.opcode(), CqeOpcode::REQ_ERR | CqeOpcode::RESP_ERR)
    }

    /// Whether the entry reports that a work request was carried out, and has no data in it.
    #[inline(always)]
    pub const fn is_ordinary(self) -> bool {
        const FORMAT: u8 = OpOwn::new().with_format(CqeDataFormat(3)).into_bits();
        const FIRST_OTHER: u8 = OpOwn::new().with_opcode(CqeOpcode::RESIZE_CQ).into_bits();
        let op_own = self.op_own.into_bits();
        op_own & FORMAT == CqeDataFormat::NO_INLINE_DATA.0 && op_own < FIRST_OTHER
    }

    /// Counter of the work request, not masked to the queue's size.
    #[inline]
    pub fn wqe_counter(self) -> u16 {
        (self.dword::<15>().get() >> 16) as u16
    }

    /// Checksum of the entry, or its lap counter with enhanced compression.
    #[inline]
    pub fn signature(self) -> u8 {
        Cqe64Layout::SIGNATURE.of(self.dword::<15>()) as u8
    }

    /// Opcode of the send work request ([`WqeOpcode`](crate::wqe::WqeOpcode)); meaningful for requester entries.
    #[inline]
    pub fn sop_opcode(self) -> u8 {
        (self.dword::<14>().get() >> 24) as u8
    }

    /// Queue number; where flow tags are used they are in its place.
    #[inline]
    pub fn qpn(self) -> u32 {
        self.dword::<14>().get() & INDEX_MASK
    }

    /// Flow tag, 24 bits, of a queue whose flows are tagged; the place of [`qpn`](Self::qpn).
    #[inline]
    pub fn flow_tag(self) -> u32 {
        self.qpn()
    }

    /// User index of the queue (CQE version 1) or shared receive queue number (version 0), 24 bits.
    #[inline]
    pub fn srqn_or_uidx(self) -> u32 {
        self.dword::<8>().get() & INDEX_MASK
    }

    /// Bytes transferred.
    #[inline]
    pub fn byte_cnt(self) -> u32 {
        self.dword::<11>().get()
    }

    /// Immediate data, invalidated key or partition key. Verbs hand immediate data over in network order: [`Be32::to_raw`].
    #[inline]
    pub fn imm_inval_pkey(self) -> Be32 {
        self.dword::<9>()
    }

    /// When the operation completed, as the device counts.
    #[inline]
    pub fn timestamp(self) -> u64 {
        ((self.dword::<12>().get() as u64) << 32) | self.dword::<13>().get() as u64
    }

    /// Flags, service level and source queue pair, undivided.
    #[inline]
    pub fn flags_rqpn(self) -> u32 {
        self.dword::<6>().get()
    }

    /// Source queue pair of a datagram, 24 bits.
    #[inline]
    pub fn src_qp(self) -> u32 {
        self.flags_rqpn() & INDEX_MASK
    }

    /// Service level, 4 bits.
    #[inline]
    pub fn sl(self) -> u8 {
        (self.flags_rqpn() >> 24) as u8 & 0xf
    }

    /// Whether a global routing header precedes the data.
    #[inline]
    pub fn has_grh(self) -> bool {
        self.flags_rqpn() >> 28 & 3 != 0
    }

    /// Source LID.
    #[inline]
    pub fn slid(self) -> u16 {
        Cqe64Layout::SLID.of(self.dword::<5>()) as u16
    }

    /// Path bits of the destination LID, 7 bits.
    #[inline]
    pub fn dlid_path_bits(self) -> u8 {
        Cqe64Layout::ML_PATH.of(self.dword::<4>()) as u8 & 0x7f
    }

    /// The stripped VLAN tag of an Ethernet packet.
    #[inline]
    pub fn vlan_info(self) -> u16 {
        Cqe64Layout::VLAN_INFO.of(self.dword::<7>()) as u16
    }

    /// Receive-side-scaling hash of an Ethernet packet; `None` if a session does not have it: only
    /// [`MiniFormat::Hash`] does.
    #[inline]
    pub fn rss_hash_result(self) -> Option<u32> {
        match self.mini {
            Some(mini) => mini.rss_hash(),
            None => Some(self.dword::<3>().get()),
        }
    }

    /// Checksum over an Ethernet packet behind its Ethernet header; `None` if a session does not have it: only the
    /// [`MiniFormat`]s with a checksum do.
    #[inline]
    pub fn check_sum(self) -> Option<u16> {
        match self.mini {
            Some(mini) => mini.check_sum(),
            None => Some(Cqe64Layout::CHECK_SUM.of(self.dword::<5>()) as u16),
        }
    }

    /// Index of the first stride that the packet fills, in a session of a
    /// [`MiniFormat`] with it; `None` for a full entry, which has it in place of
    /// [`wqe_counter`](Self::wqe_counter) when its queue has strides.
    #[inline]
    pub fn stride_index(self) -> Option<u16> {
        self.mini.and_then(Mini::stride_index)
    }

    /// Kind of the layer 3 header, 2 bits: 1 IPv6, 2 IPv4.
    #[inline]
    pub fn l3_hdr_type(self) -> u8 {
        (Cqe64Layout::L4_HDR_TYPE_ETC.of(self.dword::<7>()) >> 2) as u8 & 3
    }

    /// Kind of the layer 4 header, 3 bits: 0 none, 1 TCP without ACK, 2 UDP, 3 TCP with ACK and no data, 4 TCP with ACK and data.
    #[inline]
    pub fn l4_hdr_type(self) -> u8 {
        (Cqe64Layout::L4_HDR_TYPE_ETC.of(self.dword::<7>()) >> 4) as u8 & 7
    }

    /// Whether the device stripped a VLAN tag, which [`vlan_info`](Self::vlan_info) then is.
    #[inline]
    pub fn vlan_stripped(self) -> bool {
        Cqe64Layout::L4_HDR_TYPE_ETC.of(self.dword::<7>()) & 1 != 0
    }

    /// Whether the device found the IPv4 header's and the layer 4 checksum right.
    #[inline]
    pub fn ip_csum_ok(self) -> bool {
        let w = self.dword::<7>();
        let both = Cqe64Layout::HDS_IP_EXT.of(w) & 0b110 == 0b110;
        both && Cqe64Layout::L4_HDR_TYPE_ETC.of(w) >> 2 & 3 == 2
    }

    /// Why a work request failed (error entries).
    #[inline]
    pub fn syndrome(self) -> CqeSyndrome {
        CqeSyndrome(ErrCqe::SYNDROME.of(self.dword::<13>()) as u8)
    }

    /// The vendor's finer code (error entries); verbs' `vendor_err`.
    #[inline]
    pub fn vendor_err_synd(self) -> u8 {
        ErrCqe::VENDOR_ERR_SYND.of(self.dword::<13>()) as u8
    }

    /// The hardware's own code (error entries), which support asks for.
    #[inline]
    pub fn hw_err_synd(self) -> u8 {
        ErrCqe::HW_ERR_SYND.of(self.dword::<13>()) as u8
    }

    /// Which unit set [`hw_err_synd`](Self::hw_err_synd): the upper four bits of its byte.
    #[inline]
    pub fn hw_synd_type(self) -> u8 {
        (ErrCqe::HW_SYND_TYPE.of(self.dword::<13>()) >> 4) as u8
    }

    /// A field of the descriptor or of an overlay, of at most 32 bits, for decoders that go by [`Bits`]; 0 beyond the entry.
    pub fn field(self, bits: Bits) -> u32 {
        self.words.get(bits.dword()).map_or(0, |word| bits.of(self.full(bits.dword(), word)))
    }
}

impl core::fmt::Debug for CqeRef<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut s = f.debug_struct("Cqe");
        s.field("opcode", &self.opcode()).field("format", &self.format()).field("solicited", &self.solicited());
        s.field("owner", &self.owner()).field("srqn_or_uidx", &self.srqn_or_uidx());
        s.field("sop_opcode", &self.sop_opcode()).field("qpn", &self.qpn()).field("wqe_counter", &self.wqe_counter());
        if self.is_error() {
            s.field("syndrome", &self.syndrome()).field("vendor_err_synd", &self.vendor_err_synd());
        } else {
            s.field("byte_cnt", &self.byte_cnt()).field("imm_inval_pkey", &self.imm_inval_pkey());
        }
        s.finish()
    }
}
