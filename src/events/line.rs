//! What a completion channel knows of its completion queues: whose turn it is.
//!
//! A completion event makes the CQ stand in its channel's line, where whoever asks the channel takes the first. A CQ stands
//! there once, however many events have come; after one of several is taken it stands at the end again. So all CQs of a channel
//! have their turn, and the line is never longer than they are many, whatever the device writes.

use alloc::collections::{BTreeMap, VecDeque};

use crate::sync::{Arc, Mutex};

/// One event of a CQ: there is something to poll, or was (`ibv_get_cq_event(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CqEvent {
    /// The device's number for the CQ: [`Cq::cqn`](crate::Cq::cqn).
    pub cqn: u32,
    /// The context given to the CQ at its creation: [`Cq::context`](crate::Cq::context).
    pub context: u64,
}

/// The CQs of a channel, and those of them that have events which nobody has taken, in the order of their turns.
pub(crate) struct Line(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    last: u64,
    members: BTreeMap<u64, Member>,
    /// Members that are in, and have events.
    waiting: VecDeque<u64>,
}

struct Member {
    vector: u32,
    event: CqEvent,
    /// Events that nobody has taken.
    waiting: u32,
    /// Events taken, modulo 2^32.
    taken: u32,
    /// Of those, not acknowledged.
    unacked: u64,
    /// It is being destroyed: its events wait outside the line.
    away: bool,
}

/// A CQ's place at its channel. It leaves when it is dropped, with the events that nobody has taken.
pub(crate) struct Place {
    line: Arc<Line>,
    id: u64,
    vector: u32,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Inner::default()))
    }

    /// A place for a CQ with these events, whose event queue raises interrupt `vector`, at most 63.
    pub(crate) fn join(line: &Arc<Self>, vector: u32, event: CqEvent) -> Place {
        let mut inner = line.0.lock();
        inner.last += 1;
        let id = inner.last;
        inner.members.insert(id, Member { vector, event, waiting: 0, taken: 0, unacked: 0, away: false });
        // Events are to find room, as they allocate nothing.
        let members = inner.members.len();
        let more = members - inner.waiting.len();
        inner.waiting.reserve(more);
        Place { line: line.clone(), id, vector }
    }

    /// How many CQs the channel has.
    pub(crate) fn members(&self) -> usize {
        self.0.lock().members.len()
    }

    /// The interrupts that its CQs' event queues raise: bit n for vector n.
    pub(crate) fn vectors(&self) -> u64 {
        self.0.lock().members.values().fold(0, |all, member| all | 1 << member.vector)
    }

    /// Takes the event whose turn it is.
    pub(crate) fn take(&self) -> Option<CqEvent> {
        let mut inner = self.0.lock();
        let id = inner.waiting.pop_front()?;
        inner.take_one(id)
    }
}

impl Inner {
    /// Takes one event of a member that is not in the line any more.
    fn take_one(&mut self, id: u64) -> Option<CqEvent> {
        let member = self.members.get_mut(&id)?;
        member.waiting = member.waiting.checked_sub(1)?;
        member.taken = member.taken.wrapping_add(1);
        member.unacked += 1;
        if member.waiting > 0 {
            self.waiting.push_back(id);
        }
        Some(member.event)
    }
}

impl Place {
    /// The interrupt that the CQ's event queue raises.
    pub(crate) fn vectors(&self) -> u64 {
        1 << self.vector
    }

    /// An event of this CQ has come.
    pub(crate) fn raise(&self) {
        let mut inner = self.line.0.lock();
        let Some(member) = inner.members.get_mut(&self.id) else { return };
        let stands = member.waiting > 0;
        member.waiting = member.waiting.saturating_add(1);
        if !stands && !member.away {
            inner.waiting.push_back(self.id);
        }
    }

    /// Takes an event of this CQ, whoever's turn it is; whether there was one.
    pub(crate) fn take(&self) -> bool {
        let mut inner = self.line.0.lock();
        let has_one = inner.members.get(&self.id).is_some_and(|member| member.waiting > 0);
        if has_one {
            inner.waiting.retain(|id| *id != self.id);
            inner.take_one(self.id);
        }
        has_one
    }

    /// Events taken so far, modulo 2^32.
    pub(crate) fn taken(&self) -> u32 {
        self.line.0.lock().members.get(&self.id).map_or(0, |member| member.taken)
    }

    /// Acknowledges `n` events; false, and none is, if fewer wait for that.
    pub(crate) fn ack(&self, n: u32) -> bool {
        let mut inner = self.line.0.lock();
        let Some(member) = inner.members.get_mut(&self.id) else { return false };
        match member.unacked.checked_sub(n.into()) {
            Some(left) => member.unacked = left,
            None => return false,
        }
        true
    }

    /// The CQ is about to be destroyed: nobody takes an event of it any more.
    ///
    /// # Errors
    /// The number of events taken and not acknowledged, if there are any. It stays in the line then.
    pub(crate) fn step_out(&self) -> Result<(), u64> {
        let mut inner = self.line.0.lock();
        let Some(member) = inner.members.get_mut(&self.id) else { return Ok(()) };
        if member.unacked > 0 {
            return Err(member.unacked);
        }
        member.away = true;
        inner.waiting.retain(|id| *id != self.id);
        Ok(())
    }

    /// It was not destroyed after all: what has come meanwhile can be taken.
    pub(crate) fn step_in(&self) {
        let mut inner = self.line.0.lock();
        let Some(member) = inner.members.get_mut(&self.id) else { return };
        if core::mem::take(&mut member.away) && member.waiting > 0 {
            inner.waiting.push_back(self.id);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.line.0.lock();
        inner.members.remove(&self.id);
        inner.waiting.retain(|id| *id != self.id);
    }
}
