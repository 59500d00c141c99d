//! Work completions: `ibv_wc` and the numbers in it.

use core::fmt;
use core::mem::offset_of;

use crate::flags::WcResultFlags;

/// How a request ended (`enum ibv_wc_status`; `ibv_poll_cq(3)`).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WcStatus(pub u32);

/// What kind of request ended (`enum ibv_wc_opcode`; `ibv_poll_cq(3)`). Receive opcodes start at 128.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WcOpcode(pub u32);

macro_rules! names {
    ($type:ident { $($(#[doc = $doc:literal])* $name:ident = $number:literal,)* }) => {
        impl $type {
            $($(#[doc = $doc])* pub const $name: Self = Self($number);)*

            /// The name without the verbs' prefix, or `None` for a number without one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

names!(WcStatus {
    /// The request was carried out.
    SUCCESS = 0,
    /// The message does not fit: the posted buffers are too small, or the message is too long.
    LOC_LEN_ERR = 1,
    /// The queue pair cannot do that: an inconsistent request.
    LOC_QP_OP_ERR = 2,
    /// Inconsistent end-to-end context.
    LOC_EEC_OP_ERR = 3,
    /// A local key or address does not allow the access.
    LOC_PROT_ERR = 4,
    /// Not carried out: the queue pair was in the error state.
    WR_FLUSH_ERR = 5,
    /// A memory window could not be bound.
    MW_BIND_ERR = 6,
    /// The responder's answer makes no sense.
    BAD_RESP_ERR = 7,
    /// A local buffer does not allow what a received message asked.
    LOC_ACCESS_ERR = 8,
    /// The responder found the request invalid.
    REM_INV_REQ_ERR = 9,
    /// A remote key or address does not allow the access.
    REM_ACCESS_ERR = 10,
    /// The responder could not carry the request out.
    REM_OP_ERR = 11,
    /// The peer did not answer, all retries used.
    RETRY_EXC_ERR = 12,
    /// The peer had no receive request posted, all retries used.
    RNR_RETRY_EXC_ERR = 13,
    /// Reliable datagram domain violation.
    LOC_RDD_VIOL_ERR = 14,
    /// Invalid reliable datagram request.
    REM_INV_RD_REQ_ERR = 15,
    /// The responder aborted.
    REM_ABORT_ERR = 16,
    /// Invalid end-to-end context number.
    INV_EECN_ERR = 17,
    /// Invalid end-to-end context state.
    INV_EEC_STATE_ERR = 18,
    /// A fatal error of the transport.
    FATAL_ERR = 19,
    /// A response took too long.
    RESP_TIMEOUT_ERR = 20,
    /// Any other error; the vendor error says more.
    GENERAL_ERR = 21,
    /// Tag matching failed.
    TM_ERR = 22,
    /// Tag matching left a rendezvous to software.
    TM_RNDV_INCOMPLETE = 23,
});

names!(WcOpcode {
    /// A send.
    SEND = 0,
    /// An RDMA write.
    RDMA_WRITE = 1,
    /// An RDMA read.
    RDMA_READ = 2,
    /// A compare and swap.
    COMP_SWAP = 3,
    /// A fetch and add.
    FETCH_ADD = 4,
    /// A memory window bind.
    BIND_MW = 5,
    /// A local invalidate.
    LOCAL_INV = 6,
    /// A segmented send.
    TSO = 7,
    /// A receive.
    RECV = 128,
    /// A receive used up by an RDMA write with immediate data.
    RECV_RDMA_WITH_IMM = 129,
    /// An entry was added to a tag list.
    TM_ADD = 130,
    /// An entry was removed from a tag list.
    TM_DEL = 131,
    /// A tag list was synchronised.
    TM_SYNC = 132,
    /// A receive of a message with a tag.
    TM_RECV = 133,
    /// A receive of a message without a tag, where tags are matched.
    TM_NO_TAG = 134,
});

/// One completion, laid out as `struct ibv_wc` (`ibv_poll_cq(3)`).
///
/// `wr_id`, `status`, `qp_num` and `vendor_err` are always valid; the rest only when `status` is
/// [`SUCCESS`](WcStatus::SUCCESS), and as far as it applies to `opcode`; what does not apply is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// The caller's name for the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What it was.
    pub opcode: WcOpcode,
    /// The device's own code for an error.
    pub vendor_err: u32,
    /// Bytes transferred, for receives, RDMA reads and atomics.
    pub byte_len: u32,
    /// With [`WITH_IMM`](WcResultFlags::WITH_IMM): immediate data in network byte order, as the verbs give it. With
    /// [`WITH_INV`](WcResultFlags::WITH_INV): the invalidated key in CPU order.
    pub imm_data: u32,
    /// Number of the local queue pair.
    pub qp_num: u32,
    /// Number of the sender's queue pair, where the transport tells it.
    pub src_qp: u32,
    /// What is true of this completion.
    pub wc_flags: u32,
    /// P_Key index; what mlx5 delivers here are the low 16 bits of the word that else holds immediate data.
    pub pkey_index: u16,
    /// Source LID.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Path bits of the destination LID.
    pub dlid_path_bits: u8,
}

impl Wc {
    /// `wc_flags` as a set.
    pub const fn flags(&self) -> WcResultFlags {
        WcResultFlags::from_bits_retain(self.wc_flags)
    }

    /// Immediate data in CPU order, if there is any.
    pub const fn imm(&self) -> Option<u32> {
        if self.flags().contains(WcResultFlags::WITH_IMM) { Some(u32::from_be(self.imm_data)) } else { None }
    }
}

const _: () = {
    assert!(size_of::<Wc>() == 48 && align_of::<Wc>() == align_of::<u64>());
    assert!(offset_of!(Wc, wr_id) == 0 && offset_of!(Wc, status) == 8 && offset_of!(Wc, opcode) == 12);
    assert!(offset_of!(Wc, vendor_err) == 16 && offset_of!(Wc, byte_len) == 20 && offset_of!(Wc, imm_data) == 24);
    assert!(offset_of!(Wc, qp_num) == 28 && offset_of!(Wc, src_qp) == 32 && offset_of!(Wc, wc_flags) == 36);
    assert!(offset_of!(Wc, pkey_index) == 40 && offset_of!(Wc, slid) == 42);
    assert!(offset_of!(Wc, sl) == 44 && offset_of!(Wc, dlid_path_bits) == 45);
};
