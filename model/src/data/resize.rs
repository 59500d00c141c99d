//! A completion queue gets another ring: the old one ends with an entry that says so.

use super::{cq, gather, slot};
use crate::device::Device;
use crate::objects::Cq;

/// Opcode of the old ring's last entry.
const RESIZE_CQ: u8 = 5;

/// Ends the ring of queue `cqn` and goes on in that of `new`, behind the position that the ending entry took. False when it
/// could not be written: the queue is then in error.
pub(super) fn switch(dev: &mut Device, cqn: u32, new: Cq) -> bool {
    // What waits to be written in a session belongs to the old ring.
    if !gather::flush(dev, cqn) {
        return false;
    }
    let Some(old) = dev.objects.cqs.get(&cqn).cloned() else { return false };
    let mut last = [0; 64];
    last[63] = RESIZE_CQ << 4;
    slot::own_and_sign(&old, old.producer, &mut last);
    let written = slot::put(dev, &old, old.producer, &last.into());
    // No completion: it raises no event.
    if written.is_err() {
        return cq::conclude(dev, cqn, written, 0, false);
    }
    dev.objects.cqs.insert(cqn, Cq { producer: old.producer.wrapping_add(1), armed: old.armed, ..new });
    dev.data.cq(cqn).gather.forget_title();
    true
}
