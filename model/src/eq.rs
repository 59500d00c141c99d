//! Event queues at work: writing entries, arming, interrupts.

use crate::bytes::{put_bits, put32};
use crate::device::Device;
use crate::iseg::syndrome;
use crate::pace;
use crate::violation::ViolationKind;

/// Event types that the model reports.
pub(crate) mod event {
    /// A completion queue has entries.
    pub(crate) const COMPLETION: u8 = 0x00;
    /// A completion queue went to error.
    pub(crate) const CQ_ERROR: u8 = 0x04;
    /// A queue pair broke down (local work queue catastrophic error).
    pub(crate) const WQ_CATASTROPHIC: u8 = 0x05;
    /// A peer's request was invalid, and no receive work request was there to say so (local work queue invalid request).
    pub(crate) const WQ_INVALID_REQUEST: u8 = 0x10;
    /// The same for a request that violated a key (local work queue access violation).
    pub(crate) const WQ_ACCESS: u8 = 0x11;
    /// After these a queue pair is in error.
    pub(crate) const QP_ERRORS: [u8; 3] = [WQ_CATASTROPHIC, WQ_INVALID_REQUEST, WQ_ACCESS];
    /// A port went up or down.
    pub(crate) const PORT_CHANGE: u8 = 0x09;
    /// The list of a shared receive queue leads astray.
    pub(crate) const SRQ_CATASTROPHIC: u8 = 0x12;
    /// A queue pair takes nothing more from its shared receive queue.
    pub(crate) const SRQ_LAST_WQE: u8 = 0x13;
    /// A shared receive queue has fewer work requests than its limit.
    pub(crate) const SRQ_LIMIT: u8 = 0x14;
    /// Commands have completed.
    pub(crate) const COMMAND: u8 = 0x0a;
    /// Firmware wants pages or gives some back.
    pub(crate) const PAGE_REQUEST: u8 = 0x0b;
}

/// An event to report: what the entry says besides its owner bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) kind: u8,
    pub(crate) sub: u8,
    /// Bytes 0x20 to 0x3b of the entry.
    pub(crate) data: [u8; 28],
}

/// An event for a queue, to be delivered later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Late {
    pub(crate) eqn: u32,
    pub(crate) event: Event,
}

impl Event {
    pub(crate) fn new(kind: u8) -> Self {
        Self { kind, sub: 0, data: [0; 28] }
    }

    /// The completion event of a completion queue.
    pub(crate) fn completion(cqn: u32) -> Self {
        let mut event = Self::new(event::COMPLETION);
        put32(&mut event.data, 0x18, cqn);
        event
    }

    /// The error event of a completion queue.
    pub(crate) fn cq_error(cqn: u32, syndrome: u8) -> Self {
        let mut event = Self::new(event::CQ_ERROR);
        put32(&mut event.data, 0x0, cqn);
        put_bits(&mut event.data, 0xb * 8, 8, syndrome.into());
        event
    }

    /// Port 1 went up or down.
    pub(crate) fn port_change(up: bool) -> Self {
        let mut event = Self { sub: if up { 4 } else { 1 }, ..Self::new(event::PORT_CHANGE) };
        put_bits(&mut event.data, 0x8 * 8, 4, 1);
        event
    }

    /// An event about a queue pair, or a shared receive queue.
    pub(crate) fn queue_pair(kind: u8, qpn: u32) -> Self {
        let mut event = Self::new(kind);
        put_bits(&mut event.data, 0x19 * 8, 24, qpn.into());
        event
    }

    /// A shared receive queue's event: its number stands where a queue pair's does.
    pub(crate) fn shared_receive_queue(kind: u8, rmpn: u32) -> Self {
        Self::queue_pair(kind, rmpn)
    }

    /// Completion of the commands whose slots are set in `slots`.
    pub(crate) fn command(slots: u32) -> Self {
        let mut event = Self::new(event::COMMAND);
        put32(&mut event.data, 0x0, slots);
        event
    }

    /// A request for `pages` pages, or for taking back when negative.
    pub(crate) fn page_request(pages: i32) -> Self {
        let mut event = Self::new(event::PAGE_REQUEST);
        put32(&mut event.data, 0x4, pages as u32);
        event
    }
}

/// The queue that was created to report events of this type.
pub(crate) fn subscriber(dev: &Device, kind: u8) -> Option<u32> {
    let bit = 1_u64.checked_shl(kind.into())?;
    dev.objects.eqs.iter().find(|(_, eq)| eq.event_mask & bit != 0).map(|(eqn, _)| *eqn)
}

/// Reports an event to the queue that subscribed to its type; without one it is lost.
pub(crate) fn report(dev: &mut Device, event: Event) {
    if let Some(eqn) = subscriber(dev, event.kind) {
        post(dev, eqn, event);
    }
}

/// Delivers an event that was held back.
pub(crate) fn deliver(dev: &mut Device, late: Late) {
    post(dev, late.eqn, late.event);
}

/// Writes an event into queue `eqn`, and raises its interrupt if it is armed.
pub(crate) fn post(dev: &mut Device, eqn: u32, event: Event) {
    let Some(eq) = dev.objects.eqs.get_mut(&eqn) else { return };
    if eq.broken {
        return;
    }
    if eq.pending() >= eq.entries() {
        eq.broken = true;
        dev.violate(ViolationKind::EqOverrun, format!("EQ {eqn:#x}: event type {:#x}", event.kind));
        return;
    }
    let position = eq.producer;
    let entries = eq.entries();
    let mut entry = [0_u8; 64];
    entry[1] = event.kind;
    entry[3] = event.sub;
    entry[0x20..0x3c].copy_from_slice(&event.data);
    entry[0x3f] = u8::from(position & entries != 0);
    let buffer = eq.buffer.clone();
    eq.producer = position.wrapping_add(1);
    let armed = std::mem::take(&mut eq.armed);
    let at = u64::from(position & (entries - 1)) * 64;
    match dev.buffer_write("event queue entry", &buffer, at, &entry) {
        Ok(()) if armed => pace::interrupt(dev, eqn),
        Ok(()) => (),
        Err(_) => {
            if let Some(eq) = dev.objects.eqs.get_mut(&eqn) {
                eq.broken = true;
            }
            dev.iseg.fall_ill(syndrome::EQ_ERROR);
        }
    }
}

/// A doorbell in UAR page `uar`: a new consumer index, and arming when `arm`.
pub(crate) fn doorbell(dev: &mut Device, uar: u32, value: u32, arm: bool) {
    let (eqn, consumer) = (value >> 24, value & 0xff_ffff);
    let Some(eq) = dev.objects.eqs.get_mut(&eqn) else {
        dev.violate(ViolationKind::DoorbellUnknownObject, format!("EQ {eqn:#x} in UAR {uar:#x}"));
        return;
    };
    if eq.uar != uar {
        let detail = format!("EQ {eqn:#x} has UAR {:#x}, doorbell in {uar:#x}", eq.uar);
        dev.violate(ViolationKind::DoorbellWrongUar, detail);
        return;
    }
    let step = consumer.wrapping_sub(eq.consumer) & 0xff_ffff;
    if step > eq.pending() {
        let detail = format!("EQ {eqn:#x}: index {consumer:#x} after {:#x}, producer {:#x}", eq.consumer, eq.producer);
        dev.violate(ViolationKind::EqConsumerIndex, detail);
        return;
    }
    eq.consumer = consumer;
    if arm {
        eq.armed = eq.pending() == 0;
        if !eq.armed {
            pace::interrupt(dev, eqn);
        }
    }
}
