//! Shared receive queues, by raw bytes: several queue pairs take from one linked list.

use mlx5_hw::platform::DmaMem;

use crate::qp::{Qp, QpWish};
use crate::raw::{get, put, store, store32};
use crate::rdma::{Cq, CqWish, LR, LW, Mr, Rdma, pages_body};
use crate::wqe::{Wqe, data, inline, remote, signalled};

pub const CQ: CqWish = CqWish { log_size: 6, entry: 64, ignore_overrun: false };

/// A shared receive queue, with its free list kept as Linux keeps it: the last free one is never posted, so that its link can
/// be set when the next one is given back.
pub struct Srq {
    pub rmpn: u32,
    pub mem: DmaMem,
    pub record: DmaMem,
    pub stride: usize,
    log: u32,
    links: Vec<u16>,
    head: u16,
    tail: u16,
    pub counter: u16,
}

impl Srq {
    /// Sets the link of an entry.
    pub fn link(&mut self, index: u16, to: u16) {
        self.links[usize::from(index)] = to;
        store(&self.mem, usize::from(index) * self.stride + 2, &to.to_be_bytes());
    }

    /// Gives an entry back whose completion was taken.
    pub fn give_back(&mut self, index: u16) {
        self.link(self.tail, index);
        self.tail = index;
    }

    /// Writes a work request without telling; returns its index.
    pub fn write(&mut self, list: &[(u32, u64, u32)]) -> u16 {
        let index = self.head;
        assert_ne!(index, self.tail, "the queue is full");
        self.head = self.links[usize::from(index)];
        let mut raw = vec![0; self.stride - 16];
        for (i, seg) in list.iter().enumerate() {
            raw[16 * i..16 * i + 16].copy_from_slice(&data(*seg));
        }
        if list.len() * 16 < raw.len() {
            put(&mut raw[16 * list.len()..], 32, 32, 0x100);
        }
        store(&self.mem, usize::from(index) * self.stride + 16, &raw);
        self.counter = self.counter.wrapping_add(1);
        index
    }

    pub fn tell(&self) {
        store32(&self.record, 0, self.counter.into());
    }

    pub fn post(&mut self, list: &[(u32, u64, u32)]) -> u16 {
        let index = self.write(list);
        self.tell();
        index
    }
}

impl Rdma {
    /// Body of CREATE_RMP for 2^`log` entries of `stride` bytes, with its memory and record.
    pub fn srq_body(&self, log: u32, stride: usize) -> (Vec<u8>, DmaMem, DmaMem) {
        let (mem, record) = (self.alloc(stride << log), self.alloc(64));
        let mut body = pages_body(264, &mem);
        let rmpc = &mut body[24..264];
        put(rmpc, 8, 4, 1); // state: ready
        put(rmpc, 456, 24, self.pd.into());
        put(rmpc, 512, 64, record.iova());
        put(rmpc, 652, 4, stride.ilog2().into());
        put(rmpc, 667, 5, log.into());
        (body, mem, record)
    }

    pub fn srq(&self, log: u32, stride: usize) -> Srq {
        self.srq_as(log, stride, |_| ())
    }

    /// As [`srq`](Self::srq); `change` has the last word on the context.
    pub fn srq_as(&self, log: u32, stride: usize, change: impl Fn(&mut [u8])) -> Srq {
        let (mut body, mem, record) = self.srq_body(log, stride);
        change(&mut body[24..264]);
        let rmpn = get(&self.raw.command(0x90c, 0, &body, 16), 72, 24) as u32;
        let last = (1 << log) - 1;
        let mut srq = Srq { rmpn, mem, record, stride, log, links: vec![0; 1 << log], head: 0, tail: last, counter: 0 };
        for index in 0..=last {
            srq.link(index, index.wrapping_add(1) & last);
        }
        srq
    }

    /// MODIFY_RMP: the limit.
    pub fn limit(&self, srq: &Srq, limit: u16) {
        self.raw.command(0x90d, 0, &limit_body(srq.rmpn, limit), 16);
    }

    /// QUERY_RMP: the context.
    pub fn pool(&self, srq: &Srq) -> Vec<u8> {
        let mut body = [0; 8];
        put(&mut body, 8, 24, srq.rmpn.into());
        self.raw.command(0x90f, 0, &body, 0x110)[0x20..0x110].to_vec()
    }

