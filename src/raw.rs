//! Polling without a device: the same [`Cq`], over memory in which somebody else writes entries.
//!
//! For those who measure polling, check it on entries from elsewhere, or read a ring that another driver gave to the device. What
//! polls is what polls any CQ. There is nobody to ask, though: what takes a command answers
//! [`NoDevice`](crate::Failure::NoDevice) (ENODEV), what takes a capability is not there, and no event comes. Destroying or dropping
//! such a CQ frees nothing of the caller's.
//!
//! ```
//! use std::ptr::NonNull;
//!
//! use mlx5::hw::ring::{Cqe64, Ring};
//! use mlx5::raw::{RawCqAttr, RawQp, RawQpAttr};
//! use mlx5::{Cpu, Cq, Wc, WcFlags, WcOpcode};
//!
//! #[repr(align(64))]
//! struct Memory([u8; 4 * 64]);
//! let mut ring = Memory([0; 4 * 64]);
//! let mut record = 0_u64;
//! for slot in ring.0.chunks_mut(64) {
//!     slot[63] = 0xf0;
//! }
//! let attr = RawCqAttr {
//!     ring: NonNull::from(&mut ring).cast(),
//!     log_cq_size: 2,
//!     cqe_size: 64,
//!     compression: None,
//!     record: NonNull::from(&mut record).cast(),
//!     wc_flags: WcFlags::STANDARD,
//!     ignore_overrun: false,
//!     cpu: Cpu::PORTABLE,
//! };
//! // SAFETY: `ring` and `record` outlive the CQ, and are not touched while it is polled.
//! let mut cq = unsafe { Cq::from_raw_parts(&attr)? };
//! let qp = RawQp::attach(&cq, &RawQpAttr { user_index: 7, qpn: 0x41, recv_wr_ids: &[100, 101], ..Default::default() })?;
//! let mut wcs = [Wc::default(); 4];
//! assert_eq!(cq.poll_cq(&mut wcs)?, 0);
//!
//! // What a device writes when a message of 12 bytes has come: user index, length, receive number 1, a receive of lap 0.
//! let entry = attr.ring;
//! for (at, byte) in [(35, 7), (47, 12), (59, 0x41), (61, 1), (63, 0x20)] {
//!     // SAFETY: within the first entry, and nobody polls.
//!     unsafe { entry.add(at).write(byte) };
//! }
//! assert_eq!(cq.poll_cq(&mut wcs)?, 1);
//! assert_eq!((wcs[0].wr_id, wcs[0].byte_len, wcs[0].qp_num), (101, 12, 0x41));
//! assert_eq!(wcs[0].opcode, WcOpcode::RECV);
//! # drop(qp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

pub use crate::cq::RawCqAttr;
use crate::cq::{self, Cq, RAW_CQN};
use crate::error::Error;
use crate::gate::Gate;
use crate::qp::{Outstanding, QpWork, UserIndex};
use crate::srq::SrqWork;

const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// What a queue pair from raw parts is made of: [`RawQp::attach`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RawQpAttr<'a> {
    /// What entries name it by, below 0xffffff.
    pub user_index: u32,
    /// Its number, as [`RawQp::qp_num`] gives it back; completions have the one in their entry.
    pub qpn: u32,
    /// The `wr_id` of each place of the receive queue: none, or a power of two up to 2^16 of them.
    pub recv_wr_ids: &'a [u64],
    /// The `wr_id` of each basic block of the send queue: none, or a power of two up to 2^16 of them.
    pub send_wr_ids: &'a [u64],
    /// Where its receives come from, if not from its own queue.
    pub srq: Option<&'a RawSrq>,
}

/// A queue of a queue pair with all of its places posted.
fn queue(wr_ids: &[u64]) -> Result<Outstanding, Error> {
    if !(wr_ids.is_empty() || wr_ids.len().is_power_of_two() && wr_ids.len() <= 1 << 16) {
        return invalid("the number of wr_ids is no power of two up to 2^16");
    }
    let queue = Outstanding::new(RAW_CQN, wr_ids.len() as u32, None);
    wr_ids.iter().for_each(|wr_id| queue.push(1, *wr_id, None));
    Ok(queue)
}

