//! Queues, keys and connections, by raw bytes.

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
    mem: DmaMem,
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

pub struct Cq {
    pub cqn: u32,
    pub mem: DmaMem,
    pub record: DmaMem,
    pub wish: CqWish,
    pub ci: u32,
}

/// What a test wants of a queue pair.
#[derive(Clone, Copy)]
pub struct QpWish {
    pub log_rq: u32,
    /// Bytes of a receive work request.
    pub stride: usize,
    /// Log2 of 64-byte blocks.
    pub log_sq: u32,
    pub user_index: u32,
    pub rnr_retry: u8,
    pub retry_count: u8,
    /// 0: 655 ms, 1: 10 us.
    pub min_rnr_nak: u8,
    pub ack_timeout: u8,
    pub psn: u32,
    pub mtu: u8,
    pub log_msg_max: u8,
    /// `page_offset`: the queue starts at this 64th of its first page.
    pub page_offset: u64,
    /// `rlky`.
    pub reserved_lkey: bool,
}

impl Default for QpWish {
    fn default() -> Self {
        Self {
            log_rq: 4,
            stride: 32,
            log_sq: 4,
            user_index: 0x1234,
            rnr_retry: 0,
            retry_count: 1,
            min_rnr_nak: 1,
            ack_timeout: 1,
            psn: 0xff_fffe,
            mtu: 3,
            log_msg_max: 30,
            page_offset: 0,
            reserved_lkey: false,
        }
    }
}

pub struct Qp {
    pub qpn: u32,
    pub mem: DmaMem,
    pub record: DmaMem,
    pub wish: QpWish,
    pub sq: u16,
    pub rq: u16,
}

/// Memory with a key.
pub struct Mr {
    pub mem: DmaMem,
    pub key: u32,
    /// Virtual address of its first byte: nothing like the CPU's or the device's.
    pub va: u64,
}

/// Access rights of a key: local read, local write.
pub const LR: u64 = 1;
pub const LW: u64 = 2;

impl Rdma {
    pub fn up() -> Self {
        let raw = Raw::up();
        let uar = get(&raw.command(0x802, 0, &[0; 8], 16), 72, 24) as u32;
        let pd = get(&raw.command(0x800, 0, &[0; 8], 16), 72, 24) as u32;
        let async_eq = EventQueue::new(&raw, uar, 1, 0x1f_02be);
        let comp_eq = EventQueue::new(&raw, uar, 2, 0);
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[15] = 7;
        let mut roce = [0; 40];
        roce[8..24].copy_from_slice(&gid);
        roce[26..32].copy_from_slice(&MAC);
        roce[34] = 1; // roce_l3_type: IPv6
        roce[35] = 2; // roce_version: v2
        let mut context = vec![0; 0x200 - 8];
        put(&mut context, 126 - 64, 1, 1);
        put(&mut context[0x100 - 8..], 31, 1, 1);
        raw.command(0x755, 0, &context, 16); // MODIFY_NIC_VPORT_CONTEXT: roce_en
        raw.command(0x761, 0, &roce, 16); // SET_ROCE_ADDRESS
        Self { raw, uar, pd, async_eq, comp_eq, gid }
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
        put(mkc, 20, 1, rights >> 1 & 1);
        put(mkc, 21, 1, rights & 1);
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
        let bytes = wish.entry << wish.log_size;
        let (mem, record) = (self.alloc(bytes), self.alloc(64));
        for i in 0..1 << wish.log_size {
            store(&mem, (i + 1) * wish.entry - 1, &[0xf0]);
        }
        let mut body = pages_body(264, &mem);
        let cqc = &mut body[8..72];
        put(cqc, 8, 3, u64::from(wish.entry == 128));
        put(cqc, 14, 1, wish.ignore_overrun.into());
        put(cqc, 99, 5, wish.log_size.into());
        put(cqc, 104, 24, self.uar.into());
        put(cqc, 184, 8, self.comp_eq.eqn.into());
        put(cqc, 448, 64, record.iova());
        let out = self.raw.command(0x400, 0, &body, 16);
        Cq { cqn: get(&out, 72, 24) as u32, mem, record, wish, ci: 0 }
    }

