//! The data path: memory keys, completion queues, work queues, and connections and datagrams over a loopback wire.
//!
//! The control side calls in here at these points; each runs with the whole device at hand. A send doorbell ([`sq`])
//! takes the work requests that its record covers one by one ([`fetch`]), gathers the payload through memory keys
//! ([`memory`], [`mkey`]), hands it to the peer ([`wire`], [`unreliable`]), which places it by its next receive work request ([`rq`],
//! [`srq`]) or
//! where the request says ([`remote`]), and both write completions ([`cq`]). What has to wait — for a receive work
//! request, for a peer, for a fault's delay — does so by a [`Timer`].

mod av;
mod cq;
mod cqe;
mod fault;
mod fetch;
mod gather;
mod grh;
mod inject;
mod memory;
pub(crate) mod mkey;
mod moderation;
mod remote;
mod resize;
mod rq;
mod session;
mod slot;
mod sq;
mod srq;
mod unreliable;
mod wire;
mod wqe;

use std::collections::BTreeMap;

use crate::bytes::be64;
use crate::device::Device;
use crate::flame;
use crate::objects::{Cq, QpState};
use crate::pace;

pub use fault::DataFault;
pub(crate) use gather::settle;
pub use inject::CqeBytes;
pub(crate) use mkey::RESERVED_LKEY;
pub(crate) use wqe::TERMINATE_LKEY;
use wqe::{Ctrl, DS_UNIT};

/// A timer of the data path. The ticket tells which use of the number it belongs to; an old one is ignored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The message at the head of a send queue is tried again.
    Resend { qpn: u32, ticket: u64 },
    /// A queue pair in error looks for receive work requests to flush.
    Flush { qpn: u32, ticket: u64 },
    /// Completions that a fault held back are written.
    Late { cqn: u32, ticket: u64 },
    /// The moderation period of a completion queue is over.
    Moderation { cqn: u32, ticket: u64 },
}

/// Completions that a model has written since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionCounts {
    /// All of them; those of compressed sessions one by one.
    pub written: u64,
    /// Those that came as minis: in the basic layout all of a session, in the enhanced one all but the title.
    pub compressed: u64,
    /// Compressed sessions: in the enhanced layout blocks.
    pub sessions: u64,
    /// Those with data in them.
    pub inlined: u64,
}

/// State of the data path that is not part of an object's context.
#[derive(Default)]
pub(crate) struct DataPath {
    sends: BTreeMap<u32, sq::SendRun>,
    cqs: BTreeMap<u32, cq::CqRun>,
    tickets: u64,
    faults: fault::Faults,
    counts: CompletionCounts,
    /// Completion queues with completions that are not written yet, in the order in which they began.
    gathering: Vec<u32>,
    session_limit: Option<u32>,
}

impl DataPath {
    /// What was written so far.
    pub(crate) fn counts(&self) -> CompletionCounts {
        self.counts
    }

