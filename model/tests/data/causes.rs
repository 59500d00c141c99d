//! What can be wrong with a request, for each opcode that it can be wrong with: what the requester and the responder hear of
//! it, the states of their queue pairs after, and what became of the memory.
//!
//! The syndromes follow the InfiniBand specification's table of responder errors: an operation that is not enabled, a misaligned
//! atomic and a wrong length are invalid requests; a key that gives no access is a remote access error. Linux's software
//! implementation of it (rxe) decides the same. The vendor codes are those that cards were seen to give with the syndromes;
//! none is public for 0x10, where the model's own stands.

use crate::one_sided::{Bench, CAS, FAA, READ, SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM};
use crate::qp::QpWish;
use crate::raw::{get, put};
use crate::rdma::{ATOMIC, LR, LW, Mr, RR, RW, Rdma};
use crate::wqe::{Wqe, data, operands, remote, signalled};

/// Sorts of opcodes.
const SENDS: &[u8] = &[SEND, SEND_IMM, SEND_INV];
const ONE_SIDED: &[u8] = &[WRITE, WRITE_IMM, READ, CAS, FAA];
const ATOMICS: &[u8] = &[CAS, FAA];
const TAKING: &[u8] = &[SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM];
const NEED_RECEIVE: &[u8] = &[SEND, SEND_IMM, SEND_INV, WRITE_IMM];
const ALL: &[u8] = &[SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ, CAS, FAA];
const OF_ANY_LENGTH: &[u8] = &[SEND, SEND_IMM, SEND_INV, WRITE, WRITE_IMM, READ];

/// What the responder's owner hears.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Heard {
    /// Nothing; the queue pair goes on.
    Nothing,
    /// An asynchronous event of this type, and flushes.
    Event(u8),
    /// An error in the first receive completion, and flushes.
    Cqe(u8, u8),
}
use Heard::{Cqe, Event, Nothing};

/// A request in the making: its parts can be spoiled one by one.
struct Request {
    opcode: u8,
    /// (rkey, address)
    there: (u32, u64),
    /// (lkey, address, length)
    list: Vec<(u32, u64, u32)>,
    invalidate: u32,
}

impl Request {
    fn segments(&self) -> Vec<u8> {
        let mut raw = Vec::new();
        if ONE_SIDED.contains(&self.opcode) {
            raw.extend_from_slice(&remote(self.there));
        }
        if ATOMICS.contains(&self.opcode) {
            // The memory is all 0x55: both change it.
            raw.extend_from_slice(&operands(1, if self.opcode == CAS { 0x5555_5555_5555_5555 } else { 0 }));
        }
        raw.extend(self.list.iter().flat_map(|seg| data(*seg)));
        raw
    }
}

/// One cause.
struct Cause {
    name: &'static str,
    opcodes: &'static [u8],
    /// Changes what the two queue pairs are made with.
    wish: fn(&mut QpWish, &mut QpWish),
    spoil: fn(&mut Bench, &mut Request),
    /// Syndrome and vendor syndrome of the requester; 0 for success.
    requester: (u8, u8),
    responder: Heard,
}

/// A cause that lies in the request itself.
const fn request(
    name: &'static str,
    opcodes: &'static [u8],
    spoil: fn(&mut Bench, &mut Request),
    requester: (u8, u8),
    responder: Heard,
) -> Cause {
    Cause { name, opcodes, wish: |_, _| (), spoil, requester, responder }
}

/// A cause that lies in how the queue pairs were made.
const fn connection(
    name: &'static str,
    opcodes: &'static [u8],
    wish: fn(&mut QpWish, &mut QpWish),
    requester: (u8, u8),
    responder: Heard,
) -> Cause {
    Cause { name, opcodes, wish, spoil: |_, _| (), requester, responder }
}

const EVERYTHING: u64 = LR | LW | RR | RW | ATOMIC;

fn other_pd(rdma: &Rdma) -> u64 {
    get(&rdma.raw.command(0x800, 0, &[0; 8], 16), 72, 24) // ALLOC_PD
}

/// Names a key with all rights whose context `change` has spoiled.
fn strange_rkey(b: &mut Bench, request: &mut Request, change: impl Fn(&mut [u8])) {
    request.there = b.rdma.register_as(4096, 0, EVERYTHING, change).there(0);
}

fn strange_lkey(b: &mut Bench, request: &mut Request, rights: u64, change: impl Fn(&mut [u8])) {
    request.list = vec![b.rdma.register_as(4096, 0, rights, change).seg(0, 8)];
}

const REMOTE_ACCESS: (u8, u8) = (0x13, 0x88);
const INVALID_REQUEST: (u8, u8) = (0x12, 0x8a);
/// WQ_ACCESS_ERROR and WQ_INVAL_REQ_ERROR: IBV_EVENT_QP_ACCESS_ERR and IBV_EVENT_QP_REQ_ERR.
const ACCESS_EVENT: Heard = Event(0x11);
const REQUEST_EVENT: Heard = Event(0x10);

