//! Completion queues.
//!
//! A [`Cq`] is the one who polls: polling takes it exclusively, so no lock is needed and none is there. What queue pairs
//! share with it ([`Shared`]) is its number, its memory and the table of queues; the last of them to go ends the CQ.

mod alike;
mod batch;
mod completion;
mod create;
mod entries;
mod limits;
mod memory;
mod notify;
mod packets;
mod plan;
mod poll_error;
mod poller;
mod purge;
mod raw;
mod resize;
mod ring_poller;
mod rows;
mod run;
mod sessions;
mod tag_matching;
mod wc;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mlx5_hw::cmd::{DestroyCq, QueryCq};
use mlx5_hw::cqc::Cqc;
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, Enhanced, Ring};

use alike::Likeness;
pub use completion::Completion;
pub use create::CqInitAttrEx;
pub use entries::{AnyEntries, Entries, RingEntries};
pub(crate) use limits::CqLimits;
use memory::{Allocator, RecordMemory, RingMemory};
pub use packets::{Packet, PacketFlags};
pub(crate) use plan::TimeStamps;
pub use poll_error::{PollError, SigErr};
pub use poller::{PollAttr, Poller};
pub(crate) use raw::CQN as RAW_CQN;
pub use raw::RawCqAttr;
use resize::NextRing;
pub use resize::{ModerateCq, ModifyCqAttr};
pub use ring_poller::RingCq;
pub(crate) use rows::{Reader, Rows};
pub use tag_matching::TmInfo;
pub use wc::{Wc, WcOpcode, WcStatus};

use crate::device::{DeviceInner, Patience};
use crate::error::{Error, Returned};
use crate::events::{CqNotice, Place};
use crate::flags::WcFlags;
use crate::parent_domain::DomainMember;
use crate::qp::QpWork;
use crate::sync::Mutex;

/// The ring, by the format of its entries.
pub(crate) enum AnyRing {
    /// 64-byte entries.
    B64(Ring<Cqe64>),
    /// 128-byte entries.
    B128(Ring<Cqe128>),
    /// 64-byte entries, compressed in the basic layout.
    Basic64(Ring<Basic<Cqe64>>),
    /// 128-byte entries, compressed in the basic layout.
    Basic128(Ring<Basic<Cqe128>>),
    /// 64-byte entries, compressed in the enhanced layout.
    Enhanced64(Ring<Enhanced<Cqe64>>),
    /// 128-byte entries, compressed in the enhanced layout.
    Enhanced128(Ring<Enhanced<Cqe128>>),
}

/// The same code for the ring of each format: `each_ring!(&self.ring, ring => ring.ci())`.
macro_rules! each_ring {
    ($any:expr, $ring:ident => $code:expr) => {
        match $any {
            $crate::cq::AnyRing::B64($ring) => $code,
            $crate::cq::AnyRing::B128($ring) => $code,
            $crate::cq::AnyRing::Basic64($ring) => $code,
            $crate::cq::AnyRing::Basic128($ring) => $code,
            $crate::cq::AnyRing::Enhanced64($ring) => $code,
            $crate::cq::AnyRing::Enhanced128($ring) => $code,
        }
    };
}
use each_ring;

/// What a CQ and its queue pairs share.
pub(crate) struct Shared {
    dev: Arc<DeviceInner>,
    cqn: u32,
    /// Its number and context, and what events have said of it.
    notice: Arc<CqNotice>,
    /// The event queue that keeps room for its events, if it has a channel.
    eqn: Option<u32>,
    record: RecordMemory,
    /// The rings that the device has: one, but for a resize.
    rings: Mutex<Vec<Arc<RingMemory>>>,
    /// Until the memory is given back.
    domain: Option<DomainMember>,
    time_stamps: TimeStamps,
    rows: Arc<Rows<QpWork>>,
    /// Created to ignore overrun: batches do not write the consumer index.
    ignore_overrun: bool,
    /// Queues attached: one queue pair counts once for each of its two queues.
    attached: AtomicU32,
    /// DESTROY_CQ has succeeded.
    destroyed: AtomicBool,
}