    /// Takes back the faults that still wait for their turn.
    pub(crate) fn clear_faults(&mut self) {
        self.faults = fault::Faults::default();
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn send(&mut self, qpn: u32) -> &mut sq::SendRun {
        self.sends.entry(qpn).or_default()
    }

    fn cq(&mut self, cqn: u32) -> &mut cq::CqRun {
        self.cqs.entry(cqn).or_default()
    }
}

/// A send doorbell in UAR page `uar`: the first 8 bytes of a control segment, big-endian (queue number in bits 31:8).
pub(crate) fn sq_doorbell(dev: &mut Device, uar: u32, value: u64) {
    sq::doorbell(dev, uar, value, None);
}

/// A whole work request that came with its doorbell, from UAR page `uar`.
pub(crate) fn sq_flame(dev: &mut Device, uar: u32, request: Vec<u8>) {
    sq::doorbell(dev, uar, be64(&request, 0), Some(request));
}

/// Bytes that the work request takes which begins with `head`, and the queue pair that it names.
pub(crate) fn request_shape(head: &[u8]) -> (usize, u32) {
    let ctrl = Ctrl::decode(head);
    (usize::from(ctrl.ds).max(1) * DS_UNIT, ctrl.qpn)
}

/// An arm doorbell in UAR page `uar`: arm word in the high half, completion queue number in the low one.
pub(crate) fn cq_arm(dev: &mut Device, uar: u32, value: u64) {
    cq::arm(dev, uar, value);
}

/// A timer has run out.
pub(crate) fn timer(dev: &mut Device, timer: Timer) {
    match timer {
        Timer::Resend { qpn, ticket } => sq::resend(dev, qpn, ticket),
        Timer::Flush { qpn, ticket } => rq::watch(dev, qpn, ticket),
        Timer::Late { cqn, ticket } => cq::late(dev, cqn, ticket),
        Timer::Moderation { cqn, ticket } => moderation::expired(dev, cqn, ticket),
    }
}

/// A queue pair has been moved to a new state by a command; the object says already so.
pub(crate) fn qp_moved(dev: &mut Device, qpn: u32) {
    match dev.objects.qps.get(&qpn).map(|qp| qp.state) {
        Some(QpState::Error) => sq::enter_error(dev, qpn),
        Some(QpState::Reset) => {
            flame::abandon(dev, qpn);
            release(dev, qpn);
            sq::restart(dev, qpn);
        }
        _ => (),
    }
}

/// Nothing of a queue pair completes behind the command that ends it: what a fault holds back is written before.
fn release(dev: &mut Device, qpn: u32) {
    let Some(qp) = dev.objects.qps.get(&qpn) else { return };
    let (send, recv) = (qp.cqn_send, qp.cqn_recv);
    for cqn in [send, recv] {
        cq::release(dev, cqn);
        dev.data.cq(cqn).gather.forget_title();
    }
}

/// A queue pair is about to be destroyed.
pub(crate) fn qp_destroyed(dev: &mut Device, qpn: u32) {
    flame::abandon(dev, qpn);
    release(dev, qpn);
    dev.data.sends.remove(&qpn);
}

/// A completion queue breaks by hand: 1 overrun, else an access violation.
pub(crate) fn break_cq(dev: &mut Device, cqn: u32, syndrome: u8) {
    cq::break_by_hand(dev, cqn, syndrome);
}

/// A queue pair, if there is one of this number, goes to error by hand.
pub(crate) fn break_qp(dev: &mut Device, qpn: u32) {
    sq::enter_error(dev, qpn);
}

/// The limit of a shared receive queue was set.
pub(crate) fn rmp_armed(dev: &mut Device, rmpn: u32) {
    srq::check_limit(dev, rmpn);
}

/// A completion queue is about to be destroyed: no event of it comes behind the command that ends it.
pub(crate) fn cq_destroyed(dev: &mut Device, cqn: u32) {
    pace::release(dev, cqn);
    dev.data.cqs.remove(&cqn);
}

/// Entries of a completion queue that its record does not call consumed; no more than its ring has.
pub(crate) fn cq_outstanding(dev: &mut Device, cqn: u32) -> u32 {
    cq::outstanding(dev, cqn)
}

/// A completion queue goes on in another ring. False when its old ring could not be ended.
pub(crate) fn cq_resized(dev: &mut Device, cqn: u32, new: Cq) -> bool {
    resize::switch(dev, cqn, new)
}

/// A completion queue moderates its events in another way.
pub(crate) fn cq_moderated(dev: &mut Device, cqn: u32) {
    moderation::changed(dev, cqn);
}

/// The function was reset: nothing is left of any object. Tickets go on, so that no old timer fits a new object.
pub(crate) fn reset(dev: &mut Device) {
    dev.data.sends.clear();
    dev.data.cqs.clear();
    dev.data.gathering.clear();
}
