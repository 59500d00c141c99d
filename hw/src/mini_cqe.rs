//! Mini CQEs: what a compressed session says of each of its completions.
//!
//! A session is one *title*, a full entry with all that its completions have in common, and eight bytes for each
//! completion, the *mini CQE*. Where the minis lie is the affair of [`ring`](crate::ring); here is what they hold.
//!
//! # What a mini says, and what not
//!
//! `byte_cnt` is always in the second dword. What the first one holds depends on whose completion it is:
//!
//! * A *requester's* has the counter and the opcode of its send request.
//! * A *responder's* has what the CQ was created for, [`MiniFormat`]; its counter is not there but counts on from the
//!   title's.
//!
//! A field that no mini of the session's form can hold is the title's: queue, flags, time stamp, immediate data,
//! metadata. But the hash and the checksum differ from packet to packet: the title has those of the first packet at
//! most, so a completion whose mini lacks them has none.
//!
//! # Where sources disagree
//!
//! * *The requester's opcode is byte 2.* Linux's header, UCX and older DPDK have it there, and UCX rebuilds byte 56
//!   of the entry from it. Today's DPDK swapped the two bytes, but compresses no send queue.
//! * *The flow tag's top byte is in the top byte of `byte_cnt`*, its low 16 bits in the first two bytes. DPDK calls
//!   the latter `flow_tag_high` because it handles the tag as a little-endian number; put together as it does (the
//!   plain reader and all three vector readers agree), the three bytes are in the order of the full entry.
//! * *The header type is byte 0.* DPDK read byte 1 until 2026. Its bits 7:2 mean what the same bits of the full
//!   entry's byte mean.

use crate::be::Be32;
use crate::cqe::{Cqe64Layout, INDEX_MASK, OpOwn};
use crate::sync::{AtomicU32, Ordering::Relaxed};

crate::prm! {
    /// A mini CQE (`mini_cqe8`); its first dword has several forms.
    pub struct MiniCqe8("mini_cqe8", 8) {
        /// Receive-side-scaling hash of the packet ([`MiniFormat::Hash`]).
        rx_hash_result: 0x00, 32;
        /// Checksum over the packet ([`MiniFormat::Csum`], [`MiniFormat::CsumStridx`]).
        checksum: 0x00, 16;
        /// Low 16 bits of the flow tag ([`MiniFormat::FtagStridx`]).
        flow_tag_high: 0x00, 16;
        /// Header types ([`MiniFormat::L34hStridx`]): bits 7:2 as in the full entry's `l4_hdr_type_etc`.
        hdr_type: 0x00, 8;
        /// Index of the first stride that the packet fills (the formats with a stride index).
        stride_idx: 0x10, 16;
        /// Requester: counter of the work request.
        s_wqe_counter as "s_wqe_info.wqe_counter": 0x00, 16;
        /// Requester: opcode of the work request.
        s_wqe_opcode as "s_wqe_info.s_wqe_opcode": 0x10, 8;
        /// Bytes transferred; with [`MiniFormat::FtagStridx`] the top byte is that of the flow tag.
        byte_cnt: 0x20, 32;
    }
}

/// What a responder's mini CQE holds beside the length, as the CQ was created (PRM `cqc.mini_cqe_res_format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MiniFormat {
    /// The hash.
    #[default]
    Hash = 0,
    /// The checksum.
    Csum = 1,
    /// The flow tag and the stride index.
    FtagStridx = 2,
    /// The checksum and the stride index.
    CsumStridx = 3,
    /// The header types and the stride index.
    L34hStridx = 4,
}

impl MiniFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Hash, Self::Csum, Self::FtagStridx, Self::CsumStridx, Self::L34hStridx];

    /// Low two bits of the format's number: `cqc.mini_cqe_res_format`.
    #[inline]
    pub const fn res_format(self) -> u32 {
        self as u32 & 3
    }

    /// The bits above: `cqc.mini_cqe_res_format_ext`.
    #[inline]
    pub const fn res_format_ext(self) -> u32 {
        self as u32 >> 2
    }
}

/// One completion's own part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mini {
    key: Be32,
    byte_cnt: Be32,
    /// Counter of a responder's work request.
    counter: u16,
    /// `None` for a requester's.
    format: Option<MiniFormat>,
}

