//! What the posting side and the polling side of a queue pair share: which requests are outstanding.
//!
//! Everything is an atomic, so one thread may post while another polls. The poster writes a slot and `head`; the poller of
//! the queue's CQ writes `tail` with a release store after it has read the slot, and the poster reads `tail` with an
//! acquire load before it uses the slot again. A completion that comes again or that the device invents finds a slot of
//! the queue, never one outside, and moves `tail` only within what is outstanding.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use spin::Mutex;

use super::Sge;
use super::scatter::Lists;
use crate::error::Error;
use crate::gate::Gate;
use crate::srq::SrqWork;

/// User indices are 24 bits wide; the last one means "none" to the firmware.
const INDICES: u32 = 0xff_ffff;

/// The user indices of a device: each names one queue at a time.
#[derive(Default)]
pub(crate) struct UserIndices(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// Indices from here on were never used.
    fresh: u32,
    /// Indices that came back. Its capacity is at least `fresh`, so giving back allocates nothing.
    returned: Vec<u32>,
}

impl UserIndices {
    fn take(&self) -> Option<u32> {
        let mut free = self.0.lock();
        if let Some(index) = free.returned.pop() {
            return Some(index);
        }
        let index = free.fresh;
        if index >= INDICES {
            return None;
        }
        free.fresh += 1;
        let room = free.fresh as usize;
        free.returned.reserve(room);
        Some(index)
    }

    fn put(&self, index: u32) {
        self.0.lock().returned.push(index);
    }
}

/// A user index; dropping it lets the device's next queue have it.
pub(crate) struct UserIndex {
    index: u32,
    of: Arc<UserIndices>,
}

impl UserIndex {
    /// Takes an index.
    ///
    /// # Errors
    /// `NoMemory` when all of them are in use.
    pub(crate) fn take(of: &Arc<UserIndices>) -> Result<Self, Error> {
        let index = of.take().ok_or(Error::NoMemory)?;
        Ok(Self { index, of: of.clone() })
    }

    /// One that somebody else gives out; `None` if no queue can have it.
    pub(crate) fn given(index: u32) -> Option<Self> {
        let of = UserIndices(Mutex::new(Free { fresh: 0, returned: Vec::with_capacity(1) }));
        (index < INDICES).then(|| Self { index, of: Arc::new(of) })
    }

    pub(crate) fn get(&self) -> u32 {
        self.index
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        self.of.put(self.index);
    }
}

/// The outstanding requests of a send or receive queue.
pub(crate) struct Outstanding {
    /// Number of the CQ that reports this queue.
    cqn: u32,
    slots: Box<[Slot]>,
    /// Where data in completions goes, if the queue allows it.
    lists: Option<Lists>,
    /// Slots minus one.
    mask: u32,
    /// Requests posted so far.
    head: AtomicU32,
    /// Requests known to be over.
    tail: AtomicU32,
}

/// One place in the queue.
#[derive(Default)]
struct Slot {
    wr_id: AtomicU64,
    /// Which post it was.
    ordinal: AtomicU32,
    /// One of the three below: a receive's completion ends it once, and what was never posted has no completion.
    state: AtomicU8,
}

/// Nothing was posted here since the queue was made or reset.
const NEVER: u8 = 0;
/// Posted.
const OPEN: u8 = 1;
/// A receive that was reported.
const OVER: u8 = 2;

