//! Polling as the verbs name it: `start_poll`, `next_poll`, `end_poll` and `poll_cq`.

use core::fmt;
use core::sync::atomic::AtomicU32;

use mlx5_hw::cqe::CqeRef;

use super::batch::{self, Filled, Memory, Slots};
use super::completion::{Completion, Current, Told};
use super::entries::{AnyBatch, AnyEntries, Entries};
use super::run::{Run, Step};
use super::{AnyRing, Cq, PollError, Wc, WcStatus, each_ring};
use crate::events::CqNotice;

/// How to poll (`struct ibv_poll_cq_attr`; `ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollAttr {
    /// Must be 0: no extension is defined.
    pub comp_mask: u32,
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
        Poller::start(self, attr)
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
        if let [wc] = wcs
            && self.poll_one_quick(wc)
        {
            return Ok(1);
        }
        if self.is_idle() {
            return Ok(0);
        }
        match self.poll_cq_quick(wcs) {
            (taken, true) => Ok(taken),
            (taken, false) => self.poll_cq_on(wcs, taken),
        }
    }

    /// Takes one entry, if it is like the ones before, in the plainest ring.
    fn poll_one_quick(&mut self, wc: &mut Wc) -> bool {
        let Self { ring: AnyRing::B64(ring), mem, reader, likeness, .. } = self else { return false };
        let taken = batch::fill_one_alike(ring, mem.words(), reader, likeness, wc);
        if taken && !self.shared.ignore_overrun {
            self.shared.publish(ring.ci());
        }
        taken
    }

    /// [`poll_quick`](Self::poll_quick), compiled once.
    fn poll_cq_quick(&mut self, wcs: &mut [Wc]) -> (usize, bool) {
        self.poll_quick(wcs)
    }

    /// Takes what is like the entries before, in the plainest rings; that is most of it. How many, and whether that is all there is
    /// to do.
    #[inline(always)]
    pub(super) fn poll_quick<P: Filled>(&mut self, to: &mut [P]) -> (usize, bool) {
        let Self { ring, mem, reader, likeness, .. } = self;
        let mem = mem.words();
        let taken = match ring {
            AnyRing::B64(ring) => batch::fill_alike(ring, mem, reader, likeness, to),
            AnyRing::B128(ring) => batch::fill_alike(ring, mem, reader, likeness, to),
            _ => 0,
        };
        if taken == 0 {
            return (0, false);
        }
        if taken != to.len() && !self.is_idle() {
            return (taken, false);
        }
        self.publish_batch();
        (taken, true)
    }

    /// Whether there is nothing to poll and nothing to tell; false may mean that it takes a closer look to say.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        let empty = match &self.ring {
            AnyRing::B64(ring) => ring.is_empty(self.mem.words()),
            AnyRing::B128(ring) => ring.is_empty(self.mem.words()),
            _ => false,
        };
        empty && self.is_quiet()
    }

    /// Whether an empty ring says all there is to say.
    #[inline(always)]
    fn is_quiet(&self) -> bool {
        self.pending.is_none()
            && self.next.is_none()
            && self.reader.is_settled()
            && self.shared.notice.error().is_none()
    }

    /// [`poll_on`](Self::poll_on), compiled once.
    #[inline(never)]
    fn poll_cq_on(&mut self, wcs: &mut [Wc], filled: usize) -> Result<usize, PollError> {
        self.poll_on(wcs, filled)
    }

    /// Goes on behind the `filled` that were taken.
    #[inline(always)]
    pub(super) fn poll_on<P: Filled>(&mut self, to: &mut [P], filled: usize) -> Result<usize, PollError> {
        let Some(rest) = to.get_mut(filled..).filter(|rest| !rest.is_empty()) else { return Ok(filled) };
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let resizing = if self.next.is_some() { self.still_resizing() } else { None };
        let slots = Slots { mem: self.mem.words(), marked: self.marked, resizing };
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
                self.likeness.forget();
                self.pending = bad;
                Ok(filled)
            }
        }
    }

    /// Gives what a batch has taken back to the device.
    #[inline(always)]
    pub(super) fn publish_batch(&self) {
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
///
/// `F` is how entries are read: those of any ring ([`Cq::start_poll`]), or of one format ([`RingCq::start_poll`](super::RingCq)).
pub struct Poller<'a, F: Entries = AnyEntries> {
    batch: F::Batch<'a>,
    /// What can be taken without a look at the batch.
    run: Option<Run<'a>>,
    /// The current completion: entry, name, and all else.
    words: &'a [AtomicU32; 16],
    wr_id: u64,
    told: Told<'a>,
    notice: &'a CqNotice,
}

