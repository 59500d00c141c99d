//! Entries that are like the one before, which most are: what has to be known of one to take the next ones many at a time.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{Cqe64Layout, CqeOpcode, CqeRef, OpOwn};
use mlx5_hw::ring::{Alike, CqeFormat, Order, Titled};
use mlx5_hw::simd::{Cpu, Recipe, Record};

use super::completion::{receive_flags, send_opcode};
use super::rows::{Found, Kept};
use super::{Wc, WcOpcode};
use crate::qp::{Outstanding, QpWork};
use crate::srq::SrqWork;

// SAFETY: `repr(C)`, 48 bytes, and all of them are integers or padding.
unsafe impl Record for Wc {}

/// What is remembered of the entries that were taken last.
pub(super) struct Likeness {
    /// What may be used to read entries many at a time.
    pub(super) cpu: Cpu,
    /// Of the last one: its last byte but for the owner bit, and its user index.
    last: (u8, Be32),
    /// What the last two had in common, if nothing was remarkable about them.
    pub(super) pattern: Option<Pattern>,
    /// What the last title of a session had, if records of its completions are alike.
    pub(super) titled: Option<Titled<Wc>>,
}

/// What entries have in common: queue and kind. There is none while an error waits to be told, which comes before them.
pub(super) struct Pattern {
    pub(super) alike: Alike<'static>,
    pub(super) requests: Requests,
}

/// Whose requests they end.
pub(super) enum Requests {
    InOrder(Kept<Outstanding>),
    Shared(Kept<SrqWork>),
}

impl Likeness {
    pub(super) fn new(cpu: Cpu) -> Self {
        Self { cpu, last: (0, Be32::ZERO), pattern: None, titled: None }
    }

    /// Looks at an ordinary entry of a queue that was delivered. Whether those behind it may be taken many at a time.
    #[inline(always)]
    pub(super) fn see<F: CqeFormat>(
        &mut self,
        words: &[AtomicU32; 16],
        op_own: OpOwn,
        user_index: Be32,
        found: Found<'_, QpWork>,
    ) -> bool {
        let this = (op_own.into_bits() & !OWNER, user_index);
        if self.last != this {
            self.last = this;
            self.pattern = None;
            return false;
        }
        if self.pattern.is_none() {
            self.pattern = pattern::<F>(self.cpu, words, found);
        }
        self.helps()
    }

    /// Whether the last entries were alike, and more like them can be taken many at a time.
    #[inline(always)]
    fn helps(&self) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.alike.are_taken())
    }

    /// What comes next needs a closer look.
    pub(super) fn forget(&mut self) {
        (self.last, self.pattern) = ((0xff, Be32::ZERO), None);
    }
}

const OWNER: u8 = OpOwn::new().with_owner(true).into_bits();

/// What ordinary entries like this one have in common, if records of them are made by moving bytes.
#[cold]
#[inline(never)]
fn pattern<F: CqeFormat>(cpu: Cpu, words: &[AtomicU32; 16], found: Found<'_, QpWork>) -> Option<Pattern> {
    // Read anew, so it may have become another one.
    let cqe = Some(CqeRef::new(words)).filter(|cqe| cqe.is_ordinary())?;
    let receive = cqe.opcode() != CqeOpcode::REQ;
    let shared = if receive { found.keep(|queue| queue.srq.as_deref()) } else { None };
    let (order, recipe, headers, flags) = match cqe.opcode() {
        CqeOpcode::REQ => (Order::Sends, send_recipe(send_opcode(cqe)?)?, 0, 0),
        opcode => {
            let order = if shared.is_some() { Order::Shared } else { Order::Receives };
            (order, receive_recipe(opcode)?, headers(cqe), receive_flags(cqe).bits())
        }
    };
    let alike = Alike::new::<F>(cpu, order, cqe, recipe, headers, flags);
    let requests = match shared {
        Some(srq) => Requests::Shared(srq),
        None => Requests::InOrder(found.keep(|queue| Some(queue.queue(receive)))?),
    };
    Some(Pattern { alike, requests })
}

/// The bits of an entry that say what `wc_flags` are, as recipes move them.
fn headers(cqe: CqeRef<'_>) -> u32 {
    const EXT: usize = Cqe64Layout::HDS_IP_EXT.dword();
    const FLAGS: usize = Cqe64Layout::FLAGS_RQPN.dword();
    let byte = |dword: Be32, at: usize| dword.to_raw().to_ne_bytes()[at];
    let (ext, flags) = (cqe.dword::<EXT>(), cqe.dword::<FLAGS>());
    u32::from_ne_bytes([byte(ext, 0) & CSUM_OK, byte(ext, 1) & L3_TYPE, byte(flags, 0) & GRH, 0])
}

