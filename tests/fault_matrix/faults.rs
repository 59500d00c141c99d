//! What goes wrong at a command.

use std::sync::atomic::Ordering;

use mlx5_model::{Effect, Fault as Knob, Match};

use crate::clean::Row;
use crate::port::{COMMAND, MS, Port, UNWIND};

/// Status and syndrome of a command that is refused: BAD_PARAM.
pub const STATUS: u8 = 3;
pub const SYNDROME: u32 = 0x00ba_d5ed;
/// Delivery status of a command that is not delivered: the firmware's own.
pub const DELIVERY: u8 = 6;
/// Syndrome of a firmware that has failed, and of one that goes on.
pub const FATAL: u8 = 1;
pub const NONFATAL: u8 = 7;
/// How much later than its deadline a late answer comes: after all that follows the failure of an open.
pub const TOO_LATE: u64 = COMMAND + 2 * UNWIND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bad status.
    Status,
    /// Delivery error.
    Delivery,
    /// Never completes.
    Never,
    /// Completes late, but before its deadline.
    Late,
    /// Completes after its deadline.
    TooLate,
    /// Its event is lost.
    EventLost,
    /// Completes after the next command has.
    OutOfOrder,
    /// Page request in mid-command: pages wanted.
    PagesWanted,
    /// Page request in mid-command: pages offered back.
    PagesOffered,
    /// Pages wanted in mid-command, and the platform has none.
    PagesRefused,
    /// Events for unknown slots and an unknown CQ come while it runs.
    StrayEvents,
    /// Its event names another slot.
    WrongSlot,
    /// Output longer than asked.
    Overlong,
    /// The device reads all-ones.
    Removed,
    /// Health syndrome with a request for a reset.
    Fatal,
    /// Health syndrome of a firmware that goes on.
    Nonfatal,
}

pub const FAULTS: &[Fault] = &[
    Fault::Status,
    Fault::Delivery,
    Fault::Never,
    Fault::Late,
    Fault::TooLate,
    Fault::EventLost,
    Fault::OutOfOrder,
    Fault::PagesWanted,
    Fault::PagesOffered,
    Fault::PagesRefused,
    Fault::StrayEvents,
    Fault::WrongSlot,
    Fault::Overlong,
    Fault::Removed,
    Fault::Fatal,
    Fault::Nonfatal,
];

impl Fault {
    /// Heading of its column.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Status => "bad status",
            Self::Delivery => "delivery",
            Self::Never => "never",
            Self::Late => "late",
            Self::TooLate => "too late",
            Self::EventLost => "event lost",
            Self::OutOfOrder => "overtaken",
            Self::PagesWanted => "pages wanted",
            Self::PagesOffered => "pages offered",
            Self::PagesRefused => "no pages",
            Self::StrayEvents => "stray events",
            Self::WrongSlot => "wrong slot",
            Self::Overlong => "overlong",
            Self::Removed => "all ones",
            Self::Fatal => "fatal health",
            Self::Nonfatal => "nonfatal",
        }
    }

    /// Lets it happen at command `n`, counted from 1, which is `row`.
    pub fn inject(self, port: &Port, n: usize, row: &Row) {
        if self == Self::PagesRefused {
            port.hunger.from.store(n, Ordering::Relaxed);
            // A query for pages is answered by giving them: it is then that there are none.
            let until = if row.name == "QUERY_PAGES" { 0 } else { row.opcode };
            port.hunger.until.store(until.into(), Ordering::Relaxed);
        }
        let effect = match self {
            Self::Status => Effect::Status { status: STATUS, syndrome: SYNDROME },
            Self::Delivery => Effect::Delivery(DELIVERY),
            Self::Never => Effect::Never,
            Self::Late => Effect::Late(COMMAND - MS),
            Self::TooLate => Effect::Late(TOO_LATE),
            Self::EventLost => Effect::EventLost,
            Self::OutOfOrder => Effect::Overtaken(2),
            Self::PagesWanted | Self::PagesRefused => Effect::PageRequest(7),
            Self::PagesOffered => Effect::PageRequest(-3),
            Self::StrayEvents => Effect::StrayEvents { slots: u32::MAX, cqn: 0x00ff_fffe },
            Self::WrongSlot => Effect::EventForSlots(1 << 17),
            Self::Overlong => Effect::Overlong,
            Self::Removed => Effect::Removed,
            Self::Fatal => Effect::Health { syndrome: FATAL, severity: 2, request_reset: true },
            Self::Nonfatal => Effect::Health { syndrome: NONFATAL, severity: 4, request_reset: false },
        };
        port.model.inject(Knob::Command { at: Match::Nth(n as u64), effect });
    }
}
