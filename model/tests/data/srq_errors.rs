//! Shared receive queues: what goes wrong, for one queue pair and for all.

use mlx5_hw::platform::Platform;
use mlx5_model::ViolationKind::{self, *};
use mlx5_model::{CapConfig, syndrome_text};

use crate::qp::QpWish;
use crate::raw::{Raw, get, put, store, store32};
use crate::rdma::{LR, LW, Rdma};
use crate::srq::{BROKEN, Bench, CQ, LAST, LIMIT, limit_body};
use crate::wqe::{inline, signalled};

#[test]
fn a_wrong_key_breaks_one_queue_pair_and_the_queue_serves_the_other() {
    let mut b = Bench::new(3);
    let (key, va) = (b.mr.key, b.mr.va);
    assert_eq!(b.srq.post(&[(key ^ 0xff, va, 16)]), 0);
    b.post();
    b.post();
    b.send(0, b"lost");
    assert_eq!((b.receive(0), b.sent()), ((0x20, 0, 0x04), 0x14));
    assert_eq!(b.rdma.event(), Some((LAST, b.receivers[0].qpn.into())));
    assert_eq!((b.rdma.state(&b.receivers[0]), b.rdma.state(&b.receivers[1])), (6, 3));
    assert!(b.rdma.take(&mut b.got[0]).is_none(), "the requests that are left are not flushed");
    b.send(1, b"fine");
    assert_eq!((b.receive(1), b.sent(), b.rdma.event()), ((0x21, 1, 0), 0, None));
    b.rdma.assert_clean();
}

#[test]
fn a_message_too_long_takes_the_request_with_it() {
    let mut b = Bench::new(3);
    b.post();
    b.send(1, b"seventeen letters");
    assert_eq!((b.receive(1), b.sent()), ((0x21, 0, 0x01), 0x12));
    b.rdma.assert_clean();
}

#[test]
fn the_last_request_is_told_once_each_time_a_queue_pair_goes_to_error() {
    let mut b = Bench::new(3);
    b.post();
    let qpn = u64::from(b.receivers[0].qpn);
    b.rdma.leave(0x507, &b.receivers[0]);
    assert_eq!((b.rdma.event(), b.rdma.event()), (Some((LAST, qpn)), None));
    b.rdma.leave(0x507, &b.receivers[0]);
    assert_eq!(b.rdma.event(), None, "it is in error already");
    b.rdma.leave(0x50a, &b.receivers[0]);
    assert_eq!(b.rdma.event(), None, "a reset is not an error");
    b.rdma.init(&b.receivers[0]);
    b.rdma.leave(0x507, &b.receivers[0]);
    assert_eq!(b.rdma.event(), Some((LAST, qpn)));
    assert!(b.rdma.take(&mut b.got[0]).is_none());
    b.rdma.leave(0x507, &b.senders[1]);
    assert_eq!(b.rdma.event(), None, "a queue pair with its own receive queue has no such event");
    b.rdma.assert_clean();
}

#[test]
fn completions_that_were_held_back_come_before_the_last_request_is_told() {
    let mut b = Bench::new(3);
    b.post();
    b.rdma.raw.model.inject_data(mlx5_model::DataFault::LateCqe { ns: 1_000_000_000 }, 0);
    b.send(0, b"late");
    assert!(b.rdma.take(&mut b.got[0]).is_none());
    b.rdma.leave(0x507, &b.receivers[0]);
    assert_eq!(b.rdma.event().map(|event| event.0), Some(LAST));
    assert!(b.rdma.take(&mut b.got[0]).is_some());
}

