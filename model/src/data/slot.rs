//! Places in a completion ring: where an entry lies, how it says whose it is, and how it gets there.

use super::cqe::fold;
use crate::device::Device;
use crate::dma::DmaFault;
use crate::objects::Cq;

/// Bytes of what describes a completion; in a 128-byte entry it is the second half.
pub(crate) const DESCRIPTOR: u32 = 64;
/// Its byte that is a signature, or the count of laps.
const SIGNATURE: usize = 62;
/// Its byte that holds opcode, format and owner.
const OP_OWN: usize = 63;

/// An entry as it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) descriptor: [u8; 64],
    /// The first half of a 128-byte entry; a queue of 64-byte entries has no room for it.
    pub(crate) first_half: Option<[u8; 64]>,
}

impl From<[u8; 64]> for Entry {
    fn from(descriptor: [u8; 64]) -> Self {
        Self { descriptor, first_half: None }
    }
}

/// Whether the owner bit is set in entries of position `index` (free-running).
pub(crate) fn lap_bit(cq: &Cq, index: u32) -> bool {
    index >> cq.log_size & 1 == 1
}

/// Puts a descriptor's mark of ownership in for position `index`: the owner bit, or byte 62 in a queue that counts laps, whose
/// owner bit says nothing and is 0.
pub(crate) fn own(cq: &Cq, index: u32, descriptor: &mut [u8; 64]) {
    let owner = if cq.counts_laps() {
        descriptor[SIGNATURE] = (index >> cq.log_size) as u8;
        false
    } else {
        lap_bit(cq, index)
    };
    descriptor[OP_OWN] = descriptor[OP_OWN] & !1 | u8::from(owner);
}

/// As [`own`], and signs the descriptor where its byte is free for that. In dumps of cards the XOR of an entry and of its index
/// is 0xff.
pub(crate) fn own_and_sign(cq: &Cq, index: u32, descriptor: &mut [u8; 64]) {
    descriptor[SIGNATURE] = 0;
    own(cq, index, descriptor);
    if !cq.counts_laps() {
        descriptor[SIGNATURE] = 0xff ^ fold(descriptor) ^ fold(&(index & 0xff_ffff).to_be_bytes());
    }
}

/// Writes an entry at position `index`, the descriptor's last word after all others. A padded queue's first half is zeros when
/// the entry has none; otherwise what has no new bytes keeps its old ones.
pub(crate) fn put(dev: &mut Device, cq: &Cq, index: u32, entry: &Entry) -> Result<(), DmaFault> {
    let slot = if cq.collapsed { 0 } else { index & (cq.entries() - 1) };
    let start = u64::from(slot) * u64::from(cq.entry_size);
    let first_half = entry.first_half.or(cq.padded.then_some([0; 64]));
    match first_half.filter(|_| cq.entry_size > DESCRIPTOR) {
        Some(first_half) => {
            let mut whole = [0; 128];
            whole[..64].copy_from_slice(&first_half);
            whole[64..].copy_from_slice(&entry.descriptor);
            dev.buffer_write("completion queue entry", &cq.buffer, start, &whole)
        }
        None => {
            let at = start + u64::from(cq.entry_size - DESCRIPTOR);
            dev.buffer_write("completion queue entry", &cq.buffer, at, &entry.descriptor)
        }
    }
}
