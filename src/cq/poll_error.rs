//! Why polling gave no completion.

use core::fmt;

use mlx5_hw::cqe::{CqeRef, SigErrCqe};
use mlx5_hw::eqe::CqErrorSyndrome;
use mlx5_hw::errno::{EBUSY, EINVAL, EIO, ENOENT};

use crate::events::CqNotice;

/// Why polling gave no completion.
///
/// The bad entry that an error tells of is consumed: it comes once, and polling goes on behind it. [`CqInError`](Self::CqInError)
/// tells of no entry and stays; [`ClockBusy`](Self::ClockBusy) and [`InvalidAttr`](Self::InvalidAttr) leave all as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// No completion is there (ENOENT).
    Empty,
    /// No completion is there, and none will come: the device has put the CQ in error (EIO). Each poll that finds nothing
    /// says so, once the [event](crate::AsyncEvent::CqErr) has been taken; completions from before come first.
    CqInError {
        /// Why.
        syndrome: CqErrorSyndrome,
    },
    /// The time of day cannot be told at the moment (EBUSY), which completions with wall-clock time need on a device without
    /// real-time stamps. Nothing was touched: try again.
    ClockBusy,
    /// An unknown bit in [`PollAttr::comp_mask`](super::PollAttr::comp_mask) (EINVAL). Nothing was touched.
    InvalidAttr,
    /// An entry names a queue that this CQ does not report, or a request that the queue never had (EIO).
    UnknownQueue {
        /// The user index in the entry, 24 bits.
        user_index: u32,
        /// The queue number in the entry, 24 bits.
        qpn: u32,
    },
    /// An entry has an opcode that no request of ours completes with (EIO).
    UnknownOpcode {
        /// Opcode of the entry (constants `MLX5_CQE_*`), 4 bits.
        opcode: u8,
        /// Opcode of the send request in it (constants `MLX5_OPCODE_*`).
        send_opcode: u8,
        /// The user index in the entry, 24 bits.
        user_index: u32,
    },
    /// An entry has inlined data, which its queue was not created for (EIO).
    UnexpectedFormat {
        /// Format of the entry (constants `MLX5_INLINE_DATA32_SEG` and the like).
        format: u8,
        /// The user index in the entry, 24 bits.
        user_index: u32,
    },
    /// An entry starts a compressed session that cannot be one: the CQ was created without compression, or the number of
    /// completions is not between 2 and the device's limit, or more than fit in the ring, or there is no title (EIO).
    BadSession {
        /// Number of completions that the entry claims.
        count: u32,
    },
    /// A data-integrity check failed (EIO). The entry names a memory key, not a request: no completion is lost by it.
    Signature(SigErr),
    /// An entry of a tag list (`MLX5_CQE_NO_PACKET`), and no queue has one (EIO).
    NoTagList {
        /// What the device says to have done with the list (constants `MLX5_CQE_APP_OP_TM_*`).
        app_op: u8,
        /// The user index in the entry, 24 bits.
        user_index: u32,
    },
}

/// A failed data-integrity check, as its entry tells it (PRM `sig_err_cqe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigErr {
    /// 0 for a block's signature, 1 for the whole transaction's.
    pub sig_type: u8,
    /// 0 on the wire, 1 in memory.
    pub domain: u8,
    /// Which tags differ: bit 13 guard, bit 12 application tag, bit 11 reference tag.
    pub syndrome: u16,
    /// What was expected: guard and application tag in the upper half, reference tag in the lower.
    pub expected: u64,
    /// What was found, likewise.
    pub actual: u64,
    /// Where in the transfer, in bytes.
    pub offset: u64,
    /// The memory key: its index in bits 31 to 8.
    pub mkey: u32,
}

impl SigErr {
    pub(super) fn of(cqe: CqeRef<'_>) -> Self {
        const OFFSET: usize = SigErrCqe::ERR_OFFSET.dword();
        let pair = |upper, lower| u64::from(cqe.field(upper)) << 32 | u64::from(cqe.field(lower));
        Self {
            sig_type: cqe.field(SigErrCqe::SIG_TYPE) as u8 & 7,
            domain: cqe.field(SigErrCqe::DOMAIN) as u8 & 7,
            syndrome: cqe.field(SigErrCqe::SYNDROME) as u16,
            expected: pair(SigErrCqe::EXPECTED_TRANS_SIG, SigErrCqe::EXPECTED_REF_TAG),
            actual: pair(SigErrCqe::ACTUAL_TRANS_SIG, SigErrCqe::ACTUAL_REF_TAG),
            offset: u64::from(cqe.dword::<OFFSET>().get()) << 32 | u64::from(cqe.dword::<{ OFFSET + 1 }>().get()),
            mkey: cqe.field(SigErrCqe::MKEY),
        }
    }
}

impl PollError {
    /// What polling says when it finds nothing.
    #[inline]
    pub(super) fn nothing(notice: &CqNotice) -> Self {
        notice.error().map_or(Self::Empty, |syndrome| Self::CqInError { syndrome })
    }

    /// The error number of the verbs: Linux's, on every platform; positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Empty => ENOENT,
            Self::InvalidAttr => EINVAL,
            Self::ClockBusy => EBUSY,
            _ => EIO,
        }
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("no completion"),
            Self::CqInError { syndrome } => {
                write!(f, "no completion, and none will come: the completion queue is in error ({syndrome})")
            }
            Self::ClockBusy => f.write_str("the time of day cannot be told at the moment; try again"),
            Self::InvalidAttr => f.write_str("unknown bit in the poll attributes' comp_mask"),
            Self::UnknownQueue { user_index, qpn } => write!(
                f,
                "an entry names user index {user_index:#x} (queue {qpn:#x}), which this CQ does not report or which did not post \
                 that request; it was dropped"
            ),
            Self::UnknownOpcode { opcode, send_opcode, user_index } => write!(
                f,
                "an entry for user index {user_index:#x} has opcode {opcode:#x} (send opcode {send_opcode:#x}), \
                 which no posted request has; it was dropped"
            ),
            Self::UnexpectedFormat { format, user_index } => write!(
                f,
                "an entry for user index {user_index:#x} has data format {format}, \
                 which its queue was not created for; it was dropped"
            ),
            Self::BadSession { count } => {
                write!(
                    f,
                    "a compressed session of {count} completions, which this CQ cannot have; its entry was dropped"
                )
            }
            Self::Signature(SigErr { mkey, offset, expected, actual, .. }) => write!(
                f,
                "the data-integrity check of memory key {mkey:#x} failed at byte {offset}: \
                 expected {expected:#018x}, found {actual:#018x}"
            ),
            Self::NoTagList { app_op, user_index } => write!(
                f,
                "an entry for user index {user_index:#x} tells of a tag list (operation {app_op:#x}), \
                 which no queue has; it was dropped"
            ),
        }
    }
}

impl core::error::Error for PollError {}
