//! The data path: memory keys, completion queues, work queues, and reliable connections over a loopback wire.
//!
//! The control side calls in here at these points; each runs with the whole device at hand.

use crate::device::Device;
use crate::objects::QpState;

/// A timer of the data path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {}

/// State of the data path that is not part of an object.
#[derive(Default)]
pub(crate) struct DataPath {}

/// A send doorbell in UAR page `uar`: the first 8 bytes of a control segment, big-endian (queue number in bits 31:8).
pub(crate) fn sq_doorbell(dev: &mut Device, uar: u32, value: u64) {
    let _ = (dev, uar, value);
}

/// An arm doorbell in UAR page `uar`: arm word in the high half, completion queue number in the low one.
pub(crate) fn cq_arm(dev: &mut Device, uar: u32, value: u64) {
    let _ = (dev, uar, value);
}

/// A timer has run out.
pub(crate) fn timer(_dev: &mut Device, timer: Timer) {
    match timer {}
}

/// A queue pair has been moved to a new state by a command; the object says already so.
pub(crate) fn qp_moved(dev: &mut Device, qpn: u32, from: QpState) {
    let _ = (dev, qpn, from);
}

/// A queue pair is about to be destroyed.
pub(crate) fn qp_destroyed(dev: &mut Device, qpn: u32) {
    let _ = (dev, qpn);
}

/// A completion queue is about to be destroyed.
pub(crate) fn cq_destroyed(dev: &mut Device, cqn: u32) {
    let _ = (dev, cqn);
}

/// The function was reset: nothing is left of any object.
pub(crate) fn reset(dev: &mut Device) {
    dev.data = DataPath::default();
}
