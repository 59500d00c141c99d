//! The virtual clock and what is due when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::data;

/// Something that happens to the device when its time has come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A command's output is ready to be written.
    CommandDone {
        /// Command slot.
        slot: u8,
        /// Which use of the slot it was, so that a reset drops it.
        ticket: u64,
    },
    /// An event for an event queue, held back by a knob.
    Event(crate::eq::Late),
    /// The completion event of a queue arrives, unless it has before.
    Completion {
        /// Event queue number.
        eqn: u32,
        /// Completion queue number.
        cqn: u32,
    },
    /// The interrupt of an event queue arrives.
    Interrupt {
        /// Event queue number.
        eqn: u32,
    },
    /// A timer of the data path.
    Data(data::Timer),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    due: u64,
    order: u64,
    what: Due,
}

/// Nanoseconds since the model was made, and the queue of what is due.
#[derive(Default)]
pub(crate) struct Clock {
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Entry>>,
}

impl Clock {
    /// The present, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Moves the clock forward to `now`; it never goes back.
    pub(crate) fn advance_to(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// Lets `what` happen in `delay` nanoseconds; things due at one time happen in the order they were asked for.
    pub(crate) fn after(&mut self, delay: u64, what: Due) {
        self.order += 1;
        let due = self.now.saturating_add(delay);
        self.queue.push(Reverse(Entry { due, order: self.order, what }));
    }

    /// When the next thing is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.peek().map(|entry| entry.0.due)
    }

    /// Takes the next thing that is due by now.
    pub(crate) fn pop_due(&mut self) -> Option<Due> {
        if self.next_due()? > self.now {
            return None;
        }
        self.queue.pop().map(|entry| entry.0.what)
    }

    /// Forgets everything that was due: a reset.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}
