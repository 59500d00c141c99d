//! What the posting side and the polling side of a queue pair share: which requests are outstanding.
//!
//! Everything is an atomic, so one thread may post while another polls. The poster writes a place and then `head`, with a
//! release store that the poller's acquire load meets; the poller writes `tail` with a release store after it has read the
//! place, and the poster reads `tail` with an acquire load before it uses the place again. A completion that comes again or
//! that the device invents finds a place of the queue, never one outside, and moves `tail` only within what is outstanding.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use mlx5_hw::ring::InOrder;
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
///
/// A request is named by the place in the queue at which it starts. Places are used and come free in order, so those from
/// `tail` on, as many as `head - tail`, are the device's; a completion ends the request in its place. A send ends all before it
/// as well, since only some are reported. A receive ends alone: one that does so ahead of older ones leaves a mark and keeps its
/// place until they are over too, as the entries of the queue are used again in their order.
#[repr(align(64))]
pub(crate) struct Outstanding {
    /// Number of the CQ that reports this queue.
    cqn: u32,
    /// For each place, the name of the request that starts there.
    wr_ids: Box<[AtomicU64]>,
    /// For each place, how many places the request takes that starts there, or 0 where none does; with [`AHEAD`].
    spans: Box<[AtomicU8]>,
    /// For each place, which post the request was that starts there. The poster's.
    posts: Box<[AtomicU32]>,
    /// Where data in completions goes, if the queue allows it.
    lists: Option<Lists>,
    /// Places minus one.
    mask: u32,
    /// Requests posted so far. The poster's.
    posted: AtomicU32,
    /// Places posted so far.
    head: AtomicU32,
    /// Places free again so far.
    tail: AtomicU32,
    /// Marks: receives that ended ahead of older ones. The poller's.
    ahead: AtomicU32,
    /// A request that takes several places was posted.
    wide: AtomicBool,
}

/// Mark of a receive that is over while older ones are not.
const AHEAD: u8 = 1 << 7;

impl Outstanding {
    /// For a queue of `places` places, a power of two, or none. With `lists`, data may lie in its completions.
    pub(crate) fn new(cqn: u32, places: u32, lists: Option<Lists>) -> Self {
        Self {
            cqn,
            wr_ids: (0..places).map(|_| AtomicU64::default()).collect(),
            spans: (0..places).map(|_| AtomicU8::default()).collect(),
            posts: (0..places).map(|_| AtomicU32::default()).collect(),
            lists,
            mask: places.saturating_sub(1),
            posted: AtomicU32::new(0),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            ahead: AtomicU32::new(0),
            wide: AtomicBool::new(false),
        }
    }

    /// Whether CQ `cqn` reports this queue.
    #[inline]
    pub(crate) fn reported_by(&self, cqn: u32) -> bool {
        self.cqn == cqn
    }

    /// Poster: number of requests whose places are not free.
    #[inline]
    pub(crate) fn used(&self) -> u32 {
        let tail = self.tail.load(Ordering::Acquire);
        if tail == self.head.load(Ordering::Relaxed) {
            return 0;
        }
        let oldest = self.posts.get((tail & self.mask) as usize).map_or(0, |post| post.load(Ordering::Relaxed));
        self.posted.load(Ordering::Relaxed).wrapping_sub(oldest)
    }

    /// Where data in completions goes, if the queue allows it.
    #[inline]
    pub(crate) fn lists(&self) -> Option<&Lists> {
        self.lists.as_ref()
    }

    /// Poster: notes a request in the next `span` places, 1 to 127; with the pieces that its data comes back to, if it does.
    #[inline]
    pub(crate) fn push(&self, span: u8, wr_id: u64, list: Option<&[Sge]>) {
        let head = self.head.load(Ordering::Relaxed);
        if let Some(lists) = &self.lists {
            lists.put(head, list);
        }
        let place = (head & self.mask) as usize;
        let posted = self.posted.load(Ordering::Relaxed);
        if let (Some(name), Some(post), Some(first)) =
            (self.wr_ids.get(place), self.posts.get(place), self.spans.get(place))
        {
            name.store(wr_id, Ordering::Relaxed);
            post.store(posted, Ordering::Relaxed);
            first.store(span, Ordering::Relaxed);
        }
        if span > 1 {
            self.wide.store(true, Ordering::Relaxed);
        }
        for behind in 1..u32::from(span) {
            if let Some(covered) = self.spans.get((head.wrapping_add(behind) & self.mask) as usize) {
                covered.store(0, Ordering::Relaxed);
            }
        }
        self.posted.store(posted.wrapping_add(1), Ordering::Relaxed);
        // The poller that sees the places as posted sees what they hold.
        self.head.store(head.wrapping_add(span.into()), Ordering::Release);
    }

