//! The kinds of ring entries.

use core::fmt::Debug;

use super::{Consumer, InOrder, Ring, RingError, Titled};
use crate::be::Be32;
use crate::cqe::CqeRef;
use crate::simd::{self, Cpu, Kind, Record, Takers};
use crate::sync::AtomicU32;

pub(super) mod sealed {
    pub trait Sealed {}

    /// What a ring keeps between batches.
    pub trait Kept: Default + 'static {
        /// The same during a batch.
        type Batch<'m>: core::fmt::Debug
        where
            Self: 'm;

        /// Starts a batch at index `ci`.
        fn begin(&mut self, ci: u32) -> Self::Batch<'_>;

        /// Whether there are completions of a session that has been opened.
        fn is_open(&self) -> bool;
    }

    impl Kept for () {
        type Batch<'m> = ();

        #[inline(always)]
        fn begin(&mut self, _: u32) {}

        #[inline(always)]
        fn is_open(&self) -> bool {
            false
        }
    }
}

/// A kind of ring entry.
pub trait Format: sealed::Sealed + Sized {
    /// Size of an entry in bytes, a multiple of 64.
    const SIZE: usize;
    /// Offset of the 64-byte descriptor in an entry, in bytes.
    const DESC: usize;
    /// Last dword of a descriptor that is no entry yet: how a ring is initialised.
    const VACANT: u32;

    /// What a ring keeps of sessions between batches; `()` where there are none.
    type Kept: sealed::Kept + Debug;

    /// Whether the descriptor with last dword `tail` is software's in lap number `lap`, of which the lowest bit is
    /// the lap bit.
    fn is_owned(tail: Be32, lap: u32) -> bool;

    /// The end of a batch, before its entries count as consumed.
    #[doc(hidden)]
    #[inline(always)]
    fn commit(_: &mut Consumer<'_, Self>) {}
}

/// A kind of completion queue entry.
pub trait CqeFormat: Format {
    /// The kind in a CQ context (PRM `cqc.cqe_sz`): 0 for 64 bytes, 1 for 128.
    const CQE_SZ: u32;

    /// Number of completions that an entry which starts a session claims to stand for. Nothing else bounds it.
    fn session_length(cqe: CqeRef<'_>) -> u32;

    /// The last dword of an entry made software's in lap number `lap`.
    #[doc(hidden)]
    fn owned(tail: Be32, lap: u32) -> Be32;

    /// The next completion.
    #[doc(hidden)]
    fn take<'m>(batch: &mut Consumer<'m, Self>) -> Option<CqeRef<'m>>;

    /// What [`Ring::take_alike`] calls. Nothing, where an entry says more than of itself.
    #[doc(hidden)]
    fn takers<K: Kind>(_: Cpu) -> Option<Takers> {
        None
    }

    /// What [`Consumer::take_titled`] does. Nothing, where there are no sessions.
    #[doc(hidden)]
    #[inline(always)]
    fn take_titled<R: Record>(_: &mut Consumer<'_, Self>, _: Cpu, _: &Titled<R>, _: InOrder<'_>, _: &mut [R]) -> usize {
        0
    }

    /// What [`Ring::expand`] does.
    #[doc(hidden)]
    fn expand(ring: &mut Ring<Self>, mem: &[AtomicU32]) -> Result<(), RingError>;
}

/// 64-byte completion entries.
#[derive(Debug)]
pub enum Cqe64 {}

/// 128-byte completion entries: 64 bytes for inlined data, then the descriptor.
#[derive(Debug)]
pub enum Cqe128 {}

/// 64-byte event entries.
#[derive(Debug)]
pub enum Eqe64 {}

/// Completion entries without sessions.
pub trait PlainFormat: CqeFormat<Kept = ()> {}

macro_rules! cqe_format {
    ($name:ident, $size:literal, $cqe_sz:literal) => {
        impl sealed::Sealed for $name {}

        impl Format for $name {
            const SIZE: usize = $size;
            const DESC: usize = $size - 64;
            const VACANT: u32 = 0xf0;
            type Kept = ();

            #[inline(always)]
            fn is_owned(tail: Be32, lap: u32) -> bool {
                owner_is_lap(tail, lap)
            }
        }

        impl CqeFormat for $name {
            const CQE_SZ: u32 = $cqe_sz;

            fn session_length(cqe: CqeRef<'_>) -> u32 {
                cqe.byte_cnt()
            }

            fn owned(tail: Be32, lap: u32) -> Be32 {
                with_lap_bit(tail, lap)
            }

            #[inline(always)]
            fn take<'m>(batch: &mut Consumer<'m, Self>) -> Option<CqeRef<'m>> {
                batch.take_entry()
            }

            fn takers<K: Kind>(cpu: Cpu) -> Option<Takers> {
                simd::takers::<K, $size>(cpu)
            }

            fn expand(ring: &mut Ring<Self>, mem: &[AtomicU32]) -> Result<(), RingError> {
                ring.check(mem)
            }
        }

        impl PlainFormat for $name {}
    };
}
cqe_format!(Cqe64, 64, 0);
cqe_format!(Cqe128, 128, 1);

/// The owner bit is the lap bit, and the opcode is one.
#[inline(always)]
pub(super) fn owner_is_lap(tail: Be32, lap: u32) -> bool {
    let op_own = tail.get() as u8;
    op_own < 0xf0 && (op_own ^ lap as u8) & 1 == 0
}

/// The owner bit made the lap bit.
pub(super) fn with_lap_bit(tail: Be32, lap: u32) -> Be32 {
    Be32::new(tail.get() & !1 | lap & 1)
}

impl sealed::Sealed for Eqe64 {}

impl Format for Eqe64 {
    const SIZE: usize = 64;
    const DESC: usize = 0;
    const VACANT: u32 = 1;
    type Kept = ();

    #[inline(always)]
    fn is_owned(tail: Be32, lap: u32) -> bool {
        (tail.get() ^ lap) & 1 == 0
    }
}
