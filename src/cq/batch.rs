//! The core of polling: entries are taken from a ring, matched to requests, and given back when the batch ends.

use core::sync::atomic::AtomicU32;

use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, CqeRef, INDEX_MASK};
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::ring::{Alike, Consumer, CqeFormat, InOrder, Ring, is_from};
use mlx5_hw::simd::Cpu;

use super::alike::{Likeness, Pattern, Requests};
use super::completion::{Current, send_opcode};
use super::rows::{Pass, Reader, Row};
use super::{PollError, Shared, SigErr, Wc, WcStatus, purge, sessions};
use crate::keys::Keys;
use crate::qp::QpWork;
use crate::srq::Chain;

/// Where a completion is delivered to. A trait and no closure, as it must be inlined: then the entry's fields go from the
/// ring to their place, while an entry that is moved as a whole costs more than reading it.
pub(super) trait Place<'m> {
    /// What is remembered of sessions serves this place.
    const OF_RECORDS: bool = false;

    fn put(&mut self, current: Current<'m>);
}

impl Place<'_> for Wc {
    const OF_RECORDS: bool = true;

    #[inline(always)]
    fn put(&mut self, current: Current<'_>) {
        *self = current.wc();
    }
}

impl<'m> Place<'m> for Current<'m> {
    #[inline(always)]
    fn put(&mut self, current: Current<'m>) {
        *self = current;
    }
}

impl<'m> Place<'m> for Option<Current<'m>> {
    #[inline(always)]
    fn put(&mut self, current: Current<'m>) {
        *self = Some(current);
    }
}

/// What arrays of completions are filled with.
pub(super) trait Filled: for<'m> Place<'m> + Sized {
    /// Takes entries that are alike from the ring; how many.
    fn take<F: CqeFormat>(
        ring: &mut Ring<F>,
        mem: &[AtomicU32],
        cpu: Cpu,
        alike: &Alike<'_>,
        next: InOrder<'_>,
        to: &mut [Self],
    ) -> usize;

    /// Takes completions of sessions that are like the one before; how many. The rest, or all, come one by one.
    fn take_titled<F: CqeFormat>(_: &mut Batch<'_, F>, _: &mut [Self]) -> usize {
        0
    }

    /// The request's name.
    fn wr_id(&mut self) -> &mut u64;
}

impl Filled for Wc {
    #[inline(always)]
    fn take<F: CqeFormat>(
        ring: &mut Ring<F>,
        mem: &[AtomicU32],
        _: Cpu,
        alike: &Alike<'_>,
        next: InOrder<'_>,
        to: &mut [Self],
    ) -> usize {
        ring.take_alike(mem, alike, next, to)
    }

    #[inline(always)]
    fn take_titled<F: CqeFormat>(batch: &mut Batch<'_, F>, to: &mut [Self]) -> usize {
        batch.take_titled(to)
    }

    #[inline(always)]
    fn wr_id(&mut self) -> &mut u64 {
        &mut self.wr_id
    }
}

/// Where a batch is read.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    pub(super) mem: &'a [AtomicU32],
    /// Index behind the last entry that may be marked.
    pub(super) marked: u32,
    /// The device may go on in another ring: an entry that says so has this index or a later one.
    pub(super) resizing: Option<u32>,
}

/// What is remembered from batch to batch.
pub(super) struct Memory<'a> {
    pub(super) reader: &'a mut Reader<QpWork>,
    pub(super) likeness: &'a mut Likeness,
}

/// What became of one entry.
enum Taken {
    Delivered,
    Dropped,
    /// It says that the device goes on in another ring.
    Last,
    Bad(PollError),
}