impl Outstanding {
    /// For a queue of `slots` places, a power of two, or none. With `lists`, data may lie in its completions.
    pub(crate) fn new(cqn: u32, slots: u32, lists: Option<Lists>) -> Self {
        Self {
            cqn,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            lists,
            mask: slots.saturating_sub(1),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    /// Whether CQ `cqn` reports this queue.
    #[inline]
    pub(crate) fn reported_by(&self, cqn: u32) -> bool {
        self.cqn == cqn
    }

    /// Poster: number of requests outstanding.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        self.head.load(Ordering::Relaxed).wrapping_sub(self.tail.load(Ordering::Acquire))
    }

    /// Where data in completions goes, if the queue allows it.
    #[inline]
    pub(crate) fn lists(&self) -> Option<&Lists> {
        self.lists.as_ref()
    }

    /// Poster: notes a request that starts in place `counter`; with the pieces that its data comes back to, if it does.
    #[inline]
    pub(crate) fn push(&self, counter: u32, wr_id: u64, list: Option<&[Sge]>) {
        if let Some(lists) = &self.lists {
            lists.put(counter, list);
        }
        let head = self.head.load(Ordering::Relaxed);
        if let Some(slot) = self.slots.get((counter & self.mask) as usize) {
            slot.wr_id.store(wr_id, Ordering::Relaxed);
            slot.ordinal.store(head, Ordering::Relaxed);
            slot.state.store(OPEN, Ordering::Relaxed);
        }
        self.head.store(head.wrapping_add(1), Ordering::Relaxed);
    }

    /// Poller: whether a request at `counter` was posted and is not over. Receives end in any order, sends one after the other.
    pub(crate) fn is_outstanding(&self, counter: u16, receive: bool) -> bool {
        let Some(slot) = self.slots.get((u32::from(counter) & self.mask) as usize) else { return false };
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        let behind = slot.ordinal.load(Ordering::Relaxed).wrapping_sub(tail);
        slot.state.load(Ordering::Relaxed) == OPEN && (receive || behind < head.wrapping_sub(tail))
    }

    /// Poller: the request at `counter` is over, and with it all before it (send queues complete in order and report
    /// only some). Its `wr_id`; `None` if none was posted there.
    #[inline]
    pub(crate) fn complete_through(&self, counter: u16) -> Option<u64> {
        let slot = self.slots.get((u32::from(counter) & self.mask) as usize)?;
        if slot.state.load(Ordering::Relaxed) == NEVER {
            return None;
        }
        let wr_id = slot.wr_id.load(Ordering::Relaxed);
        let over = slot.ordinal.load(Ordering::Relaxed).wrapping_add(1);
        let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
        if over.wrapping_sub(tail) <= head.wrapping_sub(tail) {
            self.tail.store(over, Ordering::Release);
        }
        Some(wr_id)
    }

    /// Poller: the one request at `counter` is over (receive queues report each, in any order). Its `wr_id`; `None` if
    /// none was posted there.
    #[inline]
    pub(crate) fn complete_one(&self, counter: u16) -> Option<u64> {
        let slot = self.slots.get((u32::from(counter) & self.mask) as usize)?;
        match slot.state.load(Ordering::Relaxed) {
            NEVER => return None,
            OPEN => {
                slot.state.store(OVER, Ordering::Relaxed);
                let tail = self.tail.load(Ordering::Relaxed);
                self.tail.store(tail.wrapping_add(1), Ordering::Release);
            }
            _ => {}
        }
        Some(slot.wr_id.load(Ordering::Relaxed))
    }

    /// Forgets everything: the queue was reset, and nobody polls or posts.
    pub(crate) fn reset(&self) {
        self.slots.iter().for_each(|slot| slot.state.store(NEVER, Ordering::Relaxed));
        self.head.store(0, Ordering::Relaxed);
        self.tail.store(0, Ordering::Release);
    }
}

/// What a CQ's table holds for a queue pair.
pub(crate) struct QpWork {
    pub(crate) index: UserIndex,
    /// Its protection domain: where data in completions may go.
    pub(crate) pd: u32,
    /// Open while data in completions may go to the memory of its requests.
    pub(crate) copies: Gate,
    pub(crate) send: Outstanding,
    pub(crate) recv: Outstanding,
    /// Where its receives come from, if not from a queue of its own.
    pub(crate) srq: Option<Arc<SrqWork>>,
}

impl QpWork {
    /// Poller: the receive at `counter` is over. Its `wr_id`; `None` if none was posted there.
    #[inline]
    pub(crate) fn complete_receive(&self, counter: u16) -> Option<u64> {
        match &self.srq {
            None => self.recv.complete_one(counter),
            Some(srq) => srq.complete(counter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signalled_completion_ends_the_unsignalled_ones_before_it() {
        let q = Outstanding::new(1, 8, None);
        for (counter, wr_id) in [(0, 10), (2, 11), (4, 12), (5, 13)] {
            q.push(counter, wr_id, None);
        }
        assert_eq!(q.used(), 4);
        assert_eq!(q.complete_through(4), Some(12));
        assert_eq!(q.used(), 1);
    }

    #[test]
    fn receives_are_named_by_counter_not_by_counting() {
        let q = Outstanding::new(1, 4, None);
        for i in 0..4 {
            q.push(i, 10 + u64::from(i), None);
        }
        let order: Vec<_> = [2, 0, 1, 3].iter().filter_map(|c| q.complete_one(*c)).collect();
        assert_eq!(order, [12, 10, 11, 13]);
        assert_eq!(q.used(), 0);
        (0..3).for_each(|i| q.push(i, 20 + u64::from(i), None));
        assert_eq!((q.complete_one(1), q.complete_one(1), q.complete_one(3)), (Some(21), Some(21), Some(13)));
        assert_eq!(q.used(), 2, "repeated and invented ones end nothing");
        q.reset();
        q.push(0, 30, None);
        assert_eq!((q.complete_one(2), q.used()), (None, 1), "what was posted before the reset is forgotten");
    }

    #[test]
    fn counters_beyond_the_queue_are_masked_and_repeats_do_not_move_the_tail() {
        let q = Outstanding::new(1, 4, None);
        q.push(0, 7, None);
        assert_eq!(q.complete_through(0xfffc), Some(7));
        assert_eq!(q.complete_through(0xfffc), Some(7), "repeated");
        assert_eq!((q.complete_one(3), q.complete_through(3)), (None, None), "invented");
        assert_eq!(q.used(), 0);
        q.push(1, 8, None);
        q.push(2, 9, None);
        assert_eq!((q.complete_through(2), q.complete_through(1)), (Some(9), Some(8)));
        assert_eq!(q.used(), 0, "an older one does not move it back");
        assert_eq!(Outstanding::new(1, 0, None).complete_one(5), None);
    }

    #[test]
    fn indices_come_back_and_the_reserved_one_is_never_given() {
        let of = Arc::new(UserIndices::default());
        let a = UserIndex::take(&of).unwrap();
        let b = UserIndex::take(&of).unwrap();
        assert_eq!((a.get(), b.get()), (0, 1));
        drop(a);
        assert_eq!(UserIndex::take(&of).unwrap().get(), 0);
        of.0.lock().fresh = INDICES - 1;
        of.0.lock().returned.clear();
        let last = UserIndex::take(&of).unwrap();
        assert_eq!(last.get(), 0xff_fffe);
        assert_eq!(UserIndex::take(&of).err(), Some(Error::NoMemory));
    }
}
