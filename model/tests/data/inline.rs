//! Data in completions (scatter to CQE), by raw bytes: which payload goes there, where it lies, and what does not change.

use mlx5_model::{CapConfig, DataFault};

use crate::one_sided::{Bench, CAS, FAA, READ, SEND, SEND_IMM, SEND_INV, WRITE_IMM, pattern};
use crate::qp::QpWish;
use crate::raw::{Raw, get, put};
use crate::rdma::{Cq, CqWish, LR, LW, RW, Rdma};
use crate::wqe::{Wqe, data, inline, operands, remote};

/// `qpc.cs_req` and `qpc.cs_res`: MLX5_QPC_CS_REQ_UP_TO_32B and _64B, and the responder's.
const REQ_32: u8 = 0x11;
const REQ_64: u8 = 0x22;
const RES_32: u8 = 0x1;
const RES_64: u8 = 0x2;
/// BAD_PARAM.
const BAD_PARAM: u8 = 3;
/// Bytes of the buffers before anything comes.
const OLD: u8 = 0xee;
/// The lengths on either side of each limit.
const LENGTHS: [usize; 8] = [0, 1, 31, 32, 33, 63, 64, 65];

/// Where data of `len` bytes lies in a completion that may hold `most`: the format bits of `op_own`.
fn format(len: usize, most: usize) -> u8 {
    match len {
        0 => 0,
        _ if len > most => 0,
        1..=32 => 1,
        _ => 2,
    }
}

/// A pair whose completions of `entry` bytes take data as `req` and `res` say.
fn bench(entry: usize, req: u8, res: u8) -> Bench {
    let wish = QpWish { scatter_req: req, scatter_res: res, ..QpWish::default() };
    let b = Bench::on(Rdma::up(), entry, wish, wish);
    b.mine.fill(0, &[OLD; 256]);
    b.theirs.fill(0, &[OLD; 256]);
    b
}

/// The data of the completion that was taken last.
fn data_of(rdma: &Rdma, cq: &Cq, cqe: &[u8]) -> Vec<u8> {
    let len = get(cqe, 352, 32) as usize;
    match cqe[63] >> 2 & 3 {
        1 => cqe[..len].to_vec(),
        2 => rdma.before(cq)[..len].to_vec(),
        other => panic!("format {other}"),
    }
}

/// What the two ends may be told to do, with the size of an entry, and the largest data that a completion then holds.
const RESPONDERS: [(usize, u8, usize); 4] = [(64, 0, 0), (64, RES_32, 32), (128, RES_32, 32), (128, RES_64, 64)];

#[test]
fn a_message_that_fits_comes_in_the_completion_and_the_buffer_stays_as_it_was() {
    for (entry, res, most) in RESPONDERS {
        let mut b = bench(entry, 0, res);
        for (n, len) in LENGTHS.into_iter().enumerate() {
            let bytes = pattern(len, n);
            b.theirs.fill(0, &[OLD; 128]);
            let list = [b.theirs.seg(0, 7), b.theirs.seg(20, 100)];
            b.rdma.recv(&mut b.b, &list);
            let sent = b.done(SEND, 0, &inline(&bytes));
            assert_eq!((sent[63] & 0xfe, get(&sent, 352, 32)), (0, len as u64), "the sender's has no data");
            let got = b.rdma.poll(&mut b.cq_b);
            let expected = format(len, most);
            assert_eq!((got[63] >> 4, got[63] >> 2 & 3), (2, expected), "{entry} {res} {len}");
            assert_eq!((get(&got, 352, 32), get(&got, 480, 16), get(&got, 33 * 8, 24)), (len as u64, n as u64, 0x77));
            let whole = b.theirs.bytes(0, 128);
            if expected == 0 {
                assert_eq!([&whole[..7], &whole[20..]].concat()[..len], bytes);
            } else {
                assert_eq!((data_of(&b.rdma, &b.cq_b, &got), whole), (bytes, vec![OLD; 128]));
            }
            if expected != 1 {
                assert_eq!(get(&got, 25 * 8, 24), u64::from(b.a.qpn), "who sent it");
            }
        }
        b.rdma.assert_clean();
    }
}

