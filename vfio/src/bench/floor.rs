//! The floor: the least that any reader of a completion queue must do.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use super::memory::{Line, Slots};

/// Drains a ring of 64-byte entries, all of which may be there, from consumer index `ci` on: compares byte 63's owner bit with the
/// lap's and adds up `byte_cnt`, until an entry is not owned. The sum, and how many entries there were.
///
/// It is a plain loop on purpose: an index that goes around, no unrolling and no vectors but the compiler's own.
#[inline(never)]
pub fn floor(ring: Slots<'_>, ci: u32) -> (u64, u32) {
    let (mut sum, mut n) = (0, 0);
    while n < 1 << ring.log() {
        let index = ci.wrapping_add(n);
        let line = ring.at(index);
        let lap = (index >> ring.log()) as u8;
        if (line.op_own.load(Relaxed) ^ lap) & 1 != 0 {
            break;
        }
        fence(Acquire);
        sum += u64::from(u32::from_be(line.words[11].load(Relaxed)));
        n += 1;
    }
    (sum, n)
}

/// Reads byte 63 of a line so many times: what a look at an empty queue cannot do without.
#[inline(never)]
pub fn read_byte_63(line: &Line, times: u32) -> u64 {
    (0..times).map(|_| u64::from(line.op_own.load(Relaxed) >> 7)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::memory::RingMemory;
    use super::super::rings::{Image, Kind};
    use super::*;

    #[test]
    fn the_floor_takes_what_is_of_this_lap_and_stops_at_what_is_not() {
        let mut image = Image::new(Kind::Send, 8, 64);
        let mut memory = RingMemory::new(8);
        let lengths: u64 = image.told().iter().map(|told| u64::from(told.byte_cnt)).sum();
        for lap in 0..3 {
            memory.copy(image.lap(lap));
            assert_eq!(floor(memory.slots(), lap << 8), (lengths, 256));
            assert_eq!(floor(memory.slots(), (lap + 1) << 8), (0, 0));
        }
        let [mut half, odd] = [0, 1].map(|lap| image.lap(lap).to_vec());
        half[..100 * 64].copy_from_slice(&odd[..100 * 64]);
        memory.copy(&half);
        assert_eq!(floor(memory.slots(), 0x100).1, 100);
        assert_eq!(floor(memory.slots(), 0x110).1, 84);
        assert_eq!(floor(memory.slots(), 100).1, 256, "a full ring, the second half of which is of the next lap");
    }
}
