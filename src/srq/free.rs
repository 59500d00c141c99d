//! The places of a shared receive queue that are free again: any number of pollers give places back, one poster takes them.
//!
//! # Protocol
//!
//! A stack in one word and a link for each place. A poller links the places of a batch and then, by one compare and exchange, puts
//! them on top; the poster takes the whole stack by one exchange. Nobody takes single places, so a top that was seen
//! and is there again is still the top of the same stack (no ABA), and there is no lock: a poller tries again only when
//! another place was given back meanwhile.
//!
//! **What is seen.** Giving back releases and taking acquires: what the poller read of the place's request was read before the
//! poster writes there again. Each exchange goes on from the one before, so the poster's one acquiring load covers all of them.
//!
//! **A place is given back once** for each time it was taken: [`SrqWork`](super::SrqWork) sees to that, whatever the device names.

use alloc::boxed::Box;

use crate::sync::{AtomicU32, Ordering};

/// Behind the last place.
const END: u32 = u32::MAX;

/// Places that a poller is about to give back, linked as they will be.
pub(crate) struct Chain {
    top: u32,
    bottom: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { top: END, bottom: END }
    }
}

/// Places given back and not yet taken.
pub(crate) struct FreeList {
    top: AtomicU32,
    links: Box<[AtomicU32]>,
}

impl FreeList {
    /// An empty list for this many places.
    pub(crate) fn new(places: u32) -> Self {
        Self { top: AtomicU32::new(END), links: (0..places).map(|_| AtomicU32::new(END)).collect() }
    }

    /// Poller: puts a place on a chain of its own. One that does not exist is not taken.
    #[inline(always)]
    pub(crate) fn chain(&self, chain: &mut Chain, place: u32) {
        let Some(link) = self.links.get(place as usize) else { return };
        link.store(chain.top, Ordering::Relaxed);
        if chain.top == END {
            chain.bottom = place;
        }
        chain.top = place;
    }

    /// Poller: gives a chain of places back.
    #[inline]
    pub(crate) fn give(&self, chain: Chain) {
        let Some(link) = self.links.get(chain.bottom as usize) else { return };
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            link.store(top, Ordering::Relaxed);
            match self.top.compare_exchange(top, chain.top, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    /// Poster: takes all places that were given back, in no particular order.
    #[inline]
    pub(crate) fn take(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.top.swap(END, Ordering::Acquire);
        core::iter::from_fn(move || {
            let place = at;
            at = self.links.get(place as usize)?.load(Ordering::Relaxed);
            Some(place)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn taken(list: &FreeList) -> Vec<u32> {
        let mut all: Vec<u32> = list.take().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn what_is_given_back_is_taken_once() {
        let list = FreeList::new(8);
        assert!(taken(&list).is_empty());
        let give = |places: &[u32]| {
            let mut chain = Chain::default();
            places.iter().for_each(|place| list.chain(&mut chain, *place));
            list.give(chain);
        };
        give(&[3, 0]);
        give(&[]);
        give(&[7, 8]);
        assert_eq!(taken(&list), [0, 3, 7]);
        assert!(taken(&list).is_empty());
        give(&[3]);
        assert_eq!(taken(&list), [3]);
        assert_eq!(FreeList::new(0).take().count(), 0);
    }
}
