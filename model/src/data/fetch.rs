//! Work requests of a send queue as the device fetches them: read, checked, with their payload gathered.

use std::ops::Range;

use super::av::{Address, FORCE_LOOPBACK};
use super::cqe::{CqeError, syndrome};
use super::memory;
use super::wqe::{self, Atomic, Ctrl, DS_UNIT, DataSeg, Remote, Segment, Work, WqeFault};
use crate::device::Device;
use crate::objects::{Qp, Service};
use crate::violation::ViolationKind;

/// Bytes that an atomic works on and answers.
pub(crate) const ATOMIC_BYTES: u64 = 8;

/// A work request as it was fetched: the control segment in any case, and what to do or why not.
pub(crate) type Fetched = (Ctrl, Result<Message, CqeError>);

/// One work request, ready for the wire.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) ctrl: Ctrl,
    pub(crate) body: Body,
}

/// What goes to the peer, and where its answer is written.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Nothing,
    Send(Vec<u8>),
    Datagram(Box<Address>, Vec<u8>),
    Write(Remote, Vec<u8>),
    Read { from: Remote, len: u64, into: Vec<DataSeg> },
    Atomic { at: Remote, atomic: Atomic, into: Vec<DataSeg> },
}

impl Body {
    /// Bytes of payload, whichever way they go.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::Nothing => 0,
            Body::Send(payload) | Body::Datagram(_, payload) | Body::Write(_, payload) => payload.len() as u64,
            Body::Read { len, .. } => *len,
            Body::Atomic { .. } => ATOMIC_BYTES,
        }
    }

    /// Payload on its way to the peer.
    pub(crate) fn outgoing(&mut self) -> &mut [u8] {
        match self {
            Body::Send(payload) | Body::Datagram(_, payload) | Body::Write(_, payload) => payload,
            _ => &mut [],
        }
    }

    /// The list that the peer's answer is written along, if there is one.
    pub(crate) fn into_list(self) -> Vec<DataSeg> {
        match self {
            Body::Read { into, .. } | Body::Atomic { into, .. } => into,
            _ => Vec::new(),
        }
    }
}

/// Units of 16 bytes of the work request at basic block `at` of a send queue, read from memory, across the end of the ring.
pub(crate) fn bytes(dev: &mut Device, qpn: u32, at: u16, units: Range<usize>) -> Option<Vec<u8>> {
    let qp = dev.objects.qps.get(&qpn)?;
    let buffer = qp.buffer.clone();
    let places: Vec<u64> = units.map(|unit| wqe::send_at(qp, at, unit)).collect();
    let mut raw = vec![0; places.len() * DS_UNIT];
    for (piece, at) in raw.chunks_exact_mut(DS_UNIT).zip(places) {
        dev.buffer_read("send work request", &buffer, at, piece).ok()?;
    }
    Some(raw)
}

/// The control segment at basic block `at` of a send queue.
pub(crate) fn control(dev: &mut Device, qpn: u32, at: u16) -> Option<Ctrl> {
    bytes(dev, qpn, at, 0..1).map(|raw| Ctrl::decode(&raw))
}

/// Reads the work request at basic block `at`, `posted` blocks before the producer, and gathers its payload. `None` when not even
/// its control segment can be read. Nothing is read of one that came with its doorbell, `flame`.
pub(crate) fn request(dev: &mut Device, qpn: u32, at: u16, posted: u16, flame: Option<Vec<u8>>) -> Option<Fetched> {
    let (head, rest) = match flame {
        Some(mut raw) => {
            let rest = raw.split_off(DS_UNIT);
            (raw, Some(rest))
        }
        None => (bytes(dev, qpn, at, 0..1)?, None),
    };
    let ctrl = Ctrl::decode(&head);
    let message = check(dev, qpn, &ctrl, at, posted)
        .and_then(|()| {
            let rest = rest.or_else(|| bytes(dev, qpn, at, 1..usize::from(ctrl.ds)));
            rest.ok_or(CqeError::of(syndrome::LOCAL_QP_OP))
        })
        .and_then(|raw| work(dev, qpn, &ctrl, &raw))
        .and_then(|work| body(dev, qpn, work))
        .map(|body| Message { ctrl, body });
    Some((ctrl, message))
}

