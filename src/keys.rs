//! The memory keys that are alive, as the processor looks them up when it copies data from a completion to where a request
//! wants it.
//!
//! Posting takes addresses and keys as plain numbers from safe code, for it is the device that checks them. With data in
//! completions the processor writes to those addresses, so it makes the device's checks itself, each time: the key is alive, of
//! the queue's protection domain, writable, and covers the range. A [`Row`] has a [`Gate`]; who copies is inside of it, and
//! deregistration closes it before anything else, so the memory cannot go while it is written to.
//!
//! Rows are found by the index that the device gave a key, in a tree of three levels of 256. Nodes and rows are made when
//! first needed and kept until the device is gone, so looking up takes no lock and finds no freed row. An index that the device gives
//! out twice is noticed, since the row is taken.

use alloc::boxed::Box;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use spin::Once;

use crate::dma;
use crate::gate::Gate;

/// Memory behind a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) writes: Writes,
}

// SAFETY: the pointer is only an address here; following it is for `Keys::write`, under the contract of `Keys::publish`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// How the processor writes to the memory behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Not at all: the key has no local write access.
    Denied = 0,
    /// Atomically by words: others may have the memory as atomic words. It starts at a word and is whole words long.
    Words = 1,
    /// Atomically by bytes.
    Bytes = 2,
}

/// A key does not allow what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

/// A node of the tree.
struct Fan<T>([Once<Box<T>>; 256]);

impl<T> Default for Fan<T> {
    fn default() -> Self {
        Self([const { Once::new() }; 256])
    }
}

impl<T: Default> Fan<T> {
    #[inline]
    fn get(&self, at: u32) -> Option<&T> {
        self.0.get(at as usize & 0xff)?.get().map(|child| &**child)
    }

    fn get_or_make(&self, at: u32) -> Option<&T> {
        Some(self.0.get(at as usize & 0xff)?.call_once(Box::default))
    }
}

/// One key. Its fields change only while the gate is closed.
#[derive(Default)]
struct Row {
    taken: AtomicBool,
    gate: Gate,
    key: AtomicU32,
    pd: AtomicU32,
    start: AtomicPtr<u8>,
    len: AtomicUsize,
    writes: AtomicU8,
}

/// The keys of a device.
#[derive(Default)]
pub(crate) struct Keys(Fan<Fan<Fan<Row>>>);

impl Keys {
    /// Makes a key known. `false`, and nothing done, if its index is taken.
    ///
    /// # Safety
    /// Until [`withdraw`](Self::withdraw) has returned, the memory may be written to as `region.writes` says.
    pub(crate) unsafe fn publish(&self, key: u32, pd: u32, region: Region) -> bool {
        let index = key >> 8;
        let made = self.0.get_or_make(index >> 16).and_then(|n| n.get_or_make(index >> 8)?.get_or_make(index));
        let Some(row) = made.filter(|row| !row.taken.swap(true, Ordering::Acquire)) else { return false };
        row.key.store(key, Ordering::Relaxed);
        row.pd.store(pd, Ordering::Relaxed);
        row.start.store(region.start.as_ptr(), Ordering::Relaxed);
        row.len.store(region.len, Ordering::Relaxed);
        row.writes.store(region.writes as u8, Ordering::Relaxed);
        row.gate.open();
        true
    }

    /// Takes away a key that was published. When it returns, nobody writes to the memory through it; `wait` is called as long
    /// as somebody does.
    pub(crate) fn withdraw(&self, key: u32, wait: impl FnMut()) {
        if let Some(row) = self.row(key) {
            row.gate.close(wait);
            row.taken.store(false, Ordering::Release);
        }
    }

    /// Copies `data` to `addr` through key `lkey` on behalf of a queue of protection domain `pd`.
    ///
    /// # Errors
    /// [`Denied`] if the device would not do it either; nothing is written then.
    pub(crate) fn write(&self, pd: u32, lkey: u32, addr: u64, data: &[u8]) -> Result<(), Denied> {
        let row = self.row(lkey).ok_or(Denied)?;
        let visit = row.gate.pass().ok_or(Denied)?;
        if row.key.load(Ordering::Relaxed) != lkey || row.pd.load(Ordering::Relaxed) != pd {
            return Err(Denied);
        }
        let (start, len) = (row.start.load(Ordering::Relaxed), row.len.load(Ordering::Relaxed));
        let offset = addr.checked_sub(start.addr() as u64).and_then(|at| usize::try_from(at).ok()).ok_or(Denied)?;
        if offset.checked_add(data.len()).is_none_or(|end| end > len) {
            return Err(Denied);
        }
        match row.writes.load(Ordering::Relaxed) {
            w if w == Writes::Words as u8 => {
                // SAFETY: `publish` was promised that the `len` bytes from `start` on may be written to as words until
                // `withdraw` has returned, which waits for the end of `visit`.
                let words = unsafe { &*ptr::slice_from_raw_parts(start.cast::<AtomicU32>(), len.div_ceil(4)) };
                dma::copy_in(words, offset, data);
            }
            w if w == Writes::Bytes as u8 => {
                for (at, byte) in (offset..len).zip(data) {
                    // SAFETY: as above, as bytes; `at` is less than `len`.
                    unsafe { AtomicU8::from_ptr(start.add(at)) }.store(*byte, Ordering::Relaxed);
                }
            }
            _ => return Err(Denied),
        }
        drop(visit);
        Ok(())
    }

