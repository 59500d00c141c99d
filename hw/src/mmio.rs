//! [`Bar`] over a mapped BAR.

use core::ptr::NonNull;

use volatile::VolatilePtr;

use crate::platform::Bar;

/// BAR 0, mapped into the address space and uncached: what a VFIO port and bare metal hand to the driver.
#[derive(Debug)]
pub struct MmioBar {
    ptr: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to no thread, and it is reached by volatile accesses only.
unsafe impl Send for MmioBar {}
// SAFETY: as above; registers are the device's, which serialises what comes over the bus.
unsafe impl Sync for MmioBar {}

impl MmioBar {
    /// Access to the `size` bytes mapped at `ptr`. It unmaps nothing.
    ///
    /// # Safety
    /// `ptr` is aligned to 8 bytes and valid for volatile accesses of `size` bytes as long as this value lives, and
    /// nobody makes a reference to those bytes.
    pub const unsafe fn new(ptr: NonNull<u8>, size: usize) -> Self {
        Self { ptr, size }
    }

    /// The register of type `T` at `offset`, or `None` if it does not lie in the BAR or is not aligned.
    #[inline]
    fn register<T>(&self, offset: usize) -> Option<VolatilePtr<'_, T>> {
        let width = size_of::<T>();
        if !offset.is_multiple_of(width) || offset.checked_add(width)? > self.size {
            return None;
        }
        // SAFETY: the register lies in the mapping, whose alignment `new` promises and `offset` keeps.
        Some(unsafe { VolatilePtr::new(self.ptr.add(offset).cast()) })
    }
}

// SAFETY: one volatile access of the asked width each (two on 32-bit processors, which have no wider one); the check of
// the offset is in `register`.
unsafe impl Bar for MmioBar {
    fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn read32(&self, offset: usize) -> u32 {
        self.register::<u32>(offset).map_or(u32::MAX, |r| u32::from_le(r.read()))
    }

    #[inline]
    fn write32(&self, offset: usize, value: u32) {
        if let Some(r) = self.register::<u32>(offset) {
            r.write(value.to_le());
        }
    }

    #[inline]
    #[cfg(target_pointer_width = "64")]
    fn write64(&self, offset: usize, value: u64) {
        if let Some(r) = self.register::<u64>(offset) {
            r.write(value.to_le());
        }
    }

    #[cfg(not(target_pointer_width = "64"))]
    fn write64(&self, offset: usize, value: u64) {
        if self.register::<u64>(offset).is_some() {
            self.write32(offset, value as u32);
            self.write32(offset + 4, (value >> 32) as u32);
        }
    }
}
