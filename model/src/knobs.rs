//! Faults on demand: what real devices do now and then.

use crate::data;
use crate::device::Device;
use crate::eq::{self, Event};
use crate::model::Model;

/// Which command a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// The next command with this opcode, once.
    Opcode(u16),
    /// Each command with this opcode.
    Every(u16),
    /// The n-th command since the model was made, counted from 1, once.
    Nth(u64),
}

/// What happens to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is not executed and completes with this status and syndrome.
    Status {
        /// Command status, not 0.
        status: u8,
        /// Syndrome.
        syndrome: u32,
    },
    /// It is not executed and completes with this delivery status.
    Delivery(u8),
    /// It is not executed and never completes.
    Never,
    /// It is executed at once and completes this many nanoseconds later.
    Late(u64),
    /// It is executed at once and completes after the next command has.
    AfterNext,
    /// It completes, but its event is lost.
    EventLost,
    /// It completes, and its event comes this many nanoseconds later.
    EventLate(u64),
    /// It completes, but its event names these slots instead of its own: a bit each.
    EventForSlots(u32),
    /// Before it completes, an event for these slots comes, and on each event queue one for this completion queue.
    StrayEvents {
        /// Command slots, a bit each; those that have something outstanding are left out.
        slots: u32,
        /// Completion queue number that need not exist.
        cqn: u32,
    },
    /// Firmware asks for this many pages (gives back, when negative) by an event, and executes the command when they
    /// have come; at once when the event cannot be delivered or pages are given back. A page command itself does not wait.
    PageRequest(i32),
    /// It is executed at once, firmware then asks for this many pages (gives back, when negative) by an event, and the
    /// command completes after the next one has; as usual when the event cannot be delivered, and for a page command.
    Overtaken(i32),
    /// It completes, but writes more than it was asked for: what is left of the output in the entry and of its mailbox
    /// blocks, up to the next kibibyte, is filled with ones, the chain's pointers with it, and so are the entry's lengths
    /// and pointers.
    Overlong,
    /// It completes with this dword of its output replaced.
    Output {
        /// Byte offset in the output, a multiple of four from 8 on.
        at: u16,
        /// The dword.
        dword: u32,
    },
    /// The function is gone once it has taken the command: reads return all ones.
    Removed,
    /// The health buffer shows this from now on. A command does not complete any more, this one included, once firmware
    /// asks for a reset.
    Health {
        /// Syndrome byte.
        syndrome: u8,
        /// Severity, 0 to 7.
        severity: u8,
        /// Whether firmware asks for a reset (`rfr`).
        request_reset: bool,
    },
}

/// A fault to [inject](crate::Model::inject).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Something happens to a command.
    Command {
        /// Which command.
        at: Match,
        /// What happens.
        effect: Effect,
    },
    /// An event for command slots that may have nothing outstanding, now: a bit each.
    StrayCommandEvent(u32),
    /// A completion event for a completion queue number that need not exist, now, on this event queue.
    StrayCompletionEvent {
        /// Event queue number.
        eqn: u32,
        /// Completion queue number.
        cqn: u32,
    },
    /// An event of any type, now, on this event queue, whether it subscribed to the type or not; without a number on the one
    /// that did.
    Event {
        /// Event queue number.
        eqn: Option<u32>,
        /// Event type.
        kind: u8,
        /// Its subtype.
        sub: u8,
        /// Bytes 0x20 to 0x3b of the entry.
        data: [u8; 28],
    },
    /// The port's link goes up or down, now: an event says so, and the state of the port from now on, also after resets.
    Link {
        /// Up.
        up: bool,
    },
    /// A completion queue breaks, now: an event says so, its context too, and nothing is written to it any more. The queue
    /// need not exist: then there is the event only.
    CqError {
        /// Completion queue number.
        cqn: u32,
        /// 1 overrun, 2 access violation.
        syndrome: u8,
    },
    /// An event about a queue pair or a shared receive queue, now. A queue pair goes to error with the events that say so (types
    /// 0x05, 0x10, 0x11). The object need not exist: then there is the event only.
    QueueEvent {
        /// Event type.
        kind: u8,
        /// Number of the queue pair or shared receive queue.
        number: u32,
    },
    /// Firmware asks for pages by an event, now; gives back when negative.
    PageRequest(i32),
    /// The health buffer shows this syndrome from now on. Commands that are taken while firmware asks for a reset do not
    /// complete.
    Health {
        /// Syndrome byte.
        syndrome: u8,
        /// Severity, 0 to 7.
        severity: u8,
        /// Whether firmware asks for a reset (`rfr`).
        request_reset: bool,
    },
    /// The health counter stands still from now on.
    CounterStuck,
    /// The function is gone: reads return all ones.
    Removed,
    /// The function never finishes booting: `initializing` stays set, from now on and after resets.
    NeverBoots,
}