    /// Next asynchronous event: type, and the number at its end.
    pub fn event(&mut self) -> Option<(u8, u64)> {
        self.async_eq.take().map(|eqe| (eqe[1], get(&eqe, 0x38 * 8, 32)))
    }
}

pub fn limit_body(rmpn: u32, limit: u16) -> Vec<u8> {
    let mut body = vec![0; 0x108];
    put(&mut body, 0, 4, 1); // rmp_state: ready
    put(&mut body, 8, 24, rmpn.into());
    put(&mut body, 127, 1, 1); // bitmask.lwm
    put(&mut body, 192 + 8, 4, 1);
    put(&mut body, 192 + 432, 16, limit.into());
    body
}

/// Number of the event for a broken queue, the last request, the limit.
pub const BROKEN: u8 = 0x12;
pub const LAST: u8 = 0x13;
pub const LIMIT: u8 = 0x14;

/// Two connections whose receivers share a queue, each receiver with a completion queue of its own; the senders share one.
pub struct Bench {
    pub rdma: Rdma,
    pub srq: Srq,
    pub senders: [Qp; 2],
    pub receivers: [Qp; 2],
    pub sent: Cq,
    pub got: [Cq; 2],
    pub mr: Mr,
}

impl Bench {
    pub fn new(log: u32) -> Self {
        Self::with(log, QpWish::default())
    }

    pub fn with(log: u32, wish: QpWish) -> Self {
        let rdma = Rdma::up();
        let srq = rdma.srq(log, 64);
        let sent = rdma.cq(CQ);
        let got = [rdma.cq(CQ), rdma.cq(CQ)];
        let connect = |n: usize| {
            let sender = rdma.qp(QpWish { user_index: 0x10 + n as u32, ..wish }, &sent, &sent);
            let shares = QpWish { user_index: 0x20 + n as u32, srq: Some(srq.rmpn), ..wish };
            let receiver = rdma.qp(shares, &sent, &got[n]);
            rdma.connect(&sender, &receiver);
            (sender, receiver)
        };
        let ((a, x), (b, y)) = (connect(0), connect(1));
        let mr = rdma.register(4096, 0, LR | LW);
        Self { senders: [a, b], receivers: [x, y], rdma, srq, sent, got, mr }
    }

    /// Posts a receive of 16 bytes at a place of its own.
    pub fn post(&mut self) -> u16 {
        let at = u64::from(self.srq.counter % 64) * 16;
        let segment = self.mr.seg(at, 16);
        self.srq.post(&[segment])
    }

    /// Sends to receiver `n`; the completion is left.
    pub fn send(&mut self, n: usize, bytes: &[u8]) {
        self.rdma.send(&mut self.senders[n], signalled(&inline(bytes)));
    }

    /// The next completion of receiver `n`: user index, index of the work request, syndrome or 0.
    pub fn receive(&mut self, n: usize) -> (u64, u64, u8) {
        let cqe = self.rdma.poll(&mut self.got[n]);
        let error = cqe[63] >> 4 == 14;
        (get(&cqe, 33 * 8, 24), get(&cqe, 480, 16), if error { cqe[55] } else { 0 })
    }

    /// Syndrome of the next completion of a sender, or 0.
    pub fn sent(&mut self) -> u8 {
        let cqe = self.rdma.poll(&mut self.sent);
        if cqe[63] >> 4 == 13 { cqe[55] } else { 0 }
    }
}

#[test]
fn queue_pairs_take_requests_in_the_order_of_posting_and_say_which() {
    let mut b = Bench::new(3);
    assert_eq!([b.post(), b.post(), b.post()], [0, 1, 2]);
    b.send(1, b"one");
    b.send(0, b"two");
    b.send(1, b"three");
    assert_eq!((b.receive(1), b.receive(0), b.receive(1)), ((0x21, 0, 0), (0x20, 1, 0), (0x21, 2, 0)));
    assert_eq!(
        (b.mr.bytes(0, 3), b.mr.bytes(16, 3), b.mr.bytes(32, 5)),
        (b"one".into(), b"two".into(), b"three".into())
    );
    assert_eq!([b.sent(), b.sent(), b.sent()], [0; 3]);
    assert_eq!(b.rdma.event(), None);
    b.rdma.assert_clean();
}

