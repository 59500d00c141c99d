//! Every rule of the data path, broken once by raw bytes.

use crate::flame_errors;
use crate::kinds::COMMITTED_HERE;
use crate::mix::Random;
use crate::one_sided::{CAS, FAA, READ, WRITE};
use crate::qp::QpWish;
use crate::raw::{put, store, store32};
use crate::rdma::{CqWish, LR, LW, Rdma};
use crate::srq_errors::BREACHES;
use crate::wqe::{Wqe, data, inline, operands, remote, signalled};
use mlx5_hw::platform::Platform;
use mlx5_model::ViolationKind::{self, *};

/// A connected pair on one queue of 16 for each, and the first half of what each breach needs.
struct Bench {
    rdma: Rdma,
    send: crate::rdma::Cq,
    recv: crate::rdma::Cq,
    a: crate::qp::Qp,
    b: crate::qp::Qp,
    mr: crate::rdma::Mr,
}

impl Bench {
    fn new() -> Self {
        let rdma = Rdma::up();
        let wish = CqWish { log_size: 1, entry: 64, ignore_overrun: false };
        let (send, recv) = (rdma.cq(wish), rdma.cq(CqWish { log_size: 4, ..wish }));
        let (a, b) = rdma.pair(QpWish::default(), &send, &recv);
        let mr = rdma.register(4096, 0, LR | LW);
        rdma.assert_clean();
        Self { rdma, send, recv, a, b, mr }
    }

    fn page(&self) -> usize {
        self.rdma.uar as usize * 4096
    }

    /// Stores a send work request whose bytes `spoil` has changed, and rings for it.
    fn spoiled(&mut self, spoil: impl Fn(&mut [u8])) {
        let mut raw = vec![0; 32];
        put(&mut raw, 24, 8, 0x0a);
        put(&mut raw, 32, 24, self.a.qpn.into());
        put(&mut raw, 58, 6, 2);
        raw[11] = 8;
        raw[16..].copy_from_slice(&data(self.mr.seg(0, 8)));
        spoil(&mut raw);
        self.rdma.store_send(&self.a, &raw);
        self.a.sq += 1;
        self.rdma.ring(&self.a, u64::from(self.a.qpn) << 8 | 2);
        let cqe = self.rdma.poll(&mut self.send);
        assert_eq!(
            (cqe[63] >> 4, cqe[55]),
            (13, 2),
            "a work request that is not well formed is a local operation error"
        );
    }

    /// Posts a request whose segments are not what its opcode needs.
    fn odd(&mut self, opcode: u8, imm: u32, segments: &[u8]) {
        self.rdma.send(&mut self.a, Wqe { opcode, flags: 8, imm, segments });
        let cqe = self.rdma.poll(&mut self.send);
        assert_eq!((cqe[63] >> 4, cqe[55], cqe[56]), (13, 2, opcode));
    }

    fn message(&mut self) {
        self.rdma.recv(&mut self.b, &[self.mr.seg(0, 64)]);
        self.rdma.send(&mut self.a, signalled(&inline(b"x")));
    }
}

