//! A driver made of raw bytes: every offset below is written out from the PRM, none comes from `mlx5-hw`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mlx5_hw::platform::{Bar, DmaMem, Platform};
use mlx5_model::{CapConfig, Model, ModelConfig};

pub use crate::bytes::{get, load, put, store};

/// Writes a big-endian word into DMA memory.
pub fn store32(mem: &DmaMem, at: usize, value: u32) {
    mem.words()[at / 4].store(value.to_be(), Ordering::Release);
}

/// How long a test waits for what must happen: for many turns and for seconds of the wall clock, whichever lasts longer.
pub struct Patience {
    start: Instant,
    turns: u32,
}

impl Patience {
    pub fn new() -> Self {
        Self { start: Instant::now(), turns: 0 }
    }

    pub fn left(&mut self) -> bool {
        self.turns = self.turns.saturating_add(1);
        self.turns < 100_000 || self.start.elapsed() < Duration::from_secs(10)
    }
}

const BLOCKS: usize = 16;
const TOKEN: u8 = 0x5a;

/// The function with its command interface brought up.
pub struct Raw {
    pub model: Model,
    queue: DmaMem,
    input: DmaMem,
    output: DmaMem,
    /// Pages that firmware has.
    pub given: Vec<DmaMem>,
}

impl Raw {
    /// A function on which INIT_HCA has run, and the results of atomics are in the host's byte order.
    pub fn up() -> Self {
        Self::up_with(CapConfig::default(), true)
    }

    /// As [`up`](Self::up); without `host_order` the capability page of atomics stays as it was.
    pub fn up_with(caps: CapConfig, host_order: bool) -> Self {
        Self::made(ModelConfig { caps, ..ModelConfig::default() }, host_order)
    }

    /// As [`up_with`](Self::up_with), of any function.
    pub fn made(config: ModelConfig, host_order: bool) -> Self {
        Self::start(Model::new(config), host_order)
    }

    /// As [`up_with`](Self::up_with), of a function that was reset.
    pub fn start(model: Model, host_order: bool) -> Self {
        let alloc = |size| model.alloc(size, 4096).unwrap();
        let (queue, input, output) = (alloc(4096), alloc(BLOCKS * 1024), alloc(BLOCKS * 1024));
        let mut raw = Self { queue, input, output, given: Vec::new(), model };
        raw.write32(0x10, (raw.queue.iova() >> 32) as u32);
        raw.write32(0x14, raw.queue.iova() as u32);
        raw.wait(|raw| raw.read32(0x1fc) >> 31 == 0);
        raw.command(0x104, 0, &[0; 8], 12); // ENABLE_HCA
        raw.command(0x10b, 0, &[0, 0, 0, 1, 0, 0, 0, 0], 16); // SET_ISSI 1
        raw.pages(1);
        let caps = raw.command(0x100, 1, &[0; 8], 4112); // QUERY_HCA_CAP, general, current
        let mut set = vec![0; 8];
        set.extend_from_slice(&caps[16..]);
        put(&mut set[8..], 528, 2, 0); // cmdif_checksum
        raw.command(0x109, 0, &set, 16); // SET_HCA_CAP
        if host_order {
            set[8..].fill(0);
            put(&mut set[8..], 64, 2, 1); // atomic_req_8B_endianness_mode
            raw.command(0x109, 3 << 1, &set, 16); // SET_HCA_CAP, atomic
        }
        raw.pages(2);
        raw.command(0x102, 0, &[0; 8], 16); // INIT_HCA
        raw
    }

    /// Gives firmware the pages it asks for: 1 boot, 2 init.
    fn pages(&mut self, stage: u16) {
        let out = self.command(0x107, stage, &[0; 8], 16);
        let count = get(&out, 96, 32) as usize;
        if count == 0 {
            return;
        }
        let mem = self.model.alloc(count * 4096, 4096).unwrap();
        let mut body = vec![0; 8];
        put(&mut body, 32, 32, count as u64);
        for i in 0..count {
            body.extend_from_slice(&(mem.iova() + 4096 * i as u64).to_be_bytes());
        }
        self.given.push(mem);
        self.command(0x108, 1, &body, 16);
    }

