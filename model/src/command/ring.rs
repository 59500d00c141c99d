//! What all queues share when they are created: the page list, the doorbell record, the state of the memory.

use super::Reject;
use crate::device::Device;
use crate::objects::Buffer;

/// Whether the list behind the context has exactly the pages that `bytes` of queue need, all aligned and mapped.
pub(super) fn check_buffer(dev: &Device, buffer: &Buffer, list_bytes: usize, bytes: u64) -> Result<(), Reject> {
    let page = 1_u64 << buffer.page_shift;
    let wanted = (buffer.offset + bytes).div_ceil(page);
    if list_bytes as u64 != wanted.saturating_mul(8) {
        return Err(Reject::InputTail);
    }
    if buffer.pages.iter().any(|pa| pa % page != 0) {
        return Err(Reject::RingAlign);
    }
    // Only what the queue uses of its first and last page has to be there.
    let mut at = 0;
    while let Some((iova, together)) = buffer.at(at).filter(|_| at < bytes) {
        let len = together.min(bytes - at);
        if !dev.dma.is_mapped(iova, len as usize) {
            return Err(Reject::RingUnmapped);
        }
        at += len;
    }
    Ok(())
}

/// Whether a doorbell record is aligned and mapped.
pub(super) fn check_record(dev: &Device, record: u64) -> Result<(), Reject> {
    if !record.is_multiple_of(8) {
        return Err(Reject::RecordAlign);
    }
    if dev.dma.is_mapped(record, 8) { Ok(()) } else { Err(Reject::RecordUnmapped) }
}

/// Reads the last two bytes of each entry and returns the first entry for which `wrong` says so.
pub(super) fn first_wrong_entry(
    dev: &mut Device,
    buffer: &Buffer,
    entry_size: u32,
    entries: u32,
    wrong: impl Fn([u8; 2]) -> bool,
) -> Option<u32> {
    (0..entries).find(|index| {
        let mut last = [0; 2];
        let at = u64::from(*index) * u64::from(entry_size) + u64::from(entry_size) - 2;
        dev.buffer_read("queue at its creation", buffer, at, &mut last).is_ok() && wrong(last)
    })
}