/// A name, the rule, and how it is broken.
type Row = (&'static str, ViolationKind, fn(&mut Bench));

const ROWS: &[Row] = &[
    ("send doorbell in INIT", SendDoorbellState, |b| {
        let mut qp = b.rdma.qp(QpWish::default(), &b.send, &b.send);
        b.rdma.init(&qp);
        b.rdma.send(&mut qp, signalled(&[]));
        assert!(b.rdma.take(&mut b.send).is_none());
    }),
    ("send doorbell in RTR", SendDoorbellState, |b| {
        let mut qp = b.rdma.qp(QpWish::default(), &b.send, &b.send);
        b.rdma.init(&qp);
        b.rdma.ready_to_receive(&qp, b.a.qpn);
        b.rdma.send(&mut qp, signalled(&[]));
    }),
    ("doorbell before its record", SendRecordStale, |b| {
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        b.rdma.raw.write64(b.page() + 0x800, value);
        assert!(b.rdma.take(&mut b.send).is_none());
    }),
    ("doorbell twice for one record", SendRecordStale, |b| {
        b.rdma.recv(&mut b.b, &[]);
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        b.rdma.ring(&b.a, value);
        b.rdma.ring(&b.a, value);
    }),
    ("more posted than the send queue holds", SendQueueOverrun, |b| {
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        b.a.sq = 17;
        b.rdma.ring(&b.a, value);
        assert!(b.rdma.take(&mut b.send).is_none());
    }),
    ("send counter that goes back", SendQueueOverrun, |b| {
        b.message();
        b.message();
        b.a.sq = 1;
        b.rdma.ring(&b.a, u64::from(b.a.qpn) << 8 | 1);
    }),
    ("more posted than the receive queue holds", ReceiveQueueOverrun, |b| {
        store32(&b.b.record, 0, 17);
        b.rdma.send(&mut b.a, signalled(&[]));
    }),
    ("send counter wider than 16 bits", DoorbellRecordReserved, |b| {
        b.rdma.recv(&mut b.b, &[]);
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        store32(&b.a.record, 4, 0x1_0001);
        b.rdma.raw.write64(b.page() + 0x800, value);
    }),
    ("receive counter wider than 16 bits", DoorbellRecordReserved, |b| {
        b.rdma.write_recv(&mut b.b, &[]);
        store32(&b.b.record, 0, 0x1_0001);
        b.rdma.send(&mut b.a, signalled(&[]));
    }),
    ("consumer index wider than 24 bits", DoorbellRecordReserved, |b| {
        b.message();
        b.message();
        store32(&b.send.record, 0, 0x100_0002);
        b.message();
    }),
    ("WQE index of another place", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 8, 16, 1))),
    ("WQE of another queue pair", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 32, 24, 0x123))),
    ("WQE of no size", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 58, 6, 0))),
    ("WQE larger than what is posted", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 58, 6, 5))),
    ("WQE with a reserved bit beside ds", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 56, 1, 1))),
    ("WQE with a reserved byte in the third dword", WqeMalformed, |b| b.spoiled(|wqe| wqe[9] = 1)),
    ("WQE with a reserved bit in fm_ce_se", WqeMalformed, |b| b.spoiled(|wqe| wqe[11] |= 1)),
    ("WQE with a signature nobody asked for", WqeMalformed, |b| b.spoiled(|wqe| wqe[8] = 1)),
    ("WQE with an operation modifier", WqeMalformed, |b| b.spoiled(|wqe| wqe[0] = 1)),
    ("SEND with immediate data", WqeMalformed, |b| b.spoiled(|wqe| wqe[15] = 1)),
    ("data segment of length 0", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 128, 32, 0))),
    ("inline segment longer than its WQE", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 128, 32, 1 << 31 | 13))),
    ("inline segment with a reserved bit", WqeMalformed, |b| b.spoiled(|wqe| put(wqe, 128, 32, 1 << 31 | 1 << 10))),
    ("WQE with a fence mode that does not exist", WqeMalformed, |b| b.spoiled(|wqe| wqe[11] |= 5 << 5)),
    ("write without a remote address", WqeMalformed, |b| b.odd(WRITE, 0, &[])),
    ("read without a remote address", WqeMalformed, |b| b.odd(READ, 0, &[])),
    ("atomic without a remote address", WqeMalformed, |b| b.odd(CAS, 0, &[])),
    ("atomic without its operands", WqeMalformed, |b| b.odd(FAA, 0, &remote(b.mr.there(0)))),
    ("remote address with a reserved dword", WqeMalformed, |b| {
        let mut segment = remote(b.mr.there(0));
        segment[15] = 1;
        b.odd(WRITE, 0, &segment);
    }),
    ("write with immediate data in an opcode that has none", WqeMalformed, |b| b.odd(WRITE, 7, &remote(b.mr.there(0)))),
    ("read with immediate data", WqeMalformed, |b| b.odd(READ, 7, &remote(b.mr.there(0)))),
    ("read into the request itself", WqeMalformed, |b| {
        b.odd(READ, 0, &[&remote(b.mr.there(0))[..], &inline(b"here")].concat());
    }),
    ("fetch and add with a value to compare", WqeMalformed, |b| {
        b.odd(FAA, 0, &[remote(b.mr.there(0)), operands(1, 1), data(b.mr.seg(8, 8))].concat());
    }),
    ("remote address with a data segment of length 0", WqeMalformed, |b| {
        b.odd(WRITE, 0, &[remote(b.mr.there(0)), data(b.mr.seg(0, 0))].concat());
    }),
    ("receive segment of length 0", WqeMalformed, |b| {
        b.rdma.recv(&mut b.b, &[(b.mr.key, b.mr.va, 0)]);
        b.rdma.send(&mut b.a, signalled(&[]));
    }),
    ("receive segment with bit 31", WqeMalformed, |b| {
        b.rdma.recv(&mut b.b, &[(b.mr.key, b.mr.va, 1 << 31 | 8)]);
        b.rdma.send(&mut b.a, signalled(&[]));
    }),
    ("consumer index ahead of the producer", CqConsumerIndex, |b| {
        b.message();
        b.message();
        store32(&b.send.record, 0, 3);
        b.message();
    }),
    ("consumer index ahead of a queue that is far from full", CqConsumerIndex, |b| {
        b.message();
        // Behind the producer by 2^24 - 1.
        store32(&b.recv.record, 0, 2);
        b.message();
        assert_eq!([b.rdma.poll(&mut b.recv)[63] >> 4, b.rdma.poll(&mut b.recv)[63] >> 4], [2, 2]);
    }),
    ("consumer index of the wrong byte order", DoorbellRecordReserved, |b| {
        b.message();
        b.recv.record.words()[0].store(1_u32.to_le(), std::sync::atomic::Ordering::Release);
        b.message();
    }),
    ("consumer index that goes back", CqConsumerIndex, |b| {
        for _ in 0..3 {
            b.message();
            b.rdma.poll(&mut b.send);
        }
        store32(&b.send.record, 0, 0);
        b.message();
        b.message();
    }),
    ("arm ahead of the producer", CqConsumerIndex, |b| {
        b.send.ci = 1;
        b.rdma.arm(&b.send, 0, false);
    }),
    ("arm doorbell before its record", CqArmWord, |b| {
        b.rdma.raw.write64(b.page() + 0x20, 1 << 60 | u64::from(b.send.cqn));
    }),
    ("arm doorbell with a reserved bit", CqArmWord, |b| {
        store32(&b.send.record, 4, 1 << 25);
        b.rdma.raw.write64(b.page() + 0x20, 1 << 57 | u64::from(b.send.cqn));
    }),
    ("send doorbell for no queue pair", DoorbellUnknownObject, |b| {
        b.rdma.raw.write64(b.page() + 0x800, 0xabc << 8 | 1);
    }),
    ("arm doorbell for no completion queue", DoorbellUnknownObject, |b| {
        b.rdma.raw.write64(b.page() + 0x20, 0xabc);
    }),
    ("send doorbell in another UAR", DoorbellWrongUar, |b| {
        let other = crate::raw::get(&b.rdma.raw.command(0x802, 0, &[0; 8], 16), 72, 24) as usize * 4096;
        let value = b.rdma.write_send(&mut b.a, signalled(&[]));
        store32(&b.a.record, 4, 1);
        b.rdma.raw.write64(other + 0x800, value);
    }),
    ("arm doorbell in another UAR", DoorbellWrongUar, |b| {
        let other = crate::raw::get(&b.rdma.raw.command(0x802, 0, &[0; 8], 16), 72, 24) as usize * 4096;
        b.rdma.raw.write64(other + 0x20, b.send.cqn.into());
    }),
    ("half a doorbell", UarUnknownOffset, |b| {
        b.rdma.raw.write32(b.page() + 0x800, 0);
        b.rdma.raw.write32(b.page() + 0x904, b.a.qpn << 8 | 1);
    }),
    ("payload outside of any mapping", DmaUnmapped, |b| {
        // A physical-address key covers everything, mapped or not.
        let mut body = vec![0; 264];
        let mkc = &mut body[8..72];
        put(mkc, 20, 2, 3);
        put(mkc, 32, 24, 0xff_ffff);
        put(mkc, 96, 1, 1);
        put(mkc, 104, 24, b.rdma.pd.into());
        let key = (crate::raw::get(&b.rdma.raw.command(0x200, 0, &body, 16), 72, 24) as u32) << 8;
        b.rdma.recv(&mut b.b, &[b.mr.seg(0, 64)]);
        b.rdma.send(&mut b.a, signalled(&data((key, 0x10, 8))));
        let cqe = b.rdma.poll(&mut b.send);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, 4));
    }),
    ("memory of a peer outside of any mapping", DmaUnmapped, |b| {
        let mut body = vec![0; 264];
        let mkc = &mut body[8..72];
        put(mkc, 17, 7, 0b11111 << 2);
        put(mkc, 32, 24, 0xff_ffff);
        put(mkc, 96, 1, 1);
        put(mkc, 104, 24, b.rdma.pd.into());
        let key = (crate::raw::get(&b.rdma.raw.command(0x200, 0, &body, 16), 72, 24) as u32) << 8;
        let segments = [remote((key, 0x10)), data(b.mr.seg(0, 8))].concat();
        b.rdma.send(&mut b.a, Wqe { opcode: WRITE, flags: 8, imm: 0, segments: &segments });
        let cqe = b.rdma.poll(&mut b.send);
        assert_eq!((cqe[63] >> 4, cqe[55]), (13, 0x14));
        assert_eq!(b.rdma.async_eq.take().unwrap()[1], 5, "the responder breaks down");
        assert_eq!((b.rdma.state(&b.a), b.rdma.state(&b.b)), (6, 6));
    }),
    ("payload in memory that was freed", DmaAfterFree, |b| {
        let mr = b.rdma.register(64, 0, LR);
        let segment = data(mr.seg(0, 8));
        let mut body = [0; 8];
        put(&mut body, 8, 24, u64::from(mr.key >> 8));
        // SAFETY: nothing refers to the memory any more, and the device reads it only to be caught.
        unsafe { b.rdma.raw.model.free(mr.mem) };
        b.rdma.send(&mut b.a, signalled(&segment));
        b.rdma.raw.command(0x202, 0, &body, 16);
    }),
];

