//! I/O addresses: which of them the IOMMU has, and which are taken.

use rustix::io::Errno;
use vfio_bindings::bindings::vfio;
use vm_allocator::{AddressAllocator, AllocPolicy, RangeInclusive};

/// Addresses below this are not given out: 0 means "none" to many, and a small number in place of an address should fault.
const LOWEST: u64 = 1 << 20;
/// What kernels before 5.4, which tell no ranges, leave free of any IOMMU's addresses: 39 bits, but for the window of interrupts.
const OLD_KERNELS: [(u64, u64); 2] = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

/// What an IOMMU can do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// Sizes of pages, a bit each.
    pub(super) page_sizes: u64,
    /// Addresses that may be mapped: first and last of each range.
    pub(super) ranges: Vec<(u64, u64)>,
}

impl IommuInfo {
    /// Reads what the kernel has written: a `vfio_iommu_type1_info` and its chain of capabilities.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let u64_at = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let flags = u32_at(4).unwrap_or(0);
        let sizes = u64_at(8).filter(|_| flags & vfio::VFIO_IOMMU_INFO_PGSIZES != 0);
        let mut info = Self { page_sizes: sizes.unwrap_or(4096), ranges: OLD_KERNELS.to_vec() };
        let mut at = u32_at(16).filter(|_| flags & vfio::VFIO_IOMMU_INFO_CAPS != 0).unwrap_or(0) as usize;
        // A chain has three capabilities; one that is longer than its bytes runs in circles.
        for _ in 0..bytes.len() / 8 {
            let Some(head) = u32_at(at).filter(|_| at != 0) else { break };
            if head & 0xffff == vfio::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
                let count = u32_at(at + 8).unwrap_or(0) as usize;
                let pair = |n: usize| Some((u64_at(at + 16 + 16 * n)?, u64_at(at + 24 + 16 * n)?));
                info.ranges = (0..count).map_while(pair).collect();
            }
            at = u32_at(at + 4).unwrap_or(0) as usize;
        }
        info
    }

    /// The unit in which memory is mapped: the smallest page of both the IOMMU and the processor (of `page` bytes).
    pub(super) fn granule(&self, page: u64) -> u64 {
        (self.page_sizes & self.page_sizes.wrapping_neg()).max(page)
    }
}

/// The addresses that are free.
pub(super) struct IovaSpace {
    ranges: Vec<AddressAllocator>,
}

impl IovaSpace {
    /// All of these ranges, by their first and last addresses, that lie above the first MiB.
    pub(super) fn new(ranges: &[(u64, u64)]) -> Self {
        let usable = |&(first, last): &(u64, u64)| {
            let first = first.max(LOWEST);
            AddressAllocator::new(first, last.checked_sub(first)?.saturating_add(1)).ok()
        };
        Self { ranges: ranges.iter().filter_map(usable).collect() }
    }

    /// Takes `size` addresses, aligned to `align`, a power of two.
    ///
    /// # Errors
    /// `NOSPC` when there are none.
    pub(super) fn take(&mut self, size: u64, align: u64) -> Result<u64, Errno> {
        let taken = self.ranges.iter_mut().find_map(|r| r.allocate(size, align, AllocPolicy::FirstMatch).ok());
        taken.map(|range| range.start()).ok_or(Errno::NOSPC)
    }

    /// Gives back what [`take`](Self::take) gave.
    pub(super) fn give_back(&mut self, iova: u64, size: u64) {
        if let Ok(range) = RangeInclusive::new(iova, iova + (size - 1)) {
            let _ = self.ranges.iter_mut().any(|r| r.free(&range).is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel lays it out: `vfio_iommu_type1_info`, then migration, the ranges, and how many maps are left.
    fn from_kernel(ranges: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let words = |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
        words(&mut bytes, &[0, 3]);
        bytes.extend(0x4020_1000u64.to_ne_bytes());
        words(&mut bytes, &[24, 0]);
        words(&mut bytes, &[2 | 1 << 16, 24 + 32, 0, 0, 0, 0, 0, 0]);
        let end = bytes.len() + 16 + 16 * ranges.len();
        words(&mut bytes, &[1 | 1 << 16, end as u32, ranges.len() as u32, 0]);
        ranges.iter().for_each(|(first, last)| {
            bytes.extend(first.to_ne_bytes());
            bytes.extend(last.to_ne_bytes());
        });
        words(&mut bytes, &[3 | 1 << 16, 0, 65535, 0]);
        bytes
    }

    const VT_D: [(u64, u64); 2] = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];

    #[test]
    fn page_sizes_and_ranges_are_read_from_the_chain_of_capabilities() {
        let ranges = [(0x1000, 0xfedf_ffff), (0xfef0_0000, (1 << 48) - 1)];
        let info = IommuInfo::parse(&from_kernel(&ranges));
        assert_eq!(info, IommuInfo { page_sizes: 0x4020_1000, ranges: ranges.to_vec() });
        assert_eq!((info.granule(4096), info.granule(65536)), (4096, 65536));
        assert_eq!(IommuInfo { page_sizes: 0x2001_0000, ranges: Vec::new() }.granule(4096), 65536);
    }

    #[test]
    fn a_kernel_that_tells_nothing_has_39_bits_without_the_window_of_interrupts() {
        let mut bytes = from_kernel(&[]);
        bytes[4..8].copy_from_slice(&1u32.to_ne_bytes());
        assert_eq!(IommuInfo::parse(&bytes).ranges, VT_D);
        assert_eq!(IommuInfo::parse(&[0; 24]), IommuInfo { page_sizes: 4096, ranges: VT_D.to_vec() });
    }

    #[test]
    fn a_chain_that_is_cut_short_or_runs_in_circles_ends() {
        let whole = from_kernel(&[(0, 0xffff), (0x2_0000, 0x2_ffff)]);
        for len in 0..whole.len() {
            let _ = IommuInfo::parse(&whole[..len]);
        }
        let mut circle = whole;
        let last = circle.len() - 12;
        circle[last..last + 4].copy_from_slice(&24u32.to_ne_bytes());
        assert_eq!(IommuInfo::parse(&circle).ranges.len(), 2);
    }

    /// C-090: with an IOMMU of 39 bits no address beyond them is given out, and none of the window of interrupts.
    #[test]
    fn addresses_come_from_the_reported_ranges_only() {
        let mut space = IovaSpace::new(&VT_D);
        let (gib, mut taken) = (1 << 30, Vec::new());
        while let Ok(iova) = space.take(gib, 1 << 21) {
            assert!(iova >= LOWEST && VT_D.iter().any(|(first, last)| *first <= iova && iova + gib - 1 <= *last));
            assert!(taken.iter().all(|other: &u64| other.abs_diff(iova) >= gib), "{iova:#x} is taken");
            taken.push(iova);
        }
        assert_eq!(taken.len(), 3 + (512 - 4));
        for iova in taken.drain(..) {
            space.give_back(iova, gib);
        }
        assert!(space.take(508 << 30, 1 << 21).is_ok(), "what was given back is whole again");
        assert_eq!(IovaSpace::new(&[(0, 0xf_ffff), (5, 4)]).take(4096, 4096), Err(Errno::NOSPC));
    }
}
