//! A naive device: its own idea of slots, laps and owner bits, written byte by byte.

use std::sync::atomic::{AtomicU32, Ordering};

/// Memory of a ring, zeroed, as 32-bit words.
pub fn memory(bytes: usize) -> Vec<AtomicU32> {
    (0..bytes / 4).map(|_| AtomicU32::new(0)).collect()
}

/// Stores one byte of the memory.
pub fn poke(mem: &[AtomicU32], at: usize, byte: u8) {
    let mut word = mem[at / 4].load(Ordering::Relaxed).to_ne_bytes();
    word[at % 4] = byte;
    mem[at / 4].store(u32::from_ne_bytes(word), Ordering::Relaxed);
}

/// Loads one byte of the memory.
pub fn peek(mem: &[AtomicU32], at: usize) -> u8 {
    mem[at / 4].load(Ordering::Relaxed).to_ne_bytes()[at % 4]
}

/// Counts entries in 64 bits; a lap is a division, a slot its remainder.
pub struct Device {
    pub entries: u64,
    pub size: usize,
    pub produced: u64,
}

impl Device {
    pub fn new(entries: u64, size: usize) -> Self {
        Self { entries, size, produced: 0 }
    }

    /// Offset of the descriptor of the next entry.
    pub fn next_descriptor(&self) -> usize {
        (self.produced % self.entries) as usize * self.size + self.size - 64
    }

    /// Owner bit of the next entry: 0 in the first lap, 1 in the second.
    pub fn next_owner(&self) -> u8 {
        ((self.produced / self.entries) % 2) as u8
    }

    /// Writes the next entry: every byte of it tells its number, the last one opcode, solicited bit and owner.
    pub fn produce(&mut self, mem: &[AtomicU32], opcode: u8) {
        let (at, owner) = (self.next_descriptor(), self.next_owner());
        for (i, byte) in body(self.produced).into_iter().enumerate() {
            poke(mem, at + i, byte);
        }
        for i in 0..self.size - 64 {
            poke(mem, at - (self.size - 64) + i, 0xa0 | owner);
        }
        poke(mem, at + 63, opcode << 4 | 2 | owner);
        self.produced += 1;
    }
}

/// The bytes of entry `n`, without the last one.
pub fn body(n: u64) -> [u8; 63] {
    std::array::from_fn(|i| (n.rotate_left(7 * i as u32) as u8).wrapping_add(i as u8))
}
