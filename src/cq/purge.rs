//! Dropping the entries that a queue left behind when it was reset.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{Cqe64Layout, CqeDataFormat, CqeRef};
use mlx5_hw::ring::{CqeFormat, Ring, RingError};

use super::batch::ends_receive;
use super::{Cq, each_ring};
use crate::qp::QpWork;

/// Bytes that no entry has: with 64 bytes of data, the mark.
const MARK: u32 = u32::MAX;

/// Whether the entry looks like one that a reset queue left behind. A device can write such an entry as well, so it is one only
/// if it was in the ring at the reset ([`Cq::marked`](super::Cq)).
#[inline(always)]
pub(super) fn looks_marked(cqe: CqeRef<'_>) -> bool {
    cqe.format() == CqeDataFormat::INLINE_DATA64_SEG && cqe.byte_cnt() == MARK
}

/// Marks an entry in the ring. What is overwritten are the two fields that no session takes from its title: with the enhanced
/// layout this entry may be the title of completions that are yet to come, of the same queue at its next start.
fn mark(cqe: CqeRef<'_>) {
    const COUNT: usize = Cqe64Layout::BYTE_CNT.dword();
    const TAIL: usize = Cqe64Layout::OP_OWN.dword();
    let op_own = cqe.op_own().with_format(CqeDataFormat::INLINE_DATA64_SEG);
    let tail = Cqe64Layout::OP_OWN.put(cqe.dword::<TAIL>(), op_own.into_bits().into());
    cqe.words()[COUNT].store(Be32::new(MARK).to_raw(), Relaxed);
    cqe.words()[TAIL].store(tail.to_raw(), Relaxed);
}

impl Cq {
    /// Marks the entries of user index `index` that are in the ring, so that polling steps over them. The index lives on. What
    /// they took from a shared receive queue comes free.
    ///
    /// The entries are software's until the consumer index moves behind them, so they may be written to.
    pub(crate) fn drop_entries(&mut self, index: u32, queue: &QpWork) {
        if self.next.is_some() {
            self.follow();
        }
        let mem = self.mem.words();
        let behind = each_ring!(&mut self.ring, ring => mark_all(ring, mem, index, queue));
        self.marked = behind.unwrap_or(self.marked);
    }
}

/// What waits in sessions is written out first: a session has one place for what all of its completions share. The index behind
/// the last entry.
fn mark_all<F: CqeFormat>(ring: &mut Ring<F>, mem: &[AtomicU32], index: u32, queue: &QpWork) -> Result<u32, RingError> {
    ring.expand(mem)?;
    let mut entries = ring.consume(mem)?;
    while let Some(cqe) = entries.next() {
        // Others have something else in the user index's place.
        let Some(receive) = ends_receive(cqe).filter(|_| cqe.srqn_or_uidx() == index) else { continue };
        if let Some(srq) = queue.srq.as_ref().filter(|_| receive && !looks_marked(cqe)) {
            srq.complete(cqe.wqe_counter());
        }
        mark(cqe);
    }
    let behind = entries.ci();
    entries.abandon();
    Ok(behind)
}
