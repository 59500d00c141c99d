//! The table in which a CQ finds the queue that an entry names: read without a lock, changed under one.
//!
//! A row is empty, live (it owns one reference to its value) or a tombstone. One [`Reader`] exists a table; it polls in
//! passes. [`Rows::retire`] turns a row into a tombstone and counts the retirement; the value itself waits until a pass
//! that *began* after it has seen the ring empty and has ended. That one condition gives both things we need:
//!
//! - **Memory.** A pass that began after the retirement can't find the value any more, and one that began before has
//!   ended, so no reference is left when [`Rows::reclaim`] drops the value.
//! - **Meaning.** The device wrote the queue's last entry before the retirement. The ring was seen empty after it, so no
//!   entry with this index is left, and the index may be given to another queue. (It goes back when the last table drops
//!   its reference: the value owns it.)
//!
//! A value may leave something to be settled by its last entries (requests of a shared receive queue). Such a row turns into a
//! *heir* first: it still leads to the value, as one that is gone. When the ring was seen empty, no entry needs it any more, and
//! its row becomes a tombstone, by a retirement of its own: the first condition above then holds for the value again.
//!
//! Polling never frees anything and takes no lock; what it records is one number when a pass that saw the ring empty ends.
//!
//! A part of a queue that was found can be kept ([`Kept`]): as long as there were no more retirements, its row is as it was, and one
//! load says so.
//!
//! Rows live in segments of 64, 64, 128, 256, … entries, made when first needed and kept for the life of the table, so
//! that a lookup is two loads and a small table stays small.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::array;
use core::ptr::{self, NonNull};

use crate::sync::{Arc, AtomicPtr, AtomicU64, Mutex, Ordering};

/// Segments for 24-bit indices.
const SEGMENTS: usize = 19;
/// log2 of the first segment's length.
const FIRST: u32 = 6;

/// What stands in a row whose queue is gone: not null, never dereferenced.
const fn tombstone<T>() -> *mut T {
    NonNull::dangling().as_ptr()
}

/// The row of a value that is gone and still found. Values lie at even addresses.
fn heir<T>(value: *mut T) -> *mut T {
    value.map_addr(|addr| addr | 1)
}

/// The value of a heir's row.
fn inherited<T>(row: *mut T) -> Option<*mut T> {
    (row.addr() & 1 != 0).then(|| row.map_addr(|addr| addr & !1))
}

struct Retired<T> {
    at: u64,
    index: u32,
    value: Arc<T>,
    /// Its row is a heir.
    found: bool,
}

/// The table. No value lies at the tombstone's address: an `Arc` keeps its counters before the value, so the value lies beyond
/// its own alignment.
pub(crate) struct Rows<T> {
    segments: [AtomicPtr<AtomicPtr<T>>; SEGMENTS],
    /// Values that wait for the ring to be seen empty; holding it is the right to change rows.
    retired: Mutex<Vec<Retired<T>>>,
    /// Number of retirements so far.
    retirements: AtomicU64,
    /// Retirements up to this number are over: the ring was seen empty since.
    settled: AtomicU64,
}

/// What a lookup finds.
pub(crate) enum Row<'p, T> {
    /// A queue.
    Live(Found<'p, T>),
    /// A queue that was destroyed: its entries are consumed and not delivered. With the queue, if it left something to be settled.
    Gone(Option<&'p T>),
    /// Nothing was ever here, or long ago.
    Unknown,
}

/// A queue that was found.
pub(crate) struct Found<'p, T> {
    value: &'p T,
    /// Number of retirements before.
    at: u64,
}

impl<T> Clone for Found<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Found<'_, T> {}

impl<T> core::ops::Deref for Found<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Found<'_, T> {
    /// A part of it, to be looked at without looking the queue up again.
    pub(crate) fn keep<P>(&self, part: impl FnOnce(&T) -> Option<&P>) -> Option<Kept<P>> {
        let part = ptr::from_ref(part(self.value)?).cast_mut();
        Some(Kept { at: self.at, part: core::sync::atomic::AtomicPtr::new(part) })
    }
}

