//! Polling as the verbs name it: `start_poll`, `next_poll`, `end_poll` and `poll_cq`.

use core::fmt;

use mlx5_hw::ring::{Basic, Cqe64, Cqe128, Enhanced};

use super::batch::{self, Batch, Memory, Place, Slots};
use super::completion::{Completion, Current};
use super::{AnyRing, Cq, PollError, Shared, Wc, each_ring};
use crate::clock::Lines;
use crate::events::CqNotice;
use crate::flags::WcFlags;

/// How to poll (`struct ibv_poll_cq_attr`; `ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollAttr {
    /// Must be 0: no extension is defined.
    pub comp_mask: u32,
}

/// A batch, by the format of the ring's entries.
enum AnyBatch<'a> {
    B64(Batch<'a, Cqe64>),
    B128(Batch<'a, Cqe128>),
    Basic64(Batch<'a, Basic<Cqe64>>),
    Basic128(Batch<'a, Basic<Cqe128>>),
    Enhanced64(Batch<'a, Enhanced<Cqe64>>),
    Enhanced128(Batch<'a, Enhanced<Cqe128>>),
}

impl<'a> AnyBatch<'a> {
    #[inline(always)]
    fn begin(ring: &'a mut AnyRing, slots: Slots<'a>, shared: &'a Shared, memory: Memory<'a>) -> Option<Self> {
        let record = if shared.ignore_overrun { None } else { Some(shared.dbrec()?) };
        match ring {
            AnyRing::B64(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::B64),
            AnyRing::B128(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::B128),
            AnyRing::Basic64(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::Basic64),
            AnyRing::Basic128(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::Basic128),
            AnyRing::Enhanced64(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::Enhanced64),
            AnyRing::Enhanced128(ring) => Batch::begin(ring, slots, shared, memory, record).map(Self::Enhanced128),
        }
    }

    #[inline(always)]
    fn next(&mut self, place: &mut impl Place<'a>, notice: &CqNotice) -> Result<(), PollError> {
        let is_there = match self {
            Self::B64(b) => b.next(place),
            Self::B128(b) => b.next(place),
            Self::Basic64(b) => b.next(place),
            Self::Basic128(b) => b.next(place),
            Self::Enhanced64(b) => b.next(place),
            Self::Enhanced128(b) => b.next(place),
        };
        if is_there? { Ok(()) } else { Err(PollError::nothing(notice)) }
    }
}

impl Cq {
    /// Starts polling a batch (`ibv_start_poll`). Success *is* the first completion: [`Poller::completion`] has it, and
    /// [`Poller::next`] gives the ones behind it. Dropping the poller is `ibv_end_poll`.
    ///
    /// # Errors
    /// No poller is left after an error, and there is nothing to end:
    /// [`InvalidAttr`](PollError::InvalidAttr) (EINVAL) for an unknown attribute bit, before anything is touched;
    /// [`Empty`](PollError::Empty) (ENOENT) when no completion is there, [`CqInError`](PollError::CqInError) (EIO) when none will
    /// come; [`ClockBusy`](PollError::ClockBusy) (EBUSY) before anything is touched, when the time of day is wanted and cannot be
    /// told just now; the others for a bad entry, once.
    pub fn start_poll(&mut self, attr: &PollAttr) -> Result<Poller<'_>, PollError> {
        if attr.comp_mask != 0 {
            return Err(PollError::InvalidAttr);
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let resizing = if self.next.is_some() { self.still_resizing() } else { None };
        let asked = self.wc_flags;
        // Before an entry is taken, which would be lost with the error.
        let lines =
            if self.by_clock { Some(self.shared.dev.clock().lines().map_err(|_| PollError::ClockBusy)?) } else { None };
        let slots = Slots { mem: self.mem.words(), marked: self.marked, resizing, cpu: self.cpu };
        let memory = Memory { reader: &mut self.reader, likeness: &mut self.likeness };
        let batch = AnyBatch::begin(&mut self.ring, slots, &self.shared, memory);
        let notice = &*self.shared.notice;
        let mut batch = batch.ok_or_else(|| PollError::nothing(notice))?;
        let mut current = None;
        batch.next(&mut current, notice)?;
        let current = current.ok_or(PollError::Empty)?;
        Ok(Poller { batch, current, asked, notice, lines })
    }

    /// Polls up to `wcs.len()` completions (`ibv_poll_cq(3)`) and says how many it wrote, from the front; 0 when none is there.
    /// Who asks for none gets none, and an error that waits goes on waiting.
    ///
    /// # Errors
    /// For a bad entry, when nothing lies before it; completions before it are returned first, and the error by the next
    /// call. It comes once; polling then goes on behind it. [`CqInError`](PollError::CqInError) instead of 0 from a CQ in
    /// error. Never [`Empty`](PollError::Empty).
    #[inline]
    pub fn poll_cq(&mut self, wcs: &mut [Wc]) -> Result<usize, PollError> {
        if self.is_idle() { Ok(0) } else { self.poll_cq_now(wcs) }
    }

    /// Whether there is nothing to poll and nothing to tell; false may mean that it takes a closer look to say.
    #[inline(always)]
    fn is_idle(&self) -> bool {
        let empty = match &self.ring {
            AnyRing::B64(ring) => ring.is_empty(self.mem.words()),
            AnyRing::B128(ring) => ring.is_empty(self.mem.words()),
            _ => false,
        };
        empty
            && self.pending.is_none()
            && self.next.is_none()
            && self.reader.is_settled()
            && self.shared.notice.error().is_none()
    }

    /// First as far as entries are like the ones before, in the plainest rings; that is most of them.
    fn poll_cq_now(&mut self, wcs: &mut [Wc]) -> Result<usize, PollError> {
        let Self { ring, mem, shared, reader, likeness, cpu, .. } = self;
        let memory = Memory { reader, likeness };
        let taken = match ring {
            _ if self.pending.is_some() || self.next.is_some() => 0,
            AnyRing::B64(ring) => batch::fill_alike(ring, mem.words(), *cpu, shared, memory, wcs),
            AnyRing::B128(ring) => batch::fill_alike(ring, mem.words(), *cpu, shared, memory, wcs),
            _ => 0,
        };
        if taken != 0 && (taken == wcs.len() || self.is_idle()) {
            self.publish_batch();
            return Ok(taken);
        }
        self.poll_cq_on(wcs, taken)
    }

    /// Goes on behind the `filled` that were taken.
    #[inline(never)]
    fn poll_cq_on(&mut self, wcs: &mut [Wc], filled: usize) -> Result<usize, PollError> {
        let Some(rest) = wcs.get_mut(filled..).filter(|rest| !rest.is_empty()) else { return Ok(filled) };
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let resizing = if self.next.is_some() { self.still_resizing() } else { None };
        let slots = Slots { mem: self.mem.words(), marked: self.marked, resizing, cpu: self.cpu };
        let before = self.consumed();
        let shared = &*self.shared;
        let memory = Memory { reader: &mut self.reader, likeness: &mut self.likeness };
        let (more, bad) = each_ring!(&mut self.ring, ring => batch::fill(ring, slots, shared, memory, rest));
        if filled != 0 || self.consumed() != before {
            self.publish_batch();
        }
        let filled = filled + more;
        match bad {
            None if filled != 0 => Ok(filled),
            None => match PollError::nothing(&self.shared.notice) {
                PollError::Empty => Ok(0),
                error => Err(error),
            },
            Some(error) if filled == 0 => Err(error),
            bad => {
                self.pending = bad;
                Ok(filled)
            }
        }
    }

    /// Gives what a batch has taken back to the device.
    #[inline(always)]
    fn publish_batch(&self) {
        if !self.shared.ignore_overrun {
            self.publish();
        }
    }
}

/// A batch of completions being polled: made by [`Cq::start_poll`], ended by dropping it.
///
/// ```
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn sum(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion();
///     let first_id = first.wr_id();
///     let second = poller.next()?;
///     Ok(first_id + second.wr_id())
/// }
/// ```
///
/// A completion is lent until [`next`](Self::next) moves the poller on; one that outlives it does not compile:
///
/// ```compile_fail,E0502
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn sum(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion();
///     let first_id = first.wr_id();
///     let second = poller.next()?;
///     Ok(first.wr_id() + second.wr_id())
/// }
/// ```
///
/// Nor are there two completions at once:
///
/// ```
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn last(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let second = poller.next()?;
///     let third = poller.next()?;
///     Ok(third.wr_id())
/// }
/// ```
///
/// ```compile_fail,E0499
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn last(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let second = poller.next()?;
///     let third = poller.next()?;
///     Ok(second.wr_id().max(third.wr_id()))
/// }
/// ```
///
/// A completion ends with its batch:
///
/// ```
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn one(cq: &mut Cq) -> Result<u64, PollError> {
///     let poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion();
///     let first_id = first.wr_id();
///     drop(poller);
///     Ok(first_id)
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn one(cq: &mut Cq) -> Result<u64, PollError> {
///     let poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion();
///     let first_id = first.wr_id();
///     drop(poller);
///     Ok(first.wr_id())
/// }
/// ```
///
/// A CQ has one poller at a time. After the first one is dropped there may be another:
///
/// ```
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn twice(cq: &mut Cq) -> Result<(), PollError> {
///     let poller = cq.start_poll(&PollAttr::default())?;
///     drop(poller);
///     let other = cq.start_poll(&PollAttr::default())?;
///     Ok(())
/// }
/// ```
///
/// Nested ones do not compile:
///
/// ```compile_fail,E0499
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn twice(cq: &mut Cq) -> Result<(), PollError> {
///     let poller = cq.start_poll(&PollAttr::default())?;
///     let other = cq.start_poll(&PollAttr::default())?;
///     Ok(())
/// }
/// ```
///
/// What was taken is given back to the device when it is dropped, by one store for the whole batch. A poller that is
/// forgotten ([`core::mem::forget`]) gives nothing back: its completions come again. Poll them before posting more: an entry
/// names a place in the queue, so one that comes again after its place was used again ends the request that is there now.
pub struct Poller<'a> {
    batch: AnyBatch<'a>,
    current: Current<'a>,
    asked: WcFlags,
    notice: &'a CqNotice,
    /// What makes time stamps wall-clock time, as of the start.
    lines: Option<Lines>,
}

impl Poller<'_> {
    /// The current completion: the first one, or the one that [`next`](Self::next) gave last.
    #[inline]
    pub fn completion(&self) -> Completion<'_> {
        Completion::new(self.current, self.asked, self.lines.as_ref())
    }

    /// Moves to the next completion (`ibv_next_poll`).
    ///
    /// # Errors
    /// [`Empty`](PollError::Empty) (ENOENT) when no more are there just now, [`CqInError`](PollError::CqInError) (EIO) when none
    /// will come; the others for a bad entry, which is then
    /// behind: the next call goes on. The current completion stays what it was.
    #[expect(clippy::should_implement_trait, reason = "a completion is lent, so two can't be held: not an iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<Completion<'_>, PollError> {
        self.batch.next(&mut self.current, self.notice)?;
        Ok(self.completion())
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("completion", &self.completion()).finish_non_exhaustive()
    }
}
