//! RDMA write, read and atomics of the model, driven by raw bytes: what they do when nothing is wrong.

use mlx5_model::CapConfig;

use crate::connections::CQ;
use crate::qp::{Qp, QpWish};
use crate::raw::{Raw, get, put};
use crate::rdma::{ATOMIC, Cq, CqWish, LR, LW, Mr, RR, RW, Rdma};
use crate::wqe::{Wqe, data, inline, operands, remote};

pub const SEND_INV: u8 = 0x01;
pub const WRITE: u8 = 0x08;
pub const WRITE_IMM: u8 = 0x09;
pub const SEND: u8 = 0x0a;
pub const SEND_IMM: u8 = 0x0b;
pub const READ: u8 = 0x10;
pub const CAS: u8 = 0x11;
pub const FAA: u8 = 0x12;

/// A connected pair, with memory of the requester `a` and memory that the responder `b` opens to it.
pub struct Bench {
    pub rdma: Rdma,
    pub a: Qp,
    pub b: Qp,
    pub cq_a: Cq,
    pub cq_b: Cq,
    pub mine: Mr,
    pub theirs: Mr,
}

pub const SIZE: usize = 100_000;

impl Bench {
    pub fn new() -> Self {
        Self::with(Rdma::up(), QpWish::default(), QpWish::default())
    }

    pub fn with(rdma: Rdma, a: QpWish, b: QpWish) -> Self {
        Self::on(rdma, CQ.entry, a, b)
    }

    /// With completion queues of entries of so many bytes.
    pub fn on(rdma: Rdma, entry: usize, a: QpWish, b: QpWish) -> Self {
        let cq = CqWish { log_size: 6, entry, ..CQ };
        let (cq_a, cq_b) = (rdma.cq(cq), rdma.cq(cq));
        let (first, second) = (rdma.qp(a, &cq_a, &cq_a), rdma.qp(QpWish { user_index: 0x77, ..b }, &cq_b, &cq_b));
        rdma.connect(&first, &second);
        let mine = rdma.register(SIZE, 50, LR | LW);
        let theirs = rdma.register_as(SIZE, 96, LR | LW | RR | RW | ATOMIC, |mkc| put(mkc, 128, 64, 0x4_0000_0060));
        Self { rdma, a: first, b: second, cq_a, cq_b, mine, theirs: Mr { va: 0x4_0000_0060, ..theirs } }
    }

    /// Posts a signalled request of the requester.
    pub fn post(&mut self, opcode: u8, imm: u32, segments: &[u8]) {
        self.rdma.send(&mut self.a, Wqe { opcode, flags: 8, imm, segments });
    }

    /// Posts one, and returns its completion, which must be a success.
    pub fn done(&mut self, opcode: u8, imm: u32, segments: &[u8]) -> Vec<u8> {
        self.post(opcode, imm, segments);
        let cqe = self.rdma.poll(&mut self.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[56], cqe[55]), (0, opcode, cqe[55]), "syndrome {:#x}", cqe[55]);
        assert_eq!(get(&cqe, 57 * 8, 24), u64::from(self.a.qpn));
        cqe
    }

    pub fn responder_is_idle(&mut self) {
        assert!(self.rdma.take(&mut self.cq_b).is_none());
    }

    /// Packet numbers: the requester's next and what the responder expects.
    fn numbers(&self) -> (u64, u64) {
        (get(&self.rdma.context(&self.a), 968, 24), get(&self.rdma.context(&self.b), 1192, 24))
    }
}

pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 37 + i / 253 + seed * 11) as u8).collect()
}

#[test]
fn a_write_changes_the_bytes_it_names_and_no_others() {
    let mut b = Bench::new();
    for (n, (at, len)) in [(0, 1), (3, 5), (4000, 200), (1, 1023), (7, 4097), (0, SIZE)].into_iter().enumerate() {
        b.theirs.fill(0, &[0xee; SIZE]);
        let bytes = pattern(len, n);
        b.mine.fill(0, &bytes);
        let (there, from) = (b.theirs.there(at as u64), b.mine.seg(0, len as u32));
        b.done(WRITE, 0, &[remote(there), data(from)].concat());
        assert!(b.theirs.bytes(at, len) == bytes, "{at} {len}");
        assert!(b.theirs.bytes(0, at).iter().chain(&b.theirs.bytes(at + len, SIZE - at - len)).all(|x| *x == 0xee));
    }
    b.responder_is_idle();
    b.rdma.assert_clean();
}

