//! Interrupts: an event descriptor for each vector of MSI-X.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read};

use super::sys::MOST_VECTORS;

/// The descriptors, which the kernel signals, and what came of waiting for them.
pub(super) struct Interrupts {
    events: Vec<OwnedFd>,
    fired: AtomicU64,
    sleeps: AtomicU64,
}

impl Interrupts {
    /// Descriptors for so many vectors, at most 64; nothing signals them yet.
    ///
    /// # Errors
    /// EMFILE, ENFILE: the process, or the system, has no more descriptors.
    pub(super) fn new(vectors: u32) -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let events = (0..vectors).map(|_| eventfd(0, flags)).collect::<Result<_, _>>()?;
        Ok(Self { events, fired: AtomicU64::new(0), sleeps: AtomicU64::new(0) })
    }

    /// The descriptors, vector by vector.
    pub(super) fn events(&self) -> &[OwnedFd] {
        &self.events
    }

    /// Interrupts taken so far.
    pub(super) fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Waits so far that had to sleep.
    pub(super) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Waits until one of these vectors (bit n: vector n) has fired or so many nanoseconds have passed, or a signal came, and
    /// takes those that have fired. It allocates nothing.
    ///
    /// Returns whether there was any vector to wait for.
    pub(super) fn wait(&self, vectors: u64, nanoseconds: u64) -> bool {
        let Some(first) = self.events.first() else { return false };
        let mut polled = [(); MOST_VECTORS].map(|()| PollFd::new(first, PollFlags::IN));
        let wanted = self.events.iter().enumerate().filter(|(n, _)| vectors >> n & 1 == 1);
        let mut count = 0;
        for (slot, (_, event)) in polled.iter_mut().zip(wanted) {
            *slot = PollFd::new(event, PollFlags::IN);
            count += 1;
        }
        let polled = &mut polled[..count];
        if polled.is_empty() {
            return false;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ready = poll(polled, Some(&now));
        if ready == Ok(0) && nanoseconds > 0 {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            let until = Timespec { tv_sec: (nanoseconds / NS) as i64, tv_nsec: (nanoseconds % NS) as i64 };
            ready = poll(polled, Some(&until));
        }
        if ready.is_ok_and(|n| n > 0) {
            polled.iter().filter(|p| !p.revents().is_empty()).for_each(|event| self.take(event));
        }
        true
    }

    /// Takes what a descriptor has counted. Another thread may have been faster; then there is nothing.
    fn take(&self, event: &PollFd<'_>) {
        let mut count = [0; 8];
        if read(event.as_fd(), &mut count) == Ok(8) {
            self.fired.fetch_add(u64::from_ne_bytes(count), Ordering::Relaxed);
        }
    }
}

const NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use rustix::io::write;

    use super::*;

    fn fire(interrupts: &Interrupts, vector: usize) {
        write(&interrupts.events()[vector], &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn what_has_fired_is_taken_without_sleeping_and_only_of_the_vectors_asked_for() {
        let interrupts = Interrupts::new(4).unwrap();
        [0, 2, 2, 3].iter().for_each(|&vector| fire(&interrupts, vector));
        assert!(interrupts.wait(0b0110, u64::MAX));
        assert_eq!((interrupts.fired(), interrupts.sleeps()), (2, 0), "vector 2, twice");
        assert!(interrupts.wait(0b1001, u64::MAX));
        assert_eq!((interrupts.fired(), interrupts.sleeps()), (4, 0), "both that had fired");
        assert!(interrupts.wait(0b1111, 1));
        assert_eq!((interrupts.fired(), interrupts.sleeps()), (4, 1), "nothing was left");
        assert!(interrupts.wait(0b1111, 0));
        assert_eq!(interrupts.sleeps(), 1, "no time, no sleep");
    }

    #[test]
    fn a_sleeper_wakes_when_its_vector_fires() {
        let interrupts = Interrupts::new(2).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while interrupts.sleeps() == 0 {
                    std::thread::yield_now();
                }
                fire(&interrupts, 0);
                fire(&interrupts, 1);
            });
            while interrupts.fired() == 0 {
                assert!(interrupts.wait(0b10, u64::MAX));
            }
        });
        assert_eq!(interrupts.fired(), 1);
        interrupts.wait(u64::MAX, 0);
        assert_eq!(interrupts.fired(), 2, "the other vector was left alone");
    }

    #[test]
    fn vectors_that_are_not_there_are_not_waited_for() {
        let interrupts = Interrupts::new(2).unwrap();
        assert!(!interrupts.wait(0b100, u64::MAX));
        assert!(!interrupts.wait(0, u64::MAX));
        assert_eq!(Interrupts::new(64).unwrap().events().len(), 64);
    }
}
