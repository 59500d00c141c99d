//! Words that are read together although nobody locks: who reads sees whether they changed meanwhile, and looks again.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How often one looks, as libmlx5 does. A writer is between its two marks for a few stores, or has lost its processor there.
const LOOKS: u32 = 10;

/// `N` words and the count of their changes, odd during one.
pub(crate) struct SeqLock<const N: usize> {
    changes: AtomicU32,
    words: [AtomicU64; N],
}

impl<const N: usize> SeqLock<N> {
    /// All words are 0.
    pub(crate) fn new() -> Self {
        Self { changes: AtomicU32::default(), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The words as one change left them; `None` while a change is under way.
    pub(crate) fn read(&self) -> Option<[u64; N]> {
        (0..LOOKS).find_map(|_| self.look())
    }

    /// One look: the words, unless they changed meanwhile.
    pub(crate) fn look(&self) -> Option<[u64; N]> {
        let before = self.changes.load(Ordering::Acquire);
        // A word of a later change brings that change's odd count with it.
        let words = core::array::from_fn(|i| self.words.get(i).map_or(0, |word| word.load(Ordering::Acquire)));
        let after = self.changes.load(Ordering::Relaxed);
        (before == after && before.is_multiple_of(2)).then_some(words)
    }

    /// Changes the words. There is one writer at a time: the caller sees to that.
    pub(crate) fn write(&self, words: &[u64; N]) {
        let before = self.changes.load(Ordering::Relaxed);
        self.changes.store(before.wrapping_add(1), Ordering::Relaxed);
        for (word, new) in self.words.iter().zip(words) {
            word.store(*new, Ordering::Release);
        }
        self.changes.store(before.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_reads_during_a_change_is_told_to_come_back_and_then_has_all_of_it() {
        let lock = SeqLock::<3>::new();
        assert_eq!(lock.read(), Some([0; 3]));
        lock.write(&[1, 2, 3]);
        assert_eq!(lock.read(), Some([1, 2, 3]));
        // The writer has lost its processor.
        lock.changes.store(3, Ordering::Relaxed);
        assert_eq!(lock.read(), None);
        lock.changes.store(u32::MAX - 1, Ordering::Relaxed);
        lock.write(&[4, 5, 6]);
        assert_eq!((lock.read(), lock.changes.load(Ordering::Relaxed)), (Some([4, 5, 6]), 0));
    }
}
