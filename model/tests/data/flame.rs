//! BlueFlame by raw bytes: work requests stored to a UAR page by a processor that combines stores.

use mlx5_hw::platform::Bar;
use mlx5_model::ViolationKind::{BlueFlameBuffer, BlueFlameDiffers, BlueFlameIncomplete, BlueFlameLength};
use mlx5_model::{ModelConfig, StorePace};

use crate::qp::{Qp, QpWish};
use crate::raw::{Raw, get, load, put, store, store32};
use crate::rdma::{Cq, CqWish, LR, LW, Mr, Rdma};
use crate::wqe::{Wqe, inline, signalled};

/// Blocks of a work request as they are stored.
pub type Blocks = Vec<[u8; 64]>;

/// A connected pair whose sender stores its requests to buffers.
pub struct Bench {
    pub rdma: Rdma,
    pub send: Cq,
    pub recv: Cq,
    pub a: Qp,
    pub b: Qp,
    pub mr: Mr,
    /// Which buffer of the register is next.
    odd: bool,
}

/// NOP, with or without a completion.
fn nop(flags: u8) -> Wqe<'static> {
    Wqe { opcode: 0, flags, imm: 0, segments: &[] }
}

impl Bench {
    pub fn new() -> Self {
        Self::with(ModelConfig::default())
    }

    pub fn with(config: ModelConfig) -> Self {
        Self::on(Rdma::on(Raw::made(ModelConfig { write_combining: true, ..config }, true)))
    }

    fn on(rdma: Rdma) -> Self {
        let wish = CqWish { log_size: 3, entry: 64, ignore_overrun: false };
        let (send, recv) = (rdma.cq(wish), rdma.cq(wish));
        // A receiver that is not ready is tried again for ever.
        let (a, b) = rdma.pair(QpWish { rnr_retry: 7, ..QpWish::default() }, &send, &recv);
        let mr = rdma.register(4096, 0, LR | LW);
        Self { rdma, send, recv, a, b, mr, odd: false }
    }

    /// Another pair on the same function, whose next buffer may be the one that was used last.
    pub fn anew(self) -> Self {
        let mut fresh = Self::on(self.rdma);
        let value = fresh.rdma.write_send(&mut fresh.a, nop(0));
        fresh.rdma.ring(&fresh.a, value);
        fresh
    }

    pub fn page(&self) -> usize {
        self.rdma.uar as usize * 4096
    }

    /// Writes a request to the queue's memory; what is to be stored of it, whole blocks.
    pub fn write(&mut self, wqe: Wqe<'_>) -> Blocks {
        let first = self.a.sq;
        self.rdma.write_send(&mut self.a, wqe);
        let block = |n: u16| {
            let at = usize::from(first.wrapping_add(n)) % (1 << self.a.wish.log_sq) * 64;
            load(&self.a.mem, self.a.wish.stride * (1 << self.a.wish.log_rq) + at, 64).try_into().unwrap()
        };
        (0..self.a.sq.wrapping_sub(first)).map(block).collect()
    }

    pub fn tell(&self) {
        store32(&self.a.record, 4, self.a.sq.into());
    }

    /// Stores a block at `at` of the UAR page.
    pub fn store(&self, at: usize, block: &[u8; 64]) {
        self.store_at(self.page() + at, block);
    }

    pub fn store_at(&self, at: usize, block: &[u8; 64]) {
        let words = core::array::from_fn(|i| u64::from_le_bytes(block[8 * i..8 * i + 8].try_into().unwrap()));
        self.rdma.raw.model.write_combined(at, &words);
    }

    /// The buffer that is next, of the register at 0x800.
    fn next(&mut self) -> usize {
        self.odd = !self.odd;
        if self.odd { 0x800 } else { 0x900 }
    }

    /// Posts a request: memory, record, then the next buffer.
    pub fn flame(&mut self, wqe: Wqe<'_>) {
        let blocks = self.write(wqe);
        self.tell();
        let at = self.next();
        for (n, block) in blocks.iter().enumerate() {
            self.store(at + 64 * n, block);
        }
    }

    /// Sends `len` bytes, all different from those before, and looks for them at the other end.
    fn message(&mut self, len: usize) {
        let text: Vec<u8> = (0..len).map(|i| (i + 7 * len + usize::from(self.a.sq)) as u8).collect();
        self.rdma.recv(&mut self.b, &[self.mr.seg(0, 1024)]);
        self.flame(signalled(&inline(&text)));
        self.arrived(&text);
    }

    fn arrived(&mut self, text: &[u8]) {
        let (sent, got) = (self.rdma.poll(&mut self.send), self.rdma.poll(&mut self.recv));
        assert_eq!((sent[63] >> 4, got[63] >> 4), (0, 2));
        assert_eq!(self.mr.bytes(0, text.len()), text);
    }
}

