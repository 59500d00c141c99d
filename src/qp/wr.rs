//! Work requests, as the verbs name them.

use crate::ah::Ah;
use crate::flags::SendFlags;

/// A piece of registered memory (`struct ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in the region.
    pub addr: u64,
    /// Length in bytes, less than 2^31. A piece of length 0 is left out.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// A place in the peer's registered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Address in the peer's region, as the peer names it.
    pub addr: u64,
    /// The peer's key for the region.
    pub rkey: u32,
}

/// Where a datagram goes (`wr.ud` of `struct ibv_send_wr`).
#[derive(Clone, Copy, Debug)]
pub struct UdAddress<'a> {
    /// The way there; of the queue pair's protection domain.
    pub ah: &'a Ah,
    /// Number of the destination's queue pair, 24 bits.
    pub remote_qpn: u32,
    /// Q_Key of the destination's queue pair. With the top bit set the sender's own is sent instead.
    pub remote_qkey: u32,
}

/// What a send request does (`enum ibv_wr_opcode`), with what only this operation needs.
///
/// Whether the peer allows an RDMA operation is checked by the peer's device: its memory region and its queue pair both
/// have to grant it ([`AccessFlags`](crate::AccessFlags)); else the request completes with
/// [`REM_ACCESS_ERR`](crate::WcStatus::REM_ACCESS_ERR) or [`REM_INV_REQ_ERR`](crate::WcStatus::REM_INV_REQ_ERR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WrOpcode {
    /// Writes the payload to the peer's memory. The peer is not told.
    RdmaWrite {
        /// Where to.
        remote: Remote,
    },
    /// Writes the payload to the peer's memory and uses up one of its receive requests, whose completion says how much and
    /// carries the immediate data.
    RdmaWriteWithImm {
        /// Where to.
        remote: Remote,
        /// Immediate data in network byte order.
        imm_data: u32,
    },
    /// Sends the payload to a receive request of the peer's.
    #[default]
    Send,
    /// Send, with immediate data for the peer's completion.
    SendWithImm {
        /// Immediate data in network byte order.
        imm_data: u32,
    },
    /// Reads the peer's memory into the pieces of `sg_list`, whose regions need local write access.
    RdmaRead {
        /// Where from; the pieces say how much.
        remote: Remote,
    },
    /// Compares 8 bytes of the peer's memory, a number in the byte order of the peer's device, and replaces them if they are
    /// equal. The one piece of `sg_list`, 8 bytes long, gets what was there before, as a number in this host's byte order.
    AtomicCmpAndSwp {
        /// The 8 bytes, aligned to 8.
        remote: Remote,
        /// What they must be (`compare_add`).
        compare: u64,
        /// What they become (`swap`).
        swap: u64,
    },
    /// Adds to 8 bytes of the peer's memory, a number in the byte order of the peer's device, wrapping around. The one piece
    /// of `sg_list`, 8 bytes long, gets what was there before, as a number in this host's byte order.
    AtomicFetchAndAdd {
        /// The 8 bytes, aligned to 8.
        remote: Remote,
        /// What is added (`compare_add`).
        add: u64,
    },
    /// Send that also makes one of the peer's keys invalid, before the peer's completion.
    ///
    /// The device does that only to keys made for it. Those of [`Pd::reg_mr`](crate::Pd::reg_mr) and
    /// [`Pd::alloc_buf`](crate::Pd::alloc_buf) are not, as with Linux. Naming one sends the message and is an error at the peer:
    /// its receive request fails, its queue pair goes to the error state, and the key stays.
    SendWithInv {
        /// The peer's key.
        invalidate_rkey: u32,
    },
}

impl WrOpcode {
    /// The number in `enum ibv_wr_opcode`.
    pub const fn number(&self) -> u32 {
        match self {
            Self::RdmaWrite { .. } => 0,
            Self::RdmaWriteWithImm { .. } => 1,
            Self::Send => 2,
            Self::SendWithImm { .. } => 3,
            Self::RdmaRead { .. } => 4,
            Self::AtomicCmpAndSwp { .. } => 5,
            Self::AtomicFetchAndAdd { .. } => 6,
            Self::SendWithInv { .. } => 9,
        }
    }

    /// Whether data comes back: such a request cannot be inlined.
    #[inline]
    pub(super) const fn reads(&self) -> bool {
        matches!(self, Self::RdmaRead { .. }) || self.is_atomic()
    }

    pub(super) const fn is_atomic(&self) -> bool {
        matches!(self, Self::AtomicCmpAndSwp { .. } | Self::AtomicFetchAndAdd { .. })
    }
}

/// A send request (`struct ibv_send_wr`; `ibv_post_send(3)`).
///
/// ```
/// # use mlx5::{DmaBuf, PostError, Qp, Remote, SendFlags, SendWr, Sge, WrOpcode};
/// /// Writes a buffer to the peer's memory, and reads it back behind that.
/// fn there_and_back(qp: &mut Qp, buf: &DmaBuf, remote: Remote) -> Result<(), PostError> {
///     let list = [Sge { addr: buf.addr(), length: buf.len() as u32, lkey: buf.lkey() }];
///     let write = SendWr { wr_id: 1, sg_list: &list, opcode: WrOpcode::RdmaWrite { remote }, ..SendWr::default() };
///     let read = SendWr { wr_id: 2, opcode: WrOpcode::RdmaRead { remote }, send_flags: SendFlags::SIGNALED, ..write };
///     qp.post_send(&[write, read])
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SendWr<'a> {
    /// The caller's name for it; its completion gives it back.
    pub wr_id: u64,
    /// Where the payload lies, or where what is read goes. Must be empty with [`SendFlags::INLINE`].
    pub sg_list: &'a [Sge],
    /// The payload itself, with [`SendFlags::INLINE`]; else must be empty. (The verbs name it by `sg_list`.)
    pub inline_data: &'a [u8],
    /// What to do.
    pub opcode: WrOpcode,
    /// How to do it.
    pub send_flags: SendFlags,
    /// Where to, of a datagram; `None` on connections.
    pub ud: Option<UdAddress<'a>>,
}

/// A receive request (`struct ibv_recv_wr`; `ibv_post_recv(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct RecvWr<'a> {
    /// The caller's name for it; its completion gives it back.
    pub wr_id: u64,
    /// Where the message goes.
    pub sg_list: &'a [Sge],
}
