//! What the one who posts to a shared receive queue and all who poll its completions share: which requests are outstanding.

use alloc::boxed::Box;

use super::free::{Chain, FreeList};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The requests of a shared receive queue. Everything is an atomic: one thread posts, and as many poll as there are CQs.
pub(crate) struct SrqWork {
    slots: Box<[Slot]>,
    free: FreeList,
}

#[derive(Default)]
struct Slot {
    wr_id: AtomicU64,
    state: AtomicU32,
}

/// Nothing was posted here so far.
const NEVER: u32 = 0;
/// Posted.
const OPEN: u32 = 1;
/// Over, and given back.
const OVER: u32 = 2;

impl SrqWork {
    /// For this many places.
    pub(crate) fn new(places: u32) -> Self {
        Self { slots: (0..places).map(|_| Slot::default()).collect(), free: FreeList::new(places) }
    }

    /// Poster: notes the request in a place that it has.
    #[inline]
    pub(crate) fn push(&self, place: u16, wr_id: u64) {
        if let Some(slot) = self.slots.get(usize::from(place)) {
            slot.wr_id.store(wr_id, Ordering::Relaxed);
            slot.state.store(OPEN, Ordering::Release);
        }
    }

    /// Poster: the places that came free.
    #[inline]
    pub(crate) fn take_free(&self) -> impl Iterator<Item = u32> + '_ {
        self.free.take()
    }

    /// Poller: the request at `place` is over, and its place is the poster's again. Its `wr_id`; `None` if none was posted there.
    /// One that comes again gives nothing back.
    #[inline]
    pub(crate) fn complete(&self, place: u16) -> Option<u64> {
        let mut chain = Chain::default();
        let wr_id = self.end(place, &mut chain);
        self.free.give(chain);
        wr_id
    }

    /// Poller: the same, but for the place: [`give`](Self::give) gives the chain back on which it is now.
    #[inline(always)]
    pub(crate) fn end(&self, place: u16, chain: &mut Chain) -> Option<u64> {
        let slot = self.slots.get(usize::from(place))?;
        match slot.state.load(Ordering::Acquire) {
            NEVER => return None,
            // By an exchange, as a device may name the place on two CQs at once: the first who sees it open ends it.
            OPEN if slot.state.swap(OVER, Ordering::AcqRel) == OPEN => self.free.chain(chain, place.into()),
            _ => {}
        }
        // The place is not the poster's yet: the chain is given back later.
        Some(slot.wr_id.load(Ordering::Relaxed))
    }

    /// Poller: gives the places back whose requests have ended.
    #[inline]
    pub(crate) fn give(&self, chain: Chain) {
        self.free.give(chain);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_request_ends_once_and_its_place_comes_back_once() {
        let work = SrqWork::new(4);
        work.push(2, 20);
        work.push(0, 10);
        assert_eq!((work.complete(1), work.complete(4), work.complete(0xffff)), (None, None, None), "invented");
        assert_eq!((work.complete(2), work.complete(2)), (Some(20), Some(20)), "one that comes again");
        assert_eq!(work.take_free().collect::<Vec<_>>(), [2]);
        assert_eq!(work.complete(2), Some(20));
        assert_eq!(work.take_free().count(), 0);
        work.push(2, 21);
        assert_eq!((work.complete(0), work.complete(2)), (Some(10), Some(21)));
        assert_eq!(work.take_free().count(), 2);
    }
}
