//! The core of polling: entries are taken from a ring, matched to requests, and given back when the batch ends.

use core::sync::atomic::AtomicU32;

use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeOpcode, CqeRef};
use mlx5_hw::ring::{Consumer, CqeFormat, Ring, is_from};

use super::completion::{Current, send_opcode};
use super::rows::{Pass, Reader, Row};
use super::{PollError, Shared, SigErr, Wc, WcStatus, purge};
use crate::keys::Keys;
use crate::qp::QpWork;

/// Where a completion is delivered to. A trait and no closure, as it must be inlined: then the entry's fields go from the
/// ring to their place, while an entry that is moved as a whole costs more than reading it.
pub(super) trait Place<'m> {
    fn put(&mut self, current: Current<'m>);
}

impl Place<'_> for Wc {
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

/// Where a batch is read.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    pub(super) mem: &'a [AtomicU32],
    /// Index behind the last entry that may be marked.
    pub(super) marked: u32,
    /// The device may go on in another ring: an entry that says so has this index or a later one.
    pub(super) resizing: Option<u32>,
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
fn take<'m, F: CqeFormat>(
    cqe: CqeRef<'m>,
    pass: &mut Pass<'_, QpWork>,
    cqn: u32,
    keys: &Keys,
    place: &mut impl Place<'m>,
) -> Taken {
    let Some(receive) = ends_receive(cqe) else { return without_request::<F>(cqe) };
    let user_index = cqe.srqn_or_uidx();
    let queue = match pass.find(user_index) {
        Row::Live(queue) => queue,
        Row::Gone(queue) => return left_behind(cqe, queue.filter(|_| receive)),
        Row::Unknown => return unknown_queue(cqe),
    };
    let work = queue.queue(receive);
    if !work.reported_by(cqn) {
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
        match queue.scatter(receive, cqe, keys) {
            Some(status) => status,
            None => return unexpected_format(cqe),
        }
    };
    let counter = cqe.wqe_counter();
    let wr_id = match &queue.srq {
        Some(srq) if receive => srq.complete(counter),
        _ => work.complete(counter, receive),
    };
    let Some(wr_id) = wr_id else { return unknown_queue(cqe) };
    place.put(Current { cqe, wr_id, status });
    Taken::Delivered
}

/// One batch: entries are taken through it, and its end gives them back to the device with one store.
///
/// The fields are dropped in their order: first the consumer, which gives the entries back, then the [`Ending`].
pub(super) struct Batch<'a, F: CqeFormat> {
    entries: Consumer<'a, F>,
    /// Number of ring slots: the most that one batch takes.
    slots: u32,
    /// Index behind the last entry that may be marked.
    marked: u32,
    /// As in [`Slots`]: this batch ends before the entry that says so.
    resizing: Option<u32>,
    cqn: u32,
    keys: &'a Keys,
    ending: Ending<'a>,
}

/// What remains to be done when the entries of a batch were given back.
struct Ending<'a> {
    pass: Pass<'a, QpWork>,
}

impl<'a, F: CqeFormat> Batch<'a, F> {
    /// Starts a batch; `None` only if the CQ's memory were shorter than its ring, which creation rules out.
    #[inline(always)]
    pub(super) fn begin(
        ring: &'a mut Ring<F>,
        Slots { mem, marked, resizing }: Slots<'a>,
        shared: &'a Shared,
        reader: &'a mut Reader<QpWork>,
    ) -> Option<Self> {
        let record = if shared.ignore_overrun { None } else { Some(shared.dbrec()?) };
        let (slots, entries) = (ring.entries(), ring.consume_to(mem, record).ok()?);
        let ending = Ending { pass: reader.begin() };
        Some(Self { entries, slots, marked, resizing, cqn: shared.cqn, keys: shared.dev.keys(), ending })
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
            match take::<F>(cqe, &mut self.ending.pass, self.cqn, self.keys, place) {
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

    /// Fills `wcs` from the front; how many, and the bad entry that ended it early.
    #[inline(always)]
    pub(super) fn fill(&mut self, wcs: &mut [Wc]) -> (usize, Option<PollError>) {
        for (filled, wc) in wcs.iter_mut().enumerate() {
            match self.next(wc) {
                Ok(true) => {}
                Ok(false) => return (filled, None),
                Err(error) => return (filled, Some(error)),
            }
        }
        (wcs.len(), None)
    }
}

impl Drop for Ending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.pass.settle();
    }
}
