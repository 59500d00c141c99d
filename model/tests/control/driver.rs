//! A driver of raw bytes: every offset is written out here, and each step can be spoiled before the doorbell rings.

use mlx5_hw::platform::{Bar, DmaMem, Platform};
use mlx5_model::{Model, ModelConfig, ViolationKind};

pub use crate::bytes::{get, load, put, store};

/// Mailbox blocks for each direction of a slot.
const BLOCKS: usize = 9;
/// Slots that this driver uses.
const SLOTS: usize = 3;

/// Status and syndrome of a refused command.
pub type Refused = (u8, u32);

/// The driver's memory and what it has been given.
pub struct Driver {
    pub model: Model,
    queue: Option<DmaMem>,
    mailboxes: Option<DmaMem>,
    pages: Vec<DmaMem>,
    /// Memory of queues, freed by [`finish`](Self::finish).
    pub memory: Vec<DmaMem>,
    pub token: u8,
    pub uar: u32,
}

impl Driver {
    /// Memory is there; the device has not been touched.
    pub fn new(config: ModelConfig) -> Self {
        let model = Model::new(config);
        let queue = model.alloc(4096, 4096).unwrap();
        let mailboxes = model.alloc(SLOTS * 2 * BLOCKS * 1024, 1024).unwrap();
        let (queue, mailboxes) = (Some(queue), Some(mailboxes));
        Self { model, queue, mailboxes, pages: Vec::new(), memory: Vec::new(), token: 0x5a, uar: 0 }
    }

    pub fn read(&self, at: usize) -> u32 {
        self.model.read32(at).swap_bytes()
    }

    pub fn write(&self, at: usize, value: u32) {
        self.model.write32(at, value.swap_bytes());
    }

    pub fn write64(&self, at: usize, value: u64) {
        self.model.write64(at, value.swap_bytes());
    }

    /// Waits for firmware and writes the address of the command queue.
    pub fn start(&self) {
        assert!((0..1_000_000).any(|_| {
            self.model.relax();
            self.read(0x1fc) >> 31 == 0
        }));
        self.write(0x10, (self.queue().iova() >> 32) as u32);
        self.write(0x14, self.queue().iova() as u32);
    }

    /// Device address of a block of a slot; direction 0 is input, 1 output.
    pub fn block(&self, slot: usize, direction: usize, index: usize) -> u64 {
        self.mailboxes().iova() + self.block_at(slot, direction, index) as u64
    }

    fn block_at(&self, slot: usize, direction: usize, index: usize) -> usize {
        ((slot * 2 + direction) * BLOCKS + index) * 1024
    }

    /// Changes bytes of a mailbox block.
    pub fn spoil_block(&self, slot: usize, direction: usize, index: usize, at: usize, bytes: &[u8]) {
        store(self.mailboxes(), self.block_at(slot, direction, index) + at, bytes);
    }

    pub fn load_block(&self, slot: usize, direction: usize, index: usize) -> Vec<u8> {
        load(self.mailboxes(), self.block_at(slot, direction, index), 576)
    }

    fn chain(&self, slot: usize, direction: usize, data: &[u8]) -> u64 {
        let blocks = data.len().div_ceil(512);
        for (i, part) in data.chunks(512).enumerate() {
            let mut block = [0; 576];
            block[..part.len()].copy_from_slice(part);
            if i + 1 < blocks {
                put(&mut block, 0x230 * 8, 64, self.block(slot, direction, i + 1));
            }
            put(&mut block, 0x238 * 8, 32, i as u64);
            block[0x23d] = self.token;
            block[0x23e] = 0xff ^ block[512..0x23e].iter().fold(0, |x, b| x ^ b);
            block[0x23f] = 0xff ^ block[..0x23f].iter().fold(0, |x, b| x ^ b);
            self.spoil_block(slot, direction, i, 0, &block);
        }
        if blocks == 0 { 0 } else { self.block(slot, direction, 0) }
    }

