//! What a completion says: decoded when it is asked.

use core::fmt;

use mlx5_hw::cqe::{CqeOpcode, CqeRef};
use mlx5_hw::wqe::WqeOpcode;

use super::{Wc, WcOpcode, WcStatus};
use crate::flags::{WcFlags, WcResultFlags};

/// An entry with what is always decoded.
#[derive(Clone, Copy)]
pub(super) struct Current<'m> {
    pub(super) cqe: CqeRef<'m>,
    pub(super) wr_id: u64,
    pub(super) status: WcStatus,
}

/// Whether an entry belongs to a receive; `None` for an opcode that is no request's.
#[inline(always)]
pub(super) fn is_receive(cqe: CqeRef<'_>) -> Option<bool> {
    match cqe.opcode() {
        CqeOpcode::REQ => send_opcode(cqe).map(|_| false),
        CqeOpcode::REQ_ERR => Some(false),
        CqeOpcode::RESP_WR_IMM
        | CqeOpcode::RESP_SEND
        | CqeOpcode::RESP_SEND_IMM
        | CqeOpcode::RESP_SEND_INV
        | CqeOpcode::RESP_ERR => Some(true),
        _ => None,
    }
}

/// The completion opcode of a send request.
#[inline(always)]
fn send_opcode(cqe: CqeRef<'_>) -> Option<WcOpcode> {
    match WqeOpcode(cqe.sop_opcode()) {
        WqeOpcode::SEND | WqeOpcode::SEND_IMM | WqeOpcode::SEND_INVAL => Some(WcOpcode::SEND),
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => Some(WcOpcode::RDMA_WRITE),
        WqeOpcode::RDMA_READ => Some(WcOpcode::RDMA_READ),
        WqeOpcode::ATOMIC_CS => Some(WcOpcode::COMP_SWAP),
        WqeOpcode::ATOMIC_FA => Some(WcOpcode::FETCH_ADD),
        _ => None,
    }
}

/// A completion, lent by a [`Poller`](super::Poller) until it moves on.
///
/// Fields are decoded when they are read. `None` says that the field was not asked for when the CQ was created, or is not
/// valid for this opcode or status.
#[derive(Clone, Copy)]
pub struct Completion<'p> {
    current: Current<'p>,
    asked: WcFlags,
}

impl<'p> Completion<'p> {
    pub(super) const fn new(current: Current<'p>, asked: WcFlags) -> Self {
        Self { current, asked }
    }

    /// The caller's name for the request.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.current.wr_id
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> WcStatus {
        self.current.status
    }

    /// What the request was (`ibv_wc_read_opcode`); `None` when it failed.
    pub fn opcode(&self) -> Option<WcOpcode> {
        self.current.opcode()
    }

    /// The device's own code for an error (`ibv_wc_read_vendor_err`); `None` when there was none.
    pub fn vendor_err(&self) -> Option<u32> {
        (!self.current.succeeded()).then(|| self.current.cqe.vendor_err_synd().into())
    }

    /// Bytes transferred (`ibv_wc_read_byte_len`): of receives, RDMA reads and atomics.
    pub fn byte_len(&self) -> Option<u32> {
        if self.asked(WcFlags::BYTE_LEN) { self.current.byte_len() } else { None }
    }

    /// Immediate data in network byte order (`ibv_wc_read_imm_data`): of receives that got some.
    pub fn imm_data(&self) -> Option<u32> {
        let valid = self.asked(WcFlags::IMM) && self.wc_flags().contains(WcResultFlags::WITH_IMM);
        valid.then(|| self.current.cqe.imm_inval_pkey().to_raw())
    }

    /// The key that a send with invalidate made invalid (`ibv_wc_read_invalidated_rkey`), in CPU byte order.
    pub fn invalidated_rkey(&self) -> Option<u32> {
        let valid = self.asked(WcFlags::IMM) && self.wc_flags().contains(WcResultFlags::WITH_INV);
        valid.then(|| self.current.cqe.imm_inval_pkey().get())
    }

    /// Number of the local queue pair (`ibv_wc_read_qp_num`), of failed requests too.
    pub fn qp_num(&self) -> Option<u32> {
        self.asked(WcFlags::QP_NUM).then(|| self.current.cqe.qpn())
    }