fn malformed(dev: &mut Device, qpn: u32, index: u16, what: &str) -> CqeError {
    dev.violate(ViolationKind::WqeMalformed, format!("QP {qpn:#x}, send WQE {index:#x}: {what}"));
    CqeError::of(syndrome::LOCAL_QP_OP)
}

/// Checks a control segment against the place where it was found.
fn check(dev: &mut Device, qpn: u32, ctrl: &Ctrl, at: u16, posted: u16) -> Result<(), CqeError> {
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(CqeError::of(syndrome::LOCAL_QP_OP)) };
    let signed = qp.wq_signature;
    let fault = if let Err(fault) = ctrl.check() {
        format!("{fault:?}")
    } else if ctrl.index != at {
        format!("index {:#x}", ctrl.index)
    } else if ctrl.qpn != qpn {
        format!("queue number {:#x}", ctrl.qpn)
    } else if ctrl.blocks() > posted {
        format!("{} blocks, {posted} posted", ctrl.blocks())
    } else if ctrl.signature != 0 && !signed {
        format!("signature {:#x} without wq_signature", ctrl.signature)
    } else {
        return Ok(());
    };
    Err(malformed(dev, qpn, at, &fault))
}

/// What the segments behind the control segment ask for.
fn work(dev: &mut Device, qpn: u32, ctrl: &Ctrl, raw: &[u8]) -> Result<Work, CqeError> {
    let unable = CqeError::of(syndrome::LOCAL_QP_OP);
    let service = dev.objects.qps.get(&qpn).and_then(Qp::service).ok_or(unable)?;
    let work = wqe::decode_work(service, ctrl.opcode, raw).ok_or(unable)?;
    if matches!(work, Ok(Work::Atomic(..))) && dev.hca.caps.current("atomic") == 0 {
        return Err(unable);
    }
    // The compact form has no room for the addresses of Ethernet.
    let compact = matches!(&work, Ok(Work::Datagram(to, _)) if !to.extended);
    let forced = matches!(&work, Ok(Work::Datagram(to, _)) if to.force_loopback);
    let work = if compact && dev.hca.caps.current("roce") == 1 {
        Err(WqeFault::Missing("whole address vector"))
    } else if forced && !dev.hca.may_force_loopback(false) {
        Err(WqeFault::Reserved(DS_UNIT + FORCE_LOOPBACK / 8))
    } else {
        work
    };
    work.map_err(|fault: WqeFault| malformed(dev, qpn, ctrl.index, &format!("{fault:?}")))
}

/// Bytes of the longest message: a datagram is one packet.
fn message_limit(qp: &Qp) -> u64 {
    let limit = 1 << qp.log_msg_max;
    if qp.service() == Some(Service::Ud) { qp.packet_bytes().min(limit) } else { limit }
}

/// Collects what goes on the wire.
fn body(dev: &mut Device, qpn: u32, work: Work) -> Result<Body, CqeError> {
    let limit = dev.objects.qps.get(&qpn).map_or(0, message_limit);
    let too_long = |len: u64| if len > limit { Err(CqeError::of(syndrome::LOCAL_LENGTH)) } else { Ok(()) };
    let total = |segments: &[Segment]| segments.iter().map(Segment::len).sum::<u64>();
    let room = |list: &[DataSeg]| list.iter().map(|seg| u64::from(seg.len)).sum::<u64>();
    match work {
        Work::Nop => Ok(Body::Nothing),
        Work::Send(segments) => {
            too_long(total(&segments))?;
            Ok(Body::Send(memory::gather(dev, qpn, &segments)?))
        }
        Work::Datagram(to, segments) => {
            too_long(total(&segments))?;
            Ok(Body::Datagram(to, memory::gather(dev, qpn, &segments)?))
        }
        Work::Write(remote, segments) => {
            too_long(total(&segments))?;
            Ok(Body::Write(remote, memory::gather(dev, qpn, &segments)?))
        }
        Work::Read(from, into) => {
            let len = room(&into);
            too_long(len)?;
            Ok(Body::Read { from, len, into })
        }
        Work::Atomic(at, atomic, into) => {
            if room(&into) < ATOMIC_BYTES {
                return Err(CqeError::of(syndrome::LOCAL_LENGTH));
            }
            Ok(Body::Atomic { at, atomic, into })
        }
    }
}