#[test]
fn a_request_of_one_to_four_blocks_is_carried_out_from_the_buffer() {
    let mut b = Bench::new();
    let before = b.rdma.raw.model.calls();
    // 236 bytes fill 256 with the control segment and the length before them.
    for len in [1, 12, 28, 44, 45, 108, 109, 172, 173, 236] {
        b.message(len);
    }
    let calls = b.rdma.raw.model.calls().since(&before);
    assert_eq!((calls.flames, calls.sends), (10, 0));
    b.rdma.assert_clean();
}

/// Linux's test of write combining: a NOP whose copy in the buffer asks for a completion, and the one in memory does not.
#[test]
fn a_store_that_is_whole_is_what_the_device_takes_and_pieces_are_a_doorbell() {
    for (tear_one_in, taken) in [(0, true), (1, false)] {
        let mut b = Bench::new();
        b.rdma.raw.model.set_store_pace(StorePace { tear_one_in, swap_one_in: 0 });
        let mut block = b.write(nop(0))[0];
        block[11] = 8;
        b.tell();
        let at = b.next();
        b.store(at, &block);
        assert_eq!(b.rdma.take(&mut b.send).is_some(), taken);
        b.flame(nop(8));
        b.rdma.poll(&mut b.send);
        let found: Vec<_> = b.rdma.raw.model.violations().iter().map(|violation| violation.kind).collect();
        assert_eq!(found, vec![BlueFlameDiffers; usize::from(taken)]);
    }
}

#[test]
fn a_request_runs_over_the_end_of_the_queue() {
    let mut b = Bench::new();
    // Sixteen blocks, three at a time.
    for _ in 0..32 {
        b.message(150);
    }
    b.rdma.assert_clean();
}

#[test]
fn the_counter_wraps_at_sixteen_bits() {
    let mut b = Bench::new();
    for n in 0..0x1_0008_u32 {
        b.flame(nop(if n % 8 == 7 { 8 } else { 0 }));
        if n % 8 == 7 {
            let cqe = b.rdma.poll(&mut b.send);
            assert_eq!((cqe[63] >> 4, get(&cqe, 480, 16)), (0, u64::from(n & 0xffff)));
        }
    }
    b.rdma.assert_clean();
}

#[test]
fn blocks_come_in_any_order_and_pieces_at_any_time() {
    for pace in [(0, 1), (0, 2), (1, 0), (2, 0), (2, 2), (3, 1), (1, 1)] {
        for seed in 0..20 {
            let mut b = Bench::with(ModelConfig { seed, ..ModelConfig::default() });
            let (tear_one_in, swap_one_in) = pace;
            b.rdma.raw.model.set_store_pace(StorePace { tear_one_in, swap_one_in });
            let before = b.rdma.raw.model.calls();
            for len in (1..236).step_by(13) {
                b.message(len);
            }
            let calls = b.rdma.raw.model.calls().since(&before);
            assert!(calls.flames + calls.sends >= 19, "{pace:?}: {calls:?}");
            assert_eq!(calls.sends == 0, tear_one_in == 0, "{pace:?}: {calls:?}");
            b.rdma.assert_clean();
        }
    }
}

