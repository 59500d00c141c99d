//! What becomes of a shared receive queue's requests when the queue pair that took them is gone before its completions were
//! polled: the completions are dropped, the places come back.

use mlx5::dv::{CqeCompLayout, CqeCompResFormat};
use mlx5::{Cq, Device, ExclusiveCqs, PollAttr, PollError, QpInitAttr, RecvWr, SendFlags, SendWr, Wc};

use crate::poll_sessions::Kind;
use crate::srq::{Shared, receiver};
use crate::support::{SIZES, connect, create_qp, open, poll_n};

type Make = fn(&Device) -> Cq;

/// Entries as they are, and in sessions of both layouts.
const KINDS: [Make; 3] = [
    |dev| dev.create_cq(63, 0, 0).unwrap(),
    |dev| session(CqeCompLayout::Basic).create(dev, 63),
    |dev| session(CqeCompLayout::Enhanced).create(dev, 63),
];

fn session(layout: CqeCompLayout) -> Kind {
    Kind { layout, cqe_size: 64, format: CqeCompResFormat::HASH }
}

/// Seven requests, taken by pair 0 in messages that nobody has polled.
fn all_taken(make: Make) -> Shared {
    let mut s = Shared::with(2, 7, make);
    (0..7).for_each(|id| s.post(id).unwrap());
    for _ in 0..7 {
        s.send(0, b"taken");
    }
    s.port.model.step(1_000_000);
    assert_eq!(s.room(), 0);
    s
}

#[test]
fn requests_of_a_destroyed_queue_pair_come_free_when_its_entries_are_stepped_over() {
    for make in KINDS {
        let mut s = all_taken(make);
        s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
        assert_eq!(s.room(), 0, "the entries are still in the ring");
        assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
        assert_eq!(s.room(), 7);
        assert_eq!(s.came[0].start_poll(&PollAttr::default()).err(), Some(PollError::Empty));
        s.end();
    }
}

#[test]
fn some_were_polled_before_and_the_rest_comes_free() {
    for make in KINDS {
        let mut s = all_taken(make);
        assert_eq!(s.poll(0, 3).iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [0, 1, 2]);
        s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
        assert_eq!(s.room(), 3);
        assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
        assert_eq!(s.room(), 4);
        s.end();
    }
}

#[test]
fn requests_of_a_reset_queue_pair_come_free_at_once_and_only_once() {
    for make in KINDS {
        let mut s = all_taken(make);
        let cq = &mut s.came[0];
        s.receivers[0].reset(ExclusiveCqs::Same(cq)).unwrap();
        assert_eq!(s.room(), 7);
        // The entries are still in the ring: a second reset gives nothing back again.
        s.receivers[0].reset(ExclusiveCqs::Same(&mut s.came[0])).unwrap();
        assert_eq!(s.room(), 0);
        assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
        assert_eq!(s.room(), 0);
        for id in 0..7 {
            s.send(1, b"others");
            assert_eq!(s.poll(1, 1).len(), 1, "{id}");
        }
        assert_eq!(s.room(), 7);
        s.end();
    }
}

#[test]
fn requests_come_free_when_the_cq_goes_with_entries_that_nobody_polled() {
    for make in KINDS {
        for destroy in [true, false] {
            let mut s = all_taken(make);
            s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
            let cq = s.came.remove(0);
            if destroy {
                cq.destroy().map_err(|e| e.error).unwrap();
            } else {
                drop(cq);
            }
            assert_eq!(s.room(), 7);
            s.end();
        }
    }
}

/// Sends are entries too. The places that they name are those of the send queue: they end no request.
#[test]
fn sends_of_a_queue_pair_that_is_gone_end_no_request() {
    for make in KINDS {
        for reset in [false, true] {
            let mut s = Shared::with(2, 7, make);
            let sge = s.sge(0, 64);
            s.senders[0].post_recv(&[RecvWr { wr_id: 9, sg_list: &[sge] }; 5]).unwrap();
            let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
            s.receivers[0].post_send(&[SendWr { inline_data: b"back", send_flags, ..Default::default() }; 5]).unwrap();
            poll_n(&s.port, &mut s.sent, 5);
            s.port.model.step(1_000_000);
            (0..7).for_each(|id| s.post(id).unwrap());
            if reset {
                s.receivers[0].reset(ExclusiveCqs::Same(&mut s.came[0])).unwrap();
            } else {
                s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
            }
            assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
            assert_eq!(s.room(), 0);
            for id in 0..7 {
                s.send(1, b"others");
                assert_eq!(s.poll(1, 1)[0].wr_id, id);
            }
            s.end();
        }
    }
}

/// Where sends are reported to another CQ, it is the CQ of receives that has to settle what was taken.
#[test]
fn requests_of_a_queue_pair_with_two_cqs_come_free_with_the_cq_of_receives() {
    for make in KINDS {
        for reset in [false, true] {
            let mut s = Shared::with(1, 7, make);
            let mut sends = s.dev.create_cq(15, 0, 0).unwrap();
            let mut attr = QpInitAttr { srq: Some(&s.srq), ..QpInitAttr::new(&sends, &s.came[0], SIZES) };
            let mut qp = s.pd.create_qp(&mut attr).unwrap();
            let mut sender = create_qp(&s.pd, &s.sent, &s.sent, SIZES);
            connect(&s.dev, &mut sender, qp.qp_num());
            connect(&s.dev, &mut qp, sender.qp_num());
            s.senders.push(sender);
            for id in 0..7 {
                s.post(id).unwrap();
                s.send(1, b"taken");
            }
            s.port.model.step(1_000_000);
            if reset {
                qp.reset(ExclusiveCqs::Two { send: &mut sends, recv: &mut s.came[0] }).unwrap();
                s.receivers.push(qp);
            } else {
                qp.destroy().map_err(|e| e.error).unwrap();
                assert_eq!((sends.poll_cq(&mut [Wc::default()]), s.room()), (Ok(0), 0));
                assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
            }
            assert_eq!(s.room(), 7);
            s.came.push(sends);
            s.end();
        }
    }
}

/// The queue pair's user index is not another's before its entries are gone, however often others come and go.
#[test]
fn a_queue_pair_that_follows_does_not_inherit_the_entries() {
    let mut s = all_taken(KINDS[0]);
    s.receivers.remove(0).destroy().map_err(|e| e.error).unwrap();
    for _ in 0..5 {
        let mut qp = receiver(&s.pd, &s.came[0], &s.srq);
        let me = qp.qp_num();
        connect(&s.dev, &mut qp, me);
        qp.destroy().map_err(|e| e.error).unwrap();
    }
    assert_eq!(s.came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
    assert_eq!(s.room(), 7);
    s.end();
}

/// The shared queue itself may be gone by the time that the entries are stepped over.
#[test]
fn entries_of_a_shared_queue_that_is_gone_are_stepped_over() {
    let s = all_taken(KINDS[0]);
    let Shared { port, dev, pd, srq, sent, mut came, senders, receivers, buf } = s;
    drop(receivers);
    srq.destroy().map_err(|e| e.error).unwrap();
    assert_eq!(came[0].poll_cq(&mut [Wc::default(); 16]), Ok(0));
    drop((senders, sent, came, buf, pd));
    crate::support::close(&port, dev);
    drop(open());
}
