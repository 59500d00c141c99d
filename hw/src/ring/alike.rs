//! Taking many entries that are alike at once.
//!
//! Most entries of a batch are like the one before: of the same queue, for a request of the same kind, the next one of the queue.
//! So one look at what differs suffices for each, and its record can be put together by moving bytes. What is not alike is left
//! for [`Consumer::next`](super::Consumer::next).

use core::sync::atomic::AtomicU64;

use super::formats::sealed::Kept;
use super::{CqeFormat, Ring};
use crate::be::Be32;
use crate::cqe::{CqeRef, OpOwn};
use crate::simd::{self, Cpu, First, Recipe, Record, Takers};
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// What entries have in common, and how a record is made of each.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(all(target_arch = "x86_64", target_feature = "sse2")),
    expect(dead_code, reason = "read by byte shuffles alone")
)]
pub struct Alike<'r> {
    /// The last byte; the owner bit, which is 0 here, is the lap's.
    pub(crate) op_own: u8,
    /// Dword 8, as in memory: user index.
    pub(crate) user_index: u32,
    /// Dword 14 of sends, as in memory: opcode of the request, queue number.
    pub(crate) request: u32,
    /// What the recipe makes of bytes 36 to 39, in CPU byte order, and what stands there instead in the end.
    pub(crate) headers: u32,
    pub(crate) flags: u32,
    pub(crate) recipe: &'r Recipe,
    /// What takes many of them, if the processor has it.
    takers: Option<Takers>,
    pub(super) stride: usize,
    /// Number of requests that may be taken without their names.
    pub(super) unnamed: usize,
}

/// In which order the requests of a queue end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Sends, in the order of their queue.
    Sends,
    /// Receives, in the order of their queue.
    Receives,
    /// Receives of a shared queue, in any order: a record's name will be the counter.
    Shared,
}

impl<'r> Alike<'r> {
    /// Entries of format `F` like `cqe`, of which `recipe` makes records: bytes 36 to 39 are `headers` (in CPU byte order) and
    /// become `flags`.
    pub fn new<F: CqeFormat>(
        cpu: Cpu,
        order: Order,
        cqe: CqeRef<'_>,
        recipe: &'r Recipe,
        headers: u32,
        flags: u32,
    ) -> Self {
        let takers = match order {
            Order::Sends => F::takers::<simd::Sends>(cpu),
            Order::Receives => F::takers::<simd::Receives>(cpu),
            Order::Shared => F::takers::<simd::Shared>(cpu),
        };
        let unnamed = if order == Order::Shared { usize::MAX } else { 0 };
        let op_own = cqe.op_own().with_owner(false).into_bits();
        let (user_index, request) = (cqe.dword::<8>().to_raw(), cqe.dword::<14>().to_raw());
        Self { op_own, user_index, request, headers, flags, recipe, takers, stride: F::SIZE, unnamed }
    }

    /// The last byte; the owner bit is the lap's.
    #[inline]
    pub const fn op_own(&self) -> OpOwn {
        OpOwn::from_bits(self.op_own)
    }

    /// Dword 8: user index.
    #[inline]
    pub const fn user_index(&self) -> Be32 {
        Be32::from_raw(self.user_index)
    }

    /// Dword 14, which is the same for sends only: opcode of the request, queue number.
    #[inline]
    pub const fn request(&self) -> Be32 {
        Be32::from_raw(self.request)
    }

    /// Whether [`Ring::take_alike`] can do anything.
    #[inline]
    pub const fn are_taken(&self) -> bool {
        self.takers.is_some()
    }
}

/// The next requests of a queue.
#[derive(Clone, Copy, Debug)]
pub struct InOrder<'q> {
    pub(super) names: &'q [AtomicU64],
    pub(super) place: u16,
    pub(super) mask: u16,
    pub(super) count: usize,
}

impl<'q> InOrder<'q> {
    /// The `count` requests of a queue from `place` on: `names` are those of all of its `mask + 1` places, a power of two.
    ///
    /// # Safety
    /// The names of the requests lie behind each other in `names`, and nobody writes to them until they have been told that the
    /// requests are over.
    #[inline(always)]
    pub const unsafe fn new(names: &'q [AtomicU64], place: u16, mask: u16, count: usize) -> Self {
        Self { names, place, mask, count }
    }