#[test]
fn a_first_block_can_come_second() {
    for (swap_one_in, expected) in [(0, vec![BlueFlameBuffer]), (1, vec![BlueFlameLength, BlueFlameBuffer])] {
        let mut b = Bench::new();
        b.rdma.raw.model.set_store_pace(StorePace { tear_one_in: 0, swap_one_in });
        for _ in 0..2 {
            b.flame(signalled(&inline(&[1; 60])));
            b.odd = false;
        }
        // A second block behind a request that was taken belongs to nothing.
        let found: Vec<_> = b.rdma.raw.model.violations().iter().map(|violation| violation.kind).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_store_that_was_to_come_after_the_next_comes_before_a_doorbell() {
    let mut b = Bench::new();
    b.rdma.raw.model.set_store_pace(StorePace { tear_one_in: 0, swap_one_in: 1 });
    let blocks = b.write(signalled(&inline(&[1; 60])));
    b.tell();
    b.store(0x800, &blocks[0]);
    assert_eq!(b.rdma.raw.model.violations(), []);
    b.rdma.raw.write64(b.page() + 0x900, get(&blocks[0], 0, 64));
    let found: Vec<_> = b.rdma.raw.model.violations().iter().map(|violation| violation.kind).collect();
    assert_eq!(found[0], BlueFlameIncomplete);
}

#[test]
fn nothing_in_a_buffer_outlives_a_reset() {
    let mut b = Bench::new();
    b.flame(nop(8));
    let blocks = b.write(signalled(&inline(&[1; 60])));
    b.rdma.raw.model.set_store_pace(StorePace { tear_one_in: 0, swap_one_in: 1 });
    b.store(0xa00, &blocks[0]);
    b.rdma.raw.model.config_write(0x68, 2, 1 << 15);
    // As a port does it: memory space, bus master.
    b.rdma.raw.model.config_write(0x4, 2, 6);
    let mut b = Bench::on(Rdma::on(Raw::start(b.rdma.raw.model, true)));
    b.rdma.raw.model.set_store_pace(StorePace::default());
    // The buffer that the first request was stored to.
    b.flame(nop(8));
    b.rdma.poll(&mut b.send);
    b.rdma.assert_clean();
}

#[test]
fn nothing_in_a_buffer_outlives_its_page() {
    let mut b = Bench::new();
    let alloc = |b: &Bench| get(&b.rdma.raw.command(0x802, 0, &[0; 8], 16), 72, 24) as u32;
    let uar = alloc(&b);
    for _ in 0..2 {
        b.rdma.uar = uar;
        (b.a, b.b) = b.rdma.pair(b.a.wish, &b.send, &b.recv);
        let block = b.write(nop(8))[0];
        b.tell();
        b.store(0x800, &block);
        b.rdma.poll(&mut b.send);
        let free = |opcode, number: u32| {
            let mut body = [0; 8];
            put(&mut body, 8, 24, number.into());
            b.rdma.raw.command(opcode, 0, &body, 16)
        };
        free(0x501, b.a.qpn);
        free(0x501, b.b.qpn);
        free(0x803, uar);
        assert_eq!(alloc(&b), uar);
    }
    b.rdma.assert_clean();
}

#[test]
fn a_store_that_comes_when_its_request_is_done_is_not_held_against_memory() {
    let mut b = Bench::new();
    let late = b.write(nop(8))[0];
    let value = b.rdma.write_send(&mut b.a, nop(8));
    b.rdma.ring(&b.a, value);
    b.rdma.poll(&mut b.send);
    b.rdma.poll(&mut b.send);
    store(&b.a.mem, b.a.wish.stride << b.a.wish.log_rq, &[0x5a; 64]);
    b.store(0x900, &late);
    b.rdma.assert_clean();
}

#[test]
fn a_request_that_is_not_next_is_taken_from_memory() {
    let mut b = Bench::new();
    b.flame(signalled(&inline(b"first")));
    let mut block = b.write(nop(0))[0];
    block[11] = 8;
    b.tell();
    let at = b.next();
    b.store(at, &block);
    b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
    b.arrived(b"first");
    assert!(b.rdma.take(&mut b.send).is_none(), "the one in memory asks for no completion");
}

#[test]
fn what_spoils_a_request_of_another_queue_pair_leaves_its_doorbell() {
    let mut b = Bench::new();
    let blocks = b.write(signalled(&inline(&[7; 60])));
    b.tell();
    b.store(0x800, &blocks[0]);
    let value = b.rdma.write_send(&mut b.b, nop(0));
    b.rdma.recv(&mut b.b, &[b.mr.seg(0, 64)]);
    b.rdma.ring(&b.b, value);
    b.arrived(&[7; 60]);
}

#[test]
fn a_request_behind_others_waits_for_its_turn() {
    let mut b = Bench::new();
    b.flame(signalled(&inline(b"first")));
    b.flame(signalled(&inline(b"second")));
    assert!(b.rdma.take(&mut b.send).is_none(), "nobody receives");
    b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
    b.arrived(b"first");
    b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
    b.arrived(b"second");
    b.rdma.assert_clean();
}

#[test]
fn the_last_of_several_requests_may_be_stored() {
    let mut b = Bench::new();
    for _ in 0..2 {
        b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
        b.write(signalled(&inline(b"one")));
        b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
        b.flame(signalled(&inline(b"two")));
        for _ in 0..2 {
            assert_eq!((b.rdma.poll(&mut b.send)[63] >> 4, b.rdma.poll(&mut b.recv)[63] >> 4), (0, 2));
        }
        assert_eq!(b.mr.bytes(0, 3), b"two");
    }
    b.rdma.assert_clean();
}

#[test]
fn doorbells_and_stores_take_turns_and_so_do_registers() {
    let mut b = Bench::new();
    for round in 0..8_u8 {
        for register in [0x800, 0xa00, 0xc00, 0xe00] {
            let buffer = register + 0x100 * usize::from(round % 2);
            b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
            let blocks = b.write(signalled(&inline(&[round; 3])));
            b.tell();
            b.store(buffer, &blocks[0]);
            b.arrived(&[round; 3]);
            // rdma-core turns to the other buffer for each, drivers of packets use the first for all doorbells.
            b.rdma.recv(&mut b.b, &[b.mr.seg(0, 16)]);
            let value = b.rdma.write_send(&mut b.a, signalled(&inline(b"bell")));
            b.tell();
            b.rdma.raw.write64(b.page() + [register, buffer ^ 0x100][usize::from(round / 2 % 2)], value);
            b.arrived(b"bell");
        }
    }
    b.rdma.assert_clean();
}

#[test]
fn a_request_that_is_copied_in_words_is_read_from_memory() {
    for write_combining in [false, true] {
        let mut b = if write_combining { Bench::new() } else { Bench::on(Rdma::up()) };
        assert_eq!(b.rdma.raw.model.has_wc(), write_combining);
        for len in [10, 200] {
            b.rdma.recv(&mut b.b, &[b.mr.seg(0, 1024)]);
            let text = vec![len as u8; len];
            let blocks = b.write(signalled(&inline(&text)));
            b.tell();
            let (calls, at) = (b.rdma.raw.model.calls(), b.page() + b.next());
            for (n, block) in blocks.iter().enumerate() {
                if write_combining {
                    let word = |i: usize| u64::from_le_bytes(block[8 * i..8 * i + 8].try_into().unwrap());
                    (0..8).for_each(|i| b.rdma.raw.model.write64(at + 64 * n + 8 * i, word(i)));
                } else {
                    b.store_at(at + 64 * n, block);
                }
            }
            b.arrived(&text);
            let calls = b.rdma.raw.model.calls().since(&calls);
            assert_eq!((calls.sends, calls.flames), (1, 0));
        }
        b.rdma.assert_clean();
    }
}

#[test]
fn small_buffers_lie_close_together() {
    let mut config = ModelConfig::default();
    config.caps.log_bf_reg_size = 7;
    let mut b = Bench::with(config);
    for n in 0..8_usize {
        b.rdma.recv(&mut b.b, &[b.mr.seg(0, 64)]);
        let blocks = b.write(signalled(&inline(&[n as u8; 44])));
        b.tell();
        b.store([0x800, 0x840, 0x900, 0x940][n % 4], &blocks[0]);
        b.rdma.poll(&mut b.send);
        b.rdma.poll(&mut b.recv);
    }
    b.rdma.assert_clean();
}

#[test]
fn stores_that_arrive_late_break_no_rule() {
    for tear_one_in in [0, 2] {
        let mut b = Bench::new();
        b.rdma.raw.model.set_store_pace(StorePace { tear_one_in, swap_one_in: 2 });
        let thread = b.rdma.raw.model.spawn().unwrap();
        for round in 0..300_usize {
            let texts: Vec<Vec<u8>> = (0..4).map(|n| vec![(round + n) as u8; 1 + (round * 7 + n * 40) % 236]).collect();
            for text in &texts {
                b.rdma.recv(&mut b.b, &[b.mr.seg(0, 256)]);
                b.flame(signalled(&inline(text)));
            }
            for _ in &texts {
                let (sent, got) = (b.rdma.poll(&mut b.send), b.rdma.poll(&mut b.recv));
                assert_eq!((sent[63] >> 4, got[63] >> 4), (0, 2));
            }
            assert_eq!(b.mr.bytes(0, texts[3].len()), texts[3]);
        }
        drop(thread);
        b.rdma.assert_clean();
    }
}

#[test]
fn no_stores_make_the_device_panic() {
    let mut random = crate::mix::Random(5);
    for _ in 0..30 {
        let mut b = Bench::new();
        let pace = StorePace { tear_one_in: u32::from(random.byte() % 3), swap_one_in: u32::from(random.byte() % 3) };
        b.rdma.raw.model.set_store_pace(pace);
        for _ in 0..100 {
            let mut block: [u8; 64] = core::array::from_fn(|_| random.byte());
            if random.byte() > 60 {
                block[4..7].copy_from_slice(&b.a.qpn.to_be_bytes()[1..]);
                block[7] = random.byte() % 20;
            }
            b.a.sq = b.a.sq.wrapping_add(u16::from(random.byte() % 3));
            b.tell();
            match random.byte() % 8 {
                0 => b.store_at(usize::from(random.byte()) << 18 | usize::from(random.byte()), &block),
                1 => b.rdma.raw.write64(b.page() + 0x800 + 0x100 * usize::from(random.byte() % 8), 1 << 20),
                2 => b.rdma.leave(0x50a, &b.a),
                _ => b.store(0x800 + 64 * usize::from(random.byte() % 32), &block),
            }
        }
    }
}
