//! Resizing a CQ, and moderating its events.
//!
//! A resize gives the device a new ring. It writes one more entry to the old ring, which says that it is the last, and goes on in
//! the new one, one index behind it. What waits in the old ring is then taken along ([`Ring::move_to`]), and the old ring is
//! given back.
//!
//! Until the device has answered, both rings may be in use. A resize without an answer leaves the new ring with the CQ: polling
//! goes on in the old ring, does not pass its last entry, and [follows](Cq::follow) if the device should have gone on after all.

use alloc::sync::Arc;
use core::mem;

use mlx5_hw::cmd::{self, Opcode};
use mlx5_hw::cqc::Cqc;
use mlx5_hw::ring::{CqeFormat, Ring};

use super::memory::RingMemory;
use super::plan::log_ring;
use super::{Cq, CqLimits, Shared, each_ring};
use crate::error::{Error, WaitingFor};
use crate::flags::CqAttrMask;
use crate::pages_of;

/// How long the old ring's last entry may take to be seen when the command is done, in nanoseconds. It was written before.
const LAST_ENTRY_NS: u64 = 100_000_000;

/// Longest moderation period in microseconds: the field has 12 bits.
const MAX_PERIOD: u16 = 0xfff;

/// The ring that a resize brings, while the device may or may not use it.
pub(super) struct NextRing {
    mem: Arc<RingMemory>,
    log_size: u32,
    /// Index behind what waited in the old ring when the resize was first asked for. One that was asked for twice may have left an
    /// entry before that which looks like the old ring's last.
    since: u32,
}

/// Moderation of a CQ's events (`struct ibv_moderate_cq`; `ibv_modify_cq(3)`): an event that the CQ was armed for is raised when
/// one of the two is reached. A zero in either turns moderation off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModerateCq {
    /// Completions from the last event to the next.
    pub cq_count: u16,
    /// Microseconds from the last event to the next, at most 4095.
    pub cq_period: u16,
}

/// What to modify of a CQ (`struct ibv_modify_cq_attr`; `ibv_modify_cq(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModifyCqAttr {
    /// Which of the fields below are valid.
    pub attr_mask: CqAttrMask,
    /// Moderation; valid with [`CqAttrMask::MODERATE`].
    pub moderate: ModerateCq,
}

impl Cq {
    /// Gives the CQ room for at least `cqe` entries (`ibv_resize_cq(3)`): the ring gets the next power of two above `cqe` slots,
    /// and [`cqe`](Self::cqe) is one less than that. A size that it has already is no error and does nothing. What waits in the CQ
    /// stays, and so does an error that polling has found and not told yet.
    ///
    /// Queue pairs go on meanwhile. `cqe` must be at least the number of entries that wait.
    ///
    /// # Errors
    /// The CQ goes on as before, with its old size. In this order:
    /// `Invalid` (EINVAL) for more slots than any ring has;
    /// `CqInError` (EIO) when the device has put the CQ in error;
    /// `NotImplemented` (ENOSYS) on a device that does not resize (capability `cq_resize`);
    /// `Invalid` for a `cqe` of 0 or beyond the device's `max_cqe`;
    /// `Busy` (EBUSY) while an earlier resize, to another size, has no answer, even if this size is the present one;
    /// `NoMemory` (ENOMEM), what the parent domain's allocator answers, and what the device answers: `Command` with EINVAL when
    /// more entries wait than fit.
    ///
    /// After an error without an answer (`Timeout` and the like) the device may still exchange the ring: polling then goes on in the
    /// new one by itself, and the memory of both is kept until the CQ is destroyed.
    pub fn resize(&mut self, cqe: u32) -> Result<(), Error> {
        let shared = self.shared.clone();
        if self.next.is_some() {
            self.follow();
        }
        let log_size = self.size_to_make(cqe, &CqLimits::of(&shared.dev))?;
        let (mem, log_size, since) = match (&self.next, log_size) {
            (None, None) => return Ok(()),
            (None, Some(log_size)) => (shared.lend(self.new_ring(log_size)?), log_size, self.behind()),
            // If the device does go on in it after all, doing so once more leaves an entry in it that means nothing.
            (Some(next), Some(log_size)) if next.log_size == log_size => (next.mem.clone(), log_size, next.since),
            (Some(_), _) => return Err(Error::Busy),
        };
        let pages = mem.pages();
        let cqc = Cqc::new()
            .with_cqe_sz(self.cqe_sz)
            .with_log_cq_size(log_size)
            .with_log_page_size(pages.log_size - pages_of::LOG_4K);
        // The device counts what waits.
        self.publish();
        let answer = shared.dev.exec(&cmd::ResizeCq { cqn: shared.cqn, cqc, pas: &pages.addresses });
        if answer.is_err_and(Error::refused) && self.next.is_none() {
            shared.give_back(mem);
            return answer;
        }
        self.likeness.forget();
        self.next = Some(NextRing { mem, log_size, since });
        answer?;
        let old = self.mem.clone();
        self.go_on()?;
        shared.give_back(old);
        Ok(())
    }

