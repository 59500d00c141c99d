//! Reliable connections of the model when something is wrong: keys, lengths, peers; and the way out of it.

use crate::connections::{CQ, Pair, REGION, pair, pair_with};
use crate::one_sided::{Bench, WRITE};
use crate::qp::QpWish;
use crate::raw::{get, load, put, store32};
use crate::rdma::{LR, LW, Mr, Rdma};
use crate::wqe::{Wqe, data, inline, remote, signalled};

impl Pair {
    /// Polls the sender's queue and checks it for an error: syndrome and vendor syndrome.
    fn sender_error(&mut self, syndrome: u8, vendor: u8) {
        let cqe = self.rdma.poll(&mut self.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (13, syndrome, vendor));
    }

    /// The same, of a completion that is there already.
    fn sender_error_now(&mut self, syndrome: u8, vendor: u8) {
        let cqe = self.rdma.take(&mut self.cq_a).expect("the error is due");
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (13, syndrome, vendor));
    }

    fn receiver_error(&mut self, syndrome: u8, vendor: u8) {
        let cqe = self.rdma.poll(&mut self.cq_b);
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (14, syndrome, vendor));
    }
}

#[test]
fn the_terminating_lkey_ends_a_receive_list() {
    let mut p = pair_with(QpWish { stride: 64, ..QpWish::default() }, CQ);
    p.recv(16);
    p.send(17);
    p.receiver_error(0x01, 0x68);
    p.sender_error(0x12, 0x8a);
    p.rdma.assert_clean();
}

#[test]
fn a_sender_waits_for_a_receive_request_as_long_as_rnr_retry_says() {
    let mut p = pair_with(QpWish { rnr_retry: 7, min_rnr_nak: 12, ..QpWish::default() }, CQ);
    p.send(8);
    p.rdma.raw.model.step(50_000_000);
    p.idle();
    p.recv(64);
    p.idle();
    p.rdma.raw.model.step(640_000);
    assert_eq!(p.rdma.take(&mut p.cq_a).unwrap()[63] >> 4, 0, "within one RNR timer of 640 us");
    assert_eq!(p.rdma.take(&mut p.cq_b).unwrap()[63] >> 4, 2);
    p.rdma.assert_clean();
}

#[test]
fn a_sender_gives_up_after_its_rnr_retries() {
    let mut p = pair_with(QpWish { rnr_retry: 2, min_rnr_nak: 12, ..QpWish::default() }, CQ);
    p.send(8);
    p.rdma.raw.model.step(2 * 640_000 - 1);
    p.idle();
    p.rdma.raw.model.step(1);
    p.sender_error_now(0x16, 0x87);
    assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 3));
    p.rdma.assert_clean();
}

#[test]
fn each_message_has_all_its_retries() {
    let mut p = pair_with(QpWish { rnr_retry: 1, min_rnr_nak: 12, ..QpWish::default() }, CQ);
    for _ in 0..3 {
        p.send(8);
        p.recv(64);
        p.rdma.raw.model.step(640_000);
        assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
    }
    p.rdma.assert_clean();
}

#[test]
fn each_message_has_all_its_attempts() {
    let mut p = pair_with(QpWish { retry_count: 1, ack_timeout: 8, psn: 7, ..QpWish::default() }, CQ);
    for psn in 7..10 {
        p.rdma.leave(0x50a, &p.b);
        (p.b.rq, p.b.wish.psn) = (0, psn);
        p.rdma.init(&p.b);
        p.recv(64);
        p.send(8);
        assert!(p.rdma.take(&mut p.cq_a).is_none());
        p.rdma.ready_to_receive(&p.b, p.a.qpn);
        p.rdma.raw.model.step(4096 << 8);
        assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
    }
    p.rdma.assert_clean();
}

#[test]
fn a_peer_that_is_connected_elsewhere_does_not_answer() {
    let mut p = pair();
    let mut third = p.rdma.qp(QpWish::default(), &p.cq_a, &p.cq_a);
    p.rdma.init(&third);
    p.rdma.ready_to_receive(&third, p.b.qpn);
    p.rdma.ready_to_send(&third);
    p.recv(64);
    p.rdma.send(&mut third, signalled(&[]));
    p.sender_error(0x15, 0x81);
    p.send(8);
    assert_eq!(p.rdma.poll(&mut p.cq_b)[63] >> 4, 2, "the peer's own connection goes on");
    p.rdma.assert_clean();
}