/// A part of a queue that was found, good as long as nothing was retired since.
pub(crate) struct Kept<P> {
    at: u64,
    /// The reader's own: an atomic only as a plain pointer would not move to another thread with it.
    part: core::sync::atomic::AtomicPtr<P>,
}

/// The row's segment and place in it.
const fn place(index: u32) -> (usize, usize) {
    let biased = index as u64 + (1 << FIRST);
    let log = biased.ilog2();
    ((log - FIRST) as usize, (biased - (1 << log)) as usize)
}

const fn segment_len(segment: usize) -> usize {
    1 << (FIRST as usize + segment)
}

/// An empty table and its one reader.
pub(crate) fn table<T: Send + Sync>() -> (Arc<Rows<T>>, Reader<T>) {
    const { assert!(align_of::<T>() > 1, "the lowest bit of a value's address says that it is gone") }
    let rows = Arc::new(Rows {
        segments: array::from_fn(|_| AtomicPtr::default()),
        retired: Mutex::new(Vec::new()),
        retirements: AtomicU64::new(0),
        settled: AtomicU64::new(0),
    });
    let reader = Reader { rows: rows.clone() };
    (rows, reader)
}

impl<T> Rows<T> {
    fn row(&self, index: u32) -> Option<&AtomicPtr<T>> {
        let (segment, at) = place(index);
        let base = self.segments.get(segment)?.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: a segment that is not null holds `segment_len` rows, `at` is below that by `place`, and segments are
        // freed only by `drop`.
        Some(unsafe { &*base.add(at) })
    }

    /// Makes a row live. `false`, and nothing done, if the row is taken or the index has more than 24 bits.
    pub(crate) fn publish(&self, index: u32, value: &Arc<T>) -> bool {
        let _changing = self.retired.lock();
        let (segment, _) = place(index);
        let Some(slot) = self.segments.get(segment) else { return false };
        if slot.load(Ordering::Relaxed).is_null() {
            let rows: Box<[AtomicPtr<T>]> = (0..segment_len(segment)).map(|_| AtomicPtr::default()).collect();
            slot.store(Box::into_raw(rows).cast(), Ordering::Release);
        }
        let Some(row) = self.row(index).filter(|r| r.load(Ordering::Relaxed).is_null()) else { return false };
        // The release makes the value's contents visible to the reader that finds it.
        row.store(Arc::into_raw(value.clone()).cast_mut(), Ordering::Release);
        true
    }

    /// Turns the live row of `value` into a tombstone, or first into a heir. The device has confirmed that it writes no more
    /// entries with this index. Does nothing if the row is not live or another value's.
    pub(crate) fn retire(&self, index: u32, value: &Arc<T>, found: bool) {
        let mut retired = self.retired.lock();
        let Some(row) = self.row(index) else { return };
        let old = row.load(Ordering::Relaxed).cast_const();
        if old != Arc::as_ptr(value) {
            return;
        }
        let at = self.bury(row, if found { heir(old.cast_mut()) } else { tombstone() });
        // SAFETY: a live row owns the reference that `publish` put there, and it was live until now, under the lock.
        let value = unsafe { Arc::from_raw(old) };
        retired.push(Retired { at, index, value, found });
    }

    /// Changes the row of a queue that is gone; the number of this retirement.
    fn bury(&self, row: &AtomicPtr<T>, to: *mut T) -> u64 {
        row.store(to, Ordering::Relaxed);
        // The release orders the row before the count: who reads the count finds the row so.
        self.retirements.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether entries that are still to be consumed have something to settle.
    pub(crate) fn has_heirs(&self) -> bool {
        self.retired.lock().iter().any(|retired| retired.found)
    }

    /// Drops what is retired and can't be named by any entry any more, and empties its rows.
    pub(crate) fn reclaim(&self) {
        let settled = self.settled.load(Ordering::Acquire);
        let over = {
            let mut retired = self.retired.lock();
            let (over, mut waiting): (Vec<_>, Vec<_>) = retired.drain(..).partition(|r| r.at <= settled);
            let (heirs, over): (Vec<_>, Vec<_>) = over.into_iter().partition(|r| r.found);
            for r in heirs {
                if let Some(row) = self.row(r.index) {
                    waiting.push(Retired { at: self.bury(row, tombstone()), found: false, ..r });
                }
            }
            *retired = waiting;
            for r in &over {
                if let Some(row) = self.row(r.index) {
                    row.store(ptr::null_mut(), Ordering::Relaxed);
                }
            }
            over
        };
        // Values are dropped outside the lock: they give their indices back.
        for Retired { value, .. } in over {
            drop(value);
        }
    }

    /// Number of values that wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.retired.lock().len()
    }
}

