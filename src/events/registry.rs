//! Which objects events may be about, by kind and number.
//!
//! The device gives a number again as soon as its object is destroyed. So an object is taken out only after what was in the
//! event queues when DESTROY returned has been taken, and put in only after what was there when CREATE returned has been:
//! no event of the old one reaches the new one, whichever thread comes first.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::{CqNotice, Element};

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
}

/// The entry of an object that is not a CQ, to take it out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(super) kind: Kind,
    pub(super) number: u32,
    serial: u64,
}

struct Entry {
    serial: u64,
    context: u64,
}

/// The objects of a device that events may be about.
#[derive(Default)]
pub(super) struct Registry {
    cqs: BTreeMap<u32, Arc<CqNotice>>,
    others: BTreeMap<(Kind, u32), Entry>,
    serial: u64,
}

impl Registry {
    /// The CQ of a number.
    pub(super) fn cq(&self, cqn: u32) -> Option<&Arc<CqNotice>> {
        self.cqs.get(&cqn)
    }

    /// An object as events name it.
    pub(super) fn element(&self, kind: Kind, number: u32) -> Option<Element> {
        let context = match kind {
            Kind::Cq => self.cq(number)?.context(),
            _ => self.others.get(&(kind, number))?.context,
        };
        Some(Element { number, context })
    }

    pub(super) fn insert_cq(&mut self, notice: Arc<CqNotice>) {
        self.cqs.insert(notice.cqn(), notice);
    }

    /// Takes a CQ out; says whether it was in. A newer one of its number stays.
    pub(super) fn remove_cq(&mut self, notice: &Arc<CqNotice>) -> bool {
        let own = self.cqs.get(&notice.cqn()).is_some_and(|there| Arc::ptr_eq(there, notice));
        if own {
            self.cqs.remove(&notice.cqn());
        }
        own
    }

    pub(super) fn insert(&mut self, kind: Kind, number: u32, context: u64) -> Ticket {
        self.serial += 1;
        let serial = self.serial;
        self.others.insert((kind, number), Entry { serial, context });
        Ticket { kind, number, serial }
    }

    /// Takes an object out; says whether it was in. A newer one of its number stays.
    pub(super) fn remove(&mut self, ticket: Ticket) -> bool {
        let key = (ticket.kind, ticket.number);
        let own = self.others.get(&key).is_some_and(|entry| entry.serial == ticket.serial);
        if own {
            self.others.remove(&key);
        }
        own
    }
}
