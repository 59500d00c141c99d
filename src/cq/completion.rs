//! What a completion says: decoded when it is asked.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bitflags::bitflags;
use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, CqeRef, INDEX_MASK, OpOwn};
use mlx5_hw::wqe::WqeOpcode;

use super::{TmInfo, Wc, WcOpcode, WcStatus, tag_matching};
use crate::clock::Lines;
use crate::flags::{WcFlags, WcResultFlags};

/// An entry with what is always decoded.
#[derive(Clone, Copy)]
pub(super) struct Current<'m> {
    pub(super) cqe: CqeRef<'m>,
    pub(super) wr_id: u64,
    pub(super) status: WcStatus,
}

/// The completion opcode of a send request.
#[inline(always)]
pub(super) fn send_opcode(cqe: CqeRef<'_>) -> Option<WcOpcode> {
    match WqeOpcode(cqe.sop_opcode()) {
        WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL => Some(WcOpcode::SEND),
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => Some(WcOpcode::RDMA_WRITE),
        WqeOpcode::RDMA_READ => Some(WcOpcode::RDMA_READ),
        WqeOpcode::ATOMIC_CS => Some(WcOpcode::COMP_SWAP),
        WqeOpcode::ATOMIC_FA => Some(WcOpcode::FETCH_ADD),
        _ => None,
    }
}

/// What the word for immediate data and the like holds.
#[inline(always)]
fn word_flags(cqe: CqeRef<'_>) -> WcResultFlags {
    match cqe.opcode() {
        CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM => WcResultFlags::WITH_IMM,
        CqeOpcode::RESP_SEND_INV => WcResultFlags::WITH_INV,
        _ => WcResultFlags::empty(),
    }
}

/// What is true of a receive whose entry tells of the packet's headers.
#[inline(always)]
pub(super) fn receive_flags(cqe: CqeRef<'_>) -> WcResultFlags {
    let when = |is: bool, flag: WcResultFlags| WcResultFlags::from_bits_retain(flag.bits() * u32::from(is));
    word_flags(cqe) | when(cqe.has_grh(), WcResultFlags::GRH) | when(cqe.ip_csum_ok(), WcResultFlags::IP_CSUM_OK)
}

/// The device's real-time format, seconds above nanoseconds, as nanoseconds.
fn real_time_ns(timestamp: u64) -> u64 {
    (timestamp >> 32) * 1_000_000_000 + (timestamp & 0xffff_ffff)
}

bitflags! {
    /// What is known of a whole entry that reports a success, and has no data: then fields are read without looking at its kind.
    #[derive(Clone, Copy, Default)]
    struct Plain: u8 {
        /// It is such an entry.
        const ENTRY = 1 << 0;
        /// Its length is asked for and there.
        const LENGTH = 1 << 1;
        /// Its immediate data is asked for and there.
        const IMM = 1 << 2;
        /// Its queue number is asked for.
        const QPN = 1 << 3;
        /// It tells of the packet's headers.
        const HEADERS = 1 << 4;
    }
}

/// What completions have in common as long as their entries are alike: all but the entry itself and the request's name.
pub(super) struct Told<'m> {
    plain: Plain,
    op_own: OpOwn,
    status: WcStatus,
    opcode: WcOpcode,
    flags: WcResultFlags,
    /// The bits of the dwords [`FLAGS`] and [`EXT`] of an entry by which `flags` is right.
    headers: (u32, u32),
    /// The one completion, if its entry is not a plain one.
    unusual: Option<Current<'m>>,
    asked: WcFlags,
    /// For time stamps that are not real time already.
    lines: Option<Lines>,
}

const FLAGS: usize = Cqe64Layout::FLAGS_RQPN.dword();
const EXT: usize = Cqe64Layout::HDS_IP_EXT.dword();

/// The bits of the two dwords that [`receive_flags`] looks at.
const GRH: u32 = Be32::new(3 << 28).to_raw();
const CSUM_OK: u32 = Be32::new(0b110 << 24 | 0b1100 << 16).to_raw();