#[test]
fn a_message_in_a_completion_leaves_immediate_data_and_the_invalidated_key_where_they_are() {
    for (entry, res, most) in RESPONDERS {
        let mut b = bench(entry, 0, res);
        let window = b.rdma.register_as(64, 0, LR | LW | RW, |mkc| put(mkc, 103, 1, 1)); // en_rinval
        for (opcode, imm, received) in [(SEND_IMM, 0xfeed_0001, 3), (SEND_INV, window.key, 4)] {
            b.rdma.recv(&mut b.b, &[b.theirs.seg(0, 64)]);
            b.rdma.send(&mut b.a, Wqe { opcode, flags: 0x0a, imm, segments: &inline(b"data") });
            let got = b.rdma.poll(&mut b.cq_b);
            let (solicited, expected) = (got[63] >> 1 & 1, format(4, most));
            assert_eq!((got[63] >> 4, got[63] >> 2 & 3, solicited), (received, expected, 1));
            assert_eq!(get(&got, 288, 32), u64::from(imm));
            let found = if expected == 0 { b.theirs.bytes(0, 4) } else { data_of(&b.rdma, &b.cq_b, &got) };
            assert_eq!(found, b"data");
        }
        b.rdma.assert_clean();
    }
}

/// As rdma-core's test of small reads with 128-byte completions has it: 16 bytes come in the descriptor, 40 and 60 before it.
#[test]
fn the_answer_of_a_read_that_fits_comes_in_the_completion() {
    for (entry, req, most) in [(64, 0, 0), (64, REQ_32, 32), (128, REQ_32, 32), (128, REQ_64, 64)] {
        let mut b = bench(entry, req, 0);
        for (n, len) in [16, 40, 60].into_iter().chain(LENGTHS).enumerate() {
            let bytes = pattern(len, n);
            b.theirs.fill(0, &bytes);
            b.mine.fill(0, &[OLD; 128]);
            let mut segments = remote(b.theirs.there(0)).to_vec();
            if len > 0 {
                segments.extend_from_slice(&data(b.mine.seg(10, len as u32)));
            }
            let cqe = b.done(READ, 0, &segments);
            let expected = format(len, most);
            assert_eq!((cqe[63] >> 2 & 3, get(&cqe, 352, 32)), (expected, len as u64), "{entry} {req:#x} {len}");
            if expected == 0 {
                assert_eq!(b.mine.bytes(10, len), bytes);
            } else {
                assert_eq!(data_of(&b.rdma, &b.cq_a, &cqe), bytes);
                assert_eq!(b.mine.bytes(0, 128), [OLD; 128]);
            }
        }
        b.responder_is_idle();
        b.rdma.assert_clean();
    }
}

#[test]
fn what_an_atomic_found_comes_in_the_completion_in_the_order_that_memory_would_have_it() {
    for host_order in [true, false] {
        let wish = QpWish { scatter_req: REQ_32, ..QpWish::default() };
        let mut b = Bench::with(Rdma::on(Raw::up_with(CapConfig::default(), host_order)), wish, wish);
        let old = 0x0102_0304_0506_0708_u64;
        b.theirs.fill(0, &old.to_le_bytes());
        b.mine.fill(0, &[OLD; 16]);
        for (opcode, values, found) in [(CAS, (5, old), old), (FAA, (1, 0), 5)] {
            let segments = [remote(b.theirs.there(0)), operands(values.0, values.1), data(b.mine.seg(0, 8))].concat();
            let cqe = b.done(opcode, 0, &segments);
            let bytes = if host_order { found.to_le_bytes() } else { found.to_be_bytes() };
            assert_eq!((cqe[63] >> 2 & 3, data_of(&b.rdma, &b.cq_a, &cqe)), (1, bytes.to_vec()));
        }
        assert_eq!((b.mine.bytes(0, 16), b.theirs.bytes(0, 8)), (vec![OLD; 16], 6_u64.to_le_bytes().to_vec()));
        b.rdma.assert_clean();
    }
}

