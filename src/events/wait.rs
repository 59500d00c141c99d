//! Waiting for events.

use super::lead::SLEEP;
use crate::device::Control;
use crate::error::Error;

impl Control {
    /// Waits until `ready` gives something, and looks for it before anything else. It is asked each time that the events
    /// which are there have been taken; one that it waits for comes with one of the interrupts `vectors`, which is asked
    /// again before each sleep. The firmware's page requests are served meanwhile.
    ///
    /// # Errors
    /// `NoEvent` at `deadline`, `Failed` when the device has.
    pub(crate) fn await_event<T>(
        &self,
        deadline: u64,
        vectors: impl Fn() -> u64,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Error> {
        loop {
            // Before it leads: page commands wait themselves.
            self.service();
            let lead = self.listeners.lead(vectors());
            self.take_events();
            if let Some(value) = ready() {
                return Ok(value);
            }
            let now = self.port.platform().now();
            if now >= deadline {
                return Err(Error::NoEvent);
            }
            self.look();
            if let Some(why) = self.failure() {
                // That may be what was waited for.
                return ready().ok_or(Error::Failed { why, command: None, sent: false });
            }
            lead.sleep(self.port.platform(), deadline, SLEEP);
        }
    }
}