impl<'m> Told<'m> {
    /// Of none yet.
    #[inline(always)]
    pub(super) const fn new(asked: WcFlags, lines: Option<Lines>) -> Self {
        let (op_own, status, opcode, flags) = (OpOwn::new(), WcStatus::SUCCESS, WcOpcode(0), WcResultFlags::empty());
        Self { plain: Plain::empty(), op_own, status, opcode, flags, headers: (0, 0), unusual: None, asked, lines }
    }

    /// Of the one completion, whatever it is.
    pub(super) fn of_one(&mut self, current: Current<'m>) {
        (self.plain, self.status, self.unusual) = (Plain::empty(), current.status, Some(current));
    }

    /// Of this one, a whole entry, and all that are like it: of the same opcode, without data, and nothing for tag matching.
    pub(super) fn of_all_like(&mut self, first: Current<'m>) {
        let Some(opcode) = first.opcode() else { return self.of_one(first) };
        let when = |is: bool, flag: WcFlags, plain: Plain| if is && self.asked(flag) { plain } else { Plain::empty() };
        let flags = first.wc_flags();
        self.plain = Plain::ENTRY
            | when(first.byte_len().is_some(), WcFlags::BYTE_LEN, Plain::LENGTH)
            | when(flags.contains(WcResultFlags::WITH_IMM), WcFlags::IMM, Plain::IMM)
            | when(true, WcFlags::QP_NUM, Plain::QPN)
            | when(first.has_headers(), WcFlags::empty(), Plain::HEADERS);
        (self.op_own, self.status, self.opcode, self.flags) = (first.cqe.op_own(), first.status, opcode, flags);
        self.headers = (first.cqe.dword::<FLAGS>().to_raw() & GRH, first.cqe.dword::<EXT>().to_raw() & CSUM_OK);
        self.unusual = None;
    }

    fn asked(&self, flag: WcFlags) -> bool {
        self.asked.contains(flag)
    }
}

/// A completion, lent by a [`Poller`](super::Poller) until it moves on.
///
/// Fields are decoded when they are read. `None` says that the field was not asked for when the CQ was created, or is not
/// valid for this opcode or status.
#[derive(Clone, Copy)]
pub struct Completion<'p> {
    words: &'p [AtomicU32; 16],
    wr_id: u64,
    told: &'p Told<'p>,
}

impl<'p> Completion<'p> {
    #[inline(always)]
    pub(super) const fn new(words: &'p [AtomicU32; 16], wr_id: u64, told: &'p Told<'p>) -> Self {
        Self { words, wr_id, told }
    }

