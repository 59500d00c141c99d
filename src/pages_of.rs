//! How a range of I/O addresses is written down for the device: a list of equal pages.

use alloc::vec::Vec;

/// `log2` of the unit in which contexts count page sizes.
pub(crate) const LOG_4K: u32 = 12;
/// Largest page used. One page of this size or fewer than a command's mailboxes full of them cover any queue.
const LOG_MAX: u32 = 21;
/// As many pages as this fit one mailbox and are not worth larger pages.
const FEW: u64 = 32;

/// Pages of one size.
pub(crate) struct PageList {
    /// `log2` of the size in bytes, 12 or more.
    pub(crate) log_size: u32,
    /// I/O address of each.
    pub(crate) addresses: Vec<u64>,
}

/// Alignment to ask for, so that few pages cover a queue of `bytes` bytes.
pub(crate) fn alignment(bytes: usize) -> usize {
    bytes.next_power_of_two().clamp(1 << LOG_4K, 1 << LOG_MAX)
}

/// The pages of a queue of `bytes` bytes that starts at `iova`, a multiple of 4096: the smallest page that covers all of
/// it, or else the largest that its alignment allows.
pub(crate) fn list(iova: u64, bytes: usize) -> PageList {
    let whole = (bytes as u64).next_power_of_two().ilog2();
    let log_size = whole.min(iova.trailing_zeros()).clamp(LOG_4K, LOG_MAX);
    pages(iova, bytes as u64, log_size)
}

/// The pages of a memory region that users address from `start` on and that lies at `iova`, both with the same offset in
/// a 4096-byte page: small pages while they are few, else the largest in which the offsets still agree.
pub(crate) fn region(start: u64, iova: u64, bytes: u64) -> PageList {
    let agree = (start ^ iova).trailing_zeros().clamp(LOG_4K, LOG_MAX);
    let enough = (bytes / FEW).next_power_of_two().ilog2().max(LOG_4K);
    pages(iova, bytes, agree.min(enough))
}

fn pages(iova: u64, bytes: u64, log_size: u32) -> PageList {
    let first = iova >> log_size;
    let last = iova.saturating_add(bytes.max(1) - 1) >> log_size;
    PageList { log_size, addresses: (first..=last).map(|page| page << log_size).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case C-011: the page size follows from the ring's size.
    #[test]
    fn one_page_covers_a_ring() {
        for (entries, log) in [(64, 0), (256, 2), (1024, 4), (4096, 6)] {
            let bytes = entries * 64;
            let p = list(alignment(bytes) as u64 * 3, bytes);
            assert_eq!((p.log_size - LOG_4K, p.addresses.len()), (log, 1), "{entries} entries");
        }
    }

    #[test]
    fn poorly_aligned_and_huge_rings_are_lists() {
        let p = list(0x5000, 0x4000);
        assert_eq!((p.log_size, &p.addresses[..]), (12, &[0x5000, 0x6000, 0x7000, 0x8000][..]));
        let p = list(1 << 30, 1 << 30);
        assert_eq!((p.log_size, p.addresses.len(), p.addresses[1]), (21, 512, (1 << 30) + (1 << 21)));
    }

    #[test]
    fn a_region_keeps_its_offset_and_covers_both_ends() {
        let p = region(0x7f00_0123, 0x10_0123, 0x1ffe);
        assert_eq!((p.log_size, &p.addresses[..]), (12, &[0x10_0000, 0x10_1000, 0x10_2000][..]));
        let p = region(0x7f00_0000, 0x40_0000, 64 << 20);
        assert_eq!((p.log_size, p.addresses.len()), (21, 32));
        // Offsets agree in 8 KiB only.
        let p = region(0x7f00_2000, 0x40_0000, 64 << 20);
        assert_eq!((p.log_size, p.addresses.len()), (13, 8192));
    }
}
