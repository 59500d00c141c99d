//! Compressed sessions: one entry, the title, and eight bytes for each completion.
//!
//! What both layouts share: which session is open, how its next completion is put together, and what of it outlasts
//! the batch. How a session starts, and which slots it leaves behind that must be stamped, is the
//! [`layout`](super::layouts)'s.

use super::formats::sealed::{Kept, Sealed};
use super::layouts::Layout;
use super::{Consumer, CqeFormat, Format, InOrder, PlainFormat, Ring, RingError, Titled};
use crate::be::Be32;
use crate::cqe::{CqeDataFormat, CqeOpcode, CqeRef, OpOwn};
use crate::mini_cqe::{Mini, MiniFormat};
use crate::simd::{Cpu, Record};
use crate::sync::{AtomicU32, Ordering::Relaxed};
use core::marker::PhantomData;

/// Minis in a whole array.
const ARRAY: u32 = 8;

/// A descriptor in the ring, or the copy of one.
pub(super) type Words = [AtomicU32; 16];

/// Completion entries of the plain format `F`, some of them compressed in sessions of layout `L`:
/// [`Basic`](super::Basic) or [`Enhanced`](super::Enhanced).
#[derive(Debug)]
pub struct Compressed<F, L>(PhantomData<(F, L)>);

impl<F: PlainFormat, L: Layout> Sealed for Compressed<F, L> {}

impl<F: PlainFormat, L: Layout> Format for Compressed<F, L> {
    const SIZE: usize = F::SIZE;
    const DESC: usize = F::DESC;
    const VACANT: u32 = L::VACANT;
    type Kept = Sessions;

    #[inline(always)]
    fn is_owned(tail: Be32, lap: u32) -> bool {
        L::is_owned(tail, lap)
    }

    #[inline]
    fn commit(batch: &mut Consumer<'_, Self>) {
        batch.sessions.keep(L::KEEPS_TITLE);
        *batch.sessions.home = batch.sessions.open;
        L::stamp(batch);
    }
}

impl<F: PlainFormat, L: Layout> CqeFormat for Compressed<F, L> {
    const CQE_SZ: u32 = F::CQE_SZ;

    #[inline(always)]
    fn session_length(cqe: CqeRef<'_>) -> u32 {
        L::session_length(cqe)
    }

    fn owned(tail: Be32, lap: u32) -> Be32 {
        L::owned(tail, lap)
    }

    #[inline(always)]
    fn take<'m>(batch: &mut Consumer<'m, Self>) -> Option<CqeRef<'m>> {
        if batch.sessions.open.is_open() {
            return Some(batch.next_of_session());
        }
        let cqe = batch.take_entry()?;
        if cqe.format() == CqeDataFormat::COMPRESSED {
            return Some(if L::begin(batch, cqe) { batch.next_of_session() } else { cqe });
        }
        L::full(&mut batch.sessions, cqe);
        Some(cqe)
    }

    #[inline(always)]
    fn take_titled<R: Record>(
        batch: &mut Consumer<'_, Self>,
        cpu: Cpu,
        titled: &Titled<R>,
        queue: InOrder<'_>,
        to: &mut [R],
    ) -> usize {
        batch.take_sessions(cpu, titled, queue, to)
    }

    /// Minis lie in slots of later completions: each slot is overwritten only after what the session still needs was
    /// copied.
    fn expand(ring: &mut Ring<Self>, mem: &[AtomicU32]) -> Result<(), RingError> {
        let mut batch = ring.consume(mem)?;
        loop {
            let at = batch.ci;
            let Some(cqe) = batch.next() else { break };
            if cqe.is_compressed() {
                let full = cqe.expand();
                batch.sessions.keep(L::KEEPS_TITLE);
                batch.overwrite(at, full);
            }
        }
        batch.abandon();
        ring.kept.open.count = ring.kept.open.at;
        Ok(())
    }
}

/// What a ring knows of sessions between batches.
#[derive(Debug)]
pub struct Sessions {
    pub(super) format: MiniFormat,
    /// Most completions of a session.
    pub(super) max_num: u32,
    open: Open,
    copy: Copied,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { format: MiniFormat::Hash, max_num: u32::MAX, open: Open::default(), copy: Copied::default() }
    }
}

/// Copies of what lies in slots that were given back, aligned as these are.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Copied {
    title: Words,
    minis: Words,
}

/// Where in which session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    /// The title's, without the format.
    pub(super) op_own: OpOwn,
    /// There is a title.
    pub(super) titled: bool,
    /// What the next completion's counter is beyond the title's, for a responder.
    pub(super) since: u16,
    /// Completions taken out of the session.
    pub(super) at: u32,
    /// Completions of the session.
    pub(super) count: u32,
}

