//! Resizing completion queues (`ibv_resize_cq(3)`): whatever waits comes once and in order, in rings of every kind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mlx5::{
    AccessFlags, Cq, Device, ExclusiveCqs, PollError, QpCap, RecvWr, SendFlags, SendWr, Wc, WcOpcode, WcStatus, ibv,
};
use mlx5_model::ModelConfig;

use crate::cq_create::Attr;
use crate::cq_semantics::{POLL, Ring, bad_entries, complete, ids};
use crate::poll_overrun::careless;
use crate::poll_sessions::{Kind, burst, check, forms, kinds, poll_some};
use crate::support::{Pair, QP_CAP_64, SIZES, connect, create_qp, open, pair, pair_with, poll_n};

/// Makes a CQ of at least so many entries.
type Maker = Box<dyn Fn(&Device, u32) -> Cq>;

/// Rings of 64- and 128-byte entries, and with compression; of each format with `all`.
fn makers(all: bool) -> Vec<Maker> {
    let plain = [64, 128].map(|size| -> Maker {
        Box::new(move |dev, cqe| {
            let mut attr = Attr::default();
            attr.ex.cqe = cqe;
            attr.size(size);
            attr.create(dev).unwrap()
        })
    });
    let kinds: Vec<Kind> = if all { kinds() } else { forms().collect() };
    let compressed = kinds.into_iter().map(|kind| -> Maker { Box::new(move |dev, cqe| kind.create(dev, cqe)) });
    plain.into_iter().chain(compressed).collect()
}

/// Bursts, of which `taken` completions are polled before the resizes, the rest after them.
fn round(p: &mut Pair, first: u64, n: u64, taken: usize, sizes: &[u32], iterate: bool) {
    burst(p, first, n);
    for side in [0, 1] {
        let (number, cq) = (p.qp[side].qp_num(), &mut p.cq[side]);
        let mut got = poll_some(cq, taken, iterate);
        for cqe in sizes {
            cq.resize(*cqe).unwrap();
            assert!(cq.cqe() >= *cqe);
        }
        got.extend(poll_some(cq, 64, !iterate));
        assert_eq!(got.len() as u64, n, "side {side}: {taken} taken, then {sizes:?}");
        for (wc, wr_id) in got.iter().zip(first..) {
            check(wc, side, wr_id, number);
        }
        assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(0));
    }
}

#[test]
fn entries_of_every_kind_come_from_every_position_of_a_batch_after_a_resize() {
    for make in makers(false) {
        let mut p = pair_with(ModelConfig::default(), 63, QP_CAP_64, &*make);
        let mut first = 0;
        for n in [1, 2, 9, 20] {
            for taken in 0..=n as usize {
                for sizes in [&[127][..], &[31], &[255, 31], &[63]] {
                    round(&mut p, first, n, taken, sizes, first % 2 == 0);
                    first += n;
                }
            }
        }
        p.end();
    }
}

#[test]
fn a_queue_grows_and_shrinks_while_it_is_used_whatever_its_entries() {
    for make in makers(true) {
        let mut p = pair_with(ModelConfig::default(), 31, QP_CAP_64, &*make);
        let mut first = 0;
        for (n, taken, cqe) in
            [(17, 3, 100), (64, 10, 63), (9, 8, 15), (10, 0, 15), (10, 9, 1000), (64, 63, 3), (1, 0, 31)]
        {
            round(&mut p, first, n, taken, &[cqe], n % 2 == 0);
            let cqc = p.cq[0].query().unwrap();
            assert_eq!(1 << cqc.log_cq_size(), p.cq[0].cqe() + 1, "the device has the same ring");
            first += n;
            // What the next burst needs.
            p.cq.iter_mut().for_each(|cq| cq.resize(127).unwrap());
        }
        p.end();
    }
}

