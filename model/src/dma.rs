//! Memory as the device sees it: ranges of I/O addresses, each checked before it is touched.
//!
//! Host memory is handed out at I/O addresses that have nothing to do with its virtual address, each range between
//! unmapped guards, and no I/O address is ever used twice. The device reads and writes through 32-bit atomics, as the
//! driver does; bytes at the edges of a caller's own memory through 8-bit atomics.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use mlx5_hw::platform::DmaMem;

/// Unmapped bytes between two ranges, at least.
const GUARD: u64 = 1 << 16;
/// How many freed ranges are remembered to tell a use after free from a stray address.
const REMEMBERED: usize = 4096;

/// Why the device did not get through to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DmaFault {
    /// Nothing is mapped there.
    Unmapped,
    /// The range was mapped once.
    Freed,
    /// Bus mastering is off, or the device is gone: the access was not tried.
    Blocked,
}

struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    /// Set for memory that this space allocated.
    layout: Option<Layout>,
}

// SAFETY: the memory is only reached through atomics and is not tied to a thread.
unsafe impl Send for Mapping {}

/// All memory that the device can reach.
///
/// It has no `Drop`: what the driver never freed is leaked with it, since a `DmaMem` may outlive the model and its words are
/// safe to read until they are freed.
pub(crate) struct DmaSpace {
    maps: BTreeMap<u64, Mapping>,
    next: u64,
    freed: VecDeque<(u64, u64)>,
}

impl DmaSpace {
    /// An empty space that hands out addresses from `base` on.
    pub(crate) fn new(base: u64) -> Self {
        Self { maps: BTreeMap::new(), next: base, freed: VecDeque::new() }
    }

    fn reserve(&mut self, len: usize, align: u64) -> u64 {
        let start = (self.next + GUARD).next_multiple_of(align.max(4096));
        // Not more aligned than asked for, so that nobody relies on it.
        let iova = if align < 4096 { start + align } else { start };
        self.next = iova + len as u64;
        iova
    }

    /// Allocates zeroed memory. `None` when the host has none or the layout is impossible.
    pub(crate) fn alloc(&mut self, size: usize, align: usize) -> Option<DmaMem> {
        if size == 0 || !align.is_power_of_two() {
            return None;
        }
        let size = size.checked_next_multiple_of(64)?;
        let layout = Layout::from_size_align(size, align.max(64)).ok()?;
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let iova = self.reserve(size, layout.align() as u64);
        self.maps.insert(iova, Mapping { ptr, len: size, layout: Some(layout) });
        // SAFETY: aligned to at least 64 bytes, valid until `free` deallocates it, reached only through atomics here.
        Some(unsafe { DmaMem::new(ptr, iova, size) })
    }

    /// Frees an allocated range. Returns false for what was never allocated here.
    pub(crate) fn free(&mut self, iova: u64) -> bool {
        let Some(mapping) = self.maps.remove(&iova) else { return false };
        self.remember(iova, mapping.len);
        if let Some(layout) = mapping.layout {
            // SAFETY: allocated with this layout; removed from the map, so it is not freed twice.
            unsafe { dealloc(mapping.ptr.as_ptr(), layout) };
        }
        true
    }

    /// Maps memory of the caller's own, with the same offset within a page, and returns its I/O address.
    ///
    /// # Safety
    /// The memory stays valid until [`unmap`](Self::unmap) and nobody keeps a reference to it other than to atomics.
    pub(crate) unsafe fn map(&mut self, ptr: NonNull<u8>, len: usize) -> u64 {
        let offset = ptr.as_ptr() as u64 % 4096;
        let iova = self.reserve(len + offset as usize, 4096) + offset;
        self.maps.insert(iova, Mapping { ptr, len, layout: None });
        iova
    }

    /// Ends a [`map`](Self::map). Returns false when there was none like it.
    pub(crate) fn unmap(&mut self, iova: u64, len: usize) -> bool {
        if !self.maps.get(&iova).is_some_and(|m| m.layout.is_none() && m.len == len) {
            return false;
        }
        self.maps.remove(&iova);
        self.remember(iova, len);
        true
    }

    fn remember(&mut self, iova: u64, len: usize) {
        if self.freed.len() == REMEMBERED {
            self.freed.pop_front();
        }
        self.freed.push_back((iova, len as u64));
    }

    /// Ranges handed out and not given back, and their bytes.
    pub(crate) fn outstanding(&self) -> (usize, usize) {
        (self.maps.len(), self.maps.values().map(|m| m.len).sum())
    }

    /// Whether the whole range is mapped.
    pub(crate) fn is_mapped(&self, iova: u64, len: usize) -> bool {
        self.window(iova, len).is_ok()
    }

    /// The bytes at `iova`, checked: pointer to the first, and bytes of the mapping before it and from it on.
    fn window(&self, iova: u64, len: usize) -> Result<Window, DmaFault> {
        let found = self.maps.range(..=iova).next_back();
        if let Some((start, mapping)) = found {
            let before = (iova - start) as usize;
            if before.checked_add(len).is_some_and(|end| end <= mapping.len) {
                return Ok(Window { base: mapping.ptr, len: mapping.len, at: before });
            }
        }
        let freed = self.freed.iter().any(|(start, size)| iova >= *start && iova < start + size);
        Err(if freed { DmaFault::Freed } else { DmaFault::Unmapped })
    }

    /// The device reads memory.
    pub(crate) fn read(&self, iova: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        let window = self.window(iova, buf.len())?;
        window.for_words(buf.len(), |piece, range| {
            let bytes = piece.load();
            for (byte, index) in buf[range].iter_mut().zip(piece.skip..) {
                *byte = bytes[index];
            }
        });
        Ok(())
    }

    /// The device writes memory, lowest address first. The last word is stored with release ordering: whoever sees it
    /// sees all that was written before.
    pub(crate) fn write(&self, iova: u64, buf: &[u8]) -> Result<(), DmaFault> {
        let window = self.window(iova, buf.len())?;
        let end = buf.len();
        window.for_words(end, |piece, range| {
            let order = if range.end == end { Ordering::Release } else { Ordering::Relaxed };
            piece.store(&buf[range], order);
        });
        Ok(())
    }
}

/// A checked position within a mapping.
struct Window {
    base: NonNull<u8>,
    len: usize,
    at: usize,
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
    /// Calls `access` for the words that `len` bytes from here on touch, with the range of the caller's buffer.
    fn for_words(&self, len: usize, mut access: impl FnMut(Piece, core::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = self.at + done;
            let address = self.base.as_ptr() as usize + at;
            let skip = address % 4;
            let word = at >= skip && at - skip + 4 <= self.len;
            let count = if word { (4 - skip).min(len - done) } else { 1 };
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
