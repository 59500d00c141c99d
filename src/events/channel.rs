//! Completion channels: where a program waits for completions of any of several CQs.

use core::fmt;

use super::line::{CqEvent, Line, Place};
use crate::device::{Device, DeviceInner};
use crate::error::{Error, Returned};
use crate::sync::Arc;

/// A completion channel (`ibv_create_comp_channel(3)`): events of the CQs that were created with it are taken here.
///
/// An event comes only to a CQ that was [armed](crate::Cq::req_notify), and once for each time. Completions that were there
/// before need not raise it, so *arm, then poll, then wait*:
///
/// ```
/// # use mlx5::{CompChannel, Cq, Error, PollError, Wc};
/// # enum Failed { Wait(Error), Poll(PollError) }
/// fn next(channel: &CompChannel, cq: &mut Cq, wcs: &mut [Wc], deadline: u64) -> Result<usize, Failed> {
///     loop {
///         cq.req_notify(false).map_err(Failed::Wait)?;
///         match cq.poll_cq(wcs).map_err(Failed::Poll)? {
///             0 => {}
///             n => return Ok(n),
///         }
///         let event = channel.get_event(deadline).map_err(Failed::Wait)?;
///         assert_eq!(event.cqn, cq.cqn(), "the only one of this channel");
///         cq.ack_events(1).map_err(Failed::Wait)?;
///     }
/// }
/// ```
///
/// [`Cq::wait`](crate::Cq::wait) does these steps for one CQ. Dropping a channel is as good as destroying it; CQs that it still
/// has then raise events that nobody can take.
pub struct CompChannel {
    dev: Arc<DeviceInner>,
    line: Arc<Line>,
}

impl Device {
    /// Creates a completion channel (`ibv_create_comp_channel(3)`). It takes nothing of the device.
    pub fn create_comp_channel(&self) -> CompChannel {
        let dev = self.inner().clone();
        dev.track();
        CompChannel { dev, line: Arc::new(Line::new()) }
    }
}

impl CompChannel {
    /// Destroys the channel (`ibv_destroy_comp_channel(3)`).
    ///
    /// # Errors
    /// `Busy` (EBUSY) while a CQ is alive that was created with it: the channel comes back as it was.
    pub fn destroy(self) -> Result<(), Returned<Self>> {
        if self.line.members() > 0 { Err(Returned::new(self, Error::Busy)) } else { Ok(()) }
    }

    /// Waits for the next event and takes it (`ibv_get_cq_event(3)`). CQs have their turns, in the order in which their events
    /// came. Each event that was taken is to be [acknowledged](crate::Cq::ack_events) before its CQ can be destroyed.
    ///
    /// `deadline` is in nanoseconds of the platform's clock ([`Device::now`]); `u64::MAX` is never. It sleeps meanwhile, as far as
    /// the platform can. As commands do, it takes all that the event queues have, whomever it concerns, and serves the
    /// firmware's page requests; it comes back later than asked for if those take longer.
    ///
    /// # Errors
    /// `NoEvent` (ETIMEDOUT) at the deadline; `Failed` for a device that [has](Device::failure), once no event is left.
    pub fn get_event(&self, deadline: u64) -> Result<CqEvent, Error> {
        self.dev.await_event(deadline, || self.line.vectors(), || self.line.take())
    }

    /// Takes the next event if there is one, and does not wait: [`get_event`](Self::get_event) as on a file descriptor with
    /// `O_NONBLOCK` (C: EAGAIN when there is none). For programs that have something else to do, or no interrupts.
    pub fn try_get_event(&self) -> Option<CqEvent> {
        self.dev.take_events();
        self.line.take()
    }

    /// Whether this is a channel of the device.
    pub(crate) fn is_of(&self, dev: &DeviceInner) -> bool {
        core::ptr::eq(&*self.dev, dev)
    }

    /// A place for a CQ of completion vector `comp_vector`.
    pub(crate) fn join(&self, comp_vector: u32, cqn: u32, context: u64) -> Place {
        Line::join(&self.line, self.dev.comp_interrupt(comp_vector), CqEvent { cqn, context })
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        self.dev.untrack();
    }
}

impl fmt::Debug for CompChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompChannel").field("cqs", &self.line.members()).finish_non_exhaustive()
    }
}
