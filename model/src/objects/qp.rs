//! Queue pairs.

use super::{Buffer, page_offset};
use crate::bytes::{be24, be32, be64, bit_at, bits, put_bits, u8_at};

/// State of a queue pair (`qpc.state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Error = 6,
}

/// Transport service of a queue pair (`qpc.st`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
}

/// Where a queue pair sends to (ADS).
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// `fl`: to the own port, whatever the rest says.
    pub(crate) force_loopback: bool,
    /// `grh` and `rlid`: on InfiniBand, whether there is a global route header, and the destination.
    pub(crate) global: bool,
    pub(crate) remote_lid: u16,
    /// `pkey_index`.
    pub(crate) pkey_index: u16,
    /// `src_addr_index`: which RoCE address it sends from.
    pub(crate) source_index: u8,
    pub(crate) ack_timeout: u8,
    /// `rgid_rip`.
    pub(crate) remote_gid: [u8; 16],
    pub(crate) remote_mac: [u8; 6],
    /// `vhca_port_num`.
    pub(crate) port: u8,
}

impl Path {
    fn decode(ads: &[u8]) -> Self {
        let mut path = Self {
            force_loopback: bit_at(ads, 0),
            global: bit_at(ads, 40),
            remote_lid: bits(ads, 48, 16) as u16,
            pkey_index: bits(ads, 16, 16) as u16,
            source_index: u8_at(ads, 0x9),
            ack_timeout: bits(ads, 0x8 * 8, 5) as u8,
            remote_gid: [0; 16],
            remote_mac: [0; 6],
            port: u8_at(ads, 0x25),
        };
        for (i, byte) in path.remote_gid.iter_mut().enumerate() {
            *byte = u8_at(ads, 0x10 + i);
        }
        for (i, byte) in path.remote_mac.iter_mut().enumerate() {
            *byte = u8_at(ads, 0x26 + i);
        }
        path
    }
}

/// Which payloads go into completions (`cs_req`, `cs_res`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScatterToCqe {
    Off,
    /// Up to 32 bytes.
    Data32,
    /// Up to 64 bytes: needs entries of 128.
    Data64,
    /// A value that neither side has.
    Unknown,
}

impl ScatterToCqe {
    fn of_requester(value: u8) -> Self {
        match value {
            0 => Self::Off,
            0x11 => Self::Data32,
            0x22 => Self::Data64,
            _ => Self::Unknown,
        }
    }

    fn of_responder(value: u8) -> Self {
        match value {
            0 => Self::Off,
            0x1 => Self::Data32,
            0x2 => Self::Data64,
            _ => Self::Unknown,
        }
    }

    /// Largest payload in a completion.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Data32 => 32,
            Self::Data64 => 64,
            Self::Off | Self::Unknown => 0,
        }
    }
}

/// A queue pair (QPC): what CREATE_QP and the transitions told.
#[derive(Clone, Debug)]
pub(crate) struct Qp {
    /// The context as the driver gave it, with the transitions' fields merged in, 0xe8 bytes.
    pub(crate) context: Vec<u8>,
    pub(crate) state: QpState,
    /// Service type: 0 RC, 1 UC, 2 UD, …
    pub(crate) st: u8,
    pub(crate) pd: u32,
    /// Path MTU code: 1 = 256 … 5 = 4096 bytes.
    pub(crate) mtu: u8,
    pub(crate) log_msg_max: u8,
    /// Log2 of receive work queue entries; [`Qp::has_rq`] says whether there is one.
    pub(crate) log_rq_size: u32,
    /// Bytes of a receive work queue entry.
    pub(crate) rq_stride: u32,
    /// `rq_type`: 0 own receive queue, 1 shared, 3 none.
    pub(crate) rq_type: u8,
    /// `srqn_rmpn_xrqn`: the shared receive queue, if `rq_type` says that there is one.
    rmpn: u32,
    pub(crate) no_sq: bool,
    /// Log2 of 64-byte send work queue building blocks.
    pub(crate) log_sq_size: u32,
    /// `rlky`: the reserved lkey may be used.
    pub(crate) reserved_lkey: bool,
    pub(crate) uar: u32,
    pub(crate) user_index: u32,
    pub(crate) buffer: Buffer,
    pub(crate) cqn_send: u32,
    pub(crate) cqn_recv: u32,
    /// Device address of the doorbell record: receive counter, then send counter.
    pub(crate) dbr_addr: u64,
    pub(crate) wq_signature: bool,
    /// `q_key`: datagrams that carry another are not taken in.
    pub(crate) q_key: u32,
    pub(crate) remote_qpn: u32,
    pub(crate) path: Path,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) next_send_psn: u32,
    pub(crate) next_rcv_psn: u32,
    pub(crate) min_rnr_nak: u8,
    /// `rre`, `rwe`: the peer may read, write.
    pub(crate) remote_read: bool,
    pub(crate) remote_write: bool,
    /// `rae`, with an `atomic_mode` other than none.
    pub(crate) remote_atomic: bool,
    /// Reads and atomics under way at once: as requester, 2^`log_sra_max`, and as responder, 2^`log_rra_max`.
    pub(crate) log_sra_max: u8,
    pub(crate) log_rra_max: u8,
    /// Answers of reads and atomics in the requester's completions; messages in the responder's.
    pub(crate) scatter_req: ScatterToCqe,
    pub(crate) scatter_res: ScatterToCqe,
    /// Counters that the data path keeps: send blocks and receive entries taken.
    pub(crate) sq_consumer: u16,
    pub(crate) rq_consumer: u16,
}