#[test]
fn a_queue_pair_moved_to_error_while_it_waits_flushes_on() {
    let mut p = pair_with(QpWish { rnr_retry: 7, min_rnr_nak: 0, ..QpWish::default() }, CQ);
    p.send(8);
    p.rdma.leave(0x507, &p.a);
    p.sender_error_now(0x05, 0xf9);
    p.send(8);
    p.sender_error_now(0x05, 0xf9);
    p.rdma.assert_clean();
}

#[test]
fn packet_numbers_that_disagree_end_in_exceeded_retries() {
    let rdma = Rdma::up();
    let (cq_a, cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
    let wish = QpWish { retry_count: 3, ack_timeout: 8, ..QpWish::default() };
    let (mut a, mut b) = (rdma.qp(wish, &cq_a, &cq_a), rdma.qp(QpWish { psn: 5, ..wish }, &cq_b, &cq_b));
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        rdma.init(qp);
        rdma.ready_to_receive(qp, peer.qpn);
        rdma.ready_to_send(qp);
    }
    let (from, to) = (rdma.register(64, 0, LR), rdma.register(64, 0, LW));
    rdma.recv(&mut b, &[to.seg(0, 64)]);
    rdma.send(&mut a, signalled(&data(from.seg(0, 8))));
    let mut p = Pair { rdma, a, b, cq_a, cq_b, from, to };
    // Four attempts, each waited for 4.096 us * 2^8.
    p.rdma.raw.model.step(4 * (4096 << 8) - 1);
    p.idle();
    p.rdma.raw.model.step(1);
    p.sender_error_now(0x15, 0x81);
    assert!(p.rdma.take(&mut p.cq_b).is_none());
}

#[test]
fn nobody_answers_at_an_address_that_is_not_the_ports() {
    let rdma = Rdma::up();
    let (foreign_gid, foreign_mac) = ([0x20; 16], [2, 0, 0, 0, 0, 9]);
    let own_mac = crate::rdma::MAC;
    for (gid, mac, answered) in
        [(rdma.gid, own_mac, true), (foreign_gid, own_mac, false), (rdma.gid, foreign_mac, false)]
    {
        let mut cq = rdma.cq(CQ);
        let (mut a, mut b) = (rdma.qp(QpWish::default(), &cq, &cq), rdma.qp(QpWish::default(), &cq, &cq));
        for (qp, peer) in [(&a, &b), (&b, &a)] {
            rdma.init(qp);
            rdma.ready_to_receive_from(qp, peer.qpn, gid, mac);
            rdma.ready_to_send(qp);
        }
        rdma.recv(&mut b, &[]);
        rdma.send(&mut a, signalled(&[]));
        let cqe = rdma.poll(&mut cq);
        assert_eq!((cqe[63] >> 4, cqe[55]), if answered { (2, 0) } else { (13, 0x15) });
    }
}

#[test]
fn path_mtus_that_differ_refuse_only_what_is_longer() {
    let rdma = Rdma::up();
    let (mut cq_a, mut cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
    let wish = QpWish { mtu: 1, ..QpWish::default() };
    let (mut a, mut b) = (rdma.qp(wish, &cq_a, &cq_a), rdma.qp(QpWish { mtu: 5, ..wish }, &cq_b, &cq_b));
    for (qp, peer) in [(&a, &b), (&b, &a)] {
        rdma.init(qp);
        rdma.ready_to_receive(qp, peer.qpn);
        rdma.ready_to_send(qp);
    }
    let to = rdma.register(4096, 0, LR | LW);
    for (len, (opcode, syndrome)) in [(256, (0, 0)), (257, (13, 0x12))] {
        rdma.recv(&mut b, &[to.seg(0, 4096)]);
        rdma.send(&mut a, signalled(&data(to.seg(0, len))));
        let cqe = rdma.poll(&mut cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), (opcode, syndrome));
    }
    assert_eq!([rdma.poll(&mut cq_b)[63] >> 4, rdma.poll(&mut cq_b)[63] >> 4], [2, 14]);
    rdma.assert_clean();
}

#[test]
fn the_reserved_lkey_needs_a_queue_pair_that_may_use_it() {
    for allowed in [false, true] {
        let rdma = Rdma::up();
        let (mut cq_a, cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
        let wish = QpWish { reserved_lkey: allowed, ..QpWish::default() };
        let (mut a, mut b) = rdma.pair(wish, &cq_a, &cq_b);
        let out = rdma.raw.command(0x203, 0, &[0; 8], 32); // QUERY_SPECIAL_CONTEXTS
        let mem = rdma.alloc(64);
        rdma.recv(&mut b, &[(get(&out, 96, 32) as u32, mem.iova(), 64)]);
        rdma.send(&mut a, signalled(&inline(b"physical")));
        let cqe = rdma.poll(&mut cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55]), if allowed { (0, 0) } else { (13, 0x14) });
        assert_eq!(load(&mem, 0, 8) == b"physical", allowed);
        rdma.assert_clean();
    }
}

