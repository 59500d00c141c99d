//! Send queues: doorbells, work requests in order, retries, and the way into the error state.

use super::cqe::{Completion, CqeError, Inline, Side, syndrome};
use super::fault::Corruption;
use super::fetch::{self, Body, Fetched, Message};
use super::wire::{self, Answer};
use super::wqe::{Ctrl, DS_UNIT};
use super::{Timer, cq, memory, rq};
use crate::device::Device;
use crate::eq::{self, Event, event};
use crate::objects::QpState;
use crate::time::Due;
use crate::violation::ViolationKind;

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
    /// The request behind the head and its index, fetched before the head was done.
    ahead: Option<(u16, Fetched)>,
    /// The request that came with the last doorbell, and its index: it need not be read from memory if it is at the head.
    flame: Option<(u16, Vec<u8>)>,
    /// Reads and atomics that this turn has sent since the last fence.
    requests: u32,
    /// What uses a shared receive queue has been told that this one takes nothing more from it.
    told_last: bool,
    retries: u8,
    rnr_retries: u8,
    /// The queue's memory cannot be read: nothing of it completes any more.
    unreadable: bool,
    /// What a fault does to the message at the head each time it is sent; `None` before the first time.
    drawn: Option<Corruption>,
}

/// A doorbell: high half the WQE's first dword (index in bits 23:8), low half `qpn << 8 | ds`. The WQE itself may come with it.
pub(crate) fn doorbell(dev: &mut Device, uar: u32, value: u64, request: Option<Vec<u8>>) {
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
    let Ok(word) = dev.dma_read_be32("send doorbell record", record.wrapping_add(4)) else {
        return lost(dev, qpn);
    };
    if !take_record(dev, qpn, word, index) {
        return;
    }
    if let Some(request) = request {
        keep(dev, (qpn, index), request);
    }
    run(dev, qpn);
}

/// A request that came with its doorbell must be the one in memory, unless it was read there and done already. The device takes it
/// if it is next; else it is read from memory when its turn comes.
fn keep(dev: &mut Device, (qpn, index): (u32, u16), request: Vec<u8>) {
    let Some(head) = dev.objects.qps.get(&qpn).map(|qp| qp.sq_consumer) else { return };
    if index.wrapping_sub(head) >= dev.data.send(qpn).producer.wrapping_sub(head) {
        return;
    }
    let Some(there) = fetch::bytes(dev, qpn, index, 0..request.len() / DS_UNIT) else { return };
    if let Some(at) = there.iter().zip(&request).position(|(there, here)| there != here) {
        let detail =
            format!("QP {qpn:#x}, send WQE {index:#x}: byte {at:#x} is {:#x}, not {:#x}", request[at], there[at]);
        dev.violate(ViolationKind::BlueFlameDiffers, detail);
    }
    dev.data.send(qpn).flame = Some((index, request));
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
    dev.data.send(qpn).requests = 0;
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
    let Some((at, limit)) = dev.objects.qps.get(&qpn).map(|qp| (qp.sq_consumer, qp.retry_count)) else { return };
    let run = dev.data.send(qpn);
    let posted = run.producer.wrapping_sub(at);
    let flame = run.flame.take().filter(|(index, _)| *index == at).map(|(_, request)| request);
    let (ctrl, message) = match run.ahead.take() {
        Some((index, fetched)) if index == at => fetched,
        _ => match fetch::request(dev, qpn, at, posted, flame) {
            Some(fetched) => fetched,
            None => return lost(dev, qpn),
        },
    };
    if dev.data.send(qpn).retries > limit {
        return fail(dev, qpn, &ctrl, CqeError::of(syndrome::RETRY_EXCEEDED), None);
    }
    let drawn = message.and_then(|message| {
        let drawn = dev.data.send(qpn).drawn.map_or_else(|| dev.data.faults.message(message.body.len()), Ok)?;
        dev.data.send(qpn).drawn = Some(drawn);
        Ok((message, drawn))
    });
    let (mut message, drawn) = match drawn {
        Ok(drawn) => drawn,
        Err(error) => return fail(dev, qpn, &ctrl, error, None),
    };
    if matches!(message.body, Body::Nothing) {
        return retire(dev, qpn, &ctrl, 0, None);
    }
    corrupt(message.body.outgoing(), drawn);
    let under_way = under_way(dev, qpn, &message);
    match wire::deliver(dev, qpn, &message, under_way) {
        Answer::Ack(answer) => finish(dev, qpn, message, answer, drawn),
        Answer::Nak { error, peer } => fail(dev, qpn, &ctrl, error, peer),
        Answer::NotReady { ns } => wait_ready(dev, qpn, &ctrl, ns),
        Answer::Silence => wait_answer(dev, qpn),
    }
}

fn corrupt(payload: &mut [u8], drawn: Corruption) {
    if let Some((byte, xor)) = drawn.and_then(|(at, xor)| Some((payload.get_mut(at)?, xor))) {
        *byte ^= xor;
    }
}

/// How many reads and atomics wait for their answers once `message` is sent. On the wire of this model an answer comes at
/// once; the peer's room for them is held against the worst that a card could do: all that one doorbell covers are sent before
/// the first answer, as far as `log_sra_max` and fences let it.
fn under_way(dev: &mut Device, qpn: u32, message: &Message) -> u32 {
    let most = dev.objects.qps.get(&qpn).map_or(1, |qp| 1 << qp.log_sra_max);
    let run = dev.data.send(qpn);
    if message.ctrl.fences() {
        run.requests = 0;
    }
    if matches!(message.body, Body::Read { .. } | Body::Atomic { .. }) {
        run.requests = (run.requests + 1).min(most);
    }
    run.requests
}