#[test]
fn links_lead_through_requests_that_came_back_in_another_order() {
    let mut b = Bench::new(2);
    assert_eq!([b.post(), b.post(), b.post()], [0, 1, 2], "the last free one stays");
    for n in [0, 1, 0] {
        b.send(n, b"x");
    }
    let taken = [b.receive(1).1, b.receive(0).1, b.receive(0).1];
    assert_eq!(taken, [1, 0, 2]);
    for index in taken {
        b.srq.give_back(index as u16);
    }
    let order = [b.post(), b.post(), b.post()];
    assert_eq!(order, [3, 1, 0]);
    for n in [1, 1, 0] {
        b.send(n, b"y");
    }
    assert_eq!([b.receive(1).1, b.receive(1).1, b.receive(0).1], [3, 1, 0]);
    b.rdma.assert_clean();
}

#[test]
fn the_counter_wraps_at_sixteen_bits() {
    let mut b = Bench::new(6);
    for lap in 0..0x1_0010_u32 / 32 {
        for _ in 0..32 {
            b.post();
        }
        for n in 0..32 {
            b.send(0, b"z");
            let (_, index, error) = b.receive(0);
            assert_eq!((error, b.sent()), (0, 0), "lap {lap}, message {n}");
            b.srq.give_back(index as u16);
        }
    }
    assert!(b.srq.counter < 32);
    b.rdma.assert_clean();
}

#[test]
fn an_empty_queue_lets_the_sender_wait() {
    let mut b = Bench::with(3, QpWish { rnr_retry: 7, ..QpWish::default() });
    b.send(0, b"early");
    b.rdma.raw.model.step(100_000);
    assert!(b.rdma.take(&mut b.sent).is_none());
    b.post();
    assert_eq!((b.receive(0), b.sent()), ((0x20, 0, 0), 0));
    b.rdma.assert_clean();
}

#[test]
fn an_empty_queue_breaks_a_sender_that_waits_no_longer() {
    let mut b = Bench::new(3);
    b.send(1, b"early");
    assert_eq!(b.sent(), 0x16);
    assert_eq!((b.rdma.state(&b.senders[1]), b.rdma.state(&b.receivers[1])), (6, 3), "the receiver has no part in it");
    assert_eq!(b.rdma.event(), None);
    b.rdma.assert_clean();
}

#[test]
fn a_write_with_immediate_data_takes_a_request_and_leaves_its_memory_alone() {
    let mut b = Bench::new(3);
    let target = b.rdma.register(64, 0, LW | 8);
    b.post();
    let segments = [&remote(target.there(0))[..], &inline(b"written")].concat();
    b.rdma.send(&mut b.senders[0], Wqe { opcode: 9, flags: 8, imm: 0x77, segments: &segments });
    let cqe = b.rdma.poll(&mut b.got[0]);
    assert_eq!((cqe[63] >> 4, get(&cqe, 288, 32), get(&cqe, 480, 16)), (1, 0x77, 0));
    assert_eq!((target.bytes(0, 7), b.mr.bytes(0, 4)), (b"written".to_vec(), vec![0; 4]));
    b.rdma.assert_clean();
}

#[test]
fn data_in_completions_works_with_shared_requests_too() {
    let mut b = Bench::with(3, QpWish { scatter_res: 1, ..QpWish::default() });
    b.post();
    b.send(0, b"inline");
    let cqe = b.rdma.poll(&mut b.got[0]);
    assert_eq!((&cqe[..6], cqe[63] >> 2 & 3), (&b"inline"[..], 1));
    b.rdma.assert_clean();
}

