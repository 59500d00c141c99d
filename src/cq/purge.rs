//! Dropping the entries that a queue left behind when it was reset.

use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::Cqe64Layout;
use mlx5_hw::ring::{CqeFormat, Ring};

use super::batch::DROPPED_INDEX;
use super::{Cq, each_ring};

/// Dword of an entry that holds the user index.
const USER_INDEX: usize = Cqe64Layout::SRQN_UIDX.dword();

impl Cq {
    /// Marks the entries of user index `index` that are in the ring, so that polling steps over them. The index lives on.
    ///
    /// The entries are software's until the consumer index moves behind them, so they may be written to.
    pub(crate) fn drop_entries(&mut self, index: u32) {
        let mem = self.shared.mem.words();
        each_ring!(&mut self.ring, ring => mark(ring, mem, index));
    }
}

/// What waits in sessions is written out first: those have one user index for all, and no place for another.
///
/// With the enhanced layout a marked entry may have been the title for sessions that are yet to come. None of them can be of the
/// queue before it, which was reset, and a session of another queue has a title of its own.
fn mark<F: CqeFormat>(ring: &mut Ring<F>, mem: &[AtomicU32], index: u32) {
    let Ok(()) = ring.expand(mem) else { return };
    let Ok(mut entries) = ring.consume(mem) else { return };
    while let Some(cqe) = entries.next() {
        if cqe.srqn_or_uidx() == index {
            cqe.words()[USER_INDEX].store(Be32::new(DROPPED_INDEX).to_raw(), Ordering::Relaxed);
        }
    }
    entries.abandon();
}
