//! Work queue entries as the device reads them: where they lie in the buffer, what a well-formed one looks like.

use super::av::Address;
use crate::bytes::bits as get;
use crate::objects::{Qp, Service};

/// Bytes of one basic block of a send queue.
pub(crate) const WQEBB: u64 = 64;
/// Bytes of the unit that `ds` counts.
pub(crate) const DS_UNIT: usize = 16;
/// The lkey that ends a receive list.
pub(crate) const TERMINATE_LKEY: u32 = 0x100;
/// Largest send WQE in 16-byte units: 16 basic blocks would be 64, the field holds 6 bits.
const MAX_DS: u8 = 63;

/// Opcodes that the loopback wire carries out.
pub(crate) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVALIDATE: u8 = 0x01;
    pub(crate) const WRITE: u8 = 0x08;
    pub(crate) const WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const READ: u8 = 0x10;
    pub(crate) const COMPARE_SWAP: u8 = 0x11;
    pub(crate) const FETCH_ADD: u8 = 0x12;
}

/// What is wrong with the bytes of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WqeFault {
    /// A bit that the PRM reserves is set, in the dword at this byte offset.
    Reserved(usize),
    /// `ds` is 0, or more than a WQE may have.
    Size(u8),
    /// An inline segment runs over the end of its WQE.
    InlineLength(u32),
    /// A data segment with byte count 0, which the device takes for 2 GiB.
    ZeroLength,
    /// A segment that the opcode needs is missing.
    Missing(&'static str),
    /// Inline data where a response is to be written.
    InlineResponse,
}

/// The control segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ctrl {
    pub(crate) opmod: u8,
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    pub(crate) qpn: u32,
    pub(crate) ds: u8,
    pub(crate) signature: u8,
    /// Completion asked for: CE is 2 (always) or 3 (with an event).
    pub(crate) signalled: bool,
    pub(crate) solicited: bool,
    /// `fm`: 0 none, 1 initiator small, 2 fence, 3 strong ordering, 4 small and fence.
    pub(crate) fence: u8,
    /// Immediate data in network order, as a number; or the key to invalidate.
    pub(crate) imm: u32,
    reserved: Option<usize>,
}

impl Ctrl {
    /// Reads a control segment. Never fails: what it makes of the fields is for [`check`](Self::check).
    pub(crate) fn decode(raw: &[u8]) -> Self {
        let reserved = if get(raw, 56, 2) != 0 {
            Some(4)
        } else if get(raw, 72, 16) != 0 || get(raw, 91, 1) != 0 || get(raw, 95, 1) != 0 || get(raw, 88, 3) > 4 {
            Some(8)
        } else {
            None
        };
        Self {
            opmod: get(raw, 0, 8) as u8,
            index: get(raw, 8, 16) as u16,
            opcode: get(raw, 24, 8) as u8,
            qpn: get(raw, 32, 24) as u32,
            ds: get(raw, 58, 6) as u8,
            signature: get(raw, 64, 8) as u8,
            signalled: get(raw, 92, 1) != 0,
            solicited: get(raw, 94, 1) != 0,
            fence: get(raw, 88, 3) as u8,
            imm: get(raw, 96, 32) as u32,
            reserved,
        }
    }

    /// Basic blocks that the WQE takes; at least one, so that a walk always gets on.
    pub(crate) fn blocks(&self) -> u16 {
        u16::from(self.ds).div_ceil(4).max(1)
    }

    /// Checks size and reserved bits.
    pub(crate) fn check(&self) -> Result<(), WqeFault> {
        if self.ds == 0 || self.ds > MAX_DS {
            return Err(WqeFault::Size(self.ds));
        }
        if let Some(at) = self.reserved {
            return Err(WqeFault::Reserved(at));
        }
        if self.opmod != 0 {
            return Err(WqeFault::Reserved(0));
        }
        if self.imm != 0 && !matches!(self.opcode, opcode::SEND_IMM | opcode::SEND_INVALIDATE | opcode::WRITE_IMM) {
            return Err(WqeFault::Reserved(12));
        }
        Ok(())
    }

    /// Waits until the reads and atomics before it have ended.
    pub(crate) fn fences(&self) -> bool {
        self.fence >= 2
    }
}

