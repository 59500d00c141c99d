//! Polling: `start_poll`, `next_poll`, `end_poll` and `poll_cq` over one core.

use core::fmt;

use mlx5_hw::cqe::{CqeDataFormat, CqeRef};
use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::errno::{EINVAL, EIO, ENOENT};
use mlx5_hw::ring::{Consumer, Cqe64, Cqe128, CqeFormat};

use super::completion::{Completion, Current, is_receive};
use super::rows::{Pass, Row};
use super::{AnyRing, Cq, Wc, WcStatus};
use crate::flags::WcFlags;
use crate::qp::QpWork;

/// How to poll (`struct ibv_poll_cq_attr`; `ibv_create_cq_ex(3)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollAttr {
    /// Must be 0: no extension is defined.
    pub comp_mask: u32,
}

/// Why polling gave no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// No completion is there (ENOENT).
    Empty,
    /// An unknown bit in [`PollAttr::comp_mask`] (EINVAL). Nothing was touched.
    InvalidAttr,
    /// An entry names a queue that this CQ does not report (EIO). The entry is consumed; polling goes on behind it.
    UnknownQueue {
        /// The user index in the entry.
        user_index: u32,
        /// The queue number in the entry.
        qpn: u32,
    },
    /// An entry has an opcode that no request of ours completes with (EIO). The entry is consumed; polling goes on behind it.
    UnknownOpcode {
        /// Opcode of the entry (constants `MLX5_CQE_*`).
        opcode: u8,
        /// Opcode of the send request in it (constants `MLX5_OPCODE_*`).
        send_opcode: u8,
        /// The user index in the entry.
        user_index: u32,
    },
    /// An entry has inlined data or starts a compressed session, which this CQ was not created for (EIO). The entry is
    /// consumed; polling goes on behind it.
    UnexpectedFormat {
        /// Format of the entry (constants `MLX5_INLINE_DATA32_SEG` and the like; 3 is compressed).
        format: u8,
        /// The user index in the entry.
        user_index: u32,
    },
}

impl PollError {
    /// The error number of the verbs: Linux's, on every platform; positive.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Empty => ENOENT,
            Self::InvalidAttr => EINVAL,
            Self::UnknownQueue { .. } | Self::UnknownOpcode { .. } | Self::UnexpectedFormat { .. } => EIO,
        }
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("no completion"),
            Self::InvalidAttr => f.write_str("unknown bit in the poll attributes' comp_mask"),
            Self::UnknownQueue { user_index, qpn } => write!(
                f,
                "an entry names user index {user_index:#x} (queue {qpn:#x}), which this CQ does not report; it was dropped"
            ),
            Self::UnknownOpcode { opcode, send_opcode, user_index } => write!(
                f,
                "an entry for user index {user_index:#x} has opcode {opcode:#x} (send opcode {send_opcode:#x}), \
                 which no posted request has; it was dropped"
            ),
            Self::UnexpectedFormat { format, user_index } => write!(
                f,
                "an entry for user index {user_index:#x} has data format {format}, \
                 which this CQ was not created for; it was dropped"
            ),
        }
    }
}

impl core::error::Error for PollError {}

/// What became of one entry.
enum Taken<'m> {
    Delivered(Current<'m>),
    Dropped,
    Bad(PollError),
}

#[cold]
fn unknown_opcode(cqe: CqeRef<'_>) -> PollError {
    PollError::UnknownOpcode { opcode: cqe.opcode().0, send_opcode: cqe.sop_opcode(), user_index: cqe.srqn_or_uidx() }
}