impl Shared {
    pub(crate) fn cqn(&self) -> u32 {
        self.cqn
    }

    pub(crate) fn rows(&self) -> &Rows<QpWork> {
        &self.rows
    }

    /// Counts a queue; the CQ can't be destroyed until it is [detached](Self::detach).
    pub(crate) fn attach(&self) {
        self.attached.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn detach(&self) {
        self.attached.fetch_sub(1, Ordering::Release);
    }

    /// Whether this is a CQ of the device.
    pub(crate) fn is_of(&self, dev: &Arc<DeviceInner>) -> bool {
        Arc::ptr_eq(&self.dev, dev)
    }

    /// Whether this is a CQ without a device.
    pub(crate) fn is_raw(&self) -> bool {
        self.dev.is_detached()
    }

    /// The time stamps that its completions carry.
    pub(crate) fn time_stamps(&self) -> TimeStamps {
        self.time_stamps
    }

    fn destroy(&self, patience: Patience) -> Result<(), Error> {
        if !self.destroyed.load(Ordering::Acquire) {
            self.dev.exec_with(patience, &DestroyCq { cqn: self.cqn })?;
            self.destroyed.store(true, Ordering::Release);
            self.dev.forget_cq(&self.notice);
            self.eqn.into_iter().for_each(|eqn| self.dev.leave_events(eqn));
        }
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What can't be ended stays lent, and the region goes to the ledger of leaked memory.
        if self.destroy(Patience::Short).is_ok() {
            self.record.reclaim();
            // The CQ, which polls in them, is gone.
            self.rings.get_mut().iter_mut().filter_map(Arc::get_mut).for_each(RingMemory::reclaim);
        } else {
            self.dev.forget_cq(&self.notice);
        }
        self.dev.untrack();
    }
}

/// A completion queue (`ibv_create_cq(3)`).
///
/// Dropping it is the same as [`destroy`](Self::destroy), except that errors are not told and that queue pairs still
/// attached keep the device's side of it alive until they are gone.
pub struct Cq {
    /// The ring's memory. The last reference to it is the shared part's, so it goes first.
    mem: Arc<RingMemory>,
    /// The ring that an unanswered resize brought.
    next: Option<NextRing>,
    shared: Arc<Shared>,
    reader: Reader<QpWork>,
    ring: AnyRing,
    /// An entry that could not be delivered, found behind entries that could.
    pending: Option<PollError>,
    /// Index behind the last entry that was in the ring when a queue pair was reset last.
    marked: u32,
    wc_flags: WcFlags,
    /// Size and stride of entries as contexts say it (PRM `cqc.cqe_sz`).
    cqe_sz: u32,
    /// Wall-clock time is asked for, and the entries carry ticks.
    by_clock: bool,
    likeness: Likeness,
}

impl Cq {
    /// Largest number of entries the CQ holds: one less than its ring has slots. At least what was asked for.
    pub fn cqe(&self) -> u32 {
        self.entries() - 1
    }

    /// The device's number for the CQ, 24 bits.
    pub fn cqn(&self) -> u32 {
        self.shared.cqn
    }

    /// Size of one entry in bytes, 64 or 128.
    pub fn cqe_size(&self) -> u32 {
        each_ring!(&self.ring, ring => (ring.bytes() >> ring.log_size()) as u32)
    }

    /// The context given at creation.
    pub fn context(&self) -> u64 {
        self.shared.notice.context()
    }

    /// The fields that completions carry, as asked for at creation.
    pub fn wc_flags(&self) -> WcFlags {
        self.wc_flags
    }