/// A queue pair without a device: what a CQ needs of one. All of its places are posted from the start.
///
/// Dropping it takes it off the CQ: entries that name it are then consumed and not delivered.
pub struct RawQp {
    cq: Arc<cq::Shared>,
    qpn: u32,
    work: Arc<QpWork>,
}

impl RawQp {
    /// Makes a queue pair whose two queues a CQ from raw parts reports.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a CQ of a device, a user index that is too large or another's there, and for numbers of `wr_ids` that are
    /// no power of two up to 2^16.
    pub fn attach(cq: &Cq, attr: &RawQpAttr<'_>) -> Result<Self, Error> {
        if !cq.shared().is_raw() {
            return invalid("a CQ of a device");
        }
        let work = Arc::new(QpWork {
            index: UserIndex::given(attr.user_index).map_or(invalid("user_index is too large"), Ok)?,
            pd: 0,
            copies: Gate::default(),
            queues: [queue(attr.send_wr_ids)?, queue(attr.recv_wr_ids)?],
            srq: attr.srq.map(|srq| srq.work.clone()),
        });
        let cq = cq.shared().clone();
        cq.rows().reclaim();
        if !cq.rows().publish(attr.user_index, &work) {
            return invalid("user_index is another queue pair's");
        }
        cq.attach();
        Ok(Self { cq, qpn: attr.qpn, work })
    }

    /// The number that it was given.
    pub fn qp_num(&self) -> u32 {
        self.qpn
    }

    /// The next `n` places of the receive queue are posted, or as many as are free, with the ids that they have. They are taken in
    /// their order, round and round. For one thread at a time.
    pub fn announce_receives(&self, n: u32) {
        self.work.recv().post_again(n);
    }

    /// Starts anew: what was posted is forgotten, and all places of both queues are posted, from the first on, with the ids that
    /// they have. For rings whose entries count from 0 again in each lap; nobody polls meanwhile.
    pub fn rewind(&self) {
        self.work.queues.iter().for_each(Outstanding::rewind);
    }

    /// The same for `n` basic blocks of the send queue, each a request of its own.
    pub fn announce_sends(&self, n: u32) {
        self.work.send().post_again(n);
    }
}

impl Drop for RawQp {
    fn drop(&mut self) {
        self.cq.rows().retire(self.work.index.get(), &self.work, self.work.srq.is_some());
        self.cq.rows().reclaim();
        self.cq.detach();
    }
}

impl fmt::Debug for RawQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user_index = self.work.index.get();
        f.debug_struct("RawQp").field("user_index", &user_index).field("qpn", &self.qpn).finish_non_exhaustive()
    }
}

/// A shared receive queue without a device. All of its places are posted from the start.
pub struct RawSrq {
    work: Arc<SrqWork>,
    wr_ids: Box<[u64]>,
}

impl RawSrq {
    /// With a place for each `wr_id`.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for more than 2^16 of them.
    pub fn new(wr_ids: &[u64]) -> Result<Self, Error> {
        if wr_ids.len() > 1 << 16 {
            return invalid("more than 2^16 places");
        }
        let srq = Self { work: Arc::new(SrqWork::new(wr_ids.len() as u32)), wr_ids: wr_ids.into() };
        (0..=u16::MAX).zip(&srq.wr_ids).for_each(|(place, wr_id)| srq.work.push(place, *wr_id));
        Ok(srq)
    }

    /// The places that came free are posted, with the ids that they have. For one thread at a time.
    pub fn post_again(&self) {
        for place in self.work.take_free() {
            if let Some(wr_id) = self.wr_ids.get(place as usize) {
                self.work.push(place as u16, *wr_id);
            }
        }
    }
}

impl fmt::Debug for RawSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawSrq").field("places", &self.wr_ids.len()).finish_non_exhaustive()
    }
}