/// `ts_format` real time.
pub(crate) const TS_REAL_TIME: u64 = 2;

impl Qp {
    /// Reads a context and the page list behind it, as CREATE_QP carries them.
    pub(crate) fn decode(context: &[u8], pages: &[u8]) -> Self {
        let c = context;
        Self {
            context: c.to_vec(),
            state: QpState::Reset,
            st: u8_at(c, 0x1),
            pd: be24(c, 0x5),
            mtu: bits(c, 0x8 * 8, 3) as u8,
            log_msg_max: bits(c, 0x8 * 8 + 3, 5) as u8,
            log_rq_size: bits(c, 0x9 * 8 + 1, 4) as u32,
            rq_stride: 16 << bits(c, 0x9 * 8 + 5, 3),
            rq_type: bits(c, 0xac * 8 + 5, 3) as u8,
            rmpn: be24(c, 0xad),
            no_sq: bit_at(c, 0xa * 8),
            log_sq_size: bits(c, 0xa * 8 + 1, 4) as u32,
            reserved_lkey: bit_at(c, 0xb * 8 + 3),
            uar: be24(c, 0xd),
            user_index: be24(c, 0x11),
            buffer: Buffer {
                pages: pages.chunks_exact(8).map(|pa| be64(pa, 0)).collect(),
                page_shift: 12 + bits(c, 0x14 * 8 + 3, 5) as u32,
                offset: page_offset(bits(c, 0x92 * 8 + 4, 6), bits(c, 0x14 * 8 + 3, 5)),
            },
            cqn_send: be24(c, 0x7d),
            cqn_recv: be24(c, 0x9d),
            dbr_addr: be64(c, 0xa0),
            wq_signature: bit_at(c, 0x4 * 8),
            q_key: be32(c, 0xa8),
            remote_qpn: be24(c, 0x15),
            path: Path::decode(c.get(0x18..0x44).unwrap_or(&[])),
            retry_count: bits(c, 0x71 * 8 + 5, 3) as u8,
            rnr_retry: bits(c, 0x72 * 8, 3) as u8,
            next_send_psn: be24(c, 0x79),
            next_rcv_psn: be24(c, 0x95),
            min_rnr_nak: bits(c, 0x94 * 8 + 3, 5) as u8,
            remote_read: bit_at(c, 0x92 * 8),
            remote_write: bit_at(c, 0x92 * 8 + 1),
            remote_atomic: bit_at(c, 0x92 * 8 + 2) && bits(c, 0x91 * 8 + 4, 4) != 0,
            log_sra_max: bits(c, 0x71 * 8, 3) as u8,
            log_rra_max: bits(c, 0x91 * 8, 3) as u8,
            scatter_req: ScatterToCqe::of_requester(u8_at(c, 0xc6)),
            scatter_res: ScatterToCqe::of_responder(u8_at(c, 0xc7)),
            sq_consumer: 0,
            rq_consumer: 0,
        }
    }

    /// Reads the context again after a transition has changed it; state, memory and counters stay.
    pub(crate) fn refresh(&mut self) {
        let fresh = Self::decode(&self.context, &[]);
        *self = Self {
            state: self.state,
            buffer: self.buffer.clone(),
            sq_consumer: self.sq_consumer,
            rq_consumer: self.rq_consumer,
            ..fresh
        };
    }

    /// The transport; `None` for one that this function does not have.
    pub(crate) fn service(&self) -> Option<Service> {
        match self.st {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            2 => Some(Service::Ud),
            _ => None,
        }
    }

    /// Bytes of a full packet: path MTU codes 1 to 5 are 256 to 4096.
    pub(crate) fn packet_bytes(&self) -> u64 {
        128 << self.mtu.clamp(1, 5)
    }

    /// Whether messages can come in.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts)
    }

    /// `ts_format`: 0 free running, 1 the default, 2 real time.
    pub(crate) fn ts_format(&self) -> u64 {
        bits(&self.context, 0x58, 2)
    }

    /// Whether its completions are stamped with the time of day.
    pub(crate) fn real_time(&self) -> bool {
        self.ts_format() == TS_REAL_TIME
    }

    /// Whether it has a receive queue of its own.
    pub(crate) fn has_rq(&self) -> bool {
        self.rq_type == 0
    }

    /// The shared receive queue that it takes from.
    pub(crate) fn shared(&self) -> Option<u32> {
        (self.rq_type == 1).then_some(self.rmpn)
    }

    /// Bytes of the receive queue, which lies first in the buffer.
    pub(crate) fn rq_bytes(&self) -> u64 {
        if self.has_rq() { u64::from(self.rq_stride) << self.log_rq_size } else { 0 }
    }

    /// Bytes of the send queue, which lies behind the receive queue.
    pub(crate) fn sq_bytes(&self) -> u64 {
        if self.no_sq { 0 } else { 64 << self.log_sq_size }
    }

    /// The context as QUERY_QP returns it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        put_bits(&mut context, 0, 4, self.state as u64);
        put_bits(&mut context, 0xb4 * 8, 16, self.sq_consumer.into());
        put_bits(&mut context, 0xb8 * 8, 32, self.rq_consumer.into());
        context
    }
}
