//! Full rings to drain, as a device would have left them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A ring of 64-byte receive completions in which every slot is new, on even laps and on odd laps.
pub struct FullRing {
    /// One image for each parity of the lap.
    pub laps: [Vec<AtomicU32>; 2],
}

impl FullRing {
    /// `2^log_size` entries: opcode 2 (a received SEND), `byte_cnt` 64, user index 7, counters in order.
    pub fn new(log_size: u32) -> Self {
        Self { laps: [0, 1].map(|owner| (0..1 << log_size).flat_map(|i| entry(i, owner)).collect()) }
    }
}

fn entry(counter: u32, owner: u32) -> [AtomicU32; 16] {
    let mut words = [0u32; 16];
    words[8] = 7;
    words[11] = 64;
    words[15] = (counter & 0xffff) << 16 | 0x20 | owner;
    words.map(|word| AtomicU32::new(word.to_be()))
}

/// The least that a reader of a ring must do: look at each owner bit and add up `byte_cnt`.
pub fn floor(ring: &[AtomicU32], owner: u32) -> u32 {
    let mut sum = 0u32;
    for words in ring.chunks_exact(16) {
        if u32::from_be(words[15].load(Relaxed)) & 1 != owner {
            break;
        }
        sum = sum.wrapping_add(u32::from_be(words[11].load(Relaxed)));
    }
    sum
}
