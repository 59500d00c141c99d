//! Completion queues of the model: overruns, arming, events.

use mlx5_hw::platform::Platform;
use mlx5_model::ViolationKind;

use crate::qp::{Qp, QpWish};
use crate::raw::{get, load, put, store};
use crate::rdma::{Cq, CqWish, LW, Mr, OLD, Rdma};
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
    wire_on(Rdma::up(), |rdma| rdma.cq(CqWish { log_size, entry: 64, ignore_overrun }))
}

fn violations(rdma: &Rdma) -> Vec<ViolationKind> {
    rdma.raw.model.take_violations().iter().map(|v| v.kind).collect()
}

fn wire_on(rdma: Rdma, send: impl Fn(&Rdma) -> Cq) -> Wire {
    let send = send(&rdma);
    let recv = rdma.cq(CqWish { log_size: 7, entry: 64, ignore_overrun: send.wish.ignore_overrun });
    let (a, b) = rdma.pair(QpWish::default(), &send, &recv);
    let to = rdma.register(4096, 0, LW);
    Wire { rdma, a, b, send, recv, to }
}

impl Wire {
    pub fn message(&mut self, flags: u8, bytes: &[u8]) {
        self.rdma.recv(&mut self.b, &[self.to.seg(0, 64)]);
        self.rdma.send(&mut self.a, Wqe { flags, ..signalled(&inline(bytes)) });
    }

    /// QUERY_CQ of the sender's queue: its status.
    fn send_status(&self) -> u64 {
        let mut body = [0; 8];
        put(&mut body, 8, 24, self.send.cqn.into());
        get(&self.rdma.raw.command(0x402, 0, &body, 272), 128, 4)
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
    assert_eq!(w.send_status(), 9, "QUERY_CQ: status overflow");
    w.rdma.assert_clean();
}

/// A page of the ring is taken away: entries before it are written, and the first one there is an access error.
#[test]
fn a_ring_with_a_page_that_is_not_mapped_any_more_fails_with_the_first_entry_there() {
    for page in [0, 1] {
        let rdma = Rdma::up();
        let other = rdma.alloc(4096);
        // Entries of the device's: no opcode.
        let fresh = [[OLD; 62].as_slice(), &[0xff, 0xf0]].concat().repeat(64);
        store(&other, 0, &fresh);
        // SAFETY: the memory outlives the test's use of the device.
        let iova = unsafe { rdma.raw.model.map(other.ptr(), 4096) }.unwrap();
        let wish = CqWish { log_size: 7, entry: 64, ignore_overrun: false };
        let there = |pages: &mut [u8]| put(pages, 64 * page, 64, iova);
        let mut w = wire_on(rdma, |rdma| rdma.cq_in(wish, |_| (), there));
        for _ in 0..64 * page {
            w.message(8, b"x");
        }
        // SAFETY: the device is caught when it writes there.
        unsafe { w.rdma.raw.model.unmap(iova, 4096) }.unwrap();
        assert_eq!(violations(&w.rdma), [ViolationKind::FreedWhileOwned]);
        assert!(w.rdma.async_eq.take().is_none());
        assert_eq!(w.send_status(), 0);
        w.message(8, b"x");
        let event = w.rdma.async_eq.take().expect("CQ_ERROR");
        assert_eq!((event[1], get(&event, 0x21 * 8, 24), event[0x2b]), (4, w.send.cqn.into(), 2), "access");
        let event = w.rdma.async_eq.take().expect("the queue pair breaks down too");
        assert_eq!((event[1], get(&event, 0x39 * 8, 24)), (5, w.a.qpn.into()));
        assert_eq!((w.send_status(), w.rdma.state(&w.a)), (0xa, 6), "QUERY_CQ: status write failed");
        assert_eq!(violations(&w.rdma), [ViolationKind::DmaAfterFree]);
        assert!(!w.rdma.raw.model.inject_cqe(w.send.cqn, [0; 64]), "nothing is written any more");
        for n in 0..64 * page {
            assert_eq!(w.rdma.poll(&mut w.send)[63] >> 4, 0, "{n}");
        }
        assert!(w.rdma.take(&mut w.send).is_none());
        assert_eq!(load(&other, 0, 4096), fresh);
        assert!(w.rdma.async_eq.take().is_none(), "it is told once");
        w.rdma.assert_clean();
    }
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