#[test]
fn a_write_takes_its_bytes_from_several_places_and_from_the_request_itself() {
    let mut b = Bench::new();
    let bytes = pattern(3000, 1);
    b.mine.fill(0, &bytes);
    let parts = [b.mine.seg(0, 1), b.mine.seg(1, 1999), b.mine.seg(2000, 1000)].map(data).concat();
    let there = remote(b.theirs.there(10));
    b.done(WRITE, 0, &[&there[..], &parts].concat());
    assert!(b.theirs.bytes(10, 3000) == bytes);
    b.done(WRITE, 0, &[&there[..], &inline(b"in the request")].concat());
    assert_eq!(b.theirs.bytes(10, 14), b"in the request");
    assert!(b.theirs.bytes(24, 2986) == bytes[14..]);
    b.rdma.assert_clean();
}

#[test]
fn a_write_with_immediate_data_takes_a_receive_request_and_leaves_its_memory_alone() {
    let mut b = Bench::new();
    let elsewhere = b.mine.seg(500, 64);
    b.rdma.recv(&mut b.b, &[elsewhere]);
    b.rdma.recv(&mut b.b, &[(0x1234_5600, 0, 1)]);
    for n in 0..2_u64 {
        let segments = [&remote(b.theirs.there(8 * n))[..], &inline(b"payload")].concat();
        b.rdma.send(&mut b.a, Wqe { opcode: WRITE_IMM, flags: 0x0a, imm: 0xfeed_0000 + n as u32, segments: &segments });
        let (sent, got) = (b.rdma.poll(&mut b.cq_a), b.rdma.poll(&mut b.cq_b));
        assert_eq!((sent[63] >> 4, sent[56]), (0, WRITE_IMM));
        assert_eq!((got[63] >> 4, got[63] >> 1 & 1, get(&got, 288, 32)), (1, 1, 0xfeed_0000 + n));
        assert_eq!((get(&got, 352, 32), get(&got, 480, 16), get(&got, 33 * 8, 24)), (7, n, 0x77));
        assert_eq!(get(&got, 25 * 8, 24), u64::from(b.a.qpn), "who sent it");
        assert_eq!(b.theirs.bytes(8 * n as usize, 7), b"payload");
    }
    assert_eq!(b.mine.bytes(500, 64), [0; 64]);
    b.rdma.assert_clean();
}

#[test]
fn a_write_with_immediate_data_waits_for_a_receive_request_with_nothing_written() {
    let patient = QpWish { rnr_retry: 7, ..QpWish::default() };
    let mut b = Bench::with(Rdma::up(), patient, patient);
    let segments = [&remote(b.theirs.there(0))[..], &inline(b"late")].concat();
    b.post(WRITE_IMM, 9, &segments);
    b.rdma.raw.model.step(1_000_000);
    assert!(b.rdma.take(&mut b.cq_a).is_none());
    assert_eq!(b.theirs.bytes(0, 4), [0; 4]);
    b.rdma.recv(&mut b.b, &[]);
    assert_eq!(b.rdma.poll(&mut b.cq_a)[63] >> 4, 0);
    let got = b.rdma.poll(&mut b.cq_b);
    assert_eq!((got[63] >> 4, get(&got, 288, 32), b.theirs.bytes(0, 4)), (1, 9, b"late".to_vec()));
    b.rdma.assert_clean();
}

#[test]
fn a_read_brings_the_bytes_it_names() {
    let mut b = Bench::new();
    let bytes = pattern(SIZE, 5);
    b.theirs.fill(0, &bytes);
    for (at, len) in [(0, 1), (3, 5), (4000, 200), (1, 1023), (0, 1024), (7, 4097), (0, SIZE)] {
        b.mine.fill(0, &[0xee; SIZE]);
        let (there, into) = (b.theirs.there(at as u64), b.mine.seg(0, len as u32));
        let cqe = b.done(READ, 0, &[remote(there), data(into)].concat());
        assert_eq!(get(&cqe, 352, 32), len as u64, "byte_cnt");
        assert!(b.mine.bytes(0, len) == bytes[at..at + len], "{at} {len}");
        assert!(b.mine.bytes(len, SIZE - len).iter().all(|x| *x == 0xee));
    }
    b.responder_is_idle();
    b.rdma.assert_clean();
}