const CAUSES: &[Cause] = &[
    request("an rkey of no mkey", ONE_SIDED, |_, r| r.there.0 += 0x50_0000, REMOTE_ACCESS, ACCESS_EVENT),
    request("an rkey of another variant", ONE_SIDED, |_, r| r.there.0 ^= 0x80, REMOTE_ACCESS, ACCESS_EVENT),
    request("the reserved lkey as rkey", ONE_SIDED, |_, r| r.there.0 = 0x800, REMOTE_ACCESS, ACCESS_EVENT),
    request("a free rkey", ONE_SIDED, |b, r| strange_rkey(b, r, |mkc| put(mkc, 1, 1, 1)), REMOTE_ACCESS, ACCESS_EVENT),
    request(
        "an rkey of another queue pair",
        ONE_SIDED,
        |b, r| {
            let requester = b.a.qpn;
            strange_rkey(b, r, |mkc| put(mkc, 32, 24, requester.into()));
        },
        REMOTE_ACCESS,
        ACCESS_EVENT,
    ),
    request(
        "an rkey of another protection domain",
        ONE_SIDED,
        |b, r| {
            let pd = other_pd(&b.rdma);
            strange_rkey(b, r, |mkc| put(mkc, 104, 24, pd));
        },
        REMOTE_ACCESS,
        ACCESS_EVENT,
    ),
    request(
        "an rkey without the right to write",
        &[WRITE, WRITE_IMM],
        |b, r| r.there = b.rdma.register(4096, 0, EVERYTHING & !RW).there(0),
        REMOTE_ACCESS,
        ACCESS_EVENT,
    ),
    request(
        "an rkey without the right to read",
        &[READ],
        |b, r| r.there = b.rdma.register(4096, 0, EVERYTHING & !RR).there(0),
        REMOTE_ACCESS,
        ACCESS_EVENT,
    ),
    request(
        "an rkey without the right to atomics",
        ATOMICS,
        |b, r| r.there = b.rdma.register(4096, 0, EVERYTHING & !ATOMIC).there(0),
        REMOTE_ACCESS,
        ACCESS_EVENT,
    ),
    request("before the region's start", ONE_SIDED, |b, r| r.there.1 = b.theirs.va - 8, REMOTE_ACCESS, ACCESS_EVENT),
    request("over the region's end", ONE_SIDED, over_the_end, REMOTE_ACCESS, ACCESS_EVENT),
    request("over the end of all addresses", ONE_SIDED, |_, r| r.there.1 = u64::MAX - 3, REMOTE_ACCESS, ACCESS_EVENT),
    connection("writes not enabled", &[WRITE, WRITE_IMM], |_, b| b.remote = 0b101, INVALID_REQUEST, REQUEST_EVENT),
    connection("reads not enabled", &[READ], |_, b| b.remote = 0b011, INVALID_REQUEST, REQUEST_EVENT),
    connection("atomics not enabled", ATOMICS, |_, b| b.remote = 0b110, INVALID_REQUEST, REQUEST_EVENT),
    request("an address that is not aligned", ATOMICS, |_, r| r.there.1 += 4, INVALID_REQUEST, REQUEST_EVENT),
    connection(
        "longer than the responder's log_msg_max",
        OF_ANY_LENGTH,
        |_, b| b.log_msg_max = 2,
        INVALID_REQUEST,
        REQUEST_EVENT,
    ),
    connection("longer than log_msg_max", OF_ANY_LENGTH, |a, _| a.log_msg_max = 2, (0x01, 0x68), Nothing),
    request("room for less than 8 bytes", ATOMICS, |_, r| r.list[0].2 = 7, (0x01, 0x68), Nothing),
    request("an lkey of no mkey", ALL, |_, r| r.list[0].0 += 0x50_0000, (0x04, 0x52), Nothing),
    request("an lkey of another variant", ALL, |_, r| r.list[0].0 ^= 1, (0x04, 0x52), Nothing),
    request("a local address out of bounds", ALL, |b, r| r.list[0].1 = b.mine.va - 1, (0x04, 0x51), Nothing),
    request(
        "an lkey of another protection domain",
        ALL,
        |b, r| {
            let pd = other_pd(&b.rdma);
            strange_lkey(b, r, EVERYTHING, |mkc| put(mkc, 104, 24, pd));
        },
        (0x04, 0x56),
        Nothing,
    ),
    request(
        "an lkey without the right to read",
        TAKING,
        |b, r| strange_lkey(b, r, EVERYTHING & !LR, |_| ()),
        (0x04, 0x53),
        Nothing,
    ),
    request(
        "an lkey without the right to write",
        &[READ, CAS, FAA],
        |b, r| strange_lkey(b, r, LR, |_| ()),
        (0x04, 0x53),
        Nothing,
    ),
    request(
        "longer than the receive buffer",
        SENDS,
        |b, r| r.list = vec![b.mine.seg(0, 65)],
        INVALID_REQUEST,
        Cqe(0x01, 0x68),
    ),
    Cause {
        name: "a path MTU that is not the responder's",
        opcodes: TAKING,
        wish: |a, _| a.mtu = 1,
        spoil: |b, r| r.list = vec![b.mine.seg(0, 257)],
        requester: INVALID_REQUEST,
        responder: REQUEST_EVENT,
    },
    Cause {
        name: "a path MTU that is not the requester's",
        opcodes: &[READ],
        wish: |_, b| b.mtu = 1,
        spoil: |b, r| r.list = vec![b.mine.seg(0, 257)],
        requester: (0x10, 0x88),
        responder: Nothing,
    },
    connection("no answer", ALL, |a, b| b.psn = a.psn + 1, (0x15, 0x81), Nothing),
    request("to invalidate a key of no mkey", &[SEND_INV], |_, r| r.invalidate += 0x50_0000, (0, 0), Cqe(0x12, 0x8a)),
    request("to invalidate another variant", &[SEND_INV], |_, r| r.invalidate ^= 1, (0, 0), Cqe(0x12, 0x8a)),
    request(
        "to invalidate a key that may not be",
        &[SEND_INV],
        |b, r| r.invalidate = b.theirs.key,
        (0, 0),
        Cqe(0x12, 0x8a),
    ),
    request(
        "to invalidate a free key",
        &[SEND_INV],
        |b, r| r.invalidate = invalidatable(b, |mkc| put(mkc, 1, 1, 1)).key,
        (0, 0),
        Cqe(0x12, 0x8a),
    ),
    request(
        "to invalidate a key of another protection domain",
        &[SEND_INV],
        |b, r| {
            let pd = other_pd(&b.rdma);
            r.invalidate = invalidatable(b, |mkc| put(mkc, 104, 24, pd)).key;
        },
        (0, 0),
        Cqe(0x12, 0x8a),
    ),
];

