//! Taking many received packets at once.
//!
//! As with [`Alike`] entries in general, what is not a plain receive of the queue, in its order, is left for
//! [`Consumer::next`](super::Consumer::next). But headers may differ from packet to packet: their bits are moved, not compared.

use super::{Alike, CqeFormat, InOrder, Ring};
use crate::cqe::{CqeOpcode, OpOwn};
use crate::simd::{Cpu, First, PACKET, PacketRecipe, PacketRecord, packet_taker};
use crate::sync::AtomicU32;

impl<F: CqeFormat> Ring<F> {
    /// [`take_alike`](Self::take_alike) for receives, whose records are made by `recipe`. Nothing is taken if what is alike are sends, or
    /// `cpu` has nothing that reads them many at a time.
    #[inline(always)]
    pub fn take_packets<R: PacketRecord>(
        &mut self,
        mem: &[AtomicU32],
        cpu: Cpu,
        (alike, recipe): (&Alike<'_>, &PacketRecipe),
        next: InOrder<'_>,
        to: &mut [R],
    ) -> usize {
        const { assert!(size_of::<R>() == PACKET) }
        let slot = self.ci & self.mask();
        let entries = mem.as_ptr().cast::<u8>().wrapping_add(slot as usize * F::SIZE + F::DESC);
        let words = (F::SIZE / 4) << self.log_size;
        // Entries of rings with sessions say more than of themselves.
        let is_plain = size_of::<F::Kept>() == 0 && alike.stride == F::SIZE;
        let are_sends = OpOwn::from_bits(alike.op_own).opcode() == CqeOpcode::REQ;
        if mem.len() < words || !entries.addr().is_multiple_of(64) || !is_plain || are_sends {
            return 0;
        }
        let Some(take) = packet_taker(cpu, alike.unnamed != 0, F::SIZE) else { return 0 };
        let most = to.len().min((self.entries() - slot) as usize).min(next.count | alike.unnamed);
        let names = next.names.as_ptr().wrapping_add(next.place.into()).cast();
        let owner = (self.ci.wrapping_shr(self.log_size) & 1) as u8;
        let first = First { place: next.place, mask: next.mask, op_own: alike.op_own | owner };
        let how = (alike.user_index, recipe);
        // SAFETY: the memory is as long as the ring, so `most` entries lie from the next slot on to its end, `F::SIZE` apart, which
        // is what this taker is for; as many names are there and nobody's to write to (`InOrder::new`), and as many records.
        let taken = unsafe { take(how, entries, names, to.as_mut_ptr().cast(), most, first) };
        self.ci = self.ci.wrapping_add(taken as u32);
        taken
    }
}
