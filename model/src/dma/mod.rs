//! Memory as the device sees it: ranges of I/O addresses, each checked before it is touched.
//!
//! It comes in two ways. In one process, host memory is handed out at I/O addresses that have nothing to do with its virtual
//! address, each range between unmapped guards, and no I/O address is ever used twice. Behind vfio-user, the client says
//! which file holds what lies at its I/O addresses, and with which rights; ranges then lie side by side, and an access may
//! go on from one to the next.
//!
//! The device reads and writes through 32-bit atomics, as the driver does; bytes at the edges of a range through 8-bit
//! atomics.

#[cfg(feature = "serve")]
mod foreign;
mod window;

use std::alloc::{Layout, alloc_zeroed, dealloc};
#[cfg(feature = "serve")]
use std::any::Any;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::ptr::NonNull;
#[cfg(feature = "serve")]
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5_hw::platform::DmaMem;

#[cfg(feature = "serve")]
pub(crate) use foreign::{MapError, UnmapError};
use window::Window;

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
    /// The range is mapped, but not for this: it is read only, or not memory.
    Denied,
    /// Bus mastering is off, or the device is gone: the access was not tried.
    Blocked,
}

/// Where the memory of a range comes from, and who gives it back.
enum Backing {
    /// Allocated here.
    Own(Layout),
    /// The caller's, until it unmaps it.
    Caller,
    /// A client's: what keeps it mapped, or nothing where there is no memory.
    #[cfg(feature = "serve")]
    Foreign(#[expect(dead_code, reason = "it is there to be dropped")] Option<Arc<dyn Any + Send + Sync>>),
}

/// What the device may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

const ALL_RIGHTS: Rights = Rights { read: true, write: true };

struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    rights: Rights,
    backing: Backing,
}

// SAFETY: the memory is only reached through atomics and is not tied to a thread.
unsafe impl Send for Mapping {}

/// All memory that the device can reach.
///
/// It has no `Drop`: what the driver never freed is leaked with it, since a `DmaMem` may outlive the model and its words are
/// safe to read until they are freed.
pub(crate) struct DmaSpace {
    maps: BTreeMap<u64, Mapping>,
    /// Bytes of all of them, modulo 2^64: they may cover every address.
    bytes: u64,
    next: u64,
    freed: VecDeque<(u64, u64)>,
}

impl DmaSpace {
    /// An empty space that hands out addresses from `base` on.
    pub(crate) fn new(base: u64) -> Self {
        Self { maps: BTreeMap::new(), bytes: 0, next: base, freed: VecDeque::new() }
    }

    fn add(&mut self, iova: u64, mapping: Mapping) {
        self.bytes = self.bytes.wrapping_add(mapping.len as u64);
        self.maps.insert(iova, mapping);
    }

    fn take(&mut self, iova: u64) -> Option<Mapping> {
        let mapping = self.maps.remove(&iova)?;
        self.bytes = self.bytes.wrapping_sub(mapping.len as u64);
        Some(mapping)
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
        self.add(iova, Mapping { ptr, len: size, rights: ALL_RIGHTS, backing: Backing::Own(layout) });
        // SAFETY: aligned to at least 64 bytes, valid until `free` deallocates it, reached only through atomics here.
        Some(unsafe { DmaMem::new(ptr, iova, size) })
    }

    /// Frees an allocated range. Returns false for what was never allocated here.
    pub(crate) fn free(&mut self, iova: u64) -> bool {
        let Some(mapping) = self.take(iova) else { return false };
        self.remember(iova, mapping.len);
        if let Backing::Own(layout) = mapping.backing {
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
        self.add(iova, Mapping { ptr, len, rights: ALL_RIGHTS, backing: Backing::Caller });
        iova
    }

    /// Ends a [`map`](Self::map). Returns false when there was none like it.
    pub(crate) fn unmap(&mut self, iova: u64, len: usize) -> bool {
        if !self.maps.get(&iova).is_some_and(|m| matches!(m.backing, Backing::Caller) && m.len == len) {
            return false;
        }
        self.take(iova);
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
        (self.maps.len(), self.bytes as usize)
    }

    /// Whether the device may read and write the whole range.
    pub(crate) fn is_mapped(&self, iova: u64, len: usize) -> bool {
        self.for_windows(iova, len, true, |_, _| ()).is_ok()
    }

    /// Calls `access` for the parts of `len` bytes at `iova`, lowest first, with the range of the caller's buffer: one part, or
    /// several in ranges that lie side by side. Nothing is touched unless all of them may be.
    fn for_windows(
        &self,
        iova: u64,
        len: usize,
        write: bool,
        mut access: impl FnMut(&Window, Range<usize>),
    ) -> Result<(), DmaFault> {
        let first = self.window(iova, len, write)?;
        let mut done = first.count();
        let mut rest = Vec::new();
        while done < len {
            let at = iova.checked_add(done as u64).ok_or(DmaFault::Unmapped)?;
            let window = self.window(at, len - done, write)?;
            done += window.count();
            rest.push(window);
        }
        let mut start = 0;
        for window in std::iter::once(&first).chain(&rest) {
            let end = start + window.count();
            access(window, start..end);
            start = end;
        }
        Ok(())
    }

    /// As many of `len` bytes at `iova` as lie in one range; none only when `len` is 0.
    fn window(&self, iova: u64, len: usize, write: bool) -> Result<Window, DmaFault> {
        let found = self.maps.range(..=iova).next_back();
        let Some((mapping, before)) = found.map(|(start, mapping)| (mapping, iova - start)) else {
            return Err(self.missing(iova));
        };
        let left = (mapping.len as u64).saturating_sub(before);
        if left == 0 && (len > 0 || before > mapping.len as u64) {
            return Err(self.missing(iova));
        }
        let permitted = if write { mapping.rights.write } else { mapping.rights.read };
        if !permitted {
            return Err(DmaFault::Denied);
        }
        let count = len.min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(Window::new(mapping.ptr, mapping.len, before as usize, count))
    }

    fn missing(&self, iova: u64) -> DmaFault {
        let freed = self.freed.iter().any(|(start, size)| iova >= *start && iova - start < *size);
        if freed { DmaFault::Freed } else { DmaFault::Unmapped }
    }

    /// The device reads memory.
    pub(crate) fn read(&self, iova: u64, buf: &mut [u8]) -> Result<(), DmaFault> {
        self.for_windows(iova, buf.len(), false, |window, range| window.read(&mut buf[range]))
    }

    /// The device writes memory, lowest address first. The last word is stored with release ordering: whoever sees it
    /// sees all that was written before.
    pub(crate) fn write(&self, iova: u64, buf: &[u8]) -> Result<(), DmaFault> {
        let end = buf.len();
        self.for_windows(iova, end, true, |window, range| {
            let last = if range.end == end { Ordering::Release } else { Ordering::Relaxed };
            window.write(&buf[range], last);
        })
    }
}
