//! Completion queue entries, as bytes.

use super::slot::Entry;
use super::wqe::opcode;

/// Completion syndromes (PRM `err_cqe.syndrome`).
pub(crate) mod syndrome {
    pub(crate) const LOCAL_LENGTH: u8 = 0x01;
    pub(crate) const LOCAL_QP_OP: u8 = 0x02;
    pub(crate) const LOCAL_PROT: u8 = 0x04;
    pub(crate) const FLUSHED: u8 = 0x05;
    pub(crate) const BAD_RESPONSE: u8 = 0x10;
    pub(crate) const REMOTE_INVALID_REQUEST: u8 = 0x12;
    pub(crate) const REMOTE_ACCESS: u8 = 0x13;
    pub(crate) const REMOTE_OPERATION: u8 = 0x14;
    pub(crate) const RETRY_EXCEEDED: u8 = 0x15;
    pub(crate) const RNR_RETRY_EXCEEDED: u8 = 0x16;
}

/// An error as a CQE reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqeError {
    pub(crate) syndrome: u8,
    pub(crate) vendor: u8,
}

impl CqeError {
    /// An error with the vendor syndrome that cards were seen to give with it.
    pub(crate) const fn of(syndrome: u8) -> Self {
        let vendor = match syndrome {
            syndrome::LOCAL_LENGTH | syndrome::LOCAL_QP_OP => 0x68,
            syndrome::LOCAL_PROT => 0x51,
            syndrome::FLUSHED => 0xf9,
            syndrome::REMOTE_INVALID_REQUEST => 0x8a,
            syndrome::RETRY_EXCEEDED => 0x81,
            syndrome::RNR_RETRY_EXCEEDED => 0x87,
            syndrome::REMOTE_OPERATION => 0x89,
            _ => 0x88,
        };
        Self { syndrome, vendor }
    }
}

/// Which queue completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Receive,
}

/// Payload in the completion itself instead of in the buffers (scatter to CQE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inline {
    bytes: [u8; 64],
    len: u8,
}

impl Inline {
    /// Takes a payload of at most `most` bytes (0, 32 or 64). One of no bytes has nothing to scatter.
    pub(crate) fn take(payload: &[u8], most: usize) -> Option<Self> {
        let mut bytes = [0; 64];
        if payload.is_empty() || payload.len() > most {
            return None;
        }
        bytes.get_mut(..payload.len())?.copy_from_slice(payload);
        Some(Self { bytes, len: payload.len() as u8 })
    }

    /// Whether it lies in the descriptor's first 32 bytes; else in the 64 bytes before the descriptor. A payload of up to 32
    /// bytes takes the descriptor, also in a 128-byte entry: rdma-core's tests say so of reads of 16, 40 and 60 bytes.
    fn in_descriptor(&self) -> bool {
        self.len <= 32
    }
}

/// A completion before it has a place in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) side: Side,
    pub(crate) error: Option<CqeError>,
    pub(crate) user_index: u32,
    pub(crate) qpn: u32,
    pub(crate) wqe_counter: u16,
    /// Opcode of the send WQE, also for the receiver, who learns from it what came.
    pub(crate) send_opcode: u8,
    pub(crate) byte_cnt: u32,
    /// Immediate data, or the key that was invalidated.
    pub(crate) imm: u32,
    pub(crate) src_qpn: u32,
    /// Of a datagram: what stands beside the source's number (bits 31:24), its LID, and the path bits of the destination's.
    pub(crate) route: (u8, u16, u8),
    pub(crate) solicited: bool,
    /// When it came about, in nanoseconds of model time.
    pub(crate) at: u64,
    /// It is stamped with the time of day instead of the free-running clock.
    pub(crate) real_time: bool,
    /// The payload, if it comes with the completion. One in error has none.
    pub(crate) inline: Option<Inline>,
}

const REQ: u8 = 0;
const RESP_WRITE_IMM: u8 = 1;
const RESP_SEND: u8 = 2;
const RESP_SEND_IMM: u8 = 3;
const RESP_SEND_INVALIDATE: u8 = 4;
const REQ_ERR: u8 = 13;
const RESP_ERR: u8 = 14;

/// `op_own`, bits 3:2: where inline data is.
const INLINE_32: u8 = 1;
const INLINE_64: u8 = 2;

impl Completion {
    pub(crate) fn opcode(&self) -> u8 {
        match (self.side, self.error.is_some()) {
            (Side::Send, false) => REQ,
            (Side::Send, true) => REQ_ERR,
            (Side::Receive, true) => RESP_ERR,
            (Side::Receive, false) => match self.send_opcode {
                opcode::WRITE_IMM => RESP_WRITE_IMM,
                opcode::SEND_IMM => RESP_SEND_IMM,
                opcode::SEND_INVALIDATE => RESP_SEND_INVALIDATE,
                _ => RESP_SEND,
            },
        }
    }

    /// Inline data of a completion without error.
    pub(super) fn data(&self) -> Option<&Inline> {
        self.inline.as_ref().filter(|_| self.error.is_none())
    }

    /// The 64 bytes before the descriptor of a 128-byte entry, if there is data in them.
    pub(crate) fn front(&self) -> Option<[u8; 64]> {
        self.data().filter(|data| !data.in_descriptor()).map(|data| data.bytes)
    }

    fn format(&self) -> u8 {
        self.data().map_or(0, |data| if data.in_descriptor() { INLINE_32 } else { INLINE_64 })
    }

    /// The entry, but for what says whose it is; `timestamp` in the queue's format.
    pub(crate) fn encode(&self, timestamp: u64) -> Entry {
        let mut e = [0u8; 64];
        put32(&mut e, 32, self.user_index & 0xff_ffff);
        match self.error {
            Some(error) => {
                e[54] = error.vendor;
                e[55] = error.syndrome;
            }
            None => {
                if self.side == Side::Receive {
                    let (flags, source_lid, path) = self.route;
                    e[17] = path & 0x7f;
                    e[22..24].copy_from_slice(&source_lid.to_be_bytes());
                    put32(&mut e, 24, u32::from(flags) << 24 | self.src_qpn & 0xff_ffff);
                    put32(&mut e, 36, self.imm);
                }
                put32(&mut e, 44, self.byte_cnt);
                e[48..56].copy_from_slice(&timestamp.to_be_bytes());
            }
        }
        if let Some(data) = self.data().filter(|data| data.in_descriptor()) {
            e[..32].copy_from_slice(&data.bytes[..32]);
        }
        let sop = if self.side == Side::Send { self.send_opcode } else { 0 };
        put32(&mut e, 56, u32::from(sop) << 24 | self.qpn & 0xff_ffff);
        e[60..62].copy_from_slice(&self.wqe_counter.to_be_bytes());
        e[63] = self.opcode() << 4 | self.format() << 2 | u8::from(self.solicited) << 1;
        Entry { descriptor: e, first_half: self.front() }
    }

    /// Whether an arm for solicited completions only fires on this one.
    pub(crate) fn counts_as_solicited(&self) -> bool {
        self.solicited || self.error.is_some()
    }
}

fn put32(bytes: &mut [u8; 64], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// XOR of bytes.
pub(crate) fn fold(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |x, b| x ^ b)
}
