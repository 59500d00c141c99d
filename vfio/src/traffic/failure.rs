//! Why round trips end early.

use std::fmt;
use std::time::Duration;

use mlx5::{Error, PollError, PostError, WcStatus};

use super::check::Lack;
use crate::stop::Stopped;

/// Why the round trips ended early. Iterations, bytes and wr_ids count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A byte that arrived is not the one that was sent.
    Mismatch { end: &'static str, iteration: u64, byte: usize, sent: u8, got: u8 },
    /// A message arrived with another length.
    Length { end: &'static str, iteration: u64, want: u32, got: u32 },
    /// The network header in front of a datagram is not that of a packet to this port.
    Header { end: &'static str, iteration: u64 },
    /// A completion did not come within a time of a clock.
    Missing { lack: Lack, waited: Duration, clock: &'static str },
    /// Completions of one queue came in another order than the work requests.
    Order { end: &'static str, queue: Queue, want: u64, got: u64 },
    /// A completion came for a request that was not outstanding.
    Unasked { end: &'static str, queue: Queue, wr_id: u64 },
    /// A work request failed.
    Status { end: &'static str, queue: Queue, wr_id: u64, status: WcStatus, vendor_err: u32 },
    /// A completion says something that is not so, or has not what was asked for.
    Field { end: &'static str, queue: Queue, wr_id: u64, field: String },
    /// The user has had enough.
    Stopped(Stopped),
    /// The library refused something, or the device is lost.
    Driver(Error),
    /// A work request was not accepted.
    Post(PostError),
    /// An entry of a CQ could not be read.
    Poll(PollError),
}

/// Which of a queue pair's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Sends.
    Send,
    /// Receives.
    Receive,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Send { "send" } else { "receive" })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { end, iteration, byte, sent, got } => write!(
                f,
                "payload mismatch at iteration {iteration}, byte {byte}: {sent:#04x} was sent, {got:#04x} arrived at {end}"
            ),
            Self::Length { end, iteration, want, got } => {
                write!(f, "message of iteration {iteration} arrived at {end} with {got} bytes instead of {want}")
            }
            Self::Header { end, iteration } => {
                write!(f, "the network header of iteration {iteration}'s message at {end} does not name this port")
            }
            Self::Missing { lack: Lack { end, queue, wr_id, later }, waited, clock } => {
                write!(f, "completion missing: {end}'s {queue} with wr_id {wr_id} did not complete within ")?;
                write!(f, "{} ms of {clock}", waited.as_millis())?;
                later.map_or(Ok(()), |later| write!(f, ", though wr_id {later} behind it did"))
            }
            Self::Order { end, queue, want, got } => {
                write!(f, "completion out of order at {end}'s {queue} queue: expected wr_id {want}, got {got}")
            }
            Self::Unasked { end, queue, wr_id } => {
                write!(f, "a completion that nobody waits for at {end}'s {queue} queue: wr_id {wr_id}")
            }
            Self::Status { end, queue, wr_id, status, vendor_err } => {
                write!(f, "{end}'s {queue} with wr_id {wr_id} failed: {status}, vendor error {vendor_err:#x}")
            }
            Self::Field { end, queue, wr_id, field } => {
                write!(f, "the completion of {end}'s {queue} with wr_id {wr_id} is wrong: {field}")
            }
            Self::Stopped(signal) => signal.fmt(f),
            Self::Driver(e) => e.fmt(f),
            Self::Post(e) => e.fmt(f),
            Self::Poll(e) => e.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        Self::Driver(e)
    }
}

impl From<PostError> for Failure {
    fn from(e: PostError) -> Self {
        Self::Post(e)
    }
}

impl From<PollError> for Failure {
    fn from(e: PollError) -> Self {
        Self::Poll(e)
    }
}