fn over_the_end(b: &mut Bench, request: &mut Request) {
    request.there.1 = b.theirs.va + crate::one_sided::SIZE as u64 - 7;
}

fn invalidatable(b: &Bench, change: impl Fn(&mut [u8])) -> Mr {
    b.rdma.register_as(4096, 0, EVERYTHING, |mkc| {
        put(mkc, 103, 1, 1); // en_rinval
        change(mkc);
    })
}

/// Sets up a cause and posts: two receive requests, the spoiled request and two behind it.
fn post(cause: &Cause, opcode: u8) -> Bench {
    let (mut a, mut b) = (QpWish::default(), QpWish::default());
    (cause.wish)(&mut a, &mut b);
    let mut bench = Bench::with(Rdma::up(), a, b);
    bench.theirs.fill(0, &[0x55; 4096]);
    bench.mine.fill(0, &[0xaa; 4096]);
    for _ in 0..2 {
        let buffer = bench.theirs.seg(2048, 64);
        bench.rdma.recv(&mut bench.b, &[buffer]);
    }
    let window = invalidatable(&bench, |_| ());
    let (there, list) = (bench.theirs.there(0), vec![bench.mine.seg(0, 8)]);
    let mut request = Request { opcode, there, list, invalidate: window.key };
    (cause.spoil)(&mut bench, &mut request);
    let imm = match opcode {
        SEND_INV => request.invalidate,
        SEND_IMM | WRITE_IMM => 7,
        _ => 0,
    };
    let segments = request.segments();
    bench.rdma.write_send(&mut bench.a, Wqe { opcode, flags: 0, imm, segments: &segments });
    bench.rdma.write_send(&mut bench.a, Wqe { flags: 0, ..signalled(&[]) });
    let last = bench.rdma.write_send(&mut bench.a, signalled(&[]));
    bench.rdma.ring(&bench.a, last);
    bench
}

/// The requester's completions: the error, although none was asked for, and the flushes behind it, in order.
fn check_requester(bench: &mut Bench, cause: &Cause, opcode: u8, what: &str) {
    let mut at = 0;
    for n in 0..3 {
        let cqe = bench.rdma.poll(&mut bench.cq_a);
        let expected = if n == 0 { cause.requester } else { (0x05, 0xf9) };
        assert_eq!((cqe[63] >> 4, (cqe[55], cqe[54])), (13, expected), "{what}, completion {n}");
        assert_eq!(cqe[56], if n == 0 { opcode } else { SEND }, "{what}");
        let counter = get(&cqe, 480, 16);
        assert!(n == 0 && counter == 0 || counter > at, "{what}: in order");
        at = counter;
    }
    assert_eq!(bench.rdma.state(&bench.a), 6, "{what}");
}