/// Whether an entry ends a receive; `None` if it ends no request.
#[inline(always)]
pub(super) fn ends_receive(cqe: CqeRef<'_>) -> Option<bool> {
    match (cqe.format(), cqe.opcode()) {
        (CqeDataFormat::COMPRESSED, _) => None,
        (_, CqeOpcode::REQ | CqeOpcode::REQ_ERR) => Some(false),
        (
            _,
            CqeOpcode::RESP_WR_IMM
            | CqeOpcode::RESP_SEND
            | CqeOpcode::RESP_SEND_IMM
            | CqeOpcode::RESP_SEND_INV
            | CqeOpcode::RESP_ERR,
        ) => Some(true),
        _ => None,
    }
}

/// An entry that ends no request. Its user index is not looked up: not all of these have one.
#[cold]
fn without_request<F: CqeFormat>(cqe: CqeRef<'_>) -> Taken {
    let user_index = cqe.srqn_or_uidx();
    Taken::Bad(match (cqe.format(), cqe.opcode()) {
        (CqeDataFormat::COMPRESSED, _) => PollError::BadSession { count: F::session_length(cqe) },
        (_, CqeOpcode::RESIZE_CQ) => return Taken::Last,
        (_, CqeOpcode::SIG_ERR) => PollError::Signature(SigErr::of(cqe)),
        (_, CqeOpcode::NO_PACKET) => PollError::NoTagList { app_op: cqe.field(Cqe64Layout::APP_OP) as u8, user_index },
        _ => return unknown_opcode(cqe),
    })
}

/// An entry of a queue pair that is gone. What its receives took from a shared receive queue comes free.
#[cold]
fn left_behind(cqe: CqeRef<'_>, receiver: Option<&QpWork>) -> Taken {
    if let Some(srq) = receiver.and_then(|queue| queue.srq.as_ref()) {
        srq.complete(cqe.wqe_counter());
    }
    Taken::Dropped
}

#[cold]
fn unknown_opcode(cqe: CqeRef<'_>) -> Taken {
    Taken::Bad(PollError::UnknownOpcode {
        opcode: cqe.opcode().0,
        send_opcode: cqe.sop_opcode(),
        user_index: cqe.srqn_or_uidx(),
    })
}

#[cold]
fn unknown_queue(cqe: CqeRef<'_>) -> Taken {
    Taken::Bad(PollError::UnknownQueue { user_index: cqe.srqn_or_uidx(), qpn: cqe.qpn() })
}

#[cold]
fn unexpected_format(cqe: CqeRef<'_>) -> Taken {
    Taken::Bad(PollError::UnexpectedFormat { format: cqe.format().0, user_index: cqe.srqn_or_uidx() })
}

/// Finds the request that an entry ends. Every number in the entry is looked up, masked or checked.
#[inline(always)]
fn take<'m, F: CqeFormat, P: Place<'m>>(
    cqe: CqeRef<'m>,
    pass: &mut Pass<'_, QpWork>,
    known: &Known<'_>,
    likeness: &mut Likeness,
    place: &mut P,
) -> Taken {
    let user_index = cqe.dword::<{ Cqe64Layout::SRQN_UIDX.dword() }>();
    let receive = cqe.opcode() != CqeOpcode::REQ;
    if let Row::Live(queue) = pass.find(user_index.get() & INDEX_MASK)
        && is_plain(cqe, &queue, known.cqn)
    {
        let Some(wr_id) = end_request(&queue, receive, cqe.wqe_counter()) else { return unknown_queue(cqe) };
        let current = Current { cqe, wr_id, status: WcStatus::SUCCESS };
        if !cqe.is_compressed() {
            likeness.see::<F>(cqe.words(), cqe.op_own(), user_index, queue);
        } else if P::OF_RECORDS {
            sessions::see(&mut likeness.titled, &current);
        }
        place.put(current);
        return Taken::Delivered;
    }
    take_unusual::<F>(cqe, pass, known, place)
}

/// The request is over. Its `wr_id`; `None` if there is none.
#[inline(always)]
fn end_request(queue: &QpWork, receive: bool, counter: u16) -> Option<u64> {
    match &queue.srq {
        Some(srq) if receive => srq.complete(counter),
        _ => queue.queue(receive).complete(counter, receive),
    }
}