#[test]
fn each_breach_is_noticed_and_named() {
    for (name, kind, commit) in ROWS {
        let mut bench = Bench::new();
        commit(&mut bench);
        let found = bench.rdma.raw.model.violations();
        assert!(found.iter().any(|violation| violation.kind == *kind), "{name}: {found:?}");
        // Freeing what is in use and then using it are two breaches; all others are one.
        let others: Vec<_> = found.iter().filter(|violation| violation.kind != *kind).collect();
        assert!(others.is_empty() || *kind == DmaAfterFree, "{name}: also {others:?}");
    }
}

#[test]
fn no_rule_is_left_out() {
    for kind in COMMITTED_HERE {
        let shared = BREACHES.iter().any(|(_, committed, _)| committed == kind);
        let stored = flame_errors::BREACHES.iter().any(|(_, committed, _)| committed == kind);
        assert!(shared || stored || ROWS.iter().any(|(_, committed, _)| committed == kind), "{kind:?}");
    }
}

#[test]
fn the_device_keeps_working_after_each_breach() {
    for (name, _, commit) in ROWS {
        let mut bench = Bench::new();
        commit(&mut bench);
        let wish = CqWish { log_size: 2, entry: 64, ignore_overrun: false };
        let (mut one, mut two) = (bench.rdma.cq(wish), bench.rdma.cq(wish));
        let (mut a, mut b) = bench.rdma.pair(QpWish::default(), &one, &two);
        bench.rdma.recv(&mut b, &[bench.mr.seg(0, 64)]);
        bench.rdma.send(&mut a, Wqe { ..signalled(&inline(b"fine")) });
        assert_eq!(bench.rdma.poll(&mut one)[63] >> 4, 0, "{name}");
        assert_eq!(bench.rdma.poll(&mut two)[63] >> 4, 2, "{name}");
        store(&bench.mr.mem, 0, &[0; 4]);
    }
}