    /// Poster: the next `count` requests of one place each, or as many as there is room for, with the names that their places have
    /// from earlier ones.
    pub(crate) fn post_again(&self, count: u32) {
        let head = self.head.load(Ordering::Relaxed);
        let used = head.wrapping_sub(self.tail.load(Ordering::Acquire));
        let room = (self.wr_ids.len() as u32).saturating_sub(used);
        self.head.store(head.wrapping_add(count.min(room)), Ordering::Release);
    }

    /// Posts all places from the first on, one place each, with the names that they have: nobody polls or posts meanwhile.
    pub(crate) fn rewind(&self) {
        if self.ahead.swap(0, Ordering::Relaxed) != 0 {
            self.spans.iter().for_each(|span| span.store(1, Ordering::Relaxed));
        }
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(self.wr_ids.len() as u32, Ordering::Release);
    }

    /// Poller: how far the place of `counter` is behind the oldest that is not free, and how many are not.
    #[inline(always)]
    fn distance(&self, counter: u16) -> (u32, u32) {
        let tail = self.tail.load(Ordering::Relaxed);
        (u32::from(counter).wrapping_sub(tail) & self.mask, self.head.load(Ordering::Acquire).wrapping_sub(tail))
    }

    /// Poller: whether a request starts at `counter` that is not over.
    pub(crate) fn is_outstanding(&self, counter: u16) -> bool {
        let Some(span) = self.spans.get((u32::from(counter) & self.mask) as usize) else { return false };
        let (behind, used) = self.distance(counter);
        behind < used && !matches!(span.load(Ordering::Relaxed), 0 | AHEAD..)
    }

    /// Poller: the request at `counter` is over, and unless it is a receive all before it. Its `wr_id`; `None` if no request
    /// starts there.
    #[inline(always)]
    pub(crate) fn complete(&self, counter: u16, receive: bool) -> Option<u64> {
        let place = (u32::from(counter) & self.mask) as usize;
        let wr_id = self.wr_ids.get(place)?.load(Ordering::Relaxed);
        let span = self.spans.get(place)?.load(Ordering::Relaxed);
        let (behind, used) = self.distance(counter);
        // A receive is the oldest, but for those that end out of order.
        let reach = if receive { used.min(1) } else { used };
        if behind >= reach || span == 0 || self.ahead.load(Ordering::Relaxed) != 0 {
            return self.complete_elsewhere(counter, receive).then_some(wr_id);
        }
        let tail = self.tail.load(Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(behind).wrapping_add(span.into()), Ordering::Release);
        Some(wr_id)
    }

    /// A receive out of order, a request that is over already, or none: whether there was one.
    #[cold]
    fn complete_elsewhere(&self, counter: u16, receive: bool) -> bool {
        let span_at = |place: u32| self.spans.get((place & self.mask) as usize);
        let Some(span) = span_at(counter.into()) else { return false };
        if receive && self.is_outstanding(counter) {
            span.store(AHEAD | 1, Ordering::Relaxed);
            let mut ahead = self.ahead.load(Ordering::Relaxed).wrapping_add(1);
            let mut tail = self.tail.load(Ordering::Relaxed);
            while let Some(span) = span_at(tail).filter(|s| ahead != 0 && s.load(Ordering::Relaxed) & AHEAD != 0) {
                span.store(1, Ordering::Relaxed);
                (ahead, tail) = (ahead.wrapping_sub(1), tail.wrapping_add(1));
            }
            self.ahead.store(ahead, Ordering::Relaxed);
            self.tail.store(tail, Ordering::Release);
        }
        span.load(Ordering::Relaxed) != 0
    }

    /// Poller: the requests that end next, if they do so in their order and take one place each, as far as their names lie one
    /// behind the other. Whoever takes some of them tells [`advance`](Self::advance).
    #[inline(always)]
    pub(crate) fn next_in_order(&self) -> InOrder<'_> {
        let tail = self.tail.load(Ordering::Relaxed);
        let used = self.head.load(Ordering::Acquire).wrapping_sub(tail) as usize;
        let place = tail & self.mask;
        let simple = self.ahead.load(Ordering::Relaxed) == 0 && !self.wide.load(Ordering::Relaxed);
        let count = if simple { used.min(self.wr_ids.len().wrapping_sub(place as usize)) } else { 0 };
        // SAFETY: the queue has `mask + 1` places and as many names, or none and then nothing is used; the places from `tail` to
        // `head` are not the poster's until `advance` moves `tail`.
        unsafe { InOrder::new(&self.wr_ids, place as u16, self.mask as u16, count) }
    }

    /// Poller: the next `count` requests are over.
    #[inline(always)]
    pub(crate) fn advance(&self, count: u32) {
        self.tail.store(self.tail.load(Ordering::Relaxed).wrapping_add(count), Ordering::Release);
    }

    /// Forgets everything: the queue was reset, and nobody polls or posts.
    pub(crate) fn reset(&self) {
        self.spans.iter().for_each(|span| span.store(0, Ordering::Relaxed));
        [&self.posted, &self.head, &self.ahead].iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.wide.store(false, Ordering::Relaxed);
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
    /// The send queue and the receive queue.
    pub(crate) queues: [Outstanding; 2],
    /// Where its receives come from, if not from a queue of its own.
    pub(crate) srq: Option<Arc<SrqWork>>,
}

