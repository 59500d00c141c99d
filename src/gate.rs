//! A gate before memory that will go away: who uses the memory passes it, and closing it waits until nobody is left inside.
//!
//! # Protocol
//!
//! One word holds it all: its top bit says that the gate is open, the rest counts who is inside. Who wants in looks at the
//! bit, counts itself in, and looks again, at what the count was before; if the bit was gone by then it counts itself out and
//! has touched nothing. Closing takes the bit away and waits for a count of 0.
//!
//! **Nobody is left inside.** Changes of one word happen in one order, so a visitor counted itself in either before the bit
//! went, and closing waits for it, or after, and it saw that and turned back. With the bit and the count in two words this
//! would take sequentially consistent fences.
//!
//! **What is seen.** Opening releases and entering acquires: a visitor sees what was written before the gate was opened.
//! Leaving releases and the end of the wait acquires: what visitors did is done when `close` returns.
//!
//! **The wait ends.** After the bit is gone, a thread counts itself in at most once more (when it had looked before), and a
//! visit is short and never waits for anything: here, copies of at most 64 bytes.

use crate::sync::{AtomicU32, Ordering};

const OPEN: u32 = 1 << 31;

/// A gate, closed at first. One side opens and closes it; any number of threads pass.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicU32);

/// A visit; dropping it ends it.
#[must_use]
pub(crate) struct Visit<'g>(&'g Gate);

impl Gate {
    /// Lets visitors in. Before that, what they will use is in place.
    pub(crate) fn open(&self) {
        self.0.fetch_or(OPEN, Ordering::Release);
    }

    /// Passes, if the gate is open.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Visit<'_>> {
        if self.0.load(Ordering::Relaxed) & OPEN == 0 {
            return None;
        }
        let before = self.0.fetch_add(1, Ordering::Acquire);
        let visit = Visit(self);
        (before & OPEN != 0).then_some(visit)
    }

    /// Lets nobody in any more, and waits until nobody is inside.
    pub(crate) fn close(&self, mut wait: impl FnMut()) {
        self.0.fetch_and(!OPEN, Ordering::Relaxed);
        while self.0.load(Ordering::Acquire) & !OPEN != 0 {
            wait();
        }
    }
}

impl Drop for Visit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_closed_at_first_and_after_it_was_closed() {
        let gate = Gate::default();
        assert!(gate.pass().is_none());
        gate.open();
        drop((gate.pass().unwrap(), gate.pass().unwrap()));
        gate.close(|| unreachable!("nobody is inside"));
        assert!(gate.pass().is_none());
        gate.open();
        assert!(gate.pass().is_some());
    }

    #[test]
    fn closing_waits_for_each_visitor_and_lets_nobody_in_meanwhile() {
        let gate = Gate::default();
        gate.open();
        let mut inside = [gate.pass(), gate.pass()];
        assert!(inside.iter().all(Option::is_some));
        let mut waits = 0;
        gate.close(|| {
            assert!(gate.pass().is_none());
            inside[waits / 2] = None;
            waits += 1;
        });
        assert_eq!(waits, 3, "until the second one had left");
    }
}
