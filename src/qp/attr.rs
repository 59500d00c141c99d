//! Attributes of queue pairs, as the verbs name them.

use mlx5_hw::qpc;

use crate::ah::AhAttr;
use crate::cq::Cq;
use crate::dv::QpCreateFlags;
use crate::flags::AccessFlags;
use crate::srq::Srq;

/// Transport of a queue pair (`enum ibv_qp_type`). Queue pairs for raw packets cannot be created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection: what gets lost stays lost, and the sender is not told.
    Uc,
    /// Unreliable datagram: each request names its destination, and is one packet.
    Ud,
    /// Raw packets.
    RawPacket,
}

/// State of a queue pair (`enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpState {
    /// Reset: nothing may be posted.
    #[default]
    Reset,
    /// Initialised: receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue error.
    Sqe,
    /// Error: requests are flushed.
    Err,
}

impl QpState {
    /// The state in a queue pair context (PRM `qpc.state`).
    pub(crate) fn from_device(state: u32) -> Option<Self> {
        Some(match qpc::QpState(u8::try_from(state).ok()?) {
            qpc::QpState::RST => Self::Reset,
            qpc::QpState::INIT => Self::Init,
            qpc::QpState::RTR => Self::Rtr,
            qpc::QpState::RTS => Self::Rts,
            qpc::QpState::SQER => Self::Sqe,
            qpc::QpState::SQD | qpc::QpState::SQ_DRAINING => Self::Sqd,
            qpc::QpState::ERR => Self::Err,
            _ => return None,
        })
    }
}

/// Largest packet payload on a path (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    #[default]
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

/// Sizes of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Send requests that may be outstanding.
    pub max_send_wr: u32,
    /// Receive requests that may be outstanding.
    pub max_recv_wr: u32,
    /// Pieces of memory in one send request.
    pub max_send_sge: u32,
    /// Pieces of memory in one receive request.
    pub max_recv_sge: u32,
    /// Bytes of inlined payload in one send request.
    pub max_inline_data: u32,
}

/// How to create a queue pair (`struct ibv_qp_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct QpInitAttr<'a> {
    /// The caller's own; [`Qp::context`](crate::Qp::context) gives it back.
    pub qp_context: u64,
    /// The CQ that reports sends.
    pub send_cq: &'a Cq,
    /// The CQ that reports receives; may be the same.
    pub recv_cq: &'a Cq,
    /// Where receives come from, instead of a receive queue of the queue pair's own. `cap.max_recv_wr` and `cap.max_recv_sge` are
    /// then not looked at, and become 0.
    pub srq: Option<&'a Srq>,
    /// Sizes wanted; creation writes back what it gave.
    pub cap: QpCap,
    /// Transport.
    pub qp_type: QpType,
    /// Every send request is reported, whether or not it asks for it.
    pub sq_sig_all: bool,
    /// What mlx5 has besides the verbs (`mlx5dv_qp_init_attr.create_flags`).
    ///
    /// With [`ALLOW_SCATTER_TO_CQE`](QpCreateFlags::ALLOW_SCATTER_TO_CQE) a message, an RDMA read's answer of up to 32 bytes, or 64
    /// with 128-byte completions, or an atomic's answer may lie in its completion; polling then copies it to the
    /// pieces of the request, with the checks that the device makes of their keys. Libmlx5 has that on unless told; here it is
    /// off unless asked for, as the processor copies and each queue keeps its scatter lists twice. On a device without
    /// (`sctr_data_cqe`) and for datagrams, which have a header in front, the flag has no effect. Messages that an SRQ's request
    /// takes never lie in completions.
    pub create_flags: QpCreateFlags,
}

impl<'a> QpInitAttr<'a> {
    /// A reliable connection with the given CQs and sizes.
    pub fn new(send_cq: &'a Cq, recv_cq: &'a Cq, cap: QpCap) -> Self {
        Self {
            qp_context: 0,
            send_cq,
            recv_cq,
            srq: None,
            cap,
            qp_type: QpType::Rc,
            sq_sig_all: false,
            create_flags: QpCreateFlags::empty(),
        }
    }
}

/// Attributes of a queue pair (`struct ibv_qp_attr`); a mask says which of them count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The state to move to, or the state it is in.
    pub qp_state: QpState,
    /// The state the caller takes it to be in.
    pub cur_qp_state: QpState,
    /// Largest packet payload.
    pub path_mtu: Mtu,
    /// Q_Key: datagrams without it are dropped.
    pub qkey: u32,
    /// First packet number expected, 24 bits.
    pub rq_psn: u32,
    /// First packet number sent, 24 bits.
    pub sq_psn: u32,
    /// Number of the peer's queue pair, 24 bits.
    pub dest_qp_num: u32,
    /// What the peer may do.
    pub qp_access_flags: AccessFlags,
    /// Sizes; only told, never set.
    pub cap: QpCap,
    /// The path to the peer.
    pub ah_attr: AhAttr,
    /// Index in the port's P_Key table.
    pub pkey_index: u16,
    /// RDMA reads and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// RDMA reads and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the time that a peer waits when no receive is posted, 0 to 31.
    pub min_rnr_timer: u8,
    /// Port, from 1 on.
    pub port_num: u8,
    /// Code of the acknowledge timeout, 4.096 µs times 2 to this power, 0 to 31; 0 is for ever.
    pub timeout: u8,
    /// Retries without acknowledge, 0 to 7.
    pub retry_cnt: u8,
    /// Retries when the peer has no receive posted, 0 to 7; 7 is for ever.
    pub rnr_retry: u8,
}
