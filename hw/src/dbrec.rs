//! Doorbell records: eight bytes of memory through which software tells the device how far it is.
//!
//! Software writes, the device reads, so the views have no getters. Each setter orders what came before it: entries
//! that are given back have been read, work requests that are announced have been written.

use crate::arch;
use crate::be::Be32;
use crate::cqe::INDEX_MASK;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::uar::CqArm;

/// Size in bytes of a doorbell record; it must be aligned to as much.
pub const BYTES: usize = 8;

crate::prm! {
    /// Doorbell record of a completion queue, as the PRM lists it; [`CqDbRec`] is the view of one in memory.
    pub struct CqDoorbellRecord("cq_doorbell_record", 8) {
        /// Consumer index, 24 bits used: entries before it are the device's again.
        set_ci: 0x00, 32;
        /// Request for an event, see [`CqArm`].
        arm_db: 0x20, 32;
    }
}

crate::prm! {
    /// Doorbell record of a queue pair, as the PRM lists it; [`QpDbRec`] is the view of one in memory.
    pub struct QpDoorbellRecord("qp_doorbell_record", 8) {
        /// Receive work requests posted so far, 16 bits used.
        rcv_dbr: 0x00, 32;
        /// Basic blocks of send work requests posted so far, 16 bits used.
        snd_dbr: 0x20, 32;
    }
}

/// The doorbell record of a completion queue: consumer index, then arm word.
#[derive(Clone, Copy, Debug)]
pub struct CqDbRec<'a>(&'a [AtomicU32; 2]);

impl<'a> CqDbRec<'a> {
    /// The record in these two words of DMA memory.
    #[inline]
    pub const fn new(words: &'a [AtomicU32; 2]) -> Self {
        Self(words)
    }

    /// The record in the first two words of `words`, or `None` if there are fewer.
    #[inline]
    pub fn first_of(words: &'a [AtomicU32]) -> Option<Self> {
        words.first_chunk().map(Self)
    }

    /// Gives the entries before `ci` (its low 24 bits count) back to the device, once all accesses to them are done.
    #[inline]
    pub fn set_consumer(self, ci: u32) {
        arch::dma_mb_before_ci();
        self.0[0].store(Be32::new(ci & INDEX_MASK).to_raw(), Relaxed);
    }

    /// Writes the arm word. The CQ doorbell with the same word follows, behind [`arch::dma_wmb`].
    #[inline]
    pub fn set_arm(self, arm: CqArm) {
        self.0[1].store(Be32::new(arm.into_bits()).to_raw(), Relaxed);
    }
}

/// The doorbell record of a queue pair: receive counter, then send counter.
#[derive(Clone, Copy)]
pub struct QpDbRec<'a>(&'a [AtomicU32; 2]);

impl<'a> QpDbRec<'a> {
    /// The record in these two words of DMA memory.
    #[inline]
    pub const fn new(words: &'a [AtomicU32; 2]) -> Self {
        Self(words)
    }

    /// The record in the first two words of `words`, or `None` if there are fewer.
    #[inline]
    pub fn first_of(words: &'a [AtomicU32]) -> Option<Self> {
        words.first_chunk().map(Self)
    }

    /// Announces receive work requests: `posted` counts all of them so far. They are written before it.
    #[inline]
    pub fn set_receive(self, posted: u16) {
        arch::dma_wmb();
        self.0[0].store(Be32::new(posted as u32).to_raw(), Relaxed);
    }

    /// Announces send work requests: `posted` counts all basic blocks (64 bytes each) so far. They are written before it.
    /// The send doorbell follows, behind [`arch::dma_wmb`].
    #[inline]
    pub fn set_send(self, posted: u16) {
        arch::dma_wmb();
        self.0[1].store(Be32::new(posted as u32).to_raw(), Relaxed);
    }
}

/// The doorbell record of a shared receive queue: its counter, in the first dword.
#[derive(Clone, Copy)]
pub struct SrqDbRec<'a>(&'a AtomicU32);

impl<'a> SrqDbRec<'a> {
    /// The record in the first word of `words`, or `None` if there is none.
    #[inline]
    pub fn first_of(words: &'a [AtomicU32]) -> Option<Self> {
        words.first().map(Self)
    }

    /// Announces receive work requests: `posted` counts all of them so far. They are written before it, links included.
    #[inline]
    pub fn set_posted(self, posted: u16) {
        arch::dma_wmb();
        self.0.store(Be32::new(posted as u32).to_raw(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[AtomicU32; 2]) -> [u8; 8] {
        let mut out = [0; 8];
        for (to, from) in out.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
        }
        out
    }

    #[test]
    fn consumer_index_is_24_bits_big_endian() {
        let mem = [const { AtomicU32::new(0) }; 2];
        CqDbRec::new(&mem).set_consumer(0x0100_0005);
        CqDbRec::new(&mem).set_arm(CqArm::request(1, false, 0xabcdef));
        assert_eq!(bytes(&mem), [0, 0, 0, 5, 0x10, 0xab, 0xcd, 0xef]);
        CqDbRec::new(&mem).set_consumer(u32::MAX);
        assert_eq!(bytes(&mem)[..4], [0, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn receive_counter_comes_first() {
        let mem = [const { AtomicU32::new(0) }; 2];
        QpDbRec::new(&mem).set_receive(0x1234);
        QpDbRec::new(&mem).set_send(0xfffe);
        assert_eq!(bytes(&mem), [0, 0, 0x12, 0x34, 0, 0, 0xff, 0xfe]);
        SrqDbRec::first_of(&mem).unwrap().set_posted(0x4321);
        assert_eq!(bytes(&mem), [0, 0, 0x43, 0x21, 0, 0, 0xff, 0xfe]);
        assert!(SrqDbRec::first_of(&[]).is_none());
        assert!(QpDbRec::first_of(&mem[..1]).is_none() && CqDbRec::first_of(&mem[..1]).is_none());
    }
}