/// The peer has done what the head asked for. Its answer is written now, or goes into the completion; where that is not
/// permitted, the peer has done it all the same. An answer for the completion of a request that asked for none is lost: who
/// wants answers in completions has to ask for those.
fn finish(dev: &mut Device, qpn: u32, message: Message, mut answer: Vec<u8>, drawn: Corruption) {
    let (ctrl, len) = (message.ctrl, message.body.len());
    if !answer.is_empty() {
        look_ahead(dev, qpn, &ctrl);
    }
    corrupt(&mut answer, drawn);
    let inline = dev.objects.qps.get(&qpn).and_then(|qp| Inline::take(&answer, qp.scatter_req.bytes()));
    let who = memory::owner(dev, qpn);
    match memory::place(dev, who, &message.body.into_list(), &answer, inline.is_some()) {
        Ok(()) => retire(dev, qpn, &ctrl, len, inline),
        Err(error) => fail(dev, qpn, &ctrl, error, None),
    }
}

/// Fetches the request behind one whose answer is still to be written, unless it asks for a fence: it gathers its payload from
/// memory as it is before the answer is there, as a card may.
fn look_ahead(dev: &mut Device, qpn: u32, ctrl: &Ctrl) {
    let Some(head) = dev.objects.qps.get(&qpn).map(|qp| qp.sq_consumer) else { return };
    let left = dev.data.send(qpn).producer.wrapping_sub(head);
    let posted = left.saturating_sub(ctrl.blocks());
    let next = head.wrapping_add(ctrl.blocks());
    if posted > 0 && fetch::control(dev, qpn, next).is_some_and(|next| !next.fences()) {
        let fetched = fetch::request(dev, qpn, next, posted, None);
        dev.data.send(qpn).ahead = fetched.map(|fetched| (next, fetched));
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
fn retire(dev: &mut Device, qpn: u32, ctrl: &Ctrl, bytes: u64, inline: Option<Inline>) {
    let run = dev.data.send(qpn);
    run.retries = 0;
    run.rnr_retries = 0;
    let Some(completion) = advance(dev, qpn, ctrl) else { return };
    if ctrl.signalled {
        report(dev, qpn, Completion { byte_cnt: bytes as u32, inline, ..completion });
    }
}

/// Moves the consumer behind the head and prepares its completion. `None` when the head is gone: a queue pair that talks
/// to itself may have gone to error, and been flushed, while its message was on the wire.
fn advance(dev: &mut Device, qpn: u32, ctrl: &Ctrl) -> Option<Completion> {
    let at = dev.clock.now();
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
        route: (0, 0, 0),
        solicited: false,
        at,
        real_time: qp.real_time(),
        inline: None,
    })
}

/// Writes a completion to the send CQ; a queue pair whose CQ is broken breaks down itself.
fn report(dev: &mut Device, qpn: u32, completion: Completion) {
    let Some(cqn) = dev.objects.qps.get(&qpn).map(|qp| qp.cqn_send) else { return };
    if !cq::complete(dev, cqn, completion) {
        broken(dev, qpn);
    }
}

/// The CQ of a queue pair takes no more completions. One that was just reset does not care.
pub(crate) fn broken(dev: &mut Device, qpn: u32) {
    if dev.objects.qps.get(&qpn).is_some_and(|qp| !matches!(qp.state, QpState::Error | QpState::Reset)) {
        eq::report(dev, Event::queue_pair(event::WQ_CATASTROPHIC, qpn));
        enter_error(dev, qpn);
    }
}

/// The queue's memory cannot be read: which request failed cannot be said, so an event tells of it (local work queue catastrophic
/// error), and nothing completes.
fn lost(dev: &mut Device, qpn: u32) {
    dev.data.send(qpn).unreadable = true;
    broken(dev, qpn);
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
    let run = dev.data.send(qpn);
    run.waiting = None;
    run.ahead = None;
    flush(dev, qpn);
    rq::start_flush(dev, qpn);
    tell_last(dev, qpn);
}

/// A queue pair in error takes nothing more from its shared receive queue: an event says so, once, behind its last completion.
fn tell_last(dev: &mut Device, qpn: u32) {
    let Some(qp) = dev.objects.qps.get(&qpn).filter(|qp| qp.shared().is_some()) else { return };
    let cqn = qp.cqn_recv;
    if !std::mem::replace(&mut dev.data.send(qpn).told_last, true) {
        cq::release(dev, cqn);
        eq::report(dev, Event::queue_pair(event::SRQ_LAST_WQE, qpn));
    }
}

/// Completes all outstanding send work requests as flushed, as far as they can be read.
fn flush(dev: &mut Device, qpn: u32) {
    if dev.data.send(qpn).unreadable {
        return;
    }
    while dev
        .objects
        .qps
        .get(&qpn)
        .is_some_and(|qp| qp.sq_consumer != dev.data.sends.get(&qpn).map_or(qp.sq_consumer, |run| run.producer))
    {
        let Some(at) = dev.objects.qps.get(&qpn).map(|qp| qp.sq_consumer) else { return };
        let Some(ctrl) = fetch::control(dev, qpn, at) else { return lost(dev, qpn) };
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