impl Open {
    #[inline(always)]
    pub(super) const fn is_open(self) -> bool {
        self.at != self.count
    }
}

/// Sessions during a batch.
#[derive(Debug)]
pub struct Session<'m> {
    pub(super) format: MiniFormat,
    pub(super) max_num: u32,
    pub(super) open: Open,
    /// Read in the ring, or in the copy while it is the last batch's.
    pub(super) title: &'m Words,
    /// The array of the completion that was taken last, likewise.
    pub(super) minis: &'m Words,
    /// Index of the batch's first slot that was part of a session.
    pub(super) first: Option<u32>,
    home: &'m mut Open,
    copy: &'m Copied,
}

impl Kept for Sessions {
    type Batch<'m> = Session<'m>;

    #[inline(always)]
    fn begin(&mut self, ci: u32) -> Session<'_> {
        let Self { format, max_num, open, copy } = self;
        let first = open.is_open().then_some(ci);
        let (title, minis) = (&copy.title, &copy.minis);
        Session { format: *format, max_num: *max_num, open: *open, title, minis, first, home: open, copy }
    }

    #[inline(always)]
    fn is_open(&self) -> bool {
        self.open.is_open()
    }
}

impl Session<'_> {
    /// Copies what later completions need out of slots that will be overwritten.
    pub(super) fn keep(&mut self, always_title: bool) {
        let Copied { title, minis } = self.copy;
        let open = self.open.is_open();
        if open || always_title {
            copy(self.title, title);
            self.title = title;
        }
        if open {
            copy(self.minis, minis);
            self.minis = minis;
        }
    }
}

fn copy(from: &Words, to: &Words) {
    if core::ptr::eq(from, to) {
        return;
    }
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

impl<'m, F: PlainFormat, L: Layout> Consumer<'m, Compressed<F, L>> {
    /// Takes the next completion of the open session, which is the one in the next slot.
    #[inline(always)]
    fn next_of_session(&mut self) -> CqeRef<'m> {
        let at = self.sessions.open.at;
        if at != 0 && at.is_multiple_of(ARRAY) {
            // The array of completions 8k to 8k + 7 lies in the slot of completion 8k.
            self.sessions.minis = self.descriptor(self.ci);
        }
        let owner = self.lap(self.ci) & 1 != 0;
        let Session { title, minis, format, ref mut open, .. } = self.sessions;
        let counter = (Be32::from_raw(title[15].load(Relaxed)).get() >> 16) as u16;
        let format = (open.op_own.opcode() != CqeOpcode::REQ).then_some(format);
        let mini = Mini::load(minis, at, counter.wrapping_add(open.since), format);
        open.at = at.wrapping_add(1);
        open.since = open.since.wrapping_add(1);
        self.ci = self.ci.wrapping_add(1);
        CqeRef::of_session(title, open.op_own.with_owner(owner), mini)
    }

    /// Writes a full entry, valid in its lap, into the slot of index `ci`.
    fn overwrite(&self, ci: u32, mut entry: [Be32; 16]) {
        entry[15] = L::owned(entry[15], self.lap(ci));
        for (word, value) in self.descriptor(ci).iter().zip(entry) {
            word.store(value.to_raw(), Relaxed);
        }
    }

    /// [Stamps](Self::stamp) the slots from index `from` to the one before `to`.
    #[inline(always)]
    pub(super) fn stamp_all(&self, from: u32, to: u32) {
        let (slot, words) = ((from & self.mask) as usize, F::SIZE / 4);
        let count = to.wrapping_sub(from) as usize;
        // Where they lie one behind the other, as nearly all do.
        if let Some(slots) = self.mem.get(slot * words..(slot + count) * words)
            && slot + count <= self.mask as usize + 1
        {
            let tails = slots.chunks_exact(words).filter_map(|slot| slot.last());
            return tails.for_each(|tail| tail.store(Be32::new(L::VACANT).to_raw(), Relaxed));
        }
        (0..count as u32).for_each(|i| self.stamp(from.wrapping_add(i)));
    }

    /// Stamps the slot of index `ci`: no lap takes it for an entry.
    #[inline(always)]
    pub(super) fn stamp(&self, ci: u32) {
        self.descriptor(ci)[15].store(Be32::new(L::VACANT).to_raw(), Relaxed);
    }
}

impl<F: PlainFormat, L: Layout> Ring<Compressed<F, L>> {
    /// Tells how sessions look: what a responder's minis hold, as the CQ was created, and the most completions that a
    /// session of the basic layout has (capability `cqe_compression_max_num`). Without it minis have the hash, and a
    /// session may fill the ring.
    pub fn with_sessions(mut self, format: MiniFormat, max_num: u32) -> Self {
        self.kept.format = format;
        self.kept.max_num = max_num;
        self
    }
}
