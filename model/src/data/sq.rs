//! Send queues: doorbells, work requests in order, retries, and the way into the error state.

use super::cqe::{Completion, CqeError, Side, syndrome};
use super::fault::Corruption;
use super::mkey::Access;
use super::wire::{self, Answer};
use super::wqe::{self, Ctrl, DS_UNIT, Segment, WqeFault, opcode};
use super::{Timer, cq, rq};
use crate::device::Device;
use crate::eq::{self, Event, event};
use crate::objects::{Qp, QpState};
use crate::time::Due;
use crate::violation::ViolationKind;

/// Payload is read from memory in pieces of at most this size, so that an absurd length costs nothing before it fails.
const CHUNK: u64 = 1 << 16;

/// What the data path keeps of a send queue besides the context.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendRun {
    /// Producer as last read from the record, in basic blocks.
    producer: u16,
    /// WQE index that the last doorbell named.
    rung: Option<u16>,
    /// The message at the head waits for this timer.
    waiting: Option<u64>,
    /// The queue pair is in error and looks for receive work requests at this timer.
    pub(super) watch: Option<u64>,
    retries: u8,
    rnr_retries: u8,
    /// What a fault does to the message at the head each time it is sent; `None` before the first time.
    drawn: Option<Corruption>,
}

/// One message, ready for the wire.
pub(crate) struct Message {
    pub(crate) ctrl: Ctrl,
    pub(crate) payload: Vec<u8>,
}

/// A doorbell: high half the WQE's first dword (index in bits 23:8), low half `qpn << 8 | ds`.
pub(crate) fn doorbell(dev: &mut Device, uar: u32, value: u64) {
    let (index, qpn) = ((value >> 40) as u16, value as u32 >> 8);
    let Some(qp) = dev.objects.qps.get(&qpn) else {
        dev.violate(ViolationKind::DoorbellUnknownObject, format!("QP {qpn:#x} in UAR {uar:#x}"));
        return;
    };
    let (state, record) = (qp.state, qp.dbr_addr);
    if qp.uar != uar {
        let detail = format!("QP {qpn:#x} has UAR {:#x}, doorbell in {uar:#x}", qp.uar);
        dev.violate(ViolationKind::DoorbellWrongUar, detail);
        return;
    }
    if qp.no_sq || !matches!(state, QpState::Rts | QpState::Error) {
        dev.violate(ViolationKind::SendDoorbellState, format!("QP {qpn:#x} is in state {state:?}"));
        return;
    }
    let Ok(word) = dev.dma_read_be32("send doorbell record", record.wrapping_add(4)) else { return };
    if take_record(dev, qpn, word, index) {
        run(dev, qpn);
    }
}

/// Checks the record against the doorbell and the queue, and takes over the new producer.
fn take_record(dev: &mut Device, qpn: u32, word: u32, index: u16) -> bool {
    let Some(qp) = dev.objects.qps.get(&qpn) else { return false };
    let (consumer, blocks) = (qp.sq_consumer, 1_u32 << qp.log_sq_size);
    let producer = word as u16;
    if word >> 16 != 0 {
        dev.violate(ViolationKind::DoorbellRecordReserved, format!("QP {qpn:#x}: send counter {word:#x}"));
    }
    let outstanding = u32::from(producer.wrapping_sub(consumer));
    if outstanding > blocks {
        let detail = format!("QP {qpn:#x}: producer {producer:#x}, consumer {consumer:#x}, {blocks} blocks");
        dev.violate(ViolationKind::SendQueueOverrun, detail);
        return false;
    }
    let run = dev.data.send(qpn);
    // Behind the producer, however far: a doorbell that was long on its way finds its WQE executed already.
    let covered = (1..=0x8000).contains(&producer.wrapping_sub(index));
    let repeated = run.producer == producer && run.rung == Some(index);
    run.producer = producer;
    run.rung = Some(index);
    if !covered || repeated {
        let detail = format!("QP {qpn:#x}: doorbell for WQE {index:#x}, record says {producer:#x}");
        dev.violate(ViolationKind::SendRecordStale, detail);
    }
    true
}

/// The time to try the head again has come.
pub(crate) fn resend(dev: &mut Device, qpn: u32, ticket: u64) {
    if let Some(run) = dev.data.sends.get_mut(&qpn).filter(|run| run.waiting == Some(ticket)) {
        run.waiting = None;
        self::run(dev, qpn);
    }
}

