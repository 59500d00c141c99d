//! The responder's side of requests that name its memory: RDMA write and read, atomics, invalidation.
//!
//! Which rule a request breaks decides what its sender hears and what the responder's owner does (InfiniBand specification,
//! responder faults of class C): an operation that is not enabled, a misaligned atomic, more reads at once than there is room
//! for are "invalid request"; a key that does not give access is "remote access error". Both queue pairs break down; where no
//! receive work request can say so on the responder's side, an asynchronous event does.

use super::cqe::syndrome;
use super::fetch::ATOMIC_BYTES;
use super::memory;
use super::mkey::{Access, KeyFault, Piece};
use super::wqe::{Atomic, Remote};
use crate::device::Device;
use crate::dma::DmaFault;
use crate::eq::event;

/// Why a request was refused, in the terms of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Syndrome of the sender's completion.
    pub(crate) sender: u8,
    /// Type of the responder's event.
    pub(crate) event: u8,
}

const INVALID: Refused = Refused { sender: syndrome::REMOTE_INVALID_REQUEST, event: event::WQ_INVALID_REQUEST };
const ACCESS: Refused = Refused { sender: syndrome::REMOTE_ACCESS, event: event::WQ_ACCESS };
pub(crate) const BROKEN: Refused = Refused { sender: syndrome::REMOTE_OPERATION, event: event::WQ_CATASTROPHIC };

impl From<KeyFault> for Refused {
    fn from(_: KeyFault) -> Self {
        ACCESS
    }
}

impl From<DmaFault> for Refused {
    fn from(_: DmaFault) -> Self {
        BROKEN
    }
}

/// A message of the wrong length.
pub(crate) const LENGTH: Refused = INVALID;

/// Where a write to `qpn` goes. A write of nothing needs no key.
pub(crate) fn write_target(dev: &Device, qpn: u32, to: Remote, len: u64) -> Result<Vec<Piece>, Refused> {
    if !dev.objects.qps.get(&qpn).is_some_and(|qp| qp.remote_write) {
        return Err(INVALID);
    }
    target(dev, qpn, to, len, Access::RemoteWrite)
}

fn target(dev: &Device, qpn: u32, remote: Remote, len: u64, access: Access) -> Result<Vec<Piece>, Refused> {
    if len == 0 {
        return Ok(Vec::new());
    }
    Ok(memory::by_key(dev, memory::owner(dev, qpn), remote.rkey, (remote.addr, len), access)?)
}

/// Whether `qpn` has room for one read or atomic more when `under_way` are, this one included.
fn room(dev: &Device, qpn: u32, under_way: u32) -> Result<(), Refused> {
    let most = dev.objects.qps.get(&qpn).map_or(0, |qp| 1 << qp.log_rra_max);
    if under_way > most { Err(INVALID) } else { Ok(()) }
}

/// Reads for the peer of `qpn`.
pub(crate) fn read(dev: &mut Device, qpn: u32, from: Remote, len: u64, under_way: u32) -> Result<Vec<u8>, Refused> {
    if !dev.objects.qps.get(&qpn).is_some_and(|qp| qp.remote_read) {
        return Err(INVALID);
    }
    room(dev, qpn, under_way)?;
    let pieces = target(dev, qpn, from, len, Access::RemoteRead)?;
    let mut payload = Vec::new();
    memory::read(dev, &pieces, &mut payload)?;
    Ok(payload)
}

/// Does an atomic for the peer of `qpn`, and returns what was there before. The 8 bytes are a number in the byte order that
/// the host has: little-endian, the only one that ACCESS_REG lets a driver choose here.
pub(crate) fn atomic(dev: &mut Device, qpn: u32, at: Remote, what: Atomic, under_way: u32) -> Result<u64, Refused> {
    if !dev.objects.qps.get(&qpn).is_some_and(|qp| qp.remote_atomic) {
        return Err(INVALID);
    }
    room(dev, qpn, under_way)?;
    let pieces = target(dev, qpn, at, ATOMIC_BYTES, Access::Atomic)?;
    if !at.addr.is_multiple_of(ATOMIC_BYTES) {
        return Err(INVALID);
    }
    let mut bytes = Vec::new();
    memory::read(dev, &pieces, &mut bytes)?;
    let old = bytes.try_into().map_or(0, u64::from_le_bytes);
    memory::write(dev, &pieces, &what.apply(old).to_le_bytes())?;
    Ok(old)
}
