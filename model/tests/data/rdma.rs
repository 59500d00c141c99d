//! Completion queues, event queues and keys, by raw bytes.

use mlx5_hw::platform::{DmaMem, Platform};

use crate::raw::{Patience, Raw, get, load, put, store, store32};

/// Protection domain, UAR, event queues and a key for all registered memory: what every connection needs.
pub struct Rdma {
    pub raw: Raw,
    pub uar: u32,
    pub pd: u32,
    /// Reports everything but completions, commands and page requests.
    pub async_eq: EventQueue,
    pub comp_eq: EventQueue,
    pub gid: [u8; 16],
}

pub const MAC: [u8; 6] = [0x02, 0x15, 0xb3, 0x00, 0x00, 0x01];

pub struct EventQueue {
    pub eqn: u32,
    pub mem: DmaMem,
    pub ci: u32,
}

const EQ_LOG: u32 = 6;

/// What a test wants of a completion queue.
#[derive(Clone, Copy)]
pub struct CqWish {
    pub log_size: u32,
    pub entry: usize,
    pub ignore_overrun: bool,
}

/// Bytes of a completion ring before anything is written, but for the last two of each entry.
pub const OLD: u8 = 0xee;

pub struct Cq {
    pub cqn: u32,
    pub mem: DmaMem,
    pub record: DmaMem,
    pub wish: CqWish,
    pub ci: u32,
}

/// Memory with a key.
pub struct Mr {
    pub mem: DmaMem,
    pub key: u32,
    /// Virtual address of its first byte: nothing like the CPU's or the device's.
    pub va: u64,
}

/// Access rights of a key, as in its context from `lr` up: local read and write, remote read and write, atomics.
pub const LR: u64 = 1;
pub const LW: u64 = 2;
pub const RR: u64 = 4;
pub const RW: u64 = 8;
pub const ATOMIC: u64 = 16;

impl Rdma {
    pub fn up() -> Self {
        Self::on(Raw::up())
    }

    /// What every connection needs, but for an address.
    pub fn without_address(raw: Raw) -> Self {
        let uar = get(&raw.command(0x802, 0, &[0; 8], 16), 72, 24) as u32;
        let pd = get(&raw.command(0x800, 0, &[0; 8], 16), 72, 24) as u32;
        let async_eq = EventQueue::new(&raw, uar, 1, 0x1f_02be);
        let comp_eq = EventQueue::new(&raw, uar, 2, 0);
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[15] = 7;
        Self { raw, uar, pd, async_eq, comp_eq, gid }
    }

    /// What every connection needs, on a function with RoCE: its address.
    pub fn on(raw: Raw) -> Self {
        let rdma = Self::without_address(raw);
        let mut context = vec![0; 0x200 - 8];
        put(&mut context, 126 - 64, 1, 1);
        put(&mut context[0x100 - 8..], 31, 1, 1);
        rdma.raw.command(0x755, 0, &context, 16); // MODIFY_NIC_VPORT_CONTEXT: roce_en
        rdma.set_address(0, rdma.gid, 1);
        rdma
    }

    /// SET_ROCE_ADDRESS: `kind` is 0 for IPv4, 1 for IPv6.
    pub fn set_address(&self, index: u16, gid: [u8; 16], kind: u8) {
        let mut roce = [0; 40];
        put(&mut roce, 0, 16, index.into());
        roce[8..24].copy_from_slice(&gid);
        roce[26..32].copy_from_slice(&MAC);
        roce[34] = kind;
        roce[35] = 2; // roce_version: v2
        self.raw.command(0x761, 0, &roce, 16);
    }

    pub fn alloc(&self, size: usize) -> DmaMem {
        self.raw.model.alloc(size, 4096).unwrap()
    }

    /// Registers `size` bytes, starting `offset` bytes into the first page.
    pub fn register(&self, size: usize, offset: usize, rights: u64) -> Mr {
        self.register_as(size, offset, rights, |_| ())
    }

