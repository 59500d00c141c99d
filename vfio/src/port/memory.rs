//! Memory of the process's own that a device is to reach.

use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A huge page, and what chunks are aligned to.
pub(super) const HUGE: usize = 1 << 21;

/// Zeroed pages, aligned to 2 MiB, that a child process does not inherit: a copy of them is of no use to it, and before Linux
/// 5.9 it could have been the parent that got the copy. Given back when dropped.
pub(super) struct Pages {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to no thread.
unsafe impl Send for Pages {}

impl Pages {
    /// `len` bytes, a multiple of 2 MiB, in huge pages or in the smallest.
    ///
    /// # Errors
    /// ENOMEM when the system has none, or no huge ones.
    pub(super) fn new(len: usize, huge: bool) -> Result<Self, Errno> {
        let pages = if huge { Self::huge(len) } else { Self::small(len) }?;
        // SAFETY: just mapped; this takes nothing from it.
        unsafe { madvise(pages.ptr.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(pages)
    }

    fn huge(len: usize) -> Result<Self, Errno> {
        Self::map(len, MapFlags::HUGETLB | MapFlags::HUGE_2MB)
    }

    fn small(len: usize) -> Result<Self, Errno> {
        let wide = Self::map(len.checked_add(HUGE).ok_or(Errno::NOMEM)?, MapFlags::empty())?;
        let before = wide.ptr.as_ptr().align_offset(HUGE);
        let pages = wide.cut(before, len);
        // SAFETY: just mapped; this changes how it is filled only. A kernel without huge pages of this kind does not know it.
        let _ = unsafe { madvise(pages.ptr.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        Ok(pages)
    }

    fn map(len: usize, flags: MapFlags) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let ptr = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE | flags) }?;
        Ok(Self { ptr: NonNull::new(ptr.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Keeps `len` bytes from `from` on and gives the rest back; both are multiples of pages.
    fn cut(self, from: usize, len: usize) -> Self {
        let (whole, behind) = (std::mem::ManuallyDrop::new(self), from + len);
        // SAFETY: all three lie in the mapping, whose owner is gone; the middle one has a new one, the others are given back.
        unsafe {
            let (front, ptr, rest) = (whole.ptr, whole.ptr.add(from), whole.ptr.add(behind));
            drop(Self { ptr: front, len: from });
            drop(Self { ptr: rest, len: whole.len - behind });
            Self { ptr, len }
        }
    }

    pub(super) const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: exactly what was mapped, and nobody uses it any more.
            let _ = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
        }
    }
}
