//! Unreliable connections of the model, driven by raw bytes.
//!
//! What is dropped and what breaks the receiver down follows the InfiniBand specification's table of responder errors
//! (classes D and A), as Linux's software implementation of it (rxe) reads it.

use mlx5_model::{CapConfig, DataFault};

use crate::connections::CQ;
use crate::one_sided::{Bench, CAS, FAA, READ, SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, pattern};
use crate::qp::QpWish;
use crate::raw::{Raw, get, put};
use crate::rdma::{LR, RR, Rdma};
use crate::wqe::{Wqe, data, inline, operands, remote};

pub const UC: QpWish = QpWish { service: 1, ..QpWish::RC };

fn bench() -> Bench {
    Bench::with(Rdma::up(), UC, UC)
}

/// A message of 5000 bytes by each opcode arrives, with the completions of a reliable one.
#[test]
fn sends_and_writes_arrive() {
    let mut b = bench();
    for (n, opcode) in [SEND, SEND_IMM, WRITE, WRITE_IMM].into_iter().enumerate() {
        let bytes = pattern(5000, n);
        b.mine.fill(0, &bytes);
        let mut segments = Vec::new();
        if matches!(opcode, WRITE | WRITE_IMM) {
            segments.extend_from_slice(&remote(b.theirs.there(0)));
        }
        segments.extend_from_slice(&data(b.mine.seg(0, 5000)));
        let imm = if matches!(opcode, SEND_IMM | WRITE_IMM) { 0xfeed } else { 0 };
        if opcode != WRITE {
            b.rdma.recv(&mut b.b, &[b.theirs.seg(0, 6000)]);
        }
        assert_eq!(get(&b.done(opcode, imm, &segments), 352, 32), 5000);
        assert!(b.theirs.bytes(0, 5000) == bytes, "opcode {opcode:#x}");
        if opcode == WRITE {
            b.responder_is_idle();
            continue;
        }
        let cqe = b.rdma.poll(&mut b.cq_b);
        let kind = match opcode {
            SEND => 2,
            SEND_IMM => 3,
            _ => 1,
        };
        assert_eq!((cqe[63] >> 4, get(&cqe, 352, 32), get(&cqe, 288, 32)), (kind, 5000, imm.into()));
        assert_eq!(get(&cqe, 192, 32), u64::from(b.a.qpn));
    }
    b.rdma.assert_clean();
}

/// What the receiver cannot use: how a bench is spoiled, and the request that gets lost.
type Loss = (&'static str, QpWish, fn(&mut Bench), fn(&Bench) -> (u8, Vec<u8>));

fn message(b: &Bench) -> (u8, Vec<u8>) {
    (SEND, data(b.mine.seg(0, 3000)).to_vec())
}

fn write_with_immediate(b: &Bench, to: (u32, u64)) -> (u8, Vec<u8>) {
    (WRITE_IMM, [remote(to), data(b.mine.seg(0, 3000))].concat())
}

fn recv(b: &mut Bench, len: u32) {
    b.rdma.recv(&mut b.b, &[b.theirs.seg(0, len)]);
}

const LOSSES: &[Loss] = &[
    ("no receive request", UC, |_| (), message),
    ("a receive request that is too small", UC, |b| recv(b, 2999), message),
    ("another path MTU", QpWish { mtu: 4, ..UC }, |b| recv(b, 3000), message),
    ("longer than the receiver's log_msg_max", QpWish { log_msg_max: 11, ..UC }, |b| recv(b, 3000), message),
    (
        "write that is not enabled",
        QpWish { remote: 5, ..UC },
        |b| recv(b, 3000),
        |b| write_with_immediate(b, b.theirs.there(0)),
    ),
    ("key that does not exist", UC, |b| recv(b, 3000), |b| write_with_immediate(b, (0x77_7700, 0))),
    (
        "write behind the memory's end",
        UC,
        |b| recv(b, 3000),
        |b| write_with_immediate(b, b.theirs.there(crate::one_sided::SIZE as u64 - 2999)),
    ),
    (
        "write without a receive request for its immediate data",
        UC,
        |_| (),
        |b| write_with_immediate(b, b.theirs.there(0)),
    ),
];

/// The second message of four: the receive request that it would have taken takes the third.
#[test]
fn a_message_that_is_to_get_lost_completes_and_nothing_arrives() {
    let mut b = bench();
    b.rdma.raw.model.inject_data(DataFault::LostMessage, 1);
    for _ in 0..4 {
        recv(&mut b, 64);
    }
    for payload in [b"one...", b"two...", b"three.", b"four.."] {
        b.done(SEND, 0, &inline(payload));
    }
    for counter in 0..3 {
        let cqe = b.rdma.poll(&mut b.cq_b);
        assert_eq!((cqe[63] >> 4, get(&cqe, 480, 16), get(&cqe, 352, 32)), (2, counter, 6));
    }
    b.responder_is_idle();
    assert_eq!(b.theirs.bytes(0, 6), b"four..");
    b.rdma.assert_clean();
}

#[test]
fn messages_of_reliable_connections_do_not_get_lost() {
    let mut b = Bench::with(Rdma::up(), QpWish::RC, QpWish::RC);
    b.rdma.raw.model.inject_data(DataFault::LostMessage, 0);
    recv(&mut b, 64);
    b.done(SEND, 0, &inline(b"here"));
    assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 352, 32), 4);
    b.rdma.assert_clean();
}

