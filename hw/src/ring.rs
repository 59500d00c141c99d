//! Who owns which slot of a completion or event queue.
//!
//! # Protocol
//!
//! A ring has `2^log_size` slots. The device writes entries in order, software reads them in order; neither asks the
//! other for each entry. Software counts what it has consumed in `ci`, a free-running 32-bit number: `ci` modulo the
//! number of slots is the next slot, and the bit of `ci` just above that, the *lap bit*, says whether the lap is odd.
//! The device writes the lap bit of its own lap into the owner bit of each entry. So the next slot holds a new entry
//! exactly when its owner bit equals the lap bit of `ci`: one lap behind, the bit is the other one.
//!
//! Before the first lap no entry may look like one. Completion rings are stamped with opcode 15 (`op_own` 0xf0), which no
//! entry has; event rings with owner bit 1, which lap 0 does not have. [`Ring::init_memory`] does that, before the
//! command that gives the ring to the device.
//!
//! Software tells the device what it has consumed by writing the low 24 bits of `ci` to a doorbell record or register.
//! Until then the device leaves the entries alone, so whole batches are read before one such write. The largest ring
//! has 2^24 slots; its lap bit is bit 24, which the device's 24-bit copy lacks but software's has. Wrapping of `ci` at
//! 2^32 changes nothing, since 2^32 is a whole, even number of laps of every ring size.
//!
//! # Memory order
//!
//! The device writes an entry's owner byte last. The reader mirrors it: it loads the last dword of the entry (one
//! relaxed load), decides, and only then, behind [`dma_rmb`], loads the rest. Bytes that came with the deciding load
//! are not used but for the owner byte itself: `wqe_counter`, in the same dword, is loaded again. The other direction, giving
//! entries back, has its barrier in [`CqDbRec::set_consumer`](crate::dbrec::CqDbRec::set_consumer).
//!
//! Every access is a relaxed atomic load, so an entry that the device overwrites while it is read (a device that breaks the
//! protocol, or a CQ that ignores overrun) gives wrong values but no undefined behaviour.
//!
//! # Bounds
//!
//! The device is not trusted to stop: one [`Consumer`] returns at most as many entries as the ring has slots, which
//! is all that an honest device can have written before the consumer index moves. The memory's length is checked once, when
//! the consumer is made; a slot is `ci` masked to the ring's size, so no bytes in the ring lead out of it. This
//! is the only place with `unsafe`, for the slot's address.
//!
//! # State without memory
//!
//! [`Ring`] holds the counter, not the memory, which its owner keeps (and may exchange, when a CQ is resized). What kind of entry it
//! has is a type parameter, [`Format`]; more formats are further implementations.

use core::marker::PhantomData;

use crate::arch::dma_rmb;
use crate::be::Be32;
use crate::cqe::{CqeRef, OpOwn};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Largest `log2` of a ring's number of slots.
pub const MAX_LOG_SIZE: u32 = 24;

mod sealed {
    pub trait Sealed {}
}

/// A kind of ring entry.
pub trait Format: sealed::Sealed {
    /// Size of an entry in bytes, a multiple of 64.
    const SIZE: usize;
    /// Offset of the 64-byte descriptor in an entry, in bytes.
    const DESC: usize;
    /// Last dword of a descriptor that is no entry yet: how a ring is initialised.
    const VACANT: u32;

    /// Whether the descriptor with last dword `tail` is software's in lap number `lap`, of which the lowest bit is the lap bit.
    fn is_owned(tail: Be32, lap: u32) -> bool;
}

/// A kind of completion queue entry.
pub trait CqeFormat: Format {
    /// The kind in a CQ context (PRM `cqc.cqe_sz`): 0 for 64 bytes, 1 for 128.
    const CQE_SZ: u32;
}

/// 64-byte completion entries.
#[derive(Debug)]
pub enum Cqe64 {}

/// 128-byte completion entries: 64 bytes for inlined data, then the descriptor.
#[derive(Debug)]
pub enum Cqe128 {}

/// 64-byte event entries.
#[derive(Debug)]
pub enum Eqe64 {}

macro_rules! cqe_format {
    ($name:ident, $size:literal, $cqe_sz:literal) => {
        impl sealed::Sealed for $name {}

        impl Format for $name {
            const SIZE: usize = $size;
            const DESC: usize = $size - 64;
            const VACANT: u32 = 0xf0;

            #[inline(always)]
            fn is_owned(tail: Be32, lap: u32) -> bool {
                let op_own = tail.get() as u8;
                op_own < 0xf0 && (op_own ^ lap as u8) & 1 == 0
            }
        }

        impl CqeFormat for $name {
            const CQE_SZ: u32 = $cqe_sz;
        }
    };
}
cqe_format!(Cqe64, 64, 0);
cqe_format!(Cqe128, 128, 1);

impl sealed::Sealed for Eqe64 {}

impl Format for Eqe64 {
    const SIZE: usize = 64;
    const DESC: usize = 0;
    const VACANT: u32 = 1;

    #[inline(always)]
    fn is_owned(tail: Be32, lap: u32) -> bool {
        (tail.get() ^ lap) & 1 == 0
    }
}

/// Why a ring could not be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The ring would have more than 2^24 slots.
    TooLarge,
    /// The memory is shorter than the ring.
    ShortMemory,
}

/// State of one ring: its size and how much of it is consumed.
#[derive(Debug)]
pub struct Ring<F> {
    ci: u32,
    log_size: u32,
    format: PhantomData<F>,
}

