//! [`Bar`] over a mapped BAR.

use core::ops::Range;
use core::ptr::NonNull;

use volatile::VolatilePtr;

use crate::arch;
use crate::platform::Bar;

/// BAR 0, mapped into the address space and uncached, but perhaps for its UAR pages: what a VFIO port and bare metal hand to the
/// driver.
#[derive(Debug)]
pub struct MmioBar {
    ptr: NonNull<u8>,
    size: usize,
    /// What is mapped write-combined.
    combining: Range<usize>,
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
        Self { ptr, size, combining: 0..0 }
    }

    /// Says that the bytes in `range` are mapped write-combined: pages of the UAR, and none with other registers. They should have
    /// that mapping only, as processors do not promise anything for one page with two kinds.
    pub const fn write_combining(self, range: Range<usize>) -> Self {
        Self { combining: range, ..self }
    }

    /// Makes a write that goes to the device at once, behind all stores before it, whatever the mapping.
    #[inline]
    fn at_once(&self, offset: usize, write: impl FnOnce()) {
        let combining = self.combining.contains(&offset);
        if combining {
            arch::wc_flush();
        }
        write();
        if combining {
            arch::wc_flush();
        }
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
// the offset is in `register`. Where the mapping lets writes wait, `at_once` flushes those that may not.
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
            self.at_once(offset, || r.write(value.to_le()));
        }
    }

    #[inline]
    #[cfg(target_pointer_width = "64")]
    fn write64(&self, offset: usize, value: u64) {
        if let Some(r) = self.register::<u64>(offset) {
            self.at_once(offset, || r.write(value.to_le()));
        }
    }

    #[cfg(not(target_pointer_width = "64"))]
    fn write64(&self, offset: usize, value: u64) {
        if self.register::<u64>(offset).is_some() {
            self.write32(offset, value as u32);
            self.write32(offset + 4, (value >> 32) as u32);
        }
    }

    #[inline]
    fn has_wc(&self) -> bool {
        !self.combining.is_empty()
    }

    #[inline]
    fn write_combined(&self, offset: usize, block: &[u64; 8]) {
        for (i, value) in block.iter().enumerate() {
            if let Some(r) = self.register::<u64>(offset.wrapping_add(8 * i)) {
                r.write(value.to_le());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(8))]
    struct Registers([u8; 24]);

    fn with_bar<T>(registers: &mut Registers, size: usize, f: impl FnOnce(&MmioBar) -> T) -> T {
        // SAFETY: aligned, `size` is at most its length, and exclusively borrowed as long as the BAR lives.
        f(&unsafe { MmioBar::new(NonNull::from(&mut registers.0).cast(), size) })
    }

    #[test]
    fn values_are_little_endian_and_exactly_as_wide_as_asked() {
        let mut mem = Registers([0xee; 24]);
        let read = with_bar(&mut mem, 24, |bar| {
            bar.write32(4, 0x0102_0304);
            bar.write64(8, 0x1112_1314_1516_1718);
            (bar.read32(4), bar.read32(8), bar.read32(12), bar.size())
        });
        assert_eq!(read, (0x0102_0304, 0x1516_1718, 0x1112_1314, 24));
        let expected = [4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];
        assert_eq!(mem.0[..4], [0xee; 4]);
        assert_eq!(mem.0[4..16], expected);
        assert_eq!(mem.0[16..], [0xee; 8]);
    }

    #[test]
    fn beyond_the_bar_reads_are_ones_and_writes_vanish() {
        let mut mem = Registers([0; 24]);
        with_bar(&mut mem, 16, |bar| {
            for offset in [16, 20, 1 << 20, usize::MAX - 3, usize::MAX] {
                assert_eq!(bar.read32(offset), u32::MAX);
                bar.write32(offset, 1);
                bar.write64(offset, 1);
            }
            assert_eq!(bar.read32(12), 0);
            assert_eq!(bar.read32(13), u32::MAX, "not aligned");
            bar.write64(12, u64::MAX);
            bar.write32(2, u32::MAX);
        });
        assert_eq!(mem.0, [0; 24]);
        with_bar(&mut mem, 12, |bar| bar.write64(8, u64::MAX));
        assert_eq!(mem.0, [0; 24], "half of it would lie beyond");
    }

    #[test]
    fn a_block_is_stored_in_order() {
        #[repr(align(64))]
        struct Page([u8; 64]);
        let mut page = Page([0; 64]);
        // SAFETY: aligned, of that length, exclusively borrowed until the end.
        let bar = unsafe { MmioBar::new(NonNull::from(&mut page.0).cast(), 64) };
        assert!(!bar.has_wc());
        let bar = bar.write_combining(0..64);
        assert!(bar.has_wc());
        bar.write_combined(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        for offset in [64, 1 << 20, 4, usize::MAX - 63] {
            bar.write_combined(offset, &[9; 8]);
        }
        for i in 0..8 {
            assert_eq!(bar.read32(8 * i), i as u32 + 1);
        }
        bar.write64(8, 0x1122_3344_5566_7788);
        bar.write32(16, 7);
        assert_eq!((bar.read32(8), bar.read32(12), bar.read32(16)), (0x5566_7788, 0x1122_3344, 7));
    }
}