    /// Destroys the CQ (`ibv_destroy_cq(3)`): ends it on the device and gives its memory back.
    ///
    /// ```
    /// # use mlx5::Cq;
    /// fn end(cq: Cq) -> u32 {
    ///     let cqe = cq.cqe();
    ///     let _ = cq.destroy();
    ///     cqe
    /// }
    /// ```
    ///
    /// It can't be used afterwards:
    ///
    /// ```compile_fail,E0382
    /// # use mlx5::Cq;
    /// fn end(cq: Cq) -> u32 {
    ///     let cqe = cq.cqe();
    ///     let _ = cq.destroy();
    ///     cq.cqe()
    /// }
    /// ```
    ///
    /// Nor while it is polled:
    ///
    /// ```
    /// # use mlx5::{Cq, PollAttr, PollError};
    /// fn last(mut cq: Cq) -> Result<u64, PollError> {
    ///     let poller = cq.start_poll(&PollAttr::default())?;
    ///     let id = poller.completion().wr_id();
    ///     drop(poller);
    ///     let _ = cq.destroy();
    ///     Ok(id)
    /// }
    /// ```
    ///
    /// ```compile_fail,E0505
    /// # use mlx5::{Cq, PollAttr, PollError};
    /// fn last(mut cq: Cq) -> Result<u64, PollError> {
    ///     let poller = cq.start_poll(&PollAttr::default())?;
    ///     let id = poller.completion().wr_id();
    ///     let _ = cq.destroy();
    ///     Ok(id)
    /// }
    /// ```
    ///
    /// # Errors
    /// The CQ comes back, usable as before: `Busy` (EBUSY) while a queue pair is attached; `UnackedEvents` (EBUSY) while events
    /// of it have been taken and not been [acknowledged](Self::ack_events), where C waits; else what the device answers. Events
    /// that nobody has taken go with the CQ.
    #[expect(clippy::result_large_err, reason = "the CQ itself comes back")]
    pub fn destroy(self) -> Result<(), Returned<Self>> {
        if self.shared.attached.load(Ordering::Acquire) != 0 {
            return Err(Returned::new(self, Error::Busy));
        }
        let place = self.shared.notice.place();
        if let Some(Err(count)) = place.map(Place::step_out) {
            return Err(Returned::new(self, Error::UnackedEvents { count }));
        }
        match self.shared.destroy(Patience::Full) {
            Ok(()) => Ok(()),
            Err(error) => {
                if let Some(place) = place {
                    place.step_in();
                }
                Err(Returned::new(self, error))
            }
        }
    }

    /// Asks the device for the CQ's context (QUERY_CQ; PRM `cqc`). The consumer index it names is what was consumed so far.
    ///
    /// # Errors
    /// What the device answers.
    pub fn query(&self) -> Result<Cqc, Error> {
        self.publish();
        self.shared.dev.exec(&QueryCq { cqn: self.shared.cqn })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn entries(&self) -> u32 {
        each_ring!(&self.ring, ring => ring.entries())
    }

    /// Number of entries consumed so far.
    fn consumed(&self) -> u32 {
        each_ring!(&self.ring, ring => ring.ci())
    }

    /// Tells the device what was consumed. A batch does that itself when it ends, but not where overrun is ignored; commands
    /// that look at the consumer index need it then.
    fn publish(&self) {
        self.shared.publish(self.consumed());
    }
}

impl Shared {
    /// Tells the device that entries before `ci` are consumed.
    #[inline(always)]
    fn publish(&self, ci: u32) {
        if let Some(record) = self.dbrec() {
            record.set_consumer(ci);
        }
    }

    /// The doorbell record.
    fn dbrec(&self) -> Option<CqDbRec<'_>> {
        CqDbRec::first_of(self.record.words())
    }

    /// Where the CQ's memory comes from.
    fn allocator(&self) -> Allocator<'_> {
        self.domain.as_ref().and_then(DomainMember::allocator)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Entries that nobody will poll hold places of shared receive queues, whose other queue pairs go on.
        if self.shared.rows.has_heirs() {
            let mut wcs = [Wc::default(); 8];
            for _ in 0..self.entries() {
                if self.poll_cq(&mut wcs) == Ok(0) {
                    break;
                }
            }
        }
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("cqn", &self.cqn())
            .field("cqe", &self.cqe())
            .field("cqe_size", &self.cqe_size())
            .field("wc_flags", &self.wc_flags)
            .finish_non_exhaustive()
    }
}
