//! Receive queues: what is posted, where a message goes, completions of the receiver, flushing.

use super::cqe::{Completion, CqeError, Side, syndrome};
use super::mkey::{self, Access, KeyFault, Piece, Requester};
use super::wqe::{self, Ctrl, DataSeg};
use super::{Timer, cq, sq};
use crate::device::Device;
use crate::objects::QpState;
use crate::time::Due;
use crate::violation::ViolationKind;

/// How often a queue pair in error looks for new receive work requests: they come without a doorbell.
const WATCH_NS: u64 = 100_000;

/// Why a message was not taken.
pub(crate) enum Refusal {
    /// No receive work request is posted.
    NotReady,
    /// The receiver breaks down with this error; the sender gets the syndrome.
    Error { own: CqeError, sender: u8 },
}

/// Whether a receive work request is posted. Reads the record.
fn posted(dev: &mut Device, qpn: u32) -> bool {
    let Some(qp) = dev.objects.qps.get(&qpn).filter(|qp| qp.has_rq()) else { return false };
    let (consumer, entries, record) = (qp.rq_consumer, 1_u32 << qp.log_rq_size, qp.dbr_addr);
    let Ok(word) = dev.dma_read_be32("receive doorbell record", record) else { return false };
    if word >> 16 != 0 {
        dev.violate(ViolationKind::DoorbellRecordReserved, format!("QP {qpn:#x}: receive counter {word:#x}"));
    }
    let outstanding = u32::from((word as u16).wrapping_sub(consumer));
    if outstanding > entries {
        let detail = format!("QP {qpn:#x}: producer {:#x}, consumer {consumer:#x}, {entries} entries", word as u16);
        dev.violate(ViolationKind::ReceiveQueueOverrun, detail);
        return false;
    }
    outstanding > 0
}

/// Translates a data segment under the rights of queue pair `qpn`.
pub(crate) fn pieces(dev: &Device, qpn: u32, seg: DataSeg, access: Access) -> Result<Vec<Piece>, CqeError> {
    let found = dev.objects.qps.get(&qpn).ok_or(KeyFault::Unknown).and_then(|qp| {
        let who = Requester { qpn, pd: qp.pd };
        let whole = (seg.addr, seg.len.into());
        if seg.lkey == mkey::RESERVED_LKEY {
            return if qp.reserved_lkey {
                Ok(vec![Piece { iova: seg.addr, len: seg.len.into() }])
            } else {
                Err(KeyFault::Right)
            };
        }
        let mkey = dev.objects.mkeys.get(&(seg.lkey >> 8)).ok_or(KeyFault::Unknown)?;
        mkey::resolve(mkey, seg.lkey, whole, access, who)
    });
    found.map_err(|fault| CqeError { syndrome: syndrome::LOCAL_PROT, vendor: fault.vendor() })
}

/// Takes a message in: into the memory of the next receive work request, with a completion.
pub(crate) fn accept(dev: &mut Device, qpn: u32, from: u32, ctrl: &Ctrl, payload: &[u8]) -> Result<(), Refusal> {
    if !posted(dev, qpn) {
        return Err(Refusal::NotReady);
    }
    let placed = list(dev, qpn).and_then(|list| scatter(dev, qpn, &list, payload));
    let Some(completion) = advance(dev, qpn) else { return Err(Refusal::NotReady) };
    let completion = match placed {
        Ok(()) => Completion {
            send_opcode: ctrl.opcode,
            byte_cnt: payload.len() as u32,
            imm: ctrl.imm,
            src_qpn: from,
            solicited: ctrl.solicited,
            ..completion
        },
        Err(Refusal::Error { own, .. }) => Completion { error: Some(own), ..completion },
        Err(Refusal::NotReady) => completion,
    };
    report(dev, qpn, completion);
    placed
}

