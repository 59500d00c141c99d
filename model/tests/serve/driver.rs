//! A driver of raw bytes over a client: its memory is a file, and each command is written out.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use mlx5_model::ModelConfig;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::client::{BAR0, CONFIG, Client};

/// Where the device sees the driver's memory, and its bytes.
pub const IOVA: u64 = 0x1_4000_0000;
pub const BYTES: u64 = 1 << 20;
/// Places in the driver's memory.
pub const QUEUE: u64 = 0;
pub const INPUT: u64 = 0x1000;
pub const OUTPUT: u64 = 0x2000;
pub const RING: u64 = 0x10000;

/// A file of `len` bytes in memory.
pub fn memory(len: u64) -> File {
    let file = File::from(memfd_create("mlx5-test", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(len).unwrap();
    file
}

/// An eventfd.
pub fn event() -> File {
    File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
}

/// Whether an eventfd is signalled within so many seconds.
pub fn fires(event: &File, seconds: i64) -> bool {
    let mut ready = [PollFd::new(event, PollFlags::IN)];
    poll(&mut ready, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
}

/// A driver whose function has its memory and may use it.
pub struct Driver {
    pub client: Client,
    pub file: File,
}

impl Driver {
    pub fn new(config: ModelConfig) -> Self {
        Self::over(Client::new(config))
    }

    pub fn over(mut client: Client) -> Self {
        let file = memory(BYTES);
        client.map((IOVA, BYTES), 3, Some((&file, 0))).unwrap();
        let mut driver = Self { client, file };
        driver.start();
        driver
    }

    /// Memory space and bus mastering on, and the address of the command queue.
    pub fn start(&mut self) {
        self.client.write(CONFIG, 4, &[6, 0]);
        let address = (IOVA + QUEUE).to_be_bytes();
        self.client.write(BAR0, 0x10, &address[..4]);
        self.client.write(BAR0, 0x14, &address[4..]);
    }

    pub fn store(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    pub fn load(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// Writes a command into slot 0, its input behind the first 16 bytes into the input mailbox, and rings.
    pub fn post(&mut self, input: &[u8], out_len: u32) {
        self.post_at(input, out_len, IOVA + INPUT);
    }

    /// The same with the input mailbox at `mailbox`; what lies there is the caller's.
    pub fn post_at(&mut self, input: &[u8], out_len: u32, mailbox: u64) {
        let mut entry = [0; 64];
        entry[0] = 7;
        entry[4..8].copy_from_slice(&(input.len() as u32).to_be_bytes());
        entry[0x10..0x20].copy_from_slice(&input[..16]);
        entry[0x38..0x3c].copy_from_slice(&out_len.to_be_bytes());
        if input.len() > 16 {
            entry[0x8..0x10].copy_from_slice(&mailbox.to_be_bytes());
            self.store(INPUT, &input[16..]);
        }
        if out_len > 16 {
            entry[0x30..0x38].copy_from_slice(&(IOVA + OUTPUT).to_be_bytes());
        }
        entry[0x3f] = 1;
        self.store(QUEUE, &entry);
        self.client.write(BAR0, 0x18, &1_u32.to_be_bytes());
    }

    /// Waits until the device gives the entry of slot 0 back, and returns it.
    pub fn wait(&self) -> Vec<u8> {
        let start = Instant::now();
        loop {
            let entry = self.load(QUEUE, 64);
            if entry[0x3f] & 1 == 0 {
                return entry;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "the command does not complete");
            std::thread::yield_now();
        }
    }

    /// Runs a command with 8 bytes of input behind the header; its status and the output in the entry.
    pub fn command(&mut self, opcode: u16, body: &[u8], out_len: u32) -> Vec<u8> {
        let input = [&opcode.to_be_bytes()[..], &[0; 6], body].concat();
        self.post(&input, out_len);
        let entry = self.wait();
        assert_eq!((entry[0x3f], entry[0x20]), (0, 0), "delivered and done: {opcode:#x}");
        entry[0x20..0x30].to_vec()
    }

    /// ENABLE_HCA and INIT_HCA, for a function that wants no pages.
    pub fn bring_up(&mut self) {
        self.command(0x104, &[0; 8], 16);
        self.command(0x102, &[0; 8], 16);
    }

    /// ALLOC_UAR, and CREATE_EQ of 64 entries on `vector` with `mask`; armed. Returns the UAR's number and the queue's.
    pub fn create_eq(&mut self, vector: u8, mask: u64) -> (u32, u8) {
        let uar = self.command(0x802, &[0; 8], 16);
        self.store(RING, &[0xff; 4096]);
        let mut body = vec![0; 0x110];
        body[0x10 - 8 + 0xc] = 6; // log_eq_size
        body[0x10 - 8 + 0xd..][..3].copy_from_slice(&uar[9..12]);
        body[0x10 - 8 + 0x17] = vector;
        body[0x58 - 8..][..8].copy_from_slice(&mask.to_be_bytes());
        body[0x110 - 8..].copy_from_slice(&(IOVA + RING).to_be_bytes());
        let eqn = self.command(0x301, &body, 16)[0xb];
        let uar = u32::from_be_bytes([0, uar[9], uar[10], uar[11]]);
        self.client.write(BAR0, u64::from(uar) * 4096 + 0x40, &[eqn, 0, 0, 0]);
        (uar, eqn)
    }
}

/// A function that wants no pages, so that a bring-up is two commands.
pub fn without_pages() -> ModelConfig {
    ModelConfig { boot_pages: 0, init_pages: 0, ..ModelConfig::default() }
}