    /// The entry with what is always decoded.
    fn current(&self) -> Current<'p> {
        let plain = || Current {
            cqe: CqeRef::of_slot(self.words, None, self.told.op_own),
            wr_id: self.wr_id,
            status: self.told.status,
        };
        self.told.unusual.unwrap_or_else(plain)
    }

    /// Dword `I` of a plain entry.
    #[inline(always)]
    fn dword<const I: usize>(&self) -> Be32 {
        const { assert!(I < 16) };
        Be32::from_raw(self.words[I].load(Relaxed))
    }

    /// Dword `I` of a plain entry that has this field, or what another one has.
    #[inline(always)]
    fn field<const I: usize>(
        &self,
        field: Plain,
        read: impl FnOnce(Be32) -> u32,
        unusual: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        if self.is(field) {
            Some(read(self.dword::<I>()))
        } else if self.is(Plain::ENTRY) {
            None
        } else {
            unusual()
        }
    }

    #[inline(always)]
    fn is(&self, plain: Plain) -> bool {
        self.told.plain.contains(plain)
    }

    /// The caller's name for the request.
    #[inline(always)]
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// How the request ended.
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        self.told.status
    }

    /// What the request was (`ibv_wc_read_opcode`); `None` when it failed.
    #[inline(always)]
    pub fn opcode(&self) -> Option<WcOpcode> {
        if self.is(Plain::ENTRY) { Some(self.told.opcode) } else { self.unusual_opcode() }
    }

    #[cold]
    #[inline(never)]
    fn unusual_opcode(self) -> Option<WcOpcode> {
        let current = self.current();
        let matched = if current.was_sent_to() { tag_matching::opcode(current.cqe) } else { None };
        matched.or_else(|| current.opcode())
    }

    /// The device's own code for an error (`ibv_wc_read_vendor_err`), 8 bits; `None` when there was none.
    pub fn vendor_err(&self) -> Option<u32> {
        self.of_error().map(|cqe| cqe.vendor_err_synd().into())
    }

    /// The hardware's own code for an error, which the vendor's support asks for; `None` when there was none.
    pub fn hw_err_synd(&self) -> Option<u8> {
        self.of_error().map(CqeRef::hw_err_synd)
    }

    /// Which unit of the hardware set [`hw_err_synd`](Self::hw_err_synd), 4 bits; `None` when there was no error.
    pub fn hw_synd_type(&self) -> Option<u8> {
        self.of_error().map(CqeRef::hw_synd_type)
    }

    /// Bytes transferred (`ibv_wc_read_byte_len`): of receives, RDMA reads and atomics.
    #[inline(always)]
    pub fn byte_len(&self) -> Option<u32> {
        const BYTE_CNT: usize = Cqe64Layout::BYTE_CNT.dword();
        self.field::<BYTE_CNT>(Plain::LENGTH, Be32::get, || self.unusual_byte_len())
    }

    #[cold]
    #[inline(never)]
    fn unusual_byte_len(self) -> Option<u32> {
        if self.asked(WcFlags::BYTE_LEN) { self.current().byte_len() } else { None }
    }

    /// Immediate data in network byte order (`ibv_wc_read_imm_data`): of receives that got some.
    #[inline(always)]
    pub fn imm_data(&self) -> Option<u32> {
        const WORD: usize = Cqe64Layout::IMM_INVAL_PKEY.dword();
        self.field::<WORD>(Plain::IMM, Be32::to_raw, || self.unusual_imm_data())
    }

    #[cold]
    #[inline(never)]
    fn unusual_imm_data(self) -> Option<u32> {
        let valid = self.asked(WcFlags::IMM) && self.wc_flags().contains(WcResultFlags::WITH_IMM);
        valid.then(|| self.current().cqe.imm_inval_pkey().to_raw())
    }

    /// The key that a send with invalidate made invalid (`ibv_wc_read_invalidated_rkey`), in CPU byte order.
    pub fn invalidated_rkey(&self) -> Option<u32> {
        let valid = self.asked(WcFlags::IMM) && self.wc_flags().contains(WcResultFlags::WITH_INV);
        valid.then(|| self.current().cqe.imm_inval_pkey().get())
    }

    /// Number of the local queue pair (`ibv_wc_read_qp_num`), 24 bits; of failed requests too.
    #[inline(always)]
    pub fn qp_num(&self) -> Option<u32> {
        const QPN: usize = Cqe64Layout::SOP_DROP_QPN.dword();
        self.field::<QPN>(Plain::QPN, |dword| dword.get() & INDEX_MASK, || self.unusual_qp_num())
    }

    #[cold]
    #[inline(never)]
    fn unusual_qp_num(self) -> Option<u32> {
        self.asked(WcFlags::QP_NUM).then(|| self.current().cqe.qpn())
    }

    /// Number of the sender's queue pair (`ibv_wc_read_src_qp`), 24 bits: of receives; only datagrams carry it.
    pub fn src_qp(&self) -> Option<u32> {
        self.of_headers(WcFlags::SRC_QP).then(|| self.current().cqe.src_qp())
    }

    /// P_Key index (`ibv_wc_read_pkey_index`): of receives, which need not be asked for. What mlx5 delivers are the low 16 bits
    /// of the word that else holds immediate data or the invalidated key: `None` with one of these.
    pub fn pkey_index(&self) -> Option<u16> {
        let other = WcResultFlags::WITH_IMM | WcResultFlags::WITH_INV;
        let current = self.current();
        let valid = current.received() && !current.wc_flags().intersects(other);
        valid.then(|| current.cqe.imm_inval_pkey().get() as u16)
    }

    /// Source LID (`ibv_wc_read_slid`), 16 bits: of receives.
    pub fn slid(&self) -> Option<u32> {
        self.of_headers(WcFlags::SLID).then(|| self.current().cqe.slid().into())
    }

    /// Service level (`ibv_wc_read_sl`), 4 bits: of receives. On Ethernet these bits hold the type of the packet.
    pub fn sl(&self) -> Option<u8> {
        self.of_headers(WcFlags::SL).then(|| self.current().cqe.sl())
    }

    /// Path bits of the destination LID (`ibv_wc_read_dlid_path_bits`), 7 bits: of receives.
    pub fn dlid_path_bits(&self) -> Option<u8> {
        self.of_headers(WcFlags::DLID_PATH_BITS).then(|| self.current().cqe.dlid_path_bits())
    }

    /// When the request ended, in ticks of the device's clock (`ibv_wc_read_completion_ts`); failed ones carry no time.
    pub fn completion_ts(&self) -> Option<u64> {
        let valid = self.asked(WcFlags::COMPLETION_TIMESTAMP) && self.current().succeeded();
        valid.then(|| self.current().cqe.timestamp())
    }

    /// When the request ended, in nanoseconds since 1970 (`ibv_wc_read_completion_wallclock_ns`); failed ones carry no time. By
    /// the device's real-time clock, or by the platform's time of day where the device has none or ticks are asked for too.
    pub fn completion_wallclock_ns(&self) -> Option<u64> {
        let valid = self.asked(WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK) && self.current().succeeded();
        let timestamp = valid.then(|| self.current().cqe.timestamp())?;
        Some(self.told.lines.as_ref().map_or_else(|| real_time_ns(timestamp), |lines| lines.at(timestamp)))
    }

    /// The VLAN tag that the device took out of the packet (`ibv_wc_read_cvlan`), with priority: of receives of Ethernet
    /// queues, when there was one.
    pub fn cvlan(&self) -> Option<u16> {
        let valid = self.of_headers(WcFlags::CVLAN) && self.current().cqe.vlan_stripped();
        valid.then(|| self.current().cqe.vlan_info())
    }

    /// The tag of the steering rule that the packet met (`ibv_wc_read_flow_tag`), 24 bits: of receives. Queues that rules
    /// do not tag have their number here.
    pub fn flow_tag(&self) -> Option<u32> {
        (self.asked(WcFlags::FLOW_TAG) && self.current().received()).then(|| self.current().cqe.flow_tag())
    }

    /// The message's tag (`ibv_wc_read_tm_info`): of messages that went through a tag list.
    pub fn tm_info(&self) -> Option<TmInfo> {
        let valid = self.asked(WcFlags::TM_INFO) && self.current().was_sent_to();
        if valid { tag_matching::info(self.current().cqe) } else { None }
    }

    /// What is true of this completion (`ibv_wc_read_wc_flags`); nothing when it failed.
    #[inline(always)]
    pub fn wc_flags(&self) -> WcResultFlags {
        let like = |dword: Be32, bits: u32, expected: u32| dword.to_raw() & bits == expected;
        if self.is(Plain::HEADERS) {
            let (flags, ext) = self.told.headers;
            if like(self.dword::<FLAGS>(), GRH, flags) && like(self.dword::<EXT>(), CSUM_OK, ext) {
                return self.told.flags;
            }
        } else if self.is(Plain::ENTRY) {
            return self.told.flags;
        }
        self.unusual_wc_flags()
    }

    #[cold]
    #[inline(never)]
    fn unusual_wc_flags(self) -> WcResultFlags {
        let current = self.current();
        let matched = current.was_sent_to().then(|| tag_matching::flags(current.cqe));
        current.wc_flags() | matched.unwrap_or_default()
    }

    /// All of it as `ibv_poll_cq` gives it, whatever was asked for. Tag matching does not show in it.
    pub fn to_wc(&self) -> Wc {
        self.current().wc()
    }

    fn asked(&self, flag: WcFlags) -> bool {
        self.told.asked(flag)
    }

    fn of_error(&self) -> Option<CqeRef<'p>> {
        Some(self.current().cqe).filter(|cqe| cqe.is_error())
    }

    fn of_headers(&self, flag: WcFlags) -> bool {
        self.asked(flag) && self.current().has_headers()
    }
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_wc().fmt(f)
    }
}