    /// The size of the new ring, `log2` of its slots, by the library's checks and then the kernel's; `None` if it has that size.
    fn size_to_make(&self, cqe: u32, limits: &CqLimits) -> Result<Option<u32>, Error> {
        let log_size = log_ring(cqe)?;
        self.check()?;
        if 1 << log_size == self.entries() {
            return Ok(None);
        }
        if !limits.resize {
            return Err(Error::NotImplemented { what: "resizing completion queues (capability cq_resize)" });
        }
        if cqe == 0 {
            return Err(Error::Invalid { what: "cqe is 0" });
        }
        if log_size > limits.log_max_size {
            return Err(Error::Invalid { what: "cqe is more than the device's max_cqe" });
        }
        Ok(Some(log_size))
    }

    /// An empty ring of entries like those of this one.
    fn new_ring(&self, log_size: u32) -> Result<RingMemory, Error> {
        fn init<F: CqeFormat>(_: &Ring<F>, mem: &RingMemory, bytes: usize) {
            Ring::<F>::init_memory(mem.words().get(..bytes / 4).unwrap_or_default());
        }
        let bytes = (self.cqe_size() as usize) << log_size;
        let mem = RingMemory::alloc(&self.shared.dev, bytes, self.shared.allocator())?;
        each_ring!(&self.ring, ring => init(ring, &mem, bytes));
        Ok(mem)
    }

    /// Waits for the old ring's last entry, and goes on in the new ring.
    fn go_on(&mut self) -> Result<(), Error> {
        let dev = self.shared.dev.clone();
        let platform = dev.port().platform();
        let deadline = platform.now().saturating_add(LAST_ENTRY_NS);
        while !self.follow() {
            if platform.now() >= deadline {
                return Err(Error::Timeout { opcode: Opcode::MODIFY_CQ, waiting_for: WaitingFor::LastEntry });
            }
            dev.look().map_err(|why| Error::Failed { why, command: Some(Opcode::MODIFY_CQ), sent: true })?;
            platform.relax();
        }
        Ok(())
    }

    /// Goes on in the new ring if the device has; whether it has. The old ring stays the device's: only its answer says that it
    /// is done with it.
    #[cold]
    pub(super) fn follow(&mut self) -> bool {
        let Some(NextRing { mem, log_size, since }) = &self.next else { return false };
        let (from, to) = (self.mem.words(), mem.words());
        let moved = each_ring!(&mut self.ring, ring => ring.move_to(from, to, *log_size, *since));
        if moved != Ok(true) {
            return false;
        }
        if let Some(next) = self.next.take() {
            drop(mem::replace(&mut self.mem, next.mem));
        }
        // Entries have moved up by one.
        self.marked = self.marked.wrapping_add(1);
        self.publish();
        true
    }

    /// Follows if the device has gone on; else from which index on it may say so.
    #[cold]
    pub(super) fn still_resizing(&mut self) -> Option<u32> {
        self.follow();
        self.next.as_ref().map(|next| next.since)
    }

    /// Index behind the last entry that waits.
    fn behind(&mut self) -> u32 {
        let mem = self.mem.words();
        // A ring's memory is as long as the ring.
        each_ring!(&mut self.ring, ring => ring.behind(mem).unwrap_or(ring.ci()))
    }

    /// Modifies the CQ (`ibv_modify_cq(3)`): its moderation.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for an `attr_mask` of nothing or with an unknown bit;
    /// `CqInError` (EIO) when the device has put the CQ in error;
    /// `Unsupported` (EOPNOTSUPP) on a device that does not moderate (capability `cq_moderation`);
    /// `Invalid` for a `cq_period` beyond 4095; and what the device answers.
    pub fn modify(&self, attr: &ModifyCqAttr) -> Result<(), Error> {
        if attr.attr_mask != CqAttrMask::MODERATE {
            return Err(Error::Invalid { what: "attr_mask is not MODERATE" });
        }
        self.check()?;
        if !CqLimits::of(&self.shared.dev).moderation {
            return Err(Error::Unsupported { what: "moderating completion queues (capability cq_moderation)" });
        }
        let ModerateCq { cq_count, cq_period } = attr.moderate;
        if cq_period > MAX_PERIOD {
            return Err(Error::Invalid { what: "cq_period is more than 4095 microseconds" });
        }
        self.publish();
        let command = cmd::ModerateCq { cqn: self.cqn(), cq_max_count: cq_count.into(), cq_period: cq_period.into() };
        self.shared.dev.exec(&command)
    }
}

impl Shared {
    /// The device gets a ring.
    pub(super) fn lend(&self, mut mem: RingMemory) -> Arc<RingMemory> {
        mem.lend();
        let mem = Arc::new(mem);
        self.rings.lock().push(mem.clone());
        mem
    }

    /// The device is done with a ring, of which this is the CQ's last reference.
    fn give_back(&self, mut mem: Arc<RingMemory>) {
        self.rings.lock().retain(|ring| !Arc::ptr_eq(ring, &mem));
        if let Some(mem) = Arc::get_mut(&mut mem) {
            mem.reclaim();
        }
    }
}