#[test]
fn a_message_to_a_peer_that_is_not_ready_yet_is_sent_again() {
    let rdma = Rdma::up();
    let (mut cq_a, mut cq_b) = (rdma.cq(CQ), rdma.cq(CQ));
    let wish = QpWish { retry_count: 7, ack_timeout: 10, ..QpWish::default() };
    let (mut a, mut b) = (rdma.qp(wish, &cq_a, &cq_a), rdma.qp(wish, &cq_b, &cq_b));
    rdma.init(&a);
    rdma.ready_to_receive(&a, b.qpn);
    rdma.ready_to_send(&a);
    rdma.init(&b);
    let to = rdma.register(64, 0, LW);
    rdma.recv(&mut b, &[to.seg(0, 64)]);
    rdma.send(&mut a, signalled(&inline(b"early")));
    rdma.raw.model.step(1000);
    assert!(rdma.take(&mut cq_a).is_none());
    rdma.ready_to_receive(&b, a.qpn);
    assert_eq!(rdma.poll(&mut cq_a)[63] >> 4, 0);
    assert_eq!(rdma.poll(&mut cq_b)[63] >> 4, 2);
    rdma.assert_clean();
}

#[test]
fn a_bad_key_fails_the_send_and_flushes_everything_behind_it() {
    let mut p = pair();
    p.rdma.recv(&mut p.a, &[p.to.seg(0, 8)]);
    p.recv(64);
    let bad = data((p.from.key ^ 1, p.from.va, 8));
    p.rdma.write_send(&mut p.a, signalled(&bad));
    let unsignalled = Wqe { flags: 0, ..signalled(&[]) };
    p.rdma.write_send(&mut p.a, unsignalled);
    let last = p.rdma.write_send(&mut p.a, signalled(&[]));
    p.rdma.ring(&p.a, last);
    p.sender_error(0x04, 0x52);
    p.sender_error(0x05, 0xf9);
    p.sender_error(0x05, 0xf9);
    let flushed = p.rdma.poll(&mut p.cq_a);
    assert_eq!((flushed[63] >> 4, flushed[55], flushed[54], get(&flushed, 480, 16)), (14, 5, 0xf9, 0));
    assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 3));
    assert!(p.rdma.take(&mut p.cq_b).is_none(), "the peer saw nothing");
    p.rdma.assert_clean();
}

#[test]
fn each_way_to_miss_a_key_is_a_local_protection_error() {
    type Bad = fn(&Rdma, &Mr) -> (u32, u64, u32);
    let ways: [(Bad, u8); 9] = [
        (|_, mr| (mr.key + 0x5000, mr.va, 8), 0x52),
        (|_, mr| (mr.key ^ 0x80, mr.va, 8), 0x52),
        (|_, mr| (mr.key, mr.va - 1, 8), 0x51),
        (|_, mr| (mr.key, mr.va + REGION as u64 - 7, 8), 0x51),
        (|_, mr| (mr.key, u64::MAX - 3, 8), 0x51),
        (|rdma, _| rdma.register(64, 0, LW).seg(0, 8), 0x53),
        (|rdma, _| rdma.register_as(64, 0, LR, |mkc| put(mkc, 1, 1, 1)).seg(0, 8), 0x33),
        (|rdma, _| rdma.register_as(64, 0, LR, |mkc| put(mkc, 32, 24, 0x777)).seg(0, 8), 0x33),
        (
            |rdma, _| {
                let other = get(&rdma.raw.command(0x800, 0, &[0; 8], 16), 72, 24); // ALLOC_PD
                rdma.register_as(64, 0, LR, |mkc| put(mkc, 104, 24, other)).seg(0, 8)
            },
            0x56,
        ),
    ];
    for (n, (bad, vendor)) in ways.into_iter().enumerate() {
        let mut p = pair();
        p.recv(64);
        let segment = data(bad(&p.rdma, &p.from));
        p.rdma.send(&mut p.a, signalled(&segment));
        p.sender_error(0x04, vendor);
        assert!(p.rdma.take(&mut p.cq_b).is_none(), "way {n}");
        p.rdma.assert_clean();
    }
}

#[test]
fn a_receive_buffer_without_write_access_breaks_both_sides() {
    let mut p = pair();
    p.rdma.recv(&mut p.b, &[p.from.seg(0, 64)]);
    p.send(8);
    p.receiver_error(0x04, 0x32);
    p.sender_error(0x14, 0x89);
    assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 6));
    p.rdma.assert_clean();
}

