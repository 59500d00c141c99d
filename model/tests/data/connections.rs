//! Reliable connections of the model, driven by raw bytes.

use crate::qp::{Qp, QpWish};
use crate::raw::{get, load, store, store32};
use crate::rdma::{Cq, CqWish, LR, LW, Mr, OLD, Rdma};
use crate::wqe::{Wqe, data, inline, signalled};

pub const CQ: CqWish = CqWish { log_size: 4, entry: 64, ignore_overrun: false };

/// A connected pair with a completion queue a side and a memory region a side.
pub struct Pair {
    pub rdma: Rdma,
    pub a: Qp,
    pub b: Qp,
    pub cq_a: Cq,
    pub cq_b: Cq,
    pub from: Mr,
    pub to: Mr,
}

pub const REGION: usize = 3 << 20;

pub fn pair_with(wish: QpWish, cq: CqWish) -> Pair {
    let rdma = Rdma::up();
    let (cq_a, cq_b) = (rdma.cq(cq), rdma.cq(cq));
    let (a, b) = rdma.pair(wish, &cq_a, &cq_b);
    let from = rdma.register(REGION, 100, LR);
    let to = rdma.register(REGION, 4000, LR | LW);
    Pair { rdma, a, b, cq_a, cq_b, from, to }
}

pub fn pair() -> Pair {
    pair_with(QpWish::default(), CQ)
}

impl Pair {
    pub fn recv(&mut self, len: u32) {
        self.rdma.recv(&mut self.b, &[self.to.seg(0, len)]);
    }

    pub fn send(&mut self, len: u32) {
        let segment = data(self.from.seg(0, len));
        self.rdma.send(&mut self.a, signalled(if len == 0 { &[] } else { &segment }));
    }

    pub fn idle(&mut self) {
        assert!(self.rdma.take(&mut self.cq_a).is_none() && self.rdma.take(&mut self.cq_b).is_none());
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251 + seed * 17) as u8).collect()
}

#[test]
fn messages_of_any_size_arrive_byte_for_byte() {
    let mut p = pair();
    let sizes = [0, 1, 2, 63, 64, 65, 995, 996, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 65_537, 1 << 20, REGION];
    for (n, size) in sizes.into_iter().enumerate() {
        let bytes = pattern(size, n);
        p.from.fill(0, &bytes);
        p.recv(REGION as u32);
        p.send(size as u32);
        let (sent, got) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
        assert_eq!(sent[63] >> 4, 0, "size {size}");
        assert_eq!((get(&sent, 33 * 8, 24), sent[56]), (0x1234, 0x0a));
        assert_eq!((get(&sent, 57 * 8, 24), get(&sent, 480, 16)), (u64::from(p.a.qpn), n as u64));
        assert_eq!((got[63] >> 4, get(&got, 352, 32)), (2, size as u64));
        assert_eq!((get(&got, 33 * 8, 24), get(&got, 480, 16)), (0x1235, n as u64));
        assert!(p.to.bytes(0, size) == bytes, "size {size}");
    }
    p.idle();
    p.rdma.assert_clean();
}

#[test]
fn a_long_message_comes_from_memory_that_lies_in_one_piece() {
    let mut p = pair_with(QpWish { reserved_lkey: true, ..QpWish::default() }, CQ);
    let bytes = pattern(200_000, 9);
    let mem = p.rdma.alloc(bytes.len());
    store(&mem, 0, &bytes);
    p.recv(REGION as u32);
    p.rdma.send(&mut p.a, signalled(&data((0x800, mem.iova(), bytes.len() as u32))));
    assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 352, 32), 200_000);
    assert!(p.to.bytes(0, bytes.len()) == bytes);
    p.rdma.assert_clean();
}

#[test]
fn a_message_is_gathered_and_scattered_over_several_segments() {
    let mut p = pair_with(QpWish { stride: 64, ..QpWish::default() }, CQ);
    let bytes = pattern(9000, 3);
    p.from.fill(0, &bytes);
    let targets = [p.to.seg(5000, 10), p.to.seg(100, 4090), p.to.seg(20_000, 9000)];
    p.rdma.recv(&mut p.b, &targets);
    let parts = [(0, 1), (1, 4999), (5000, 4000)].map(|(at, len)| data(p.from.seg(at, len)));
    p.rdma.send(&mut p.a, signalled(&parts.concat()));
    assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 352, 32), 9000);
    assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
    let placed = [p.to.bytes(5000, 10), p.to.bytes(100, 4090), p.to.bytes(20_000, 4900)].concat();
    assert!(placed == bytes);
    assert_eq!(p.to.bytes(24_900, 4), [0; 4], "nothing behind the message");
    p.rdma.assert_clean();
}