/// Carries out what the record covers, until the queue is empty or its head has to wait.
fn run(dev: &mut Device, qpn: u32) {
    while let Some(qp) = dev.objects.qps.get(&qpn) {
        let (state, consumer) = (qp.state, qp.sq_consumer);
        let queue = dev.data.send(qpn);
        if queue.waiting.is_some() || consumer == queue.producer {
            return;
        }
        match state {
            QpState::Rts => step(dev, qpn),
            QpState::Error => return flush(dev, qpn),
            _ => return,
        }
    }
}

/// Carries out the work request at the head.
fn step(dev: &mut Device, qpn: u32) {
    let (ctrl, message) = fetch(dev, qpn);
    let limit = dev.objects.qps.get(&qpn).map_or(0, |qp| qp.retry_count);
    if dev.data.send(qpn).retries > limit {
        return fail(dev, qpn, &ctrl, CqeError::of(syndrome::RETRY_EXCEEDED), None);
    }
    let message = message.and_then(|mut message| {
        let drawn = dev.data.send(qpn).drawn.map_or_else(|| dev.data.faults.message(message.payload.len()), Ok)?;
        dev.data.send(qpn).drawn = Some(drawn);
        if let Some((byte, xor)) = drawn.and_then(|(at, xor)| Some((message.payload.get_mut(at)?, xor))) {
            *byte ^= xor;
        }
        Ok(message)
    });
    let message = match message {
        Ok(message) => message,
        Err(error) => return fail(dev, qpn, &ctrl, error, None),
    };
    if ctrl.opcode == opcode::NOP {
        return retire(dev, qpn, &ctrl, 0);
    }
    match wire::deliver(dev, qpn, &message) {
        Answer::Ack => retire(dev, qpn, &ctrl, message.payload.len()),
        Answer::Nak { error, peer } => fail(dev, qpn, &ctrl, error, Some(peer)),
        Answer::NotReady { ns } => wait_ready(dev, qpn, &ctrl, ns),
        Answer::Silence => wait_answer(dev, qpn),
    }
}

/// The peer had no receive work request: again after its timer, as often as `rnr_retry` allows (7: for ever).
fn wait_ready(dev: &mut Device, qpn: u32, ctrl: &Ctrl, ns: u64) {
    let Some(limit) = dev.objects.qps.get(&qpn).map(|qp| qp.rnr_retry) else { return };
    let run = dev.data.send(qpn);
    if limit != 7 && run.rnr_retries >= limit {
        return fail(dev, qpn, ctrl, CqeError::of(syndrome::RNR_RETRY_EXCEEDED), None);
    }
    run.rnr_retries = run.rnr_retries.saturating_add(1);
    wait(dev, qpn, Some(ns));
}

/// Nobody answered: on after the ACK timeout of 4.096 us * 2^n (0: never).
fn wait_answer(dev: &mut Device, qpn: u32) {
    let Some(timeout) = dev.objects.qps.get(&qpn).map(|qp| qp.path.ack_timeout) else { return };
    let run = dev.data.send(qpn);
    run.retries = run.retries.saturating_add(1);
    wait(dev, qpn, (timeout != 0).then_some(4096 << timeout));
}

fn wait(dev: &mut Device, qpn: u32, ns: Option<u64>) {
    let ticket = dev.data.ticket();
    dev.data.send(qpn).waiting = Some(ticket);
    if let Some(ns) = ns {
        dev.clock.after(ns, Due::Data(Timer::Resend { qpn, ticket }));
    }
}

/// The head is done: completion if asked for, and on to the next.
fn retire(dev: &mut Device, qpn: u32, ctrl: &Ctrl, bytes: usize) {
    let run = dev.data.send(qpn);
    run.retries = 0;
    run.rnr_retries = 0;
    let Some(completion) = advance(dev, qpn, ctrl) else { return };
    if ctrl.signalled {
        report(dev, qpn, Completion { byte_cnt: bytes as u32, ..completion });
    }
}