/// The responder's event, completions and state.
fn check_responder(bench: &mut Bench, cause: &Cause, what: &str) {
    let event = bench.rdma.async_eq.take().map(|eqe| (eqe[1], get(&eqe, 0x39 * 8, 24)));
    let expected = if let Event(kind) = cause.responder { Some((kind, bench.b.qpn.into())) } else { None };
    assert_eq!(event, expected, "{what}");
    assert!(bench.rdma.async_eq.take().is_none(), "{what}: one event at most");
    let broken = cause.responder != Nothing;
    let completions = if broken { 2 } else { 0 };
    for n in 0..completions {
        let cqe = bench.rdma.poll(&mut bench.cq_b);
        let expected = match cause.responder {
            Cqe(syndrome, vendor) if n == 0 => (syndrome, vendor),
            _ => (0x05, 0xf9),
        };
        assert_eq!((cqe[63] >> 4, (cqe[55], cqe[54]), get(&cqe, 480, 16)), (14, expected, n), "{what}, receive {n}");
    }
    bench.responder_is_idle();
    assert_eq!(bench.rdma.state(&bench.b), if broken { 6 } else { 3 }, "{what}");
}

#[test]
fn each_cause_has_its_completions_events_and_states_with_each_opcode() {
    let mut rows = 0;
    for cause in CAUSES {
        for opcode in cause.opcodes {
            let what = format!("{}, opcode {opcode:#x}", cause.name);
            let mut bench = post(cause, *opcode);
            if cause.requester.0 == 0 {
                // Acknowledged: the two sends behind it find a peer that has broken down.
                let cqe = bench.rdma.poll(&mut bench.cq_a);
                assert_eq!((cqe[63] >> 4, cqe[55], cqe[56]), (13, 0x15, SEND), "{what}");
            } else {
                check_requester(&mut bench, cause, *opcode, &what);
            }
            check_responder(&mut bench, cause, &what);
            // The requester's memory is never touched. The responder's is where only the requester's own list is at
            // fault: the peer has done its part by then, and an atomic is done.
            let atomic = ATOMICS.contains(opcode) && cause.requester.0 == 0x04;
            let taken = cause.requester.0 == 0;
            assert!(bench.mine.bytes(0, 4096) == [0xaa; 4096], "{what}");
            assert_eq!(bench.theirs.bytes(0, 8) == [0x55; 8], !atomic, "{what}");
            assert!(bench.theirs.bytes(8, 2040) == [0x55; 2040], "{what}");
            assert_eq!(bench.theirs.bytes(2048, 64) == [0x55; 64], !taken, "{what}");
            bench.rdma.assert_clean();
            rows += 1;
        }
    }
    assert!(rows > 120, "{rows} rows");
}

#[test]
fn without_the_cause_nothing_is_wrong() {
    for opcode in ALL {
        let nothing = connection("nothing", &[], |a, _| a.rnr_retry = 7, (0, 0), Nothing);
        let mut bench = post(&nothing, *opcode);
        bench.rdma.recv(&mut bench.b, &[]);
        let cqe = bench.rdma.poll(&mut bench.cq_a);
        assert_eq!((cqe[63] >> 4, cqe[56]), (0, SEND), "{opcode:#x}");
        assert!(bench.rdma.async_eq.take().is_none());
        bench.rdma.assert_clean();
    }
}

#[test]
fn only_what_takes_a_receive_request_waits_for_one() {
    for opcode in ALL {
        let wish = QpWish { rnr_retry: 1, ..QpWish::default() };
        let mut bench = Bench::with(Rdma::up(), wish, wish);
        bench.theirs.fill(0, &[0x55; 64]);
        let window = invalidatable(&bench, |_| ());
        let (there, list) = (bench.theirs.there(0), vec![bench.mine.seg(0, 8)]);
        let request = Request { opcode: *opcode, there, list, invalidate: window.key };
        let imm = if *opcode == SEND_INV { window.key } else { 0 };
        bench.post(*opcode, imm, &request.segments());
        let cqe = bench.rdma.poll(&mut bench.cq_a);
        let waits = NEED_RECEIVE.contains(opcode);
        let expected = if waits { (13, 0x16, 0x87) } else { (0, cqe[55], cqe[54]) };
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[54]), expected, "{opcode:#x}");
        assert_eq!(bench.theirs.bytes(0, 8) == [0x55; 8], waits || *opcode == READ, "{opcode:#x}");
        let states = (bench.rdma.state(&bench.a), bench.rdma.state(&bench.b));
        assert_eq!(states, if waits { (6, 3) } else { (3, 3) }, "{opcode:#x}");
        bench.rdma.assert_clean();
    }
}
