//! Who owns which slot of a completion or event queue, and which completions its entries stand for.
//!
//! # Protocol
//!
//! A ring has `2^log_size` slots. The device writes entries in order, software reads them in order; neither asks the
//! other for each entry. Software counts what it has consumed in `ci`, a free-running 32-bit number: `ci` modulo the
//! number of slots is the next slot, and the bit of `ci` just above that, the *lap bit*, says whether the lap is odd.
//! The device writes the lap bit of its own lap into the owner bit of each entry. So the next slot holds a new entry
//! exactly when its owner bit equals the lap bit of `ci`: one lap behind, the bit is the other one.
//!
//! Before the first lap no entry may look like one. Completion rings are stamped with opcode 15 (`op_own` 0xf0),
//! which no entry has; event rings with owner bit 1, which lap 0 does not have. [`Ring::init_memory`] does that,
//! before the command that gives the ring to the device.
//!
//! Software tells the device what it has consumed by writing the low 24 bits of `ci` to a doorbell record or register.
//! Until then the device leaves the entries alone, so whole batches are read before one such write. The largest ring
//! has 2^24 slots; its lap bit is bit 24, which the device's 24-bit copy lacks but software's has. Wrapping of `ci` at
//! 2^32 changes nothing, since 2^32 is a whole, even number of laps of every ring size.
//!
//! # Sessions
//!
//! A device may compress completions: one entry, the *title*, has what they have in common, and each has eight bytes
//! of its own, its *mini* ([`mini_cqe`](crate::mini_cqe)). A session of `N` completions takes `N` slots, most of
//! which the device leaves as they were: *holes*. Completion `i` of a session belongs to slot `i` of it, and is
//! consumed with it.
//!
//! * *Basic layout.* The title comes first and is the session's first completion; its `byte_cnt` is `N`. Minis come
//!   in arrays of eight: the first one in the slot behind the title, the one of completions `8k` to `8k + 7` in the
//!   slot of completion `8k`.
//! * *Enhanced layout.* A block of up to seven minis is one entry, whose opcode nibble is their number less one. The
//!   title is the last full entry before it, a completion of its own; counters go on from there, across blocks. There
//!   is no owner bit: the last byte but one of every entry is the number of the lap, modulo 256.
//!
//! Nothing is unpacked in advance. [`Consumer::next`] gives one completion after the other as a
//! [`CqeRef`](crate::cqe::CqeRef) of title and mini, which are read where they are: in the ring while their slots
//! have not been given back. When the batch ends within a session, what later completions need (title and current
//! array, 128 bytes) is copied into the [`Ring`] before the consumer index can be published, and is read there from
//! then on. The enhanced layout's title is always kept.
//!
//! A batch that is forgotten has changed neither ring nor slots, so it comes again as it was. But for
//! [`Consumer::take_titled`], which stamps slots as it goes: who uses that does not forget the batch.
//!
//! # What is left behind
//!
//! A hole has what some earlier lap or nobody left there, a used array has minis where an entry has its owner bit: on
//! a later lap, when the slot happens to be a hole again, that must not look like a new entry.
//!
//! * *Basic layout.* It could on the very next lap. So all slots that a session leaves out or has arrays in are stamped
//!   vacant by the end of the batch: from its first session slot on, or at once where many completions are taken. Slots
//!   of full entries were written on this lap, with its owner bit: one lap on that is wrong; and should the device leave
//!   them out on that lap they are stamped as part of a session. The title's slot does not need the stamp for the same
//!   reason.
//! * *Enhanced layout.* Every entry ends in its own tail, arrays too. So a slot shows the lap on which it was last
//!   written, and is taken for new 256 laps later, if it was left out on all laps between. Therefore all slots that
//!   are consumed on laps 0, 128, 256, … are stamped. Of the 255 laps between the two one is such a lap at least,
//!   whichever they are.
//!
//! Stamps are stores to slots that are software's, and are done before the consumer index is published, as repairs
//! must be: after it the device may have written a new entry there. [`Ring::consume_to`] leaves that order to the
//! batch's end.
//!
//! # Memory order
//!
//! The device writes an entry's owner byte last. The reader mirrors it: it loads the last dword of the entry (one
//! relaxed load), decides, and only then, behind [`dma_rmb`](crate::arch::dma_rmb), loads the rest. Bytes that came
//! with the deciding load are not used but for the owner byte itself: `wqe_counter`, in the same dword, is loaded
//! again. The other direction, giving entries back, has its barrier in
//! [`CqDbRec::set_consumer`](crate::dbrec::CqDbRec::set_consumer).
//!
//! Minis need no barrier of their own. The device writes a session's arrays before the title's owner byte, so the
//! barrier behind the title orders the loads of all of them; no array is loaded before it. What was copied was loaded
//! after it as well. Copies and stamps of a batch come before the barrier of `set_consumer`, so the loads saw the
//! session and not what the device writes there next.
//!
//! Every access is a relaxed atomic load, so an entry that the device overwrites while it is read (a device that
//! breaks the protocol, or a CQ that ignores overrun) gives wrong values but no undefined behaviour. The copies in
//! the ring are atomics for another reason: completions of this batch may still be read in them while the end of the
//! batch exchanges them.
//!
//! # Bounds
//!
//! The device is not trusted to stop: one [`Consumer`] returns at most as many entries as the ring has slots, which
//! is all that an honest device can have written before the consumer index moves. The memory's length is checked
//! once, when the consumer is made; a slot is `ci` masked to the ring's size, so no bytes in the ring lead out of it.
//! This is the only place with `unsafe`, for the slot's address.
//!
//! A session is opened only if its slots are within what the device can have written, which is what is left of the
//! batch, and within what it says of itself (capability `cqe_compression_max_num`; seven for a block). Any other
//! entry that claims to start one is handed out as it is, with its format, and stands for no completion. In the basic
//! layout it takes one slot; in the enhanced layout, which says how many it takes before anything else, it takes
//! those.
//!
//! # State without memory
//!
//! [`Ring`] holds the counter and what is kept of a session, not the memory, which its owner keeps (and exchanges, when a
//! CQ is resized: [`Ring::move_to`] takes along what waits). What kind of entry it has is a type parameter, [`Format`]; a format without sessions keeps nothing of them. More formats are further
//! implementations.