/// Reads the list of the next receive work request.
fn list(dev: &mut Device, qpn: u32) -> Result<Vec<DataSeg>, Refusal> {
    let broken = Refusal::Error { own: CqeError::of(syndrome::LOCAL_QP_OP), sender: syndrome::REMOTE_OPERATION };
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(broken) };
    let (buffer, index) = (qp.buffer.clone(), qp.rq_consumer);
    let at = wqe::recv_at(qp, index);
    let mut raw = vec![0; qp.rq_stride as usize];
    if dev.buffer_read("receive work request", &buffer, at, &mut raw).is_err() {
        return Err(broken);
    }
    wqe::decode_recv(&raw).map_err(|fault| {
        dev.violate(ViolationKind::WqeMalformed, format!("QP {qpn:#x}, receive WQE {index:#x}: {fault:?}"));
        broken
    })
}

/// Writes the payload along the list. All of it is checked before the first byte is written.
fn scatter(dev: &mut Device, qpn: u32, list: &[DataSeg], payload: &[u8]) -> Result<(), Refusal> {
    let room: u64 = list.iter().map(|seg| u64::from(seg.len)).sum();
    if payload.len() as u64 > room {
        let own = CqeError::of(syndrome::LOCAL_LENGTH);
        return Err(Refusal::Error { own, sender: syndrome::REMOTE_INVALID_REQUEST });
    }
    let protection = |own| Refusal::Error { own, sender: syndrome::REMOTE_OPERATION };
    let mut targets = Vec::new();
    let mut left = payload.len() as u64;
    for seg in list {
        let take = left.min(seg.len.into());
        if take > 0 {
            let part = DataSeg { len: take as u32, ..*seg };
            targets.extend(pieces(dev, qpn, part, Access::LocalWrite).map_err(protection)?);
        }
        left -= take;
    }
    let mut rest = payload;
    for piece in targets {
        let (now, later) = rest.split_at(rest.len().min(piece.len as usize));
        if dev.dma_write("message payload", piece.iova, now).is_err() {
            return Err(protection(CqeError::of(syndrome::LOCAL_PROT)));
        }
        rest = later;
    }
    Ok(())
}

/// Moves the consumer behind the next receive work request and prepares its completion.
fn advance(dev: &mut Device, qpn: u32) -> Option<Completion> {
    let timestamp = super::timestamp(dev);
    let qp = dev.objects.qps.get_mut(&qpn)?;
    let index = qp.rq_consumer;
    qp.rq_consumer = index.wrapping_add(1);
    Some(Completion {
        side: Side::Receive,
        error: None,
        user_index: qp.user_index,
        qpn,
        wqe_counter: index,
        send_opcode: 0,
        byte_cnt: 0,
        imm: 0,
        src_qpn: 0,
        solicited: false,
        timestamp,
    })
}

fn report(dev: &mut Device, qpn: u32, completion: Completion) {
    let Some(cqn) = dev.objects.qps.get(&qpn).map(|qp| qp.cqn_recv) else { return };
    if !cq::complete(dev, cqn, completion) {
        sq::broken(dev, qpn);
    }
}

/// Starts to flush the receive queue of a queue pair in error.
pub(crate) fn start_flush(dev: &mut Device, qpn: u32) {
    let ticket = dev.data.ticket();
    dev.data.send(qpn).watch = Some(ticket);
    watch(dev, qpn, ticket);
}

/// Flushes what is posted and looks again later, as long as the queue pair is in error.
pub(crate) fn watch(dev: &mut Device, qpn: u32, ticket: u64) {
    let flushing = |dev: &Device| {
        let mine = dev.data.sends.get(&qpn).is_some_and(|run| run.watch == Some(ticket));
        mine && dev.objects.qps.get(&qpn).is_some_and(|qp| qp.state == QpState::Error && qp.has_rq())
    };
    while flushing(dev) {
        if !posted(dev, qpn) {
            return dev.clock.after(WATCH_NS, Due::Data(Timer::Flush { qpn, ticket }));
        }
        let Some(completion) = advance(dev, qpn) else { return };
        report(dev, qpn, Completion { error: Some(CqeError::of(syndrome::FLUSHED)), ..completion });
    }
}
