//! Taking many completions of sessions at once.
//!
//! A receive's completions in a session differ in their length and their request, as far as a record ([`Record`]) shows. So
//! one record of the title serves all of them, and those of later titles that are like it.

use core::sync::atomic::AtomicU64;

use super::layouts::Layout;
use super::sessions::{Compressed, Words};
use super::{Consumer, CqeFormat, InOrder, PlainFormat};
use crate::be::Be32;
use crate::cqe::{CqeDataFormat, CqeRef, INDEX_MASK, OpOwn};
use crate::mini_cqe::MiniFormat;
use crate::simd::{self, Cpu, Record};
use crate::sync::Ordering::Relaxed;

/// Minis in a whole array.
const ARRAY: u32 = 8;

/// Titles of receives that are alike, and the record of a completion with such a title.
#[derive(Clone, Copy, Debug)]
pub struct Titled<R> {
    /// The last byte but for format and owner bit.
    op_own: OpOwn,
    /// What a record may show of a title, as it lies in memory.
    shown: [u32; 6],
    lower_half: u32,
    record: R,
}

/// What a record may show: these dwords, and the lower half of dword 5, which has the checksum above.
const SHOWN: [usize; 6] = [4, 6, 7, 8, 9, 14];
const USER_INDEX: usize = 3;

/// The counter of a title.
#[inline(always)]
fn counter(title: &Words) -> u16 {
    (Be32::from_raw(title[15].load(Relaxed)).get() >> 16) as u16
}

/// Dword 5 but for the checksum.
#[inline(always)]
fn lower_half(title: &Words) -> u32 {
    const CHECK_SUM: u32 = Be32::new(0xffff_0000).to_raw();
    title[5].load(Relaxed) & !CHECK_SUM
}

impl<R: Record> Titled<R> {
    /// What `cqe`, a completion of a session whose minis are of this kind, has in common with others; `record` is its record.
    /// `None` if minis say more than length and request.
    pub fn new(cqe: CqeRef<'_>, record: R) -> Option<Self> {
        const { assert!(size_of::<R>() == simd::RECORD) }
        let says_more = matches!(cqe.mini_format()?, MiniFormat::FtagStridx | MiniFormat::L34hStridx);
        let shown = SHOWN.map(|at| cqe.words()[at].load(Relaxed));
        (!says_more).then(|| Self { op_own: cqe.op_own(), shown, lower_half: lower_half(cqe.words()), record })
    }

    /// Whether the completion `cqe` of a session is one of these.
    #[inline]
    pub fn is_like(&self, cqe: CqeRef<'_>) -> bool {
        self.is_title(cqe.op_own(), cqe.words())
    }

    #[inline(always)]
    fn is_title(&self, op_own: OpOwn, title: &Words) -> bool {
        const OWNER: u8 = OpOwn::new().with_owner(true).into_bits();
        let is = |at: usize| title[SHOWN[at]].load(Relaxed) == self.shown[at];
        (op_own.into_bits() ^ self.op_own.into_bits()) & !OWNER == 0
            && is(0)
            && is(1)
            && is(2)
            && is(3)
            && is(4)
            && is(5)
            && lower_half(title) == self.lower_half
    }

    /// The user index of the queue, 24 bits.
    #[inline(always)]
    pub fn user_index(&self) -> u32 {
        Be32::from_raw(self.shown[USER_INDEX]).get() & INDEX_MASK
    }
}

impl<'m, F: CqeFormat> Consumer<'m, F> {
    /// Takes completions of sessions as long as their titles are like these and they end requests of `queue` in its order, and
    /// writes a record for each: how many. That may be fewer than there are, or none; the rest is for [`next`](Self::next).
    #[inline(always)]
    pub fn take_titled<R: Record>(&mut self, cpu: Cpu, titled: &Titled<R>, queue: InOrder<'_>, to: &mut [R]) -> usize {
        F::take_titled(self, cpu, titled, queue, to)
    }
}