/// Finds the request that an entry ends. Every number in the entry is looked up, masked or checked.
#[inline(always)]
fn take<'m>(cqe: CqeRef<'m>, pass: &Pass<'_, QpWork>, cqn: u32) -> Taken<'m> {
    let user_index = cqe.srqn_or_uidx();
    let queue = match pass.find(user_index) {
        Row::Live(queue) => queue,
        Row::Gone => return Taken::Dropped,
        Row::Unknown if user_index == DROPPED_INDEX => return Taken::Dropped,
        Row::Unknown => return Taken::Bad(PollError::UnknownQueue { user_index, qpn: cqe.qpn() }),
    };
    if cqe.format() != CqeDataFormat::NO_INLINE_DATA {
        return Taken::Bad(PollError::UnexpectedFormat { format: cqe.format().0, user_index });
    }
    let Some(receive) = is_receive(cqe) else { return Taken::Bad(unknown_opcode(cqe)) };
    let work = if receive { &queue.recv } else { &queue.send };
    if !work.reported_by(cqn) {
        return Taken::Bad(PollError::UnknownQueue { user_index, qpn: cqe.qpn() });
    }
    let counter = cqe.wqe_counter();
    let wr_id = if receive { work.complete_one(counter) } else { work.complete_through(counter) };
    let Some(wr_id) = wr_id else { return Taken::Bad(PollError::UnknownQueue { user_index, qpn: cqe.qpn() }) };
    let status = if cqe.is_error() { WcStatus(cqe.syndrome().wc_status()) } else { WcStatus::SUCCESS };
    Taken::Delivered(Current { cqe, wr_id, status })
}

/// The user index that no queue has: software writes it into entries that a reset queue left behind.
pub(super) const DROPPED_INDEX: u32 = 0xff_ffff;

/// One batch: entries are taken through it, and its end gives them back to the device with one store.
struct Batch<'a, F: CqeFormat> {
    entries: Consumer<'a, F>,
    /// Number of ring slots: the most that one batch takes.
    slots: u32,
    pass: Pass<'a, QpWork>,
    dbrec: CqDbRec<'a>,
    cqn: u32,
}

impl<'a, F: CqeFormat> Batch<'a, F> {
    /// Takes entries until one can be delivered or is bad; `None` when no more are there.
    #[inline(always)]
    fn next(&mut self) -> Option<Result<Current<'a>, PollError>> {
        loop {
            let Some(cqe) = self.entries.next() else {
                // A batch that took a whole ring has not looked behind it.
                if self.entries.taken() < self.slots {
                    self.pass.saw_empty();
                }
                return None;
            };
            match take(cqe, &self.pass, self.cqn) {
                Taken::Delivered(current) => return Some(Ok(current)),
                Taken::Bad(error) => return Some(Err(error)),
                Taken::Dropped => {}
            }
        }
    }

    /// Fills `wcs` from the front; how many, and the bad entry that ended it early.
    #[inline(always)]
    fn fill(&mut self, wcs: &mut [Wc]) -> (usize, Option<PollError>) {
        for (filled, wc) in wcs.iter_mut().enumerate() {
            match self.next() {
                Some(Ok(current)) => *wc = current.wc(),
                Some(Err(error)) => return (filled, Some(error)),
                None => return (filled, None),
            }
        }
        (wcs.len(), None)
    }
}

impl<F: CqeFormat> Drop for Batch<'_, F> {
    #[inline]
    fn drop(&mut self) {
        if self.entries.taken() != 0 {
            self.dbrec.set_consumer(self.entries.ci());
        }
        self.pass.settle();
    }
}

/// A batch, by the format of the ring's entries.
enum AnyBatch<'a> {
    B64(Batch<'a, Cqe64>),
    B128(Batch<'a, Cqe128>),
}

impl<'a> AnyBatch<'a> {
    #[inline(always)]
    fn next(&mut self) -> Result<Current<'a>, PollError> {
        let next = match self {
            Self::B64(b) => b.next(),
            Self::B128(b) => b.next(),
        };
        next.unwrap_or(Err(PollError::Empty))
    }
}

