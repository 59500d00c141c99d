//! Posting to a shared receive queue.

use alloc::boxed::Box;
use core::sync::atomic::AtomicU32;

use mlx5_hw::dbrec::SrqDbRec;
use mlx5_hw::wqe::{self, SEGMENT};

use super::create::Geometry;
use super::{Srq, SrqWork};
use crate::error::Error;
use crate::qp::post::{check_count, each, posted};
use crate::qp::segments::{Place, Writer, places};
use crate::qp::{PostError, RecvWr};

/// The list of places, as it is in the entries too: requests that are posted, in the order in which the device takes them, then
/// the free places from `head` to `tail`. The place at `tail` stays free, so that each request that is posted knows its next.
pub(super) struct Poster {
    geometry: Geometry,
    /// For each place, the one after it.
    next: Box<[u16]>,
    /// Where the next request goes.
    head: u16,
    /// The last free place.
    tail: u16,
    /// Requests posted so far.
    posted: u16,
}

impl Poster {
    /// All places are free, in their order. `words`: the entries.
    pub(super) fn new(geometry: Geometry, words: &[AtomicU32]) -> Self {
        let last = geometry.entries.wrapping_sub(1) as u16;
        let next: Box<[u16]> = (0..=last).map(|place| place.wrapping_add(1) & last).collect();
        let poster = Self { geometry, next, head: 0, tail: last, posted: 0 };
        for place in 0..=last {
            poster.link(poster.queue(words), place, poster.next(place));
        }
        poster
    }

    fn next(&self, place: u16) -> u16 {
        self.next.get(usize::from(place)).copied().unwrap_or(self.tail)
    }

    /// The entries.
    fn queue<'w>(&self, words: &'w [AtomicU32]) -> &'w [Place] {
        places(words.get(..self.geometry.bytes() / 4).unwrap_or_default())
    }

    /// Writes into an entry which one is after it; what comes behind that.
    #[inline]
    fn link<'w>(&self, queue: &'w [Place], place: u16, next: u16) -> Writer<'w> {
        let segments = self.geometry.stride / SEGMENT;
        let at = usize::from(place) * segments;
        let mut entry = Writer::within(queue.get(at..at + segments).unwrap_or_default());
        entry.put(&wqe::srq_next(next));
        entry
    }

    /// Hangs the places that came free on to the list. Their entries get their links when they are posted.
    #[cold]
    fn collect(&mut self, work: &SrqWork) {
        for place in work.take_free() {
            let place = place as u16;
            if let Some(next) = self.next.get_mut(usize::from(self.tail)) {
                *next = place;
            }
            self.tail = place;
        }
    }

    /// Writes a request into the next free place.
    #[inline]
    fn write(&mut self, queue: &[Place], work: &SrqWork, wr: &RecvWr<'_>) -> Result<(), Error> {
        check_count(wr.sg_list, self.geometry.stride / SEGMENT - 1)?;
        if self.head == self.tail {
            self.collect(work);
            if self.head == self.tail {
                return Err(Error::NoMemory);
            }
        }
        let (place, next) = (self.head, self.next(self.head));
        // The link too: the device can write to what was there.
        self.link(queue, place, next).scatter(wr.sg_list)?;
        work.push(place, wr.wr_id);
        self.head = next;
        self.posted = self.posted.wrapping_add(1);
        Ok(())
    }
}

impl Srq {
    /// Posts receive requests, in order (`ibv_post_srq_recv(3)`). The device is told once, after the last of them. Which queue pair
    /// takes a request is told by its completion.
    ///
    /// # Errors
    /// The first request that cannot be posted, and why; the ones before it are posted. `NoMemory` (ENOMEM) when the queue is
    /// full; `Invalid` (EINVAL) for more pieces than the queue was created for, and a piece of 2^31 bytes or more.
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let Self { shared, poster, .. } = self;
        let words = shared.mem.words();
        let queue = poster.queue(words);
        let result = each(wrs, |wr| poster.write(queue, &shared.work, wr));
        if posted(wrs, &result) != 0
            && let Some(record) = words.get(poster.geometry.bytes() / 4..).and_then(SrqDbRec::first_of)
        {
            record.set_posted(poster.posted);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::sync::atomic::Ordering;

    use super::*;

    /// More requests than the counter's 16 bits count, which end in any order; the links are followed as the device does.
    #[test]
    fn the_counter_goes_round_and_the_list_stays_whole() {
        let geometry = Geometry { stride: 32, entries: 8 };
        let words: Box<[AtomicU32]> = (0..geometry.bytes() / 4).map(|_| AtomicU32::new(0)).collect();
        let (work, mut poster) = (SrqWork::new(8), Poster::new(geometry, &words));
        let (mut open, mut next, mut posted) = (Vec::<(u16, u64)>::new(), 0_u16, 0_u64);
        while posted < 70_000 {
            while poster.write(poster.queue(&words), &work, &RecvWr { wr_id: posted, sg_list: &[] }).is_ok() {
                assert!(open.iter().all(|(place, _)| *place != next), "{next} is posted twice");
                open.push((next, posted));
                posted += 1;
                assert_eq!(poster.posted, posted as u16);
                let link = words[usize::from(next) * 8].load(Ordering::Relaxed);
                next = u16::try_from(u32::from_be_bytes(link.to_ne_bytes())).unwrap();
            }
            assert_eq!(open.len(), 7);
            for n in 0..1 + posted % 7 {
                let (place, wr_id) = open.swap_remove((posted * 5 + n * 3) as usize % open.len());
                assert_eq!(work.complete(place), Some(wr_id));
            }
        }
    }
}