/// A pointer to data: what a key names, from where, how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataSeg {
    pub(crate) lkey: u32,
    pub(crate) addr: u64,
    pub(crate) len: u32,
}

impl DataSeg {
    fn decode(raw: &[u8]) -> Self {
        Self { len: get(raw, 0, 32) as u32, lkey: get(raw, 32, 32) as u32, addr: get(raw, 64, 64) }
    }
}

/// One source of a message's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// Bytes in registered memory.
    Data(DataSeg),
    /// Bytes in the WQE itself.
    Inline(Vec<u8>),
}

impl Segment {
    /// Bytes it contributes.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Segment::Data(seg) => seg.len.into(),
            Segment::Inline(data) => data.len() as u64,
        }
    }
}

/// Where in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// What an atomic makes of the 8 bytes that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomic {
    CompareSwap { compare: u64, swap: u64 },
    FetchAdd(u64),
}

impl Atomic {
    /// The new value for an old one.
    pub(crate) fn apply(self, old: u64) -> u64 {
        match self {
            Atomic::CompareSwap { compare, swap } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
            Atomic::FetchAdd(add) => old.wrapping_add(add),
        }
    }
}

/// What the segments behind the control segment ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Nop,
    Send(Vec<Segment>),
    Datagram(Box<Address>, Vec<Segment>),
    Write(Remote, Vec<Segment>),
    Read(Remote, Vec<DataSeg>),
    Atomic(Remote, Atomic, Vec<DataSeg>),
}

/// Reads what follows the control segment of a WQE with this opcode. `raw` is a multiple of 16 bytes. `None` for an opcode
/// that the transport does not have, or the model does not carry out.
pub(crate) fn decode_work(service: Service, code: u8, raw: &[u8]) -> Option<Result<Work, WqeFault>> {
    let known = match code {
        opcode::NOP | opcode::SEND | opcode::SEND_IMM => true,
        opcode::WRITE | opcode::WRITE_IMM => service != Service::Ud,
        _ => service == Service::Rc,
    };
    match code {
        _ if !known => None,
        opcode::NOP => Some(Ok(Work::Nop)),
        opcode::SEND | opcode::SEND_IMM if service == Service::Ud => Some(decode_datagram(raw)),
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVALIDATE => Some(decode_payload(raw, 1).map(Work::Send)),
        opcode::WRITE | opcode::WRITE_IMM => {
            Some(decode_remote(raw).and_then(|remote| Ok(Work::Write(remote, decode_payload(&raw[DS_UNIT..], 2)?))))
        }
        opcode::READ => {
            Some(decode_remote(raw).and_then(|remote| Ok(Work::Read(remote, decode_response(&raw[DS_UNIT..], 2)?))))
        }
        opcode::COMPARE_SWAP | opcode::FETCH_ADD => Some(decode_atomic(code, raw)),
        _ => None,
    }
}

fn decode_datagram(raw: &[u8]) -> Result<Work, WqeFault> {
    let (to, units) = Address::decode(raw)?;
    Ok(Work::Datagram(Box::new(to), decode_payload(&raw[units * DS_UNIT..], 1 + units)?))
}

/// The remote address segment: address, key, and a reserved dword.
fn decode_remote(raw: &[u8]) -> Result<Remote, WqeFault> {
    if raw.len() < DS_UNIT {
        return Err(WqeFault::Missing("remote address segment"));
    }
    if get(raw, 96, 32) != 0 {
        return Err(WqeFault::Reserved(DS_UNIT + 12));
    }
    Ok(Remote { addr: get(raw, 0, 64), rkey: get(raw, 64, 32) as u32 })
}

fn decode_atomic(code: u8, raw: &[u8]) -> Result<Work, WqeFault> {
    let remote = decode_remote(raw)?;
    let operands = raw.get(DS_UNIT..2 * DS_UNIT).ok_or(WqeFault::Missing("atomic segment"))?;
    let (first, compare) = (get(operands, 0, 64), get(operands, 64, 64));
    let atomic = if code == opcode::COMPARE_SWAP {
        Atomic::CompareSwap { compare, swap: first }
    } else if compare == 0 {
        Atomic::FetchAdd(first)
    } else {
        return Err(WqeFault::Reserved(2 * DS_UNIT + 8));
    };
    Ok(Work::Atomic(remote, atomic, decode_response(&raw[2 * DS_UNIT..], 3)?))
}