impl<'m, F: PlainFormat, L: Layout> Consumer<'m, Compressed<F, L>> {
    /// [`take_titled`](Self::take_titled).
    #[inline(always)]
    pub(super) fn take_sessions<R: Record>(
        &mut self,
        cpu: Cpu,
        titled: &Titled<R>,
        queue: InOrder<'_>,
        to: &mut [R],
    ) -> usize {
        let mut known: Option<&Words> = None;
        let mut taken = 0;
        loop {
            let (Some(to), Some(names)) = (to.get_mut(taken..), queue.names().get(taken..)) else { return taken };
            let ([to_first, ..], [name, ..]) = (&mut *to, names) else { return taken };
            let place = queue.place().wrapping_add(taken as u16);
            let in_order = |counter: u16| (counter ^ place) & queue.mask() == 0;
            if !self.sessions.open.is_open() {
                let at = self.ci;
                let Some(cqe) = self.take_entry() else { return taken };
                if cqe.format() != CqeDataFormat::COMPRESSED {
                    if !in_order(counter(cqe.words())) || !titled.is_title(cqe.op_own(), cqe.words()) {
                        self.ci = at;
                        return taken;
                    }
                    let length = Be32::from_raw(cqe.words()[11].load(Relaxed)).get();
                    simd::write_record(&titled.record, name.load(Relaxed), length, to_first);
                    L::full(&mut self.sessions, cqe);
                    known = Some(cqe.words());
                    taken += 1;
                    continue;
                }
                let pending = self.sessions.first;
                if !L::begin(self, cqe) {
                    self.ci = at;
                    return taken;
                }
                if let Some(first) = pending.filter(|_| L::STAMPS_SESSIONS) {
                    self.stamp_all(first, at);
                    self.sessions.first = Some(at);
                }
            }
            let (title, open) = (self.sessions.title, self.sessions.open);
            let is_known = known.is_some_and(|known| core::ptr::eq(known, title));
            if !in_order(counter(title).wrapping_add(open.since)) || !is_known && !titled.is_title(open.op_own, title) {
                return taken;
            }
            known = Some(title);
            taken += self.take_of_session(cpu, &titled.record, names, to);
        }
    }

    /// Takes completions of the open session with this record, as many as there are names and places; how many.
    ///
    /// Slots are stamped at once, while their array is at hand, but for the title's, which need not be, and those of an array that is not
    /// yet used up: these are left for the batch's end.
    #[inline(always)]
    fn take_of_session<R: Record>(&mut self, cpu: Cpu, record: &R, names: &[AtomicU64], to: &mut [R]) -> usize {
        let (open, start) = (self.sessions.open, self.ci);
        let most = (open.count.wrapping_sub(open.at) as usize).min(names.len()).min(to.len());
        let mut minis = self.sessions.minis;
        let mut unstamped = start.wrapping_add(u32::from(open.at == 0));
        let at_once = L::STAMPS_SESSIONS && self.sessions.first.is_none_or(|first| first == start);
        let mut taken = 0;
        while taken < most {
            let at = open.at.wrapping_add(taken as u32);
            if at != 0 && at.is_multiple_of(ARRAY) {
                minis = self.descriptor(start.wrapping_add(taken as u32));
            }
            let until = most.min(taken + (ARRAY - at % ARRAY) as usize);
            let (Some(names), Some(to)) = (names.get(taken..until), to.get_mut(taken..until)) else { break };
            taken += simd::take_minis(cpu, minis, at, record, names, to);
            let (next, behind) = (open.at.wrapping_add(taken as u32), start.wrapping_add(taken as u32));
            if at_once && (next.is_multiple_of(ARRAY) || next == open.count) {
                self.stamp_all(unstamped, behind);
                unstamped = behind;
            }
        }
        self.sessions.minis = minis;
        self.sessions.open.at = open.at.wrapping_add(taken as u32);
        self.sessions.open.since = open.since.wrapping_add(taken as u16);
        self.ci = start.wrapping_add(taken as u32);
        if at_once {
            self.sessions.first = self.sessions.open.is_open().then_some(unstamped);
        }
        taken
    }
}