impl<T> Drop for Rows<T> {
    fn drop(&mut self) {
        for (segment, slot) in self.segments.iter().enumerate() {
            let base = slot.load(Ordering::Relaxed);
            if base.is_null() {
                continue;
            }
            // SAFETY: made by `publish` from a box of this length; nobody else refers to the table any more.
            let rows = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(base, segment_len(segment))) };
            for row in rows {
                let value = row.load(Ordering::Relaxed);
                if !value.is_null() && value != tombstone() && inherited(value).is_none() {
                    // SAFETY: a live row owns one reference; a heir's is with the retired ones.
                    drop(unsafe { Arc::from_raw(value) });
                }
            }
        }
    }
}

/// The right to look rows up; there is one a table.
pub(crate) struct Reader<T> {
    rows: Arc<Rows<T>>,
}

impl<T> Rows<T> {
    /// The reader: finds a queue, for as long as it does not settle a pass. `at`: number of retirements, no later than now.
    #[inline]
    fn find(&self, index: u32, at: u64) -> Row<'_, T> {
        let Some(row) = self.row(index) else { return Row::Unknown };
        let value = row.load(Ordering::Acquire);
        if value.is_null() {
            Row::Unknown
        } else if value == tombstone() {
            Row::Gone(None)
        } else if let Some(value) = inherited(value) {
            // SAFETY: the row was a heir at this load, so the value was not retired for the second time, and is dropped only once
            // that is settled: as below.
            Row::Gone(Some(unsafe { &*value }))
        } else {
            // SAFETY: the row was live at this load, so its reference is dropped only by `reclaim` (or with the table, which
            // the reader keeps alive), after its retirement was settled. There is one reader and it makes one pass at a
            // time, so whoever settles it is this pass or a later one; both need that what was lent has ended, the first as
            // `settle` takes the pass mutably, the second as `begin` takes the reader so.
            Row::Live(Found { value: unsafe { &*value }, at })
        }
    }
}

impl<T> Reader<T> {
    /// Finds the queue with this index, for as long as no pass is started.
    #[inline(always)]
    pub(crate) fn find(&mut self, index: u32) -> Row<'_, T> {
        self.rows.find(index, self.rows.retirements.load(Ordering::Acquire))
    }

    /// What was kept of a queue that this reader found, for as long as no pass is started; `None` if queues were retired since.
    #[inline(always)]
    pub(crate) fn again<'r, P>(&'r mut self, kept: &'r Kept<P>) -> Option<&'r P> {
        if self.rows.retirements.load(Ordering::Acquire) != kept.at {
            return None;
        }
        // SAFETY: the queue was live when it was found, and as nothing was retired since, it is; so as in `find`.
        Some(unsafe { &*kept.part.load(Ordering::Relaxed) })
    }

    /// Starts a pass over the ring, before its first entry is looked at.
    #[inline(always)]
    pub(crate) fn begin(&mut self) -> Pass<'_, T> {
        let began = self.rows.retirements.load(Ordering::Acquire);
        Pass { rows: &self.rows, began, empty: None }
    }

    /// Whether nothing waits for the ring to be seen empty.
    #[inline(always)]
    pub(crate) fn is_settled(&self) -> bool {
        self.rows.settled.load(Ordering::Relaxed) == self.rows.retirements.load(Ordering::Relaxed)
    }
}

/// Says whether any queue has gone since it was made.
pub(crate) struct Watch<'r> {
    retirements: &'r AtomicU64,
    at: u64,
}