impl<'a, F: Entries> Poller<'a, F> {
    /// What [`Cq::start_poll`] does.
    #[inline(always)]
    pub(super) fn start(cq: &'a mut Cq, attr: &PollAttr) -> Result<Self, PollError> {
        if attr.comp_mask != 0 {
            return Err(PollError::InvalidAttr);
        }
        if let Some(error) = cq.pending.take() {
            return Err(error);
        }
        let resizing = if cq.next.is_some() { cq.still_resizing() } else { None };
        // Before an entry is taken, which would be lost with the error.
        let lines =
            if cq.by_clock { Some(cq.shared.dev.clock().lines().map_err(|_| PollError::ClockBusy)?) } else { None };
        let slots = Slots { mem: cq.mem.words(), marked: cq.marked, resizing };
        let memory = Memory { reader: &mut cq.reader, likeness: &mut cq.likeness };
        let notice = &*cq.shared.notice;
        let record = if cq.shared.ignore_overrun { None } else { cq.shared.dbrec() };
        let batch = F::begin(&mut cq.ring, slots, &cq.shared, memory, record);
        let mut batch = batch.ok_or_else(|| PollError::nothing(notice))?;
        let mut told = Told::new(cq.wc_flags, lines);
        let mut run = None;
        let (words, wr_id) = go_on(&mut batch, &mut run, &mut told, notice)?;
        Ok(Poller { batch, run, words, wr_id, told, notice })
    }

    /// The current completion: the first one, or the one that [`next`](Self::next) gave last.
    #[inline(always)]
    pub fn completion(&self) -> Completion<'_> {
        Completion::new(self.words, self.wr_id, &self.told)
    }

    /// Moves to the next completion (`ibv_next_poll`).
    ///
    /// # Errors
    /// [`Empty`](PollError::Empty) (ENOENT) when no more are there just now, [`CqInError`](PollError::CqInError) (EIO) when none
    /// will come; the others for a bad entry, which is then
    /// behind: the next call goes on. The current completion stays what it was.
    #[expect(clippy::should_implement_trait, reason = "a completion is lent, so two can't be held: not an iterator")]
    #[inline(always)]
    pub fn next(&mut self) -> Result<Completion<'_>, PollError> {
        let alike = self.run.as_mut().and_then(|run| run.step(self.batch.between()));
        (self.words, self.wr_id) = match alike {
            Some(step) => step,
            None => go_on(&mut self.batch, &mut self.run, &mut self.told, self.notice)?,
        };
        Ok(self.completion())
    }
}

/// Takes the next completion when the run is over, and starts another run if it may.
#[inline(never)]
fn go_on<'a, B: AnyBatch<'a>>(
    batch: &mut B,
    run: &mut Option<Run<'a>>,
    told: &mut Told<'a>,
    notice: &CqNotice,
) -> Result<Step<'a>, PollError> {
    if let Some(run) = run.take() {
        batch.end_run(&run);
    }
    if let Some(mut next) = batch.run()
        && let Some((words, wr_id)) = next.step(batch.between())
    {
        let cqe = CqeRef::new(words);
        told.of_all_like(Current { cqe, wr_id, status: WcStatus::SUCCESS });
        *run = Some(next);
        return Ok((words, wr_id));
    }
    let mut current = None;
    batch.next(&mut current)?;
    let current = current.ok_or_else(|| PollError::nothing(notice))?;
    told.of_one(current);
    Ok((current.cqe.words(), current.wr_id))
}

impl<F: Entries> Drop for Poller<'_, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.batch.end_run(&run);
        }
    }
}

impl<F: Entries> fmt::Debug for Poller<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("completion", &self.completion()).finish_non_exhaustive()
    }
}
