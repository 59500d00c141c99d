//! Bits and bytes by their place, for drivers that write every offset out.

use std::sync::atomic::Ordering;

use mlx5_hw::platform::DmaMem;

/// Sets `width` bits that start `bit` bits from the most significant bit of byte 0.
pub fn put(bytes: &mut [u8], bit: usize, width: usize, value: u64) {
    for i in 0..width {
        let (at, mask) = ((bit + i) / 8, 1 << (7 - (bit + i) % 8));
        let on = value >> (width - 1 - i) & 1 == 1;
        bytes[at] = if on { bytes[at] | mask } else { bytes[at] & !mask };
    }
}

/// Reads `width` bits that start `bit` bits from the most significant bit of byte 0.
pub fn get(bytes: &[u8], bit: usize, width: usize) -> u64 {
    (bit..bit + width).fold(0, |value, b| value << 1 | u64::from(bytes[b / 8] >> (7 - b % 8) & 1))
}

/// Reads DMA memory as bytes.
pub fn load(mem: &DmaMem, at: usize, len: usize) -> Vec<u8> {
    let words = mem.words();
    (at..at + len).map(|i| words[i / 4].load(Ordering::Acquire).to_ne_bytes()[i % 4]).collect()
}

/// Writes bytes into DMA memory.
pub fn store(mem: &DmaMem, at: usize, bytes: &[u8]) {
    for (i, byte) in (at..).zip(bytes) {
        let word = &mem.words()[i / 4];
        let mut old = word.load(Ordering::Relaxed).to_ne_bytes();
        old[i % 4] = *byte;
        word.store(u32::from_ne_bytes(old), Ordering::Release);
    }
}
