//! Memory of a ring outside of any device, and what has to be done to it and to the processor between two drains.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};
use std::time::Instant;

/// Bytes of a line of the caches.
const LINE: usize = 64;
/// The ring begins at a page, as a device's would.
const PAGE: usize = 4096;

/// One line: an entry of 64 bytes, or half of one of 128.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Line {
    /// The words before the last one, as they lie there; `byte_cnt` is number 11, big-endian.
    pub words: [AtomicU32; 15],
    /// `wqe_counter`, big-endian.
    pub counter: AtomicU16,
    /// The signature, or the lap of an enhanced ring.
    pub signature: AtomicU8,
    /// Opcode, format and owner.
    pub op_own: AtomicU8,
}

/// Memory of a ring: a power of two of lines.
#[derive(Debug)]
pub struct RingMemory {
    lines: Vec<Line>,
    first: usize,
    /// Bits of a line's number.
    log: u32,
}

impl RingMemory {
    /// `2^log` lines from a page's start.
    pub fn new(log: u32) -> Self {
        let lines: Vec<_> = (0..(1 << log) + PAGE / LINE).map(|_| Line::default()).collect();
        let first = lines.as_ptr().cast::<u8>().align_offset(PAGE) / LINE;
        Self { lines, first, log }
    }

    /// The ring's lines.
    pub fn lines(&self) -> &[Line] {
        self.lines.get(self.first..self.first + (1 << self.log)).unwrap_or_default()
    }

    /// The same, by numbers that go around.
    pub fn slots(&self) -> Slots<'_> {
        Slots { lines: self.lines(), log: self.log }
    }

    /// Where the ring begins. It stays there until this is dropped, and is that long.
    pub fn start(&self) -> NonNull<u8> {
        NonNull::from(self.lines()).cast()
    }

    /// Writes an image of the ring over it: the lines are then in the nearest caches, as far as these reach.
    pub fn copy(&mut self, image: &[u8]) {
        let bytes = image.len().min(LINE << self.log);
        // SAFETY: both are valid for that many bytes, and no reference of Rust's is into the ring while this is borrowed
        // exclusively. Its cells are integers, for which any bytes are valid.
        unsafe { self.start().as_ptr().copy_from_nonoverlapping(image.as_ptr(), bytes) };
    }

    /// Puts each line of the ring out of all caches.
    pub fn flush(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in self.lines() {
            // SAFETY: every x86-64 has the instruction, the line is readable.
            unsafe { core::arch::x86_64::_mm_clflush(std::ptr::from_ref(line).cast()) };
        }
        fence(Ordering::SeqCst);
    }
}

/// Lines of a ring, by numbers that go around.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    lines: &'a [Line],
    /// Bits of a line's number: there are `2^log` lines.
    log: u32,
}

impl<'a> Slots<'a> {
    /// How many there are, as a power of two.
    #[inline(always)]
    pub fn log(self) -> u32 {
        self.log
    }

    /// Line `n`, counted on across laps.
    #[inline(always)]
    pub fn at(self, n: u32) -> &'a Line {
        // SAFETY: `RingMemory` makes these of `2^log` lines, and the number is masked to be below that. The compiler does not see it,
        // and the floor is to have no check that a reader in C has not.
        unsafe { self.lines.get_unchecked((n & ((1 << self.log) - 1)) as usize) }
    }
}

/// A clock for short spans, in ticks of its own.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    ticks: u64,
}

impl Clock {
    /// Begins to be compared with the time.
    pub fn start() -> Self {
        Self { began: Instant::now(), ticks: now() }
    }

    /// Nanoseconds of one tick, the better the longer it has run.
    pub fn nanoseconds(&self) -> f64 {
        let ticks = now().saturating_sub(self.ticks).max(1);
        self.began.elapsed().as_nanos() as f64 / ticks as f64
    }
}

/// The clock's ticks; what stands before it has been done by then, and what stands behind it not begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn now() -> u64 {
    use core::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 has both instructions, and user programs may read the counter unless their system forbids it to
    // all, which ends the program and does nothing else.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

/// The clock's ticks, nanoseconds here.
#[cfg(not(target_arch = "x86_64"))]
pub fn now() -> u64 {
    use std::sync::LazyLock;

    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    fence(Ordering::SeqCst);
    BEGAN.elapsed().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_begins_at_a_page_and_holds_what_was_copied() {
        let mut memory = RingMemory::new(8);
        assert_eq!(memory.start().addr().get() % PAGE, 0);
        let image: Vec<_> = (0..256 * 64).map(|i| (i / 64 + i % 64) as u8).collect();
        memory.copy(&image);
        memory.flush();
        let line = &memory.lines()[200];
        assert_eq!(memory.lines().len(), 256);
        assert_eq!(line.words[11].load(Ordering::Relaxed).to_ne_bytes(), [244, 245, 246, 247]);
        assert_eq!(line.counter.load(Ordering::Relaxed).to_ne_bytes(), [(200 + 60) as u16 as u8, 5]);
        assert_eq!((line.signature.load(Ordering::Relaxed), line.op_own.load(Ordering::Relaxed)), (6, 7));
    }
}