#[test]
fn a_message_longer_than_its_receive_buffer_breaks_both_sides() {
    let mut p = pair();
    p.recv(64);
    p.recv(64);
    p.to.fill(0, &[0xee; 64]);
    p.send(65);
    p.receiver_error(0x01, 0x68);
    p.receiver_error(0x05, 0xf9);
    p.sender_error(0x12, 0x8a);
    assert_eq!(p.to.bytes(0, 64), [0xee; 64]);
    assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (6, 6));
    p.rdma.assert_clean();
}

#[test]
fn a_message_longer_than_log_msg_max_is_a_local_length_error() {
    let mut p = pair_with(QpWish { log_msg_max: 12, ..QpWish::default() }, CQ);
    p.recv(8192);
    p.send(4096);
    assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
    p.recv(8192);
    p.send(4097);
    p.sender_error(0x01, 0x68);
    p.rdma.assert_clean();
}

#[test]
fn an_opcode_that_the_wire_does_not_know_is_a_local_operation_error() {
    let mut p = pair();
    p.rdma.send(&mut p.a, Wqe { opcode: 0x25, ..signalled(&[]) });
    let cqe = p.rdma.poll(&mut p.cq_a);
    assert_eq!((cqe[63] >> 4, cqe[55], cqe[56]), (13, 0x02, 0x25));
    p.rdma.assert_clean();
}

#[test]
fn a_responder_that_breaks_down_flushes_both_its_queues_in_order() {
    let waiting = QpWish { rnr_retry: 7, ..QpWish::default() };
    let mut b = Bench::with(Rdma::up(), QpWish::default(), waiting);
    for _ in 0..2 {
        b.rdma.recv(&mut b.b, &[]);
        b.rdma.send(&mut b.b, signalled(&[])); // the peer has no receive request for it
    }
    b.responder_is_idle();
    let nowhere = [&remote((0x77_7700, 0))[..], &inline(b"lost")].concat();
    b.post(WRITE, 0, &nowhere);
    let got: Vec<_> = (0..4).map(|_| b.rdma.poll(&mut b.cq_b)).collect();
    let seen: Vec<_> = got.iter().map(|cqe| (cqe[63] >> 4, cqe[55], cqe[54], get(cqe, 480, 16))).collect();
    assert_eq!(seen, [(13, 5, 0xf9, 0), (13, 5, 0xf9, 1), (14, 5, 0xf9, 0), (14, 5, 0xf9, 1)]);
    assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (6, 6));
    b.rdma.assert_clean();
}

#[test]
fn the_error_state_flushes_what_is_and_what_comes() {
    let mut p = pair();
    p.recv(64);
    p.recv(64);
    p.rdma.leave(0x507, &p.b);
    p.receiver_error(0x05, 0xf9);
    p.receiver_error(0x05, 0xf9);
    p.recv(64);
    p.receiver_error(0x05, 0xf9);
    p.rdma.send(&mut p.b, signalled(&inline(b"late")));
    let flushed = p.rdma.poll(&mut p.cq_b);
    assert_eq!((flushed[63] >> 4, flushed[55], flushed[54]), (13, 5, 0xf9));
    assert_eq!(p.rdma.state(&p.b), 6);
    p.rdma.assert_clean();
}

#[test]
fn a_reset_queue_pair_starts_anew() {
    let mut p = pair();
    for _ in 0..3 {
        p.recv(64);
        p.send(8);
        assert_eq!([p.rdma.poll(&mut p.cq_a)[63] >> 4, p.rdma.poll(&mut p.cq_b)[63] >> 4], [0, 2]);
    }
    p.recv(64);
    for qp in [&mut p.a, &mut p.b] {
        p.rdma.leave(0x50a, qp);
        (qp.sq, qp.rq) = (0, 0);
        store32(&qp.record, 0, 0);
        store32(&qp.record, 4, 0);
    }
    assert_eq!((p.rdma.state(&p.a), p.rdma.state(&p.b)), (0, 0));
    p.idle();
    for (qp, peer) in [(&p.a, &p.b), (&p.b, &p.a)] {
        p.rdma.init(qp);
        p.rdma.ready_to_receive(qp, peer.qpn);
        p.rdma.ready_to_send(qp);
    }
    p.recv(64);
    p.send(8);
    assert_eq!(get(&p.rdma.poll(&mut p.cq_a), 480, 16), 0);
    assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 480, 16), 0);
    p.rdma.assert_clean();
}