#[test]
fn what_the_receiver_cannot_use_is_lost_without_a_trace() {
    for (name, receiver, spoil, request) in LOSSES {
        let mut b = Bench::with(Rdma::up(), UC, *receiver);
        spoil(&mut b);
        let (opcode, segments) = request(&b);
        b.mine.fill(0, &[0x77; 3000]);
        b.done(opcode, 0, &segments);
        b.responder_is_idle();
        assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (3, 3), "{name}");
        assert!(b.rdma.async_eq.take().is_none(), "{name}");
        let receives_wait = b.b.rq;
        assert!(b.theirs.bytes(0, 3000) == [0; 3000], "{name}");
        // The receive request is still there for the next message.
        if receives_wait == 0 {
            recv(&mut b, 64);
        }
        b.done(SEND, 0, &inline(b"next"));
        let cqe = b.rdma.poll(&mut b.cq_b);
        assert_eq!((cqe[63] >> 4, get(&cqe, 480, 16), get(&cqe, 352, 32)), (2, 0, 4), "{name}");
        b.rdma.assert_clean();
    }
}

#[test]
fn nobody_at_the_other_end_is_no_error() {
    let rdma = Rdma::up();
    let (mut cq, mut other) = (rdma.cq(CQ), rdma.cq(CQ));
    let mut a = rdma.qp(UC, &cq, &cq);
    // No such queue pair; one in INIT; one that is connected elsewhere; a reliable one; one at a foreign address.
    let (early, elsewhere) = (rdma.qp(UC, &other, &other), rdma.qp(UC, &other, &other));
    let reliable = rdma.qp(QpWish::RC, &other, &other);
    rdma.init(&early);
    for qp in [&elsewhere, &reliable] {
        rdma.init(qp);
        let peer = if core::ptr::eq(qp, &elsewhere) { 0x1234 } else { a.qpn };
        rdma.ready_to_receive(qp, peer);
        rdma.ready_to_send(qp);
    }
    let memory = rdma.register(64, 0, crate::rdma::LW);
    for mut qp in [early, elsewhere, reliable] {
        rdma.recv(&mut qp, &[memory.seg(0, 64)]);
        rdma.leave(0x50a, &a);
        a.sq = 0;
        rdma.init(&a);
        rdma.ready_to_receive(&a, qp.qpn);
        rdma.ready_to_send(&a);
        rdma.send(&mut a, Wqe { opcode: SEND, flags: 8, imm: 0, segments: &inline(b"lost") });
        assert_eq!(rdma.poll(&mut cq)[63] >> 4, 0);
        assert!(rdma.take(&mut other).is_none());
    }
    rdma.leave(0x50a, &a);
    a.sq = 0;
    rdma.init(&a);
    rdma.ready_to_receive_from(&a, 0xabc, [7; 16], [2; 6]);
    rdma.ready_to_send(&a);
    rdma.send(&mut a, Wqe { opcode: SEND, flags: 8, imm: 0, segments: &[] });
    assert_eq!(rdma.poll(&mut cq)[63] >> 4, 0);
    rdma.assert_clean();
}

#[test]
fn the_first_packet_of_a_message_sets_the_receivers_sequence_number() {
    let mut b = Bench::with(Rdma::up(), UC, QpWish { psn: 0x1234, ..UC });
    // Two packets of 1024 bytes are lost, three come.
    b.done(SEND, 0, &data(b.mine.seg(0, 2000)));
    recv(&mut b, 4000);
    b.done(SEND, 0, &data(b.mine.seg(0, 2049)));
    assert_eq!(get(&b.rdma.poll(&mut b.cq_b), 352, 32), 2049);
    assert_eq!(get(&b.rdma.context(&b.a), 968, 24), 3, "0xfffffe and five packets");
    assert_eq!(get(&b.rdma.context(&b.b), 1192, 24), 3);
    b.rdma.assert_clean();
}

#[test]
fn a_fault_of_the_receiver_itself_breaks_it_down_and_not_the_sender() {
    let mut b = bench();
    let read_only = b.rdma.register(64, 0, LR | RR);
    b.rdma.recv(&mut b.b, &[read_only.seg(0, 64)]);
    recv(&mut b, 64);
    b.done(SEND, 0, &inline(b"x"));
    let (own, flushed) = (b.rdma.poll(&mut b.cq_b), b.rdma.poll(&mut b.cq_b));
    assert_eq!((own[63] >> 4, own[55], own[54]), (14, 4, 0x32));
    assert_eq!((flushed[63] >> 4, flushed[55]), (14, 5));
    assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (3, 6));
    b.rdma.assert_clean();
}

