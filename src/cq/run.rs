//! Entries that are like the ones before, read one at a time: what is known of the queue is looked up once for all of them.

use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use mlx5_hw::arch::dma_rmb;
use mlx5_hw::be::Be32;
use mlx5_hw::cqe::{Cqe64Layout, CqeOpcode, INDEX_MASK};
use mlx5_hw::ring::CqeFormat;

use super::alike::Pattern;
use super::batch::Batch;
use super::rows::Watch;
use crate::qp::Outstanding;

/// Dwords of an entry: the user index, what tag matching says, the request of a send, the counter and the last byte.
const USER_INDEX: usize = Cqe64Layout::SRQN_UIDX.dword();
const APP: usize = Cqe64Layout::APP.dword();
const REQUEST: usize = Cqe64Layout::SOP_DROP_QPN.dword();
const TAIL: usize = Cqe64Layout::OP_OWN.dword();

/// The bits of dword [`APP`] that name the application, and the ones that say so of tag matching.
const APP_BITS: u32 = Be32::new(0xff << 24).to_raw();
const TAG_MATCHING: u32 = Be32::new(1 << 24).to_raw();

/// An entry and the name of its request.
pub(super) type Step<'a> = (&'a [AtomicU32; 16], u64);

/// The next entries of one queue, as far as they are alike.
pub(super) struct Run<'a> {
    /// From the next entry's slot on.
    blocks: slice::Iter<'a, [AtomicU32; 16]>,
    /// From the next request on; there were so many.
    names: slice::Iter<'a, AtomicU64>,
    most: u32,
    /// The last dword of the next entry, and which bits of it count.
    tail: u32,
    care: u32,
    user_index: u32,
    /// The dword that they have in common as well, as far as these bits.
    same_at: usize,
    same_bits: u32,
    same: u32,
    queue: &'a Outstanding,
    watch: Watch<'a>,
}

impl<'a> Run<'a> {
    /// The next entry if it is there and like the others: its request is over. Slots have `between` blocks before their descriptor.
    /// When there is none the run is over.
    #[inline(always)]
    pub(super) fn step(&mut self, between: usize) -> Option<Step<'a>> {
        let words = if between == 0 { self.blocks.next()? } else { self.blocks.nth(between)? };
        if (Be32::from_raw(words[TAIL].load(Relaxed)).get() ^ self.tail) & self.care != 0 {
            return None;
        }
        dma_rmb();
        if words[USER_INDEX].load(Relaxed) != self.user_index
            || words[self.same_at % 16].load(Relaxed) & self.same_bits != self.same
            || !self.watch.all_are_there()
        {
            return None;
        }
        let name = self.names.next()?.load(Relaxed);
        self.tail = self.tail.wrapping_add(1 << 16);
        self.queue.advance(1);
        Some((words, name))
    }

    /// How many were taken.
    pub(super) fn taken(&self) -> u32 {
        self.most - self.names.len() as u32
    }
}

impl<'a, F: CqeFormat> Batch<'a, F> {
    /// Blocks of 64 bytes before an entry's descriptor.
    pub(super) const BETWEEN: usize = F::DESC / 64;

    /// What may follow, if the entries before were alike. The next ones are not to be taken otherwise until it is
    /// [over](Self::end_run).
    pub(super) fn run(&mut self) -> Option<Run<'a>> {
        let Pattern { alike, .. } = self.likeness.pattern.as_ref().filter(|_| size_of::<F::Kept>() == 0)?;
        let receive = alike.op_own().opcode() != CqeOpcode::REQ;
        // SAFETY: who has a run drops it before the batch, of which the end settles the pass.
        let (queue, watch) = unsafe { self.ending.pass.lend(alike.user_index().get() & INDEX_MASK) }?;
        if receive && queue.srq.is_some() || !queue.queue(receive).reported_by(self.known.cqn) {
            return None;
        }
        let (lap, blocks) = self.entries.ahead();
        let queue = queue.queue(receive);
        let next = queue.next_in_order();
        let op_own = alike.op_own().with_owner(lap & 1 != 0).into_bits();
        let app = blocks.get(Self::BETWEEN)?[APP].load(Relaxed) & APP_BITS;
        let goes_to_tags = receive && alike.op_own().opcode() != CqeOpcode::RESP_WR_IMM;
        if goes_to_tags && app == TAG_MATCHING {
            return None;
        }
        let (same_at, same_bits, same) =
            if receive { (APP, APP_BITS, app) } else { (REQUEST, u32::MAX, alike.request().to_raw()) };
        Some(Run {
            blocks: blocks.iter(),
            names: next.names().iter(),
            most: next.names().len() as u32,
            tail: u32::from(next.place()) << 16 | u32::from(op_own),
            care: u32::from(next.mask()) << 16 | 0xff,
            user_index: alike.user_index().to_raw(),
            same_at,
            same_bits,
            same,
            queue,
            watch,
        })
    }

    /// What the run has taken is consumed.
    pub(super) fn end_run(&mut self, run: &Run<'_>) {
        self.entries.skip(run.taken());
    }
}