/// Moves the consumer behind the head and prepares its completion. `None` when the head is gone: a queue pair that talks
/// to itself may have gone to error, and been flushed, while its message was on the wire.
fn advance(dev: &mut Device, qpn: u32, ctrl: &Ctrl) -> Option<Completion> {
    let timestamp = super::timestamp(dev);
    let run = dev.data.send(qpn);
    run.drawn = None;
    let posted = run.producer;
    let qp = dev.objects.qps.get_mut(&qpn)?;
    let index = qp.sq_consumer;
    let left = posted.wrapping_sub(index);
    if left == 0 {
        return None;
    }
    qp.sq_consumer = index.wrapping_add(ctrl.blocks().min(left));
    Some(Completion {
        side: Side::Send,
        error: None,
        user_index: qp.user_index,
        qpn,
        wqe_counter: index,
        send_opcode: ctrl.opcode,
        byte_cnt: 0,
        imm: 0,
        src_qpn: 0,
        solicited: false,
        timestamp,
    })
}

/// Writes a completion to the send CQ; a queue pair whose CQ is broken breaks down itself.
fn report(dev: &mut Device, qpn: u32, completion: Completion) {
    let Some(cqn) = dev.objects.qps.get(&qpn).map(|qp| qp.cqn_send) else { return };
    if !cq::complete(dev, cqn, completion) {
        broken(dev, qpn);
    }
}

/// The CQ of a queue pair takes no more completions.
pub(crate) fn broken(dev: &mut Device, qpn: u32) {
    if dev.objects.qps.get(&qpn).is_some_and(|qp| qp.state != QpState::Error) {
        eq::report(dev, Event::queue_pair(event::WQ_CATASTROPHIC, qpn));
        enter_error(dev, qpn);
    }
}

/// The head completes in error, whether or not a completion was asked for, and the queue pair goes to error; before it
/// the peer, if that is to blame.
fn fail(dev: &mut Device, qpn: u32, ctrl: &Ctrl, error: CqeError, peer: Option<u32>) {
    if let Some(completion) = advance(dev, qpn, ctrl) {
        report(dev, qpn, Completion { error: Some(error), ..completion });
    }
    if let Some(peer) = peer {
        enter_error(dev, peer);
    }
    enter_error(dev, qpn);
}

/// Error state: what is outstanding on both queues is flushed, and what comes later too.
pub(crate) fn enter_error(dev: &mut Device, qpn: u32) {
    let Some(qp) = dev.objects.qps.get_mut(&qpn) else { return };
    qp.state = QpState::Error;
    dev.data.send(qpn).waiting = None;
    flush(dev, qpn);
    rq::start_flush(dev, qpn);
}

/// Completes all outstanding send work requests as flushed.
fn flush(dev: &mut Device, qpn: u32) {
    while dev
        .objects
        .qps
        .get(&qpn)
        .is_some_and(|qp| qp.sq_consumer != dev.data.sends.get(&qpn).map_or(qp.sq_consumer, |run| run.producer))
    {
        let Some(ctrl) = read_ctrl(dev, qpn) else { return };
        let Some(completion) = advance(dev, qpn, &ctrl) else { return };
        report(dev, qpn, Completion { error: Some(CqeError::of(syndrome::FLUSHED)), ..completion });
    }
}

/// Back to the reset state: counters start anew.
pub(crate) fn restart(dev: &mut Device, qpn: u32) {
    dev.data.sends.remove(&qpn);
    if let Some(qp) = dev.objects.qps.get_mut(&qpn) {
        qp.sq_consumer = 0;
        qp.rq_consumer = 0;
    }
}

fn read_ctrl(dev: &mut Device, qpn: u32) -> Option<Ctrl> {
    let qp = dev.objects.qps.get(&qpn)?;
    let (buffer, at) = (qp.buffer.clone(), wqe::send_at(qp, qp.sq_consumer, 0));
    let mut raw = [0; DS_UNIT];
    dev.buffer_read("send work request", &buffer, at, &mut raw).ok()?;
    Some(Ctrl::decode(&raw))
}

/// Reads the work request at the head and gathers its payload. The control segment comes back in any case.
fn fetch(dev: &mut Device, qpn: u32) -> (Ctrl, Result<Message, CqeError>) {
    let Some(ctrl) = read_ctrl(dev, qpn) else {
        return (Ctrl::decode(&[]), Err(CqeError::of(syndrome::LOCAL_QP_OP)));
    };
    let message = check(dev, qpn, &ctrl)
        .and_then(|()| segments(dev, qpn, &ctrl))
        .and_then(|segments| gather(dev, qpn, segments))
        .map(|payload| Message { ctrl, payload });
    (ctrl, message)
}