/// Faults that wait for their time.
#[derive(Default)]
pub(crate) struct Faults {
    commands: Vec<(Match, Effect)>,
    /// When the health counter stopped, in nanoseconds.
    pub(crate) counter_stuck_at: Option<u64>,
    pub(crate) never_boots: bool,
}

impl Faults {
    pub(crate) fn add(&mut self, at: Match, effect: Effect) {
        self.commands.push((at, effect));
    }

    /// The fault for the command that is the `count`-th, if there is one; the first that was injected wins.
    pub(crate) fn take(&mut self, opcode: u16, count: u64) -> Option<Effect> {
        let hit = |(at, _): &(Match, Effect)| match at {
            Match::Opcode(op) | Match::Every(op) => *op == opcode,
            Match::Nth(n) => *n == count,
        };
        let index = self.commands.iter().position(hit)?;
        let (at, effect) = self.commands[index];
        if !matches!(at, Match::Every(_)) {
            self.commands.remove(index);
        }
        Some(effect)
    }
}

fn queue_event(dev: &mut Device, kind: u8, number: u32) {
    eq::report(dev, Event::queue_pair(kind, number));
    if eq::event::QP_ERRORS.contains(&kind) {
        data::break_qp(dev, number);
    }
}

impl Model {
    /// Lets something go wrong, now or at a command to come.
    pub fn inject(&self, fault: Fault) {
        let mut dev = self.lock();
        dev.stir();
        match fault {
            Fault::Command { at, effect } => dev.faults.add(at, effect),
            Fault::StrayCommandEvent(slots) => eq::report(&mut dev, Event::command(slots)),
            Fault::StrayCompletionEvent { eqn, cqn } => eq::post(&mut dev, eqn, Event::completion(cqn)),
            Fault::Event { eqn, kind, sub, data } => {
                let eqn = eqn.or_else(|| eq::subscriber(&dev, kind));
                eqn.into_iter().for_each(|eqn| eq::post(&mut dev, eqn, Event { kind, sub, data }));
            }
            Fault::Link { up } => {
                dev.link_up = up;
                eq::report(&mut dev, Event::port_change(up));
            }
            Fault::CqError { cqn, syndrome } => data::break_cq(&mut dev, cqn, syndrome),
            Fault::QueueEvent { kind, number } => queue_event(&mut dev, kind, number),
            Fault::PageRequest(pages) => {
                dev.request_pages(pages);
            }
            Fault::Health { syndrome, severity, request_reset } => {
                dev.iseg.health = (syndrome, severity, request_reset);
            }
            Fault::CounterStuck => dev.faults.counter_stuck_at = Some(dev.clock.now()),
            Fault::Removed => dev.remove(),
            Fault::NeverBoots => dev.faults.never_boots = true,
        }
        self.interrupts_may_have_fired(&dev);
    }

    /// Takes back all faults that still wait for their time, and the lasting ones; a removed function comes back as after
    /// power-on.
    pub fn clear_faults(&self) {
        let mut dev = self.lock();
        dev.faults = Default::default();
        dev.data.clear_faults();
        dev.iseg.health = (0, 0, false);
        if !dev.present {
            dev.present = true;
            dev.reset();
            dev.pci.turn_on();
        }
    }
}
