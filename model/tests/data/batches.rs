//! Whole queues of work requests told by one store to a record and one doorbell.

use crate::connections::{CQ, pair_with};
use crate::qp::QpWish;
use crate::raw::{get, store32};
use crate::rdma::CqWish;
use crate::srq::Bench;
use crate::wqe::{data, inline, signalled};

#[test]
fn whole_queues_are_told_at_once_over_more_than_sixteen_bits() {
    let mut p = pair_with(QpWish { rnr_retry: 7, ..QpWish::default() }, CQ);
    p.from.fill(0, b"batch");
    for round in 0..4100_u32 {
        for n in 0..16 {
            p.rdma.write_recv(&mut p.b, &[p.to.seg(8 * n, 8)]);
        }
        let segment = data(p.from.seg(0, 5));
        let last = (0..16).map(|_| p.rdma.write_send(&mut p.a, signalled(&segment))).last();
        if round == 0 {
            p.rdma.ring(&p.a, last.unwrap());
            p.idle();
            store32(&p.b.record, 0, p.b.rq.into());
        } else {
            store32(&p.b.record, 0, p.b.rq.into());
            p.rdma.ring(&p.a, last.unwrap());
        }
        for n in 0..16 {
            let (sent, got) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
            assert_eq!((sent[63] >> 4, got[63] >> 4), (0, 2), "round {round}, message {n}");
            let counters = [get(&sent, 480, 16), get(&got, 480, 16)];
            assert_eq!(counters, [u64::from((16 * round + n) & 0xffff); 2]);
        }
    }
    assert_eq!(p.to.bytes(120, 5), b"batch");
    p.rdma.assert_clean();
}

#[test]
fn a_shared_queue_is_filled_by_one_store_over_more_than_sixteen_bits() {
    let mut b = Bench::new(6);
    // One of the 64 stays free, so that its link can be set.
    for _ in 0..0x1_0010_u32.div_ceil(63) {
        let posted: Vec<u16> = (0..63).map(|_| b.srq.write(&[b.mr.seg(0, 16)])).collect();
        b.srq.tell();
        for index in posted {
            b.send(1, b"z");
            assert_eq!((b.receive(1), b.sent()), ((0x21, index.into(), 0), 0));
            b.srq.give_back(index);
        }
    }
    assert!(b.srq.counter < 64);
    b.rdma.assert_clean();
}

#[test]
fn a_batch_of_long_requests_runs_over_the_end_of_the_queue() {
    let cq = CqWish { log_size: 3, entry: 64, ignore_overrun: false };
    let mut p = pair_with(QpWish::default(), cq);
    for round in 0..40_u8 {
        for _ in 0..5 {
            p.rdma.write_recv(&mut p.b, &[p.to.seg(0, 200)]);
        }
        store32(&p.b.record, 0, p.b.rq.into());
        // Five of three blocks each, of sixteen.
        let last = (0..5).map(|n| p.rdma.write_send(&mut p.a, signalled(&inline(&[round ^ n << 5; 150])))).last();
        p.rdma.ring(&p.a, last.unwrap());
        for _ in 0..5 {
            assert_eq!((p.rdma.poll(&mut p.cq_a)[63] >> 4, p.rdma.poll(&mut p.cq_b)[63] >> 4), (0, 2));
        }
        assert_eq!(p.to.bytes(0, 150), [round ^ 4 << 5; 150]);
    }
    p.rdma.assert_clean();
}