    #[inline]
    fn row(&self, key: u32) -> Option<&Row> {
        let index = key >> 8;
        self.0.get(index >> 16)?.get(index >> 8)?.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u32 = 0x1234_5678;

    /// Publishes memory that outlives the table's use of it in the test.
    fn publish(keys: &Keys, key: u32, pd: u32, words: &[AtomicU32], len: usize, writes: Writes) -> bool {
        let region = Region { start: NonNull::from(words).cast(), len, writes };
        // SAFETY: the words are atomics, and the tests keep them until the key is withdrawn or the table gone.
        unsafe { keys.publish(key, pd, region) }
    }

    fn words() -> [AtomicU32; 4] {
        core::array::from_fn(|_| AtomicU32::new(u32::MAX))
    }

    fn bytes(words: &[AtomicU32; 4]) -> [u8; 16] {
        core::array::from_fn(|at| words[at / 4].load(Ordering::Relaxed).to_ne_bytes()[at % 4])
    }

    #[test]
    fn data_is_written_where_the_key_allows_it_in_either_way() {
        for writes in [Writes::Words, Writes::Bytes] {
            for from in 0..13 {
                for n in 0..=13 - from {
                    let (keys, words) = (Keys::default(), words());
                    assert!(publish(&keys, KEY, 7, &words, 13, writes));
                    let addr = words.as_ptr().addr() as u64 + from as u64;
                    let data: [u8; 13] = core::array::from_fn(|at| at as u8);
                    assert_eq!(keys.write(7, KEY, addr, &data[..n]), Ok(()));
                    let wanted =
                        core::array::from_fn(
                            |at| if (from..from + n).contains(&at) { (at - from) as u8 } else { 0xff },
                        );
                    assert_eq!(bytes(&words), wanted, "{writes:?}, {n} bytes at {from}");
                }
            }
        }
    }

    #[test]
    fn what_a_device_denies_is_denied_and_writes_nothing() {
        let (keys, words, hidden) = (Keys::default(), words(), words());
        let start = words.as_ptr().addr() as u64;
        assert!(publish(&keys, KEY, 7, &words, 13, Writes::Words));
        assert!(publish(&keys, KEY + 0x100, 7, &hidden, 13, Writes::Denied));
        for (pd, lkey, addr, len) in [
            (8, KEY, start, 1),
            (7, KEY ^ 1, start, 1),
            (7, KEY ^ (1 << 8), start, 1),
            (7, KEY ^ (1 << 16), start, 1),
            (7, KEY ^ (1 << 31), start, 1),
            (7, KEY, start - 1, 1),
            (7, KEY, start, 14),
            (7, KEY, start + 13, 1),
            (7, KEY, start + 12, 2),
            (7, KEY, 0, 1),
            (7, KEY, u64::MAX, 1),
            (7, KEY + 0x100, hidden.as_ptr().addr() as u64, 1),
        ] {
            assert_eq!(keys.write(pd, lkey, addr, &[0; 16][..len]), Err(Denied), "{pd} {lkey:#x} {addr:#x} {len}");
        }
        keys.withdraw(KEY, || unreachable!("nobody copies"));
        assert_eq!(keys.write(7, KEY, start, &[0]), Err(Denied), "withdrawn");
        assert_eq!((bytes(&words), bytes(&hidden)), ([0xff; 16], [0xff; 16]));
    }

    /// A device that gives an index out twice must not make one key's memory another's.
    #[test]
    fn an_index_is_given_to_one_key_at_a_time() {
        let (keys, one, two) = (Keys::default(), words(), words());
        assert!(publish(&keys, KEY, 7, &one, 16, Writes::Words));
        assert!(!publish(&keys, KEY ^ 1, 7, &two, 16, Writes::Words));
        assert_eq!(keys.write(7, KEY ^ 1, two.as_ptr().addr() as u64, &[0]), Err(Denied));
        assert_eq!(keys.write(7, KEY, one.as_ptr().addr() as u64, &[0]), Ok(()));
        keys.withdraw(KEY, || unreachable!("nobody copies"));
        assert!(publish(&keys, KEY ^ 1, 7, &two, 16, Writes::Words));
        assert_eq!(keys.write(7, KEY, one.as_ptr().addr() as u64, &[0]), Err(Denied));
        assert_eq!(keys.write(7, KEY ^ 1, two.as_ptr().addr() as u64, &[0]), Ok(()));
    }
}
