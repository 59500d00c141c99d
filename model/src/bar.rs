//! BAR 0: the init segment and the UAR pages, by offset.

use std::ops::Range;

use crate::bytes::{be32, be64};
use crate::data;
use crate::device::Device;
use crate::eq;
use crate::flame;
use crate::pci::{MOST_VECTORS, MSIX_PENDING, MSIX_TABLE};
use crate::violation::ViolationKind;

/// Bytes of a UAR page; page n lies at n times that.
pub(crate) const UAR_BYTES: usize = 4096;
/// Bytes of the init segment that have a meaning.
const INIT_SEGMENT_END: usize = 0x2000;
/// The MSI-X table: who routes the interrupts keeps it, here it has no effect.
const VECTOR_TABLE: Range<usize> = MSIX_TABLE as usize..(MSIX_TABLE + 16 * MOST_VECTORS) as usize;
/// The pending bits of MSI-X, 8 vectors a byte.
const PENDING_BITS: Range<usize> = MSIX_PENDING as usize..(MSIX_PENDING + MOST_VECTORS / 8) as usize;

/// Reads 32 bits at `offset`, as a number of the bus (little-endian).
pub(crate) fn read32(dev: &mut Device, offset: usize) -> u32 {
    let mut bytes = [0; 4];
    read(dev, offset, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Reads 1, 2, 4 or 8 bytes at `offset`.
pub(crate) fn read(dev: &mut Device, offset: usize, bytes: &mut [u8]) {
    dev.calls.reads += 1;
    if !dev.reachable() || !in_range(dev, offset, bytes.len()) {
        bytes.fill(0xff);
        return;
    }
    let skip = offset % 4;
    let mut words = [0; 8];
    words[..4].copy_from_slice(&register(dev, offset - skip));
    if bytes.len() == 8 {
        words[4..].copy_from_slice(&register(dev, offset + 4));
    }
    bytes.copy_from_slice(&words[skip..skip + bytes.len()]);
}

/// The four bytes at `offset`, a multiple of four.
fn register(dev: &mut Device, offset: usize) -> [u8; 4] {
    match offset {
        0..INIT_SEGMENT_END => dev.init_segment_read(offset).to_be_bytes(),
        _ if PENDING_BITS.contains(&offset) => dev.irqs.pending_bits((offset - PENDING_BITS.start) * 8).to_le_bytes(),
        _ => [0; 4],
    }
}

/// Whether a write at `offset` arms a completion queue.
pub(crate) fn is_cq_arm(offset: usize) -> bool {
    offset >= INIT_SEGMENT_END && (0x20..0x28).contains(&(offset % UAR_BYTES))
}

/// Writes 1, 2, 4 or 8 bytes at `offset`, or a store of 64 that the processor has combined.
pub(crate) fn write(dev: &mut Device, offset: usize, bytes: &[u8]) {
    if let Ok(block) = bytes.try_into() {
        return flame::store(dev, offset, block);
    }
    flame::release(dev);
    single(dev, offset, bytes);
}

/// Writes at most 8 bytes.
pub(crate) fn single(dev: &mut Device, offset: usize, bytes: &[u8]) {
    let buffer = flame::buffer_bytes(dev);
    dev.calls.write(offset.checked_sub(INIT_SEGMENT_END).map(|at| at % UAR_BYTES), buffer);
    if !dev.reachable() || !in_range(dev, offset, bytes.len()) {
        return;
    }
    if bytes.len() < 4 {
        dev.violate(ViolationKind::BarMisaligned, format!("{} bytes at {offset:#x}", bytes.len()));
    } else if offset < INIT_SEGMENT_END {
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            dev.init_segment_write(offset + 4 * i, be32(word, 0));
        }
    } else if !VECTOR_TABLE.contains(&offset) {
        uar_write(dev, (offset / UAR_BYTES) as u32, offset % UAR_BYTES, bytes);
    }
}

pub(crate) fn in_range(dev: &mut Device, offset: usize, width: usize) -> bool {
    if !matches!(width, 1 | 2 | 4 | 8 | flame::BLOCK) || !offset.is_multiple_of(width) {
        dev.violate(ViolationKind::BarMisaligned, format!("{width} bytes at {offset:#x}"));
        return false;
    }
    let inside = offset.checked_add(width).is_some_and(|end| end <= dev.config.bar_size);
    if !inside {
        dev.violate(ViolationKind::BarOutOfRange, format!("{width} bytes at {offset:#x}"));
    }
    inside
}

/// A write to a UAR page: a doorbell.
fn uar_write(dev: &mut Device, page: u32, offset: usize, bytes: &[u8]) {
    if !dev.objects.uars.contains(&page) {
        dev.violate(ViolationKind::UarUnknownPage, format!("page {page:#x}, offset {offset:#x}"));
        return;
    }
    match (offset, bytes.len()) {
        (0x20, 8) => data::cq_arm(dev, page, be64(bytes, 0)),
        (0x40, 4) => eq::doorbell(dev, page, be32(bytes, 0), true),
        (0x48, 4) => eq::doorbell(dev, page, be32(bytes, 0), false),
        (0x20 | 0x24, 4) => half(dev, page, offset, bytes),
        (0x800.., 4) if offset % flame::buffer_bytes(dev) < 8 => half(dev, page, offset, bytes),
        (0x800.., 8) if offset.is_multiple_of(flame::buffer_bytes(dev)) => {
            flame::doorbell(dev, (page, offset), be64(bytes, 0));
        }
        (0x800.., 8) => flame::piece(dev, page, offset),
        _ => {
            let detail = format!("UAR {page:#x}, {} bytes at {offset:#x}", bytes.len());
            dev.violate(ViolationKind::UarUnknownOffset, detail);
        }
    }
}

/// Half of an 8-byte doorbell: the first half to come, whichever it is, is kept until the other comes.
fn half(dev: &mut Device, page: u32, offset: usize, bytes: &[u8]) {
    let word = be32(bytes, 0);
    let Some((first_page, first_offset, first)) = dev.half_doorbell.replace((page, offset, word)) else { return };
    if (first_page, first_offset) != (page, offset ^ 4) {
        let detail = format!("UAR {first_page:#x}: one half of a doorbell at {first_offset:#x} without the other");
        dev.violate(ViolationKind::UarUnknownOffset, detail);
        return;
    }
    dev.half_doorbell = None;
    let (high, low) = if offset.is_multiple_of(8) { (word, first) } else { (first, word) };
    let value = u64::from(high) << 32 | u64::from(low);
    if offset < 0x800 { data::cq_arm(dev, page, value) } else { flame::doorbell(dev, (page, offset & !4), value) }
}