#[test]
fn no_bytes_in_a_send_queue_make_the_device_panic() {
    let mut random = Random(1);
    let mut next = || random.byte();
    let rdma = Rdma::up();
    let wish = CqWish { log_size: 6, entry: 64, ignore_overrun: true };
    let cq = rdma.cq(wish);
    for _ in 0..300 {
        let (mut a, mut b) = rdma.pair(QpWish { ack_timeout: 0, ..QpWish::default() }, &cq, &cq);
        let junk: Vec<u8> = (0..1024).map(|_| next()).collect();
        rdma.store_send(&a, &junk);
        let mut head = [0; 16];
        put(&mut head, 24, 8, [0x0a, 0x0b, 0, 1, 8, 9, 0x10, 0x11, 0x12, next().into()][usize::from(next() % 10)]);
        put(&mut head, 32, 24, a.qpn.into());
        put(&mut head, 58, 6, u64::from(next() & 63));
        rdma.store_send(&a, &head);
        store(&b.mem, 0, &(0..256).map(|_| next()).collect::<Vec<u8>>());
        b.rq = 3;
        store32(&b.record, 0, 3);
        a.sq = 16;
        rdma.ring(&a, u64::from(a.qpn) << 8 | 1);
        rdma.raw.write64(rdma.uar as usize * 4096 + 0x20, u64::from_be_bytes([0; 8].map(|_: u8| next())));
        for qp in [&a, &b] {
            rdma.leave(0x50a, qp);
            let mut body = [0; 8];
            put(&mut body, 8, 24, qp.qpn.into());
            rdma.raw.command(0x501, 0, &body, 16);
        }
    }
}