/// Bits of `hds_ip_ext`: the checksums of layers 3 and 4 are good.
const CSUM_OK: u8 = 0b110;
/// Bits of `l4_hdr_type_etc`: the kind of the layer 3 header.
const L3_TYPE: u8 = 0b1100;
/// Bits of the first byte of `flags_rqpn`: there is a GRH.
const GRH: u8 = 0b11 << 4;
/// Bits of the same: service level.
const SL: u8 = 0xf;
/// Bits of `ml_path`: path bits of the destination LID.
const PATH_BITS: u8 = 0x7f;

/// First byte of a field of an entry that is in its dword from its first byte on.
const fn at(dword: usize) -> usize {
    4 * dword
}

const BYTE_CNT: usize = at(Cqe64Layout::BYTE_CNT.dword());
const WORD: usize = at(Cqe64Layout::IMM_INVAL_PKEY.dword());
const QPN: usize = at(Cqe64Layout::SOP_DROP_QPN.dword()) + 1;
const FLAGS_RQPN: usize = at(Cqe64Layout::FLAGS_RQPN.dword());
const EXT: usize = at(Cqe64Layout::HDS_IP_EXT.dword());
const ML_PATH: usize = at(Cqe64Layout::ML_PATH.dword()) + 1;
const SLID: usize = at(Cqe64Layout::SLID.dword()) + 2;

/// A success of this kind, of the queue pair that the entry names.
const fn kind(opcode: WcOpcode) -> Recipe {
    let [a, b, c, d] = opcode.0.to_ne_bytes();
    let qp_num = offset_of!(Wc, qp_num) + if cfg!(target_endian = "big") { 1 } else { 0 };
    Recipe::new(u64::from_ne_bytes([0, 0, 0, 0, a, b, c, d])).with_number(QPN, qp_num, 3)
}

const fn with_length(recipe: Recipe) -> Recipe {
    recipe.with_number(BYTE_CNT, offset_of!(Wc, byte_len), 4)
}

/// A receive; `imm_data` is yet to be said.
const fn receive(opcode: WcOpcode) -> Recipe {
    let src_qp = offset_of!(Wc, src_qp) + if cfg!(target_endian = "big") { 1 } else { 0 };
    let flags = offset_of!(Wc, wc_flags);
    with_length(kind(opcode))
        .with_number(FLAGS_RQPN + 1, src_qp, 3)
        .with(EXT, flags, CSUM_OK)
        .with(EXT + 1, flags + 1, L3_TYPE)
        .with(FLAGS_RQPN, flags + 2, GRH)
        .with_number(WORD + 2, offset_of!(Wc, pkey_index), 2)
        .with_number(SLID, offset_of!(Wc, slid), 2)
        .with(FLAGS_RQPN, offset_of!(Wc, sl), SL)
        .with(ML_PATH, offset_of!(Wc, dlid_path_bits), PATH_BITS)
}

/// Immediate data stays in network order.
const fn with_imm(recipe: Recipe) -> Recipe {
    const IMM: usize = offset_of!(Wc, imm_data);
    let first = recipe.with(WORD, IMM, u8::MAX).with(WORD + 1, IMM + 1, u8::MAX);
    first.with(WORD + 2, IMM + 2, u8::MAX).with(WORD + 3, IMM + 3, u8::MAX)
}

static RECEIVE: Recipe = receive(WcOpcode::RECV);
static RECEIVE_IMM: Recipe = with_imm(receive(WcOpcode::RECV));
static RECEIVE_INV: Recipe = receive(WcOpcode::RECV).with_number(WORD, offset_of!(Wc, imm_data), 4);
static RECEIVE_WRITE_IMM: Recipe = with_imm(receive(WcOpcode::RECV_RDMA_WITH_IMM));
static SEND: Recipe = kind(WcOpcode::SEND);
static RDMA_WRITE: Recipe = kind(WcOpcode::RDMA_WRITE);
static RDMA_READ: Recipe = with_length(kind(WcOpcode::RDMA_READ));

fn receive_recipe(opcode: CqeOpcode) -> Option<&'static Recipe> {
    match opcode {
        CqeOpcode::RESP_SEND => Some(&RECEIVE),
        CqeOpcode::RESP_SEND_IMM => Some(&RECEIVE_IMM),
        CqeOpcode::RESP_SEND_INV => Some(&RECEIVE_INV),
        CqeOpcode::RESP_WR_IMM => Some(&RECEIVE_WRITE_IMM),
        _ => None,
    }
}

/// An atomic's length is in no entry.
fn send_recipe(opcode: WcOpcode) -> Option<&'static Recipe> {
    match opcode {
        WcOpcode::SEND => Some(&SEND),
        WcOpcode::RDMA_WRITE => Some(&RDMA_WRITE),
        WcOpcode::RDMA_READ => Some(&RDMA_READ),
        _ => None,
    }
}