#[test]
fn a_read_is_scattered_along_its_list() {
    let mut b = Bench::new();
    let bytes = pattern(3000, 2);
    b.theirs.fill(0, &bytes);
    let into = [b.mine.seg(5000, 1), b.mine.seg(10, 1999), b.mine.seg(9000, 1000)].map(data).concat();
    let there = remote(b.theirs.there(0));
    b.done(READ, 0, &[&there[..], &into].concat());
    assert!([b.mine.bytes(5000, 1), b.mine.bytes(10, 1999), b.mine.bytes(9000, 1000)].concat() == bytes);
    b.rdma.assert_clean();
}

#[test]
fn a_read_takes_the_numbers_of_its_response_packets() {
    let mut b = Bench::new();
    let there = remote(b.theirs.there(0));
    // From 0xfffffe on with a path MTU of 1024: each takes the packets it is long, and an empty one or an atomic one.
    for (opcode, len, numbers) in
        [(READ, 1024, 0xff_ffff), (READ, 1025, 1), (READ, 0, 2), (WRITE, 4096, 6), (FAA, 8, 7)]
    {
        let list = if len == 0 { Vec::new() } else { data(b.mine.seg(0, len)).to_vec() };
        let middle = if opcode == FAA { operands(0, 0).to_vec() } else { Vec::new() };
        b.done(opcode, 0, &[&there[..], &middle, &list].concat());
        assert_eq!(b.numbers(), (numbers, numbers), "{opcode:#x} {len}");
    }
    b.rdma.assert_clean();
}

#[test]
fn an_operation_of_no_bytes_needs_no_key() {
    let mut b = Bench::new();
    let nowhere = remote((0xdead_be00, 0x1));
    b.done(WRITE, 0, &nowhere);
    b.done(READ, 0, &nowhere);
    b.rdma.recv(&mut b.b, &[]);
    b.done(WRITE_IMM, 5, &nowhere);
    let got = b.rdma.poll(&mut b.cq_b);
    assert_eq!((got[63] >> 4, get(&got, 288, 32), get(&got, 352, 32)), (1, 5, 0));
    b.rdma.assert_clean();
}

/// Does an atomic at byte `at`, and returns what was there before, as the 8 bytes that the requester finds.
fn atomic(b: &mut Bench, opcode: u8, at: u64, values: (u64, u64)) -> [u8; 8] {
    b.mine.fill(16, &[0x99; 24]);
    let segments = [remote(b.theirs.there(at)), operands(values.0, values.1), data(b.mine.seg(24, 8))].concat();
    let cqe = b.done(opcode, 0, &segments);
    assert_eq!(get(&cqe, 352, 32), 8, "byte_cnt");
    assert_eq!((b.mine.bytes(16, 8), b.mine.bytes(32, 8)), (vec![0x99; 8], vec![0x99; 8]));
    b.mine.bytes(24, 8).try_into().unwrap()
}

#[test]
fn a_compare_and_swap_swaps_when_equal_and_tells_what_was_there() {
    let mut b = Bench::new();
    let old = 0x0102_0304_0506_0708_u64;
    b.theirs.fill(8, &old.to_le_bytes());
    assert_eq!(atomic(&mut b, CAS, 8, (7, old + 1)), old.to_le_bytes());
    assert_eq!(b.theirs.bytes(8, 8), old.to_le_bytes(), "not equal: nothing changes");
    assert_eq!(atomic(&mut b, CAS, 8, (7, old)), old.to_le_bytes());
    assert_eq!(b.theirs.bytes(8, 8), 7_u64.to_le_bytes());
    assert_eq!((b.theirs.bytes(0, 8), b.theirs.bytes(16, 8)), (vec![0; 8], vec![0; 8]));
    b.responder_is_idle();
    b.rdma.assert_clean();
}