#[test]
fn each_side_of_a_queue_pair_goes_by_its_own_wish() {
    let mut b = bench(128, REQ_64, 0);
    b.rdma.recv(&mut b.b, &[b.theirs.seg(0, 64)]);
    b.done(SEND, 0, &inline(b"to memory"));
    assert_eq!(b.rdma.poll(&mut b.cq_b)[63] >> 2 & 3, 0);
    assert_eq!(b.theirs.bytes(0, 9), b"to memory");
    let mut b = bench(128, 0, RES_64);
    b.theirs.fill(0, b"read");
    let segments = [remote(b.theirs.there(0)), data(b.mine.seg(0, 4))].concat();
    assert_eq!(b.done(READ, 0, &segments)[63] >> 2 & 3, 0);
    assert_eq!(b.mine.bytes(0, 4), b"read");
    b.rdma.assert_clean();
}

#[test]
fn a_write_with_immediate_data_has_nothing_for_the_completion() {
    let mut b = bench(128, REQ_64, RES_64);
    b.rdma.recv(&mut b.b, &[]);
    let segments = [&remote(b.theirs.there(0))[..], &inline(b"payload")].concat();
    assert_eq!(b.done(WRITE_IMM, 9, &segments)[63] >> 2 & 3, 0);
    let got = b.rdma.poll(&mut b.cq_b);
    assert_eq!((got[63] >> 4, got[63] >> 2 & 3, get(&got, 352, 32)), (1, 0, 7));
    assert_eq!(b.theirs.bytes(0, 7), b"payload");
    b.rdma.assert_clean();
}

/// The ring goes round several times, so that data before the descriptor of the first slot is right as well.
#[test]
fn data_lies_beside_its_own_completion_on_every_lap() {
    let wish = QpWish { scatter_res: RES_64, ..QpWish::default() };
    let rdma = Rdma::up();
    let cq = |entry| rdma.cq(CqWish { log_size: 1, entry, ignore_overrun: false });
    let (mut send, mut recv) = (cq(64), cq(128));
    let (mut a, mut b) = (rdma.qp(QpWish::default(), &send, &send), rdma.qp(wish, &recv, &recv));
    rdma.connect(&a, &b);
    let to = rdma.register(64, 0, LW);
    for n in 0..9 {
        let bytes = pattern(33 + n, n);
        rdma.recv(&mut b, &[to.seg(0, 64)]);
        rdma.send(&mut a, Wqe { opcode: SEND, flags: 8, imm: 0, segments: &inline(&bytes) });
        rdma.poll(&mut send);
        let got = rdma.poll(&mut recv);
        assert_eq!(data_of(&rdma, &recv, &got), bytes);
    }
    rdma.assert_clean();
}

/// A receive that would not hold the message, or has no right to, is an error as without data in completions.
#[test]
fn the_list_is_held_against_the_message_all_the_same() {
    for (len, wrong_key, syndrome, sender) in [(4, false, 0x01, 0x12), (64, true, 0x04, 0x14)] {
        let mut b = bench(128, 0, RES_64);
        let (key, addr, _) = b.theirs.seg(0, 0);
        b.rdma.recv(&mut b.b, &[(key ^ u32::from(wrong_key), addr, len)]);
        b.post(SEND, 0, &inline(b"bytes"));
        let (sent, got) = (b.rdma.poll(&mut b.cq_a), b.rdma.poll(&mut b.cq_b));
        assert_eq!((got[63] >> 4, got[63] >> 2 & 3, got[55]), (14, 0, syndrome));
        assert_eq!((sent[63] >> 4, sent[63] >> 2 & 3, sent[55]), (13, 0, sender));
        assert_eq!(b.theirs.bytes(0, 64), [OLD; 64]);
        b.rdma.assert_clean();
    }
}