    /// For requests that end in any order.
    pub const NONE: InOrder<'static> = InOrder { names: &[], place: 0, mask: 0, count: 0 };

    /// Where the first name is.
    #[inline(always)]
    fn first(&self) -> *const u64 {
        self.names.as_ptr().wrapping_add(self.place.into()).cast()
    }

    /// Those behind the next `taken`, at most as many as there are.
    #[inline(always)]
    fn skip(&mut self, taken: usize) {
        self.place = self.place.wrapping_add(taken as u16);
        self.count = self.count.saturating_sub(taken);
    }

    /// Number of requests.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Their names.
    pub fn names(&self) -> &'q [AtomicU64] {
        self.names.get(usize::from(self.place)..).and_then(|names| names.get(..self.count)).unwrap_or_default()
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
    /// for each: how many. That may be fewer than there are; the rest is for [`consume`](Self::consume). `next` are the requests
    /// that end next, [`NONE`](InOrder::NONE) for [`Order::Shared`]. The caller publishes [`ci`](Self::ci), or takes some back with
    /// [`put_back`](Self::put_back).
    #[inline(always)]
    pub fn take_alike<R: Record>(
        &mut self,
        mem: &[AtomicU32],
        alike: &Alike<'_>,
        mut next: InOrder<'_>,
        to: &mut [R],
    ) -> usize {
        let mut taken = if to.len() < simd::FEW { 0 } else { self.take_many(mem, alike, next, to) };
        next.skip(taken);
        for record in to.iter_mut().skip(taken).take(simd::FEW - 1) {
            if !self.take_one_alike(mem, alike, next, record) {
                break;
            }
            next.skip(1);
            taken += 1;
        }
        taken
    }

    /// Takes as many as can be looked at together.
    #[inline(always)]
    fn take_many<R: Record>(&mut self, mem: &[AtomicU32], alike: &Alike<'_>, next: InOrder<'_>, to: &mut [R]) -> usize {
        let slot = self.ci & self.mask();
        let entries = mem.as_ptr().cast::<u8>().wrapping_add(slot as usize * F::SIZE + F::DESC);
        let words = (F::SIZE / 4) << self.log_size;
        let Some(takers) = alike.takers else { return 0 };
        if mem.len() < words || !entries.addr().is_multiple_of(64) || alike.stride != F::SIZE {
            return 0;
        }
        let most = to.len().min((self.entries() - slot) as usize).min(next.count | alike.unnamed);
        // SAFETY: the memory is as long as the ring, so `most` entries lie from the next slot on to its end, `F::SIZE` apart, which
        // is what the takers are for; as many names are there and nobody's to write to (`InOrder::new`), and as many records.
        let taken = unsafe { (takers.many)(alike, entries, next.first(), R::bytes(to), most, self.first(alike, next)) };
        self.ci = self.ci.wrapping_add(taken as u32);
        taken
    }

    /// The same for one entry; whether it was taken.
    #[inline(always)]
    pub fn take_one_alike<R: Record>(
        &mut self,
        mem: &[AtomicU32],
        alike: &Alike<'_>,
        next: InOrder<'_>,
        to: &mut R,
    ) -> bool {
        let at = (self.ci & self.mask()) as usize * (F::SIZE / 4) + F::DESC / 4;
        let Some(takers) = alike.takers else { return false };
        let Some(entry) = mem.get(at + 15).map(|_| mem.as_ptr().wrapping_add(at).cast::<u8>()) else { return false };
        if next.count | alike.unnamed == 0 || !entry.addr().is_multiple_of(64) || alike.stride != F::SIZE {
            return false;
        }
        let to = R::bytes(core::slice::from_mut(to));
        // SAFETY: the entry's last dword lies in the memory; its name is there and nobody's to write to (`InOrder::new`), and its record.
        let taken = unsafe { (takers.one)(alike, entry, next.first(), to, self.first(alike, next)) };
        self.ci = self.ci.wrapping_add(taken.into());
        taken
    }

    /// What the next entry has of its own, if it is alike.
    #[inline(always)]
    fn first(&self, alike: &Alike<'_>, next: InOrder<'_>) -> First {
        let owner = (self.ci.wrapping_shr(self.log_size) & 1) as u8;
        First { place: next.place, mask: next.mask, op_own: alike.op_own | owner }
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