#[test]
fn a_fetch_and_add_adds_in_the_host_s_byte_order_and_wraps() {
    let mut b = Bench::new();
    b.theirs.fill(0, &0xff_u64.to_le_bytes());
    assert_eq!(atomic(&mut b, FAA, 0, (1, 0)), 0xff_u64.to_le_bytes());
    assert_eq!(b.theirs.bytes(0, 8), 0x100_u64.to_le_bytes());
    assert_eq!(atomic(&mut b, FAA, 0, (u64::MAX, 0)), 0x100_u64.to_le_bytes());
    assert_eq!(b.theirs.bytes(0, 8), 0xff_u64.to_le_bytes());
    b.rdma.assert_clean();
}

#[test]
fn the_result_of_an_atomic_is_big_endian_until_the_capability_is_set() {
    let mut b = Bench::with(Rdma::on(Raw::up_with(CapConfig::default(), false)), QpWish::default(), QpWish::default());
    b.theirs.fill(0, &0x1234_u64.to_le_bytes());
    assert_eq!(atomic(&mut b, FAA, 0, (1, 0)), 0x1234_u64.to_be_bytes());
    assert_eq!(b.theirs.bytes(0, 8), 0x1235_u64.to_le_bytes(), "the memory of the peer is in its host's order");
    b.rdma.assert_clean();
}

#[test]
fn a_function_without_atomics_knows_no_such_operation() {
    let raw = Raw::up_with(CapConfig { atomic: false, ..CapConfig::default() }, false);
    let mut b = Bench::with(Rdma::on(raw), QpWish::default(), QpWish::default());
    let segments = [remote(b.theirs.there(0)), operands(1, 0), data(b.mine.seg(0, 8))].concat();
    b.post(FAA, 0, &segments);
    let cqe = b.rdma.poll(&mut b.cq_a);
    assert_eq!((cqe[63] >> 4, cqe[55], b.theirs.bytes(0, 8)), (13, 0x02, vec![0; 8]));
    b.rdma.assert_clean();
}

#[test]
fn two_queue_pairs_of_one_function_count_on_one_word() {
    let mut b = Bench::new();
    for n in 0..10_u64 {
        assert_eq!(atomic(&mut b, FAA, 64, (1, 0)), (2 * n).to_le_bytes());
        let segments = [remote(b.theirs.there(64)), operands(1, 0), data(b.theirs.seg(512, 8))].concat();
        b.rdma.send(&mut b.b, Wqe { opcode: FAA, flags: 8, imm: 0, segments: &segments });
        assert_eq!(b.rdma.poll(&mut b.cq_b)[63] >> 4, 0);
        assert_eq!(b.theirs.bytes(512, 8), (2 * n + 1).to_le_bytes());
    }
    b.rdma.assert_clean();
}

#[test]
fn a_send_with_invalidation_frees_a_key_that_allows_it_and_names_it_to_the_receiver() {
    let mut b = Bench::new();
    let window = b.rdma.register_as(64, 0, LR | LW | RR | RW, |mkc| put(mkc, 103, 1, 1)); // en_rinval
    let there = remote(window.there(0));
    let write = [&there[..], &inline(b"before")].concat();
    b.done(WRITE, 0, &write);
    b.rdma.recv(&mut b.b, &[b.theirs.seg(0, 64)]);
    b.done(SEND_INV, window.key, &inline(b"gone"));
    let got = b.rdma.poll(&mut b.cq_b);
    assert_eq!((got[63] >> 4, get(&got, 288, 32), get(&got, 352, 32)), (4, window.key.into(), 4));
    assert_eq!(b.theirs.bytes(0, 4), b"gone");
    let mut body = [0; 8];
    put(&mut body, 8, 24, u64::from(window.key >> 8));
    let context = b.rdma.raw.command(0x201, 0, &body, 272); // QUERY_MKEY
    assert_eq!(get(&context[16..], 1, 1), 1, "free");
    b.post(WRITE, 0, &write);
    let cqe = b.rdma.poll(&mut b.cq_a);
    assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), (13, 0x13, 0x88));
    b.rdma.assert_clean();
}
