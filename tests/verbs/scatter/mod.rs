//! Data in completions: it gets to where the request wants it, and nowhere else.

mod create;
mod edges;
mod hostile;
mod keys;
mod life;

use std::sync::atomic::Ordering::Relaxed;

use mlx5::dv::{CqInitAttr, CqInitAttrMask, QpCreateFlags};
use mlx5::hw::be::Be32;
use mlx5::{Cq, Device, Qp, QpCap, QpInitAttr, RecvWr, SendFlags, SendWr, Sge, Wc, WcStatus};
use mlx5_model::ModelConfig;

use crate::support::{self, BUF, Pair, Port, REMOTE, connect, pattern, poll_n};

pub const ALLOW: QpCreateFlags = QpCreateFlags::ALLOW_SCATTER_TO_CQE;
/// What the buffers hold before anything arrives.
pub const FILL: u8 = 0xa5;

/// Two connected queue pairs that allow data in completions, of `size` bytes each, with buffers full of [`FILL`].
pub fn allowing(size: u16, cap: QpCap) -> Pair {
    allowing_on(|dev| cq_of(dev, 63, size), cap)
}

/// The same with CQs of any kind.
pub fn allowing_on(make: impl Fn(&Device) -> Cq, cap: QpCap) -> Pair {
    let p = connected(make, cap, ALLOW);
    fill(&p);
    p
}

/// The same with any flags; buffers are zero.
pub fn connected(make: impl Fn(&Device) -> Cq, cap: QpCap, create_flags: QpCreateFlags) -> Pair {
    let (port, dev) = support::open_with(ModelConfig::default());
    let pd = dev.alloc_pd().unwrap();
    let cq = [make(&dev), make(&dev)];
    let make = |cq: &Cq| pd.create_qp(&mut QpInitAttr { create_flags, ..QpInitAttr::new(cq, cq, cap) }).unwrap();
    let mut qp = [make(&cq[0]), make(&cq[1])];
    let numbers = [qp[0].qp_num(), qp[1].qp_num()];
    connect(&dev, &mut qp[0], numbers[1]);
    connect(&dev, &mut qp[1], numbers[0]);
    let buf = [(); 2].map(|()| pd.alloc_buf(BUF, REMOTE | mlx5::AccessFlags::LOCAL_WRITE).unwrap());
    Pair { port, dev, pd, cq, qp, buf }
}

pub fn cq_of(dev: &Device, cqe: u32, size: u16) -> Cq {
    let dv = CqInitAttr { comp_mask: CqInitAttrMask::CQE_SIZE, cqe_size: size, ..Default::default() };
    dev.dv_create_cq(&mlx5::CqInitAttrEx { cqe, ..Default::default() }, &dv).unwrap()
}

pub fn fill(p: &Pair) {
    p.buf.iter().for_each(|buf| buf.write(0, &[FILL; BUF]).unwrap());
}

/// Whether the bytes of side `side`'s buffer outside of `pieces` (offset, length) are as they were.
pub fn untouched(p: &Pair, side: usize, pieces: &[(usize, usize)]) -> bool {
    let written = |at| pieces.iter().any(|(from, len)| (*from..from + len).contains(&at));
    p.bytes(side, 0, BUF).iter().enumerate().all(|(at, byte)| *byte == FILL || written(at))
}

/// A CQ's entries as the device sees them.
pub struct Entries {
    port: Port,
    base: u64,
    size: u64,
    slots: u64,
}

impl Entries {
    pub fn of(port: &Port, cq: &Cq) -> Self {
        let base = port.model.cq_ring(cq.cqn()).unwrap();
        Self { port: port.clone(), base, size: cq.cqe_size().into(), slots: u64::from(cq.cqe()) + 1 }
    }

    fn word(&self, n: u64, descriptor: bool, word: u64) -> &std::sync::atomic::AtomicU32 {
        let half = if descriptor { self.size - 64 } else { 0 };
        &self.port.words(self.base + self.size * (n % self.slots) + half + 4 * word, 1)[0]
    }

    /// Changes bits of a dword of entry `n`'s descriptor.
    pub fn change(&self, n: u64, word: u64, mask: u32, value: u32) {
        let at = self.word(n, true, word);
        at.store(Be32::new(Be32::from_raw(at.load(Relaxed)).get() & !mask | value & mask).to_raw(), Relaxed);
    }

    /// Data format of entry `n`: 1 in the descriptor, 2 before it.
    pub fn format(&self, n: u64) -> u32 {
        Be32::from_raw(self.word(n, true, 15).load(Relaxed)).get() >> 2 & 3
    }

    /// Makes entry `n` one that holds `data`, and says `byte_cnt`.
    pub fn put(&self, n: u64, format: u32, data: &[u8], byte_cnt: u32) {
        for (word, bytes) in data.chunks(4).enumerate() {
            let mut whole = [0; 4];
            whole[..bytes.len()].copy_from_slice(bytes);
            self.word(n, format == 1, word as u64).store(u32::from_ne_bytes(whole), Relaxed);
        }
        self.change(n, 11, !0, byte_cnt);
        self.change(n, 15, 0xc, format << 2);
    }
}

pub const OPCODE: u64 = 14;
pub const COUNTER: (u64, u32) = (15, 0xffff << 16);

/// Runs the model until nothing is due.
pub fn settle(p: &Pair) {
    p.port.model.step(1_000_000);
}

pub fn post_recv(qp: &mut Qp, wr_id: u64, sg_list: &[Sge]) {
    qp.post_recv(&[RecvWr { wr_id, sg_list }]).unwrap();
}

/// Sends `data` from side 0; nothing is polled.
pub fn send_bytes(p: &mut Pair, wr_id: u64, data: &[u8]) {
    p.buf[0].write(BUF / 2, data).unwrap();
    let sg_list = &[p.sge(0, BUF / 2, data.len())];
    p.qp[0].post_send(&[SendWr { wr_id, sg_list, send_flags: SendFlags::SIGNALED, ..Default::default() }]).unwrap();
    settle(p);
}

/// The next completion of side `side`.
pub fn next(p: &mut Pair, side: usize) -> Wc {
    poll_n(&p.port, &mut p.cq[side], 1)[0]
}

pub fn assert_success(wc: &Wc, wr_id: u64) {
    assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::SUCCESS));
}

pub fn bytes(seed: usize, len: usize) -> Vec<u8> {
    pattern(seed as u64, len)
}
