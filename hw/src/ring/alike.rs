//! Taking many entries that are alike at once.
//!
//! Most entries of a batch are like the one before: of the same queue, for a request of the same kind, the next one of the queue.
//! So one look at what differs suffices for each, and its record can be put together by moving bytes. What is not alike is left
//! for [`Consumer::next`](super::Consumer::next).

use core::sync::atomic::AtomicU64;

use super::formats::sealed::Kept;
use super::{CqeFormat, Ring, RingError};
use crate::be::Be32;
use crate::cqe::OpOwn;
use crate::simd::{self, Cpu, First, Recipe, Record, Stretch};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// What entries have in common, and how a record is made of each.
#[derive(Clone, Copy, Debug)]
pub struct Alike<'r> {
    /// Their last byte; the owner bit is the lap's.
    pub op_own: OpOwn,
    /// Dword 8: user index.
    pub user_index: Be32,
    /// Dword 14 of sends: opcode of the request, queue number.
    pub request: Be32,
    /// How records are made.
    pub recipe: &'r Recipe,
    /// Bytes 36 to 39 of the records that the recipe makes, in CPU byte order.
    pub headers: u32,
    /// What stands there instead in the end.
    pub flags: u32,
}

/// Whose completions they are.
#[derive(Clone, Copy, Debug)]
pub enum Names<'q> {
    /// Sends in the order of their queue.
    Sends(InOrder<'q>),
    /// Receives in the order of their queue.
    Receives(InOrder<'q>),
    /// Receives of a shared queue, which end in any order: a record's name will be the counter.
    Shared,
}

/// The next requests of a queue.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<'q> {
    names: &'q [AtomicU64],
    place: u16,
    mask: u16,
}

impl<'q> InOrder<'q> {
    /// Requests with these names, of which the first is that of `place`, in a queue of `mask + 1` places, a power of two.
    ///
    /// # Safety
    /// Nobody writes to `names` until they have been told that these requests are over.
    pub const unsafe fn new(names: &'q [AtomicU64], place: u16, mask: u16) -> Self {
        Self { names, place, mask }
    }

    /// Their names.
    pub const fn names(&self) -> &'q [AtomicU64] {
        self.names
    }

    /// The place of the first.
    pub const fn place(&self) -> u16 {
        self.place
    }

    /// Which bits of a counter are the place.
    pub const fn mask(&self) -> u16 {
        self.mask
    }
}

impl<F: CqeFormat> Ring<F> {
    /// Consumes entries from the next one on as long as they are alike and fit in `to`, up to the ring's end, and writes a record
    /// for each: how many. That may be fewer than there are, or none, by what `cpu` has; the rest is for
    /// [`consume`](Self::consume). The caller publishes [`ci`](Self::ci), or takes some back with [`put_back`](Self::put_back).
    ///
    /// # Errors
    /// [`RingError::ShortMemory`] as [`consume`](Self::consume).
    #[inline(always)]
    pub fn take_alike<R: Record>(
        &mut self,
        mem: &[AtomicU32],
        cpu: Cpu,
        alike: &Alike<'_>,
        names: Names<'_>,
        to: &mut [R],
    ) -> Result<usize, RingError> {
        const { assert!(size_of::<R>() == simd::RECORD) }
        self.check(mem)?;
        let slot = self.ci & self.mask();
        let entries = mem.as_ptr().cast::<u8>().wrapping_add(slot as usize * F::SIZE + F::DESC);
        if !entries.addr().is_multiple_of(64) {
            return Ok(0);
        }
        let queue = match names {
            Names::Sends(queue) | Names::Receives(queue) => queue,
            Names::Shared => InOrder { names: &[], place: 0, mask: 0 },
        };
        let most = to.len().min((self.entries() - slot) as usize);
        let owner = self.ci.wrapping_shr(self.log_size) & 1 != 0;
        let op_own = alike.op_own.with_owner(owner).into_bits();
        let stretch = Stretch {
            entries,
            names: queue.names.as_ptr().cast(),
            to: to.as_mut_ptr().cast(),
            most: if matches!(names, Names::Shared) { most } else { most.min(queue.names.len()) },
            first: First { place: queue.place, mask: queue.mask, op_own },
        };
        // SAFETY: `check` found the memory as long as the ring, so `most` entries lie from the next slot on to its end, `F::SIZE`
        // apart; as many names are there and nobody's to write to (`InOrder::new`), and as many records.
        let taken = unsafe {
            match names {
                Names::Sends(_) => F::take_stretch::<simd::Sends>(cpu, alike, stretch),
                Names::Receives(_) => F::take_stretch::<simd::Receives>(cpu, alike, stretch),
                Names::Shared => F::take_stretch::<simd::Shared>(cpu, alike, stretch),
            }
        };
        self.ci = self.ci.wrapping_add(taken as u32);
        Ok(taken)
    }

    /// The `count` entries that were taken last, and not published, come again.
    #[inline]
    pub fn put_back(&mut self, count: u32) {
        self.ci = self.ci.wrapping_sub(count);
    }

    /// Whether no completion is there just now, or a short memory.
    #[inline(always)]
    pub fn is_empty(&self, mem: &[AtomicU32]) -> bool {
        let words = F::SIZE / 4;
        let tail = mem.get((self.ci & self.mask()) as usize * words + words - 1);
        let lap = self.ci.wrapping_shr(self.log_size);
        !self.kept.is_open() && tail.is_none_or(|tail| !F::is_owned(Be32::from_raw(tail.load(Relaxed)), lap))
    }
}