impl Watch<'_> {
    #[inline(always)]
    pub(crate) fn all_are_there(&self) -> bool {
        self.retirements.load(Ordering::Acquire) == self.at
    }
}

/// One pass of the reader. A pass that is not [settled](Self::settle) in the end changes nothing.
pub(crate) struct Pass<'r, T> {
    rows: &'r Rows<T>,
    began: u64,
    empty: Option<u64>,
}

impl<'r, T> Pass<'r, T> {
    /// Finds a queue with this index that is there, for longer than until the next one is looked for; and a [`Watch`] that says
    /// how long it stays so.
    ///
    /// # Safety
    /// It is not used any more when the pass is [settled](Self::settle).
    pub(crate) unsafe fn lend(&mut self, index: u32) -> Option<(&'r T, Watch<'r>)> {
        let Row::Live(Found { value, at }) = self.find(index) else { return None };
        let value: *const T = value;
        let watch = Watch { retirements: &self.rows.retirements, at };
        // SAFETY: the row was live, so the value is dropped only after this pass or a later one was settled (`find`): the first
        // is the caller's promise, the second needs that the reader is borrowed anew, which `'r` rules out.
        Some((unsafe { &*value }, watch))
    }

    /// Finds the queue with this index.
    #[inline(always)]
    pub(crate) fn find(&mut self, index: u32) -> Row<'_, T> {
        self.rows.find(index, self.began)
    }

    /// Notes that the ring was seen empty just now.
    #[inline(always)]
    pub(crate) fn saw_empty(&mut self) {
        self.empty = Some(self.began);
        // What is retired from now on waits for the next time.
        self.began = self.rows.retirements.load(Ordering::Acquire);
    }

    /// Makes known that the ring was seen empty, when nothing that was found is used any more.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if let Some(at) = self.empty.take()
            && at != self.rows.settled.load(Ordering::Relaxed)
        {
            // The release puts every use of what this pass found before the drop of it.
            self.rows.settled.store(at, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;

    extern crate std;

    struct Counted(u32, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn live<T>(row: Row<'_, T>) -> Option<&T> {
        match row {
            Row::Live(v) => Some(v.value),
            _ => None,
        }
    }

    #[test]
    fn places_are_dense_and_cover_24_bits() {
        let (mut segment, mut at) = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), (segment, at), "index {index}");
            at += 1;
            if at == segment_len(segment) {
                (segment, at) = (segment + 1, 0);
            }
        }
        let (segment, at) = place(0xff_ffff);
        assert!(segment < SEGMENTS && at < segment_len(segment));
        assert!(place(u32::MAX).0 >= SEGMENTS);
    }

    #[test]
    fn a_value_is_dropped_only_after_a_later_pass_saw_the_ring_empty() {
        let drops = Arc::new(AtomicUsize::new(0));
        let (rows, mut reader) = table();
        let five = Arc::new(Counted(5, drops.clone()));
        assert!(rows.publish(5, &five));
        let other = Arc::new(Counted(6, Arc::default()));
        assert!(!rows.publish(5, &other), "taken");
        rows.retire(5, &other, false);

        let mut early = reader.begin();
        assert_eq!(live(early.find(5)).map(|v| v.0), Some(5));
        rows.retire(5, &five, false);
        drop(five);
        assert!(matches!(early.find(5), Row::Gone(None)));
        early.saw_empty();
        early.settle();
        rows.reclaim();
        assert_eq!((drops.load(Ordering::Relaxed), rows.waiting()), (0, 1), "that pass began before the retirement");
        assert!(!rows.publish(5, &Arc::new(Counted(7, Arc::default()))), "a tombstone is not free");

        let mut not_empty = reader.begin();
        not_empty.find(5);
        not_empty.settle();
        rows.reclaim();
        assert_eq!(drops.load(Ordering::Relaxed), 0, "the ring was not seen empty");

        reader.begin().saw_empty();
        rows.reclaim();
        assert_eq!(drops.load(Ordering::Relaxed), 0, "a pass that was not ended properly settles nothing");

        let mut late = reader.begin();
        late.saw_empty();
        late.settle();
        rows.reclaim();
        assert_eq!((drops.load(Ordering::Relaxed), rows.waiting()), (1, 0));
        assert!(matches!(reader.begin().find(5), Row::Unknown));
        assert!(rows.publish(5, &Arc::new(Counted(8, drops.clone()))));
        drop((rows, reader));
        assert_eq!(drops.load(Ordering::Relaxed), 2, "the table drops what is live");
    }

    /// First the ring must be seen empty, then again, as the value may be found until then.
    #[test]
    fn a_value_that_leaves_something_is_found_as_gone_until_the_ring_was_seen_empty() {
        let drops = Arc::new(AtomicUsize::new(0));
        let (rows, mut reader) = table();
        let five = Arc::new(Counted(5, drops.clone()));
        assert!(rows.publish(5, &five));
        rows.retire(5, &five, true);
        drop(five);
        let mut settle = |rows: &Rows<Counted>, found: Option<u32>| {
            let mut pass = reader.begin();
            match pass.find(5) {
                Row::Gone(value) => assert_eq!(value.map(|v| v.0), found),
                Row::Live(_) | Row::Unknown => assert_eq!(found, Some(0), "the row is empty"),
            }
            pass.saw_empty();
            pass.settle();
            rows.reclaim();
            (drops.load(Ordering::Relaxed), rows.waiting(), rows.has_heirs())
        };
        rows.reclaim();
        assert!(rows.has_heirs());
        assert_eq!(settle(&rows, Some(5)), (0, 1, false));
        assert_eq!(settle(&rows, None), (1, 0, false));
        assert_eq!(settle(&rows, Some(0)), (1, 0, false));
        let six = Arc::new(Counted(6, drops.clone()));
        assert!(rows.publish(5, &six));
        rows.retire(5, &six, true);
        drop((six, rows));
        drop(reader);
        assert_eq!(drops.load(Ordering::Relaxed), 2, "dropped once with the table");
    }

    #[test]
    fn indices_beyond_24_bits_and_absent_rows_are_unknown() {
        let (rows, mut reader) = table::<u32>();
        assert!(!rows.publish(u32::MAX, &Arc::new(1)));
        rows.retire(u32::MAX, &Arc::new(1), false);
        rows.retire(77, &Arc::new(1), true);
        assert!(matches!(reader.begin().find(u32::MAX), Row::Unknown));
        assert!(rows.publish(0xff_fffe, &Arc::new(9)));
        assert_eq!(live(reader.begin().find(0xff_fffe)), Some(&9));
    }

    #[test]
    fn queues_come_and_go_while_another_thread_polls() {
        let drops = Arc::new(AtomicUsize::new(0));
        let (rows, mut reader) = table();
        let stop = Arc::new(AtomicUsize::new(0));
        let poller = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut found = 0u64;
                while stop.load(Ordering::Relaxed) == 0 {
                    let mut pass = reader.begin();
                    for index in 0..8 {
                        if let Some(v) = live::<Counted>(pass.find(index)) {
                            assert_eq!(v.0, index);
                            found += 1;
                        }
                    }
                    pass.saw_empty();
                    pass.settle();
                }
                found
            })
        };
        let (mut published, mut made) = (0, 0);
        let mut there: Vec<Option<Arc<Counted>>> = (0..8).map(|_| None).collect();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while published < 2_000 && std::time::Instant::now() < limit {
            let index = made % 8;
            let value = Arc::new(Counted(index, drops.clone()));
            made += 1;
            if rows.publish(index, &value) {
                published += 1;
                there[index as usize] = Some(value);
            } else {
                std::thread::yield_now();
            }
            let old = (index + 4) % 8;
            if let Some(value) = there[old as usize].take() {
                rows.retire(old, &value, published % 3 == 0);
            }
            rows.reclaim();
        }
        drop(there);
        stop.store(1, Ordering::Relaxed);
        assert!(poller.join().is_ok());
        drop(rows);
        assert_eq!(published, 2_000, "rows come free again while the other thread polls");
        // Values that found their row taken are dropped as well.
        assert_eq!(drops.load(Ordering::Relaxed), made as usize);
    }
}
