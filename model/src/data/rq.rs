//! Receive queues: what is posted, where a message goes, completions of the receiver, flushing.

use super::cqe::{Completion, CqeError, Inline, Side, syndrome};
use super::grh::{GRH_BYTES, Network};
use super::mkey::Requester;
use super::remote::{self, Refused};
use super::wqe::{self, Ctrl, DataSeg, Remote, opcode};
use super::{Timer, cq, memory, sq, srq};
use crate::device::Device;
use crate::objects::{QpState, Service};
use crate::time::Due;
use crate::violation::ViolationKind;

/// How often a queue pair in error looks for new receive work requests: they come without a doorbell.
const WATCH_NS: u64 = 100_000;

/// Why a message was not taken.
pub(crate) enum Refusal {
    /// No receive work request is posted.
    NotReady,
    /// The receiver breaks down with this error in a receive completion; the sender gets the syndrome.
    Own { own: CqeError, sender: u8 },
    /// The receiver breaks down without a receive work request that could say so.
    Request(Refused),
    /// The receiver breaks down after it has acknowledged the message.
    Acknowledged,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Refusal::Request(refused)
    }
}

/// Whether a receive work request is posted. Reads the record; a queue whose record cannot be read is broken.
fn posted(dev: &mut Device, qpn: u32) -> Result<bool, Refused> {
    let Some(qp) = dev.objects.qps.get(&qpn).filter(|qp| qp.has_rq()) else { return Ok(false) };
    let (consumer, entries, record) = (qp.rq_consumer, 1_u32 << qp.log_rq_size, qp.dbr_addr);
    let word = dev.dma_read_be32("receive doorbell record", record)?;
    if word >> 16 != 0 {
        dev.violate(ViolationKind::DoorbellRecordReserved, format!("QP {qpn:#x}: receive counter {word:#x}"));
    }
    let outstanding = u32::from((word as u16).wrapping_sub(consumer));
    if outstanding > entries {
        let detail = format!("QP {qpn:#x}: producer {:#x}, consumer {consumer:#x}, {entries} entries", word as u16);
        dev.violate(ViolationKind::ReceiveQueueOverrun, detail);
        return Ok(false);
    }
    Ok(outstanding > 0)
}

/// A message as it comes in.
pub(crate) struct Arrival<'a> {
    /// The queue pair that sent it.
    pub(crate) from: u32,
    /// Of a datagram: what lies in front of it.
    pub(crate) network: Option<Network>,
    pub(crate) payload: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// One over a connection.
    pub(crate) fn message(from: u32, payload: &'a [u8]) -> Self {
        Self { from, network: None, payload }
    }

    /// What the completion says of the way.
    fn route(&self) -> (u8, u16, u8) {
        self.network.as_ref().map_or((0, 0, 0), |network| (network.flags, network.source_lid, network.path))
    }

    /// Bytes that the receiver counts.
    fn len(&self) -> usize {
        self.payload.len() + if self.network.is_some() { GRH_BYTES } else { 0 }
    }
}

/// The shared receive queue of a queue pair that has one.
fn shared(dev: &Device, qpn: u32) -> Option<u32> {
    dev.objects.qps.get(&qpn)?.shared()
}

/// Refuses when no receive work request is posted to the queue that `qpn` takes from.
fn ready(dev: &mut Device, qpn: u32) -> Result<(), Refusal> {
    let posted = match shared(dev, qpn) {
        Some(rmpn) => srq::posted(dev, rmpn)?,
        None => posted(dev, qpn)?,
    };
    if posted { Ok(()) } else { Err(Refusal::NotReady) }
}

/// Takes a message in: into the memory of the next receive work request or, if it is small and the queue pair wants that,
/// into its completion. What is too long for the request leaves it untouched where no answer goes back.
pub(crate) fn accept(dev: &mut Device, qpn: u32, ctrl: &Ctrl, arrival: &Arrival<'_>) -> Result<(), Refusal> {
    ready(dev, qpn)?;
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(Refusal::NotReady) };
    let (inline, reliable) = (Inline::take(arrival.payload, qp.scatter_res.bytes()), qp.service() == Some(Service::Rc));
    let placed = list(dev, qpn).and_then(|list| {
        let list = fitting(list, arrival.len())?;
        scatter(dev, qpn, list, arrival, inline.is_some())
    });
    // Without the work request there is nothing to complete.
    if matches!(&placed, Err(Refusal::Request(_))) {
        return placed;
    }
    if !reliable && matches!(&placed, Err(Refusal::Own { own, .. }) if own.syndrome == syndrome::LOCAL_LENGTH) {
        return placed;
    }
    let taken =
        placed.and_then(|()| if ctrl.opcode == opcode::SEND_INVALIDATE { forget(dev, qpn, ctrl.imm) } else { Ok(()) });
    let Some(completion) = advance(dev, qpn) else { return Err(Refusal::NotReady) };
    let completion = match &taken {
        Err(Refusal::Own { own, .. }) => Completion { error: Some(*own), ..completion },
        Err(Refusal::Acknowledged) => Completion { error: Some(NOT_INVALIDATED), ..completion },
        _ => Completion { inline, route: arrival.route(), ..of_message(completion, arrival.from, ctrl, arrival.len()) },
    };
    report(dev, qpn, completion);
    taken
}

/// What the receiver of a SEND with an invalidation that is not permitted reads in its completion. The message itself is
/// acknowledged (responder fault of class J).
const NOT_INVALIDATED: CqeError = CqeError::of(syndrome::REMOTE_INVALID_REQUEST);