/// Reads the list that a response is written along.
fn decode_response(raw: &[u8], unit: usize) -> Result<Vec<DataSeg>, WqeFault> {
    let only_data = |segment| match segment {
        Segment::Data(seg) => Ok(seg),
        Segment::Inline(_) => Err(WqeFault::InlineResponse),
    };
    decode_payload(raw, unit)?.into_iter().map(only_data).collect()
}

/// Reads data and inline segments; `unit` is where in the WQE the first lies, in 16 bytes. `raw` is the rest of the WQE, a multiple of 16 bytes.
fn decode_payload(raw: &[u8], unit: usize) -> Result<Vec<Segment>, WqeFault> {
    let mut segments = Vec::new();
    let mut rest = raw;
    while rest.len() >= DS_UNIT {
        let head = get(rest, 0, 32) as u32;
        if head & 1 << 31 == 0 {
            if head == 0 {
                return Err(WqeFault::ZeroLength);
            }
            segments.push(Segment::Data(DataSeg::decode(rest)));
            rest = &rest[DS_UNIT..];
            continue;
        }
        let len = head & 0x3ff;
        if head & 0x7fff_fc00 != 0 {
            return Err(WqeFault::Reserved(unit * DS_UNIT + raw.len() - rest.len()));
        }
        let end = 4 + len as usize;
        let Some(data) = rest.get(4..end) else { return Err(WqeFault::InlineLength(len)) };
        segments.push(Segment::Inline(data.to_vec()));
        rest = rest.get(end.next_multiple_of(DS_UNIT)..).unwrap_or(&[]);
    }
    Ok(segments)
}

/// Reads a receive WQE: its list up to the terminating lkey or the end of the stride.
pub(crate) fn decode_recv(raw: &[u8]) -> Result<Vec<DataSeg>, WqeFault> {
    let mut list = Vec::new();
    for (i, piece) in raw.chunks_exact(DS_UNIT).enumerate() {
        let seg = DataSeg::decode(piece);
        if seg.lkey == TERMINATE_LKEY && seg.len == 0 {
            break;
        }
        if seg.len & 1 << 31 != 0 {
            return Err(WqeFault::Reserved(i * DS_UNIT));
        }
        if seg.len == 0 {
            return Err(WqeFault::ZeroLength);
        }
        list.push(seg);
    }
    Ok(list)
}

/// Offset in the buffer of a QP of its receive WQE number `index`; the receive queue lies first.
pub(crate) fn recv_at(qp: &Qp, index: u16) -> u64 {
    let slot = u64::from(index) & ((1 << qp.log_rq_size) - 1);
    slot * u64::from(qp.rq_stride)
}

/// Offset in the buffer of a QP of the 16-byte unit `unit` of the send WQE at block `index`; the ring wraps behind any
/// unit of four.
pub(crate) fn send_at(qp: &Qp, index: u16, unit: usize) -> u64 {
    let at = u64::from(index) * WQEBB + (unit * DS_UNIT) as u64;
    qp.rq_bytes() + at % (WQEBB << qp.log_sq_size)
}

#[cfg(test)]
mod tests {
    use super::{Ctrl, DataSeg, Segment, decode_payload};

    /// WQE 3 of QP 0x4e as `ibv_rc_pingpong` over rdma-core posted it: 4096 bytes, signalled.
    const PINGPONG: [u8; 32] = [
        0x00, 0x00, 0x03, 0x0a, 0x00, 0x00, 0x4e, 0x02, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00, //
        0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x15, 0x05, 0x00, 0x00, 0x55, 0xdd, 0x68, 0x9d, 0xf0, 0x00,
    ];

    #[test]
    fn a_work_request_of_rdma_core_is_well_formed() {
        let ctrl = Ctrl::decode(&PINGPONG);
        assert_eq!(ctrl.check(), Ok(()));
        assert_eq!((ctrl.opcode, ctrl.index, ctrl.qpn, ctrl.ds, ctrl.blocks()), (0x0a, 3, 0x4e, 2, 1));
        assert!(ctrl.signalled && !ctrl.solicited);
        let seg = DataSeg { lkey: 0x1505, addr: 0x55dd_689d_f000, len: 4096 };
        assert_eq!(decode_payload(&PINGPONG[16..], 1), Ok(vec![Segment::Data(seg)]));
    }
}