#[test]
fn keys_are_those_of_the_queues_protection_domain() {
    let rdma = Rdma::up();
    let other = get(&rdma.raw.command(0x800, 0, &[0; 8], 16), 72, 24);
    let mut srq = rdma.srq_as(3, 64, |rmpc| put(rmpc, 456, 24, other));
    let own = rdma.register(64, 0, LR | LW);
    let shared = rdma.register_as(64, 0, LR | LW, |mkc| put(mkc, 104, 24, other));
    let cq = rdma.cq(CQ);
    let mut cq2 = rdma.cq(CQ);
    let (mut a, b) =
        (rdma.qp(QpWish::default(), &cq, &cq), rdma.qp(QpWish { srq: Some(srq.rmpn), ..QpWish::default() }, &cq, &cq2));
    rdma.connect(&a, &b);
    srq.post(&[shared.seg(0, 16)]);
    srq.post(&[own.seg(0, 16)]);
    rdma.send(&mut a, signalled(&inline(b"yes")));
    assert_eq!((rdma.poll(&mut cq2)[63] >> 4, shared.bytes(0, 3)), (2, b"yes".to_vec()));
    rdma.send(&mut a, signalled(&inline(b"no")));
    let cqe = rdma.poll(&mut cq2);
    assert_eq!((cqe[63] >> 4, cqe[55]), (14, 4));
    let mut body = [0; 8];
    put(&mut body, 8, 24, other);
    assert_eq!(rdma.raw.try_command(0x801, 0, &body, 16)[0], 6, "the PD is in use");
    rdma.assert_clean();
}

#[test]
fn a_queue_in_use_cannot_be_destroyed() {
    let b = Bench::new(3);
    let mut body = [0; 8];
    put(&mut body, 8, 24, b.srq.rmpn.into());
    let status = |opcode| b.rdma.raw.try_command(opcode, 0, &body, 16)[0];
    assert_eq!(status(0x90e), 6);
    for qp in &b.receivers {
        let mut body = [0; 8];
        put(&mut body, 8, 24, qp.qpn.into());
        b.rdma.raw.command(0x501, 0, &body, 16);
    }
    assert_eq!((status(0x90e), status(0x90e)), (0, 5), "then it can, once");
    // SAFETY: from this platform's `alloc`; the device has no use for it any more.
    unsafe { b.rdma.raw.model.free(b.srq.mem) };
    b.rdma.assert_clean();
}

#[test]
fn a_queue_that_led_astray_breaks_whoever_takes_from_it() {
    let mut b = Bench::new(3);
    b.srq.link(0, 8);
    b.srq.write(&[]);
    b.srq.counter = 2;
    b.srq.tell();
    b.send(0, b"x");
    assert_eq!(b.sent(), 0x14);
    let (srq, qpns) = (b.srq.rmpn, [b.receivers[0].qpn, b.receivers[1].qpn]);
    let events: Vec<_> = std::iter::from_fn(|| b.rdma.event()).collect();
    assert_eq!(events, [(BROKEN, srq.into()), (5, qpns[0].into()), (LAST, qpns[0].into())]);
    assert_eq!(get(&b.rdma.pool(&b.srq), 8, 4), 3, "in error");
    b.send(1, b"x");
    assert_eq!(b.sent(), 0x14);
    assert_eq!(b.rdma.event(), Some((5, qpns[1].into())));
    assert_eq!(b.rdma.raw.try_command(0x90d, 0, &limit_body(srq, 1), 16)[0], 3);
    assert!(b.rdma.raw.model.violations().iter().all(|violation| violation.kind == ReceiveLink));
}