    /// Builds an entry and its mailboxes; `body` follows the first 8 bytes of the input.
    pub fn build(&self, slot: usize, opcode: u16, op_mod: u16, body: &[u8], out_len: usize) -> [u8; 64] {
        let mut input = vec![0; 8];
        put(&mut input, 0, 16, opcode.into());
        put(&mut input, 48, 16, op_mod.into());
        input.extend_from_slice(body);
        let mut entry = [0; 64];
        entry[0] = 7;
        put(&mut entry, 32, 32, input.len() as u64);
        let head = input.len().min(16);
        entry[16..16 + head].copy_from_slice(&input[..head]);
        put(&mut entry, 64, 64, self.chain(slot, 0, &input[head..]));
        put(&mut entry, 0x180, 64, self.chain(slot, 1, &vec![0; out_len.saturating_sub(16)]));
        put(&mut entry, 0x1c0, 32, out_len as u64);
        entry[0x3c] = self.token;
        entry[0x3f] = 1;
        sign(&mut entry);
        entry
    }

    /// Puts an entry into its slot and rings the doorbell.
    pub fn post(&self, slot: usize, entry: &[u8; 64]) {
        store(self.queue(), slot * 64, entry);
        self.write(0x18, 1 << slot);
    }

    pub fn entry(&self, slot: usize) -> Vec<u8> {
        load(self.queue(), slot * 64, 64)
    }

    /// The device has given the entry back.
    pub fn done(&self, slot: usize) -> bool {
        self.entry(slot)[0x3f] & 1 == 0
    }

    /// Waits for a slot, a bounded number of turns; the delivery status.
    pub fn finish_slot(&self, slot: usize) -> u8 {
        let done = (0..100_000).any(|_| {
            self.done(slot) || {
                self.model.relax();
                false
            }
        });
        assert!(done, "slot {slot} never completed");
        self.entry(slot)[0x3f] >> 1
    }

    /// The output of a slot that has completed.
    pub fn output(&self, slot: usize, out_len: usize) -> Vec<u8> {
        let mut out = self.entry(slot)[0x20..0x30].to_vec();
        for i in 0..out_len.saturating_sub(16).div_ceil(512) {
            out.extend_from_slice(&self.load_block(slot, 1, i)[..512]);
        }
        out.truncate(out_len.max(8));
        out
    }

    /// Runs a command in slot 0.
    pub fn run(&self, opcode: u16, op_mod: u16, body: &[u8], out_len: usize) -> Result<Vec<u8>, Refused> {
        self.post(0, &self.build(0, opcode, op_mod, body, out_len));
        assert_eq!(self.finish_slot(0), 0, "delivery status of {opcode:#x}");
        let out = self.output(0, out_len);
        if out[0] == 0 { Ok(out) } else { Err((out[0], get(&out, 32, 32) as u32)) }
    }

    /// Runs a command whose input is one 32-bit number at offset 8, and whose output is short.
    pub fn small(&self, opcode: u16, value: u32) -> Result<u32, Refused> {
        let mut body = [0; 8];
        put(&mut body, 0, 32, value.into());
        self.run(opcode, 0, &body, 16).map(|out| get(&out, 64, 32) as u32 & 0xff_ffff)
    }

    /// How many pages firmware wants at a stage: 1 boot, 2 init.
    pub fn pages_wanted(&self, stage: u16) -> i32 {
        get(&self.run(0x107, stage, &[0; 8], 16).unwrap(), 96, 32) as i32
    }

    pub fn give_body(pages: &[u64]) -> Vec<u8> {
        let mut body = vec![0; 8];
        put(&mut body, 32, 32, pages.len() as u64);
        body.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
        body
    }

    /// Gives `count` fresh pages.
    pub fn give(&mut self, count: usize) -> Result<(), Refused> {
        let mem = self.model.alloc(count * 4096, 4096).unwrap();
        let pages: Vec<u64> = (0..count as u64).map(|i| mem.iova() + i * 4096).collect();
        self.pages.push(mem);
        self.run(0x108, 1, &Self::give_body(&pages), 16).map(|_| ())
    }

    /// Asks firmware to give up to `count` pages back.
    pub fn take(&self, count: usize) -> Result<Vec<u64>, Refused> {
        let mut body = [0; 8];
        put(&mut body, 32, 32, count as u64);
        let out = self.run(0x108, 2, &body, 16 + 8 * count)?;
        let taken = get(&out, 64, 32) as usize;
        Ok((0..taken).map(|i| get(&out, 128 + 64 * i, 64)).collect())
    }

