//! What the event queues know of a completion queue.

use core::sync::atomic::{AtomicU32, Ordering};

use mlx5_hw::eqe::CqErrorSyndrome;

use super::line::Place;

/// No error; a syndrome has 8 bits.
const NO_ERROR: u32 = u32::MAX;

/// What a CQ and the event queues share. It outlives the CQ for as long as an event may be on its way.
pub(crate) struct CqNotice {
    cqn: u32,
    context: u64,
    /// Syndrome of the first error that an event told of, or [`NO_ERROR`].
    error: AtomicU32,
    place: Option<Place>,
}

impl CqNotice {
    pub(crate) fn new(cqn: u32, context: u64, place: Option<Place>) -> Self {
        Self { cqn, context, error: AtomicU32::new(NO_ERROR), place }
    }

    /// The device's number for the CQ, 24 bits.
    pub(crate) fn cqn(&self) -> u32 {
        self.cqn
    }

    /// The context that the user gave the CQ.
    pub(crate) fn context(&self) -> u64 {
        self.context
    }

    /// The CQ's place at its channel, if it has one.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// A completion event has come.
    pub(super) fn completion(&self) {
        if let Some(place) = &self.place {
            place.raise();
        }
    }

    /// An event says that the CQ is in error; the first reason stands.
    pub(super) fn fail(&self, syndrome: CqErrorSyndrome) {
        let _ = self.error.compare_exchange(NO_ERROR, syndrome.0.into(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Why the CQ is in error, if an event said so.
    #[inline]
    pub(crate) fn error(&self) -> Option<CqErrorSyndrome> {
        u8::try_from(self.error.load(Ordering::Relaxed)).ok().map(CqErrorSyndrome)
    }
}
