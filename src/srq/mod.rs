//! Shared receive queues: several queue pairs take their receives from one.
//!
//! To the device it is a receive memory pool (RMP) with a linked list, as Linux makes it. Each entry names the place of the
//! one that is posted after it. Requests end in any order and on any CQ; a place that came free is hung on to the end of the list.
//!
//! The [`Srq`] is the one who posts: it alone knows the list, and takes nothing of it from the memory that the device can write
//! to. What pollers share with it ([`SrqWork`]) are the requests' ids and the places that came free. What queue pairs share
//! ([`Shared`]) is the device's object; the last of them to go ends it.

mod attr;
mod create;
mod free;
mod post;
mod work;

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mlx5_hw::cmd::{DestroyRmp, ModifyRmp, QueryRmp};
use mlx5_hw::rmpc::RmpState;

pub use attr::{SrqAttr, SrqInitAttr};
pub(crate) use free::Chain;
use post::Poster;
pub(crate) use work::SrqWork;

use crate::device::{DeviceInner, Patience};
use crate::dma::DmaRegion;
use crate::error::{Error, Returned};
use crate::events::Ticket;
use crate::flags::SrqAttrMask;
use crate::pd::Member;

/// What a shared receive queue and its queue pairs share.
pub(crate) struct Shared {
    member: Member,
    srqn: u32,
    ticket: Ticket,
    /// The entries, then the doorbell record.
    mem: DmaRegion,
    work: Arc<SrqWork>,
    /// Queue pairs that take from it.
    attached: AtomicU32,
    /// DESTROY_RMP has succeeded.
    destroyed: AtomicBool,
}

impl Shared {
    pub(crate) fn work(&self) -> &Arc<SrqWork> {
        &self.work
    }

    /// Whether this is a queue of the device.
    pub(crate) fn is_of(&self, dev: &Arc<DeviceInner>) -> bool {
        Arc::ptr_eq(self.dev(), dev)
    }

    /// Counts a queue pair; the queue can't be destroyed until it is [detached](Self::detach).
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn detach(&self) {
        self.attached.fetch_sub(1, Ordering::Release);
    }

    fn dev(&self) -> &Arc<DeviceInner> {
        self.member.pd().dev()
    }

    fn destroy(&self, patience: Patience) -> Result<(), Error> {
        if !self.destroyed.load(Ordering::Acquire) {
            self.dev().exec_with(patience, &DestroyRmp { rmpn: self.srqn })?;
            self.destroyed.store(true, Ordering::Release);
            self.dev().forget(self.ticket);
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What can't be ended stays lent, and the region goes to the ledger of leaked memory.
        if self.destroy(Patience::Short).is_ok() {
            self.mem.reclaim();
        } else {
            self.dev().forget(self.ticket);
        }
        self.dev().untrack();
    }
}

/// A shared receive queue (`ibv_create_srq(3)`).
///
/// Posting takes it exclusively, so it needs no lock; other threads may poll the CQs of its queue pairs meanwhile. Dropping it is
/// the same as [`destroy`](Self::destroy), except that errors are not told and that queue pairs that take from it keep the
/// device's side of it alive until they are gone.
pub struct Srq {
    shared: Arc<Shared>,
    poster: Poster,
    /// What was promised to the caller; without the limit.
    attr: SrqAttr,
    context: u64,
}

impl Srq {
    /// The device's number for the queue, 24 bits (`ibv_get_srq_num(3)`).
    pub fn srq_num(&self) -> u32 {
        self.shared.srqn
    }

    /// The context given at creation.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Arms the limit (`ibv_modify_srq(3)`): as soon as fewer than `srq_limit` requests are left, also if that is so already, the device
    /// raises [`SrqLimitReached`](crate::AsyncEvent::SrqLimitReached), once. 0 takes it back.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for an unknown bit in `mask`, for [`MAX_WR`](SrqAttrMask::MAX_WR), which no mlx5 device can change, and for a
    /// limit above `max_wr`; what the device answers.
    pub fn modify(&self, attr: &SrqAttr, mask: SrqAttrMask) -> Result<(), Error> {
        if !SrqAttrMask::all().contains(mask) {
            return Err(Error::Invalid { what: "unknown bit in srq_attr_mask" });
        }
        if mask.contains(SrqAttrMask::MAX_WR) {
            return Err(Error::Invalid { what: "the size of a shared receive queue cannot be changed" });
        }
        if !mask.contains(SrqAttrMask::LIMIT) {
            return Ok(());
        }
        match u16::try_from(attr.srq_limit) {
            Ok(lwm) if attr.srq_limit <= self.attr.max_wr => {
                self.shared.dev().exec(&ModifyRmp { rmpn: self.shared.srqn, lwm })
            }
            _ => Err(Error::Invalid { what: "srq_limit is more than max_wr" }),
        }
    }

    /// Sizes, and the limit as the device has it (`ibv_query_srq(3)`): 0 when it is not armed, or was reached.
    ///
    /// # Errors
    /// What the device answers; `Protocol` for a state that no queue of ours can be in.
    pub fn query(&self) -> Result<SrqAttr, Error> {
        let rmpc = self.shared.dev().exec(&QueryRmp { rmpn: self.shared.srqn })?;
        match RmpState(rmpc.state() as u8) {
            RmpState::RDY | RmpState::ERR => Ok(SrqAttr { srq_limit: rmpc.wq().lwm(), ..self.attr }),
            _ => Err(Error::Protocol { what: "QUERY_RMP answered with an unknown state" }),
        }
    }

    /// Destroys the queue (`ibv_destroy_srq(3)`). Requests that are outstanding end without a completion.
    ///
    /// # Errors
    /// The queue comes back, usable as before: `Busy` (EBUSY) while a queue pair takes from it; else what the device answers.
    pub fn destroy(self) -> Result<(), Returned<Self>> {
        if self.shared.attached.load(Ordering::Acquire) != 0 {
            return Err(Returned::new(self, Error::Busy));
        }
        match self.shared.destroy(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => Err(Returned::new(self, error)),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq").field("srq_num", &self.srq_num()).field("attr", &self.attr).finish_non_exhaustive()
    }
}