/// The same for entries that are not ordinary, or not what they seem.
#[cold]
#[inline(never)]
fn take_unusual<'m, F: CqeFormat>(
    cqe: CqeRef<'m>,
    pass: &mut Pass<'_, QpWork>,
    known: &Known<'_>,
    place: &mut impl Place<'m>,
) -> Taken {
    let Some(receive) = ends_receive(cqe) else { return without_request::<F>(cqe) };
    let queue = match pass.find(cqe.srqn_or_uidx()) {
        Row::Live(queue) => queue,
        Row::Gone(queue) => return left_behind(cqe, queue.filter(|_| receive)),
        Row::Unknown => return unknown_queue(cqe),
    };
    if !queue.queue(receive).reported_by(known.cqn) {
        return unknown_queue(cqe);
    }
    if cqe.opcode() == CqeOpcode::REQ && send_opcode(cqe).is_none() {
        return unknown_opcode(cqe);
    }
    // Before the request is over: afterwards its place in the queue may be another's.
    let status = if cqe.is_error() {
        WcStatus(cqe.syndrome().wc_status())
    } else if cqe.format() == CqeDataFormat::NO_INLINE_DATA {
        WcStatus::SUCCESS
    } else {
        match queue.scatter(receive, cqe, known.keys) {
            Some(status) => status,
            None => return unexpected_format(cqe),
        }
    };
    let Some(wr_id) = end_request(&queue, receive, cqe.wqe_counter()) else { return unknown_queue(cqe) };
    place.put(Current { cqe, wr_id, status });
    Taken::Delivered
}

/// What does not change while a CQ is polled.
pub(super) struct Known<'a> {
    pub(super) cqn: u32,
    keys: &'a Keys,
}

/// One batch: entries are taken through it, and its end gives them back to the device with one store.
///
/// The fields are dropped in their order: first the consumer, which gives the entries back, then the [`Ending`].
pub(super) struct Batch<'a, F: CqeFormat> {
    pub(super) entries: Consumer<'a, F>,
    /// Number of ring slots: the most that one batch takes.
    slots: u32,
    /// Index behind the last entry that may be marked.
    marked: u32,
    /// As in [`Slots`]: this batch ends before the entry that says so.
    resizing: Option<u32>,
    pub(super) likeness: &'a mut Likeness,
    pub(super) known: Known<'a>,
    pub(super) ending: Ending<'a>,
}

/// What remains to be done when the entries of a batch were given back.
pub(super) struct Ending<'a> {
    pub(super) pass: Pass<'a, QpWork>,
}

impl<'a, F: CqeFormat> Batch<'a, F> {
    /// Starts a batch, of which the end is published in `record`; `None` only if the CQ's memory were shorter than its ring, which creation rules out.
    #[inline(always)]
    pub(super) fn begin(
        ring: &'a mut Ring<F>,
        Slots { mem, marked, resizing }: Slots<'a>,
        shared: &'a Shared,
        Memory { reader, likeness }: Memory<'a>,
        record: Option<CqDbRec<'a>>,
    ) -> Option<Self> {
        let (slots, entries) = (ring.entries(), ring.consume_to(mem, record).ok()?);
        let ending = Ending { pass: reader.begin() };
        let known = Known { cqn: shared.cqn, keys: shared.dev.keys() };
        Some(Self { entries, slots, marked, resizing, likeness, known, ending })
    }

