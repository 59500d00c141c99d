//! The device on a thread of its own: register writes reach it late, and it writes memory while the driver reads.

use crate::connections::pair_with;
use crate::qp::QpWish;
use crate::raw::{get, store32};
use crate::rdma::CqWish;
use crate::wqe::{inline, signalled};

#[test]
fn doorbells_that_arrive_late_break_no_rule() {
    let cq = CqWish { log_size: 3, entry: 64, ignore_overrun: false };
    let mut p = pair_with(QpWish { log_rq: 3, rnr_retry: 7, ..QpWish::default() }, cq);
    let thread = p.rdma.raw.model.spawn().unwrap();
    let (mut done, mut events) = (0_u64, 0);
    for round in 0..500_u32 {
        for n in 0..4_u8 {
            p.recv(64);
            p.rdma.send(&mut p.a, signalled(&inline(&[n, round as u8])));
        }
        for n in 0..4_u8 {
            // Armed anew and anew, so that the record is ahead of doorbells on their way.
            p.rdma.arm(&p.cq_a, round & 3, n % 2 == 0);
            p.rdma.arm(&p.cq_b, round & 3, true);
            let (sent, got) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
            assert_eq!((sent[63] >> 4, got[63] >> 4), (0, 2));
            assert_eq!((get(&sent, 480, 16), get(&got, 480, 16)), (done & 0xffff, done & 0xffff));
            done += 1;
            events += p.rdma.drain_events();
        }
        assert_eq!(p.to.bytes(0, 2), [3, round as u8], "the payload is there before the completion");
    }
    drop(thread);
    assert!(events > 0);
    store32(&p.cq_a.record, 0, p.cq_a.ci);
    p.rdma.assert_clean();
}