#[test]
fn each_packet_has_a_number_and_an_empty_message_has_one() {
    let mut p = pair();
    for len in [0, 1024, 1025] {
        p.recv(2000);
        p.send(len);
    }
    // From 0xfffffe on with a path MTU of 1024: 1 + 1 + 2 packets.
    assert_eq!((get(&p.rdma.context(&p.a), 968, 24), get(&p.rdma.context(&p.b), 1192, 24)), (2, 2));
    assert_eq!((get(&p.rdma.context(&p.b), 968, 24), get(&p.rdma.context(&p.a), 1192, 24)), (0xff_fffe, 0xff_fffe));
    p.rdma.assert_clean();
}

#[test]
fn a_receive_queue_takes_as_many_requests_as_it_has_entries() {
    let mut p = pair_with(QpWish::default(), CqWish { log_size: 6, ..CQ });
    for lap in 0..3 {
        for _ in 0..16 {
            p.recv(64);
        }
        for n in 0..16 {
            p.send(8);
            assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
            assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 480, 16), 16 * lap + n);
        }
    }
    p.rdma.assert_clean();
}

#[test]
fn inline_data_comes_from_the_work_request_itself() {
    let mut p = pair();
    for len in [0, 1, 11, 12, 13, 28, 60, 61, 200, 800] {
        let bytes = pattern(len, len);
        p.recv(1000);
        p.rdma.send(&mut p.a, signalled(&inline(&bytes)));
        assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 352, 32), len as u64);
        assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
        assert!(p.to.bytes(0, len) == bytes, "{len}");
    }
    p.rdma.assert_clean();
}

#[test]
fn immediate_data_and_the_solicited_bit_reach_the_receiver() {
    let mut p = pair();
    p.recv(64);
    p.rdma.send(&mut p.a, Wqe { opcode: 0x0b, flags: 0x0a, imm: 0xdead_beef, segments: &inline(b"hello") });
    let (sent, got) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
    assert_eq!((sent[63] >> 4, sent[56]), (0, 0x0b));
    assert_eq!((got[63] >> 4, got[63] >> 1 & 1, get(&got, 288, 32)), (3, 1, 0xdead_beef));
    assert_eq!(p.to.bytes(0, 5), b"hello");
    p.rdma.assert_clean();
}

#[test]
fn unsignalled_sends_complete_silently() {
    let mut p = pair();
    for n in 0..6 {
        p.recv(64);
        let flags = if n == 5 { 8 } else { 0 };
        p.rdma.send(&mut p.a, Wqe { flags, ..signalled(&inline(&[n])) });
    }
    let sent = p.rdma.poll(&mut p.cq_a);
    assert_eq!((sent[63] >> 4, get(&sent, 480, 16)), (0, 5));
    assert!(p.rdma.take(&mut p.cq_a).is_none());
    for n in 0..6 {
        assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 480, 16), n);
    }
    p.rdma.assert_clean();
}

#[test]
fn one_doorbell_covers_all_that_the_record_says() {
    let mut p = pair();
    let mut last = 0;
    for n in 0..8 {
        p.recv(64);
        last = p.rdma.write_send(&mut p.a, signalled(&inline(&[n])));
    }
    p.idle();
    p.rdma.ring(&p.a, last);
    for n in 0..8 {
        assert_eq!(get(&p.rdma.poll(&mut p.cq_a), 480, 16), n);
    }
    p.rdma.assert_clean();
}

#[test]
fn a_doorbell_may_come_in_two_halves_in_either_order_at_either_buffer() {
    let mut p = pair();
    let uar = p.rdma.uar as usize * 4096;
    for (n, (base, order)) in [(0x800, [0, 4]), (0x900, [4, 0]), (0x800, [4, 0])].into_iter().enumerate() {
        p.recv(64);
        let value = p.rdma.write_send(&mut p.a, signalled(&inline(&[7])));
        store32(&p.a.record, 4, p.a.sq.into());
        for half in order {
            assert!(p.rdma.take(&mut p.cq_a).is_none());
            p.rdma.raw.write32(uar + base + half, (value >> (32 - 8 * half)) as u32);
        }
        assert_eq!(get(&p.rdma.poll(&mut p.cq_a), 480, 16), n as u64);
    }
    p.rdma.assert_clean();
}

#[test]
fn a_work_request_of_several_blocks_wraps_at_the_end_of_the_ring_over_many_laps() {
    // 16 blocks; work requests of 1 to 4 blocks, past 2^16 blocks; the receive ring of 4 and the completion rings of 8.
    let cq = CqWish { log_size: 3, ..CQ };
    let mut p = pair_with(QpWish { log_rq: 2, stride: 16, ..QpWish::default() }, cq);
    let mut blocks = 0_u32;
    let mut n = 0;
    while blocks < (1 << 16) + 100 {
        let bytes = pattern([8, 60, 130, 200][n * 7 % 4], n);
        p.recv(256);
        let before = p.a.sq;
        p.rdma.send(&mut p.a, signalled(&inline(&bytes)));
        blocks += u32::from(p.a.sq.wrapping_sub(before));
        let (sent, got) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
        assert_eq!((sent[63] >> 4, get(&sent, 480, 16)), (0, u64::from(before)));
        assert_eq!((got[63] >> 4, get(&got, 480, 16)), (2, n as u64 & 0xffff));
        assert!(p.to.bytes(0, bytes.len()) == bytes, "message {n}");
        n += 1;
    }
    p.rdma.assert_clean();
}

