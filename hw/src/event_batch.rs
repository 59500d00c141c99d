//! Events copied out of a ring, so that they can be handled after the ring is let go.

use heapless::Vec;

use crate::be::Be32;
use crate::ring::{Consumer, Eqe64};

/// Events copied out of a ring, at most [`EventBatch::MAX`] at a time.
#[derive(Debug, Default)]
pub struct EventBatch(Vec<[Be32; 16], { EventBatch::MAX }>);

impl EventBatch {
    /// Most events of a batch: few enough for the stack and to give entries back often.
    pub const MAX: usize = 16;

    /// Takes as many events as there are and fit, instead of those that the batch held.
    pub fn fill(&mut self, ring: &mut Consumer<'_, Eqe64>) {
        self.0.clear();
        while !self.0.is_full()
            && let Some(event) = ring.next()
        {
            // There is room: `is_full` was asked.
            let _ = self.0.push(event);
        }
    }

    /// Forgets the events.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The events, in the order of the ring.
    pub fn events(&self) -> &[[Be32; 16]] {
        &self.0
    }

    /// There was room for no more: the ring may hold more.
    pub fn is_full(&self) -> bool {
        self.0.is_full()
    }
}
