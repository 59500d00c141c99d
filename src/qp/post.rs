//! Posting work requests.
//!
//! A request is written into the queue's memory as it will be read by the device ([`send`](super::send) has how); then, once a call, the doorbell record
//! says how far the queue is filled, and for sends the device is sent there ([`doorbell`](super::doorbell)). Between the three
//! stand the barriers of [`mlx5_hw::arch`]. What is written and not announced is nobody's yet, so a request may turn out to be
//! refused while it is written. Nothing here allocates.

use core::fmt;

use mlx5_hw::wqe::SEGMENT;

use super::segments::{Writer, places};
use super::wr::{RecvWr, SendWr, Sge};
use super::{Qp, QpState};
use crate::error::Error;

/// A request that was not posted. Those before it were (`ibv_post_send(3)`: `bad_wr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// Index of the request in the list.
    pub index: usize,
    /// Why: `NoMemory` (ENOMEM) when the queue is full, `Invalid` (EINVAL) for the request or the state, `Failed` for a device
    /// that has.
    pub error: Error,
}

impl PostError {
    /// The error number of the verbs: Linux's, on every platform; positive.
    pub const fn errno(&self) -> i32 {
        self.error.errno()
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            Error::NoMemory => write!(f, "request {}: the queue is full; poll its CQ first", self.index),
            error => write!(f, "request {}: {error}", self.index),
        }
    }
}

impl core::error::Error for PostError {}

pub(super) const fn invalid<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::Invalid { what })
}

/// Posts each request until one fails.
#[inline]
pub(crate) fn each<W>(wrs: &[W], mut post: impl FnMut(&W) -> Result<(), Error>) -> Result<(), PostError> {
    for (index, wr) in wrs.iter().enumerate() {
        if let Err(error) = post(wr) {
            return Err(PostError { index, error });
        }
    }
    Ok(())
}

/// How many requests of a list were posted.
#[inline]
pub(crate) fn posted<W>(wrs: &[W], result: &Result<(), PostError>) -> usize {
    result.map_or_else(|error| error.index, |()| wrs.len())
}

/// How many requests fit, as far as known: asks again only when there seems to be no room left.
pub(crate) struct Room<F> {
    left: u32,
    ask: F,
}

impl<F: FnMut() -> u32> Room<F> {
    /// `ask` says how many fit now.
    #[inline]
    pub(crate) fn new(ask: F) -> Self {
        Self { left: 0, ask }
    }

    /// Takes the room of a request.
    ///
    /// # Errors
    /// `NoMemory` if there is none.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<(), Error> {
        if self.left == 0 {
            self.left = (self.ask)();
        }
        self.left = self.left.checked_sub(1).ok_or(Error::NoMemory)?;
        Ok(())
    }
}

impl Qp {
    /// Posts send requests, in order (`ibv_post_send(3)`). The device is told once, after the last of them;
    /// [`wr_start`](Self::wr_start) tells it once for several calls.
    ///
    /// A send whose completion is not asked for keeps its place in the queue until a later one's completion is polled.
    ///
    /// # Errors
    /// The first request that cannot be posted, and why; the ones before it are posted. `NoMemory` (ENOMEM) when the queue is
    /// full; `Invalid` (EINVAL) for unknown flags, more pieces or inlined bytes than the queue pair was created for, a piece
    /// of 2^31 bytes or more, an operation that the transport does not have (`ibv_post_send(3)`), a datagram without a destination,
    /// one to a queue pair number of more than 24 bits or with an address handle of another protection domain, a destination on a
    /// connection, payload in the wrong field, an RDMA read or atomic that is inlined, an atomic whose list is not
    /// one piece of 8 bytes (libmlx5 would write 8 bytes to a shorter one), and in a state other than Rts and Err;
    /// `Unsupported` (EOPNOTSUPP) for atomics on a device without. Keys, addresses and what the peer allows are checked by the
    /// devices: such a request is posted, and its completion tells. With data in completions
    /// ([`ALLOW_SCATTER_TO_CQE`](crate::dv::QpCreateFlags::ALLOW_SCATTER_TO_CQE)) an answer that may lie in its completion has to ask
    /// for that one, or is `Invalid`; elsewhere it would be lost.
    ///
    /// A device that was found to have failed takes nothing more: `Failed` for the first request, as Linux's mlx5_ib refuses
    /// it. Posting does not look for that; waiting, commands and [`Device::health`](crate::Device::health) do.
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.wr_start().post_send(wrs)
    }

    /// Posts receive requests, in order (`ibv_post_recv(3)`). The device is told once, after the last of them.
    ///
    /// # Errors
    /// The first request that cannot be posted, and why; the ones before it are posted. `NoMemory` (ENOMEM) when the queue is
    /// full; `Invalid` (EINVAL) for more pieces than the queue pair was created for, a piece of 2^31 bytes or more, in state
    /// Reset, and when the receives come from a shared receive queue.
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let result = self.write_recvs(wrs);
        let posted = posted(wrs, &result);
        self.rq_posted = self.rq_posted.wrapping_add(posted as u16);
        if posted != 0
            && let Some(record) = self.dbrec()
        {
            record.set_receive(self.rq_posted);
        }
        result
    }

    /// Writes receive requests.
    fn write_recvs(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        if wrs.is_empty() {
            return Ok(());
        }
        self.may_receive().map_err(|error| PostError { index: 0, error })?;
        let geometry = &self.geometry;
        let entries = geometry.rq_entries;
        let mut room = Room::new(|| entries.saturating_sub(self.work.recv().used()));
        let queue = places(self.mem.words().get(..geometry.rq_bytes() / 4).unwrap_or_default());
        let segments = geometry.rq_stride / SEGMENT;
        let mut counter = self.rq_posted;
        each(wrs, |wr| {
            check_count(wr.sg_list, geometry.cap.max_recv_sge as usize)?;
            room.take()?;
            let at = (u32::from(counter) & entries.wrapping_sub(1)) as usize * segments;
            Writer::within(queue.get(at..at + segments).unwrap_or_default()).scatter(wr.sg_list)?;
            self.work.recv().push(1, wr.wr_id, Some(wr.sg_list));
            counter = counter.wrapping_add(1);
            Ok(())
        })
    }

    fn may_receive(&self) -> Result<(), Error> {
        if self.state == QpState::Reset {
            return invalid("nothing can be posted in state Reset");
        }
        if self.srq.is_some() {
            return invalid("its receives come from a shared receive queue: Srq::post_recv");
        }
        Ok(())
    }
}

#[inline]
pub(crate) fn check_count(list: &[Sge], most: usize) -> Result<(), Error> {
    if list.len() > most {
        return invalid("more pieces in sg_list than the queue was created for");
    }
    Ok(())
}
