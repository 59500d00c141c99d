//! BAR 0: mapped where the kernel lets it be, read and written by calls where not.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use mlx5_hw::mmio::MmioBar;
use mlx5_hw::platform::Bar as _;
use rustix::io::{Errno, pread, pwrite};

use super::sys::Mapping;

/// The ranges of a BAR of `size` bytes that may be mapped, when `withheld` ones may not: in whole pages, in order, none of them
/// empty.
pub(super) fn mappable(size: u64, page: u64, withheld: Option<Range<u64>>) -> Vec<Range<u64>> {
    let end = size.next_multiple_of(page);
    let hole = withheld.map_or(end..end, |w| w.start / page * page..w.end.next_multiple_of(page));
    let parts = [0..hole.start.min(end), hole.end.min(end)..end];
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// BAR 0. The function's descriptor is lent for what is not mapped.
pub(super) struct VfioBar {
    size: usize,
    /// Where it is in the descriptor.
    offset: u64,
    parts: Vec<Part>,
}

/// A mapped part.
struct Part {
    start: usize,
    registers: MmioBar,
    _mapping: Mapping,
}

impl VfioBar {
    /// Maps these parts of a BAR of `size` bytes, which lies at `offset` of the descriptor.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(super) fn map(device: BorrowedFd<'_>, size: usize, offset: u64, parts: Vec<Range<u64>>) -> Result<Self, Errno> {
        let map = |range: Range<u64>| {
            let (start, len) = (range.start as usize, (range.end - range.start) as usize);
            let mapping = Mapping::new(device, offset + range.start, len)?;
            // SAFETY: page-aligned and mapped for `len` bytes as long as `mapping` lives, which is as long as this; nothing else
            // is made of it. What lies beyond the BAR in its last page is left out.
            let registers = unsafe { MmioBar::new(mapping.ptr(), len.min(size - start)) };
            Ok(Part { start, registers, _mapping: mapping })
        };
        Ok(Self { size, offset, parts: parts.into_iter().map(map).collect::<Result<_, _>>()? })
    }

    /// Unmaps all of it; nothing is read or written any more.
    pub(super) fn unmap(&mut self) {
        self.parts.clear();
    }

    /// The mapped registers that `offset` lies in, and where in them.
    #[inline]
    fn mapped(&self, offset: usize) -> Option<(&MmioBar, usize)> {
        let part = self.parts.iter().find(|p| offset.checked_sub(p.start).is_some_and(|at| at < p.registers.size()))?;
        Some((&part.registers, offset - part.start))
    }

    fn holds(&self, offset: usize, width: usize) -> bool {
        offset.is_multiple_of(width) && offset.checked_add(width).is_some_and(|end| end <= self.size)
    }

    pub(super) const fn size(&self) -> usize {
        self.size
    }

    #[inline]
    pub(super) fn read32(&self, device: BorrowedFd<'_>, offset: usize) -> u32 {
        if let Some((registers, at)) = self.mapped(offset) {
            return registers.read32(at);
        }
        let mut bytes = [0xff; 4];
        if self.holds(offset, 4) {
            let got = pread(device, &mut bytes, self.offset + offset as u64);
            if got != Ok(4) {
                bytes = [0xff; 4];
            }
        }
        u32::from_le_bytes(bytes)
    }

    #[inline]
    pub(super) fn write32(&self, device: BorrowedFd<'_>, offset: usize, value: u32) {
        match self.mapped(offset) {
            Some((registers, at)) => registers.write32(at, value),
            None => self.put(device, offset, &value.to_le_bytes()),
        }
    }

    #[inline]
    pub(super) fn write64(&self, device: BorrowedFd<'_>, offset: usize, value: u64) {
        match self.mapped(offset) {
            Some((registers, at)) => registers.write64(at, value),
            None => self.put(device, offset, &value.to_le_bytes()),
        }
    }

    /// Writes by a call. A write that the kernel refuses is one that never reached the device, as on the bus.
    fn put(&self, device: BorrowedFd<'_>, offset: usize, bytes: &[u8]) {
        if self.holds(offset, bytes.len()) {
            let _ = pwrite(device, bytes, self.offset + offset as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// First byte of each part, and the one behind it.
    fn parts(size: u64, page: u64, withheld: Option<Range<u64>>) -> Vec<(u64, u64)> {
        mappable(size, page, withheld).into_iter().map(|part| (part.start, part.end)).collect()
    }

    #[test]
    fn without_a_hole_all_of_it_is_mapped_in_whole_pages() {
        assert_eq!(parts(32 << 20, 4096, None), [(0, 32 << 20)]);
        assert_eq!(parts(0, 4096, None), []);
    }

    /// C-100: a BAR of 1024 bytes takes a page.
    #[test]
    fn a_bar_smaller_than_a_page_takes_one() {
        assert_eq!(parts(1024, 4096, None), [(0, 0x1000)]);
    }

    /// C-098: the table lies at the very beginning.
    #[test]
    fn an_empty_part_before_the_table_is_left_out_and_what_follows_is_mapped() {
        assert_eq!(parts(1 << 20, 4096, Some(0..1024)), [(0x1000, 1 << 20)]);
    }

    /// C-099: with pages of 64 KiB the table's page is all of the BAR.
    #[test]
    fn a_table_is_rounded_out_to_pages_and_clipped_to_the_bar() {
        assert_eq!(parts(65536, 65536, Some(57344..57344 + 4096)), []);
        assert_eq!(parts(65536, 4096, Some(57344..57344 + 4096)), [(0, 57344), (61440, 65536)]);
        assert_eq!(parts(0x4000, 4096, Some(0x3800..0x9000)), [(0, 0x3000)]);
        assert_eq!(parts(0x4000, 4096, Some(0x8000..0x9000)), [(0, 0x4000)]);
    }

    /// A file plays the device: mapped and called-for registers are the same bytes.
    #[test]
    fn registers_beside_the_mapped_parts_are_reached_by_calls() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x6000).unwrap();
        let device = file.as_fd();
        let bar = VfioBar::map(device, 0x3800, 0x1000, mappable(0x3800, 4096, Some(0x1100..0x1200))).unwrap();
        let all = VfioBar::map(device, 0x3800, 0x1000, Vec::new()).unwrap();
        for (offset, value) in [(0usize, 1u32), (0xffc, 2), (0x1000, 3), (0x1ffc, 4), (0x2000, 5), (0x37fc, 6)] {
            bar.write32(device, offset, value);
            assert_eq!((bar.read32(device, offset), all.read32(device, offset)), (value, value), "{offset:#x}");
        }
        for offset in [0x18, 0x1018, 0x2018] {
            bar.write64(device, offset, 0x1122_3344_5566_7788);
            assert_eq!((all.read32(device, offset), all.read32(device, offset + 4)), (0x5566_7788, 0x1122_3344));
        }
        for offset in [0x3800, 0x3ffc, 0x1002, usize::MAX - 3] {
            bar.write32(device, offset, 7);
            bar.write64(device, offset, 7);
            assert_eq!(bar.read32(device, offset), u32::MAX, "{offset:#x} is beyond the BAR or not aligned");
        }
        let mut behind = [1; 4];
        pread(device, &mut behind, 0x4800).unwrap();
        assert_eq!(behind, [0; 4], "the rest of the last page is not the BAR's");
    }
}