/// Test `test_resize_cq` of rdma-core, with connected queue pairs.
#[test]
fn a_queue_of_three_is_resized_as_the_upstream_test_does() {
    let mut p = pair_with(ModelConfig::default(), 3, SIZES, |dev, cqe| dev.create_cq(cqe, 0, 0).unwrap());
    ibv::resize_cq(&mut p.cq[0], 1).unwrap();
    assert!(p.cq[0].cqe() >= 1);
    ibv::resize_cq(&mut p.cq[0], 7).unwrap();
    ibv::resize_cq(&mut p.cq[1], 7).unwrap();
    assert!(p.cq[0].cqe() >= 7);
    complete(&mut p, 0, 6);
    p.port.model.step(1_000_000_000);
    let refused = ibv::resize_cq(&mut p.cq[0], 1);
    assert_eq!(refused.map_err(mlx5::Error::errno), Err(22), "six entries do not fit");
    assert_eq!(p.cq[0].cqe(), 7);
    assert_eq!(ids(&mut p.cq[0]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(ids(&mut p.cq[1]), [0, 1, 2, 3, 4, 5]);
    ibv::resize_cq(&mut p.cq[0], 1).unwrap();
    p.end();
}

#[test]
fn the_smallest_ring_that_holds_what_waits_is_enough() {
    for waiting in 0..=7 {
        let mut p = pair();
        complete(&mut p, 0, waiting);
        p.cq[0].resize(waiting.max(1) as u32).unwrap();
        assert_eq!(ids(&mut p.cq[0]), (0..waiting).collect::<Vec<_>>());
        complete(&mut p, 100, 1);
        assert_eq!(ids(&mut p.cq[0]), [100]);
        p.poll(1, waiting as usize + 1);
        p.end();
    }
}

#[test]
fn a_ring_is_as_good_as_new_over_many_laps_after_a_resize() {
    for make in makers(false) {
        let mut p = pair_with(ModelConfig::default(), 63, QP_CAP_64, &*make);
        let mut first = 0;
        for cqe in [7, 15, 3] {
            p.cq.iter_mut().for_each(|cq| cq.resize(cqe).unwrap());
            // Laps enough for a lap byte to come around.
            for n in (1..=u64::from(cqe)).cycle().take(700) {
                round(&mut p, first, n, (first % 3) as usize, &[], n % 2 == 0);
                first += n;
            }
        }
        p.end();
    }
}

#[test]
fn an_error_that_waits_is_told_after_a_resize() {
    for (word, mask, value, is_right) in bad_entries() {
        let mut p = pair();
        let ring = Ring::of(&p.port, &p.cq[0]);
        complete(&mut p, 0, 5);
        ring.change(2, word, mask, value);
        assert_eq!(ids(&mut p.cq[0]), [0, 1]);
        p.cq[0].resize(127).unwrap();
        let error = p.cq[0].poll_cq(&mut [Wc::default(); 8]).unwrap_err();
        assert!(is_right(error), "{error:?}");
        assert_eq!(ids(&mut p.cq[0]), [3, 4]);
        // One that has not been found yet.
        let ring = Ring::of(&p.port, &p.cq[0]);
        complete(&mut p, 5, 3);
        ring.change(5 + 1 + 1, word, mask, value);
        p.cq[0].resize(15).unwrap();
        assert_eq!(p.cq[0].start_poll(&POLL).unwrap().completion().wr_id(), 5);
        assert!(p.cq[0].start_poll(&POLL).is_err_and(is_right));
        assert_eq!(ids(&mut p.cq[0]), [7]);
        p.poll(1, 8);
        p.end();
    }
}

#[test]
fn entries_that_a_reset_dropped_stay_dropped_after_a_resize() {
    for make in makers(false) {
        for (sizes, before) in [([255, 31], true), ([31, 255], true), ([255, 31], false)] {
            let (port, dev) = open();
            let pd = dev.alloc_pd().unwrap();
            let mut cq = make(&dev, 127);
            let mut qps: Vec<_> = (0..2).map(|_| create_qp(&pd, &cq, &cq, SIZES)).collect();
            for qp in &mut qps {
                let me = qp.qp_num();
                connect(&dev, qp, me);
            }
            let post = |qps: &mut Vec<mlx5::Qp>, which: usize, ids: std::ops::Range<u64>| {
                for wr_id in ids {
                    qps[which].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
                    let send_flags = SendFlags::SIGNALED;
                    qps[which].post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
                }
                port.model.step(1_000_000);
            };
            post(&mut qps, 0, 0..4);
            post(&mut qps, 1, 100..103);
            post(&mut qps, 0, 4..6);
            if before {
                cq.resize(sizes[0]).unwrap();
            }
            qps[0].reset(ExclusiveCqs::Same(&mut cq)).unwrap();
            for cqe in sizes {
                cq.resize(cqe).unwrap();
            }
            let me = qps[0].qp_num();
            connect(&dev, &mut qps[0], me);
            post(&mut qps, 0, 200..202);
            let mut wcs = poll_n(&port, &mut cq, 10);
            wcs.sort_by_key(|wc| wc.wr_id);
            let got: Vec<_> = wcs.iter().map(|wc| wc.wr_id).collect();
            assert_eq!(got, [100, 100, 101, 101, 102, 102, 200, 200, 201, 201]);
            assert_eq!(cq.poll_cq(&mut [Wc::default()]), Ok(0));
            for qp in qps {
                qp.destroy().map_err(|e| e.error).unwrap();
            }
            drop((cq, pd));
            crate::support::close(&port, dev);
        }
    }
}

/// An entry that looks like one that a reset dropped, and came after the reset, is not one: the place where that was moves along.
#[test]
fn what_came_after_a_reset_is_delivered_whatever_it_looks_like() {
    for cqe in [255, 31] {
        let mut p = pair();
        complete(&mut p, 0, 4);
        let index = Ring::of(&p.port, &p.cq[0]).dword(0, 8) & 0xff_ffff;
        let [cq, _] = &mut p.cq;
        p.qp[0].reset(ExclusiveCqs::Same(cq)).unwrap();
        p.cq[0].resize(cqe).unwrap();
        // A completion of a queue that nobody knows, with 64 bytes of data and a byte count of ones.
        let mut entry = [0; 64];
        entry[32..36].copy_from_slice(&(index + 77).to_be_bytes());
        entry[44..48].fill(0xff);
        entry[63] = 2 << 2;
        assert!(p.port.model.inject_cqe(p.cq[0].cqn(), entry));
        let error = p.cq[0].poll_cq(&mut [Wc::default(); 8]).unwrap_err();
        assert!(matches!(error, PollError::UnknownQueue { user_index, .. } if user_index == index + 77), "{error:?}");
        p.poll(1, 4);
        p.end();
    }
}

/// What a forgotten poller looked at comes again, from the new ring.
#[test]
fn completions_of_a_forgotten_poller_come_again_after_a_resize() {
    for make in makers(false) {
        let mut p = pair_with(ModelConfig::default(), 63, QP_CAP_64, &*make);
        burst(&mut p, 0, 12);
        let mut poller = p.cq[0].start_poll(&POLL).unwrap();
        for _ in 0..5 {
            poller.next().unwrap();
        }
        std::mem::forget(poller);
        p.cq[0].resize(127).unwrap();
        assert_eq!(ids(&mut p.cq[0]), (0..12).collect::<Vec<_>>());
        p.poll(1, 12);
        p.end();
    }
}

/// A CQ that ignores overruns tells the device what it has consumed only before commands: a resize is one.
#[test]
fn a_queue_that_ignores_overruns_shrinks_to_what_really_waits() {
    let mut p = pair_with(ModelConfig::default(), 63, SIZES, careless);
    for lap in 0..3 {
        complete(&mut p, 0, 15);
        assert_eq!(ids(&mut p.cq[0]).len(), 15);
        p.poll(1, 15);
        complete(&mut p, 15, 3);
        p.cq[0].resize(if lap % 2 == 0 { 3 } else { 63 }).unwrap();
        assert_eq!(ids(&mut p.cq[0]), [15, 16, 17]);
        p.cq[0].resize(63).unwrap();
        p.poll(1, 3);
    }
    p.end();
}

#[test]
fn a_queue_is_resized_while_others_post() {
    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..SIZES };
    for make in makers(false) {
        let Pair { port, dev, pd, cq, qp, buf } = pair_with(ModelConfig::default(), 31, cap, &*make);
        let model = port.model.spawn().unwrap();
        let (total, limit) = (600_u64, Instant::now() + Duration::from_secs(60));
        let ([mut send_cq, mut recv_cq], [mut a, mut b]) = (cq, qp);
        let stop = AtomicBool::new(false);
        let poll = |cq: &mut Cq, opcode| {
            let (mut wcs, mut next, mut turn) = ([Wc::default(); 3], 0, 0_u32);
            while next < total {
                assert!(Instant::now() < limit, "{next} of {total} {opcode}");
                turn += 1;
                if turn % 3 == 0 {
                    // At most 8 of each wait.
                    cq.resize([15, 127, 31, 1023][turn as usize / 3 % 4]).unwrap();
                }
                let n = cq.poll_cq(&mut wcs).unwrap();
                for wc in &wcs[..n] {
                    assert_eq!((wc.wr_id, wc.status, wc.opcode), (next, WcStatus::SUCCESS, opcode));
                    next += 1;
                }
            }
        };
        let until_posted = |post: &mut dyn FnMut() -> Result<(), mlx5::PostError>| {
            while post().is_err() && !stop.load(Ordering::Relaxed) {
                assert!(Instant::now() < limit);
                std::thread::yield_now();
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| poll(&mut send_cq, WcOpcode::SEND));
            s.spawn(|| poll(&mut recv_cq, WcOpcode::RECV));
            s.spawn(|| {
                for wr_id in 0..total {
                    until_posted(&mut || b.post_recv(&[RecvWr { wr_id, sg_list: &[] }]));
                }
            });
            for wr_id in 0..total {
                let send_flags = SendFlags::SIGNALED;
                until_posted(&mut || a.post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]));
            }
        });
        drop(model);
        Pair { port, dev, pd, cq: [send_cq, recv_cq], qp: [a, b], buf }.end();
    }
}

