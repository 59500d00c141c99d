//! Access to a checked part of a range, word by word.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A checked part of a mapping.
pub(super) struct Window {
    base: NonNull<u8>,
    len: usize,
    at: usize,
    count: usize,
}

/// Up to four bytes of one aligned word: the unit of access.
struct Piece {
    ptr: *mut u8,
    /// Bytes of the word before the ones meant.
    skip: usize,
    /// A whole aligned word that lies in the mapping; else one byte.
    word: bool,
}

impl Window {
    /// `count` bytes from `at` on of the mapping at `base`, which has `len`; the caller has checked that they lie in it.
    pub(super) fn new(base: NonNull<u8>, len: usize, at: usize, count: usize) -> Self {
        Self { base, len, at, count }
    }

    /// Bytes.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Fills `buf`, which has as many bytes as the window.
    pub(super) fn read(&self, buf: &mut [u8]) {
        self.for_words(|piece, range| {
            let bytes = piece.load();
            for (byte, index) in buf[range].iter_mut().zip(piece.skip..) {
                *byte = bytes[index];
            }
        });
    }

    /// Stores `buf`, which has as many bytes as the window, lowest address first; the last word with the ordering `last`.
    pub(super) fn write(&self, buf: &[u8], last: Ordering) {
        let end = self.count;
        self.for_words(|piece, range| {
            let order = if range.end == end { last } else { Ordering::Relaxed };
            piece.store(&buf[range], order);
        });
    }

    /// Calls `access` for the words that the window touches, with the range of the caller's buffer.
    fn for_words(&self, mut access: impl FnMut(Piece, core::ops::Range<usize>)) {
        let mut done = 0;
        while done < self.count {
            let at = self.at + done;
            let address = self.base.as_ptr() as usize + at;
            let skip = address % 4;
            let word = at >= skip && at - skip + 4 <= self.len;
            let count = if word { (4 - skip).min(self.count - done) } else { 1 };
            let first = if word { at - skip } else { at };
            // SAFETY: `first` is within the mapping, whose memory is valid.
            let ptr = unsafe { self.base.as_ptr().add(first) };
            access(Piece { ptr, skip: if word { skip } else { 0 }, word }, done..done + count);
            done += count;
        }
    }
}

impl Piece {
    fn as_word(&self) -> &AtomicU32 {
        // SAFETY: `word` says that four aligned bytes of the mapping lie here; they are valid and atomically accessed.
        unsafe { AtomicU32::from_ptr(self.ptr.cast()) }
    }

    fn as_byte(&self) -> &AtomicU8 {
        // SAFETY: one byte of the mapping, valid and atomically accessed.
        unsafe { AtomicU8::from_ptr(self.ptr) }
    }

    fn load(&self) -> [u8; 4] {
        if self.word {
            self.as_word().load(Ordering::Acquire).to_ne_bytes()
        } else {
            [self.as_byte().load(Ordering::Acquire), 0, 0, 0]
        }
    }

    fn store(&self, bytes: &[u8], order: Ordering) {
        if !self.word {
            self.as_byte().store(bytes[0], order);
        } else if let Ok(whole) = bytes.try_into() {
            self.as_word().store(u32::from_ne_bytes(whole), order);
        } else {
            let mix = |old: u32| {
                let mut word = old.to_ne_bytes();
                word[self.skip..self.skip + bytes.len()].copy_from_slice(bytes);
                Some(u32::from_ne_bytes(word))
            };
            // `mix` never declines, so this always stores.
            let _ = self.as_word().fetch_update(order, Ordering::Relaxed, mix);
        }
    }
}
