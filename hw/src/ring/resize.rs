//! Going on in other memory, when the device has exchanged the ring.

use super::{CqeFormat, MAX_LOG_SIZE, Ring, RingError};
use crate::be::Be32;
use crate::cqe::{CqeDataFormat, CqeOpcode};
use crate::sync::{AtomicU32, Ordering::Relaxed};

impl<F: CqeFormat> Ring<F> {
    /// Moves the ring from its memory, `from`, to `to`, which has `2^log_size` slots and was
    /// [initialised](Self::init_memory): if the entry is there by which the device says that it goes on in `to` (opcode
    /// [`RESIZE_CQ`](CqeOpcode::RESIZE_CQ), index `since` or later: one before that is of another resize and means nothing).
    /// Else nothing is changed, and the answer is false; so it is if more entries wait before that one than `to` has slots.
    ///
    /// That entry has used up an index. So what waits before it goes one index further up, and it itself counts as consumed:
    /// no index is without an entry. Sessions are written out as full entries first. The title of later blocks of the
    /// enhanced layout stays.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] as [`new`](Self::new), [`RingError::ShortMemory`] as [`consume`](Self::consume), for either
    /// memory.
    pub fn move_to(
        &mut self,
        from: &[AtomicU32],
        to: &[AtomicU32],
        log_size: u32,
        since: u32,
    ) -> Result<bool, RingError> {
        if log_size > MAX_LOG_SIZE {
            return Err(RingError::TooLarge);
        }
        if to.len() < (F::SIZE / 4) << log_size {
            return Err(RingError::ShortMemory);
        }
        let Some(waiting) = self.before_the_last(from, since)?.filter(|n| *n <= 1 << log_size) else {
            return Ok(false);
        };
        self.expand(from)?;
        let last = self.ci.wrapping_add(waiting);
        let (old_mask, new_mask) = (self.mask(), (1 << log_size) - 1);
        let mut entries = self.consume(from)?;
        loop {
            let at = entries.ci();
            if at == last || entries.next().is_none() {
                break;
            }
            let index = at.wrapping_add(1);
            let lap = index.wrapping_shr(log_size);
            copy::<F>(slot::<F>(from, at & old_mask), slot::<F>(to, index & new_mask), lap);
        }
        entries.abandon();
        self.ci = self.ci.wrapping_add(1);
        self.log_size = log_size;
        Ok(true)
    }

    /// Index behind the last entry that waits in the ring's memory, `mem`. Nothing is consumed.
    ///
    /// # Errors
    /// [`RingError::ShortMemory`] as [`consume`](Self::consume).
    pub fn behind(&mut self, mem: &[AtomicU32]) -> Result<u32, RingError> {
        let mut entries = self.consume(mem)?;
        while entries.next().is_some() {}
        let behind = entries.ci();
        entries.abandon();
        Ok(behind)
    }

    /// Number of slots in front of the entry, from index `since` on, that says that it is the last one; `None` if it is not there.
    fn before_the_last(&mut self, mem: &[AtomicU32], since: u32) -> Result<Option<u32>, RingError> {
        let start = self.ci;
        let mut entries = self.consume(mem)?;
        let mut found = None;
        loop {
            let at = entries.ci();
            let Some(cqe) = entries.next() else { break };
            // A block's opcode is a number of completions.
            let says_so = cqe.opcode() == CqeOpcode::RESIZE_CQ && cqe.format() != CqeDataFormat::COMPRESSED;
            if says_so && is_from(at, since) {
                found = Some(at.wrapping_sub(start));
                break;
            }
        }
        entries.abandon();
        Ok(found)
    }
}

/// Whether index `at` is `since` or later.
pub const fn is_from(at: u32, since: u32) -> bool {
    at.wrapping_sub(since) < 1 << 31
}

/// A slot of a memory that is long enough.
fn slot<F: CqeFormat>(mem: &[AtomicU32], slot: u32) -> &[AtomicU32] {
    let words = F::SIZE / 4;
    mem.get(slot as usize * words..).and_then(|rest| rest.get(..words)).unwrap_or_default()
}

/// Copies an entry into a slot, valid in that slot's lap.
fn copy<F: CqeFormat>(from: &[AtomicU32], to: &[AtomicU32], lap: u32) {
    let ([from @ .., from_tail], [to @ .., to_tail]) = (from, to) else { return };
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Relaxed), Relaxed);
    }
    let tail = Be32::from_raw(from_tail.load(Relaxed));
    to_tail.store(F::owned(tail, lap).to_raw(), Relaxed);
}
