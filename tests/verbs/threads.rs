//! The driver on several threads, with the model on one of its own and on the wall clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Pair, SIZES, connect, create_qp, open, pair_with, pattern};
use mlx5::{Cq, PollAttr, QpCap, RecvWr, SendFlags, SendWr, Wc, WcOpcode, WcStatus};
use mlx5_model::ModelConfig;

const PATIENCE: Duration = Duration::from_secs(60);

/// One thread posts, another polls; the poster knows only what the queue's fill level tells it.
#[test]
fn posting_and_polling_run_on_two_threads() {
    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, ..SIZES };
    let Pair { port, dev, pd, cq, qp, buf } =
        pair_with(ModelConfig::default(), 15, cap, |d, n| d.create_cq(n, 0, 0).unwrap());
    let model = port.model.spawn().unwrap();
    let (total, limit) = (3_000_u64, Instant::now() + PATIENCE);
    let ([mut send_cq, mut recv_cq], [mut a, mut b]) = (cq, qp);
    let poll = |cq: &mut Cq, opcode| {
        let (mut wcs, mut next) = ([Wc::default(); 4], 0);
        while next < total {
            assert!(Instant::now() < limit, "{next} of {total} {opcode}");
            let n = cq.poll_cq(&mut wcs).unwrap();
            for wc in &wcs[..n] {
                assert_eq!((wc.wr_id, wc.status, wc.opcode), (next, WcStatus::SUCCESS, opcode));
                next += 1;
            }
            if n == 0 {
                std::thread::yield_now();
            }
        }
    };
    let until_posted = |post: &mut dyn FnMut() -> Result<(), mlx5::PostError>| {
        while let Err(full) = post() {
            assert_eq!(full.errno(), 12);
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

/// Queue pairs are destroyed on one thread while another polls their CQ.
#[test]
fn queues_are_destroyed_while_their_cq_is_polled() {
    let (port, dev) = open();
    let model = port.model.spawn().unwrap();
    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(1023, 0, 0).unwrap());
    let mut qps: Vec<_> = (0..48).map(|_| create_qp(&pd, &cq, &cq, SIZES)).collect();
    for qp in &mut qps {
        let me = qp.qp_num();
        connect(&dev, qp, me);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for (id, mut qp) in qps.drain(..).enumerate() {
                for _ in 0..4 {
                    let wr_id = id as u64;
                    qp.post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
                    let send_flags = SendFlags::SIGNALED;
                    qp.post_send(&[SendWr { wr_id, send_flags, ..Default::default() }]).unwrap();
                }
                qp.destroy().map_err(|e| e.error).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            if let Ok(mut poller) = cq.start_poll(&PollAttr::default()) {
                let mut last = poller.completion().wr_id();
                while let Ok(c) = poller.next() {
                    assert!(c.wr_id() < 48 && c.wr_id() >= last, "queues run one after the other");
                    last = c.wr_id();
                }
            }
        }
    });
    drop(model);
    assert!(cq.start_poll(&PollAttr::default()).is_err());
    drop((cq, pd));
    crate::support::close(&port, dev);
}

/// Objects are made and used by many threads on one device.
#[test]
fn threads_share_a_device() {
    let (port, dev) = open();
    let model = port.model.spawn().unwrap();
    std::thread::scope(|s| {
        for t in 0..4_u64 {
            let (dev, limit) = (&dev, Instant::now() + PATIENCE);
            s.spawn(move || {
                for round in 0..6 {
                    let (pd, mut cq) = (dev.alloc_pd().unwrap(), dev.create_cq(7, 0, 0).unwrap());
                    let mut qp = create_qp(&pd, &cq, &cq, SIZES);
                    let me = qp.qp_num();
                    connect(dev, &mut qp, me);
                    let buf = pd.alloc_buf(64, mlx5::AccessFlags::LOCAL_WRITE).unwrap();
                    let to = mlx5::Sge { addr: buf.addr(), length: 64, lkey: buf.lkey() };
                    let data = pattern(t << 32 | round, 64);
                    qp.post_recv(&[RecvWr { wr_id: t, sg_list: &[to] }]).unwrap();
                    let send_flags = SendFlags::INLINE | SendFlags::SIGNALED;
                    qp.post_send(&[SendWr { wr_id: t, inline_data: &data, send_flags, ..Default::default() }]).unwrap();
                    let (mut wcs, mut have) = ([Wc::default(); 2], 0);
                    while have < 2 {
                        have += cq.poll_cq(&mut wcs[have..]).unwrap();
                        assert!(Instant::now() < limit);
                        std::thread::yield_now();
                    }
                    assert!(wcs.iter().all(|wc| (wc.wr_id, wc.qp_num) == (t, me)));
                    let mut got = [0; 64];
                    buf.read(0, &mut got).unwrap();
                    assert_eq!(got[..], data[..]);
                    qp.destroy().map_err(|e| e.error).unwrap();
                    cq.destroy().map_err(|e| e.error).unwrap();
                }
            });
        }
    });
    drop(model);
    crate::support::close(&port, dev);
}

/// One thread posts to a shared queue, two poll the CQs of its queue pairs, one sends. Each request is told once at a time.
#[test]
fn a_shared_queue_is_posted_to_and_polled_on_three_threads() {
    let mut s = crate::srq::Shared::new(2, 7);
    let model = s.port.model.spawn().unwrap();
    let (total, limit) = (3_000_u64, Instant::now() + PATIENCE);
    let open: Vec<AtomicBool> = (0..total).map(|_| AtomicBool::new(false)).collect();
    let crate::srq::Shared { srq, sent, came, senders, .. } = &mut s;
    let poll = |cq: &mut Cq, mut left: u64| {
        let mut wcs = [Wc::default(); 4];
        while left > 0 {
            let n = cq.poll_cq(&mut wcs).unwrap();
            for wc in &wcs[..n] {
                assert_eq!((wc.status, wc.opcode), (WcStatus::SUCCESS, WcOpcode::RECV));
                assert!(open[wc.wr_id as usize].swap(false, Ordering::Relaxed), "request {} ended twice", wc.wr_id);
            }
            left -= n as u64;
            assert!(Instant::now() < limit, "{left} left");
            if n == 0 {
                std::thread::yield_now();
            }
        }
    };
    let [one, two] = &mut came[..] else { unreachable!() };
    std::thread::scope(|scope| {
        scope.spawn(|| poll(one, total / 2));
        scope.spawn(|| poll(two, total / 2));
        scope.spawn(|| {
            for wr_id in 0..total {
                open[wr_id as usize].store(true, Ordering::Relaxed);
                while let Err(full) = srq.post_recv(&[RecvWr { wr_id, sg_list: &[] }]) {
                    assert_eq!(full.errno(), 12);
                    assert!(Instant::now() < limit);
                    std::thread::yield_now();
                }
            }
        });
        let mut wcs = [Wc::default(); 8];
        let mut ended = 0;
        for n in 0..total {
            let send = SendWr { wr_id: n, send_flags: SendFlags::SIGNALED, ..Default::default() };
            while senders[(n % 2) as usize].post_send(&[send]).is_err() {
                ended += sent.poll_cq(&mut wcs).unwrap();
                assert!(Instant::now() < limit);
            }
        }
        while ended < total as usize {
            ended += sent.poll_cq(&mut wcs).unwrap();
            assert!(Instant::now() < limit);
        }
    });
    drop(model);
    assert_eq!(s.room(), 7);
    s.end();
}