    pub fn read32(&self, at: usize) -> u32 {
        self.model.read32(at).swap_bytes()
    }

    pub fn write32(&self, at: usize, value: u32) {
        self.model.write32(at, value.swap_bytes());
    }

    pub fn write64(&self, at: usize, value: u64) {
        self.model.write64(at, value.swap_bytes());
    }

    /// Waits, for a bounded time.
    pub fn wait(&self, done: impl Fn(&Self) -> bool) {
        let mut patience = Patience::new();
        while !done(self) {
            assert!(patience.left(), "never happened");
            self.model.relax();
        }
    }

    /// Runs a command that must succeed; `body` follows the first 8 bytes. Returns the whole output.
    pub fn command(&self, opcode: u16, op_mod: u16, body: &[u8], outlen: usize) -> Vec<u8> {
        let out = self.try_command(opcode, op_mod, body, outlen);
        assert_eq!(out[0], 0, "command {opcode:#x}: status {:#x}, syndrome {:#x}", out[0], get(&out, 32, 32));
        out
    }

    /// Runs a command and returns its output, whatever the status.
    pub fn try_command(&self, opcode: u16, op_mod: u16, body: &[u8], outlen: usize) -> Vec<u8> {
        let mut input = vec![0; 8];
        put(&mut input, 0, 16, opcode.into());
        put(&mut input, 48, 16, op_mod.into());
        input.extend_from_slice(body);
        self.mailboxes(&self.input, input.get(16..).unwrap_or(&[]));
        self.mailboxes(&self.output, &vec![0; outlen.saturating_sub(16)]);
        let mut entry = [0; 64];
        entry[0] = 7;
        put(&mut entry, 32, 32, input.len() as u64);
        let head = input.len().min(16);
        entry[16..16 + head].copy_from_slice(&input[..head]);
        if input.len() > 16 {
            put(&mut entry, 64, 64, self.input.iova());
        }
        if outlen > 16 {
            put(&mut entry, 0x30 * 8, 64, self.output.iova());
        }
        put(&mut entry, 0x38 * 8, 32, outlen as u64);
        entry[0x3c] = TOKEN;
        entry[0x3f] = 1;
        entry[0x3d] = 0xff ^ entry.iter().fold(0, |x, b| x ^ b);
        store(&self.queue, 0, &entry);
        self.write32(0x18, 1);
        self.wait(|raw| load(&raw.queue, 0x3f, 1)[0] & 1 == 0);
        assert_eq!(load(&self.queue, 0x3f, 1)[0] >> 1, 0, "delivery status of command {opcode:#x}");
        let mut out = load(&self.queue, 0x20, outlen.min(16));
        for i in 0..outlen.saturating_sub(16).div_ceil(512) {
            out.extend(load(&self.output, 1024 * i, 512));
        }
        out.truncate(outlen);
        out
    }

    /// Lays data out in a chain of mailbox blocks, with all signatures right.
    fn mailboxes(&self, mem: &DmaMem, data: &[u8]) {
        let blocks = data.len().div_ceil(512);
        assert!(blocks <= BLOCKS);
        for (i, part) in data.chunks(512).enumerate() {
            let mut block = [0; 576];
            block[..part.len()].copy_from_slice(part);
            if i + 1 < blocks {
                put(&mut block, 0x230 * 8, 64, mem.iova() + 1024 * (i as u64 + 1));
            }
            put(&mut block, 0x238 * 8, 32, i as u64);
            block[0x23d] = TOKEN;
            block[0x23e] = 0xff ^ block[512..0x23e].iter().fold(0, |x, b| x ^ b);
            block[0x23f] = 0xff ^ block[..0x23f].iter().fold(0, |x, b| x ^ b);
            store(mem, 1024 * i, &block);
        }
    }
}
