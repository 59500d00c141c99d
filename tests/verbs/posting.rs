//! What the device sees of a post, at the moment when it is told: the queue's memory, the doorbell record, and what was written to its
//! registers, in this order. What should be there is built here, byte for byte, from the structures of the headers
//! (`mlx5_wqe_ctrl_seg`, `mlx5_wqe_raddr_seg`, `mlx5_wqe_data_seg`, `mlx5_wqe_inl_data_seg`).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use mlx5::hw::platform::Bar;
use mlx5::{Device, DeviceConfig, ExclusiveCqs, QpCap, RecvWr, Remote, SendFlags, SendWr, Sge, WrOpcode};
use mlx5_model::{CapConfig, ModelConfig, StorePace};

use crate::support::{Pair, Port, SIZES, connect, create_qp, pair_on};

/// The start of a UAR page's send doorbells.
const DOORBELLS: usize = 0x800;

/// A register write, and what lay in memory by then.
#[derive(Clone)]
struct Told {
    /// Where in its UAR page.
    offset: usize,
    /// 8, or 64 of a combined store.
    bytes: Vec<u8>,
    /// The send counter of the doorbell record.
    record: u32,
    queue: Vec<u8>,
}

/// What is watched, and what was seen.
#[derive(Default)]
struct Books {
    /// I/O address of the send queue, its length in bytes, and that of the record's send counter.
    watched: Option<(u64, usize, u64)>,
    told: Vec<Told>,
}

/// The registers, with an eye on the send doorbells.
#[derive(Clone)]
struct Watch {
    port: Port,
    books: Arc<Mutex<Books>>,
    wc: bool,
}

impl Watch {
    fn note(&self, offset: usize, bytes: &[u8]) {
        let mut books = self.books.lock().unwrap();
        let offset = offset % 4096;
        if let (Some((iova, length, record)), DOORBELLS..) = (books.watched, offset) {
            let queue = load(&self.port, iova, length);
            let record = u32::from_be_bytes(load(&self.port, record, 4).try_into().unwrap());
            books.told.push(Told { offset, bytes: bytes.to_vec(), record, queue });
        }
    }

    fn told(&self) -> Vec<Told> {
        std::mem::take(&mut self.books.lock().unwrap().told)
    }
}

