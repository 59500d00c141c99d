//! Asking for completion events, and acknowledging them.

use mlx5_hw::arch;
use mlx5_hw::uar::{CQ_DOORBELL, CqArm};

use super::{Cq, each_ring};
use crate::error::Error;
use crate::events::Place;

impl Cq {
    /// Asks for one event on the CQ's channel (`ibv_req_notify_cq(3)`): when the next completion comes, or with
    /// `solicited_only` when the next one comes that is an error or a receive whose sender set
    /// [`SendFlags::SOLICITED`](crate::SendFlags::SOLICITED). Asking again before that replaces the request.
    ///
    /// Completions that are there already need not raise it: poll once more after asking, and wait only if that gives nothing. An
    /// event may also come when all has been polled by then. A CQ without a channel can be asked, and
    /// nobody is told: the device is not asked then. Nor is one that has failed; who waits for the event is told.
    ///
    /// # Errors
    /// `CqInError` (EIO) for a CQ in error: nothing will come.
    pub fn req_notify(&mut self, solicited_only: bool) -> Result<(), Error> {
        self.check()?;
        let Some(sn) = self.shared.notice.place().map(Place::taken) else { return Ok(()) };
        self.shared.dev.before_request();
        let ci = each_ring!(&self.ring, ring => ring.ci());
        let arm = CqArm::request(sn, solicited_only, ci);
        if let Some(record) = self.shared.dbrec() {
            record.set_arm(arm);
        }
        arch::dma_wmb();
        self.shared.dev.ring_uar64(CQ_DOORBELL, arm.to_bar(self.shared.cqn));
        Ok(())
    }

    /// Acknowledges `n` events of this CQ that were taken from its channel (`ibv_ack_cq_events(3)`). Several may be acknowledged
    /// at once; 0 does nothing.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for more than were taken and not acknowledged: none is then. (In C that is undefined.)
    pub fn ack_events(&self, n: u32) -> Result<(), Error> {
        let acked = self.shared.notice.place().map_or(n == 0, |place| place.ack(n));
        if acked { Ok(()) } else { Err(Error::Invalid { what: "more events than were taken of this CQ" }) }
    }

    /// Sleeps until there is something to poll, and no wake-up is lost: it asks for an event, looks once more, waits for the event
    /// on the CQ's channel, acknowledges it and looks again. It takes events of this CQ only: a channel with several CQs, each
    /// with a thread of its own, works too. An event of this CQ that another thread [takes](crate::CompChannel::get_event)
    /// meanwhile ends the sleep as well, and is that thread's to acknowledge. `deadline` is as with [`get_event`](crate::CompChannel::get_event).
    ///
    /// Poll afterwards. It may give nothing, as what is there may be of a queue that was destroyed; call this again then.
    ///
    /// # Errors
    /// `Invalid` (EINVAL) for a CQ without a channel; else as [`get_event`](crate::CompChannel::get_event) and
    /// [`req_notify`](Self::req_notify). Nothing is lost by an error: an event that comes late is taken by the next wait.
    pub fn wait(&mut self, deadline: u64) -> Result<(), Error> {
        if self.shared.notice.place().is_none() {
            return Err(Error::Invalid { what: "waiting for a CQ without a completion channel" });
        }
        while !self.has_entry() {
            // A function that has failed, and may be somebody else's by now, is not asked.
            self.shared.dev.look().map_err(|why| Error::Failed { why, command: None, sent: false })?;
            let taken = self.events_taken();
            self.req_notify(false)?;
            // What came before the request was seen raises nothing.
            if self.has_entry() {
                break;
            }
            if self.take_event(taken, deadline)? {
                self.ack_events(1)?;
            }
        }
        Ok(())
    }

    /// Events taken of this CQ so far, by whomever.
    fn events_taken(&self) -> u32 {
        self.shared.notice.place().map_or(0, Place::taken)
    }

    /// Waits for an event of this CQ, or until it is in error; false if others have taken one since `taken` were.
    fn take_event(&self, taken: u32, deadline: u64) -> Result<bool, Error> {
        let place = self.shared.notice.place();
        let vectors = || place.map_or(0, Place::vectors);
        let ready = || match (self.events_taken() != taken, place.is_some_and(Place::take)) {
            (_, true) => Some(Ok(true)),
            (true, false) => Some(Ok(false)),
            (false, false) => self.check().err().map(Err),
        };
        self.shared.dev.await_event(deadline, vectors, ready)?
    }

    /// Fails if an event has told that the CQ is in error.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.shared.notice.error().map_or(Ok(()), |syndrome| Err(Error::CqInError { syndrome }))
    }

    /// Whether polling would find something in the ring, or an error that waits.
    fn has_entry(&mut self) -> bool {
        if self.pending.is_some() {
            return true;
        }
        let mem = self.mem.words();
        each_ring!(&mut self.ring, ring => ring.consume(mem).is_ok_and(|mut entries| {
            let found = entries.next().is_some();
            entries.abandon();
            found
        }))
    }
}
