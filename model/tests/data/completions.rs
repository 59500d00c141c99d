//! Completion queues of the model: overruns, arming, events.

use crate::qp::{Qp, QpWish};
use crate::raw::get;
use crate::rdma::{Cq, CqWish, LW, Mr, Rdma};
use crate::wqe::{Wqe, inline, signalled};

/// Two queue pairs whose completions all go to a queue each.
pub struct Wire {
    pub rdma: Rdma,
    pub a: Qp,
    pub b: Qp,
    pub send: Cq,
    pub recv: Cq,
    pub to: Mr,
}

pub fn wire(log_size: u32, ignore_overrun: bool) -> Wire {
    let rdma = Rdma::up();
    let cq = |log_size| rdma.cq(CqWish { log_size, entry: 64, ignore_overrun });
    let (send, recv) = (cq(log_size), cq(6));
    let (a, b) = rdma.pair(QpWish::default(), &send, &recv);
    let to = rdma.register(4096, 0, LW);
    Wire { rdma, a, b, send, recv, to }
}

impl Wire {
    pub fn message(&mut self, flags: u8, bytes: &[u8]) {
        self.rdma.recv(&mut self.b, &[self.to.seg(0, 64)]);
        self.rdma.send(&mut self.a, Wqe { flags, ..signalled(&inline(bytes)) });
    }

    /// The events on the completion queue's event queue: (type, cqn).
    pub fn events(&mut self) -> Vec<(u8, u64)> {
        std::iter::from_fn(|| self.rdma.comp_eq.take()).map(|e| (e[1], get(&e, 0x39 * 8, 24))).collect()
    }
}

#[test]
fn a_full_queue_goes_to_error_and_says_so() {
    let mut w = wire(1, false);
    for _ in 0..2 {
        w.message(8, b"x");
    }
    assert!(w.rdma.async_eq.take().is_none(), "a ring of 2 holds 2");
    w.message(8, b"x");
    let event = w.rdma.async_eq.take().expect("CQ_ERROR");
    assert_eq!((event[1], get(&event, 0x21 * 8, 24), event[0x2b]), (4, w.send.cqn.into(), 1));
    let event = w.rdma.async_eq.take().expect("the queue pair breaks down too");
    assert_eq!((event[1], get(&event, 0x39 * 8, 24)), (5, w.a.qpn.into()));
    assert_eq!(w.rdma.state(&w.a), 6);
    assert_eq!(w.rdma.poll(&mut w.send)[63] >> 4, 0, "the entries before are untouched");
    assert_eq!(w.rdma.poll(&mut w.send)[63] >> 4, 0);
    assert!(w.rdma.take(&mut w.send).is_none());
    let mut body = [0; 8];
    crate::raw::put(&mut body, 8, 24, w.send.cqn.into());
    let out = w.rdma.raw.command(0x402, 0, &body, 272);
    assert_eq!(get(&out, 128, 4), 9, "QUERY_CQ: status overflow");
    w.rdma.assert_clean();
}

#[test]
fn what_was_written_is_counted_and_what_was_lost_is_not() {
    let mut w = wire(1, false);
    assert_eq!(w.rdma.raw.model.completions().written, 0);
    w.message(8, b"x");
    assert_eq!(w.rdma.raw.model.completions().written, 2, "one at each end");
    w.message(0, b"x");
    assert_eq!(w.rdma.raw.model.completions().written, 3, "the sender asked for none");
    w.message(8, b"x");
    w.message(8, b"x");
    let counts = w.rdma.raw.model.completions();
    assert_eq!(
        (counts.written, counts.compressed, counts.sessions, counts.inlined),
        (6, 0, 0, 0),
        "a ring of 2 holds 2"
    );
    w.rdma.raw.model.take_violations();
}

#[test]
fn a_queue_whose_consumer_index_is_told_in_time_never_overruns() {
    let mut w = wire(1, false);
    for n in 0..1000_u64 {
        w.message(8, b"x");
        assert_eq!(get(&w.rdma.poll(&mut w.send), 480, 16), n);
        w.rdma.poll(&mut w.recv);
    }
    assert!(w.rdma.async_eq.take().is_none());
    w.rdma.assert_clean();
}

#[test]
fn a_queue_that_ignores_overruns_is_overwritten() {
    let mut w = wire(1, true);
    for _ in 0..5 {
        w.message(8, b"x");
    }
    assert!(w.rdma.async_eq.take().is_none());
    w.send.ci = 4;
    assert_eq!(get(&w.rdma.take(&mut w.send).unwrap(), 480, 16), 4, "the fifth lies where the first was");
    w.rdma.assert_clean();
}

#[test]
fn an_armed_queue_raises_one_event_for_the_next_completion() {
    let mut w = wire(4, false);
    w.message(8, b"x");
    assert_eq!(w.events(), [], "not armed");
    w.rdma.poll(&mut w.send);
    w.rdma.arm(&w.send, 0, false);
    assert_eq!(w.events(), []);
    w.message(8, b"x");
    w.message(8, b"x");
    assert_eq!(w.events(), [(0, w.send.cqn.into())]);
    w.rdma.assert_clean();
}

#[test]
fn arming_behind_unseen_completions_raises_the_event_at_once() {
    let mut w = wire(4, false);
    w.message(8, b"x");
    w.rdma.arm(&w.send, 0, false);
    assert_eq!(w.events(), [(0, w.send.cqn.into())]);
    w.message(8, b"x");
    assert_eq!(w.events(), [], "one event for one arm");
    w.rdma.assert_clean();
}

#[test]
fn a_queue_armed_for_solicited_completions_waits_for_one() {
    let mut w = wire(4, false);
    w.rdma.arm(&w.recv, 0, true);
    w.message(8, b"x");
    assert_eq!(w.events(), []);
    w.message(0x0a, b"x");
    assert_eq!(w.events(), [(0, w.recv.cqn.into())]);
    w.rdma.arm(&w.recv, 1, true);
    assert_eq!(w.events(), [(0, w.recv.cqn.into())], "a solicited completion is still unseen");
    w.rdma.poll(&mut w.recv);
    w.rdma.poll(&mut w.recv);
    w.rdma.arm(&w.recv, 2, true);
    assert_eq!(w.events(), []);
    w.rdma.leave(0x507, &w.b);
    assert_eq!(w.events(), [], "nothing was posted, so nothing is flushed");
    w.rdma.recv(&mut w.b, &[w.to.seg(0, 64)]);
    w.rdma.poll(&mut w.recv);
    assert_eq!(w.events(), [(0, w.recv.cqn.into())], "an error counts as solicited");
    w.rdma.assert_clean();
}
