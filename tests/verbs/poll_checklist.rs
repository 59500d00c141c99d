//! What rdma-core's own tests of completion queues do, line by line: traffic over CQs of every kind, polled by the iterator.

use mlx5::dv::QpCreateFlags;
use mlx5::hw::platform::Platform;
use mlx5::{AccessFlags, PollError, QpInitAttr, RecvWr, SendFlags, SendWr, WcFlags, WcOpcode, WcStatus, WrOpcode, ibv};

use crate::cq_create::Attr;
use crate::cq_semantics::POLL;
use crate::scatter::ALLOW;
use crate::support::{BUF, Pair, REMOTE, SIZES, connect, open, pattern};

/// Two connected queue pairs with CQs of this kind.
fn peers(attr: &Attr<'_>, create_flags: QpCreateFlags) -> Pair {
    let (port, dev) = open();
    let pd = dev.alloc_pd().unwrap();
    let cq = [(); 2].map(|()| attr.create(&dev).unwrap());
    let mut qp = [0, 1].map(|side: usize| {
        pd.create_qp(&mut QpInitAttr { create_flags, ..QpInitAttr::new(&cq[side], &cq[side], SIZES) }).unwrap()
    });
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = [(); 2].map(|()| pd.alloc_buf(BUF, REMOTE | AccessFlags::LOCAL_WRITE).unwrap());
    Pair { port, dev, pd, cq, qp, buf }
}

/// Polls one completion of side `side` by the iterator, as the man page does it: ENOENT is to try again.
fn poll_one(p: &mut Pair, side: usize) -> (u64, WcOpcode) {
    let deadline = p.port.now() + 1_000_000_000;
    loop {
        match ibv::start_poll(&mut p.cq[side], &POLL) {
            Ok(poller) => {
                let c = poller.completion();
                assert_eq!(c.status(), WcStatus::SUCCESS);
                let (wr_id, opcode) = (c.wr_id(), c.opcode().unwrap());
                ibv::end_poll(poller);
                return (wr_id, opcode);
            }
            Err(error) => assert_eq!((error, error.errno()), (PollError::Empty, 2)),
        }
        assert!(p.port.now() < deadline, "a completion within a second");
        p.port.relax();
    }
}

/// Messages of `length` bytes to and fro, each of its own bytes.
fn ping_pong(p: &mut Pair, iterations: u64, length: usize) {
    for i in 0..2 * iterations {
        let (from, to) = ((i % 2) as usize, 1 - (i % 2) as usize);
        let data = pattern(i, length);
        p.buf[from].write(0, &data).unwrap();
        let (source, target) = (p.sge(from, 0, length), p.sge(to, 4096, length));
        p.qp[to].post_recv(&[RecvWr { wr_id: i, sg_list: &[target] }]).unwrap();
        let send_flags = SendFlags::SIGNALED;
        p.qp[from].post_send(&[SendWr { wr_id: i, sg_list: &[source], send_flags, ..Default::default() }]).unwrap();
        assert_eq!(poll_one(p, from), (i, WcOpcode::SEND));
        assert_eq!(poll_one(p, to), (i, WcOpcode::RECV));
        assert_eq!(p.bytes(to, 4096, length), data, "{length} bytes");
    }
}

/// test_cqex.py.
#[test]
fn an_extended_cq_of_2000_carries_a_hundred_iterations() {
    let mut attr = Attr::default();
    attr.ex.cqe = 2000;
    let mut p = peers(&attr, QpCreateFlags::empty());
    ping_pong(&mut p, 100, 1024);
    p.end();
}

/// test_mlx5_cq.py: cqe 100, wc_flags 0, ten iterations.
fn dv_attr() -> Attr<'static> {
    let mut attr = Attr::default();
    (attr.ex.cqe, attr.ex.wc_flags) = (100, WcFlags::empty());
    attr
}

#[test]
fn plain_cqs_of_mlx5dv_carry_traffic() {
    let mut p = peers(&dv_attr(), QpCreateFlags::empty());
    ping_pong(&mut p, 10, 1024);
    p.end();
}