/// What is spoiled in the body of a command; the status; words of the reason.
type Row = (u8, &'static str, fn(&mut [u8]));

fn refuses(rdma: &Rdma, opcode: u16, good: &[u8], rows: &[Row]) {
    for (status, reason, spoil) in rows {
        let mut body = good.to_vec();
        spoil(&mut body);
        let out = rdma.raw.try_command(opcode, 0, &body, 16);
        assert_eq!((out[0], syndrome_text(get(&out, 32, 32) as u32)), (*status, Some(*reason)));
    }
    rdma.raw.command(opcode, 0, good, 16);
}

#[test]
fn create_rmp_checks_its_context() {
    let rdma = Rdma::up();
    let (good, _mem, _record) = rdma.srq_body(4, 64);
    refuses(
        &rdma,
        0x90c,
        &good,
        &[
            (3, "state is not 'ready', or the RMP's is not", |b| put(&mut b[24..], 8, 4, 3)),
            (3, "wq_type is not a linked list", |b| put(&mut b[24..], 384, 4, 1)),
            (8, "log_wq_sz exceeds log_max_srq_sz", |b| put(&mut b[24..], 667, 5, 16)),
            (3, "log_wq_stride is out of range", |b| put(&mut b[24..], 652, 4, 4)),
            (3, "log_wq_stride is out of range", |b| put(&mut b[24..], 652, 4, 10)),
            (5, "the RMP's PD does not exist", |b| put(&mut b[24..], 456, 24, 99)),
            (3, "lwm exceeds the entries of the RMP", |b| put(&mut b[24..], 432, 16, 17)),
            (0x50, "length of the list differs from what the context says", |b| put(&mut b[24..], 667, 5, 7)),
            (3, "a page of the queue is not aligned to its log_page_size", |b| b[271] = 0x40),
            (3, "a page of the queue is not mapped for the device", |b| b[264] = 1),
            (3, "the doorbell record is not aligned to 8 bytes", |b| b[24 + 71] |= 4),
            (3, "the doorbell record is not mapped for the device", |b| b[24 + 64] = 1),
            (3, "a reserved bit is set", |b| put(&mut b[24..], 673, 1, 1)),
            (3, "a reserved bit is set", |b| put(&mut b[24..], 576, 32, 1)),
            (3, "a reserved bit is set", |b| put(&mut b[24..], 0, 8, 1)),
        ],
    );
}

#[test]
fn modify_rmp_takes_the_limit_alone() {
    let rdma = Rdma::up();
    let srq = rdma.srq(4, 64);
    refuses(
        &rdma,
        0x90d,
        &limit_body(srq.rmpn, 16),
        &[
            (3, "state is not 'ready', or the RMP's is not", |b| put(b, 0, 4, 0)),
            (3, "state is not 'ready', or the RMP's is not", |b| put(b, 200, 4, 3)),
            (5, "no such RMP", |b| put(b, 8, 24, 999)),
            (3, "lwm exceeds the entries of the RMP", |b| put(b, 192 + 432, 16, 17)),
            (3, "a reserved bit is set", |b| put(b, 126, 1, 1)),
        ],
    );
    let mut body = limit_body(srq.rmpn, 3);
    put(&mut body, 127, 1, 0);
    rdma.raw.command(0x90d, 0, &body, 16);
    assert_eq!(get(&rdma.pool(&srq), 432, 16), 0, "the limit of before has been told, and the bit says: leave it");
}

#[test]
fn there_are_as_many_queues_as_the_capabilities_say() {
    let few = Rdma::on(Raw::up_with(CapConfig { log_max_rmp: 1, ..CapConfig::default() }, true));
    let (body, _mem, _record) = few.srq_body(4, 64);
    let status = |rdma: &Rdma, body: &[u8]| rdma.raw.try_command(0x90c, 0, body, 16)[0];
    assert_eq!([status(&few, &body), status(&few, &body), status(&few, &body)], [0, 0, 0xf]);
    let none = Rdma::on(Raw::up_with(CapConfig { log_max_rmp: 0, ..CapConfig::default() }, true));
    let (body, _mem, _record) = none.srq_body(4, 64);
    assert_eq!(status(&none, &body), 2);
    let cq = few.cq(CQ);
    let refused = few.try_qp(QpWish { srq: Some(0x999), ..QpWish::default() }, &cq, &cq).err();
    assert_eq!(refused.and_then(|(_, syndrome)| syndrome_text(syndrome as u32)), Some("srqn_rmpn does not exist"));
}

/// A name, the rule, and how it is broken.
type Breach = (&'static str, ViolationKind, fn(&mut Bench));

pub const BREACHES: &[Breach] = &[
    ("a link out of the queue", ReceiveLink, |b| {
        b.srq.link(0, 8);
        b.srq.write(&[]);
        b.srq.counter = 2;
        b.srq.tell();
    }),
    ("a link to itself", ReceiveLink, |b| {
        b.srq.link(0, 0);
        b.srq.counter = 2;
        b.srq.tell();
    }),
    ("a link that is written after the counter", ReceiveLink, |b| {
        b.srq.link(0, 7);
        b.srq.link(7, 0);
        b.srq.counter = 3;
        b.srq.tell();
    }),
    ("more posted than the queue holds", ReceiveQueueOverrun, |b| store32(&b.srq.record, 0, 9)),
    ("a counter that goes back", ReceiveQueueOverrun, |b| {
        b.post();
        b.send(1, b"");
        store32(&b.srq.record, 0, 0);
    }),
    ("a counter wider than 16 bits", DoorbellRecordReserved, |b| {
        b.srq.write(&[]);
        store32(&b.srq.record, 0, 0x1_0001);
    }),
    ("a next segment with a reserved byte", WqeMalformed, |b| {
        store(&b.srq.mem, 8, &[1]);
        b.srq.post(&[]);
    }),
    ("a next segment with a signature nobody asked for", WqeMalformed, |b| {
        store(&b.srq.mem, 4, &[1]);
        b.srq.post(&[]);
    }),
    ("a receive segment of length 0", WqeMalformed, |b| {
        let segment = b.mr.seg(0, 0);
        b.srq.post(&[segment]);
    }),
];

#[test]
fn each_breach_is_noticed_and_named() {
    for (name, kind, commit) in BREACHES {
        let mut b = Bench::new(3);
        commit(&mut b);
        b.send(0, b"");
        let found = b.rdma.raw.model.violations();
        assert!(!found.is_empty() && found.iter().all(|violation| violation.kind == *kind), "{name}: {found:?}");
        assert_eq!(b.rdma.state(&b.senders[1]), 3, "{name}: others go on");
    }
}

#[test]
fn a_signed_queue_may_have_signatures() {
    let rdma = Rdma::up();
    let mut srq = rdma.srq_as(3, 64, |rmpc| put(rmpc, 388, 1, 1));
    store(&srq.mem, 4, &[0x5a]);
    srq.post(&[]);
    rdma.limit(&srq, 1);
    assert_eq!(get(&rdma.pool(&srq), 608, 32), 1);
    rdma.assert_clean();
}

#[test]
fn memory_of_a_live_queue_is_not_the_drivers_to_free() {
    let mut b = Bench::new(3);
    let (other, record) = (b.rdma.alloc(64), std::mem::replace(&mut b.srq.record, b.rdma.alloc(64)));
    for mem in [record, std::mem::replace(&mut b.srq.mem, other)] {
        // SAFETY: from this platform's `alloc`; that the device still owns it is the point.
        unsafe { b.rdma.raw.model.free(mem) };
    }
    let found: Vec<_> = b.rdma.raw.model.violations().iter().map(|violation| violation.kind).collect();
    assert_eq!(found, [FreedWhileOwned, FreedWhileOwned]);
}

#[test]
fn no_links_make_the_device_panic() {
    let mut random = crate::mix::Random(7);
    for _ in 0..100 {
        let mut b = Bench::new(3);
        b.rdma.limit(&b.srq, 5);
        let bytes: Vec<u8> = (0..512).map(|_| random.byte()).collect();
        store(&b.srq.mem, 0, &bytes);
        store32(&b.srq.record, 0, u32::from(random.byte() % 10));
        for n in [0, 1, 0] {
            b.send(n, b"x");
        }
        b.rdma.limit_anyhow(&b.srq);
        while b.rdma.event().is_some_and(|(kind, _)| [BROKEN, LAST, LIMIT, 5].contains(&kind)) {}
    }
}

impl Rdma {
    /// Arms the limit of a queue that may be broken.
    fn limit_anyhow(&self, srq: &crate::srq::Srq) {
        self.raw.try_command(0x90d, 0, &limit_body(srq.rmpn, 8), 16);
    }
}
