//! Who listens to which interrupt.
//!
//! An interrupt wakes one thread. If two listened to the same one, it could wake the one that it does not concern. So a
//! vector has at most one *leader*, who sleeps until its interrupt comes; others who wait for something on that vector let
//! short naps pass and look. The leader takes the events of all queues when it wakes, whomever they concern, and they
//! find theirs where it belongs.
//!
//! A leader looks once more after it has become one, and then sleeps: an event that it did not find comes with an interrupt that
//! nobody else takes. Without that a wake-up could be lost to the leader before it, who took the interrupt, delivered
//! the event and left.

use mlx5_hw::platform::Platform;

use crate::sync::{AtomicU64, Ordering};

/// How long one waits who does not lead, in nanoseconds, before looking again.
pub(crate) const NAP: u64 = 1_000_000;
/// Longest sleep of a leader, in nanoseconds: an interrupt may be lost.
pub(super) const SLEEP: u64 = 100_000_000;

/// The interrupt vectors that somebody listens to: bit n for vector n.
#[derive(Default)]
pub(crate) struct Listeners(AtomicU64);

/// The vectors that somebody listens to now, for as long as this lives.
pub(crate) struct Lead<'a> {
    listeners: &'a Listeners,
    wanted: u64,
    mine: u64,
}

impl Listeners {
    /// Begins to listen to those of `vectors` that nobody listens to.
    pub(crate) fn lead(&self, vectors: u64) -> Lead<'_> {
        // Acquire: what the leader before wrote and read comes before what this one looks at.
        let mine = vectors & !self.0.fetch_or(vectors, Ordering::AcqRel);
        Lead { listeners: self, wanted: vectors, mine }
    }
}

impl Lead<'_> {
    /// Sleeps until one of the interrupts comes, or the time is `until`, or it is time to look again: after `longest`
    /// nanoseconds, or a nap for the sake of vectors that others listen to.
    pub(crate) fn sleep(&self, platform: &dyn Platform, until: u64, longest: u64) {
        let longest = if self.mine == self.wanted { longest } else { longest.min(NAP) };
        let until = until.min(platform.now().saturating_add(longest));
        match self.mine {
            0 => platform.pause(until),
            vectors => platform.wait_any(vectors, until),
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.listeners.0.fetch_and(!self.mine, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use mlx5_hw::platform::{DmaMem, PlatformError};

    use super::*;

    /// Notes what it is asked to wait for: interrupts (none for a pause), until when. The time is always 1000.
    #[derive(Default)]
    struct Notes(spin::Mutex<Vec<(u64, u64)>>);

    // SAFETY: it has no memory to give.
    unsafe impl Platform for Notes {
        fn alloc(&self, _: usize, _: usize) -> Result<DmaMem, PlatformError> {
            Err(PlatformError::NoMemory)
        }

        unsafe fn free(&self, _: DmaMem) {}

        fn now(&self) -> u64 {
            1000
        }

        fn relax(&self) {}

        fn wait_any(&self, vectors: u64, deadline: u64) {
            self.0.lock().push((vectors, deadline));
        }

        fn pause(&self, until: u64) {
            self.0.lock().push((0, until));
        }
    }

    #[test]
    fn each_vector_has_one_who_listens_to_it_and_the_others_look_every_millisecond() {
        let (listeners, notes) = (Listeners::default(), Notes::default());
        let first = listeners.lead(0b0011);
        let second = listeners.lead(0b0110);
        let third = listeners.lead(0b0101);
        let sleep = |lead: &Lead<'_>, until| {
            lead.sleep(&notes, until, SLEEP);
            notes.0.lock().pop()
        };
        assert_eq!(sleep(&first, u64::MAX), Some((0b0011, 1000 + SLEEP)));
        assert_eq!(sleep(&first, 5000), Some((0b0011, 5000)));
        assert_eq!(sleep(&second, u64::MAX), Some((0b0100, 1000 + NAP)), "one of its vectors is the first one's");
        assert_eq!(sleep(&third, u64::MAX), Some((0, 1000 + NAP)), "both are somebody else's");
        assert_eq!(sleep(&third, 1001), Some((0, 1001)));
        drop(third);
        assert_eq!(sleep(&listeners.lead(0b0101), u64::MAX), Some((0, 1000 + NAP)), "it had nothing to give back");
        drop(first);
        let fourth = listeners.lead(0b1111);
        assert_eq!(sleep(&fourth, u64::MAX), Some((0b1011, 1000 + NAP)));
        drop((second, fourth));
        assert_eq!(sleep(&listeners.lead(u64::MAX), u64::MAX), Some((u64::MAX, 1000 + SLEEP)));
        let nothing = listeners.lead(0);
        assert_eq!(sleep(&nothing, u64::MAX), Some((0, 1000 + SLEEP)), "no interrupt to wait for");
        nothing.sleep(&notes, u64::MAX, 7);
        assert_eq!(*notes.0.lock(), vec![(0, 1007)]);
    }
}