/// Makes the key of a SEND with invalidation free.
fn forget(dev: &mut Device, qpn: u32, key: u32) -> Result<(), Refusal> {
    memory::invalidate(dev, qpn, key).map_err(|_| Refusal::Acknowledged)
}

fn of_message(completion: Completion, from: u32, ctrl: &Ctrl, len: usize) -> Completion {
    Completion {
        send_opcode: ctrl.opcode,
        byte_cnt: len as u32,
        imm: ctrl.imm,
        src_qpn: from,
        solicited: ctrl.solicited,
        ..completion
    }
}

/// Takes an RDMA write in. One with immediate data needs a receive work request, whose memory it does not touch; nothing is
/// written before there is one.
pub(crate) fn accept_write(
    dev: &mut Device,
    (qpn, from): (u32, u32),
    ctrl: &Ctrl,
    to: Remote,
    payload: &[u8],
) -> Result<(), Refusal> {
    let pieces = remote::write_target(dev, qpn, to, payload.len() as u64)?;
    let immediate = ctrl.opcode == opcode::WRITE_IMM;
    if immediate {
        ready(dev, qpn)?;
    }
    memory::write(dev, &pieces, payload).map_err(Refused::from)?;
    if immediate && let Some(completion) = advance(dev, qpn) {
        report(dev, qpn, of_message(completion, from, ctrl, payload.len()));
    }
    Ok(())
}

/// Reads the list of the next receive work request.
fn list(dev: &mut Device, qpn: u32) -> Result<Vec<DataSeg>, Refusal> {
    if let Some(rmpn) = shared(dev, qpn) {
        return srq::list(dev, rmpn);
    }
    let broken = Refusal::Own { own: CqeError::of(syndrome::LOCAL_QP_OP), sender: syndrome::REMOTE_OPERATION };
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(broken) };
    let (buffer, index) = (qp.buffer.clone(), qp.rq_consumer);
    let at = wqe::recv_at(qp, index);
    let mut raw = vec![0; qp.rq_stride as usize];
    dev.buffer_read("receive work request", &buffer, at, &mut raw).map_err(Refused::from)?;
    wqe::decode_recv(&raw).map_err(|fault| {
        dev.violate(ViolationKind::WqeMalformed, format!("QP {qpn:#x}, receive WQE {index:#x}: {fault:?}"));
        broken
    })
}

/// Vendor syndrome of a receive whose memory key does not fit, whatever the reason: the one that cards were seen to give.
const RECEIVE_PROT: u8 = 0x32;

/// A list that has room for `len` bytes.
fn fitting(list: Vec<DataSeg>, len: usize) -> Result<Vec<DataSeg>, Refusal> {
    let room: u64 = list.iter().map(|seg| u64::from(seg.len)).sum();
    if len as u64 > room {
        let own = CqeError::of(syndrome::LOCAL_LENGTH);
        return Err(Refusal::Own { own, sender: syndrome::REMOTE_INVALID_REQUEST });
    }
    Ok(list)
}

/// Writes a message along a list that has room for it, behind the place of a network header; a payload that goes into the
/// completion as well is held against the list.
fn scatter(dev: &mut Device, qpn: u32, list: Vec<DataSeg>, arrival: &Arrival<'_>, inline: bool) -> Result<(), Refusal> {
    let header = arrival.network.as_ref().map(|network| &network.header[..]);
    let (list, bytes) = match header {
        Some(header) => (behind(list, GRH_BYTES - header.len()), [header, arrival.payload].concat()),
        None => (list, arrival.payload.to_vec()),
    };
    let who = owner(dev, qpn);
    memory::place(dev, who, &list, &bytes, inline).map_err(|own| {
        let own = CqeError { vendor: RECEIVE_PROT, ..own };
        Refusal::Own { own, sender: syndrome::REMOTE_OPERATION }
    })
}

/// A list without its first `skip` bytes.
fn behind(list: Vec<DataSeg>, skip: usize) -> Vec<DataSeg> {
    let mut left = skip as u32;
    let cut = |seg: DataSeg| {
        let skipped = left.min(seg.len);
        left -= skipped;
        DataSeg { addr: seg.addr.wrapping_add(skipped.into()), len: seg.len - skipped, ..seg }
    };
    list.into_iter().map(cut).collect()
}

/// Whose keys a receive work request names: those of the shared queue's protection domain, or of the queue pair's.
fn owner(dev: &Device, qpn: u32) -> Requester {
    let rmp = shared(dev, qpn).and_then(|rmpn| dev.objects.rmps.get(&rmpn));
    rmp.map_or_else(|| memory::owner(dev, qpn), |rmp| Requester { qpn, pd: rmp.pd })
}

/// Takes the next receive work request and prepares its completion.
fn advance(dev: &mut Device, qpn: u32) -> Option<Completion> {
    let at = dev.clock.now();
    let index = match shared(dev, qpn) {
        Some(rmpn) => srq::take(dev, rmpn)?,
        None => {
            let qp = dev.objects.qps.get_mut(&qpn)?;
            qp.rq_consumer = qp.rq_consumer.wrapping_add(1);
            qp.rq_consumer.wrapping_sub(1)
        }
    };
    let qp = dev.objects.qps.get(&qpn)?;
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
        route: (0, 0, 0),
        solicited: false,
        at,
        real_time: qp.real_time(),
        inline: None,
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
        let Ok(posted) = posted(dev, qpn) else { return };
        if !posted {
            return dev.clock.after(WATCH_NS, Due::Data(Timer::Flush { qpn, ticket }));
        }
        let Some(completion) = advance(dev, qpn) else { return };
        report(dev, qpn, Completion { error: Some(CqeError::of(syndrome::FLUSHED)), ..completion });
    }
}
