//! An interrupt vector as an eventfd.

use std::fs::File;
use std::io::Write;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::irqs::Signal;

/// The eventfd of a client.
pub(super) struct EventFd(File);

impl EventFd {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }
}

impl Signal for EventFd {
    fn fire(&self) {
        // A counter that is full would make the write wait; its reader has been told often enough.
        let mut ready = [PollFd::new(&self.0, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut ready, Some(&now)) == Ok(1) && ready[0].revents().contains(PollFlags::OUT) {
            // Nobody is left to tell of a failure.
            let _ = (&self.0).write(&1_u64.to_ne_bytes());
        }
    }
}