#[test]
fn what_needs_an_answer_is_no_operation_of_an_unreliable_connection() {
    for opcode in [READ, CAS, FAA, SEND_INV] {
        let mut b = bench();
        let mut segments = remote(b.theirs.there(0)).to_vec();
        if matches!(opcode, CAS | FAA) {
            segments.extend_from_slice(&operands(1, 0));
        }
        segments.extend_from_slice(&data(b.mine.seg(0, 8)));
        b.post(opcode, 0, &segments);
        let cqe = b.rdma.poll(&mut b.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[56]), (13, 2, opcode));
        assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (6, 3));
        b.rdma.assert_clean();
    }
}

/// Each transition takes what its transport has, and leaves the rest of the context.
#[test]
fn transitions_take_what_an_unreliable_connection_has() {
    let b = bench();
    let context = b.rdma.context(&b.a);
    assert_eq!(get(&context, 8, 8), 1);
    assert_eq!(get(&context, 168, 24), u64::from(b.b.qpn), "remote_qpn");
    assert_eq!((get(&context, 64, 3), get(&context, 67, 5)), (3, 30), "mtu, log_msg_max");
    assert_eq!((get(&context, 968, 24), get(&context, 1192, 24)), (0xff_fffe, 0xff_fffe), "packet numbers");
    assert_eq!(get(&context, 1168, 3), 2, "rwe alone of rre, rwe, rae");
    for (name, at, width) in [
        ("atomic_mode", 1164, 4),
        ("log_rra_max", 1160, 3),
        ("min_rnr_nak", 1187, 5),
        ("log_sra_max", 904, 3),
        ("retry_count", 909, 3),
        ("ack_timeout", 256, 5),
        ("q_key", 1344, 32),
    ] {
        assert_eq!(get(&context, at, width), 0, "{name}");
    }
}

/// Status and syndrome of a transition that names an optional parameter.
fn optional(rdma: &Rdma, opcode: u16, qpn: u32, mask: u64) -> (u8, u64) {
    let mut body = vec![0; 264];
    put(&mut body, 8, 24, qpn.into());
    put(&mut body, 64, 32, mask);
    put(&mut body[16..], 19, 2, 3);
    put(&mut body[16..], 64, 3, 3);
    put(&mut body[16..], 192 + 296, 8, 1);
    let out = rdma.raw.try_command(opcode, 0, &body, 16);
    (out[0], get(&out, 32, 32))
}

/// The optional parameters that Linux names in each transition of each transport (`opt_mask` of its driver).
#[test]
fn each_transition_takes_the_optional_parameters_of_its_transport() {
    const ALL: [u64; 13] = [0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x8000, 0x200_0000];
    let rows = [
        (1, [0x8 | 0x10 | 0x8000 | 0x200_0000, 0x8 | 0x10 | 0x8000, 0x8 | 0x400 | 0x8000]),
        (2, [0x10 | 0x20 | 0x8000 | 0x200_0000, 0x10 | 0x20 | 0x8000, 0x20 | 0x8000]),
    ];
    let rdma = Rdma::up();
    let cq = rdma.cq(CQ);
    for (service, masks) in rows {
        let qp = rdma.qp(QpWish { service, ..UC }, &cq, &cq);
        for (opcode, allowed) in [0x502, 0x503, 0x504].into_iter().zip(masks) {
            for bit in ALL.into_iter().filter(|bit| allowed & bit == 0) {
                let refused = optional(&rdma, opcode, qp.qpn, bit);
                let text = mlx5_model::syndrome_text(refused.1 as u32);
                assert!(text.is_some_and(|text| text.starts_with("opt_param_mask")), "{service} {opcode:#x} {bit:#x}");
            }
            assert_eq!(optional(&rdma, opcode, qp.qpn, allowed).0, 0, "{service} {opcode:#x}");
        }
        assert_eq!(rdma.state(&qp), 3);
    }
}

#[test]
fn messages_may_lie_in_completions_and_answers_may_not() {
    let (requester, responder) = (QpWish { scatter_req: 0x11, ..UC }, QpWish { scatter_res: 1, ..UC });
    let rdma = Rdma::on(Raw::up_with(CapConfig::default(), true));
    let cq = rdma.cq(CQ);
    let refused = rdma.try_qp(requester, &cq, &cq).err().unwrap();
    assert_eq!(mlx5_model::syndrome_text(refused.1 as u32), Some(NO_SUCH_DATA));
    for wish in [QpWish { scatter_req: 0x11, ..UC }, responder] {
        let refused = rdma.try_qp(QpWish { service: 2, ..wish }, &cq, &cq).err().unwrap();
        assert_eq!(mlx5_model::syndrome_text(refused.1 as u32), Some(NO_SUCH_DATA));
    }
    let mut b = Bench::with(rdma, UC, responder);
    recv(&mut b, 64);
    b.done(SEND, 0, &inline(b"in the entry"));
    let cqe = b.rdma.poll(&mut b.cq_b);
    assert_eq!((&cqe[..12], cqe[63] >> 2 & 3), (&b"in the entry"[..], 1));
}

const NO_SUCH_DATA: &str = "cs_req or cs_res for a transport that has no such data";