impl Cq {
    /// Starts a batch; `None` only if the CQ's memory were shorter than its ring, which creation rules out.
    #[inline(always)]
    fn begin(&mut self) -> Option<AnyBatch<'_>> {
        let (shared, reader) = (&*self.shared, &mut self.reader);
        let (mem, dbrec, cqn) = (shared.mem.words(), shared.dbrec()?, shared.cqn);
        Some(match &mut self.ring {
            AnyRing::B64(ring) => {
                let (slots, entries) = (ring.entries(), ring.consume(mem).ok()?);
                AnyBatch::B64(Batch { entries, slots, pass: reader.begin(), dbrec, cqn })
            }
            AnyRing::B128(ring) => {
                let (slots, entries) = (ring.entries(), ring.consume(mem).ok()?);
                AnyBatch::B128(Batch { entries, slots, pass: reader.begin(), dbrec, cqn })
            }
        })
    }

    /// Starts polling a batch (`ibv_start_poll`). Success *is* the first completion: [`Poller::completion`] has it, and
    /// [`Poller::next`] gives the ones behind it. Dropping the poller is `ibv_end_poll`.
    ///
    /// # Errors
    /// No poller is left after an error, and there is nothing to end:
    /// [`InvalidAttr`](PollError::InvalidAttr) (EINVAL) for an unknown attribute bit, before anything is touched;
    /// [`Empty`](PollError::Empty) (ENOENT) when no completion is there; the others for a bad entry, once.
    pub fn start_poll(&mut self, attr: &PollAttr) -> Result<Poller<'_>, PollError> {
        if attr.comp_mask != 0 {
            return Err(PollError::InvalidAttr);
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let asked = self.wc_flags;
        let mut batch = self.begin().ok_or(PollError::Empty)?;
        let current = batch.next()?;
        Ok(Poller { batch, current, asked })
    }

    /// Polls up to `wcs.len()` completions (`ibv_poll_cq(3)`) and says how many it wrote, from the front; 0 when none is there.
    ///
    /// # Errors
    /// For a bad entry, when nothing lies before it; completions before it are returned first, and the error by the next
    /// call. It comes once; polling then goes on behind it. Never [`Empty`](PollError::Empty).
    pub fn poll_cq(&mut self, wcs: &mut [Wc]) -> Result<usize, PollError> {
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        let (filled, bad) = match self.begin() {
            Some(AnyBatch::B64(mut batch)) => batch.fill(wcs),
            Some(AnyBatch::B128(mut batch)) => batch.fill(wcs),
            None => (0, None),
        };
        match bad {
            Some(error) if filled == 0 => Err(error),
            bad => {
                self.pending = bad;
                Ok(filled)
            }
        }
    }
}

/// A batch of completions being polled: made by [`Cq::start_poll`], ended by dropping it.
///
/// ```
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn sum(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion().wr_id();
///     let second = poller.next()?;
///     Ok(first + second.wr_id())
/// }
/// ```
///
/// A completion is lent until the poller moves on; to hold two of them does not compile:
///
/// ```compile_fail,E0502
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn sum(cq: &mut Cq) -> Result<u64, PollError> {
///     let mut poller = cq.start_poll(&PollAttr::default())?;
///     let first = poller.completion();
///     let second = poller.next()?;
///     Ok(first.wr_id() + second.wr_id())
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
///     drop(other);
///     Ok(())
/// }
/// ```
///
/// Two at once do not compile:
///
/// ```compile_fail,E0499
/// # use mlx5::{Cq, PollAttr, PollError};
/// fn twice(cq: &mut Cq) -> Result<(), PollError> {
///     let poller = cq.start_poll(&PollAttr::default())?;
///     let other = cq.start_poll(&PollAttr::default())?;
///     drop(poller);
///     drop(other);
///     Ok(())
/// }
/// ```
///
/// What was taken is given back to the device when it is dropped, by one store for the whole batch. A poller that is
/// forgotten ([`core::mem::forget`]) gives nothing back: its completions come again.
pub struct Poller<'a> {
    batch: AnyBatch<'a>,
    current: Current<'a>,
    asked: WcFlags,
}

impl Poller<'_> {
    /// The current completion: the first one, or the one that [`next`](Self::next) gave last.
    #[inline]
    pub fn completion(&self) -> Completion<'_> {
        Completion::new(self.current, self.asked)
    }

    /// Moves to the next completion (`ibv_next_poll`).
    ///
    /// # Errors
    /// [`Empty`](PollError::Empty) (ENOENT) when no more are there just now; the others for a bad entry, which is then
    /// behind: the next call goes on. The current completion stays what it was.
    #[expect(clippy::should_implement_trait, reason = "a completion is lent, so two can't be held: not an iterator")]
    #[inline]
    pub fn next(&mut self) -> Result<Completion<'_>, PollError> {
        self.current = self.batch.next()?;
        Ok(self.completion())
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("completion", &self.completion()).finish_non_exhaustive()
    }
}