    /// A queue pair in the reset state.
    pub fn qp(&self, wish: QpWish, send: &Cq, recv: &Cq) -> Qp {
        let bytes = (wish.stride << wish.log_rq) + (64 << wish.log_sq) + 64 * wish.page_offset as usize;
        let (mem, record) = (self.alloc(bytes), self.alloc(64));
        let mut body = pages_body(264, &mem);
        let qpc = &mut body[16..248];
        self.fill(qpc, &wish);
        put(qpc, 73, 4, wish.log_rq.into());
        put(qpc, 77, 3, u64::from(wish.stride.ilog2()) - 4);
        put(qpc, 81, 4, wish.log_sq.into());
        put(qpc, 91, 1, wish.reserved_lkey.into());
        put(qpc, 104, 24, self.uar.into());
        put(qpc, 1000, 24, send.cqn.into());
        put(qpc, 1256, 24, recv.cqn.into());
        put(qpc, 1172, 6, wish.page_offset);
        put(qpc, 1280, 64, record.iova());
        put(qpc, 1381, 3, 0);
        let out = self.raw.command(0x500, 0, &body, 16);
        Qp { qpn: get(&out, 72, 24) as u32, mem, record, wish, sq: 0, rq: 0 }
    }

    fn fill(&self, qpc: &mut [u8], wish: &QpWish) {
        put(qpc, 19, 2, 3); // pm_state: migrated
        put(qpc, 40, 24, self.pd.into());
        put(qpc, 136, 24, wish.user_index.into());
    }

    /// RST2INIT.
    pub fn init(&self, qp: &Qp) {
        self.modify(0x502, qp, |_| ());
    }

    /// INIT2RTR towards `peer`.
    pub fn ready_to_receive(&self, qp: &Qp, peer: u32) {
        self.ready_to_receive_from(qp, peer, self.gid, MAC);
    }

    /// INIT2RTR towards a queue pair at an address.
    pub fn ready_to_receive_from(&self, qp: &Qp, peer: u32, gid: [u8; 16], mac: [u8; 6]) {
        self.modify(0x503, qp, |qpc| {
            put(qpc, 168, 24, peer.into());
            put(qpc, 64, 3, qp.wish.mtu.into());
            put(qpc, 67, 5, qp.wish.log_msg_max.into());
            put(qpc, 1187, 5, qp.wish.min_rnr_nak.into());
            put(qpc, 1192, 24, qp.wish.psn.into());
            let ads = &mut qpc[24..68];
            put(ads, 264 - 192, 8, 0);
            put(ads, 88, 8, 64); // hop_limit
            ads[16..32].copy_from_slice(&gid);
            put(ads, 272, 16, 0xc000); // udp_sport
            put(ads, 296, 8, 1); // vhca_port_num
            ads[38..44].copy_from_slice(&mac);
        });
    }

    /// RTR2RTS.
    pub fn ready_to_send(&self, qp: &Qp) {
        self.modify(0x504, qp, |qpc| {
            put(qpc, 909, 3, qp.wish.retry_count.into());
            put(qpc, 912, 3, qp.wish.rnr_retry.into());
            put(qpc, 968, 24, qp.wish.psn.into());
            put(qpc, 192 + 64, 5, qp.wish.ack_timeout.into());
            put(qpc, 192 + 296, 8, 1);
        });
    }

    fn modify(&self, opcode: u16, qp: &Qp, fill: impl Fn(&mut [u8])) {
        let mut body = vec![0; 264];
        put(&mut body, 8, 24, qp.qpn.into());
        put(&mut body, 64, 32, 0);
        let qpc = &mut body[16..248];
        self.fill(qpc, &qp.wish);
        put(qpc, 192 + 296, 8, 1);
        fill(qpc);
        self.raw.command(opcode, 0, &body, 16);
    }

    /// Two queue pairs, connected, ready to send.
    pub fn pair(&self, wish: QpWish, a: &Cq, b: &Cq) -> (Qp, Qp) {
        let first = self.qp(wish, a, a);
        let second = self.qp(QpWish { user_index: wish.user_index + 1, ..wish }, b, b);
        for (qp, peer) in [(&first, &second), (&second, &first)] {
            self.init(qp);
            self.ready_to_receive(qp, peer.qpn);
            self.ready_to_send(qp);
        }
        (first, second)
    }

    /// QUERY_QP: the context.
    pub fn context(&self, qp: &Qp) -> Vec<u8> {
        let mut body = [0; 8];
        put(&mut body, 8, 24, qp.qpn.into());
        self.raw.command(0x50b, 0, &body, 464)[24..256].to_vec()
    }

    /// QUERY_QP: the state.
    pub fn state(&self, qp: &Qp) -> u64 {
        get(&self.context(qp), 0, 4)
    }

    /// 2ERR (0x507) or 2RST (0x50a).
    pub fn leave(&self, opcode: u16, qp: &Qp) {
        let mut body = [0; 8];
        put(&mut body, 8, 24, qp.qpn.into());
        self.raw.command(opcode, 0, &body, 16);
    }