    /// As [`register`](Self::register); `change` has the last word on the key's context.
    pub fn register_as(&self, size: usize, offset: usize, rights: u64, change: impl Fn(&mut [u8])) -> Mr {
        let mem = self.alloc(size + offset);
        let va = 0x7e57_0000_0000 + offset as u64;
        let pages = (size + offset).div_ceil(4096);
        let mut body = vec![0; 264 + 8 * pages.next_multiple_of(2)];
        let mkc = &mut body[8..72];
        put(mkc, 17, 5, rights);
        put(mkc, 22, 2, 1); // MTT
        put(mkc, 32, 24, 0xff_ffff);
        put(mkc, 56, 8, 0x42);
        put(mkc, 104, 24, self.pd.into());
        put(mkc, 128, 64, va);
        put(mkc, 192, 64, size as u64);
        put(mkc, 416, 32, pages.div_ceil(2) as u64);
        put(mkc, 474, 6, 12);
        change(mkc);
        put(&mut body, 768 - 64, 32, pages.div_ceil(2) as u64);
        for i in 0..pages {
            put(&mut body, 2176 - 64 + 64 * i, 64, mem.iova() + 4096 * i as u64);
        }
        let out = self.raw.command(0x200, 0, &body, 16);
        Mr { mem, key: (get(&out, 72, 24) as u32) << 8 | 0x42, va }
    }

    pub fn cq(&self, wish: CqWish) -> Cq {
        self.cq_as(wish, |_| ())
    }

    /// As [`cq`](Self::cq); `change` has the last word on the context.
    pub fn cq_as(&self, wish: CqWish, change: impl Fn(&mut [u8])) -> Cq {
        self.cq_in(wish, change, |_| ())
    }

    /// As [`cq_as`](Self::cq_as); `move_pages` has the last word on the list of the ring's pages.
    pub fn cq_in(&self, wish: CqWish, change: impl Fn(&mut [u8]), move_pages: impl Fn(&mut [u8])) -> Cq {
        let bytes = wish.entry << wish.log_size;
        let (mem, record) = (self.alloc(bytes), self.alloc(64));
        for i in 0..1 << wish.log_size {
            store(&mem, i * wish.entry, &vec![OLD; wish.entry - 2]);
            store(&mem, (i + 1) * wish.entry - 2, &[0xff, 0xf0]);
        }
        let mut body = pages_body(264, &mem);
        let cqc = &mut body[8..72];
        put(cqc, 8, 3, u64::from(wish.entry == 128));
        put(cqc, 14, 1, wish.ignore_overrun.into());
        put(cqc, 99, 5, wish.log_size.into());
        put(cqc, 104, 24, self.uar.into());
        put(cqc, 184, 8, self.comp_eq.eqn.into());
        put(cqc, 448, 64, record.iova());
        change(cqc);
        move_pages(&mut body[264..]);
        let out = self.raw.command(0x400, 0, &body, 16);
        Cq { cqn: get(&out, 72, 24) as u32, mem, record, wish, ci: 0 }
    }

    /// Arms a completion queue: record, then doorbell.
    pub fn arm(&self, cq: &Cq, sn: u32, solicited: bool) {
        let word = sn << 28 | u32::from(solicited) << 24 | cq.ci & 0xff_ffff;
        store32(&cq.record, 4, word);
        self.raw.write64(self.uar as usize * 4096 + 0x20, u64::from(word) << 32 | u64::from(cq.cqn));
    }

    /// Takes the next completion, if it is there, without publishing the consumer index.
    pub fn take(&self, cq: &mut Cq) -> Option<Vec<u8>> {
        let slot = cq.ci as usize & ((1 << cq.wish.log_size) - 1);
        let end = (slot + 1) * cq.wish.entry;
        let op_own = load(&cq.mem, end - 1, 1)[0];
        let owner = cq.ci >> cq.wish.log_size & 1;
        if op_own >> 4 == 15 || u32::from(op_own & 1) != owner {
            return None;
        }
        // The body only now: before, it may be that of the lap before.
        let cqe = load(&cq.mem, end - 64, 64);
        cq.ci = cq.ci.wrapping_add(1);
        Some(cqe)
    }

