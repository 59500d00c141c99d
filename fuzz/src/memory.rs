//! Memory of a ring between two walls.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Dwords of each wall.
const WALL: usize = 16;
/// What the walls are made of.
const BRICK: u32 = 0x5a5a_5a5a;

/// Memory of a ring, with words before and behind it that nobody may touch.
pub struct Memory(Vec<AtomicU32>);

impl Memory {
    /// Memory of `size` bytes, all zero.
    pub fn new(size: usize) -> Self {
        let word = |i: usize| if (WALL..WALL + size / 4).contains(&i) { 0 } else { BRICK };
        Self((0..size / 4 + 2 * WALL).map(|i| AtomicU32::new(word(i))).collect())
    }

    /// The ring, and the wall behind it: a ring may be given more memory than it needs.
    pub fn ring(&self) -> &[AtomicU32] {
        &self.0[WALL..]
    }

    /// The ring's bytes.
    fn size(&self) -> usize {
        (self.0.len() - 2 * WALL) * 4
    }

    /// Writes bytes at `at`, as far as they fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let fits = self.size().saturating_sub(at).min(bytes.len());
        let words = self.ring().get(at / 4..).unwrap_or(&[]);
        for (word, piece) in words.iter().zip(bytes[..fits].chunks_exact(4)) {
            word.store(piece.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)), Relaxed);
        }
    }

    /// All words, the walls' too.
    pub fn all(&self) -> Vec<u32> {
        self.0.iter().map(|word| word.load(Relaxed)).collect()
    }

    /// Fails unless every word is as `before`, but for the dwords of the ring that `may` become what they are.
    pub fn assert_same(&self, before: &[u32], may: impl Fn(usize, u32) -> bool) {
        let now = self.all();
        assert_eq!(now.len(), before.len());
        let changed = now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before);
        for (i, (now, before)) in changed {
            let inside = (WALL..WALL + self.size() / 4).contains(&i);
            assert!(inside && may(i - WALL, *now), "dword {i} was {before:#x}, is {now:#x}");
        }
    }
}