fn malformed(dev: &mut Device, qpn: u32, index: u16, what: &str) -> CqeError {
    dev.violate(ViolationKind::WqeMalformed, format!("QP {qpn:#x}, send WQE {index:#x}: {what}"));
    CqeError::of(syndrome::LOCAL_QP_OP)
}

/// Checks a control segment against the place where it was found.
fn check(dev: &mut Device, qpn: u32, ctrl: &Ctrl) -> Result<(), CqeError> {
    let posted = dev.data.send(qpn).producer;
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(CqeError::of(syndrome::LOCAL_QP_OP)) };
    let at = qp.sq_consumer;
    let signed = qp.wq_signature;
    let fault = if let Err(fault) = ctrl.check() {
        format!("{fault:?}")
    } else if ctrl.index != at {
        format!("index {:#x}", ctrl.index)
    } else if ctrl.qpn != qpn {
        format!("queue number {:#x}", ctrl.qpn)
    } else if ctrl.blocks() > posted.wrapping_sub(at) {
        format!("{} blocks, {} posted", ctrl.blocks(), posted.wrapping_sub(at))
    } else if ctrl.signature != 0 && !signed {
        format!("signature {:#x} without wq_signature", ctrl.signature)
    } else if !matches!(ctrl.opcode, opcode::NOP | opcode::SEND | opcode::SEND_IMM) {
        return Err(CqeError::of(syndrome::LOCAL_QP_OP));
    } else {
        return Ok(());
    };
    Err(malformed(dev, qpn, at, &fault))
}

/// Reads the segments behind the control segment, across the end of the ring.
fn segments(dev: &mut Device, qpn: u32, ctrl: &Ctrl) -> Result<Vec<Segment>, CqeError> {
    let Some(qp) = dev.objects.qps.get(&qpn) else { return Err(CqeError::of(syndrome::LOCAL_QP_OP)) };
    let (buffer, index) = (qp.buffer.clone(), qp.sq_consumer);
    let places: Vec<u64> = (1..usize::from(ctrl.ds)).map(|unit| wqe::send_at(qp, index, unit)).collect();
    let mut raw = vec![0; places.len() * DS_UNIT];
    for (piece, at) in raw.chunks_exact_mut(DS_UNIT).zip(places) {
        if dev.buffer_read("send work request", &buffer, at, piece).is_err() {
            return Err(CqeError::of(syndrome::LOCAL_QP_OP));
        }
    }
    wqe::decode_payload(&raw).map_err(|fault: WqeFault| malformed(dev, qpn, index, &format!("{fault:?}")))
}

/// Collects the bytes of a message.
fn gather(dev: &mut Device, qpn: u32, segments: Vec<Segment>) -> Result<Vec<u8>, CqeError> {
    let length: u64 = segments.iter().map(Segment::len).sum();
    let limit = dev.objects.qps.get(&qpn).map_or(0, |qp: &Qp| 1_u64 << qp.log_msg_max);
    if length > limit {
        return Err(CqeError::of(syndrome::LOCAL_LENGTH));
    }
    let mut payload = Vec::new();
    for segment in segments {
        match segment {
            Segment::Inline(data) => payload.extend_from_slice(&data),
            Segment::Data(seg) => {
                for piece in rq::pieces(dev, qpn, seg, Access::LocalRead)? {
                    read_piece(dev, piece.iova, piece.len, &mut payload)?;
                }
            }
        }
    }
    Ok(payload)
}

fn read_piece(dev: &mut Device, iova: u64, len: u64, payload: &mut Vec<u8>) -> Result<(), CqeError> {
    let mut done = 0;
    while done < len {
        let take = CHUNK.min(len - done);
        let old = payload.len();
        payload.resize(old + take as usize, 0);
        if dev.dma_read("message payload", iova.wrapping_add(done), &mut payload[old..]).is_err() {
            return Err(CqeError::of(syndrome::LOCAL_PROT));
        }
        done += take;
    }
    Ok(())
}