use crate::be::Be32;
use crate::dbrec::CqDbRec;
use crate::sync::{AtomicU32, Ordering::Relaxed};

mod alike;
mod consumer;
mod formats;
mod layouts;
mod packets;
mod resize;
mod sessions;
mod titled;

pub use alike::{Alike, InOrder, Order};
pub use consumer::Consumer;
pub use formats::{Cqe64, Cqe128, CqeFormat, Eqe64, Format, PlainFormat};
pub use resize::is_from;
pub use sessions::Compressed;
pub use titled::Titled;

use layouts::{BasicLayout, EnhancedLayout};

/// Completion entries of the plain format `F`, some of them in sessions of the basic layout.
pub type Basic<F> = Compressed<F, BasicLayout>;

/// Completion entries of the plain format `F`, some of them in blocks of the enhanced layout.
pub type Enhanced<F> = Compressed<F, EnhancedLayout>;

/// Largest `log2` of a ring's number of slots.
pub const MAX_LOG_SIZE: u32 = 24;

/// Why a ring could not be made or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// The ring would have more than 2^24 slots.
    TooLarge,
    /// The memory is shorter than the ring.
    ShortMemory,
}

/// State of one ring: its size, how much of it is consumed, and what is left of an open session.
#[derive(Debug)]
pub struct Ring<F: Format> {
    ci: u32,
    log_size: u32,
    kept: F::Kept,
}

/// The ring of an event queue.
pub type EqRing = Ring<Eqe64>;

impl<F: Format> Ring<F> {
    /// A fresh ring of `2^log_size` slots.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] beyond [`MAX_LOG_SIZE`].
    pub fn new(log_size: u32) -> Result<Self, RingError> {
        Self::with_ci(log_size, 0)
    }

    /// A ring of which `ci` entries are consumed: to go on with a ring that somebody else has read so far, or to look
    /// ahead in one without consuming.
    ///
    /// # Errors
    /// [`RingError::TooLarge`] beyond [`MAX_LOG_SIZE`].
    pub fn with_ci(log_size: u32, ci: u32) -> Result<Self, RingError> {
        if log_size > MAX_LOG_SIZE {
            return Err(RingError::TooLarge);
        }
        Ok(Self { ci, log_size, kept: F::Kept::default() })
    }

    /// Number of entries consumed so far, modulo 2^32. Doorbells take its low 24 bits.
    #[inline]
    pub const fn ci(&self) -> u32 {
        self.ci
    }

    /// `log2` of the number of slots.
    #[inline]
    pub const fn log_size(&self) -> u32 {
        self.log_size
    }

    /// Number of slots.
    #[inline]
    pub const fn entries(&self) -> u32 {
        1 << self.log_size
    }

    /// Number of slots minus one: what turns `ci` into a slot.
    #[inline]
    pub const fn mask(&self) -> u32 {
        self.entries() - 1
    }

    /// Bytes of memory that the ring takes.
    #[inline]
    pub const fn bytes(&self) -> usize {
        F::SIZE << self.log_size
    }

    /// Stamps every slot of `mem` as vacant. To be done before the device gets the ring; other bytes are left alone.
    pub fn init_memory(mem: &[AtomicU32]) {
        let tails = mem.chunks_exact(F::SIZE / 4).filter_map(|slot| slot.last());
        for tail in tails {
            tail.store(Be32::new(F::VACANT).to_raw(), Relaxed);
        }
    }

    /// Starts reading a batch of entries from the ring's memory.
    ///
    /// # Errors
    /// [`RingError::ShortMemory`] if `mem` is shorter than [`bytes`](Self::bytes). What lies beyond is not touched.
    #[inline]
    pub fn consume<'m>(&'m mut self, mem: &'m [AtomicU32]) -> Result<Consumer<'m, F>, RingError> {
        self.consume_to(mem, None)
    }

    /// [`consume`](Self::consume), and the end of the batch publishes the consumer index in `record`, if entries were
    /// taken: by one store, behind all that is to be done before.
    ///
    /// # Errors
    /// As [`consume`](Self::consume).
    #[inline]
    pub fn consume_to<'m>(
        &'m mut self,
        mem: &'m [AtomicU32],
        record: Option<CqDbRec<'m>>,
    ) -> Result<Consumer<'m, F>, RingError> {
        self.check(mem)?;
        Ok(Consumer::new(self, mem, record))
    }

    #[inline]
    fn check(&self, mem: &[AtomicU32]) -> Result<(), RingError> {
        if mem.len() < self.bytes() / 4 { Err(RingError::ShortMemory) } else { Ok(()) }
    }
}

impl<F: CqeFormat> Ring<F> {
    /// Rewrites each waiting completion of a session as a full entry in its slot, valid in its lap, and ends the open
    /// session: what waits can then be read slot by slot. Nothing is consumed. Plain rings are left as they are.
    ///
    /// # Errors
    /// [`RingError::ShortMemory`] as [`consume`](Self::consume).
    pub fn expand(&mut self, mem: &[AtomicU32]) -> Result<(), RingError> {
        F::expand(self, mem)
    }
}