impl QpWork {
    /// The send queue.
    pub(crate) fn send(&self) -> &Outstanding {
        self.queue(false)
    }

    /// The receive queue.
    pub(crate) fn recv(&self) -> &Outstanding {
        self.queue(true)
    }

    /// One of the two. Chosen without a jump, which entries of both kinds at random would mislead.
    #[inline(always)]
    pub(crate) fn queue(&self, receive: bool) -> &Outstanding {
        &self.queues[usize::from(receive)]
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_signalled_completion_ends_the_unsignalled_ones_before_it() {
        let q = Outstanding::new(1, 8, None);
        for (span, wr_id) in [(2, 10), (2, 11), (1, 12), (1, 13)] {
            q.push(span, wr_id, None);
        }
        assert_eq!(q.used(), 4);
        assert_eq!(q.complete(4, false), Some(12));
        assert_eq!(q.used(), 1);
        assert_eq!((q.complete(1, false), q.complete(3, false)), (None, None), "no request starts within another");
        q.push(3, 14, None);
        assert_eq!((q.complete(7, false), q.complete(6, false)), (None, Some(14)), "nor where one started before");
    }

    /// As the entries of the queue are used again in their order, a place comes free with the ones before it.
    #[test]
    fn receives_are_named_by_counter_and_come_free_in_their_order() {
        let q = Outstanding::new(1, 4, None);
        (0..4).for_each(|i| q.push(1, 10 + i, None));
        let used = [2, 0, 1, 3].map(|counter| (q.complete(counter, true), q.used()));
        assert_eq!(used, [(Some(12), 4), (Some(10), 3), (Some(11), 1), (Some(13), 0)]);
        (0..3).for_each(|i| q.push(1, 20 + i, None));
        assert_eq!([1, 1, 3].map(|counter| q.complete(counter, true)), [Some(21), Some(21), Some(13)]);
        assert_eq!(q.used(), 3, "repeated and invented ones end nothing");
        assert_eq!((q.complete(0, true), q.used()), (Some(20), 1));
        q.reset();
        q.push(1, 30, None);
        assert_eq!((q.complete(2, true), q.used()), (None, 1), "what was posted before the reset is forgotten");
    }

    #[test]
    fn requests_that_end_in_their_order_are_told_in_stretches() {
        let q = Outstanding::new(1, 4, None);
        let next = |q: &Outstanding| {
            let next = q.next_in_order();
            (next.place(), next.names().iter().map(|name| name.load(Ordering::Relaxed)).collect::<Vec<_>>())
        };
        assert_eq!(next(&q), (0, vec![]));
        (0..4).for_each(|i| q.push(1, 10 + i, None));
        q.advance(3);
        assert_eq!(next(&q), (3, vec![13]));
        (0..2).for_each(|i| q.push(1, 20 + i, None));
        assert_eq!(next(&q), (3, vec![13]), "as far as the end");
        q.advance(1);
        assert_eq!((next(&q), q.used()), ((0, vec![20, 21]), 2));
        assert_eq!((q.complete(1, true), next(&q)), (Some(21), (0, vec![])), "not while one has ended ahead");
        assert_eq!((q.complete(0, true), next(&q)), (Some(20), (2, vec![])));
        q.push(1, 30, None);
        q.push(2, 31, None);
        assert_eq!(next(&q), (2, vec![]), "not where one takes two places");
    }

    #[test]
    fn counters_beyond_the_queue_are_masked_and_repeats_do_not_move_the_tail() {
        let q = Outstanding::new(1, 4, None);
        q.push(1, 7, None);
        assert_eq!(q.complete(0xfffc, false), Some(7));
        assert_eq!(q.complete(0xfffc, false), Some(7), "repeated");
        assert_eq!((q.complete(3, true), q.complete(3, false)), (None, None), "invented");
        assert_eq!(q.used(), 0);
        q.push(1, 8, None);
        q.push(1, 9, None);
        assert_eq!((q.complete(2, false), q.complete(1, false)), (Some(9), Some(8)));
        assert_eq!(q.used(), 0, "an older one does not move it back");
        assert_eq!(Outstanding::new(1, 0, None).complete(5, true), None);
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