/// The ring of an event queue.
pub type EqRing = Ring<Eqe64>;

impl<F: Format> Ring<F> {
    /// A fresh ring of `2^log_size` slots.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] beyond [`MAX_LOG_SIZE`].
    pub const fn new(log_size: u32) -> Result<Self, RingError> {
        Self::with_ci(log_size, 0)
    }

    /// A ring of which `ci` entries are consumed: to go on with a ring that somebody else has read so far, or to look ahead
    /// in one without consuming.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] beyond [`MAX_LOG_SIZE`].
    pub const fn with_ci(log_size: u32, ci: u32) -> Result<Self, RingError> {
        if log_size > MAX_LOG_SIZE {
            return Err(RingError::TooLarge);
        }
        Ok(Self { ci, log_size, format: PhantomData })
    }

    /// Number of entries consumed so far, modulo 2^32. Doorbells take its low 24 bits.
    #[inline]
    pub const fn ci(&self) -> u32 {
        self.ci
    }

    /// `log2` of the number of slots.
    #[inline]
    pub const fn log_size(&self) -> u32 {
        self.log_size
    }

    /// Number of slots.
    #[inline]
    pub const fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// Number of slots minus one: what turns `ci` into a slot.
    #[inline]
    pub const fn mask(&self) -> u32 {
        self.entries() - 1
    }

    /// Bytes of memory that the ring takes.
    #[inline]
    pub const fn bytes(&self) -> usize {
        F::SIZE << self.log_size
    }

    /// Stamps every slot of `mem` as vacant. To be done before the device gets the ring; other bytes are left alone.
    pub fn init_memory(mem: &[AtomicU32]) {
        let tails = mem.chunks_exact(F::SIZE / 4).filter_map(|slot| slot.last());
        for tail in tails {
            tail.store(Be32::new(F::VACANT).to_raw(), Relaxed);
        }
    }

    /// Starts reading a batch of entries from the ring's memory.
    ///
    /// # Errors
    /// [`RingError::ShortMemory`] if `mem` is shorter than [`bytes`](Self::bytes). What lies beyond is not touched.
    #[inline]
    pub fn consume<'m>(&'m mut self, mem: &'m [AtomicU32]) -> Result<Consumer<'m, F>, RingError> {
        if mem.len() < self.bytes() / 4 {
            return Err(RingError::ShortMemory);
        }
        let (start, log_size, mask) = (self.ci, self.log_size, self.mask());
        let end = start.wrapping_add(self.entries());
        Ok(Consumer { ring: self, mem, ci: start, start, end, log_size, mask })
    }
}

/// Reads entries in order. Dropping it makes the ring's `ci` what was consumed; the caller then publishes that.
///
/// It returns at most as many entries as the ring has slots. Forgetting it ([`core::mem::forget`]) leaves `ci` as it was:
/// the entries come again.
#[derive(Debug)]
pub struct Consumer<'m, F: Format> {
    ring: &'m mut Ring<F>,
    /// At least `mask + 1` slots long.
    mem: &'m [AtomicU32],
    ci: u32,
    start: u32,
    end: u32,
    log_size: u32,
    mask: u32,
}

impl<'m, F: Format> Consumer<'m, F> {
    /// Number of entries consumed so far, those of this batch included, modulo 2^32.
    #[inline]
    pub const fn ci(&self) -> u32 {
        self.ci
    }

    /// Number of entries taken in this batch.
    #[inline]
    pub const fn taken(&self) -> u32 {
        self.ci.wrapping_sub(self.start)
    }

    /// The 64 bytes from byte `from` on, at most `F::DESC`, of slot `ci`.
    #[inline(always)]
    fn block(&self, ci: u32, from: usize) -> &'m [AtomicU32; 16] {
        let slot = (ci & self.mask) as usize;
        let at = slot * (F::SIZE / 4) + from.min(F::DESC) / 4;
        // SAFETY: `consume` checked that `mem` has `mask + 1` slots of `F::SIZE` bytes; `slot` is at most `mask`, and the 16
        // dwords from `F::DESC` or before on lie within a slot. The reference is to atomics and lives as long as the borrow
        // of `mem`.
        unsafe { &*self.mem.as_ptr().add(at).cast::<[AtomicU32; 16]>() }
    }

    /// Takes the next slot if it is software's: its descriptor and the last dword by which that was decided.
    #[inline(always)]
    fn take(&mut self) -> Option<(&'m [AtomicU32; 16], Be32)> {
        if self.ci == self.end {
            return None;
        }
        let words = self.block(self.ci, F::DESC);
        let tail = Be32::from_raw(words[15].load(Relaxed));
        if !F::is_owned(tail, self.ci.wrapping_shr(self.log_size)) {
            return None;
        }
        dma_rmb();
        self.ci = self.ci.wrapping_add(1);
        Some((words, tail))
    }
}

impl<'m, F: CqeFormat> Consumer<'m, F> {
    /// Takes the next completion, or `None` if there is none (or a whole ring was taken).
    ///
    /// The entry stays readable until a consumer index beyond it is published.
    #[expect(clippy::should_implement_trait, reason = "an iterator's adapters would hide when the batch ends")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<CqeRef<'m>> {
        let (words, tail) = self.take()?;
        let front = (F::DESC != 0).then(|| self.block(self.ci.wrapping_sub(1), 0));
        Some(CqeRef::of_slot(words, front, OpOwn::from_bits(tail.get() as u8)))
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
        self.ring.ci = self.ci;
    }
}
