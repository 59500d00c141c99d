//! Dropping the entries that a queue left behind when it was reset.

use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::be::Be32;
use mlx5_hw::cqe::Cqe64Layout;
use mlx5_hw::ring::{CqeFormat, Ring};

use super::batch::DROPPED_INDEX;
use super::{AnyRing, Cq};

/// Dword of an entry that holds the user index.
const USER_INDEX: usize = Cqe64Layout::SRQN_UIDX.dword();

impl Cq {
    /// Marks the entries of user index `index` that are in the ring, so that polling steps over them. The index lives on.
    ///
    /// The entries are software's until the consumer index moves behind them, so they may be written to.
    pub(crate) fn drop_entries(&mut self, index: u32) {
        let mem = self.shared.mem.words();
        match &self.ring {
            AnyRing::B64(ring) => mark(ring, mem, index),
            AnyRing::B128(ring) => mark(ring, mem, index),
        }
    }
}

fn mark<F: CqeFormat>(ring: &Ring<F>, mem: &[AtomicU32], index: u32) {
    let Ok(mut scan) = Ring::<F>::with_ci(ring.log_size(), ring.ci()) else { return };
    let Ok(mut entries) = scan.consume(mem) else { return };
    while let Some(cqe) = entries.next() {
        if cqe.srqn_or_uidx() == index {
            cqe.words()[USER_INDEX].store(Be32::new(DROPPED_INDEX).to_raw(), Ordering::Relaxed);
        }
    }
}