    /// Takes entries until one can be delivered, to `place`, or is bad; false when no more are there.
    #[inline(always)]
    pub(super) fn next(&mut self, place: &mut impl Place<'a>) -> Result<bool, PollError> {
        loop {
            let Some(cqe) = self.entries.next() else {
                // A batch that took a whole ring has not looked behind it.
                if self.entries.taken() < self.slots {
                    self.ending.pass.saw_empty();
                }
                return Ok(false);
            };
            if purge::looks_marked(cqe) && self.was_there_at_the_reset() {
                continue;
            }
            match take::<F, _>(cqe, &mut self.ending.pass, &self.known, self.likeness, place) {
                Taken::Delivered => return Ok(true),
                Taken::Bad(error) => return Err(error),
                Taken::Last if self.goes_on_elsewhere() => {
                    self.entries.put_back();
                    return Ok(false);
                }
                // Of a resize that nobody asked for, or that was asked for twice.
                Taken::Dropped | Taken::Last => {}
            }
        }
    }

    /// Whether the entry that was taken last, which says that it is the last one, is of the resize under way.
    #[cold]
    fn goes_on_elsewhere(&self) -> bool {
        self.resizing.is_some_and(|since| is_from(self.entries.ci().wrapping_sub(1), since))
    }

    /// Whether the entry that was taken last was in the ring when a queue pair was reset last.
    #[inline(always)]
    fn was_there_at_the_reset(&self) -> bool {
        self.marked.wrapping_sub(self.entries.ci()) < self.slots
    }
}

/// Fills `to` from entries that are like the ones before; how many.
#[inline(always)]
pub(super) fn fill_alike<F: CqeFormat, P: Filled>(
    ring: &mut Ring<F>,
    mem: &[AtomicU32],
    reader: &mut Reader<QpWork>,
    likeness: &Likeness,
    to: &mut [P],
) -> usize {
    let Likeness { cpu, pattern, .. } = likeness;
    let Some(Pattern { alike, requests }) = pattern else { return 0 };
    match requests {
        Requests::InOrder(work) => {
            let Some(work) = reader.again(work) else { return 0 };
            let taken = P::take(ring, mem, *cpu, alike, work.next_in_order(), to);
            work.advance(taken as u32);
            taken
        }
        Requests::Shared(srq) => {
            let Some(srq) = reader.again(srq) else { return 0 };
            let taken = P::take(ring, mem, *cpu, alike, InOrder::NONE, to);
            let (mut ended, mut chain) = (0, Chain::default());
            for name in to.iter_mut().take(taken).map(P::wr_id) {
                // The record has the place for its name. One that names no request is looked at on its own.
                let Some(wr_id) = srq.end(*name as u16, &mut chain) else { break };
                *name = wr_id;
                ended += 1;
            }
            srq.give(chain);
            ring.put_back((taken - ended) as u32);
            ended
        }
    }
}

/// Fills `wc` from the next entry, if that is like the ones before and its request the oldest of its queue; whether it did.
#[inline(always)]
pub(super) fn fill_one_alike<F: CqeFormat>(
    ring: &mut Ring<F>,
    mem: &[AtomicU32],
    reader: &mut Reader<QpWork>,
    likeness: &Likeness,
    wc: &mut Wc,
) -> bool {
    let Some(Pattern { alike, requests: Requests::InOrder(work) }) = &likeness.pattern else { return false };
    let Some(work) = reader.again(work) else { return false };
    let taken = ring.take_one_alike(mem, alike, work.next_in_order(), wc);
    if taken {
        work.advance(1);
    }
    taken
}

/// Fills `wcs` from the front; how many, and the bad entry that ended it early. Afterwards the consumer index is to be published.
#[inline(always)]
pub(super) fn fill<F: CqeFormat, P: Filled>(
    ring: &mut Ring<F>,
    slots: Slots<'_>,
    shared: &Shared,
    Memory { reader, likeness }: Memory<'_>,
    wcs: &mut [P],
) -> (usize, Option<PollError>) {
    let mut filled = 0;
    loop {
        let Some(rest) = wcs.get_mut(filled..) else { return (filled, None) };
        let taken = fill_alike(ring, slots.mem, reader, likeness, rest);
        filled += taken;
        if filled == wcs.len() || ring.is_empty(slots.mem) && reader.is_settled() {
            return (filled, None);
        }
        if taken != 0 {
            continue;
        }
        let Some(rest) = wcs.get_mut(filled..) else { return (filled, None) };
        let taken = fill_ordinary(ring, slots.mem, shared.cqn, reader, likeness, rest);
        filled += taken;
        if taken != 0 {
            continue;
        }
        let Some(rest) = wcs.get_mut(filled..) else { return (filled, None) };
        match fill_each(ring, slots, shared, Memory { reader, likeness }, rest) {
            (taken, Some(Ended::Once)) => filled += taken,
            (taken, Some(Ended::Bad(error))) => return (filled + taken, Some(error)),
            (taken, None) => return (filled + taken, None),
        }
    }
}