#[test]
fn cqs_of_each_compressed_format_carry_ping_pong() {
    for (format, size) in (0..5).flat_map(|bit| [(1 << bit, 64), (1 << bit, 128)]) {
        let mut attr = dv_attr();
        attr.compress(format);
        attr.size(size);
        let mut p = peers(&attr, QpCreateFlags::empty());
        ping_pong(&mut p, 10, 1024);
        p.end();
    }
}

#[test]
fn padded_cqs_carry_traffic() {
    let mut attr = dv_attr();
    attr.size(128);
    attr.dv_flags(1);
    for flags in [QpCreateFlags::empty(), ALLOW] {
        let mut p = peers(&attr, flags);
        [60, 70, 140, 1024].into_iter().for_each(|length| ping_pong(&mut p, 10, length));
        p.end();
    }
}

/// The edges of data in completions: 32, 64 and 128 bytes.
#[test]
fn messages_around_the_size_of_an_entry_have_the_right_payload() {
    for (size, lengths) in [(128, [60, 70, 140]), (64, [16, 60, 70])] {
        let mut attr = dv_attr();
        attr.size(size);
        for flags in [QpCreateFlags::empty(), ALLOW, QpCreateFlags::DISABLE_SCATTER_TO_CQE] {
            let mut p = peers(&attr, flags);
            lengths.into_iter().for_each(|length| ping_pong(&mut p, 10, length));
            let inlined = p.port.model.completions().inlined;
            let small = lengths.iter().filter(|l| **l <= usize::from(size / 2)).count() as u64;
            assert_eq!(inlined, if flags == ALLOW { 20 * small } else { 0 }, "{size}: the way it was to be tried");
            p.end();
        }
    }
}

#[test]
fn reads_around_the_size_of_an_entry_have_the_right_payload() {
    let mut attr = dv_attr();
    attr.size(128);
    for flags in [QpCreateFlags::empty(), ALLOW] {
        let mut p = peers(&attr, flags);
        for (wr_id, length) in [16, 40, 60].into_iter().cycle().take(30).enumerate() {
            let data = pattern(wr_id as u64, length);
            p.buf[1].write(100, &data).unwrap();
            let (opcode, list) = (WrOpcode::RdmaRead { remote: p.remote(1, 100) }, [p.sge(0, 7, length)]);
            let (wr_id, send_flags) = (wr_id as u64, SendFlags::SIGNALED);
            p.qp[0].post_send(&[SendWr { wr_id, sg_list: &list, opcode, send_flags, ..Default::default() }]).unwrap();
            assert_eq!(poll_one(&mut p, 0), (wr_id, WcOpcode::RDMA_READ));
            assert_eq!(p.bytes(0, 7, length), data);
        }
        p.end();
    }
}

/// mlx5_timestamp, phc_timestamp: of sends and receives, not zero, later each time, and real time as nanoseconds of the device's
/// clock.
#[test]
fn time_stamps_of_both_clocks_go_forward_for_sends_and_receives() {
    for flag in [WcFlags::COMPLETION_TIMESTAMP, WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK] {
        let mut attr = dv_attr();
        attr.ex.wc_flags = flag;
        let mut p = peers(&attr, QpCreateFlags::empty());
        let mut last = [0; 2];
        for wr_id in 0..20 {
            p.qp[1].post_recv(&[RecvWr { wr_id, sg_list: &[] }]).unwrap();
            p.qp[0].post_send(&[SendWr { wr_id, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
            p.port.model.step(1_500_000_000);
            for (cq, last) in p.cq.iter_mut().zip(&mut last) {
                let poller = cq.start_poll(&POLL).unwrap();
                let c = poller.completion();
                let time = c.completion_ts().or(c.completion_wallclock_ns()).unwrap();
                assert_eq!(c.completion_ts().is_some(), flag == WcFlags::COMPLETION_TIMESTAMP);
                assert!(time > *last);
                // Real time is nanoseconds, also where the seconds change: the model's clock was moved by 1.5 s.
                if flag == WcFlags::COMPLETION_TIMESTAMP_WALLCLOCK && *last != 0 {
                    assert!((1_500_000_000..1_600_000_000).contains(&(time - *last)), "{time} behind {last}");
                }
                *last = time;
            }
        }
        p.end();
    }
}