impl Mini {
    /// Reads mini number `index` modulo 8 of an array.
    #[inline(always)]
    pub(crate) fn load(array: &[AtomicU32; 16], index: u32, counter: u16, format: Option<MiniFormat>) -> Self {
        let at = 2 * (index as usize & 7);
        let dword = |at: usize| Be32::from_raw(array[at].load(Relaxed));
        Self { key: dword(at), byte_cnt: dword(at + 1), counter, format }
    }

    /// What it has; `None` if it is a requester's.
    #[inline]
    pub(crate) const fn format(self) -> Option<MiniFormat> {
        self.format
    }

    /// The hash, where the mini has one.
    #[inline]
    pub(crate) fn rss_hash(self) -> Option<u32> {
        matches!(self.format, Some(MiniFormat::Hash)).then(|| MiniCqe8::RX_HASH_RESULT.of(self.key))
    }

    /// The checksum, where the mini has one.
    #[inline]
    pub(crate) fn check_sum(self) -> Option<u16> {
        matches!(self.format, Some(MiniFormat::Csum | MiniFormat::CsumStridx))
            .then(|| MiniCqe8::CHECKSUM.of(self.key) as u16)
    }

    /// The stride index, where the mini has one.
    #[inline]
    pub(crate) fn stride_index(self) -> Option<u16> {
        matches!(self.format, Some(MiniFormat::FtagStridx | MiniFormat::CsumStridx | MiniFormat::L34hStridx))
            .then(|| MiniCqe8::STRIDE_IDX.of(self.key) as u16)
    }

    /// Dword `index` of the completion's full entry, from the title's. What neither has is 0.
    #[inline(always)]
    pub(crate) fn merge(self, index: usize, title: Be32, op_own: OpOwn) -> Be32 {
        const HASH: usize = Cqe64Layout::RSS_HASH_RESULT.dword();
        const CHECK_SUM: usize = Cqe64Layout::CHECK_SUM.dword();
        const HEADERS: usize = Cqe64Layout::L4_HDR_TYPE_ETC.dword();
        const BYTE_CNT: usize = Cqe64Layout::BYTE_CNT.dword();
        const QUEUE: usize = Cqe64Layout::SOP_DROP_QPN.dword();
        const TAIL: usize = Cqe64Layout::OP_OWN.dword();
        match index {
            HASH => Be32::new(self.rss_hash().unwrap_or(0)),
            CHECK_SUM => Cqe64Layout::CHECK_SUM.put(title, self.check_sum().unwrap_or(0).into()),
            HEADERS => self.headers(title),
            BYTE_CNT => self.byte_cnt(),
            QUEUE => self.queue(title),
            TAIL => {
                let counted = Cqe64Layout::WQE_COUNTER.put(title, self.wqe_counter().into());
                Cqe64Layout::OP_OWN.put(counted, op_own.into_bits().into())
            }
            _ => title,
        }
    }

    #[inline(always)]
    fn wqe_counter(self) -> u16 {
        if self.format.is_some() { self.counter } else { MiniCqe8::S_WQE_COUNTER.of(self.key) as u16 }
    }

    #[inline(always)]
    fn byte_cnt(self) -> Be32 {
        match self.format {
            Some(MiniFormat::FtagStridx) => Be32::new(self.byte_cnt.get() & INDEX_MASK),
            _ => self.byte_cnt,
        }
    }

    /// Header types, checksum results and the VLAN tag, of which a mini may have the first.
    #[inline(always)]
    fn headers(self, title: Be32) -> Be32 {
        const VLAN: u32 = 0b11;
        if !matches!(self.format, Some(MiniFormat::L34hStridx)) {
            return title;
        }
        let types = MiniCqe8::HDR_TYPE.of(self.key) & !VLAN | Cqe64Layout::L4_HDR_TYPE_ETC.of(title) & VLAN;
        Cqe64Layout::L4_HDR_TYPE_ETC.put(title, types)
    }

    /// Send opcode and queue number or flow tag.
    #[inline(always)]
    fn queue(self, title: Be32) -> Be32 {
        match self.format {
            None => Be32::new(MiniCqe8::S_WQE_OPCODE.of(self.key) << 24 | title.get() & INDEX_MASK),
            Some(MiniFormat::FtagStridx) => {
                let tag = self.byte_cnt.get() >> 24 << 16 | MiniCqe8::FLOW_TAG_HIGH.of(self.key);
                Be32::new(title.get() & !INDEX_MASK | tag)
            }
            Some(_) => title,
        }
    }
}
