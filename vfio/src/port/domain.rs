//! What a function reaches: the kernel's map of I/O addresses, and which of them are free.

use std::ptr::NonNull;

use rustix::io::Errno;

use super::iova::IovaSpace;
use super::memory::HUGE;

/// The kernel's side: the container, or a fake of it in tests.
pub(super) trait Iommu: Send + Sync {
    /// Lets the device reach `len` bytes at `iova`, all of them multiples of the IOMMU's pages.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`unmap`](Self::unmap), and nothing but atomics refers to it.
    unsafe fn map(&self, iova: u64, ptr: NonNull<u8>, len: usize) -> Result<(), Errno>;

    /// Ends that, for exactly such a range. On success the device does not reach it any more.
    fn unmap(&self, iova: u64, len: usize) -> Result<(), Errno>;
}

/// The addresses of a function: what was mapped is unmapped exactly so.
pub(super) struct Domain {
    iommu: Box<dyn Iommu>,
    space: IovaSpace,
    /// The unit of mapping, in bytes.
    granule: usize,
    maps: u64,
    bytes: u64,
}

/// A range that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) iova: u64,
    pub(super) len: usize,
    /// Addresses taken in front of it, so that large pages can be used.
    lead: u64,
}

impl Mapped {
    pub(super) const fn holds(&self, iova: u64) -> bool {
        iova >= self.iova && iova - self.iova < self.len as u64
    }
}

impl Domain {
    pub(super) fn new(iommu: Box<dyn Iommu>, space: IovaSpace, granule: usize) -> Self {
        Self { iommu, space, granule, maps: 0, bytes: 0 }
    }

    pub(super) const fn granule(&self) -> usize {
        self.granule
    }

    /// Ranges mapped now, and their bytes.
    pub(super) const fn mapped(&self) -> (u64, u64) {
        (self.maps, self.bytes)
    }

    /// Maps memory that begins and ends at multiples of the granule. From 2 MiB on, its I/O address is as far behind a multiple
    /// of 2 MiB as its own, for large pages.
    ///
    /// # Errors
    /// ENOSPC without addresses; what the kernel answers. Nothing is mapped then.
    ///
    /// # Safety
    /// As [`Iommu::map`].
    pub(super) unsafe fn map(&mut self, ptr: NonNull<u8>, len: usize) -> Result<Mapped, Errno> {
        let align = if len >= HUGE { HUGE } else { self.granule };
        let lead = (ptr.as_ptr() as usize % align) as u64;
        let size = lead.checked_add(len as u64).ok_or(Errno::NOSPC)?;
        let start = self.space.take(size, align as u64)?;
        let mapped = Mapped { iova: start + lead, len, lead };
        // SAFETY: the caller's promise.
        if let Err(errno) = unsafe { self.iommu.map(mapped.iova, ptr, len) } {
            self.space.give_back(start, size);
            return Err(errno);
        }
        self.maps += 1;
        self.bytes += len as u64;
        Ok(mapped)
    }

    /// Ends a map.
    ///
    /// # Errors
    /// What the kernel answers; its addresses then stay taken, as the device may still reach them.
    pub(super) fn unmap(&mut self, mapped: Mapped) -> Result<(), Errno> {
        self.iommu.unmap(mapped.iova, mapped.len)?;
        self.space.give_back(mapped.iova - mapped.lead, mapped.lead + mapped.len as u64);
        self.maps -= 1;
        self.bytes -= mapped.len as u64;
        Ok(())
    }
}
