//! Data in completions while other things go on: other queues on the CQ, queues and buffers that go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mlx5::dv::CqeCompLayout::{Basic, Enhanced};
use mlx5::dv::{CqInitAttr, CqInitAttrMask, CqeCompResFormat};
use mlx5::{AccessFlags, QpInitAttr, RecvWr, SendFlags, SendWr, Sge, Wc, WcStatus};

use super::{ALLOW, FILL, allowing, assert_success, bytes, next, post_recv, send_bytes, settle, untouched};
use crate::support::{SIZES, close, connect, create_qp, open, poll_n};

/// Queues with and without on one CQ: each entry is read as its queue's.
#[test]
fn queues_that_allow_it_share_a_cq_with_others() {
    for size in [64, 128] {
        let (port, dev) = open();
        let (pd, mut cq) = (dev.alloc_pd().unwrap(), super::cq_of(&dev, 255, size));
        let buf = pd.alloc_buf(4096, AccessFlags::LOCAL_WRITE).unwrap();
        let piece =
            |at: usize, length: usize| Sge { addr: buf.addr() + at as u64, length: length as u32, lkey: buf.lkey() };
        let base = QpInitAttr::new(&cq, &cq, SIZES);
        let mut qps: Vec<_> = (0..4)
            .map(|n| match n % 2 {
                0 => pd.create_qp(&mut QpInitAttr { create_flags: ALLOW, ..base }).unwrap(),
                _ => create_qp(&pd, &cq, &cq, SIZES),
            })
            .collect();
        for qp in &mut qps {
            let me = qp.qp_num();
            connect(&dev, qp, me);
        }
        for round in 0..12 {
            for (n, qp) in qps.iter_mut().enumerate() {
                let data = bytes(100 * round + n, 7 * round);
                buf.write(2048 + 128 * n, &data).unwrap();
                post_recv(qp, n as u64, &[piece(128 * n, 128)]);
                let sg_list = &[piece(2048 + 128 * n, data.len())];
                qp.post_send(&[SendWr { wr_id: 9, sg_list, ..Default::default() }]).unwrap();
            }
            port.model.step(1_000_000);
            let wcs = poll_n(&port, &mut cq, 4);
            for wc in wcs {
                let n = wc.wr_id as usize;
                assert_eq!((wc.status, wc.qp_num, wc.byte_len), (WcStatus::SUCCESS, qps[n].qp_num(), 7 * round as u32));
                let mut got = vec![0; 7 * round];
                buf.read(128 * n, &mut got).unwrap();
                assert_eq!(got, bytes(100 * round + n, 7 * round));
            }
            // Keeps the send queues from filling up: the last one's completion ends those before it.
            for qp in &mut qps {
                qp.post_recv(&[RecvWr::default()]).unwrap();
                qp.post_send(&[SendWr { send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
            }
            port.model.step(1_000_000);
            poll_n(&port, &mut cq, 8);
        }
        drop((qps, cq, buf, pd));
        close(&port, dev);
    }
}

#[test]
fn data_for_a_queue_that_is_gone_is_dropped() {
    let mut p = allowing(64, SIZES);
    let to = p.sge(1, 0, 32);
    post_recv(&mut p.qp[1], 1, &[to]);
    send_bytes(&mut p, 1, &bytes(1, 32));
    let spare = create_qp(&p.pd, &p.cq[1], &p.cq[1], SIZES);
    std::mem::replace(&mut p.qp[1], spare).destroy().map_err(|e| e.error).unwrap();
    assert_eq!(p.cq[1].poll_cq(&mut [Wc::default(); 4]), Ok(0));
    assert!(untouched(&p, 1, &[]));
    next(&mut p, 0);
    p.end();
}

/// Requests that fail have no data, and end as ever.
#[test]
fn flushed_requests_of_such_a_queue_are_flushed() {
    let mut p = allowing(64, SIZES);
    let to = p.sge(1, 0, 32);
    (0..3).for_each(|n| post_recv(&mut p.qp[1], n, &[to]));
    let attr = mlx5::QpAttr { qp_state: mlx5::QpState::Err, ..Default::default() };
    p.qp[1].modify(&attr, mlx5::QpAttrMask::STATE).unwrap();
    settle(&p);
    for n in 0..3 {
        let wc = next(&mut p, 1);
        assert_eq!((wc.wr_id, wc.status), (n, WcStatus::WR_FLUSH_ERR));
    }
    assert!(untouched(&p, 1, &[]));
    p.end();
}

/// One thread registers a buffer, has a message sent to it and deregisters it, at any moment; another polls.
#[test]
fn buffers_go_on_one_thread_while_another_polls_data_into_them() {
    let p = allowing(64, SIZES);
    let model = p.port.model.spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    let done = AtomicBool::new(false);
    let crate::support::Pair { port, dev, pd, cq: [mut send_cq, mut recv_cq], qp: [mut a, mut b], buf } = p;
    let (mut arrived, mut denied) = (0, 0);
    std::thread::scope(|s| {
        s.spawn(|| {
            let data = [0x5a; 32];
            for round in 0..600_u32 {
                let buf = pd.alloc_buf(32, AccessFlags::LOCAL_WRITE).unwrap();
                let sg_list = &[Sge { addr: buf.addr(), length: 32, lkey: buf.lkey() }];
                while b.post_recv(&[RecvWr { wr_id: round.into(), sg_list }]).is_err() {
                    assert!(Instant::now() < limit);
                    std::thread::yield_now();
                }
                let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
                let wr = SendWr { inline_data: &data, send_flags, ..Default::default() };
                a.post_send(&[wr]).unwrap();
                while send_cq.poll_cq(&mut [Wc::default()]).unwrap() == 0 {
                    assert!(Instant::now() < limit);
                    std::thread::yield_now();
                }
                // The message lies in its completion by now, which may have been polled or not.
                if round % 3 == 0 {
                    std::thread::yield_now();
                }
                let dword = buf.words()[7].load(Ordering::Relaxed);
                assert!(dword == 0 || dword == 0x5a5a_5a5a);
                buf.dereg().map_err(|e| e.error).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let (mut wcs, mut next) = ([Wc::default(); 3], 0);
        while next < 600 {
            assert!(Instant::now() < limit);
            let n = recv_cq.poll_cq(&mut wcs).unwrap();
            for wc in &wcs[..n] {
                assert_eq!(wc.wr_id, next);
                match wc.status {
                    WcStatus::SUCCESS => arrived += 1,
                    WcStatus::LOC_PROT_ERR => denied += 1,
                    other => panic!("{other:?}"),
                }
                next += 1;
            }
            if next % 2 == 0 && !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(arrived + denied, 600);
    drop(model);
    let p = crate::support::Pair { port, dev, pd, cq: [send_cq, recv_cq], qp: [a, b], buf };
    assert_eq!(p.bytes(1, 0, 1), [FILL]);
    p.end();
}

/// Completions of both sides come in one batch of each way of polling.
#[test]
fn a_poller_copies_as_it_moves_on() {
    let mut p = allowing(128, SIZES);
    for n in 0..4 {
        let to = p.sge(1, 100 * n, 64);
        post_recv(&mut p.qp[1], n as u64, &[to]);
        send_bytes(&mut p, n as u64, &bytes(n, 20 * n));
    }
    let mut poller = p.cq[1].start_poll(&Default::default()).unwrap();
    let read = |n: usize| {
        let mut got = vec![0; 20 * n];
        p.buf[1].read(100 * n, &mut got).unwrap();
        got
    };
    for n in 0..4 {
        assert_eq!(poller.completion().wr_id(), n as u64);
        assert_eq!(read(n), bytes(n, 20 * n));
        assert_eq!(n == 3, poller.next().is_err());
    }
    drop(poller);
    (0..4).for_each(|n| assert_success(&next(&mut p, 0), n));
    p.end();
}

/// With compression, only entries without data are put together; what lies between sessions is copied as ever.
#[test]
fn data_and_compressed_sessions_share_a_cq() {
    for (size, layout) in [(64, Basic), (128, Basic), (64, Enhanced), (128, Enhanced)] {
        let make = |dev: &mlx5::Device| {
            let mask = CqInitAttrMask::COMPRESSED_CQE | CqInitAttrMask::CQE_SIZE | CqInitAttrMask::CQE_COMP_LAYOUT;
            let dv = CqInitAttr {
                comp_mask: mask,
                cqe_comp_res_format: CqeCompResFormat::HASH,
                cqe_size: size,
                cqe_comp_layout: layout,
                ..Default::default()
            };
            dev.dv_create_cq(&mlx5::CqInitAttrEx { cqe: 63, ..Default::default() }, &dv).unwrap()
        };
        let mut p = super::allowing_on(make, SIZES);
        for round in 0..20 {
            let lens: Vec<usize> = (0..12).map(|n| [100, 200, 24, 100, 300, 300, 0, 60][(7 * round + n) % 8]).collect();
            for (n, len) in lens.iter().enumerate() {
                let to = p.sge(1, 400 * n, 400);
                post_recv(&mut p.qp[1], n as u64, &[to]);
                p.buf[0].write(400 * n, &bytes(round + n, *len)).unwrap();
                let sg_list = &[p.sge(0, 400 * n, *len)];
                let send_flags = SendFlags::SIGNALED;
                p.qp[0].post_send(&[SendWr { wr_id: n as u64, sg_list, send_flags, ..Default::default() }]).unwrap();
            }
            settle(&p);
            for (n, len) in lens.iter().enumerate() {
                let wc = next(&mut p, 1);
                assert_success(&wc, n as u64);
                assert_eq!((wc.byte_len as usize, p.bytes(1, 400 * n, *len)), (*len, bytes(round + n, *len)));
                assert_success(&next(&mut p, 0), n as u64);
            }
        }
        p.end();
    }
}