/// The old ring goes back at once, the record stays where it is, and a CQ that is dropped before its queue pairs leaves nothing.
#[test]
fn the_old_ring_is_given_back_and_the_record_stays() {
    let mut p = pair();
    let (pieces, record) = (p.port.model.dma_outstanding().0, p.cq[0].query().unwrap().dbr_addr());
    for (n, cqe) in [1000, 31, 4000, 1].into_iter().enumerate() {
        let ring = p.port.model.cq_ring(p.cq[0].cqn());
        p.cq[0].resize(cqe).unwrap();
        let consumed = u32::from_be(p.port.words(record, 1)[0].load(Ordering::Relaxed));
        assert_eq!(consumed, n as u32 + 1, "the old ring's last entry");
        assert_ne!(p.port.model.cq_ring(p.cq[0].cqn()), ring);
        assert_eq!(p.port.model.dma_outstanding().0, pieces);
        assert_eq!(p.cq[0].query().unwrap().dbr_addr(), record);
    }
    p.cq[0].resize(127).unwrap();
    let buf = p.pd.alloc_buf(8, AccessFlags::empty()).unwrap();
    let Pair { port, dev, pd, cq, qp, buf: bufs } = p;
    drop(cq);
    drop((qp, bufs, buf, pd));
    crate::support::close(&port, dev);
}