/// Fills `wcs` from ordinary entries of plain rings, until they are alike; how many. Nothing here is handed to a function that is not
/// inlined, so that an entry's fields go from the ring to their place.
#[inline(never)]
fn fill_ordinary<F: CqeFormat, P: Filled>(
    ring: &mut Ring<F>,
    mem: &[AtomicU32],
    cqn: u32,
    reader: &mut Reader<QpWork>,
    likeness: &mut Likeness,
    wcs: &mut [P],
) -> usize {
    if size_of::<F::Kept>() != 0 {
        return 0;
    }
    let Ok(mut entries) = ring.consume(mem) else { return 0 };
    let mut filled = 0;
    for wc in wcs {
        let Some(cqe) = entries.next() else { break };
        let user_index = cqe.dword::<{ Cqe64Layout::SRQN_UIDX.dword() }>();
        let receive = cqe.opcode() != CqeOpcode::REQ;
        let ended = match reader.find(user_index.get() & INDEX_MASK) {
            Row::Live(queue) if is_plain(cqe, &queue, cqn) => {
                end_request(&queue, receive, cqe.wqe_counter()).map(|wr_id| (queue, wr_id))
            }
            _ => None,
        };
        let Some((queue, wr_id)) = ended else {
            entries.put_back();
            break;
        };
        wc.put(Current { cqe, wr_id, status: WcStatus::SUCCESS });
        filled += 1;
        if likeness.see::<F>(cqe.words(), cqe.op_own(), user_index, queue) {
            break;
        }
    }
    filled
}

/// Whether an entry is ordinary and what it names is this CQ's.
#[inline(always)]
fn is_plain(cqe: CqeRef<'_>, queue: &QpWork, cqn: u32) -> bool {
    let receive = cqe.opcode() != CqeOpcode::REQ;
    cqe.is_ordinary() && queue.queue(receive).reported_by(cqn) && (receive || send_opcode(cqe).is_some())
}

/// Why that ended before there was no entry, or no place for one.
enum Ended {
    /// One was delivered that a closer look was needed for.
    Once,
    Bad(PollError),
}

/// Fills `wcs` from entries that need a closer look: in plain rings one, else one after the other. How many, and why it ended early.
#[inline(never)]
fn fill_each<F: CqeFormat, P: Filled>(
    ring: &mut Ring<F>,
    slots: Slots<'_>,
    shared: &Shared,
    memory: Memory<'_>,
    wcs: &mut [P],
) -> (usize, Option<Ended>) {
    let Some(mut batch) = Batch::begin(ring, slots, shared, memory, None) else { return (0, None) };
    let mut filled = 0;
    while let Some(rest) = wcs.get_mut(filled..) {
        filled += P::take_titled(&mut batch, rest);
        let Some(wc) = wcs.get_mut(filled) else { break };
        match batch.next(wc) {
            Ok(true) if size_of::<F::Kept>() == 0 => return (filled + 1, Some(Ended::Once)),
            Ok(true) => filled += 1,
            Ok(false) => return (filled, None),
            Err(error) => return (filled, Some(Ended::Bad(error))),
        }
    }
    (wcs.len(), None)
}

impl Drop for Ending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pass.settle();
    }
}