/// DMA memory as it lies.
fn load(port: &Port, iova: u64, length: usize) -> Vec<u8> {
    port.words(iova, length / 4).iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

// SAFETY: all calls go to the model.
unsafe impl Bar for Watch {
    fn size(&self) -> usize {
        self.port.size()
    }

    fn read32(&self, offset: usize) -> u32 {
        self.port.read32(offset)
    }

    fn write32(&self, offset: usize, value: u32) {
        self.port.write32(offset, value);
    }

    fn write64(&self, offset: usize, value: u64) {
        self.note(offset, &value.to_le_bytes());
        self.port.write64(offset, value);
    }

    fn has_wc(&self) -> bool {
        self.wc
    }

    fn write_combined(&self, offset: usize, block: &[u64; 8]) {
        self.note(offset, block.map(u64::to_le_bytes).as_flattened());
        self.port.model.write_combined(offset, block);
    }
}

/// Two connected queue pairs, the first one's send queue watched.
struct Rig {
    p: Pair,
    watch: Watch,
    /// Bytes of the send queue, and I/O address of the record.
    queue: usize,
    record: u64,
    /// Basic blocks and receives posted so far.
    sent: usize,
    received: usize,
    /// Times that the device was told of sends.
    told: usize,
    seed: u64,
}

/// Numbers as the headers lay them out, each with its width in bytes.
fn laid_out(parts: &[(u64, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(value, width)| value.to_be_bytes()[8 - width..].to_vec()).collect()
}

fn pieces(list: &[Sge]) -> Vec<u8> {
    list.iter().flat_map(|sge| laid_out(&[(sge.length.into(), 4), (sge.lkey.into(), 4), (sge.addr, 8)])).collect()
}

/// Data behind its length and `MLX5_INLINE_SEG`, in whole segments.
fn inlined(data: &[u8]) -> Vec<u8> {
    let mut bytes = laid_out(&[(0x8000_0000 | data.len() as u64, 4)]);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

impl Rig {
    fn new(config: ModelConfig, wc: bool, cap: QpCap) -> Self {
        let (device_id, port) = (config.device_id, Port::new(config));
        let watch = Watch { port: port.clone(), books: Arc::default(), wc };
        let dev = Device::open(port.clone(), watch.clone(), DeviceConfig::new(device_id)).unwrap();
        let p = pair_on((port, dev), 255, cap, |dev, cqe| dev.create_cq(cqe, 0, 0).unwrap());
        let qpcs = p.qp.each_ref().map(|qp| {
            // SAFETY: a query names no memory and takes nothing away.
            unsafe { p.dev.general_cmd(&mlx5::hw::cmd::QueryQp { qpn: qp.qp_num() }) }.unwrap()
        });
        let queue = 64 << qpcs[0].log_sq_size();
        let base = p.port.allocation(qpcs[0].dbr_addr());
        let start = base + (1 << qpcs[0].log_rq_size()) * (16 << qpcs[0].log_rq_stride());
        watch.books.lock().unwrap().watched = Some((start, queue, qpcs[0].dbr_addr() + 4));
        Self { p, watch, queue, record: qpcs[1].dbr_addr(), sent: 0, received: 0, told: 0, seed: 0x5eed }
    }

    /// A number below `end`.
    fn draw(&mut self, end: u64) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.seed >> 33) % end) as usize
    }

    /// What a request is in the queue, if it is the next one there.
    fn encoded(&self, wr: &SendWr<'_>, at: usize) -> Vec<u8> {
        let (opcode, imm, address) = match wr.opcode {
            WrOpcode::SendWithImm { imm_data } => (0x0b, u32::from_be(imm_data), Vec::new()),
            WrOpcode::RdmaWrite { remote } => (0x08, 0, laid_out(&[(remote.addr, 8), (remote.rkey.into(), 4), (0, 4)])),
            _ => (0x0a, 0, Vec::new()),
        };
        let data = match wr.inline_data {
            [] => pieces(wr.sg_list),
            data => inlined(data),
        };
        let body = [address, data].concat();
        let ds = 1 + body.len() as u64 / 16;
        let flags = if wr.send_flags.contains(SendFlags::SIGNALED) { 8 } else { 0 };
        let ctrl = [(at as u64 & 0xffff, 3), (opcode, 1), (self.p.qp[0].qp_num().into(), 3), (ds, 1), (flags, 4)];
        [laid_out(&ctrl), laid_out(&[(imm.into(), 4)]), body].concat()
    }

    /// Posts lists, one a call but told of together, and checks what the device saw. `flame`: where in the UAR page a request that is
    /// alone is written whole, if it is no longer than so many bytes.
    fn post(&mut self, lists: &[Vec<SendWr<'_>>], flame: Option<(usize, usize)>) {
        let first = self.sent;
        let mut right = Vec::new();
        for wr in lists.iter().flatten() {
            let bytes = self.encoded(wr, self.sent);
            self.sent += bytes.len().div_ceil(64);
            right.push(bytes);
        }
        match lists {
            [list] => self.p.qp[0].post_send(list).unwrap(),
            lists => {
                let mut batch = self.p.qp[0].wr_start();
                lists.iter().for_each(|list| batch.post_send(list).unwrap());
                batch.wr_complete();
            }
        }
        let told = self.watch.told();
        let Some(last) = right.last() else { return assert!(told.is_empty(), "nothing was posted") };
        let blocks = self.sent - first;
        let whole = flame.filter(|(_, room)| right.len() == 1 && blocks * 64 <= *room);
        assert_eq!(told.len(), whole.map_or(1, |_| blocks), "writes");
        for (n, told) in told.iter().enumerate() {
            assert_eq!(told.offset, flame.map_or(DOORBELLS, |(offset, _)| offset) + 64 * n);
            assert_eq!(told.record, self.sent as u32 & 0xffff);
            match whole {
                None => assert_eq!(told.bytes, last[..8]),
                Some(_) => {
                    let at = (first + n) * 64 % self.queue;
                    assert_eq!(told.bytes, told.queue[at..at + 64], "block {n} as it lies in memory");
                }
            }
            let mut at = first * 64;
            for bytes in &right {
                let there: Vec<u8> = (0..bytes.len()).map(|i| told.queue[(at + i) % self.queue]).collect();
                assert_eq!(there, *bytes, "{} requests from block {first} on", right.len());
                at += bytes.len().next_multiple_of(64);
            }
        }
    }

    /// Posts receives in one call, and checks what lies in memory.
    fn receive(&mut self, lists: &[Vec<Sge>]) {
        let wrs: Vec<_> = lists.iter().map(|list| RecvWr { wr_id: 7, sg_list: list }).collect();
        self.p.qp[1].post_recv(&wrs).unwrap();
        let base = self.p.port.allocation(self.record);
        let (entries, stride) =
            (self.p.qp[1].cap().max_recv_wr as usize, 16 * self.p.qp[1].cap().max_recv_sge as usize);
        for list in lists {
            let mut right = pieces(list);
            if right.len() < stride {
                right.extend(laid_out(&[(0, 4), (0x100, 4), (0, 8)]));
            }
            let at = (self.received % entries * stride) as u64;
            assert_eq!(load(&self.p.port, base + at, right.len()), right);
            self.received += 1;
        }
        assert_eq!(load(&self.p.port, self.record, 4), (self.received as u32 & 0xffff).to_be_bytes());
    }

    /// Any of the requests that need a receive and end with a completion, and its message's length.
    fn any<'a>(&mut self, list: &'a [Sge], data: &'a [u8], remote: Remote) -> SendWr<'a> {
        let wr = SendWr { wr_id: 7, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
        let opcode = match self.draw(3) {
            0 => WrOpcode::Send,
            1 => WrOpcode::SendWithImm { imm_data: 0x0102_0304_u32.to_be() },
            _ => WrOpcode::RdmaWrite { remote },
        };
        let wr = SendWr { opcode, ..wr };
        match self.draw(2) {
            0 => SendWr { sg_list: &list[..self.draw(list.len() as u64 + 1)], ..wr },
            _ => {
                let inline_data = &data[..self.draw(data.len() as u64 + 1)];
                SendWr { inline_data, send_flags: wr.send_flags | SendFlags::INLINE, ..wr }
            }
        }
    }

    /// Posts what is not looked at until the 16-bit counters of both queues are about to go round.
    fn near_the_end_of_the_counters(&mut self) {
        let (from, to) = ([self.p.sge(0, 0, 1)], [self.p.sge(1, 0, 1)]);
        let send = SendWr { send_flags: SendFlags::SIGNALED, sg_list: &from, ..SendWr::default() };
        let watched = self.watch.books.lock().unwrap().watched.take();
        while self.received < 65_500 {
            self.p.qp[1].post_recv(&[RecvWr { sg_list: &to, ..RecvWr::default() }; 15]).unwrap();
            self.p.qp[0].post_send(&[send; 15]).unwrap();
            self.p.poll(0, 15);
            self.p.poll(1, 15);
            (self.sent, self.received, self.told) = (self.sent + 15, self.received + 15, self.told + 1);
        }
        self.watch.books.lock().unwrap().watched = watched;
    }

    /// Posts 2000 basic blocks of random requests, in lists of up to `most`, some as several calls that are told of together. `flame`:
    /// the two places of the BlueFlame register in turn, and the bytes that fit.
    fn run(&mut self, most: u64, flame: Option<([usize; 2], usize)>) {
        let list: Vec<_> = (0..4).map(|n| self.p.sge(0, 100 * n, 16 + n)).collect();
        let data: Vec<u8> = (0..self.p.qp[0].cap().max_inline_data).map(|n| n as u8).collect();
        let remote = self.p.remote(1, 8192);
        let end = self.sent + 2000;
        while self.sent < end {
            let calls_together = if self.draw(4) == 0 { self.draw(4) } else { 1 };
            let lists: Vec<Vec<_>> = (0..calls_together)
                .map(|_| (0..self.draw(most + 1)).map(|_| self.any(&list, &data, remote)).collect())
                .collect();
            let wrs: Vec<_> = lists.iter().flatten().collect();
            let receives: Vec<_> = wrs
                .iter()
                .filter(|wr| !matches!(wr.opcode, WrOpcode::RdmaWrite { .. }))
                .map(|_| (0..1 + self.draw(4)).map(|n| self.p.sge(1, 2048 * n, 2048)).collect())
                .collect();
            self.receive(&receives);
            self.post(&lists, flame.map(|(places, room)| (places[self.told % 2], room)));
            self.told += usize::from(!wrs.is_empty());
            let came = self.p.poll(0, wrs.len());
            assert!(came.iter().all(|wc| wc.status == mlx5::WcStatus::SUCCESS), "{came:?}");
            self.p.poll(1, receives.len());
        }
    }
}

/// Lists of up to 4 requests of one to sixteen basic blocks, up to three together, over the ends of both queues and the 16 bits of both
/// counters.
#[test]
fn a_call_is_told_once_when_requests_and_record_lie_in_memory() {
    let cap = QpCap { max_inline_data: 900, ..SIZES };
    let mut rig = Rig::new(ModelConfig::default(), false, cap);
    rig.near_the_end_of_the_counters();
    rig.run(4, None);
    rig.p.end();
}

/// The model's buffers, of 256 bytes: the first queue pair that is created gets the first register that is free.
fn combining(log_bf_reg_size: u8) -> ModelConfig {
    let config = ModelConfig::default();
    let caps = CapConfig { log_bf_reg_size, ..config.caps.clone() };
    ModelConfig { write_combining: true, caps, ..config }
}

/// BlueFlame: what is alone and fits is written whole, block by block, into the two buffers of the register in turn; all else is a
/// doorbell in the same place. The model finds the same bytes in memory and the record ahead, or breaks its rules.
#[test]
fn a_request_that_is_alone_and_fits_is_written_to_the_buffers_in_turn() {
    for (log_size, room, places) in [(9, 256, [0xa00, 0xb00]), (8, 128, [0x900, 0x980]), (7, 64, [0x880, 0x8c0])] {
        let cap = QpCap { max_inline_data: 900, ..SIZES };
        let mut rig = Rig::new(combining(log_size), true, cap);
        if room == 128 {
            // Fifteen at once: the one doorbell of each list takes its turn too.
            rig.near_the_end_of_the_counters();
        }
        let before = rig.p.port.model.calls();
        rig.run(2, Some((places, room)));
        let calls = rig.p.port.model.calls().since(&before);
        assert!(calls.flames > 20 && calls.sends > 20, "{calls:?}");
        rig.p.end();
    }
}

#[test]
fn without_blue_flame_or_with_buffers_too_small_there_are_doorbells_alone() {
    let without = combining(9);
    let caps = CapConfig { bf: false, ..without.caps.clone() };
    for config in [ModelConfig { caps, ..without }, combining(6)] {
        let mut rig = Rig::new(config, true, SIZES);
        rig.run(2, None);
        rig.p.end();
    }
}

/// One queue pair has a register; when it is destroyed it leaves that to the next, in its turn. The last two of the page's four are
/// nobody's (`MLX5_NON_FP_BFREGS_PER_UAR`).
#[test]
fn a_register_goes_from_a_destroyed_queue_pair_to_the_next() {
    let mut rig = Rig::new(combining(9), true, SIZES);
    let list = [rig.p.sge(0, 0, 16)];
    let opcode = WrOpcode::RdmaWrite { remote: rig.p.remote(1, 0) };
    let write = SendWr { sg_list: &list, opcode, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    let peer = rig.p.qp[1].qp_num();
    let without = create_qp(&rig.p.pd, &rig.p.cq[0], &rig.p.cq[0], SIZES);
    let first = std::mem::replace(&mut rig.p.qp[0], without);
    // Only where it is told matters: the peer's record is there to the end.
    rig.watch.books.lock().unwrap().watched = Some((rig.record, 0, rig.record));
    first.destroy().map_err(|e| e.error).unwrap();
    let mut places = Vec::new();
    for turn in 0..3 {
        let mut more = [(); 2].map(|()| create_qp(&rig.p.pd, &rig.p.cq[0], &rig.p.cq[0], SIZES));
        for qp in &mut more {
            connect(&rig.p.dev, qp, peer);
            // The peer hears one sender after the other.
            let number = qp.qp_num();
            reset(&mut rig, number);
            qp.post_send(&[write]).unwrap();
            rig.p.poll(0, 1);
            places.extend(rig.watch.told().iter().map(|told| (told.offset, told.bytes.len())));
        }
        for qp in more {
            qp.destroy().map_err(|e| e.error).unwrap();
        }
        assert_eq!(places.len(), 2 * (turn + 1));
    }
    // The page's first register is for all doorbells.
    assert_eq!(places, [(0xa00, 64), (0x800, 8), (0xb00, 64), (0x800, 8), (0xa00, 64), (0x800, 8)]);
    rig.p.end();
}

/// Connects the peer to another sender.
fn reset(rig: &mut Rig, sender: u32) {
    let [_, peer] = &mut rig.p.qp;
    peer.reset(ExclusiveCqs::Same(&mut rig.p.cq[1])).unwrap();
    connect(&rig.p.dev, peer, sender);
}

/// A processor sends combined stores in pieces or in another order when it needs the room: the device falls back to the doorbell that
/// each begins with, or waits for the rest.
#[test]
fn stores_that_arrive_torn_or_out_of_order_lose_nothing() {
    let mut rig = Rig::new(combining(9), true, QpCap { max_inline_data: 200, ..SIZES });
    rig.p.port.model.set_store_pace(StorePace { tear_one_in: 3, swap_one_in: 2 });
    rig.run(1, Some(([0xa00, 0xb00], 256)));
    rig.p.end();
}

/// A batch that is forgotten was written and not told of; the next doorbell tells of it.
#[test]
fn requests_of_a_forgotten_batch_go_with_the_next() {
    let mut rig = Rig::new(ModelConfig::default(), false, SIZES);
    let list = [rig.p.sge(0, 0, 16)];
    let write = SendWr {
        sg_list: &list,
        opcode: WrOpcode::RdmaWrite { remote: rig.p.remote(1, 0) },
        send_flags: SendFlags::SIGNALED,
        ..SendWr::default()
    };
    let mut batch = rig.p.qp[0].wr_start();
    batch.post_send(&[write]).unwrap();
    std::mem::forget(batch);
    assert!(rig.watch.told().is_empty());
    rig.p.qp[0].post_send(&[write]).unwrap();
    let told = rig.watch.told();
    assert_eq!((told.len(), told[0].record, told[0].bytes.len()), (1, 2, 8), "a doorbell");
    rig.p.poll(0, 2);
    rig.p.end();
}

/// What comes before a request that is refused is posted with the batch, in the order of the calls.
#[test]
fn a_refused_request_leaves_what_was_written_before_it() {
    let mut rig = Rig::new(ModelConfig::default(), false, SIZES);
    let list = [rig.p.sge(0, 0, 16)];
    let opcode = WrOpcode::RdmaWrite { remote: rig.p.remote(1, 0) };
    let good = SendWr { sg_list: &list, opcode, send_flags: SendFlags::SIGNALED, ..SendWr::default() };
    let huge = [Sge { length: 1 << 31, ..list[0] }];
    // Refused once part of it is written.
    let bad = SendWr { sg_list: &[list[0], huge[0]], ..good };
    let mut batch = rig.p.qp[0].wr_start();
    batch.post_send(&[good]).unwrap();
    assert_eq!(batch.post_send(&[good, bad, good]).map_err(|e| (e.index, e.errno())), Err((1, 22)));
    batch.post_send(&[good]).unwrap();
    drop(batch);
    let told = rig.watch.told();
    assert_eq!((told.len(), told[0].record), (1, 3));
    assert_eq!(told[0].bytes, rig.encoded(&good, 2)[..8]);
    rig.p.poll(0, 3);
    rig.p.end();
}