    /// Number of the sender's queue pair (`ibv_wc_read_src_qp`): of receives; only datagrams carry it.
    pub fn src_qp(&self) -> Option<u32> {
        self.of_receive(WcFlags::SRC_QP).then(|| self.current.cqe.src_qp())
    }

    /// Source LID (`ibv_wc_read_slid`): of receives.
    pub fn slid(&self) -> Option<u32> {
        self.of_receive(WcFlags::SLID).then(|| self.current.cqe.slid().into())
    }

    /// Service level (`ibv_wc_read_sl`): of receives.
    pub fn sl(&self) -> Option<u8> {
        self.of_receive(WcFlags::SL).then(|| self.current.cqe.sl())
    }

    /// Path bits of the destination LID (`ibv_wc_read_dlid_path_bits`): of receives.
    pub fn dlid_path_bits(&self) -> Option<u8> {
        self.of_receive(WcFlags::DLID_PATH_BITS).then(|| self.current.cqe.dlid_path_bits())
    }

    /// When the request ended, in ticks of the device's clock (`ibv_wc_read_completion_ts`); failed ones carry no time.
    pub fn completion_ts(&self) -> Option<u64> {
        let valid = self.asked(WcFlags::COMPLETION_TIMESTAMP) && self.current.succeeded();
        valid.then(|| self.current.cqe.timestamp())
    }

    /// What is true of this completion (`ibv_wc_read_wc_flags`); nothing when it failed.
    pub fn wc_flags(&self) -> WcResultFlags {
        self.current.wc_flags()
    }

    /// All of it as `ibv_poll_cq` gives it, whatever was asked for.
    pub fn to_wc(&self) -> Wc {
        self.current.wc()
    }

    fn asked(&self, flag: WcFlags) -> bool {
        self.asked.contains(flag)
    }

    fn of_receive(&self, flag: WcFlags) -> bool {
        self.asked(flag) && self.current.received()
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
        !self.cqe.is_error()
    }

    /// A receive that succeeded.
    #[inline(always)]
    fn received(&self) -> bool {
        self.succeeded() && self.cqe.opcode() != CqeOpcode::REQ
    }

    fn opcode(&self) -> Option<WcOpcode> {
        match self.cqe.opcode() {
            CqeOpcode::REQ => send_opcode(self.cqe),
            CqeOpcode::RESP_WR_IMM => Some(WcOpcode::RECV_RDMA_WITH_IMM),
            CqeOpcode::RESP_SEND | CqeOpcode::RESP_SEND_IMM | CqeOpcode::RESP_SEND_INV => Some(WcOpcode::RECV),
            _ => None,
        }
    }

    fn byte_len(&self) -> Option<u32> {
        match self.opcode()? {
            WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD => Some(8),
            WcOpcode::RDMA_READ => Some(self.cqe.byte_cnt()),
            _ => self.received().then(|| self.cqe.byte_cnt()),
        }
    }

    fn wc_flags(&self) -> WcResultFlags {
        if !self.received() {
            return WcResultFlags::empty();
        }
        let grh = if self.cqe.has_grh() { WcResultFlags::GRH } else { WcResultFlags::empty() };
        grh | match self.cqe.opcode() {
            CqeOpcode::RESP_WR_IMM | CqeOpcode::RESP_SEND_IMM => WcResultFlags::WITH_IMM,
            CqeOpcode::RESP_SEND_INV => WcResultFlags::WITH_INV,
            _ => WcResultFlags::empty(),
        }
    }

    #[inline(always)]
    pub(super) fn wc(&self) -> Wc {
        let (cqe, wr_id, status) = (self.cqe, self.wr_id, self.status);
        let mut wc = Wc { wr_id, status, qp_num: cqe.qpn(), ..Wc::default() };
        if !self.succeeded() {
            wc.vendor_err = cqe.vendor_err_synd().into();
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
            (wc.src_qp, wc.slid, wc.sl, wc.dlid_path_bits) = (cqe.src_qp(), cqe.slid(), cqe.sl(), cqe.dlid_path_bits());
        }
        wc
    }
}
