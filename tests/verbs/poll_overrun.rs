//! CQs that ignore overrun: when the consumer index is written, and what becomes of a poller that the device has lapped.

use mlx5::{Cq, CqInitAttrEx, CqInitAttrMask, CreateCqFlags, Device, PollError, QpCap, RecvWr, SendFlags, SendWr, Wc};
use mlx5_model::ModelConfig;

use crate::cq_semantics::{POLL, Ring, complete, ids};
use crate::poll_sessions::kinds;
use crate::support::{Pair, SIZES, pair_with};

pub fn careless(dev: &Device, cqe: u32) -> Cq {
    let (comp_mask, flags) = (CqInitAttrMask::FLAGS, CreateCqFlags::IGNORE_OVERRUN);
    dev.create_cq_ex(&CqInitAttrEx { cqe, comp_mask, flags, ..Default::default() }).unwrap()
}

#[test]
fn the_consumer_index_is_written_before_a_query_and_not_by_batches() {
    let mut p = pair_with(ModelConfig::default(), 15, SIZES, careless);
    let ring = Ring::of(&p.port, &p.cq[0]);
    for lap in 0..10 {
        complete(&mut p, 0, 6);
        ring.mark();
        let mut poller = p.cq[0].start_poll(&POLL).unwrap();
        poller.next().unwrap();
        drop(poller);
        assert_eq!(ids(&mut p.cq[0]), [2, 3, 4, 5]);
        assert_eq!(ids(&mut p.cq[1]), [0, 1, 2, 3, 4, 5]);
        assert!(ring.is_marked(), "lap {lap}");
        let cqc = p.cq[0].query().unwrap();
        assert_eq!((ring.consumer(), cqc.consumer_counter()), (6 * (lap + 1), 6 * (lap + 1)));
    }
    p.end();
}

/// Polls until nothing comes: by `poll_cq` or by a poller, batches of `batch`.
fn drain(cq: &mut Cq, batch: usize) -> Vec<u64> {
    let mut got = vec![];
    let mut wcs = vec![Wc::default(); batch];
    while let Ok(n @ 1..) = cq.poll_cq(&mut wcs) {
        got.extend(wcs[..n].iter().map(|wc| wc.wr_id));
        match cq.start_poll(&POLL) {
            Ok(poller) => got.push(poller.completion().wr_id()),
            Err(error) => assert_eq!(error, PollError::Empty),
        }
    }
    got
}

/// Sends `n` messages; the receiver's CQ is polled at once, the sender's is not.
fn send(p: &mut Pair, first: u64, n: u64) {
    for wr_id in first..first + n {
        p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        p.qp[0].post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
        p.port.model.step(1_000_000);
        p.poll(1, 1);
    }
}

/// A ring of 8 that gets 9 entries, two rings full, three rings full: entries are lost or late, but each is of a request that was
/// posted, and none comes before it was.
#[test]
fn a_poller_that_was_lapped_gets_some_of_what_was_posted_and_nothing_else() {
    let cap = QpCap { max_send_wr: 512, max_recv_wr: 16, ..SIZES };
    for (lapped_by, polled_first) in [1, 7, 8, 9, 15, 16, 17, 24].into_iter().flat_map(|n| [(n, 0), (n, 3), (n, 8)]) {
        for batch in [1, 3, 8, 64] {
            let mut p = pair_with(ModelConfig::default(), 7, cap, careless);
            send(&mut p, 0, polled_first);
            assert_eq!(drain(&mut p.cq[0], batch).len() as u64, polled_first);
            let mut posted = polled_first + 8 + lapped_by;
            send(&mut p, polled_first, 8 + lapped_by);
            for _ in 0..4 {
                let got = drain(&mut p.cq[0], batch);
                assert!(got.iter().all(|id| *id < posted), "{got:?} of {posted}");
                assert!(got.len() <= 2 * 8, "what lies in the ring, no more: {got:?}");
                send(&mut p, posted, 5);
                posted += 5;
            }
            let cqc = p.cq[0].query().unwrap();
            assert_eq!(cqc.status(), 0, "an overrun is none");
            p.end();
        }
    }
}

/// Two laps behind, the owner bits are right again: what lies in the ring is polled as if nothing had been.
#[test]
fn two_laps_behind_the_last_lap_is_delivered() {
    let cap = QpCap { max_send_wr: 512, max_recv_wr: 16, ..SIZES };
    let mut p = pair_with(ModelConfig::default(), 7, cap, careless);
    send(&mut p, 0, 24);
    assert_eq!(ids(&mut p.cq[0]), (16..24).collect::<Vec<_>>());
    // One lap behind they are the other lap's: nothing comes until the device has written on.
    send(&mut p, 24, 16);
    assert!(ids(&mut p.cq[0]).is_empty());
    send(&mut p, 40, 8);
    assert_eq!(ids(&mut p.cq[0]), (40..48).collect::<Vec<_>>());
    p.end();
}

/// The same with sessions, some of them overwritten while they were open: no panic, nothing that was not posted.
#[test]
fn a_poller_of_sessions_that_was_lapped_gets_nothing_that_was_not_posted() {
    let cap = QpCap { max_send_wr: 512, max_recv_wr: 512, ..SIZES };
    for kind in kinds() {
        for batch in [1, 3, 5, 64] {
            let make = |d: &Device, cqe| {
                let mut attr = crate::cq_create::Attr::default();
                attr.ex.cqe = cqe;
                (attr.ex.comp_mask, attr.ex.flags) = (CqInitAttrMask::FLAGS, CreateCqFlags::IGNORE_OVERRUN);
                attr.compress(kind.format.bits());
                attr.layout(kind.layout);
                attr.size(kind.cqe_size);
                attr.create(d).unwrap()
            };
            let mut p = pair_with(ModelConfig::default(), 15, cap, make);
            let mut posted = 0;
            for n in [6, 5, 17, 3, 33, 40, 1, 16, 16, 32, 9] {
                let send = |wr_id| SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() };
                p.qp[1].post_recv(&vec![RecvWr::default(); n as usize]).unwrap();
                p.qp[0].post_send(&(posted..posted + n).map(send).collect::<Vec<_>>()).unwrap();
                p.port.model.step(1_000_000);
                posted += n;
                // Part of it, so that sessions are open when the device goes on over them.
                let mut wcs = vec![Wc::default(); batch];
                for _ in 0..4 {
                    let got = p.cq[0].poll_cq(&mut wcs).unwrap_or(0);
                    assert!(wcs[..got].iter().all(|wc| wc.wr_id < posted), "{kind:?}");
                    let _ = p.cq[1].poll_cq(&mut wcs);
                }
            }
            assert!(p.cq[0].query().unwrap().status() == 0 && p.port.model.violations().is_empty());
            p.end();
        }
    }
}
