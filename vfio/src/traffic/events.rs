//! Sleeping until a completion comes: arm, poll, wait, acknowledge, arm again.

use std::time::Duration;

use mlx5::{CompChannel, Device, Error, ibv};

use super::link::End;

/// The events of both ends' completion queues, which come on one channel. Each queue is armed all the time, and was polled since it
/// was armed: what came before raises no event.
pub struct Events<'a> {
    device: &'a Device,
    channel: &'a CompChannel,
    begun: bool,
    /// Requests for an event.
    pub arms: u64,
    /// Events taken.
    pub taken: u64,
}

impl<'a> Events<'a> {
    /// Nothing is armed yet.
    pub fn new(device: &'a Device, channel: &'a CompChannel) -> Self {
        Self { device, channel, begun: false, arms: 0, taken: 0 }
    }

    /// Sleeps until one of the queues has something, for `longest` at most, and arms it again; the first time it only arms both.
    /// The caller has to poll afterwards, in either case.
    pub fn next(&mut self, ends: &mut [End; 2], longest: Duration) -> Result<(), Error> {
        if !self.begun {
            self.begun = true;
            self.arms += ends.len() as u64;
            return ends.iter_mut().try_for_each(|end| ibv::req_notify_cq(&mut end.cq, false));
        }
        let deadline = self.device.now().saturating_add(longest.as_nanos() as u64);
        let event = match ibv::get_cq_event(self.channel, deadline) {
            Err(Error::NoEvent) => return Ok(()),
            event => event?,
        };
        self.taken += 1;
        let Some(end) = ends.iter_mut().find(|end| end.cq.cqn() == event.cqn) else { return Ok(()) };
        ibv::ack_cq_events(&end.cq, 1)?;
        self.arms += 1;
        ibv::req_notify_cq(&mut end.cq, false)
    }
}
