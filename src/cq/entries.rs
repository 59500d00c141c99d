//! How a batch reads entries: of any format, asked each time, or of one that the program was built for.

use mlx5_hw::dbrec::CqDbRec;
use mlx5_hw::ring::{Basic, Cqe64, Cqe128, CqeFormat, Enhanced, Ring};

use super::batch::{Batch, Memory, Slots};
use super::completion::Current;
use super::run::Run;
use super::{AnyRing, PollError, Shared};

/// How a [`Poller`](super::Poller) reads entries: [`AnyEntries`], or the format of a ring.
#[expect(private_bounds, reason = "how it is done is nobody's affair")]
pub trait Entries: sealed::Sealed {}

/// A format that a CQ's ring can have: [`Cqe64`], [`Cqe128`], and [`Basic`] and [`Enhanced`] of these.
#[expect(private_bounds, reason = "likewise")]
pub trait RingEntries: Entries + CqeFormat + sealed::OfRing {}

/// Entries of whatever format the ring has.
#[derive(Debug)]
pub enum AnyEntries {}

pub(super) mod sealed {
    use super::*;

    /// What the public traits stand for.
    pub(in crate::cq) trait Sealed: Sized {
        /// A batch of such entries.
        type Batch<'a>: AnyBatch<'a>;

        /// Starts one; `None` only if the ring has other entries, or its memory were too short.
        fn begin<'a>(
            ring: &'a mut AnyRing,
            slots: Slots<'a>,
            shared: &'a Shared,
            memory: Memory<'a>,
            record: Option<CqDbRec<'a>>,
        ) -> Option<Self::Batch<'a>>;
    }

    /// Entries that one kind of ring has.
    pub(in crate::cq) trait OfRing: Sized + CqeFormat {
        /// The ring, if it is of this kind.
        fn of(ring: &mut AnyRing) -> Option<&mut Ring<Self>>;
    }
}

/// A batch as the poller sees it.
pub(super) trait AnyBatch<'a> {
    /// Blocks of 64 bytes before an entry's descriptor.
    fn between(&self) -> usize;
    /// As [`Batch::next`].
    fn next(&mut self, place: &mut Option<Current<'a>>) -> Result<bool, PollError>;
    /// As [`Batch::run`].
    fn run(&mut self) -> Option<Run<'a>>;
    /// As [`Batch::end_run`].
    fn end_run(&mut self, run: &Run<'_>);
}

impl<'a, F: CqeFormat> AnyBatch<'a> for Batch<'a, F> {
    #[inline(always)]
    fn between(&self) -> usize {
        Self::BETWEEN
    }

    #[inline(always)]
    fn next(&mut self, place: &mut Option<Current<'a>>) -> Result<bool, PollError> {
        Batch::next(self, place)
    }

    #[inline(always)]
    fn run(&mut self) -> Option<Run<'a>> {
        Batch::run(self)
    }

    #[inline(always)]
    fn end_run(&mut self, run: &Run<'_>) {
        Batch::end_run(self, run);
    }
}

macro_rules! formats {
    ($($variant:ident($format:ty),)*) => {
        /// A batch, by the format of the ring's entries.
        pub(super) enum EachBatch<'a> {
            $(
                /// Such entries.
                $variant(Batch<'a, $format>),
            )*
        }

        impl sealed::Sealed for AnyEntries {
            type Batch<'a> = EachBatch<'a>;

            #[inline(always)]
            fn begin<'a>(
                ring: &'a mut AnyRing,
                slots: Slots<'a>,
                shared: &'a Shared,
                memory: Memory<'a>,
                record: Option<CqDbRec<'a>>,
            ) -> Option<EachBatch<'a>> {
                match ring {
                    $(AnyRing::$variant(ring) => Batch::begin(ring, slots, shared, memory, record).map(EachBatch::$variant),)*
                }
            }
        }

        impl<'a> AnyBatch<'a> for EachBatch<'a> {
            #[inline(always)]
            fn between(&self) -> usize {
                match self {
                    $(Self::$variant(_) => Batch::<'a, $format>::BETWEEN,)*
                }
            }

            #[inline(always)]
            fn next(&mut self, place: &mut Option<Current<'a>>) -> Result<bool, PollError> {
                match self {
                    $(Self::$variant(batch) => batch.next(place),)*
                }
            }

            #[inline(always)]
            fn run(&mut self) -> Option<Run<'a>> {
                match self {
                    $(Self::$variant(batch) => batch.run(),)*
                }
            }

            #[inline(always)]
            fn end_run(&mut self, run: &Run<'_>) {
                match self {
                    $(Self::$variant(batch) => batch.end_run(run),)*
                }
            }
        }

        $(
            impl sealed::OfRing for $format {
                #[inline(always)]
                fn of(ring: &mut AnyRing) -> Option<&mut Ring<Self>> {
                    if let AnyRing::$variant(ring) = ring { Some(ring) } else { None }
                }
            }

            impl sealed::Sealed for $format {
                type Batch<'a> = Batch<'a, Self>;

                #[inline(always)]
                fn begin<'a>(
                    ring: &'a mut AnyRing,
                    slots: Slots<'a>,
                    shared: &'a Shared,
                    memory: Memory<'a>,
                    record: Option<CqDbRec<'a>>,
                ) -> Option<Batch<'a, Self>> {
                    use sealed::OfRing as _;
                    Batch::begin(Self::of(ring)?, slots, shared, memory, record)
                }
            }

            impl Entries for $format {}
            impl RingEntries for $format {}
        )*
    };
}
impl Entries for AnyEntries {}
formats! {
    B64(Cqe64),
    B128(Cqe128),
    Basic64(Basic<Cqe64>),
    Basic128(Basic<Cqe128>),
    Enhanced64(Enhanced<Cqe64>),
    Enhanced128(Enhanced<Cqe128>),
}