#[test]
fn completions_of_128_bytes_have_their_descriptor_in_the_second_half() {
    let mut p = pair_with(QpWish::default(), CqWish { log_size: 2, entry: 128, ..CQ });
    for n in 0..20_u32 {
        p.recv(64);
        p.send(8);
        assert_eq!(get(&p.rdma.poll(&mut p.cq_a), 480, 16), u64::from(n));
        assert_eq!(get(&p.rdma.poll(&mut p.cq_b), 480, 16), u64::from(n));
    }
    assert_eq!(load(&p.cq_a.mem, 0, 64), [OLD; 64], "no inline data: the first half stays as it was");
    p.rdma.assert_clean();
}

#[test]
fn the_queues_start_at_the_page_offset() {
    let mut p = pair_with(QpWish { page_offset: 5, ..QpWish::default() }, CQ);
    for _ in 0..40 {
        p.recv(64);
        p.send(8);
        assert_eq!(p.rdma.poll(&mut p.cq_a)[63] >> 4, 0);
        assert_eq!(p.rdma.poll(&mut p.cq_b)[63] >> 4, 2);
    }
    p.rdma.assert_clean();
}

#[test]
fn the_signature_folds_the_entry_and_its_index_to_ff() {
    let mut p = pair_with(QpWish::default(), CqWish { log_size: 1, ..CQ });
    for n in 0..6_u8 {
        p.recv(64);
        p.send(8);
        let (sent, _) = (p.rdma.poll(&mut p.cq_a), p.rdma.poll(&mut p.cq_b));
        assert_eq!(sent.iter().fold(n, |x, b| x ^ b), 0xff);
    }
}

#[test]
fn the_clock_of_completions_runs_at_the_device_frequency() {
    let mut p = pair();
    let mut times = Vec::new();
    for _ in 0..2 {
        p.recv(64);
        p.send(8);
        times.push(get(&p.rdma.poll(&mut p.cq_a), 384, 64));
        p.rdma.raw.model.step(1_000_000);
    }
    assert_eq!(times[1] - times[0], 156_250, "one millisecond at 156.25 MHz");
}

#[test]
fn a_no_operation_completes_without_a_peer() {
    let mut p = pair();
    p.rdma.send(&mut p.a, Wqe { opcode: 0, ..signalled(&[]) });
    let cqe = p.rdma.poll(&mut p.cq_a);
    assert_eq!((cqe[63] >> 4, cqe[56]), (0, 0));
    p.rdma.assert_clean();
}

#[test]
fn a_queue_pair_can_talk_to_itself() {
    let rdma = Rdma::up();
    let mut cq = rdma.cq(CQ);
    let mut qp = rdma.qp(QpWish::default(), &cq, &cq);
    rdma.init(&qp);
    rdma.ready_to_receive(&qp, qp.qpn);
    rdma.ready_to_send(&qp);
    let to = rdma.register(64, 0, LW);
    rdma.recv(&mut qp, &[to.seg(0, 64)]);
    rdma.send(&mut qp, signalled(&inline(b"self")));
    assert_eq!([rdma.poll(&mut cq)[63] >> 4, rdma.poll(&mut cq)[63] >> 4], [2, 0]);
    rdma.recv(&mut qp, &[to.seg(0, 1)]);
    rdma.send(&mut qp, signalled(&inline(b"self")));
    assert_eq!([rdma.poll(&mut cq)[63] >> 4, rdma.poll(&mut cq)[63] >> 4], [14, 13]);
    assert!(rdma.take(&mut cq).is_none());
    rdma.assert_clean();
}

#[test]
fn a_queue_pair_that_talks_to_itself_completes_a_request_once_when_its_receiver_breaks() {
    let rdma = Rdma::up();
    let (mut send, recv) = (rdma.cq(CQ), rdma.cq(CqWish { log_size: 0, ..CQ }));
    let mut qp = rdma.qp(QpWish::default(), &send, &recv);
    rdma.init(&qp);
    rdma.ready_to_receive(&qp, qp.qpn);
    rdma.ready_to_send(&qp);
    let to = rdma.register(64, 0, LW);
    for _ in 0..2 {
        rdma.recv(&mut qp, &[to.seg(0, 64)]);
        rdma.send(&mut qp, signalled(&inline(b"self")));
    }
    assert_eq!(rdma.poll(&mut send)[63] >> 4, 0);
    let flushed = rdma.poll(&mut send);
    assert_eq!((flushed[63] >> 4, flushed[55], get(&flushed, 480, 16)), (13, 5, 1), "its receive ring has overflowed");
    assert!(rdma.take(&mut send).is_none());
    rdma.assert_clean();
}
