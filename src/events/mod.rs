//! What the device tells without being asked, and whom it concerns.
//!
//! The event queues ([`eq`](crate::eq)) hand each entry over under their lock, in the order of the rings: whoever
//! takes what waits in them and then looks has missed nothing.

mod async_event;
mod channel;
mod lead;
mod line;
mod notice;
mod registry;
#[cfg(test)]
mod tests;
mod wait;

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use mlx5_hw::eqe::Event;
use spin::Mutex;

pub use async_event::{AsyncEvent, Element};
pub use channel::CompChannel;
pub(crate) use lead::{Listeners, NAP};
pub use line::CqEvent;
pub(crate) use line::Place;
pub(crate) use notice::CqNotice;
use registry::Registry;
pub(crate) use registry::{Kind, Ticket};

use crate::error::Failure;

/// Events kept for [`Device::get_async_event`](crate::Device::get_async_event).
const KEPT_EVENTS: usize = 64;

/// Events that have come, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounters {
    /// Commands that completed.
    pub commands: u64,
    /// Page requests.
    pub page_requests: u64,
    /// Completion queues with something to tell.
    pub completions: u64,
    /// Others, kept for [`Device::get_async_event`](crate::Device::get_async_event).
    pub kept: u64,
    /// Of those, dropped before anybody asked.
    pub dropped: u64,
    /// Of a type without a name, about an object that is not there, or asking for what this driver does not do; ignored.
    pub unknown: u64,
}

/// The events of a device.
#[derive(Default)]
pub(crate) struct Events {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    registry: Registry,
    kept: VecDeque<AsyncEvent>,
    counters: EventCounters,
}

impl Events {
    /// Takes an event into account. Short, and calls nothing of the event queues: it is called under their lock.
    pub(crate) fn on_event(&self, event: &Event) {
        let mut state = self.state.lock();
        match *event {
            Event::Command { .. } => state.counters.commands += 1,
            Event::PageRequest { ec_function: false, release_all: false, .. } => state.counters.page_requests += 1,
            Event::Completion { cqn } => {
                state.counters.completions += 1;
                match state.registry.cq(cqn) {
                    Some(notice) => notice.completion(),
                    None => state.counters.unknown += 1,
                }
            }
            // The driver never allows the firmware to ask in these ways.
            Event::PageRequest { .. } => state.counters.unknown += 1,
            _ => state.on_other(event),
        }
    }

    /// The device has failed.
    pub(crate) fn on_failure(&self, why: Failure) {
        self.state.lock().keep(AsyncEvent::DeviceFatal(why));
    }

    /// The oldest asynchronous event that nobody has taken.
    pub(crate) fn next(&self) -> Option<AsyncEvent> {
        self.state.lock().kept.pop_front()
    }

    pub(crate) fn counters(&self) -> EventCounters {
        self.state.lock().counters
    }

    /// Puts a CQ in. What is kept of an older one of its number goes.
    pub(crate) fn insert_cq(&self, notice: Arc<CqNotice>) {
        let mut state = self.state.lock();
        state.purge(Kind::Cq, notice.cqn());
        state.registry.insert_cq(notice);
    }

    /// Takes a CQ out, and what is kept of it.
    pub(crate) fn remove_cq(&self, notice: &Arc<CqNotice>) {
        let mut state = self.state.lock();
        if state.registry.remove_cq(notice) {
            state.purge(Kind::Cq, notice.cqn());
        }
    }

    /// Puts an object in that is not a CQ. What is kept of an older one of its number goes.
    pub(crate) fn insert(&self, kind: Kind, number: u32, context: u64) -> Ticket {
        let mut state = self.state.lock();
        state.purge(kind, number);
        state.registry.insert(kind, number, context)
    }

    /// Takes an object out that is not a CQ, and what is kept of it.
    pub(crate) fn remove(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        if state.registry.remove(ticket) {
            state.purge(ticket.kind, ticket.number);
        }
    }
}

impl State {
    /// Keeps what an event says of an object, a port or the device.
    fn on_other(&mut self, event: &Event) {
        let Some(event) = AsyncEvent::of(event, |kind, number| self.registry.element(kind, number)) else {
            self.counters.unknown += 1;
            return;
        };
        if let AsyncEvent::CqErr { cq, syndrome } = event
            && let Some(notice) = self.registry.cq(cq.number)
        {
            notice.fail(syndrome);
        }
        self.keep(event);
    }

    fn keep(&mut self, event: AsyncEvent) {
        self.counters.kept += 1;
        if self.kept.len() == KEPT_EVENTS {
            self.kept.pop_front();
            self.counters.dropped += 1;
        }
        self.kept.push_back(event);
    }

    /// Forgets what is kept of an object that is gone.
    fn purge(&mut self, kind: Kind, number: u32) {
        self.kept.retain(|event| event.object() != Some((kind, number)));
    }
}