    /// The 64 bytes before the descriptor of the last completion that was taken from a queue of 128-byte entries.
    pub fn before(&self, cq: &Cq) -> Vec<u8> {
        assert_eq!(cq.wish.entry, 128);
        let slot = cq.ci.wrapping_sub(1) as usize & ((1 << cq.wish.log_size) - 1);
        load(&cq.mem, slot * 128, 64)
    }

    /// Takes the next completion, which must come, and publishes the consumer index.
    pub fn poll(&self, cq: &mut Cq) -> Vec<u8> {
        let mut patience = Patience::new();
        while patience.left() {
            if let Some(cqe) = self.take(cq) {
                store32(&cq.record, 0, cq.ci & 0xff_ffff);
                return cqe;
            }
            self.raw.model.relax();
        }
        let mut body = [0; 8];
        put(&mut body, 8, 24, cq.cqn.into());
        let context = &self.raw.command(0x402, 0, &body, 272)[16..80]; // QUERY_CQ
        let (status, producer) = (get(context, 0, 4), get(context, 360, 24));
        let broken = self.raw.model.violations();
        panic!("no completion {:#x}: status {status:#x}, producer {producer:#x}, {broken:?}", cq.ci);
    }

    /// Consumes all completion events and tells the device; returns how many there were.
    pub fn drain_events(&mut self) -> usize {
        let count = std::iter::from_fn(|| self.comp_eq.take()).count();
        self.publish(&self.comp_eq);
        count
    }

    /// The same for asynchronous events.
    pub fn drain_async_events(&mut self) -> usize {
        let count = std::iter::from_fn(|| self.async_eq.take()).count();
        self.publish(&self.async_eq);
        count
    }

    fn publish(&self, eq: &EventQueue) {
        self.raw.write32(self.uar as usize * 4096 + 0x48, eq.eqn << 24 | eq.ci & 0xff_ffff);
    }

    /// Fails if the driver has broken a rule.
    pub fn assert_clean(&self) {
        let found: Vec<String> = self.raw.model.violations().iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

impl EventQueue {
    fn new(raw: &Raw, uar: u32, vector: u64, mask: u64) -> Self {
        let mem = raw.model.alloc(64 << EQ_LOG, 4096).unwrap();
        for i in 0..1 << EQ_LOG {
            store(&mem, 64 * i + 63, &[1]);
        }
        let mut body = pages_body(264, &mem);
        let eqc = &mut body[8..72];
        put(eqc, 99, 5, EQ_LOG.into());
        put(eqc, 104, 24, uar.into());
        put(eqc, 180, 12, vector);
        put(&mut body, 704 - 64, 64, mask);
        let out = raw.command(0x301, 0, &body, 16);
        Self { eqn: get(&out, 88, 8) as u32, mem, ci: 0 }
    }

    /// Takes the next event, if it is there.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let slot = self.ci as usize & ((1 << EQ_LOG) - 1);
        let owner = load(&self.mem, slot * 64 + 63, 1)[0];
        if u32::from(owner & 1) != self.ci >> EQ_LOG & 1 {
            return None;
        }
        let eqe = load(&self.mem, slot * 64, 64);
        self.ci += 1;
        Some(eqe)
    }
}

/// A command body of `head` bytes with the list of a memory's pages behind it.
pub fn pages_body(head: usize, mem: &DmaMem) -> Vec<u8> {
    let mut body = vec![0; head];
    for i in 0..mem.size().div_ceil(4096) {
        body.extend_from_slice(&(mem.iova() + 4096 * i as u64).to_be_bytes());
    }
    body
}

impl Mr {
    /// The whole memory from `at` on as a segment.
    pub fn seg(&self, at: u64, len: u32) -> (u32, u64, u32) {
        (self.key, self.va + at, len)
    }

    /// Byte `at` of the region lies here in `mem`.
    fn offset(&self, at: usize) -> usize {
        (self.va & 0xfff) as usize + at
    }

    pub fn fill(&self, at: usize, bytes: &[u8]) {
        store(&self.mem, self.offset(at), bytes);
    }

    /// Byte `at` as an RDMA operation names it: (rkey, address).
    pub fn there(&self, at: u64) -> (u32, u64) {
        (self.key, self.va + at)
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        load(&self.mem, self.offset(at), len)
    }
}