#[test]
fn a_request_in_error_has_no_data_in_its_completion() {
    let segments = |b: &Bench, theirs: u32, mine: u32| {
        let ((rkey, there), (lkey, here, len)) = (b.theirs.there(0), b.mine.seg(0, 8));
        [remote((rkey ^ theirs, there)), data((lkey ^ mine, here, len))].concat()
    };
    // The peer's key is wrong; the own one is, which shows only when the answer is there.
    for (theirs, mine, syndrome) in [(1, 0, 0x13), (0, 1, 0x04)] {
        let mut b = bench(64, REQ_32, RES_32);
        let list = segments(&b, theirs, mine);
        b.post(READ, 0, &list);
        let cqe = b.rdma.poll(&mut b.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[63] >> 2 & 3, cqe[55]), (13, 0, syndrome));
        assert_eq!(cqe[..32], [0; 32]);
        assert_eq!(b.mine.bytes(0, 8), [OLD; 8]);
        b.rdma.assert_clean();
    }
}

#[test]
fn the_answer_of_a_request_without_completion_is_lost() {
    let mut b = bench(64, REQ_32, 0);
    b.theirs.fill(0, &[1; 64]);
    for (len, expected) in [(32, OLD), (33, 1)] {
        let segments = [remote(b.theirs.there(0)), data(b.mine.seg(0, len))].concat();
        b.rdma.send(&mut b.a, Wqe { opcode: READ, flags: 0, imm: 0, segments: &segments });
        assert_eq!(b.mine.bytes(0, len as usize), vec![expected; len as usize]);
    }
    assert!(b.rdma.take(&mut b.cq_a).is_none());
    b.rdma.assert_clean();
}

#[test]
fn a_byte_that_was_changed_on_the_wire_is_changed_in_the_completion() {
    let mut b = bench(64, REQ_32, RES_32);
    for _ in 0..2 {
        b.rdma.raw.model.inject_data(DataFault::CorruptPayload { offset: 2, xor: 0x10 }, 0);
    }
    b.rdma.recv(&mut b.b, &[b.theirs.seg(0, 64)]);
    b.done(SEND, 0, &inline(&[7; 4]));
    let got = b.rdma.poll(&mut b.cq_b);
    assert_eq!(data_of(&b.rdma, &b.cq_b, &got), [7, 7, 0x17, 7]);
    let segments = [remote(b.theirs.there(0)), data(b.mine.seg(0, 4))].concat();
    let cqe = b.done(READ, 0, &segments);
    assert_eq!(data_of(&b.rdma, &b.cq_a, &cqe), [OLD, OLD, OLD ^ 0x10, OLD]);
    b.rdma.assert_clean();
}

#[test]
fn a_wish_that_the_function_or_the_entries_cannot_grant_is_refused() {
    let refused = |rdma: &Rdma, entry, req, res| {
        let cq = rdma.cq(CqWish { log_size: 1, entry, ignore_overrun: false });
        rdma.try_qp(QpWish { scatter_req: req, scatter_res: res, ..QpWish::default() }, &cq, &cq).err()
    };
    let rdma = Rdma::up();
    for (entry, req, res, syndrome) in [
        (128, 0x1, 0, 0x60),
        (128, 0x2, 0, 0x60),
        (128, 0, 0x11, 0x60),
        (128, 0, 0x3, 0x60),
        (64, REQ_64, 0, 0x62),
        (64, 0, RES_64, 0x62),
    ] {
        assert_eq!(
            refused(&rdma, entry, req, res),
            Some((BAD_PARAM, 0x4d_0000 + syndrome)),
            "{entry} {req:#x} {res:#x}"
        );
    }
    for (entry, req, res) in [(64, REQ_32, RES_32), (128, REQ_32, RES_32), (128, REQ_64, RES_64)] {
        assert_eq!(refused(&rdma, entry, req, res), None);
    }
    let without = Rdma::on(Raw::up_with(CapConfig { sctr_data_cqe: false, ..CapConfig::default() }, true));
    assert_eq!(refused(&without, 64, REQ_32, 0), Some((BAD_PARAM, 0x4d_0061)));
    assert_eq!(refused(&without, 64, 0, RES_32), Some((BAD_PARAM, 0x4d_0061)));
    assert_eq!(refused(&without, 64, 0, 0), None);
}
