//! Reading a batch of entries.

use super::formats::sealed::Kept;
use super::{CqeFormat, Eqe64, Format, Ring};
use crate::arch::dma_rmb;
use crate::be::Be32;
use crate::cqe::{CqeRef, OpOwn};
use crate::dbrec::CqDbRec;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Reads entries in order. Dropping it makes the ring's `ci` what was consumed, and publishes that if it was
/// [told where](Ring::consume_to); else the caller does so.
///
/// It returns at most as many entries as the ring has slots. Forgetting it ([`abandon`](Self::abandon)) leaves the
/// ring as it was: the entries come again.
///
/// Completions are to be read before it is dropped: that may stamp their slots.
#[derive(Debug)]
pub struct Consumer<'m, F: Format> {
    /// The ring's own index.
    home: &'m mut u32,
    /// What is known of sessions.
    pub(super) sessions: <F::Kept as Kept>::Batch<'m>,
    /// At least `mask + 1` slots long.
    pub(super) mem: &'m [AtomicU32],
    pub(super) ci: u32,
    pub(super) start: u32,
    pub(super) end: u32,
    log_size: u32,
    pub(super) mask: u32,
    record: Option<CqDbRec<'m>>,
}

impl<'m, F: Format> Consumer<'m, F> {
    /// A batch; `mem` was [checked](Ring::check).
    #[inline]
    pub(super) fn new(ring: &'m mut Ring<F>, mem: &'m [AtomicU32], record: Option<CqDbRec<'m>>) -> Self {
        let (start, log_size, mask) = (ring.ci, ring.log_size, ring.mask());
        let end = start.wrapping_add(ring.entries());
        let sessions = ring.kept.begin(start);
        Self { home: &mut ring.ci, sessions, mem, ci: start, start, end, log_size, mask, record }
    }

    /// Number of entries consumed so far, those of this batch included, modulo 2^32.
    #[inline]
    pub const fn ci(&self) -> u32 {
        self.ci
    }

    /// Number of slots taken in this batch.
    #[inline]
    pub const fn taken(&self) -> u32 {
        self.ci.wrapping_sub(self.start)
    }

    /// Number of the lap, of which the lowest bit is the owner bit of entries that are there, and the blocks of 64 bytes from the next
    /// slot on, as far as the batch goes on in this lap. The last of each slot is its descriptor.
    #[inline(always)]
    pub fn ahead(&self) -> (u32, &'m [[AtomicU32; 16]]) {
        let blocks = F::SIZE / 64;
        let slot = self.ci & self.mask;
        let count = (self.mask + 1 - slot).min(self.end.wrapping_sub(self.ci)) as usize;
        let behind = self.mem.as_chunks().0.get(slot as usize * blocks..).unwrap_or_default();
        (self.lap(self.ci), behind.get(..count * blocks).unwrap_or_default())
    }

    /// The next `count` slots are consumed, of which the caller has read the entries [`ahead`](Self::ahead) on its own.
    #[inline(always)]
    pub fn skip(&mut self, count: u32) {
        self.ci = self.ci.wrapping_add(count.min(self.end.wrapping_sub(self.ci)));
    }

    /// The entry that was taken last, which is whole and not of a session, comes again. To end a batch before it.
    #[inline]
    pub fn put_back(&mut self) {
        if self.ci != self.start {
            self.ci = self.ci.wrapping_sub(1);
        }
    }

    /// Ends the batch as if nothing of it had been taken: its entries come again. To look ahead without consuming.
    #[inline]
    pub fn abandon(self) {
        core::mem::forget(self);
    }

    /// Lap in which index `ci` is reached.
    #[inline(always)]
    pub(super) const fn lap(&self, ci: u32) -> u32 {
        ci.wrapping_shr(self.log_size)
    }

    /// The 64 bytes from byte `from` on, at most `F::DESC`, of the slot of index `ci`.
    #[inline(always)]
    fn block(&self, ci: u32, from: usize) -> &'m [AtomicU32; 16] {
        let slot = (ci & self.mask) as usize;
        let at = slot * (F::SIZE / 4) + from.min(F::DESC) / 4;
        // SAFETY: `Ring::check` found that `mem` has `mask + 1` slots of `F::SIZE` bytes; `slot` is at most `mask`, and the 16
        // dwords from `F::DESC` or before on lie within a slot. The reference is to atomics and lives as long as the borrow
        // of `mem`.
        unsafe { &*self.mem.as_ptr().add(at).cast::<[AtomicU32; 16]>() }
    }

    /// The descriptor in the slot of index `ci`.
    #[inline(always)]
    pub(super) fn descriptor(&self, ci: u32) -> &'m [AtomicU32; 16] {
        self.block(ci, F::DESC)
    }

    /// Takes the next slot if it is software's: its descriptor and the last dword by which that was decided.
    #[inline(always)]
    fn take(&mut self) -> Option<(&'m [AtomicU32; 16], Be32)> {
        if self.ci == self.end {
            return None;
        }
        let words = self.descriptor(self.ci);
        let tail = Be32::from_raw(words[15].load(Relaxed));
        if !F::is_owned(tail, self.lap(self.ci)) {
            return None;
        }
        dma_rmb();
        self.ci = self.ci.wrapping_add(1);
        Some((words, tail))
    }

    /// Takes the next slot as a completion entry, whatever it holds.
    #[inline(always)]
    pub(super) fn take_entry(&mut self) -> Option<CqeRef<'m>> {
        let (words, tail) = self.take()?;
        let front = (F::DESC != 0).then(|| self.block(self.ci.wrapping_sub(1), 0));
        Some(CqeRef::of_slot(words, front, OpOwn::from_bits(tail.get() as u8)))
    }
}

impl<'m, F: CqeFormat> Consumer<'m, F> {
    /// Takes the next completion, or `None` if there is none (or a whole ring was taken). A session gives one after
    /// the other.
    ///
    /// An entry with the format [`COMPRESSED`](crate::cqe::CqeDataFormat::COMPRESSED) is one of a ring without
    /// sessions, or starts a session that no device writes: it stands for no completion, and polling goes on behind
    /// it.
    #[expect(clippy::should_implement_trait, reason = "an iterator's adapters would hide when the batch ends")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<CqeRef<'m>> {
        F::take(self)
    }
}

impl Consumer<'_, Eqe64> {
    /// Takes the next event, copied out of the ring, or `None` if there is none (or a whole ring was taken).
    #[expect(clippy::should_implement_trait, reason = "an iterator's adapters would hide when the batch ends")]
    pub fn next(&mut self) -> Option<[Be32; 16]> {
        let (words, _) = self.take()?;
        Some(core::array::from_fn(|i| Be32::from_raw(words[i].load(Relaxed))))
    }
}

impl<F: Format> Drop for Consumer<'_, F> {
    #[inline]
    fn drop(&mut self) {
        // What is still needed is copied and what must be is stamped before the slots are the device's again.
        F::commit(self);
        *self.home = self.ci;
        if let Some(record) = self.record
            && self.taken() != 0
        {
            record.set_consumer(self.ci);
        }
    }
}