    /// The memory of firmware page `index` of the last [`give`](Self::give).
    pub fn last_given(&self) -> &DmaMem {
        self.pages.last().unwrap()
    }

    /// From the cold to boot pages given.
    pub fn boot(&mut self) {
        self.start();
        self.run(0x104, 0, &[0; 8], 12).unwrap();
        let issi = self.run(0x10a, 0, &[0; 8], 112).unwrap();
        assert_eq!(get(&issi, 0x6c * 8, 32) & 2, 2);
        self.run(0x10b, 0, &[0, 0, 0, 1, 0, 0, 0, 0], 16).unwrap();
        let wanted = self.pages_wanted(1);
        if wanted > 0 {
            self.give(wanted as usize).unwrap();
        }
    }

    /// The general capabilities in force (op_mod 1) or at most (0).
    pub fn caps(&self, op_mod: u16) -> Vec<u8> {
        self.run(0x100, op_mod, &[0; 8], 4112).unwrap()[16..].to_vec()
    }

    pub fn set_caps(&self, page: &[u8]) -> Result<(), Refused> {
        let mut body = vec![0; 8];
        body.extend_from_slice(page);
        self.run(0x109, 0, &body, 16).map(|_| ())
    }

    /// From the cold to INIT_HCA and a UAR, in the order of Linux's driver.
    pub fn up(config: ModelConfig) -> Self {
        let mut driver = Self::new(config);
        driver.boot();
        let mut page = driver.caps(1);
        put(&mut page, 528, 2, 0); // cmdif_checksum off
        driver.set_caps(&page).unwrap();
        let wanted = driver.pages_wanted(2);
        if wanted > 0 {
            driver.give(wanted as usize).unwrap();
        }
        driver.run(0x102, 0, &[0; 24], 16).unwrap();
        driver.uar = driver.small(0x802, 0).unwrap();
        driver
    }

    /// Gives everything back in the order of Linux's driver; all objects but the UAR are gone already.
    pub fn down(mut self) -> Model {
        self.small(0x803, self.uar).unwrap();
        self.run(0x103, 0, &[0; 8], 16).unwrap();
        let back = self.take(400).unwrap();
        assert_eq!(back.len(), self.pages.iter().map(|mem| mem.size() / 4096).sum::<usize>());
        self.run(0x105, 0, &[0; 8], 12).unwrap();
        self.finish();
        self.model
    }

    /// Frees all memory; what is left is not used again.
    pub fn finish(&mut self) {
        let mut all = std::mem::take(&mut self.pages);
        all.append(&mut self.memory);
        all.extend([self.queue.take(), self.mailboxes.take()].into_iter().flatten());
        for mem in all {
            // SAFETY: from this platform's `alloc`, and the device was told to stop using it.
            unsafe { self.model.free(mem) };
        }
    }

    pub fn queue(&self) -> &DmaMem {
        self.queue.as_ref().unwrap()
    }

    fn mailboxes(&self) -> &DmaMem {
        self.mailboxes.as_ref().unwrap()
    }

    pub fn alloc(&mut self, size: usize) -> u64 {
        let mem = self.model.alloc(size, 4096).unwrap();
        let iova = mem.iova();
        self.memory.push(mem);
        iova
    }

    /// The memory that an address of [`alloc`](Self::alloc) stands for.
    pub fn memory_at(&self, iova: u64) -> &DmaMem {
        self.memory.iter().find(|mem| mem.iova() == iova).unwrap()
    }

    /// What has been broken, each kind as often as it was.
    pub fn broken(&self) -> Vec<ViolationKind> {
        self.model.take_violations().iter().map(|violation| violation.kind).collect()
    }
}

/// Makes the XOR of an entry 0xff.
pub fn sign(entry: &mut [u8; 64]) {
    entry[0x3d] = 0;
    entry[0x3d] = 0xff ^ entry.iter().fold(0, |x, b| x ^ b);
}