impl Current<'_> {
    #[inline(always)]
    fn succeeded(&self) -> bool {
        self.status == WcStatus::SUCCESS
    }

    /// A receive that succeeded.
    #[inline(always)]
    pub(super) fn received(&self) -> bool {
        self.succeeded() && self.cqe.opcode() != CqeOpcode::REQ
    }

    /// A receive whose entry tells of the packet's headers: with 32 bytes of data these lie in their place.
    #[inline(always)]
    pub(super) fn has_headers(&self) -> bool {
        self.received() && self.cqe.format() != CqeDataFormat::INLINE_DATA32_SEG
    }

    /// Such a receive, of a message: an RDMA write's goes through no tag list.
    fn was_sent_to(&self) -> bool {
        self.has_headers() && self.cqe.opcode() != CqeOpcode::RESP_WR_IMM
    }

    #[inline(always)]
    fn opcode(&self) -> Option<WcOpcode> {
        match self.cqe.opcode() {
            _ if !self.succeeded() => None,
            CqeOpcode::REQ => send_opcode(self.cqe),
            CqeOpcode::RESP_WR_IMM => Some(WcOpcode::RECV_RDMA_WITH_IMM),
            CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM | CqeOpcode::RESP_SEND_INV => Some(WcOpcode::RECV),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn byte_len(&self) -> Option<u32> {
        match self.opcode()? {
            WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD => Some(8),
            WcOpcode::RDMA_READ => Some(self.cqe.byte_cnt()),
            _ => self.received().then(|| self.cqe.byte_cnt()),
        }
    }

    #[inline(always)]
    fn wc_flags(&self) -> WcResultFlags {
        if self.has_headers() { receive_flags(self.cqe) } else { word_flags(self.cqe) }
    }

    #[inline(always)]
    pub(super) fn wc(&self) -> Wc {
        let (cqe, wr_id, status) = (self.cqe, self.wr_id, self.status);
        let mut wc = Wc { wr_id, status, qp_num: cqe.qpn(), ..Wc::default() };
        if !self.succeeded() {
            wc.vendor_err = if cqe.is_error() { cqe.vendor_err_synd().into() } else { 0 };
            return wc;
        }
        wc.opcode = self.opcode().unwrap_or_default();
        wc.byte_len = self.byte_len().unwrap_or_default();
        if self.received() {
            let (flags, word) = (self.wc_flags(), cqe.imm_inval_pkey());
            wc.wc_flags = flags.bits();
            wc.imm_data = match flags & (WcResultFlags::WITH_IMM | WcResultFlags::WITH_INV) {
                WcResultFlags::WITH_IMM => word.to_raw(),
                WcResultFlags::WITH_INV => word.get(),
                _ => 0,
            };
            wc.pkey_index = word.get() as u16;
        }
        if self.has_headers() {
            (wc.src_qp, wc.slid, wc.sl, wc.dlid_path_bits) = (cqe.src_qp(), cqe.slid(), cqe.sl(), cqe.dlid_path_bits());
        }
        wc
    }
}

#[cfg(test)]
mod tests;