#[test]
fn the_limit_is_told_once_when_fewer_are_left() {
    let mut b = Bench::new(4);
    for _ in 0..6 {
        b.post();
    }
    b.rdma.limit(&b.srq, 4);
    let lwm = |b: &Bench| get(&b.rdma.pool(&b.srq), 432, 16);
    assert_eq!((b.rdma.event(), lwm(&b)), (None, 4));
    b.send(0, b"5 left");
    b.send(1, b"4 left");
    assert_eq!(b.rdma.event(), None, "as many as the limit");
    b.send(0, b"3 left");
    assert_eq!((b.rdma.event(), lwm(&b)), (Some((LIMIT, b.srq.rmpn.into())), 0));
    b.send(1, b"2 left");
    assert_eq!(b.rdma.event(), None, "not armed any more");
    b.rdma.limit(&b.srq, 2);
    assert_eq!(b.rdma.event(), None);
    b.post();
    b.send(1, b"2 left again");
    assert_eq!(b.rdma.event(), None);
    b.send(0, b"1 left");
    assert_eq!(b.rdma.event(), Some((LIMIT, b.srq.rmpn.into())));
    b.rdma.limit(&b.srq, 2);
    assert_eq!(b.rdma.event(), Some((LIMIT, b.srq.rmpn.into())), "fewer at the time of arming");
    b.rdma.limit(&b.srq, 1);
    b.rdma.limit(&b.srq, 0);
    b.send(0, b"none left");
    assert_eq!(b.rdma.event(), None, "disarmed");
    b.rdma.assert_clean();
}

#[test]
fn a_limit_can_be_armed_from_the_start() {
    let rdma = Rdma::up();
    let srq = rdma.srq_as(3, 64, |rmpc| put(rmpc, 432, 16, 3));
    assert_eq!(get(&rdma.pool(&srq), 432, 16), 3);
    rdma.assert_clean();
}

#[test]
fn the_query_returns_the_context_and_the_counters() {
    let mut b = Bench::new(4);
    for _ in 0..3 {
        b.post();
    }
    b.send(0, b"x");
    let rmpc = b.rdma.pool(&b.srq);
    assert_eq!((get(&rmpc, 8, 4), get(&rmpc, 384, 4), get(&rmpc, 456, 24)), (1, 0, b.rdma.pd.into()));
    assert_eq!((get(&rmpc, 652, 4), get(&rmpc, 667, 5), get(&rmpc, 512, 64)), (6, 4, b.srq.record.iova()));
    assert_eq!((get(&rmpc, 576, 32), get(&rmpc, 608, 32)), (1, 3), "taken and posted");
    assert_eq!(b.srq.log, 4);
}

#[test]
fn a_queue_that_starts_inside_a_page_is_found() {
    let rdma = Rdma::up();
    let (mut body, mem, record) = rdma.srq_body(5, 64);
    put(&mut body[24..264], 427, 5, 2); // page_offset: 128 bytes
    put(&mut body[24..264], 667, 5, 1); // two entries
    let rmpn = get(&rdma.raw.command(0x90c, 0, &body, 16), 72, 24) as u32;
    let (cq, mr) = (rdma.cq(CQ), rdma.register(64, 0, LW));
    let (mut a, b) =
        (rdma.qp(QpWish::default(), &cq, &cq), rdma.qp(QpWish { srq: Some(rmpn), ..QpWish::default() }, &cq, &cq));
    rdma.connect(&a, &b);
    store(&mem, 128, &[0, 0, 0, 1]);
    store(&mem, 144, &data(mr.seg(0, 16)));
    store(&mem, 164, &[0, 0, 1, 0]);
    store32(&record, 0, 1);
    rdma.send(&mut a, signalled(&inline(b"found")));
    assert_eq!(mr.bytes(0, 5), b"found");
    rdma.assert_clean();
}

#[test]
fn an_empty_queue_loses_what_comes_over_an_unreliable_connection() {
    let mut b = Bench::with(3, QpWish { service: 1, ..QpWish::default() });
    b.send(0, b"lost");
    assert_eq!(b.sent(), 0);
    b.post();
    assert!(b.rdma.take(&mut b.got[0]).is_none());
    b.send(0, b"came");
    assert_eq!((b.receive(0), b.sent(), b.mr.bytes(0, 4)), ((0x20, 0, 0), 0, b"came".to_vec()));
    // One that is too small waits for a message that fits, whoever takes it.
    b.post();
    b.send(0, b"seventeen letters");
    assert_eq!(b.sent(), 0);
    b.send(1, b"sixteen letters!");
    assert_eq!((b.receive(1), b.sent()), ((0x21, 1, 0), 0));
    b.rdma.assert_clean();
}