    /// Writes a receive work request: data segments, and the terminating lkey where room is left. Does not tell.
    pub fn write_recv(&self, qp: &mut Qp, list: &[(u32, u64, u32)]) {
        let mut raw = vec![0; qp.wish.stride];
        for (i, seg) in list.iter().enumerate() {
            raw[16 * i..16 * i + 16].copy_from_slice(&data(*seg));
        }
        if list.len() * 16 < raw.len() {
            put(&mut raw[16 * list.len()..], 32, 32, 0x100);
        }
        let slot = usize::from(qp.rq) & ((1 << qp.wish.log_rq) - 1);
        store(&qp.mem, 64 * qp.wish.page_offset as usize + slot * qp.wish.stride, &raw);
        qp.rq = qp.rq.wrapping_add(1);
    }

    /// Posts a receive work request.
    pub fn recv(&self, qp: &mut Qp, list: &[(u32, u64, u32)]) {
        self.write_recv(qp, list);
        store32(&qp.record, 0, qp.rq.into());
    }

    /// Writes a send work request, wrapping at the end of the ring. Returns the doorbell's value.
    pub fn write_send(&self, qp: &mut Qp, wqe: Wqe<'_>) -> u64 {
        let mut raw = vec![0; 16];
        put(&mut raw, 8, 16, qp.sq.into());
        put(&mut raw, 24, 8, wqe.opcode.into());
        put(&mut raw, 32, 24, qp.qpn.into());
        raw[11] = wqe.flags;
        put(&mut raw, 96, 32, wqe.imm.into());
        raw.extend_from_slice(wqe.segments);
        raw.resize(raw.len().next_multiple_of(16), 0);
        let ds = raw.len() / 16;
        put(&mut raw, 58, 6, ds as u64);
        self.store_send(qp, &raw);
        qp.sq = qp.sq.wrapping_add(ds.div_ceil(4) as u16);
        get(&raw, 0, 64)
    }

    /// Stores bytes at the producer of a send queue.
    pub fn store_send(&self, qp: &Qp, raw: &[u8]) {
        let base = 64 * qp.wish.page_offset as usize + (qp.wish.stride << qp.wish.log_rq);
        for (i, unit) in raw.chunks(16).enumerate() {
            let at = (usize::from(qp.sq) * 64 + 16 * i) % (64 << qp.wish.log_sq);
            store(&qp.mem, base + at, unit);
        }
    }

    /// Tells the producer, then rings.
    pub fn ring(&self, qp: &Qp, value: u64) {
        store32(&qp.record, 4, qp.sq.into());
        self.raw.write64(self.uar as usize * 4096 + 0x800, value);
    }

    /// Posts a send work request.
    pub fn send(&self, qp: &mut Qp, wqe: Wqe<'_>) {
        let value = self.write_send(qp, wqe);
        self.ring(qp, value);
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
        let eq = &self.comp_eq;
        self.raw.write32(self.uar as usize * 4096 + 0x48, eq.eqn << 24 | eq.ci & 0xff_ffff);
        count
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
fn pages_body(head: usize, mem: &DmaMem) -> Vec<u8> {
    let mut body = vec![0; head];
    for i in 0..mem.size().div_ceil(4096) {
        body.extend_from_slice(&(mem.iova() + 4096 * i as u64).to_be_bytes());
    }
    body
}

/// A send work request: opcode, `fm_ce_se`, immediate data, and the bytes of its segments.
#[derive(Clone, Copy)]
pub struct Wqe<'a> {
    pub opcode: u8,
    pub flags: u8,
    pub imm: u32,
    pub segments: &'a [u8],
}

/// SEND with a completion.
pub fn signalled(segments: &[u8]) -> Wqe<'_> {
    Wqe { opcode: 0x0a, flags: 8, imm: 0, segments }
}

/// A data segment: (lkey, address, length).
pub fn data((lkey, addr, len): (u32, u64, u32)) -> [u8; 16] {
    let mut raw = [0; 16];
    put(&mut raw, 0, 32, len.into());
    put(&mut raw, 32, 32, lkey.into());
    put(&mut raw, 64, 64, addr);
    raw
}

/// An inline segment.
pub fn inline(bytes: &[u8]) -> Vec<u8> {
    let mut raw = (1 << 31 | bytes.len() as u32).to_be_bytes().to_vec();
    raw.extend_from_slice(bytes);
    raw.resize(raw.len().next_multiple_of(16), 0);
    raw
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

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        load(&self.mem, self.offset(at), len)
    }
}
